"""What policies and logs add to a step, as Markdown tables of medians over rounds: --policy-cost on
a processor and on a GPU, --log-cost on both."""
import functools
import os
import pathlib
import statistics

import compare
import machine
import markdown
import models
from modes import UNSCALED, Mode
from turns import end, in_turns

METHODS = ("approx_range", "abs_range", "element_wise_range", "exact_range")


def adaptive(method):
    return f"scaling={{policy: adaptive, method: {method}}}"


# --policy-cost on a processor: the training without what the project adds to mixed precision, and
# with one policy each: what a policy looks at in every step, without statistics.
COSTS = {  # what is measured, and against what
    **{f"adaptive, {method}": (adaptive(method), UNSCALED) for method in METHODS},
    "layerwise_dynamic": ("scaling={policy: layerwise_dynamic}", UNSCALED),
    "exact_range beside approx_range": (adaptive("exact_range"), adaptive("approx_range")),
}


def policy_cost(ada, config, common, extra, base):
    """What `extra` adds to the step beside `base`, as a share of it. A policy works in the backward
    pass; the forward pass of the same run does the same in both and is the measure of how fast the
    machine was. Both run at the same time, one thread and one core each, then with the cores
    exchanged."""
    def median_of(rows, above, below):
        return statistics.median(row[above] / row[below] for row in rows)

    cores = sorted(os.sched_getaffinity(0))[:2]
    ratio, share = 1.0, 0.0
    for mine, other in (cores, cores[::-1]):
        started = (ada.start(config, [*common, extra], 1, "with", mine),
                   ada.start(config, [*common, base], 1, "without", other))
        with_, without = (ada.finish(run, least=3).rows[2:] for run in started)
        ratio *= (median_of(with_, "backward", "forward") / median_of(without, "backward", "forward"))
        share += median_of(without, "backward", "seconds") / 2
    return (ratio ** 0.5 - 1) * share


def run_policies(options, ada):
    steps = options.ada_steps or 200
    common = [f"data.batch_size={options.batch[0]}", f"train.max_steps={steps}",
              f"log.every={options.log_every}", "log.statistics=[]"]
    costs = in_turns(
        options.rounds,
        {name: lambda values=values: 100 * policy_cost(ada, options.config, common, *values)
         for name, values in COSTS.items()}, "{} {:+.1f} %".format)
    print(f"{machine.describe()}, one thread each, batch {options.batch[0]}; {ada.version}; "
          f"{options.rounds} rounds of two pairs of {steps} steps\n")
    print(markdown.table(
        ["", "cost, % of the step without: median", "lowest, highest round"],
        [[name, *markdown.cost(values)] for name, values in costs.items()]))


# --policy-cost on a GPU: whole runs in turns, beside `policy: none` with logs every 100 steps.
BASE = "none, statistics every 100 steps"
EVERY_100, EVERY_STEP = "log={every: 100}", "log={every: 1}"
RUNS = {name: Mode(name, ("precision={format: fp16}", *values)) for name, values in {
    "none, nothing counted": (UNSCALED, "log={every: 100, statistics: []}"),
    BASE: (UNSCALED, EVERY_100),
    "none, statistics every step": (UNSCALED, EVERY_STEP),
    **{f"adaptive, {method}": (adaptive(method), EVERY_100) for method in METHODS},
    "adaptive, approx_range, statistics every step": (adaptive("approx_range"), EVERY_STEP),
    **{name: (f"scaling={{policy: {name}}}", EVERY_100)
       for name in ("fixed", "dynamic", "layerwise_dynamic", "logmax", "histogram")},
}.items()}
HEADER = ["model", "batch", "run", "images/s", "cost, % of the base's step: median",
          "lowest, highest round"]


def rows(title, batch, speeds):
    """Cells of one model's rows: what each run adds to the base's step of the same round. `speeds`:
    name -> images/s of each round."""
    def percents(own):
        return [100 * (base / one - 1) for one, base in zip(own, speeds[BASE])]
    return [[title, str(batch), name, markdown.number(statistics.median(own)),
             *(["base", ""] if name == BASE else markdown.cost(percents(own)))]
            for name, own in speeds.items()]


def run_on_device(options, ada):
    cells = []
    for benches in compare.measure_all(options, ada, RUNS, [options.threads]):
        bench = benches[options.threads]
        cells += rows(bench.model.title, bench.batch,
                      {name: result.speeds for name, result in bench.results.items()})
    print(f"{machine.gpu()}; {ada.version}, fp16; {options.rounds} rounds taken in turns; base: "
          f"{BASE}\n")
    print(markdown.table(models.in_units(HEADER, options.models), cells))


# --log-cost: how much longer a logged step takes than one that is not logged, both from the same run,
# a few steps apart. Statistics every second step and histograms (with statistics) every third: of six
# steps, two are not logged, two have statistics and two have histograms.
LOG_CONFIG = "configs/resnet20_cifar_quick.yaml"
RHYTHM = ["log.every=2", "log.histogram_every=3"]
TENSORS = {
    "dx, dy, dw (the default)": "log.statistics=[dx, dy, dw]",
    "y, w, dx, dy, dw": "log.statistics=[y, w, dx, dy, dw]",
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
    """tensors -> (percentage of statistics, of histograms) of each round. `seconds_by_step`: a run
    with the --set values it gets, as `log_shares` wants it."""
    def measure(tensors):
        found = log_shares(seconds_by_step([*RHYTHM, tensors]))
        if found is None:
            end("too few steps; raise --ada-steps to 13 or more")
        return 100 * found[0], 100 * found[1]
    return in_turns(
        rounds, {name: functools.partial(measure, value) for name, value in TENSORS.items()},
        lambda name, found: "{}: statistics {:+.1f} %, histograms {:+.1f} %".format(name, *found))


def log_table(costs):
    """The costs as Markdown."""
    cells = []
    for name, found in costs.items():
        counted, binned = zip(*found)
        rare = [value / DEFAULT_EVERY for value in counted]
        cells += [[name, f"statistics every {DEFAULT_EVERY} steps", *markdown.cost(rare, 2)],
                  [name, "statistics every step", *markdown.cost(counted)],
                  [name, "statistics and histograms every step", *markdown.cost(binned)]]
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
    print(f"{machine.describe(options.device)}, {options.threads} thread(s), batch "
          f"{options.batch[0]}; {ada.version}, {pathlib.Path(options.config).name}; "
          f"{options.rounds} rounds of {steps} steps\n")
    print(log_table(costs))
