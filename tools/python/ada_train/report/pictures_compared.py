"""Pictures that put runs into one: each layer's scale as mean and spread, and by how much one run
loses more than another."""
import numpy
import pandas
from matplotlib import colors

from ada_train.report import layers, pointer, robust, style
from ada_train.report.pictures_layers import heat_maps, power_words, scale_tables, shown
from ada_train.report.style import Picture

DIFFERENCE_TICKS = [0, 1, 2, 5, 10, 20, 50, 100]


def _spread_of(table, names):
    """Per layer: mean, standard deviation, smallest and largest log2 of the scale."""
    logs = numpy.log2(table["scale"].where(table["scale"] > 0)).replace(numpy.inf, numpy.nan)
    grouped = logs.groupby(table["layer"].astype(str)).agg(["mean", "std", "min", "max"])
    return grouped.reindex(names)


def scale_spread(runs, tensor, order, last):
    tables = scale_tables(runs, tensor)
    names = shown(order, tables)
    found = [_spread_of(table, names) for table in tables]
    if not names or all(values["mean"].isna().all() for values in found):
        return []
    step = min(0.8 / len(runs), 0.3)
    height = 1.2 + len(names) * max(0.24, 0.13 * len(runs))
    figure, ax = style.subplots(1, 1, (style.WIDTH, min(height, 60)))
    for number, (run, values) in enumerate(zip(runs, found)):
        at = numpy.arange(len(names)) + step * (number - (len(runs) - 1) / 2)
        color, spread = style.color(number), values["std"].fillna(0)
        low = (values["mean"] - spread).clip(lower=values["min"])  # no bar beyond its extremes
        high = (values["mean"] + spread).clip(upper=values["max"])
        there = values["mean"].notna().to_numpy()
        if there.any():
            ax.hlines(at[there], values["min"][there], values["max"][there], color=color, lw=0.9,
                      alpha=0.55)
            ax.hlines(at[there], low[there], high[there], color=color, lw=3.2, alpha=0.55)
        ax.plot(values["mean"], at, ls="none", marker="o", ms=4.5, color=color, mec="white",
                mew=0.5, label=run.label)
    style.layer_axis(ax, names, True)
    ax.grid(axis="x", visible=True)
    beyond = _scale_limits(ax, tables, [values["mean"] for values in found])
    for number, (run, values) in enumerate(zip(runs, found)):
        _name_scales(ax, run.label, values, step, number - (len(runs) - 1) / 2)
    style.powers_axis(ax.xaxis, 10)
    ax.set_xlabel(f"scale of {tensor} (factor): mean, standard deviation, smallest and largest")
    style.legend_above(figure, *ax.get_legend_handles_labels())
    return [Picture("scale_spread", figure, _spread_sentence(runs, names, found) + beyond,
                    "mean and spread of the scale by layer")]


def _scale_limits(ax, tables, means):
    """The axis as wide as the means and the scales that are no outliers; says so where some are."""
    logs = numpy.concatenate([numpy.log2(t["scale"].where(t["scale"] > 0)) for t in tables])
    low, high = robust.ends(logs, powers=True)
    beyond = robust.extend(low, high, logs[numpy.isfinite(logs)]) != "neither"
    means = numpy.concatenate([numpy.asarray(mean)[numpy.isfinite(mean)] for mean in means])
    low, high = min(low, means.min()), max(high, means.max())
    room = max(0.05 * (high - low), 0.1)
    if high - low < 2:
        low, high, room = (low + high) / 2 - 1, (low + high) / 2 + 1, 0
    ax.set_xlim(low - room, high + room)
    return " Lines that reach the edge go on beyond it: few scales lie so far away." if beyond else ""


