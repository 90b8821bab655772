#!/usr/bin/env python3
"""An update by each optimizer that torch.optim has too, beside PyTorch's, as Markdown: medians over
rounds in turns, each a process of its own. Needs torch and build/bench_updates.

usage: updates.py [--shapes 768x768,768] [--threads N] [--rounds N] [--updates N] [--only KIND]...
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import machine
import markdown

PROGRAM = machine.ROOT / "build/bench_updates"
# torch's class and its arguments, of which those but `fused` are ours, too.
CASES = {
    "muon": ("Muon", {}),
    "adafactor": ("Adafactor", {}),
    "adamw": ("AdamW", {"fused": True}),
    "adam": ("Adam", {"fused": True}),
    "sgd": ("SGD", {"momentum": 0.9, "fused": True}),
    "rmsprop": ("RMSprop", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adagrad": ("Adagrad", {"fused": True}),
    "adamax": ("Adamax", {}),
}
TIMES = ("processor", "wall")


def shapes_of(options, kind):
    """Muon updates matrices alone."""
    shapes = options.shapes.split(",")
    return ",".join(s for s in shapes if "x" in s or kind != "muon")


def measure_torch(options):
    """Prints what bench_updates does."""
    import torch  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(options.threads)
    name, arguments = CASES[options.torch]
    parameters = []
    for shape in shapes_of(options, options.torch).split(","):
        parameter = torch.nn.Parameter(torch.randn([int(dim) for dim in shape.split("x")]) * 0.02)
        parameter.grad = torch.randn_like(parameter) * 0.001
        parameters.append(parameter)
    optimizer = getattr(torch.optim, name)(parameters, **arguments)
    seconds = {of: [] for of in TIMES}
    for i in range(-2, options.updates):
        wall, processor = time.perf_counter(), time.process_time()
        optimizer.step()
        if i >= 0:
            seconds["processor"].append(time.process_time() - processor)
            seconds["wall"].append(time.perf_counter() - wall)
    print(json.dumps({of: 1e3 * statistics.median(all_of) for of, all_of in seconds.items()}))


def commands(options, kind):
    keys = {"kind": kind, **{k: v for k, v in CASES[kind][1].items() if k != "fused"}}
    numbers = [str(options.threads), str(options.updates)]
    return {"ada-train": [PROGRAM, shapes_of(options, kind), *numbers,
                          *(f"optimizer.{key}={value}" for key, value in keys.items())],
            "PyTorch": [sys.executable, __file__, "--torch", kind, "--shapes", options.shapes,
                        "--threads", numbers[0], "--updates", numbers[1]]}


def row(options, kind):
    found = {name: [] for name in commands(options, kind)}
    for i in range(options.rounds):
        for name, command in sorted(commands(options, kind).items(), reverse=bool(i % 2)):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout))
    cells = [kind]
    for of in TIMES:
        ours, theirs = (statistics.median(one[of] for one in found[name]) for name in found)
        cells += [markdown.number(ours), markdown.number(theirs), f"{ours / theirs:.2f}"]
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="2304x768,768x768,3072x768,768x3072,768")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=5, help="of a round")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        measure_torch(options)
        return
    if not PROGRAM.exists():
        sys.exit("updates.py: build/bench_updates is missing: "
                 "cmake --build build --target bench_updates")
    print(f"{machine.describe()}, {options.threads} threads; milliseconds\n")
    header = ["optimizer"]
    for of in TIMES:
        header += [f"ada-train, {of}", "PyTorch", "ratio"]
    print(markdown.table(header, [row(options, kind) for kind in options.only or CASES]))


if __name__ == "__main__":
    main()
