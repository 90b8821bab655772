"""Single convolutions, linear layers and attention beside oneDNN's. Used by bench.py --ops."""
import json
import statistics
import subprocess
import sys

import machine
import markdown
import models
from ada_runs import note

PROGRAMS = {"fp16": "ada-train fp16", "bf16": "ada-train bf16", "fp32": "ada-train fp32",
            "onednn": "oneDNN f32"}
HEADER = ["layer", "layers", "part",
          *(cell for title in PROGRAMS.values()
            for cell in (f"{title}, ms", "GFLOP/s", "of limit")),
          "fp16 to oneDNN"]


def limit_seconds(row, program, peak):
    """The least time: of its arithmetic at the machine's peak, or of moving its operands and its
    result once each, whichever is longer. bf16 products are those of tiles or of AVX-512 where
    there are such; exact fp16 products are four of tiles."""
    gflops = {"bf16": peak.bf16(), "fp16": peak.tiles and peak.tiles / 4}.get(program) or peak.fma
    return max(float(row["flop"]) / (gflops * 1e9), float(row["bytes"]) / (peak.copy * 1e9))


class Sums:
    """Seconds, operations and least seconds of one part in each program."""

    def __init__(self):
        self.by_program = {program: [0.0, 0.0, 0.0] for program in PROGRAMS}

    def add(self, program, seconds, flop, least, times=1):
        sums = self.by_program[program]
        for i, value in enumerate((seconds, flop, least)):
            sums[i] += value * times

    def cells(self):
        cells = []
        for seconds, flop, least in self.by_program.values():
            cells += ([markdown.number(seconds * 1e3), markdown.number(flop / seconds * 1e-9),
                       markdown.percent(least / seconds)] if seconds else ["", "", ""])
        ours, theirs = self.by_program["fp16"][0], self.by_program["onednn"][0]
        return [*cells, f"{theirs / ours:.2f}" if ours and theirs else ""]


def parts_of(text):
    """Rows from what bench_ops prints, Google Benchmark's JSON: the median of all rounds. Where ours
    has the data gradient only together with the weight gradient, it is the difference."""
    seconds, numbers = {}, {}
    for run in json.loads(text)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        seconds.setdefault(run["label"], []).append(run["real_time"] * 1e-9)
        numbers[run["label"]] = run["flop"], run["bytes"]
    found = []
    for label, all_seconds in seconds.items():
        layer, layers, part, program = label.split("|")
        time = statistics.median(all_seconds)
        if part == "both gradients":
            part = "data gradient"
            time -= statistics.median(seconds[f"{layer}|{layers}|weight gradient|{program}"])
        found.append({"layer": layer, "layers": layers, "part": part, "program": program,
                      "seconds": max(time, 1e-9), "flop": numbers[label][0],
                      "bytes": numbers[label][1]})
    return found


def rows(measured, peak):
    """Cells from rows as parts_of has them: a line for each layer and part, then the sums over all
    layers of the network."""
    lines, totals = {}, {}
    for row in measured:
        line = lines.setdefault((row["layer"], row["layers"], row["part"]), Sums())
        total = totals.setdefault(row["part"], Sums())
        numbers = (float(row["seconds"]), float(row["flop"]),
                   limit_seconds(row, row["program"], peak))
        line.add(row["program"], *numbers)
        total.add(row["program"], *numbers, times=int(row["layers"]))
    count = sum({(layer, int(layers)): int(layers) for layer, layers, _ in lines}.values())
    return ([[*name, *sums.cells()] for name, sums in lines.items()]
            + [["all", str(count), part, *sums.cells()] for part, sums in totals.items()])


def run(options):
    """Measures and prints a table for each model and batch."""
    for name in options.models:
        model = models.MODELS[name]
        for batch in options.batch or [model.batch]:
            note(f"{model.title}, batch {batch}: {options.rounds} rounds")
            before = machine.measure_peak(options.peak, options.threads)
            done = subprocess.run(
                [str(word) for word in (options.op_bench, machine.ROOT / model.config,
                                        model.image, batch, options.threads, options.rounds,
                                        *model.network)],
                capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"bench.py: bench_ops ended with {done.returncode}:\n{done.stderr}")
            after = machine.measure_peak(options.peak, options.threads)
            peak = machine.median_peak([before, after])
            measured = parts_of(done.stdout)
            print(f"{model.title}, batch {batch}; {machine.describe()}, {options.threads} "
                  f"thread(s); median of {options.rounds} rounds taken in turns\n\n"
                  f"Peak: {peak.text()}\n")
            print(markdown.table(HEADER, rows(measured, peak)) + "\n")
