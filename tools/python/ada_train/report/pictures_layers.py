"""Heat maps, layers over steps, one panel a run with the same axes and colours: the scale, what
underflowed, and which limit decided."""
import numpy
import pandas
from matplotlib import colormaps, colors
from matplotlib.patches import Patch

from ada_train.report import layers, pointer, robust, style
from ada_train.report.style import Picture

# Words of scales.csv's `limit`: color and meaning, in the order of the legend.
LIMITS = {
    "target": ("#0072B2", "the value that the formula gives for underflow_target"),
    "one": ("#56B4E9", "the formula found that no factor is needed: alpha = 1"),
    "cap": ("#E69F00", "a larger factor could overflow the format"),
    "SB": ("#CC79A7", "held at scale_upper_bound"),
    "AB": ("#882255", "held at accum_upper_bound / scale_in"),
    "stale": ("#F0E442", "the value of an earlier step (update_interval)"),
    "fixed": ("#009E73", "the constant that the configuration gives the layer"),
    "state": ("#44AA99", "the layer's own dynamic scale"),
    "nonfinite": ("#000000", "the gradient was not finite; the step was skipped"),
    "branch": ("#9a9a9a", "gradients of several layers were brought to one scale"),
    "none": ("#e2e2e2", "the layer computes no factor: it passes on the scale it is given"),
}
ALL_ZERO = 1000.0  # percent: a cell beyond the colors
NOT_FINITE = 2000.0  # percent: a cell that the pointer has words for
LOST_TICKS = [0, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 50, 75, 100]
WORST = 6  # layers drawn as lines


def lost_norm(top):
    """Colours of percentages from 0 to what holds `top`, with more room for the small ones."""
    return colors.PowerNorm(0.5, 0, next(
        (end for end in (1, 2, 5, 10, 20, 30, 50, 75) if end >= top), 100))


def lost_bar(figure, mesh, axes, norm, label):
    ticks = []
    for tick in LOST_TICKS:  # none that would touch the one before it
        if tick <= norm.vmax and (not ticks or norm(tick) - norm(ticks[-1]) > 0.06):
            ticks.append(tick)
    bar = style.color_bar(figure, mesh, axes, label, ticks=ticks)
    bar.set_ticklabels([f"{t:g}" for t in ticks])


def shown(order, tables):
    """Those layers of `order` that have rows in one of the tables."""
    there = set()
    for table in tables:
        there.update(table["layer"].unique())
    return [name for name in order if name in there]


def lost_words(value):
    """A share of lost values under the pointer."""
    if value >= ALL_ZERO:
        return "every value was zero" if value < NOT_FINITE else "overflow, or not finite"
    return style.percent(value)


def power_words(value):
    """A scale under the pointer, given as its logarithm."""
    return style.power(2.0 ** value)


def heat_maps(runs, names, grids, last, cmap, norm, say=None, words=False):
    """One panel a run. Returns figure, axes and a mesh for the color bar. `say`: a value as the
    pointer has it; `words`: values are codes of words; None: the caller names the values."""
    figure, axes = style.panels(len(runs), style.layers_height(len(names)))
    for number, (run, ax, data) in enumerate(zip(runs, axes, grids)):
        mesh = style.heat(ax, data.edges, data.values, cmap, norm)
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        style.step_axis(ax, last)
        style.panel_title(ax, run.label, len(runs))
        if words is not None:
            pointer.cells(ax, data.edges, names, data.values, say, words=words)
    return figure, axes, mesh


def log2(values):
    values = numpy.asarray(values, dtype=float)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        result = numpy.log2(values)
    return numpy.where(numpy.isfinite(result), result, numpy.nan)


def _scale_sentence(runs, names, grids):
    parts = []
    for run, data in zip(runs, grids):
        if not numpy.isfinite(data.values).any():
            continue
        low, high = numpy.nanmin(data.values), numpy.nanmax(data.values)
        if low == high:
            parts.append(f"{run.label}: {style.power(2.0 ** low)} in every layer, all the time")
            continue
        ends = []
        for pick in (numpy.nanargmin, numpy.nanargmax):
            row, column = numpy.unravel_index(pick(data.values), data.values.shape)
            ends.append(f"({names[row]}, step {int(data.edges[column]):,})")
        parts.append(f"{run.label}: from {style.power(2.0 ** low)} {ends[0]} to "
                     f"{style.power(2.0 ** high)} {ends[1]}")
    return style.sentences(parts)


