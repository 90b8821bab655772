"""What each per-layer policy adds to a step. Used by bench.py --policy-cost."""
import os
import statistics

import machine
import markdown
from ada_runs import note

# The training without what the project adds to mixed precision, and with one policy each: what a
# policy looks at in every step, without the statistics of the logged ones.
BARE = "log.statistics=[]"
WITHOUT = ["scaling={policy: none}", BARE]
APPROX = ["scaling={policy: adaptive}", BARE]
EXACT = ["scaling={policy: adaptive, method: exact_range}", BARE]
COSTS = {  # what is measured, and against what
    "adaptive, approx_range": (APPROX, WITHOUT),
    "adaptive, abs_range": (["scaling={policy: adaptive, method: abs_range}", BARE], WITHOUT),
    "adaptive, element_wise_range": (
        ["scaling={policy: adaptive, method: element_wise_range}", BARE], WITHOUT),
    "adaptive, exact_range": (EXACT, WITHOUT),
    "layerwise_dynamic": (["scaling={policy: layerwise_dynamic}", BARE], WITHOUT),
    "exact_range beside approx_range": (EXACT, APPROX),
}


def median_of(rows, value):
    """Over the logged intervals."""
    return statistics.median(value(row) for row in rows)


def cost(ada, config, common, extra, base):
    """What `extra` adds to the step beside `base`, as a share of it. A policy works in the backward
    pass; the forward pass of the same run does the same in both and is the measure of how fast the
    machine was. Both run at the same time, one thread and one core each, then with the cores
    exchanged."""
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


def run(options, ada):
    """Medians over rounds, as Markdown."""
    steps = options.ada_steps or 200
    common = [f"data.batch_size={options.batch[0]}", f"train.max_steps={steps}",
              f"log.every={options.log_every}"]
    costs = {name: [] for name in COSTS}
    for number in range(options.rounds):
        for name, (extra, base) in COSTS.items():
            costs[name].append(cost(ada, options.config, common, extra, base) * 100)
            note(f"round {number + 1} of {options.rounds}: {name} {costs[name][-1]:+.1f} %")
    print(f"{machine.describe()}, one thread each, batch {options.batch[0]}; {ada.version}; "
          f"{options.rounds} rounds of two pairs of {steps} steps\n")
    print(markdown.table(
        ["", "cost, % of the step without: median", "lowest, highest round"],
        [[name, f"{statistics.median(values):+.1f}", f"{min(values):+.1f}, {max(values):+.1f}"]
         for name, values in costs.items()]))
