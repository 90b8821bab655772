#!/usr/bin/env python3
"""Where a training step on a GPU goes: the times of launches that a run with ADA_CUDA_TRACE=FILE
wrote when it ended, as Markdown. A step is what lies between two launches of --ends; the one of
median length among the file's last ones is shown. Times are of each launch's first block, so a
kernel of several waves of blocks ends later than it seems; a gap, between the last end so far and
the next begin in the main stream, is libraries' work, copies, or nobody's.
"""
import collections
import re
import signal
import sys

import markdown
from turns import parser_of

Launch = collections.namedtuple("Launch", "stream begin end kernel")


def launches_of(path):
    """All launches in the order of the file; ValueError names the line that is none."""
    launches = []
    with open(path, encoding="utf-8") as file:
        if file.readline().rstrip("\n").split("\t") != ["stream", "begin_ns", "end_ns", "kernel"]:
            raise ValueError(f"{path}: line 1: not the trace of ADA_CUDA_TRACE")
        for number, line in enumerate(file, 2):
            words = line.rstrip("\n").split("\t")
            if len(words) != 4 or not all(word.isdigit() for word in words[:3]):
                raise ValueError(f"{path}: line {number}: expected a stream, two times and a name")
            launches.append(Launch(int(words[0]), int(words[1]), int(words[2]), words[3]))
    return launches


def steps_of(launches, ends):
    """Whole steps: after a launch whose name begins with `ends` up to the next one, inclusive."""
    steps, step, whole = [], [], False
    for launch in launches:
        step.append(launch)
        if launch.kernel.startswith(ends):
            if whole:
                steps.append(step)
            step, whole = [], True
    return steps


def length_of(step):
    return max(launch.end for launch in step) - step[0].begin


def gaps_of(step):
    """Nanoseconds without a launch of the main stream before each launch of it; 0 on the side."""
    gaps, last = [], step[0].begin
    for launch in step:
        if launch.stream != 0:
            gaps.append(0)
            continue
        gaps.append(max(0, launch.begin - last))
        last = max(last, launch.end)
    return gaps


def short(kernel):
    """Without namespaces, and no longer than a line has room for."""
    kernel = re.sub(r"ada::backend::|cuda(_host)?::|\{anonymous\}::|StatsLevel::", "", kernel)
    return kernel if len(kernel) <= 60 else kernel[:57] + "..."


def us(nanoseconds):
    return f"{nanoseconds / 1e3:.1f}"


def print_each(step):
    print(markdown.table(
        ["at, us", "stream", "gap before, us", "us", "kernel"],
        [[us(launch.begin - step[0].begin), str(launch.stream), us(gap),
          us(launch.end - launch.begin), short(launch.kernel)]
         for launch, gap in zip(step, gaps_of(step))]))


def print_kernels(step):
    """By the names of kernels and the stream, those that take longest with their gaps first."""
    rows = collections.defaultdict(lambda: [0, 0, 0])
    for launch, gap in zip(step, gaps_of(step)):
        row = rows[launch.kernel, launch.stream]
        row[0] += 1
        row[1] += launch.end - launch.begin
        row[2] += gap
    ordered = sorted(rows.items(), key=lambda item: -sum(item[1][1:]))
    print(markdown.table(
        ["kernel", "stream", "launches", "us", "gaps before, us"],
        [[short(kernel), str(stream), str(row[0]), us(row[1]), us(row[2])]
         for (kernel, stream), row in ordered]))
    main = [launch for launch in step if launch.stream == 0]
    print(f"\nThe step: {us(length_of(step))} us, {len(step)} launches; main stream: "
          f"{us(sum(launch.end - launch.begin for launch in main))} us in {len(main)} launches, "
          f"{us(sum(gaps_of(step)))} us between them.")


def main(words):
    parser = parser_of(__doc__)
    parser.add_argument("file")
    parser.add_argument("--each", action="store_true", help="each launch in its order")
    parser.add_argument("--ends", default="ApplyUpdate", help="the kernel that ends a step")
    parser.add_argument("--steps", type=int, default=30, help="look at so many of the last steps")
    options = parser.parse_args(words)
    try:
        steps = steps_of(launches_of(options.file), options.ends)[-options.steps:]
    except (OSError, ValueError) as error:
        print(f"timeline.py: {error}", file=sys.stderr)
        return 2
    if not steps:
        print(f"timeline.py: {options.file}: no two launches of {options.ends}", file=sys.stderr)
        return 2
    step = sorted(steps, key=length_of)[len(steps) // 2]
    (print_each if options.each else print_kernels)(step)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`: nobody reads on
    sys.exit(main(sys.argv[1:]))