def scale_tables(runs, tensor):
    """The rows that tell each layer's scale of a tensor, in a column `scale`."""
    tables = []
    for run in runs:
        rows = layers.of_tensor(run.underflow, tensor)
        if not len(rows):  # not among log.statistics: what the layers' decisions say
            rows = _decided_scales(run.scales, tensor)
        tables.append(rows)
    return tables


def _decided_scales(table, tensor):
    """The decisions about a tensor as rows with its scale: of attention's tensors their own."""
    table = table.rename(columns={"scale_out": "scale"})
    if tensor == "p":  # which carries none
        return table.iloc[:0]
    if tensor not in layers.ATTENTION:
        return table
    rows = table[table["layer"].astype(str).str.endswith("." + tensor).to_numpy()]
    return rows.assign(layer=rows["layer"].astype(str).str.removesuffix("." + tensor))


def scales(runs, tensor, order, last):
    tables = scale_tables(runs, tensor)
    names = shown(order, tables)
    several = any(run.members for run in runs)
    grids = [layers.grid(t, layers.codes(t["layer"], names), names, log2(t["scale"]),
                         "mean" if several else "last") for t in tables]
    values = numpy.concatenate([g.values.ravel() for g in grids])
    values = values[numpy.isfinite(values)]
    if not len(values):
        return []
    low, high = robust.ends(values, powers=True)
    low, high = numpy.floor(low), numpy.ceil(high)
    norm = colors.Normalize(low, high + (low == high))
    figure, axes, mesh = heat_maps(runs, names, grids, last, robust.with_ends("viridis"), norm,
                                   power_words)
    bar = style.color_bar(figure, mesh, axes, f"scale of {tensor}\n(factor)",
                          extend=robust.extend(low, high, values))
    style.powers_axis(bar.ax.yaxis)
    sentence = _scale_sentence(runs, names, grids)
    sentence += layers.thinned(grids, "mean" if several else "last")
    return [Picture("scale", figure, sentence, "scale by layer and step")]


def _lost_sentence(runs, tables, tensor):
    parts = []
    for run, table in zip(runs, tables):
        rows = layers.per_layer(table, "underflow_pct_nonzero")
        if dead := layers.no_gradient_text(run):
            parts.append(f"{run.label}: no gradient: {dead}")
        elif not rows or rows[0][1] == 0:
            parts.append(f"{run.label}: no {tensor} loses anything" if rows
                         else f"{run.label}: no values")
        if dead or not rows or rows[0][1] == 0:
            continue
        layer, mean, most, step = rows[0]
        parts.append(f"{run.label}: {layer} loses most, {style.percent(mean)} of its non-zero "
                     f"{layers.values_of([layer], tensor)} on average and {style.percent(most)} "
                     f"at step {step:,}")
    return style.sentences(parts)


def _worst_layers(tables):
    """The layers that lose most in any of the runs, the worst first."""
    worst = {}
    for table in tables:
        for layer, mean, _, _ in layers.per_layer(table, "underflow_pct_nonzero"):
            worst[layer] = max(worst.get(layer, 0), mean)
    ranked = sorted(worst, key=lambda layer: -worst[layer])
    return [layer for layer in ranked if worst[layer] > 0][:WORST]


def _worst_lines(runs, tables, tensor, last):
    worst = _worst_layers(tables)
    if not worst:
        return []
    figure, axes = style.panels(len(runs), 2.9, sharey=True)
    for number, (run, table, ax) in enumerate(zip(runs, tables, axes)):
        data = layers.grid(table, layers.codes(table["layer"], worst), worst,
                           table["underflow_pct_nonzero"])
        for i, layer in enumerate(worst):
            line, = ax.plot(data.edges[:-1], data.values[i], color=style.color(i), lw=1.3,
                            label=layer)
            line.layer, line.raw = layer, line.get_data()
        style.step_axis(ax, last)
        style.panel_title(ax, run.label, len(runs))
        pointer.lines(ax, [(layer, data.edges[:-1], data.values[i])
                           for i, layer in enumerate(worst)], style.percent)
        if number % style.PER_ROW == 0:
            ax.set_ylabel(f"underflow (% of non-zero {layers.values_of(worst, tensor)})")
    axes[0].set_ylim(bottom=0)
    style.legend_above(figure, *axes[0].get_legend_handles_labels())
    sentence = ("The layers that lose most in any of the runs, in one colour each: "
                + ", ".join(worst) + ". A line that climbs says that gradients shrink as training "
                "goes on while the scale does not follow.")
    return [Picture("underflow_worst", figure, sentence, "underflow of the worst layers")]


