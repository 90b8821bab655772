"""System calls that fail, one in each run (strace injects the error); the run is then resumed."""
import collections
import os
import pathlib
import re
import shutil
import sys

import bench as benches

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
from ada_train.spread import evenly  # noqa: E402

# The error that a call is made to answer; EIO where nothing stands here.
ERRORS = {
    "mmap": "ENOMEM", "brk": "ENOMEM", "mprotect": "ENOMEM", "munmap": "ENOMEM",
    "madvise": "EINVAL", "clone": "EAGAIN", "clone3": "EAGAIN", "write": "ENOSPC",
    "pwrite64": "ENOSPC", "writev": "ENOSPC", "unlink": "EACCES", "mkdir": "EACCES",
    "flock": "ENOLCK", "fcntl": "EINVAL", "ioctl": "ENOTTY", "lseek": "EINVAL",
}  # fmt: skip
MEMORY = {"mmap", "brk", "mprotect", "munmap", "madvise"}
# Calls that cannot fail, or whose failure is not this program's to handle.
LEFT_OUT = re.compile(
    r"^(execve|exit|exit_group|rt_sig.*|restart_syscall|arch_prctl|set_.*|rseq|futex|gettid|getpid"
    r"|tgkill|sched_yield|clock_nanosleep|nanosleep|wait4|prlimit64|getuid|geteuid|getgid|getegid)$"
)
HALF = "train.max_steps=17"


def add_options(parser):
    parser.add_argument("--each", type=int, default=3, metavar="N",
                        help="fail N calls of each kind, 0: every one (3)")
    parser.add_argument("--only", metavar="REGEX", default="", help="calls whose name matches")


def _calls_of(bench, start):
    """How often each system call occurs in one thread of a run that goes on from `start`."""
    run = bench.folder / "counted"
    shutil.copytree(start, run)
    log = bench.folder / "calls.txt"
    bench.run(run, before=["strace", "-f", "-qq", "-o", str(log)])
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


def _superfluous(whole, name):
    """A checkpoint that could not be deleted when its time had come; a run that goes on does it."""
    return name.startswith("checkpoints/step-") and not (whole / name).exists()


def _fail(bench, whole, start, label, name, when):
    run = bench.folder / f"call-{label}-{name}-{when}"
    shutil.copytree(start, run)
    error = ERRORS.get(name, "EIO")
    status, text = bench.run(run, before=[
        "strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={name}", "-e", "signal=none",
        "-e", f"inject={name}:error={error}:when={when}", "-o", "/dev/null"])  # fmt: skip
    where = f"{label} run, call {when} answers {error}"
    expected = benches.EXPECTED | {benches.LOADER}
    if name in MEMORY:
        expected = expected | benches.WITHOUT_MEMORY
    problem = None
    if status not in expected:
        problem = f"{where}: ended with {status}: {text.strip()[-300:]}"
    elif status == 0:
        differ = [d for d in benches.differences(whole, run) if not _superfluous(whole, d)]
        problem = f"{where}: exit 0, but {', '.join(differ)}" if differ else None
    if problem is None:
        differ = bench.differs_after_resume(run, whole)
        if status == 0:  # the run was finished: nothing was done again
            differ = [d for d in differ if not _superfluous(whole, d)]
        if differ:
            problem = f"{where} (exit {status}): after the resume {', '.join(differ)}"
    if problem is None:
        shutil.rmtree(run)
        os.unlink(f"{run}.log")
    return [(bench.row(name), status, problem)]


def hammer(bench, options, pool):
    if shutil.which("strace") is None:
        print("hammer.sh: skipped: no system call was failed: strace is missing", file=sys.stderr)
        return
    fresh, half = bench.folder / "fresh", bench.folder / "half"
    fresh.mkdir()
    bench.run(half, ["--set", HALF])
    (half / "summary.json").unlink()
    # A run with an earlier end keeps what was evaluated there: it has a whole of its own.
    resumed = bench.folder / "resumed"
    shutil.copytree(half, resumed)
    bench.run(resumed)
    for label, start, end in (("fresh", fresh, bench.whole), ("resumed", half, resumed)):
        pool.collect([(_fail, bench, end, start, label, name, when)
                      for name, count in sorted(_calls_of(bench, start).items())
                      if re.search(options.only, name)
                      for when in (1 + i for i in evenly(count, options.each or count))])
