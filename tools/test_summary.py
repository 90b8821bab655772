#!/usr/bin/python3
"""Sums up the log of `ctest --verbose`: the output of what failed, the reasons of what was skipped,
where the time went (the slowest first), and a last line "N passed, N failed" that counts test
cases, not programs.

usage: tools/test_summary.py LOG     Exit 1 where something failed or nothing ran.
"""
import collections
import re
import sys

OUTPUT = re.compile(r"^(\d+): ?(.*)$")
RESULT = re.compile(r"^ *\d+/\d+ Test +#(\d+): (\S+) [. ]*(.*)$")
STATUS = re.compile(r"(?:\*\*\*|^)(\w[^*]*?)(?:  |$)")
DOCTEST = re.compile(r"^\[cases\] (\d+) passed, (\d+) failed, (\d+) skipped$")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ")
UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$")
UNITTEST_SKIP = re.compile(r"^(?:(\w+) .*)?\.\.\. skipped ['\"](.*)['\"]$")
SECONDS = re.compile(r" (\d+\.\d+) sec\b")
MAX_LINES = 200  # of a failed test's output
SLOWEST = 12     # tests whose time is shown, of those that take at least SHORT seconds
SHORT = 1.0


class Counts:
    """Test cases by outcome."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def unittest_counts(lines):
    """Counts in the output of Python's unittest, or None."""
    for number, line in enumerate(lines):
        ran = UNITTEST_RAN.match(line)
        if not ran:
            continue
        end = next((m for m in map(UNITTEST_END.match, lines[number:]) if m), None)
        parts = dict(re.findall(r"(\w+)=(\d+)", end.group(1) or "")) if end else {}
        skipped = int(parts.get("skipped", 0))
        failed = int(parts.get("failures", 0)) + int(parts.get("errors", 0))
        return Counts(max(0, int(ran.group(1)) - failed - skipped), failed, skipped)
    return None


def count(status, lines):
    """Counts of one CTest test; a program that tells nothing is one test case."""
    counts = next((Counts(*map(int, m.groups())) for m in map(DOCTEST.match, lines) if m), None)
    counts = counts or unittest_counts(lines)
    if status == "Passed":
        return counts or Counts(passed=1)
    if status == "Skipped":
        return counts if counts and counts.skipped else Counts(skipped=1)
    counts = counts or Counts()
    counts.failed = max(counts.failed, 1)  # a crash counts nothing itself
    return counts


def read(path):
    """(name, status, seconds, output lines) of each test in the log, in the order they ended."""
    output, results = collections.defaultdict(list), []
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            said = OUTPUT.match(line.rstrip("\n"))
            if said:
                output[said.group(1)].append(said.group(2))
                continue
            ended = RESULT.match(line)
            if ended:
                status = STATUS.search(ended.group(3))
                seconds = SECONDS.search(ended.group(3))
                results.append((ended.group(2), status.group(1) if status else "?",
                                float(seconds.group(1)) if seconds else 0.0,
                                output[ended.group(1)]))
    return results


def skips(lines):
    """(what, reason) of each skip that a test's output tells."""
    for line in lines:
        if line.startswith("[skipped] "):
            what, _, reason = line[len("[skipped] "):].partition(": ")
            yield what, reason
        python = UNITTEST_SKIP.match(line)
        if python:
            yield python.group(1) or "a test", python.group(2)


def without_preamble(lines):
    """The command and the output, without CTest's words on folder, environment and time."""
    start = next((i for i, l in enumerate(lines) if l.startswith("Test timeout computed")), -1)
    return [l for l in lines[:start + 1] if l.startswith("Test command")] + lines[start + 1:]


def print_times(times):
    """The slowest of (name, seconds), and what is left of all seconds."""
    slow = sorted((t for t in times if t[1] >= SHORT), key=lambda t: -t[1])[:SLOWEST]
    if not slow or len(times) == 1:
        return
    rest = sum(seconds for _, seconds in times) - sum(seconds for _, seconds in slow)
    print("seconds, the slowest first:")
    for name, seconds in [*slow, (f"the other {len(times) - len(slow)}", rest)]:
        print(f"  {seconds:8.1f}  {name}")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    total, reasons, times = Counts(), collections.defaultdict(list), []
    for name, status, seconds, lines in read(sys.argv[1]):
        times.append((name, seconds))
        total.add(count(status, lines))
        if status not in ("Passed", "Skipped"):
            print(f"--- {name}: {status}", *without_preamble(lines)[-MAX_LINES:], sep="\n")
        for what, reason in skips(lines):
            reasons[reason].append(f"{name}: {what}")
    for reason, skipped in reasons.items():
        print(f"skipped ({reason}):", *(f"  {test}" for test in skipped), sep="\n")
    print_times(times)
    if total.skipped:
        print(f"{total.skipped} skipped")
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
