"""What policies and logs add to a step, as Markdown tables of medians over rounds: --policy-cost on
a processor and on a GPU, --log-cost on both."""
import os
import pathlib
import statistics
import sys

import compare
import machine
import markdown
import models
from ada_runs import note

METHODS = ("approx_range", "abs_range", "element_wise_range", "exact_range")


def adaptive(method):
    return f"scaling={{policy: adaptive, method: {method}}}"


def spread(values, digits=1):
    """Cells: median; lowest and highest round."""
    return [f"{statistics.median(values):+.{digits}f}",
            f"{min(values):+.{digits}f}, {max(values):+.{digits}f}"]


# --policy-cost on a processor: the training without what the project adds to mixed precision, and
# with one policy each: what a policy looks at in every step, without statistics.
BARE = "log.statistics=[]"
COSTS = {  # what is measured, and against what
    **{f"adaptive, {method}": ([adaptive(method), BARE], ["scaling={policy: none}", BARE])
       for method in METHODS},
    "layerwise_dynamic": (["scaling={policy: layerwise_dynamic}", BARE],
                          ["scaling={policy: none}", BARE]),
    "exact_range beside approx_range": ([adaptive("exact_range"), BARE],
                                        [adaptive("approx_range"), BARE]),
}


def policy_cost(ada, config, common, extra, base):
    """What `extra` adds to the step beside `base`, as a share of it. A policy works in the backward
    pass; the forward pass of the same run does the same in both and is the measure of how fast the
    machine was. Both run at the same time, one thread and one core each, then with the cores
    exchanged."""
    def median_of(rows, value):
        return statistics.median(value(row) for row in rows)

    cores = sorted(os.sched_getaffinity(0))[:2]
    ratio, share = 1.0, 0.0
    for mine, other in (cores, cores[::-1]):
        started = (ada.start(config, [*common, *extra], 1, "with", mine),
                   ada.start(config, [*common, *base], 1, "without", other))
        with_, without = (ada.finish(run, least=3).rows[2:] for run in started)
        ratio *= (median_of(with_, lambda row: row["backward"] / row["forward"])
                  / median_of(without, lambda row: row["backward"] / row["forward"]))
        share += median_of(without, lambda row: row["backward"] / row["seconds"]) / 2
    return (ratio ** 0.5 - 1) * share


def run_policies(options, ada):
    steps = options.ada_steps or 200
    common = [f"data.batch_size={options.batch[0]}", f"train.max_steps={steps}",
              f"log.every={options.log_every}"]
    costs = {name: [] for name in COSTS}
    for number in range(options.rounds):
        for name, (extra, base) in COSTS.items():
            costs[name].append(policy_cost(ada, options.config, common, extra, base) * 100)
            note(f"round {number + 1} of {options.rounds}: {name} {costs[name][-1]:+.1f} %")
    print(f"{machine.describe()}, one thread each, batch {options.batch[0]}; {ada.version}; "
          f"{options.rounds} rounds of two pairs of {steps} steps\n")
    print(markdown.table(
        ["", "cost, % of the step without: median", "lowest, highest round"],
        [[name, *spread(values)] for name, values in costs.items()]))


# --policy-cost on a GPU: whole runs in turns, beside `policy: none` with logs every 100 steps.
BASE = "none, statistics every 100 steps"
EVERY_100, EVERY_STEP = "log={every: 100}", "log={every: 1}"
RUNS = {  # --set values of each
    "none, nothing counted": ("scaling={policy: none}", "log={every: 100, statistics: []}"),
    BASE: ("scaling={policy: none}", EVERY_100),
    "none, statistics every step": ("scaling={policy: none}", EVERY_STEP),
    **{f"adaptive, {method}": (adaptive(method), EVERY_100) for method in METHODS},
    "adaptive, approx_range, statistics every step": (adaptive("approx_range"), EVERY_STEP),
    **{name: (f"scaling={{policy: {name}}}", EVERY_100)
       for name in ("fixed", "dynamic", "layerwise_dynamic", "logmax", "histogram")},
}
HEADER = ["model", "batch", "run", "images/s", "cost, % of the base's step: median",
          "lowest, highest round"]


def costs_of(speeds):
    """What each run adds to the base's step, as a share of it, round by round. `speeds`: name ->
    images/s of each round."""
    return {name: [base / own - 1 for own, base in zip(values, speeds[BASE])]
            for name, values in speeds.items()}


