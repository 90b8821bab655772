#!/usr/bin/python3
"""Images per second of ada-train's training loop and of PyTorch's ResNet-20 step, taken in turns so
that a machine whose speed drifts treats both alike; or what policies cost; or what logs cost.

Started by run.sh, which prepares both programs. Prints a Markdown table.
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

import log_cost

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH_MODES = {
    "fp32": "PyTorch fp32",
    "bf16": "PyTorch bf16 autocast",
    "fp16": "PyTorch fp16 autocast",
    "emulated": "PyTorch fp16 emulated by hooks",
    "emulated-counting": "PyTorch fp16 emulated by hooks, lost values counted",
}
BASE = "fp32"
ADA_MODES = {
    "ada": ("ada-train fp16, adaptive, logging", []),
}
# The same training without what the project adds to mixed precision, and with one policy each: what
# a policy looks at in every step, without the statistics of the logged ones.
BARE = ["--set", "log.statistics=[]"]
WITHOUT = ["--set", "scaling={policy: none}", *BARE]
APPROX = ["--set", "scaling={policy: adaptive}", *BARE]
EXACT = ["--set", "scaling={policy: adaptive, method: exact_range}", *BARE]
COSTS = {  # what is measured, and beside what
    "adaptive, approx_range": (APPROX, WITHOUT),
    "adaptive, abs_range": (
        ["--set", "scaling={policy: adaptive, method: abs_range}", *BARE], WITHOUT),
    "adaptive, element_wise_range": (
        ["--set", "scaling={policy: adaptive, method: element_wise_range}", *BARE], WITHOUT),
    "adaptive, exact_range": (EXACT, WITHOUT),
    "layerwise_dynamic": (["--set", "scaling={policy: layerwise_dynamic}", *BARE], WITHOUT),
    "exact_range beside approx_range": (EXACT, APPROX),
}


def cifar10():
    """The folder of the real data set, or None."""
    for folder in (os.environ.get("ADA_CIFAR10"), ROOT / "data" / "cifar-10"):
        if folder and pathlib.Path(folder, "data_batch_1.bin").exists():
            return str(folder)
    return None


def data_options():
    folder = cifar10()
    if folder:
        return ["--set", f"data.path={folder}", "--set", "data.limit={train: 0, test: 256}"]
    return ["--set", "data.dataset=synthetic"]


class AdaTrain:
    """The program, run afresh for each measurement."""

    def __init__(self, options, scratch):
        self.program, self.options, self.scratch = ROOT / "build" / "ada-train", options, scratch
        self.version = subprocess.run([self.program, "--version"], capture_output=True, text=True,
                                      check=True).stdout.splitlines()[0]

    def _start(self, name, threads, extra, core=None):
        """Starts a run that writes to the folder `name`; bound to a core where one is given."""
        o = self.options
        command = [self.program, "--config", o.config, "--output", self._folder(name),
                   "--overwrite", "--no-progress", "--quiet", "--threads", str(threads),
                   "--set", f"data.batch_size={o.batch}", "--set", f"train.max_steps={o.ada_steps}",
                   "--set", f"log.every={o.log_every}", "--set", "evaluate.every_epochs=0",
                   "--set", "checkpoint={every_epochs: 0}", *data_options(), *extra]
        bind = None if core is None else lambda: os.sched_setaffinity(0, {core})
        return subprocess.Popen([str(part) for part in command], cwd=ROOT, preexec_fn=bind,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def _folder(self, name):
        return pathlib.Path(self.scratch, name)

    def _timing(self, name, process):
        """Rows of a run's timing.csv, once it has ended."""
        _, message = process.communicate()
        if process.returncode != 0:
            sys.exit(f"bench.py: ada-train ended with {process.returncode}:\n{message}")
        with open(self._folder(name) / "timing.csv", encoding="utf-8", newline="") as file:
            rows = [{key: float(value) for key, value in row.items()}
                    for row in csv.DictReader(file)]
        if len(rows) < 3:
            sys.exit("bench.py: too few logged steps; raise --ada-steps or lower --log-every")
        return rows

    def images_per_second(self, extra):
        """Of all steps but the first, whose interval holds the warm-up."""
        rows = self._timing("run", self._start("run", self.options.threads, extra))
        seconds = sum(row["seconds"] for row in rows[1:])
        return (rows[-1]["step"] - rows[0]["step"]) * self.options.batch / seconds

    def cost(self, extra, base):
        """What `extra` adds to the step beside `base`, as a share of it. A policy works in the
        backward pass; the forward pass of the same run does the same in both and is the measure of
        how fast the machine was. Both run at the same time, one thread and one core each, then with
        the cores exchanged."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        ratio, share = 1.0, 0.0
        for mine, other in (cores, cores[::-1]):
            processes = (self._start("with", 1, extra, mine), self._start("without", 1, base, other))
            with_, without = (self._timing(name, process)[2:]
                              for name, process in zip(("with", "without"), processes))
            ratio *= (median_of(with_, lambda row: row["backward"] / row["forward"])
                      / median_of(without, lambda row: row["backward"] / row["forward"]))
            share += median_of(without, lambda row: row["backward"] / row["seconds"]) / 2
        return (ratio ** 0.5 - 1) * share

    def seconds_by_step(self, extra):
        """Logged step -> seconds since the logged step before it."""
        rows = self._timing("run", self._start("run", self.options.threads, extra))
        return {int(row["step"]): row["seconds"] for row in rows}


def median_of(rows, value):
    """Over the logged intervals."""
    return statistics.median(value(row) for row in rows)


class Torch:
    """One PyTorch process that waits while the other program is measured."""

    def __init__(self, options):
        self.batch, self.steps = options.batch, options.torch_steps
        self.process = subprocess.Popen(
            [options.python, ROOT / "tools" / "bench" / "torch_resnet20.py", "--batch",
             str(options.batch), "--threads", str(options.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._answer()["torch"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench.py: the PyTorch process ended (its message stands above)")
        return json.loads(line)

    def images_per_second(self, mode):
        self.process.stdin.write(f"{mode} {self.steps}\n")
        self.process.stdin.flush()
        return self.batch / statistics.median(self._answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def machine(options):
    """The machine in words that name no machine."""
    flags = next((line for line in open("/proc/cpuinfo", encoding="ascii", errors="replace")
                  if line.startswith("flags")), "").split()
    best = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
                 if flag in flags), "SSE2")
    amx = " and AMX" if "amx_tile" in flags else ""
    data = "CIFAR-10" if cifar10() else "synthetic data of CIFAR-10's shape"
    return (f"{os.cpu_count()} cores, {platform.machine()} with {best}{amx}, {options.threads} "
            f"thread(s) each, batch {options.batch}, {data}")


def note(text):
    print(text, file=sys.stderr, flush=True)


def compare(options, ada, torch):
    """All modes in turns; each round starts with another one."""
    names = {**{mode: label for mode, (label, _) in ADA_MODES.items()}, **TORCH_MODES}
    speeds = {mode: [] for mode in names}
    order = list(names)
    for number in range(options.rounds):
        for mode in order[number % len(order):] + order[:number % len(order)]:
            speed = (ada.images_per_second(ADA_MODES[mode][1]) if mode in ADA_MODES
                     else torch.images_per_second(mode))
            speeds[mode].append(speed)
            note(f"round {number + 1} of {options.rounds}: {names[mode]}: {speed:.0f} images/s")
    base = statistics.median(speeds[BASE])
    print(f"{machine(options)}; {ada.version}, PyTorch {torch.version}, channels_last; "
          f"median of {options.rounds} rounds taken in turns\n")
    print("| | images/s | lowest, highest round | to PyTorch fp32 |\n|---|---|---|---|")
    for mode, label in names.items():
        values = speeds[mode]
        middle = statistics.median(values)
        print(f"| {label} | {middle:.0f} | {min(values):.0f}, {max(values):.0f} "
              f"| {middle / base:.2f} |")


def policy_cost(options, ada):
    """What each policy adds to the step: medians over rounds."""
    costs = {name: [] for name in COSTS}
    for number in range(options.rounds):
        for name, (extra, base) in COSTS.items():
            costs[name].append(ada.cost(extra, base) * 100)
            note(f"round {number + 1} of {options.rounds}: {name} {costs[name][-1]:+.1f} %")
    options.threads = 1
    print(f"{machine(options)}; {ada.version}; {options.rounds} rounds of two pairs of "
          f"{options.ada_steps} steps\n")
    print("| | cost, % of the step without: median | lowest, highest round |\n|---|---|---|")
    for name, values in costs.items():
        print(f"| {name} | {statistics.median(values):+.1f} | {min(values):+.1f}, "
              f"{max(values):+.1f} |")


def main():
    parser = argparse.ArgumentParser(prog="tools/bench/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--policy-cost", action="store_true",
                      help="only what each policy costs; needs no PyTorch")
    only.add_argument("--log-cost", action="store_true",
                      help="only what statistics and histograms cost; needs no PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ada-steps", type=int, default=200, help="steps of one measurement")
    parser.add_argument("--torch-steps", type=int, default=25)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--config", help="default: configs/resnet20_cifar.yaml; --log-cost: "
                        f"{log_cost.CONFIG}")
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.config = options.config or (log_cost.CONFIG if options.log_cost
                                        else "configs/resnet20_cifar.yaml")
    with tempfile.TemporaryDirectory(prefix="ada-bench-") as scratch:
        ada = AdaTrain(options, scratch)
        if options.policy_cost:
            policy_cost(options, ada)
            return
        if options.log_cost:
            costs = log_cost.measure(options, ada, note)
            print(f"{machine(options)}; {ada.version}, {pathlib.Path(options.config).name}; "
                  f"{options.rounds} rounds of {options.ada_steps} steps\n")
            print(log_cost.table(costs))
            return
        torch = Torch(options)
        compare(options, ada, torch)
        torch.close()


if __name__ == "__main__":
    main()
