"""Pictures of the values themselves: histograms by exponent, with the format's range."""
import math

import numpy
from matplotlib import colormaps, colors
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from ada_train import formats
from ada_train.report import layers, pointer, style
from ada_train.report.pictures_layers import shown
from ada_train.report.style import Picture

MARKS = [("underflow", "#D55E00", "-", "below it values become zero"),
         ("smallest_normal", "#E69F00", "--", "below it values lose bits (subnormal)"),
         ("overflow", "#CC79A7", "-", "from here on values overflow")]
FAINTEST = 1e-3  # % of a layer's values: what is rarer has the palest color
WIDEST = 300     # exponents: fp32 values under fp32 scales have no others
TAIL = 40        # exponents drawn below the lowest underflow line
CLOSE_UPS = 3    # layers whose histograms are drawn over time


def _numbers(table):
    """Rows whose exponent is a number, with it as `bin`."""
    known = {}
    for name in table["exponent"].cat.categories:
        try:
            known[name] = float(int(name))
        except ValueError:
            known[name] = math.nan
    table = table.assign(bin=table["exponent"].map(known).astype(float))
    return table[table["bin"].abs().to_numpy() <= WIDEST]


def _spread(table, rows, count, low, high):
    """`count` rows x exponents: percentages of each row's non-zero values."""
    width = high - low + 1
    cell = rows * width + (table["bin"].to_numpy().astype(int) - low)
    keep = (rows >= 0) & (table["bin"].to_numpy() >= low) & (table["bin"].to_numpy() <= high)
    counts = numpy.bincount(cell[keep], weights=table["count"].to_numpy()[keep],
                            minlength=count * width).reshape(count, width)
    total = numpy.bincount(rows[rows >= 0], weights=table["count"].to_numpy()[rows >= 0],
                           minlength=count)[:, None]
    with numpy.errstate(divide="ignore", invalid="ignore"):
        share = 100 * counts / total
    return numpy.where(counts > 0, share, numpy.nan)


def _range(tables, lines):
    """The exponents that hold all but a few values, of all tables together, down to TAIL below the
    lowest of the lines."""
    low, high = [], []
    for table in tables:
        if not len(table):
            continue
        sums = table.groupby("bin")["count"].sum().sort_index()
        kept = sums.index[(sums > 1e-5 * sums.sum()).to_numpy()]
        if not len(kept):
            continue
        low.append(kept.min())
        high.append(kept.max())
    lines = [x for x in lines if not math.isnan(x)]
    floor = min(lines) - TAIL if lines else -math.inf
    return (int(max(min(low), floor)), int(max(max(high), floor))) if low else (0, 0)


def _formats_of(run, tensor):
    """(step, layer) -> format, of a tensor's rows in underflow.csv at the histograms' steps."""
    rows = layers.of_tensor(run.underflow, tensor)
    rows = rows[rows["step"].isin(run.histograms["step"].unique())]
    return {(s, l): formats.find(f) for s, l, f in zip(rows["step"], rows["layer"], rows["format"])}


def _threshold(form, mark, scale):
    """log2 of an unscaled value at which the format's range ends; NaN: nowhere."""
    value = getattr(form, mark) if form is not None else math.nan
    if not (value > 0 and math.isfinite(value) and scale > 0 and math.isfinite(scale)):
        return math.nan
    return math.log2(value) - math.log2(scale)


def _finish(figure, mesh, axes):
    """Colour bar and legend."""
    bar = style.color_bar(figure, mesh, axes, "values per exponent\n(% of non-zero)")
    bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
    bar.ax.minorticks_off()
    handles = [Line2D([], [], color=c, ls=ls, lw=2) for _, c, ls, _ in MARKS]
    texts = [f"{name.replace('_', ' ')}: {text}" for name, _, _, text in MARKS]
    style.legend_above(figure, handles, texts)


def _share_below(table, thresholds):
    """Share of the values in bins that lie wholly below the threshold of their layer, by layer."""
    limit = table["layer"].map(thresholds).astype(float)
    lost = table["count"].where(table["bin"] + 1 <= limit, 0).groupby(
        table["layer"], observed=True).sum()
    total = table["count"].groupby(table["layer"], observed=True).sum()
    return (100 * lost / total).dropna()


def _exponent_axis(axis, label):
    style.powers_axis(axis, 9)
    axis.set_label_text(label)


def _last_of(run, tensor):
    """The histograms of the last step that has any value, the layers' scales and formats there."""
    table = _numbers(layers.of_tensor(run.histograms, tensor))
    table = table[table["step"] == table["step"].max()]
    step = int(table["step"].iloc[0]) if len(table) else 0
    known = _formats_of(run, tensor)
    scales = dict(zip(table["layer"], table["scale"]))
    ends = {mark: {layer: _threshold(known.get((step, layer)), mark, scale)
                   for layer, scale in scales.items()} for mark, _, _, _ in MARKS}
    return step, table, ends


def _draw_ends(ax, names, ends):
    for mark, colour, ls, _ in MARKS:
        at = [(ends[mark].get(name, math.nan), i) for i, name in enumerate(names)]
        pieces = [[(x, i - 0.5), (x, i + 0.5)] for x, i in at if not math.isnan(x)]
        ax.add_collection(LineCollection(pieces, colors=colour, linestyles=ls, lw=2))