def rows(title, batch, speeds):
    """Cells of one model's rows."""
    return [[title, str(batch), name, markdown.number(statistics.median(speeds[name])),
             *(["base", ""] if name == BASE else spread([share * 100 for share in shares]))]
            for name, shares in costs_of(speeds).items()]


def measure_runs(options, ada, model, batch):
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


def run_on_device(options, ada):
    cells = [row for name in options.models for batch in options.batch
             for row in rows(models.MODELS[name].title, batch,
                             measure_runs(options, ada, models.MODELS[name], batch))]
    print(f"{machine.gpu()}; {ada.version}, fp16; {options.rounds} rounds taken in turns; base: "
          f"{BASE}\n")
    print(markdown.table(models.in_units(HEADER, options.models), cells))


# --log-cost: how much longer a logged step takes than one that is not logged, both from the same run,
# a few steps apart. Statistics every second step and histograms (with statistics) every third: of six
# steps, two are not logged, two have statistics and two have histograms.
LOG_CONFIG = "configs/resnet20_cifar_quick.yaml"
RHYTHM = ["log.every=2", "log.histogram_every=3"]
TENSORS = {
    "dx, dy, dw (the default)": ["log.statistics=[dx, dy, dw]"],
    "y, w, dx, dy, dw": ["log.statistics=[y, w, dx, dy, dw]"],
}
DEFAULT_EVERY = 100  # of log.every


def log_shares(seconds):
    """(statistics, histograms): what a step with them takes longer, as a share of a step without
    logs; medians over groups of six steps. `seconds`: logged step -> time since the logged step
    before it, from a run with RHYTHM. The first six steps warm up and are left out. None where no
    group is whole."""
    counted, binned = [], []
    for start in range(6, max(seconds, default=0), 6):
        # Steps start + 1 and start + 5 are not logged: their time is in the row that follows.
        group = [seconds.get(start + step) for step in (2, 3, 4, 6)]
        if None in group:
            break
        bare_and_counts, bins, counts, bare_and_bins = group
        bare = (bare_and_counts - counts + bare_and_bins - bins) / 2
        counted.append(counts / bare - 1)
        binned.append(bins / bare - 1)
    return (statistics.median(counted), statistics.median(binned)) if counted else None


def measure_logs(rounds, seconds_by_step):
    """tensors -> (percentages of statistics, of histograms), one value a round. `seconds_by_step`:
    a run with the --set values it gets, as `log_shares` wants it."""
    costs = {name: ([], []) for name in TENSORS}
    for number in range(rounds):
        for name, extra in TENSORS.items():
            found = log_shares(seconds_by_step([*RHYTHM, *extra]))
            if found is None:
                sys.exit("bench.py: too few steps; raise --ada-steps to 13 or more")
            for values, share in zip(costs[name], found):
                values.append(share * 100)
            note(f"round {number + 1} of {rounds}: {name}: statistics "
                 f"{found[0] * 100:+.1f} %, histograms {found[1] * 100:+.1f} %")
    return costs


def log_table(costs):
    """The costs as Markdown."""
    cells = []
    for name, (counted, binned) in costs.items():
        cells += [[name, f"statistics every {DEFAULT_EVERY} steps",
                   *spread([value / DEFAULT_EVERY for value in counted], 2)],
                  [name, "statistics every step", *spread(counted)],
                  [name, "statistics and histograms every step", *spread(binned)]]
    return markdown.table(["tensors", "logged", "cost, % of a step that is not: median",
                           "lowest, highest round"], cells)


def run_logs(options, ada):
    steps = options.ada_steps or 200
    common = [f"data.batch_size={options.batch[0]}", f"train.max_steps={steps}"]

    def seconds_by_step(extra):
        """Logged step -> seconds since the logged step before it."""
        timing = ada.run(options.config, [*common, *extra], options.threads).rows
        return {int(row["step"]): row["seconds"] for row in timing}

    costs = measure_logs(options.rounds, seconds_by_step)
    print(f"{machine.describe_device(options.device)}, {options.threads} thread(s), batch "
          f"{options.batch[0]}; {ada.version}, {pathlib.Path(options.config).name}; "
          f"{options.rounds} rounds of {steps} steps\n")
    print(log_table(costs))
