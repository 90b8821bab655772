#!/usr/bin/env python3
"""An update by each optimizer that torch.optim has too, beside PyTorch's, as Markdown: medians over
rounds in turns, each a process of its own. Needs build/bench_updates and a Python with torch:
--python or ADA_BENCH_PYTHON.

--bf16: parameters, gradients and states in bf16. torch's fused updates are computed in fp32, its
others round each operation; so do those beside them here.
"""
import functools
import json
import os
import statistics
import sys

import machine
import markdown
from turns import end, in_turns, parser_of, words_of

PROGRAM = machine.BUILD / "bench_updates"
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
# Prints what bench_updates does.
TORCH = """
import json, statistics, sys, time, torch
shapes, threads, updates = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
name, arguments = json.loads(sys.argv[4])
torch.set_default_dtype(getattr(torch, sys.argv[5]))
torch.set_num_threads(threads)
parameters = []
for shape in shapes:
    parameter = torch.nn.Parameter(torch.randn([int(dim) for dim in shape.split("x")]) * 0.02)
    parameter.grad = torch.randn_like(parameter) * 0.001
    parameters.append(parameter)
optimizer = getattr(torch.optim, name)(parameters, **arguments)
clocks = {"wall": time.perf_counter, "processor": time.process_time}
seconds = {of: [] for of in clocks}
for _ in range(updates + 2):
    begin = {of: clock() for of, clock in clocks.items()}
    optimizer.step()
    for of, clock in clocks.items():
        seconds[of].append(clock() - begin[of])
print(json.dumps({of: 1e3 * statistics.median(all_of[2:]) for of, all_of in seconds.items()}))
"""


def row(options, kind):
    # Muon updates matrices alone.
    shapes = [shape for shape in options.shapes.split(",") if "x" in shape or kind != "muon"]
    common = (",".join(shapes), options.threads, options.updates)
    arguments = CASES[kind][1]
    keys = [f"optimizer.{key}={value}" for key, value in {"kind": kind, **arguments}.items()
            if key != "fused"]
    if options.bf16:
        arithmetic = "fp32" if "fused" in arguments else "torch"
        keys += [f"precision.masters={{format: bf16, arithmetic: {arithmetic}}}",
                 "precision.optimizer_state=bf16"]
    commands = {"ada-train": (PROGRAM, *common, *keys),
                "PyTorch": (options.python, "-c", TORCH, *common, json.dumps(CASES[kind]),
                            "bfloat16" if options.bf16 else "float32")}
    found = in_turns(options.rounds, {name: functools.partial(words_of, *command)
                                      for name, command in commands.items()})
    cells = [kind]
    for of in TIMES:
        ours, theirs = (statistics.median(json.loads(words)[of] for words in all_of)
                        for all_of in found.values())
        cells += [markdown.number(ours), markdown.number(theirs), f"{ours / theirs:.2f}"]
    return cells


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--shapes", default="2304x768,768x768,3072x768,768x3072,768")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=5, help="of a round")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--python", default=os.environ.get("ADA_BENCH_PYTHON", sys.executable))
    options = parser.parse_args()
    if not PROGRAM.exists():
        end("build/bench_updates is missing: cmake --build build --target bench_updates")
    print(f"{machine.describe()}, {options.threads} threads; milliseconds\n")
    header = ["optimizer"]
    for of in TIMES:
        header += [f"ada-train, {of}", "PyTorch", "ratio"]
    # Adafactor's averages are fp32 here.
    kinds = options.only or [kind for kind in CASES if kind != "adafactor" or not options.bf16]
    print(markdown.table(header, [row(options, kind) for kind in kinds]))


if __name__ == "__main__":
    main()
