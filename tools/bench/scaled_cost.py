#!/usr/bin/env python3
"""What AdaLossScaled adds to a step of PyTorch on the processor: process time and peak memory, as
Markdown. The same network, plain and scaled, takes a step in turns, each in a process of its own
with one thread. Needs torch (--python or ADA_BENCH_PYTHON) and libada_scaling.
"""
import os
import statistics
import sys

import machine
import markdown
import models
from torch_runs import Torch
from turns import in_turns, parser_of

PLAIN = "plain"
POLICIES = ["{policy: none}", "{policy: adaptive}", "{policy: adaptive, update_interval: 10}",
            "{policy: adaptive, method: exact_range}"]


def row(policy, seconds, peaks):
    """Cells of a policy. `seconds`, `peaks`: policy -> of each step; MiB, and those without torch."""
    ratios = sorted(a / b for a, b in zip(seconds[policy], seconds[PLAIN]))
    quarter = len(ratios) // 4
    return [f"`{policy}`" if policy != PLAIN else PLAIN,
            markdown.number(statistics.median(seconds[policy]) * 1000),
            f"{statistics.median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})",
            markdown.number(peaks[policy][0], 4),
            *(f"{a / b:.2f}" for a, b in zip(peaks[policy], peaks[PLAIN]))]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--network", default="resnet20", choices=sorted(models.MODELS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--policy", action="append", metavar="YAML")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--python", default=os.environ.get("ADA_BENCH_PYTHON", sys.executable))
    options = parser.parse_args()
    trainings = {policy: Torch(
        options.python, model=options.network, mode="fp32", batch=options.batch, threads=1,
        device="cpu", policy=policy if policy != PLAIN else "", contiguous=not options.channels_last)
        for policy in [PLAIN, *(options.policy or POLICIES)]}
    answers = in_turns(options.steps, {policy: lambda training=training: training.measure(1)
                                       for policy, training in trainings.items()})
    about = {policy: training.about for policy, training in trainings.items()}
    for training in trainings.values():
        training.close()
    seconds = {policy: [answer["cpu"] for answer in of] for policy, of in answers.items()}
    peaks = {policy: (of[-1]["peak_mib"], of[-1]["peak_mib"] - about[policy]["import_mib"])
             for policy, of in answers.items()}
    print(f"{machine.describe()}, one thread; torch {about[PLAIN]['torch']}; {options.network} in "
          f"fp32, batch {options.batch}{', channels_last' if options.channels_last else ''}, "
          f"{options.steps} steps of each in turns\n")
    print(markdown.table(["scaling", "CPU ms a step", "ratio to plain, median (quartiles)",
                          "peak MiB", "ratio", "ratio without `import torch`"],
                         [row(policy, seconds, peaks) for policy in trainings]))


if __name__ == "__main__":
    main()
