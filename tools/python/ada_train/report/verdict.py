"""The page's first screen: each run with its loss beside that of a baseline, what lost most, and
the verdict of `ada-train advise`."""
import math

from ada_train.report import layers, style, tasks
from ada_train.report.advice import yaml_of
from ada_train.report.names import RunName, escaped
from ada_train.report.overview import format_words
from ada_train.report.page import Section
from ada_train.run_files import number, text

HOW = ("Loss: {what}{beside}. Lost most: the mean share of its values other than zero that the worst "
       "tensor lost, of what was counted. The verdict is that of `ada-train advise`; What to do has "
       "its reasons.")
NOISE = (" One training each says nothing of what chance alone changes: `ada-train choose` trains "
         "twins and measures it.")


def baseline(runs, named=None):
    """The run that others are compared with: the one of that name or folder, else the first in
    fp32, else the first. None: no run has the name."""
    if named is not None:
        return next((run for run in runs if named in (run.name, run.label, run.folder)), None)
    return next((run for run in runs if run.config.get("precision.format", run.summary.get("format"))
                 == "fp32"), runs[0])


def _last_steps(run):
    """The mean loss of the last tenth of the steps."""
    losses = run.steps["loss"]
    return float(losses.iloc[-max(1, len(losses) // 10):].mean()) if len(losses) else None


def _evaluated(run):
    row = tasks.last_evaluation(run)
    return None if row is None else float(row["loss"])


KINDS = [("of the last evaluation", _evaluated),
         ("of training, mean of the last epoch", lambda run: number(run.summary, "train", "loss")),
         ("of training, mean of the last tenth of the steps", _last_steps)]


def losses(runs):
    """(which loss, its values): the first kind that all runs have; NaN where a run has none."""
    for what, of in KINDS:
        found = [of(run) for run in runs]
        if all(value is not None for value in found):
            break
    return what, [math.nan if value is None else value for value in found]


def _differences(runs, values, base):
    """Each loss minus that of the baseline under the same seed, else of the baseline itself."""
    def but_for_seed(run):
        return {k: v for k, v in run.config.items() if k not in ("name", "output", "seed")}

    of_seed, of_base = {}, but_for_seed(base)
    for run, value in zip(runs, values):
        if run.config and but_for_seed(run) == of_base:
            of_seed[run.config.get("seed")] = value
    own = values[runs.index(base)]
    return [value - of_seed.get(run.config.get("seed"), own) for run, value in zip(runs, values)]


def _lost(run, found):
    """The worst tensor with its share, or that none was lost of what was counted."""
    most = (found or {}).get("lost", {}).get("most")
    if most:
        return f"{most['tensor']} {style.percent(most['mean_pct'])}"
    if found and found["lost"]["counted"]:
        return "nothing of " + ", ".join(found["lost"]["counted"])
    share = number(run.summary, "counted", "lost_most", "pct_mean")
    if share is not None:
        return (f"{text(run.summary, 'counted', 'lost_most', 'layer')}."
                f"{text(run.summary, 'counted', 'lost_most', 'tensor')} {style.percent(share)}")
    worst = None
    for tensor, rows in run.underflow.groupby("tensor", observed=True):
        for layer, mean, _, _ in layers.per_layer(rows, "underflow_pct_nonzero")[:1]:
            if worst is None or mean > worst[0]:
                worst = mean, f"{layer}.{tensor}"
    return "not counted" if worst is None else f"{worst[1]} {style.percent(worst[0])}"


def _verdict(found):
    if not found:
        return "–"
    return "keep" if found["keep"] else "; ".join(yaml_of(one) for one in found["advice"][:2])


def _sentence(runs, values, differences, base, all_found):
    """The verdict in a sentence."""
    parts = []
    if len(runs) > 1:
        others = [(difference, run) for run, difference in zip(runs, differences)
                  if run is not base and math.isfinite(difference)]
        if others and math.isfinite(values[runs.index(base)]):
            parts.append(f"Beside {base.label} " + ", ".join(
                f"{run.label} ends {abs(difference):.4g} {'above' if difference > 0 else 'below'}"
                if difference else f"{run.label} ends the same"
                for difference, run in sorted(others, key=lambda pair: pair[0])[:5]) + ".")
    for run, found in list(zip(runs, all_found or []))[:5]:
        if found:
            who = f"{run.label}: " if len(runs) > 1 else ""
            parts.append(who + (found["why"] if found["keep"] else
                                f"change {yaml_of(found['advice'][0])}: {found['why']}") + ".")
    return parts


def section(runs, all_found, named=None):
    """The section; `all_found`: what advice.read() gave; `named`: the baseline."""
    base = baseline(runs, named)
    what, values = losses(runs)
    differences = _differences(runs, values, base)
    several = len(runs) > 1
    found = (all_found or []) + [None] * len(runs)
    header = ["run", "status", "format", "policy", "loss", *([f"minus {base.label}"] if several else []),
              "lost most", "skipped", "verdict"]
    rows = []
    for run, value, difference, one in zip(runs, values, differences, found):
        beside = "baseline" if run is base else f"{difference:+.4f}"
        rows.append([RunName(run.label), run.status, format_words(run),
                     run.fact("policy", "scaling.policy"), style.digits(value, 5),
                     *([beside if math.isfinite(difference) else "–"] if several else []),
                     _lost(run, one), f"{int((run.steps['skipped'].fillna(0) != 0).sum()):,}",
                     _verdict(one)])
    how = HOW.format(what=what, beside=f", beside that of {base.label} under the same seed" if several
                     else "") + (NOISE if several else "")
    said = "".join(f"<li>{escaped(part)}</li>"
                   for part in _sentence(runs, values, differences, base, all_found))
    return Section("verdict", "Verdict", how, tables=[("", header, rows)],
                   extra=f'<ul class="verdict">{said}</ul>' if said else "")