def _broken_cells(table, names):
    """The cells with values that overflowed or were not finite."""
    bad = (table["overflow"] + table["inf"] + table["nan"] > 0).to_numpy().astype(float)
    return layers.grid(table, layers.codes(table["layer"], names), names, bad).values > 0


def _mark_broken(axes, grids, broken, names):
    """Marks those cells, in the picture and under the pointer; says so where there are any."""
    for ax, data, cells in zip(axes, grids, broken):
        style.mark(ax, data.edges, cells)
        pointer.cells(ax, data.edges, names, numpy.where(cells, NOT_FINITE, data.values),
                      lost_words)
    any_cell = any(cells.any() for cells in broken)
    return " Blue: values overflowed or were not finite; no share says anything of them." \
        if any_cell else ""


def underflow(runs, tensor, order, last):
    tables = [layers.of_tensor(run.underflow, tensor) for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    grids = [layers.grid(t, layers.codes(t["layer"], names), names, t["underflow_pct_nonzero"])
             for t in tables]
    top = numpy.nanmax([0.0] + [numpy.nanmax(g.values) for g in grids
                                if numpy.isfinite(g.values).any()])
    norm = lost_norm(top)
    for data, table in zip(grids, tables):
        zero = layers.grid(table, layers.codes(table["layer"], names), names,
                           layers.all_zero(table))
        data.values[zero.values == 1] = ALL_ZERO
    cmap = colormaps["magma_r"].with_extremes(over="black")
    figure, axes, mesh = heat_maps(runs, names, grids, last, cmap, norm, words=None)
    broken = _mark_broken(axes, grids, [_broken_cells(table, names) for table in tables], names)
    lost_bar(figure, mesh, axes, norm,
             f"underflow\n(% of non-zero {layers.values_of(names, tensor)})")
    sentence = _lost_sentence(runs, tables, tensor) + broken + layers.thinned(grids)
    return [Picture("underflow", figure, sentence, "underflow by layer and step")] + _worst_lines(
        runs, tables, tensor, last)


def _limit_rows(run):
    """Row names of scales.csv's rows: a sum of branches stands beside its layer's own decision."""
    table = run.scales
    branch = (table["limit"] == "branch").to_numpy()
    names = table["layer"].astype(object).to_numpy().copy()
    names[branch] = [f"{name} (sum)" for name in names[branch]]
    return names


def limit_colors(words):
    """The color of each word; of words that are not known one that no known word has."""
    known = {color for color, _ in LIMITS.values()}
    free = [color for color in style.COLORS if color not in known]
    others = [word for word in words if word not in LIMITS]
    return [LIMITS[word][0] if word in LIMITS else free[others.index(word) % len(free)]
            for word in words]


def _known(codes):
    """Codes as numbers; NaN for words beyond those that are drawn."""
    return numpy.where(codes < 0, numpy.nan, codes)


def _limit_sentence(runs):
    parts = []
    for run in runs:
        own = run.scales["limit"][(run.scales["limit"] != "branch").to_numpy()]
        words = [f"{w} {style.percent(100 * n / len(own))}"
                 for w, n in style.most_first(own)[:style.MOST_WORDS]]
        parts.append(f"{run.label}: " + (", ".join(words) or "no decisions"))
    return "Shares of all decisions. " + style.sentences(parts)


def limits(runs, order, last):
    rows = [_limit_rows(run) for run in runs]
    there = set().union(*[set(r) for r in rows])
    names = [n for layer in order for n in (layer, f"{layer} (sum)") if n in there]
    words = list(LIMITS)
    seen = set().union(*[set(run.scales["limit"].unique()) for run in runs])
    words += sorted(seen - set(words))[:style.MOST_WORDS]
    if not names:
        return []
    shades = limit_colors(words)
    grids = [layers.grid(run.scales, layers.codes(pandas.Series(r, dtype="category"), names), names,
                         _known(layers.codes(run.scales["limit"], words)), "last")
             for run, r in zip(runs, rows)]
    norm = colors.BoundaryNorm(numpy.arange(len(words) + 1) - 0.5, len(words))
    figure, axes, _ = heat_maps(runs, names, grids, last, colors.ListedColormap(shades), norm,
                                lambda code: words[int(code)], words=True)
    used = [w for w in words if w in seen][:style.MOST_WORDS]
    style.legend_above(figure, [Patch(fc=shades[words.index(w)], ec="#777777", lw=0.5)
                                for w in used], used)
    sentence = _limit_sentence(runs) + layers.thinned(grids, "last")
    return [Picture("limits", figure, sentence, "limits by layer and step")]
