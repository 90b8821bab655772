#!/usr/bin/env python3
"""What tools/hammer.sh runs: kill -9 and failing system calls, each followed by a resume."""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# A run of a fraction of a second that writes every kind of file and carries every kind of state.
CONFIG = """
name: hammer
seed: 3
data:
  dataset: synthetic
  synthetic: {height: 8, width: 8, channels: 3, classes: 5, train: 70, test: 20}
  batch_size: 10
  augment: {pad: 1, random_crop: true}
  validation: 10
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: drop, kind: dropout, rate: 0.2}
    - {name: fc, kind: linear, features: 5}
precision: {format: fp16}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9}
scaling: {policy: adaptive, update_interval: 3}
train: {epochs: 5}
log: {every: 3, histogram_every: 6, probe_every: 9, dump_every: 10, tensorboard: true,
      statistics: [y, w, dx, dw, dy], what_if: [{format: fp8_e5m2}]}
checkpoint: {every_steps: 4, keep: 2, best: true}
device: {kind: cpu, threads: 2}
"""

# The error that a call is made to answer; EIO where nothing stands here.
ERRORS = {
    "mmap": "ENOMEM", "brk": "ENOMEM", "mprotect": "ENOMEM", "munmap": "ENOMEM",
    "madvise": "EINVAL", "clone": "EAGAIN", "clone3": "EAGAIN", "write": "ENOSPC",
    "pwrite64": "ENOSPC", "writev": "ENOSPC", "unlink": "EACCES", "mkdir": "EACCES",
    "flock": "ENOLCK", "fcntl": "EINVAL", "ioctl": "ENOTTY", "lseek": "EINVAL",
}  # fmt: skip
# oneDNN does not look whether memory for its generated code was granted: a run whose machine refuses
# memory may end by a signal. Nothing may be lost by it.
MEMORY = {"mmap", "brk", "mprotect", "munmap", "madvise"}
# Calls that cannot fail, or whose failure is not this program's to handle.
LEFT_OUT = re.compile(
    r"^(execve|exit|exit_group|rt_sig.*|restart_syscall|arch_prctl|set_.*|rseq|futex|gettid|getpid"
    r"|tgkill|sched_yield|clock_nanosleep|nanosleep|wait4|prlimit64|getuid|geteuid|getgid|getegid)$"
)
EXPECTED = {0, 2, 3, 4, 6}
HANG_SECONDS = 60


class Hammer:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.config = folder / "hammer.yaml"
        self.config.write_text(CONFIG)

    def command(self, run, more=()):
        return [str(self.program), "--config", str(self.config), "--output", str(run),
                "--resume", "--no-progress", *more]  # fmt: skip

    def start(self, command, log):
        with open(log, "wb") as out:
            return subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True)  # fmt: skip

    def wait(self, process):
        """The exit status (below 0: the signal), or "hang"."""
        try:
            return process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "hang"

    def run(self, run, more=(), before=()):
        log = f"{run}.log"
        status = self.wait(self.start([*before, *self.command(run, more)], log))
        return status, pathlib.Path(log).read_text(errors="replace")


def content(run):
    """What must be equal, by file: all but times, and the log."""
    files = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_dir() or name in ("timing.csv", "log.txt", ".lock", "config.yaml"):
            continue
        data = path.read_bytes()
        if name == "summary.json":
            summary = json.loads(data)
            for key in ("seconds", "images_per_second", "host", "versions", "folder", "name"):
                summary.pop(key, None)
            data = json.dumps(summary).encode()
        elif path.suffix == ".json":  # a checkpoint's: lengths of timing.csv differ
            checkpoint = json.loads(data)
            checkpoint.get("lengths", {}).pop("timing.csv", None)
            for key in ("state_xxh3", "config"):
                checkpoint.pop(key, None)
            data = json.dumps(checkpoint).encode()
        elif "tensorboard" in name:  # its files are named and filled with times
            name, data = "tensorboard", b""
        files[name] = data
    return files


def differences(whole, run):
    if not run.is_dir():
        return ["the folder is gone"]
    a, b = content(whole), content(run)
    return [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]


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


def kill_round(hammer, whole, seconds, index, seed):
    """Kills of one run, then its end: [(row, status, problem)]."""
    moments = random.Random(f"{seed} {index}")
    run = hammer.folder / f"kill{index}"
    results = []
    for _ in range(10):
        process = hammer.start(hammer.command(run), f"{run}.log")
        time.sleep(moments.uniform(0, seconds))
        process.kill()
        status = process.wait()
        if status == 0:
            break
        problem = None if status == -signal.SIGKILL else f"run {index} ended with {status}"
        results.append(("kill -9", "killed" if problem is None else status, problem))
    status, text = hammer.run(run)
    differ = differences(whole, run) if status == 0 else [f"{status}: {text.strip()[-300:]}"]
    if differ:
        results.append(("kill -9", "resume", f"run {index}: {', '.join(differ)}"))
    else:
        shutil.rmtree(run)
    return results


