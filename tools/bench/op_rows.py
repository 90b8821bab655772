"""Single convolutions, linear layers and attention beside oneDNN's. Used by bench.py --ops."""
import json
import statistics

import machine
import markdown
import models
from turns import note, words_of

PROGRAMS = {"fp16": "ada-train fp16", "bf16": "ada-train bf16", "fp32": "ada-train fp32",
            "onednn": "oneDNN f32"}
HEADER = ["layer", "layers", "part",
          *(cell for title in PROGRAMS.values()
            for cell in (f"{title}, ms", "GFLOP/s", "of limit")),
          "fp16 to oneDNN"]


def limit_seconds(program, flop, size, peak):
    """The least time: of its arithmetic at the machine's peak, or of moving its operands and its
    result once each, `size` bytes, whichever is longer. bf16 products are those of tiles or of
    AVX-512 where there are such; exact fp16 products are four of tiles."""
    gflops = {"bf16": peak.bf16(), "fp16": peak.tiles and peak.tiles / 4}.get(program) or peak.fma
    return max(flop / (gflops * 1e9), size / (peak.copy * 1e9))


def parts_of(text):
    """{(layer, layers, part, program): (seconds, operations, bytes)} from what bench_ops prints,
    Google Benchmark's JSON: the median of all rounds. Where ours has the data gradient only together
    with the weight gradient, it is the difference."""
    runs = {}
    for run in sorted(json.loads(text)["benchmarks"], key=lambda run: run.get("family_index", 0)):
        if run["run_type"] == "iteration":
            runs.setdefault(tuple(run["label"].split("|")), []).append(run)
    times = {key: statistics.median(run["real_time"] for run in of_key) * 1e-9
             for key, of_key in runs.items()}
    found = {}
    for (layer, layers, part, program), seconds in times.items():
        numbers = [runs[layer, layers, part, program][0][name] for name in ("flop", "bytes")]
        if part == "both gradients":
            part = "data gradient"
            seconds -= times[layer, layers, "weight gradient", program]
        found[layer, layers, part, program] = (max(seconds, 1e-9), *numbers)
    return found


def cells_of(programs):
    """Cells of a line. `programs`: program -> [seconds, operations, least seconds]."""
    cells = []
    for program in PROGRAMS:
        seconds, flop, least = programs.get(program, (0, 0, 0))
        cells += ([markdown.number(seconds * 1e3), markdown.number(flop / seconds * 1e-9),
                   markdown.percent(least / seconds)] if seconds else ["", "", ""])
    both = "fp16" in programs and "onednn" in programs
    return [*cells, f"{programs['onednn'][0] / programs['fp16'][0]:.2f}" if both else ""]


def rows(measured, peak):
    """Cells of what parts_of gives: a line for each layer and part, then the sums over all layers of
    the network."""
    lines, totals, counts = {}, {}, {}
    for (layer, layers, part, program), (seconds, flop, size) in measured.items():
        numbers = (seconds, flop, limit_seconds(program, flop, size, peak))
        lines.setdefault((layer, layers, part), {})[program] = numbers
        total = totals.setdefault(part, {}).setdefault(program, [0, 0, 0])
        counts[layer, layers] = int(layers)
        for i, value in enumerate(numbers):
            total[i] += value * int(layers)
    return ([[*name, *cells_of(programs)] for name, programs in lines.items()]
            + [["all", str(sum(counts.values())), part, *cells_of(programs)]
               for part, programs in totals.items()])


def run(options):
    """Measures and prints a table for each model and batch."""
    for name in options.models:
        model = models.MODELS[name]
        for batch in options.batch or [model.batch]:
            note(f"{model.title}, batch {batch}: {options.rounds} rounds")
            before = machine.measure_peak(options.peak, options.threads)
            measured = parts_of(words_of(
                options.op_bench, machine.ROOT / model.config, batch, options.threads, options.rounds,
                *machine.data_options(model.config), *model.network, cwd=machine.ROOT))
            after = machine.measure_peak(options.peak, options.threads)
            peak = machine.median_peak([before, after])
            print(f"{model.title}, batch {batch}; {machine.describe()}, {options.threads} "
                  f"thread(s); median of {options.rounds} rounds taken in turns\n\n"
                  f"Peak: {peak.text()}\n")
            print(markdown.table(HEADER, rows(measured, peak)) + "\n")
