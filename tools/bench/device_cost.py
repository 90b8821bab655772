"""What counting and what each policy costs on a GPU: whole runs in turns, images per second beside
those of `policy: none` with logs every 100 steps. Used by bench.py --device cuda --policy-cost.
"""
import statistics

import compare
import machine
import markdown
import models
from ada_runs import note

BASE = "none, statistics every 100 steps"
NONE = "scaling={policy: none}"
ADAPTIVE = "scaling={policy: adaptive}"
NOTHING = "log={every: 100, statistics: []}"
EVERY_100 = "log={every: 100}"
EVERY_STEP = "log={every: 1}"
RUNS = {  # --set values of each
    "none, nothing counted": (NONE, NOTHING),
    BASE: (NONE, EVERY_100),
    "none, statistics every step": (NONE, EVERY_STEP),
    "fixed": ("scaling={policy: fixed}", EVERY_100),
    "dynamic": ("scaling={policy: dynamic}", EVERY_100),
    "adaptive, approx_range": (ADAPTIVE, EVERY_100),
    "adaptive, abs_range": ("scaling={policy: adaptive, method: abs_range}", EVERY_100),
    "adaptive, element_wise_range": ("scaling={policy: adaptive, method: element_wise_range}",
                                     EVERY_100),
    "adaptive, exact_range": ("scaling={policy: adaptive, method: exact_range}", EVERY_100),
    "adaptive, approx_range, statistics every step": (ADAPTIVE, EVERY_STEP),
    "layerwise_dynamic": ("scaling={policy: layerwise_dynamic}", EVERY_100),
    "logmax": ("scaling={policy: logmax}", EVERY_100),
    "histogram": ("scaling={policy: histogram}", EVERY_100),
}
HEADER = ["model", "batch", "run", "images/s", "cost, % of the base's step: median",
          "lowest, highest round"]


def costs(speeds):
    """What each run adds to the base's step, as a share of it, round by round. `speeds`: name ->
    images/s of each round."""
    return {name: [base / own - 1 for own, base in zip(values, speeds[BASE])]
            for name, values in speeds.items()}


def rows(title, batch, speeds):
    """Cells of one model's rows."""
    cells = []
    for name, shares in costs(speeds).items():
        percent = [share * 100 for share in shares]
        cells.append([title, str(batch), name, markdown.number(statistics.median(speeds[name])),
                      "base" if name == BASE else f"{statistics.median(percent):+.1f}",
                      "" if name == BASE else f"{min(percent):+.1f}, {max(percent):+.1f}"])
    return cells


def measure(options, ada, model, batch):
    """Name -> images/s of each round, all runs in turns."""
    steps = options.ada_steps or model.steps(batch, options.device)
    common = [*model.network, f"data.batch_size={batch}", f"train.max_steps={steps}",
              "precision={format: fp16}"]
    speeds = {name: [] for name in RUNS}

    def one(number, name):
        run = ada.run(model.config, [*common, *RUNS[name]], options.threads)
        speeds[name].append(run.samples_per_second(batch) * model.units())
        note(f"{model.title}, batch {batch}, round {number + 1} of {options.rounds}: {name}: "
             f"{speeds[name][-1]:,.0f} {model.unit()}")
    compare.in_turns(list(RUNS), options.rounds, one)
    return speeds


def run(options, ada):
    """Measures all models and prints the table."""
    cells = []
    for name in options.models:
        for batch in options.batch:
            model = models.MODELS[name]
            cells += rows(model.title, batch, measure(options, ada, model, batch))
    print(f"{machine.gpu()}; {ada.version}, fp16; {options.rounds} rounds taken in turns; base: "
          f"{BASE}\n")
    print(markdown.table(models.in_units(HEADER, options.models), cells))