def _name_scales(ax, run, values, step, place):
    """The bars of a run under the pointer."""
    for i, (layer, row) in enumerate(values.iterrows()):
        if numpy.isfinite(row["mean"]):
            at = i + step * place
            text = (f"{layer}, {run}: mean {power_words(row['mean'])}, from "
                    f"{power_words(row['min'])} to {power_words(row['max'])}")
            pointer.area(ax, ax.get_xlim(), (at - step / 2, at + step / 2), text)


def _spread_sentence(runs, names, found):
    parts = []
    for run, values in zip(runs, found):
        width = (values["max"] - values["min"]).max()
        if not numpy.isfinite(width):
            continue
        if width == 0:
            parts.append(f"{run.label}: no layer's scale moves")
            continue
        layer = (values["max"] - values["min"]).idxmax()
        row = values.loc[layer]
        parts.append(f"{run.label}: {layer} moves most, from {style.power(2.0 ** row['min'])} to "
                     f"{style.power(2.0 ** row['max'])} around {style.power(2.0 ** row['mean'])}")
    return "Means are geometric, over all logged steps. " + style.sentences(parts)


def _means(run, tensor):
    """Underflow by (layer, step), the mean of what shares both. A gradient of which nothing is left
    has lost all, here or before."""
    table = layers.of_tensor(run.underflow, tensor)
    table = table.assign(layer=table["layer"].astype(str), underflow_pct_nonzero=table[
        "underflow_pct_nonzero"].mask(layers.all_zero(table), 100.0))
    return table.groupby(["layer", "step"])["underflow_pct_nonzero"].mean().dropna()


def _difference_sentence(run, first, table):
    if not len(table):
        return f"{run.label}: no step and layer that {first.label} logged too"
    means = table.groupby("layer")["difference"].mean()
    most, least = means.idxmax(), means.idxmin()
    text = f"{run.label} loses {style.digits(table['difference'].mean(), 3)} points more"
    if means[most] > 0:
        text += f", most in {most} ({means[most]:+.3g})"
    if means[least] < 0:
        text += f", least in {least} ({means[least]:+.3g})"
    return text


def _ticks(norm, top):
    """Ticks on both sides of zero, none that would touch the one before it."""
    ticks = [0]
    for tick in DIFFERENCE_TICKS[1:]:
        if tick <= top and norm(tick) - norm(ticks[-1]) > 0.07:
            ticks.append(tick)
    return [-tick for tick in ticks[:0:-1]] + ticks


def underflow_difference(runs, tensor, order, last):
    """Each run against the first: percent of its non-zero values minus percent of the first's."""
    if len(runs) < 2:
        return []
    base = _means(runs[0], tensor)
    tables = []
    for run in runs[1:]:
        both = pandas.concat([base, _means(run, tensor)], axis=1, join="inner", keys=["a", "b"])
        tables.append(both.assign(difference=both["b"] - both["a"]).reset_index())
    names = shown(order, tables)
    if not names:
        return []
    grids = [layers.grid(t, layers.codes(t["layer"], names), names, t["difference"])
             for t in tables]
    top = max([1.0] + [float(numpy.nanmax(numpy.abs(g.values))) for g in grids
                       if numpy.isfinite(g.values).any()])
    norm = colors.SymLogNorm(1, 1, -top, top)
    figure, axes, mesh = heat_maps(runs[1:], names, grids, last, "RdBu_r", norm,
                                   lambda value: f"{value:+.3g} points")
    figure.suptitle(style.wrapped(f"Underflow of {tensor}, minus that of {runs[0].label}", 110, 2),
                    fontsize=9.5)
    bar = style.color_bar(figure, mesh, axes, "difference\n(points of %)", ticks=_ticks(norm, top))
    bar.ax.minorticks_off()
    bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:+g}" if x else "0")
    sentence = (f"Against {runs[0].label}. Red: more is lost; blue: less. " + style.sentences(
        [_difference_sentence(run, runs[0], t) for run, t in zip(runs[1:], tables)])
        + layers.thinned(grids))
    return [Picture("underflow_difference", figure, sentence, "difference in underflow")]