def histograms(runs, tensor, order, last):
    found = [_last_of(run, tensor) for run in runs]
    names = shown(order, [table for _, table, _ in found])
    if not names:
        return []
    lines = [x for _, _, ends in found for x in ends["underflow"].values()]
    low, high = _range([table for _, table, _ in found], lines)
    figure, axes = style.panels(len(runs), style.layers_height(len(names)))
    ends_seen = [x for _, _, ends in found for m in ends.values() for x in m.values()
                 if low - 12 <= x <= high + 40]
    norm = colors.LogNorm(FAINTEST, 50, clip=True)
    parts = []
    for number, (run, ax, (step, table, ends)) in enumerate(zip(runs, axes, found)):
        share = _spread(table, layers.codes(table["layer"], names), len(names), low, high)
        mesh = ax.pcolormesh(numpy.arange(low, high + 2), numpy.arange(len(names) + 1) - 0.5,
                             numpy.ma.masked_invalid(share), cmap=_blues(), norm=norm)
        _draw_ends(ax, names, ends)
        bins = numpy.arange(low, high + 2)
        pointer.cells(ax, bins, names, share, style.percent, _exponents(bins))
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        ax.set_xlim(min([low] + ends_seen) - 1, max([high + 1] + ends_seen) + 1)
        _exponent_axis(ax.xaxis, f"magnitude of {tensor}, without its scale")
        style.panel_title(ax, f"{run.label}, step {step:,}", len(runs))
        parts.append(_below_sentence(run, tensor, step, table, ends))
    _finish(figure, mesh, axes)
    first = Picture("histograms", figure, style.sentences(parts), "histograms by layer")
    return [first] + _over_time(runs, tensor, _close_ups(found), last)


def _exponents(bins):
    """`place` of columns that are exponents, for the pointer."""
    return lambda first, last: f"2^{bins[first]}" if first == last else (
        f"2^{bins[first]} to 2^{bins[last]}")


def _blues():
    """Blues that begin where they can be told from the white of no value at all."""
    return colors.ListedColormap(colormaps["Blues"](numpy.linspace(0.13, 1, 256)))


def _below_sentence(run, tensor, step, table, ends):
    below = _share_below(table, ends["underflow"]).sort_values(ascending=False)
    if not len(below):
        return (f"{run.label}: no histogram of {tensor}" if not step else
                f"{run.label}: the format of {tensor} is not in underflow.csv, no range is drawn")
    return (f"{run.label}: {below.index[0]} has the most left of the underflow line at step "
            f"{step:,}: {style.percent(float(below.iloc[0]))} in bins wholly below it")


def _close_ups(found):
    """The layers with the most below the line in any run."""
    worst = {}
    for _, table, ends in found:
        for layer, share in _share_below(table, ends["underflow"]).items():
            worst[layer] = max(worst.get(layer, 0), share)
    return sorted(worst, key=lambda layer: -worst[layer])[:CLOSE_UPS]


def _over_time(runs, tensor, names, last):
    if not names or max(len(run.histograms["step"].unique()) for run in runs) < 2:
        return []
    tables = [[_numbers(t[(t["layer"] == name).to_numpy()]) for name in names]
              for t in (layers.of_tensor(run.histograms, tensor) for run in runs)]
    known = [_formats_of(run, tensor) for run in runs]
    lines = [_threshold(form.get((s, name)), "underflow", scale)
             for form, row in zip(known, tables) for name, t in zip(names, row)
             for s, scale in set(zip(t["step"], t["scale"]))]
    low, high = _range([t for row in tables for t in row], lines)
    columns = min(len(runs), style.PER_ROW)
    blocks = math.ceil(len(runs) / columns)
    figure, axes = style.subplots(blocks * len(names), columns, squeeze=False, sharex=True,
                                  sharey=True,
                                  size=(style.WIDTH, blocks * len(names) * 2.4 + 0.2))
    norm = colors.LogNorm(FAINTEST, 50, clip=True)
    for ax in axes.flat:
        ax.set_axis_off()
    for number, run in enumerate(runs):
        for i, name in enumerate(names):
            ax = axes[number // columns * len(names) + i][number % columns]
            ax.set_axis_on()
            mesh = _history(ax, tables[number][i], known[number], name, (low, high), norm)
            style.step_axis(ax, last, i == len(names) - 1)
            style.panel_title(ax, f"{name}: {run.label}", len(runs))
            ax.grid(False)
            if number % columns == 0:
                _exponent_axis(ax.yaxis, f"|{tensor}|, unscaled")
    _finish(figure, mesh, list(axes.flat))
    sentence = (f"The {len(names)} layers with the most below the line, over time: what sinks "
                "through the lower line is lost; where the scale rises, the lines move down.")
    return [Picture("histograms_time", figure, sentence, "histograms of the worst layers")]


def _history(ax, table, known, name, ends, norm):
    """One layer's histograms over steps, with the range at the scale carried."""
    low, high = ends
    steps = numpy.unique(table["step"])
    every = max(1, math.ceil(len(steps) / layers.COLUMNS))
    steps = steps[::every]
    if not len(steps):
        steps = numpy.array([0.0])
    table = table[table["step"].isin(steps).to_numpy()]
    rows = numpy.searchsorted(steps, table["step"].to_numpy())
    share = _spread(table, rows, len(steps), low, high)
    gap = numpy.median(numpy.diff(steps)) if len(steps) > 1 else 1
    edges = numpy.append(steps, steps[-1] + gap)
    mesh = ax.pcolormesh(edges, numpy.arange(low, high + 2),
                         numpy.ma.masked_invalid(share.T), cmap=_blues(), norm=norm)
    bins = numpy.arange(low, high + 2)
    pointer.cells(ax, edges, [f"2^{exponent}" for exponent in bins[:-1]], share.T, style.percent,
                  heights=bins)
    scale = dict(zip(table["step"], table["scale"]))
    for mark, colour, ls, _ in MARKS:
        at = [_threshold(known.get((s, name)), mark, scale.get(s, math.nan)) for s in steps]
        ax.plot(edges, at + at[-1:], drawstyle="steps-post", color=colour, ls=ls, lw=1.8)
    ax.set_ylim(low - 1, high + 4)
    return mesh