def calls_of(hammer, start):
    """How often each system call occurs in one thread of a run that goes on from `start`."""
    run = hammer.folder / "counted"
    shutil.copytree(start, run)
    log = hammer.folder / "calls.txt"
    hammer.run(run, before=["strace", "-f", "-qq", "-o", str(log)])
    shutil.rmtree(run)
    counts = collections.Counter()
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"(\d+) +([a-z_0-9]+)\(", line)
        if match and not LEFT_OUT.match(match[2]):
            counts[match[1], match[2]] += 1
    most = collections.Counter()
    for (_, name), count in counts.items():
        most[name] = max(most[name], count)
    return most


def superfluous(whole, name):
    """A checkpoint that could not be deleted when its time had come; a run that goes on does it."""
    return name.startswith("checkpoints/step-") and not (whole / name).exists()


def fail_call(hammer, whole, start, label, name, when):
    run = hammer.folder / f"call-{label}-{name}-{when}"
    shutil.copytree(start, run)
    error = ERRORS.get(name, "EIO")
    inject = f"inject={name}:error={error}:when={when}"
    status, text = hammer.run(run, before=[
        "strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={name}", "-e", "signal=none",
        "-e", inject, "-o", "/dev/null"])  # fmt: skip
    where = f"{label} run, call {when} answers {error}"
    problem = None
    if status == 127:
        problem = None  # the system's loader, before the program began
    elif name in MEMORY and status in (-signal.SIGSEGV, -signal.SIGABRT):
        problem = None
    elif status not in EXPECTED:
        problem = f"{where}: ended with {status}: {text.strip()[-300:]}"
    elif status == 0 and (differ := [d for d in differences(whole, run) if not superfluous(whole, d)]):
        problem = f"{where}: exit 0, but {', '.join(differ)}"
    if problem is None:
        again, text = hammer.run(run)
        differ = differences(whole, run) if again == 0 else [f"{again}: {text.strip()[-300:]}"]
        if status == 0:  # the run was finished: nothing was done again
            differ = [d for d in differ if not superfluous(whole, d)]
        if differ:
            problem = f"{where} (exit {status}): after the resume {', '.join(differ)}"
    if problem is None:
        shutil.rmtree(run)
        os.unlink(f"{run}.log")
    return [(name, status, problem)]


def spread(count, most):
    """At most `most` of the numbers 1 .. count, the first and last among them (0: all)."""
    if most == 0 or count <= most:
        return range(1, count + 1)
    return sorted({1 + round(i * (count - 1) / max(most - 1, 1)) for i in range(most)})


def parse():
    parser = argparse.ArgumentParser(prog="tools/hammer.sh", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kill -9 at so many moments (100)")
    parser.add_argument("--each", type=int, default=3, metavar="N",
                        help="fail N calls of each kind, 0: every one (3)")  # fmt: skip
    parser.add_argument("--only", metavar="REGEX", default="", help="calls whose name matches")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--program", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep folders of runs with problems")
    options = parser.parse_args()
    if min(options.kills, options.each) < 0 or options.jobs < 1:
        parser.error("numbers must not be negative")
    return options


def main():
    options = parse()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ada-hammer-"))
    hammer = Hammer(options.program.resolve(), folder)
    whole = folder / "whole"
    begin = time.monotonic()
    status, text = hammer.run(whole)
    seconds = time.monotonic() - begin
    if status != 0:
        sys.exit(f"hammer.sh: the undisturbed run ended with {status}: {text}")
    table = Table()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        def collect(tasks):
            for task in concurrent.futures.as_completed(tasks):
                for result in task.result():
                    table.add(*result)

        index = 0
        while table.rows["kill -9"]["killed"] < options.kills:
            rounds = range(index, index + max(options.jobs, options.kills // 20))
            index = rounds.stop
            collect([pool.submit(kill_round, hammer, whole, seconds, i, options.seed) for i in rounds])
        if shutil.which("strace") is None:
            print("hammer.sh: skipped: no system call was failed: strace is missing", file=sys.stderr)
        else:
            fresh, half = folder / "fresh", folder / "half"
            fresh.mkdir()
            hammer.run(half, ["--set", "train.max_steps=17"])
            (half / "summary.json").unlink()
            # A run with an earlier end keeps what was evaluated there: it has a whole of its own.
            resumed = folder / "resumed"
            shutil.copytree(half, resumed)
            hammer.run(resumed)
            for label, start, end in (("fresh", fresh, whole), ("resumed", half, resumed)):
                tasks = []
                for name, count in sorted(calls_of(hammer, start).items()):
                    if not re.search(options.only, name):
                        continue
                    for when in spread(count, options.each):
                        tasks.append(pool.submit(
                            fail_call, hammer, end, start, label, name, when))  # fmt: skip
                collect(tasks)
    table.write()
    if options.keep and table.problems:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if table.problems else 0)


main()
