#!/usr/bin/env python3
"""What AdaLossScaled adds to a step of PyTorch on the processor: process time and peak memory, as
Markdown. The same network, plain and scaled, takes a step in turns on the same batch, one thread;
memory is that of a process each. Needs torch and libada_scaling.

usage: scaled_cost.py [--network NAME] [--batch N] [--steps N] [--policy YAML]... [--channels-last]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from torch.nn import functional

import machine
import markdown
from torch_networks import NETWORKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from ada_train.torch import AdaLossScaled  # noqa: E402

PLAIN = "plain"
WARM_UP = 3


def resident(field):
    """MiB of this process: VmRSS now, VmHWM at most."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) / 1024


class Training:
    """One network with its step; `policy`: PLAIN or the keys of `scaling:` as YAML."""

    def __init__(self, options, policy):
        torch.manual_seed(0)
        case = NETWORKS[options.network]
        self.model = case.make()
        form = torch.channels_last if options.channels_last else torch.contiguous_format
        self.model.to(memory_format=form)
        self.images = case.samples(options.batch, "cpu")
        if self.images.dim() == 4:
            self.images = self.images.contiguous(memory_format=form)
        self.optimizer = case.optimizer(self.model, "cpu")
        self.scaled = policy != PLAIN
        if self.scaled:
            self.model = AdaLossScaled(self.model, policy)
        classes = self.logits(self.images[:2]).shape[1]
        self.labels = torch.randint(0, classes, (len(self.logits(self.images)),))

    def logits(self, images):
        outputs = self.model(images)
        return outputs.flatten(0, 1) if outputs.dim() == 3 else outputs

    def step(self):
        """Seconds of the process."""
        start = time.process_time()
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.logits(self.images), self.labels)
        if self.scaled:
            self.model.scale(loss).backward()
            self.model.step(self.optimizer)
        else:
            loss.backward()
            self.optimizer.step()
        return time.process_time() - start


def memory(options, policy):
    """Peak MiB of a process that trains, and of that what the training took."""
    done = subprocess.run([sys.executable, __file__, "--network", options.network, "--batch",
                           str(options.batch), "--memory", policy,
                           *(["--channels-last"] if options.channels_last else [])],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure_memory(options, policy):
    before = resident("VmRSS")
    training = Training(options, policy)
    for _ in range(WARM_UP):
        training.step()
    print(json.dumps([resident("VmHWM"), resident("VmHWM") - before]))


def turns(options, policies):
    """{policy: seconds of each step}; every round starts with another one."""
    trainings = {policy: Training(options, policy) for policy in policies}
    seconds = {policy: [] for policy in policies}
    for number in range(WARM_UP + options.steps):
        first = number % len(policies)
        for policy in policies[first:] + policies[:first]:
            took = trainings[policy].step()
            if number >= WARM_UP:
                seconds[policy].append(took)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet20", choices=sorted(NETWORKS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        measure_memory(options, options.memory)
        return
    policies = [PLAIN, *(options.policy or ["{policy: none}", "{policy: adaptive}",
                                            "{policy: adaptive, update_interval: 10}",
                                            "{policy: adaptive, method: exact_range}"])]
    seconds = turns(options, policies)
    peaks = {policy: memory(options, policy) for policy in policies}
    print(f"{machine.describe()}, one thread; torch {torch.__version__}; {options.network} in "
          f"fp32, batch {options.batch}{', channels_last' if options.channels_last else ''}, "
          f"{options.steps} steps of each in turns\n")
    rows = []
    for policy in policies:
        ratios = sorted(a / b for a, b in zip(seconds[policy], seconds[PLAIN]))
        rows.append([f"`{policy}`" if policy != PLAIN else PLAIN,
                     markdown.number(statistics.median(seconds[policy]) * 1000),
                     f"{statistics.median(ratios):.3f} ({ratios[len(ratios) // 4]:.3f} to "
                     f"{ratios[-1 - len(ratios) // 4]:.3f})",
                     markdown.number(peaks[policy][0], 4),
                     f"{peaks[policy][0] / peaks[PLAIN][0]:.2f}",
                     f"{peaks[policy][1] / peaks[PLAIN][1]:.2f}"])
    print(markdown.table(["scaling", "CPU ms a step", "ratio to plain, median (quartiles)",
                          "peak MiB", "ratio", "ratio without `import torch`"], rows))


if __name__ == "__main__":
    main()
