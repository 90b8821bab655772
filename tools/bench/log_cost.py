"""What logs cost: how much longer a logged step takes than one that is not logged, both from one
and the same run, a few steps apart. Used by bench.py --log-cost.
"""
import pathlib
import statistics
import sys

import machine
import markdown
from ada_runs import note

CONFIG = "configs/resnet20_cifar_quick.yaml"
# Statistics every second step and histograms (with statistics) every third: of six steps, two are
# not logged, two have statistics and two have histograms.
RHYTHM = ["log.every=2", "log.histogram_every=3"]
TENSORS = {
    "dx, dy, dw (the default)": ["log.statistics=[dx, dy, dw]"],
    "y, w, dx, dy, dw": ["log.statistics=[y, w, dx, dy, dw]"],
}
DEFAULT_EVERY = 100  # of log.every


def shares(seconds):
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


def measure(rounds, seconds_by_step):
    """tensors -> (percentages of statistics, of histograms), one value a round. `seconds_by_step`:
    a run with the --set values it gets, as `shares` wants it."""
    costs = {name: ([], []) for name in TENSORS}
    for number in range(rounds):
        for name, extra in TENSORS.items():
            found = shares(seconds_by_step([*RHYTHM, *extra]))
            if found is None:
                sys.exit("bench.py: too few steps; raise --ada-steps to 13 or more")
            for values, share in zip(costs[name], found):
                values.append(share * 100)
            note(f"round {number + 1} of {rounds}: {name}: statistics "
                 f"{found[0] * 100:+.1f} %, histograms {found[1] * 100:+.1f} %")
    return costs


def table(costs):
    """The costs as Markdown."""
    rows = []
    for name, (counted, binned) in costs.items():
        default = [value / DEFAULT_EVERY for value in counted]
        for what, values, digits in (
                (f"statistics every {DEFAULT_EVERY} steps", default, 2),
                ("statistics every step", counted, 1),
                ("statistics and histograms every step", binned, 1)):
            rows.append([name, what, f"{statistics.median(values):+.{digits}f}",
                         f"{min(values):+.{digits}f}, {max(values):+.{digits}f}"])
    return markdown.table(["tensors", "logged", "cost, % of a step that is not: median",
                           "lowest, highest round"], rows)


def run(options, ada):
    """Measures and prints the table."""
    steps = options.ada_steps or 200
    common = [f"data.batch_size={options.batch[0]}", f"train.max_steps={steps}"]

    def seconds_by_step(extra):
        """Logged step -> seconds since the logged step before it."""
        rows = ada.run(options.config, [*common, *extra], options.threads).rows
        return {int(row["step"]): row["seconds"] for row in rows}

    costs = measure(options.rounds, seconds_by_step)
    print(f"{machine.describe_device(options.device)}, {options.threads} thread(s), batch "
          f"{options.batch[0]}; {ada.version}, {pathlib.Path(options.config).name}; "
          f"{options.rounds} rounds of {steps} steps\n")
    print(table(costs))
