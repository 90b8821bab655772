"""What was tried, how it ended, and what was wrong."""
import collections
import sys


class Table:
    def __init__(self):
        self.rows = collections.defaultdict(collections.Counter)
        self.problems = []

    def add(self, row, status, problem):
        self.rows[row]["tried"] += 1
        self.rows[row][status] += 1
        if problem:
            self.rows[row]["problems"] += 1
            self.problems.append(f"{row}: {problem}")
            print(f"  {row}: {problem}", file=sys.stderr)

    def write(self):
        print(f"{'what':<28} {'tried':>6} {'problems':>8}  ended with")
        total = collections.Counter()
        for row, counts in sorted(self.rows.items()):
            ends = ", ".join(
                f"{status} x {count}" for status, count in sorted(counts.items(), key=str)
                if status not in ("tried", "problems"))  # fmt: skip
            print(f"{row:<28} {counts['tried']:>6} {counts['problems']:>8}  {ends}")
            total += counts
        print(f"{'all':<28} {total['tried']:>6} {total['problems']:>8}")
