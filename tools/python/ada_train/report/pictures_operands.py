"""Pictures of operands in block-scaled formats: what rounding leaves of them, how far the scales of
their blocks lie apart, and what other formats would leave."""
import math

import numpy
from matplotlib import colors

from ada_train.report import layers, pointer, style
from ada_train.report.pictures_layers import shown
from ada_train.report.style import Picture

OPERANDS = ["forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"]
OF_ATTENTION = ["s.q", "s.k", "y.p", "y.v", "dv.p", "dv.dy", "dp.dy", "dp.v", "dq.ds", "dq.k",
                "dk.ds", "dk.q"]
STALLS = math.sqrt(3)  # arXiv 2505.19115


ALL = (-1e6, 1e6)  # the whole width of a panel


def _power(value):
    return style.power(2.0 ** value)


def noise_sentence(table):
    """The least norm over noise of a table's gradients; empty where none is known."""
    noise = table["norm_over_noise"]
    known = noise[numpy.isfinite(noise)]
    if not len(known):
        return ""
    least, row = known.min(), table.loc[known.idxmin()]
    text = (f"the norm of {row['layer']}.{row['tensor']} is {style.digits(least, 3)} times "
            f"that of its errors at step {int(row['step']):,}, the least of all gradients")
    return text + ("; below √3 training is said to stall" if least < STALLS else "")


def _drawn(tables):
    """The operands that a picture has: those of attention where some run has one."""
    found = set().union(*(set(table["tensor"]) for table in tables))
    return OPERANDS + [name for name in OF_ATTENTION if name in found]


def _means(table, names, operands, *columns):
    """Layers x operands for each column: its mean over the logged steps."""
    rows, at = layers.codes(table["layer"], names), layers.codes(table["tensor"], operands)
    cell, size = rows * len(operands) + at, len(names) * len(operands)
    grids = []
    for column in columns:
        value = table[column].to_numpy()
        known = (rows >= 0) & (at >= 0) & numpy.isfinite(value)
        count = numpy.bincount(cell[known], minlength=size)
        mean = numpy.full(size, numpy.nan)
        numpy.divide(numpy.bincount(cell[known], weights=value[known], minlength=size), count,
                     out=mean, where=count > 0)
        grids.append(mean.reshape(len(names), len(operands)))
    return grids


def _sqnr_sentence(runs, tables, grids, names, drawn):
    parts = []
    for run, table, mean in zip(runs, tables, grids):
        if not numpy.isfinite(mean).any():
            parts.append(f"{run.label}: no operand with an error")
            continue
        row, column = numpy.unravel_index(numpy.nanargmin(mean), mean.shape)
        text = (f"{run.label}: {names[row]}.{drawn[column]} is worst with "
                f"{mean[row, column]:.1f} dB on average")
        noise = noise_sentence(table)
        parts.append(text + (f"; {noise}" if noise else ""))
    return style.sentences(parts)


def _decibels(runs, names, columns, grids, what, label):
    """Cells of decibels, layers x columns: a panel for each run."""
    figure, axes = style.panels(len(runs), style.layers_height(len(names)) + 0.6)
    norm, edges = colors.Normalize(0, 50), numpy.arange(len(columns) + 1)
    for number, (run, ax, mean) in enumerate(zip(runs, axes, grids)):
        mesh = style.heat(ax, edges, mean, "viridis", norm)
        if len(names) <= style.TEXT_CELLS:
            for (row, column), value in numpy.ndenumerate(mean):
                if numpy.isfinite(value):
                    ax.text(column + 0.5, row, f"{value:.0f}", ha="center", va="center",
                            fontsize=7, color="white" if norm(value) < 0.55 else "#222222")
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        ax.set_xticks(edges[:-1] + 0.5, [style.label(name, 28) for name in columns], rotation=35,
                      ha="right")
        ax.set_xlabel(what)
        pointer.cells(ax, edges, names, mean, lambda value: f"{value:.1f} dB",
                      pointer.named(columns))
        style.panel_title(ax, run.label, len(runs))
    style.color_bar(figure, mesh, axes, label, extend="both")
    return figure


def _sqnr(runs, tables, names):
    drawn = _drawn(tables)
    grids = [_means(table, names, drawn, "sqnr_db")[0] for table in tables]
    figure = _decibels(runs, names, drawn, grids, "operand", "SQNR (dB)")
    return Picture("operand_sqnr", figure, _sqnr_sentence(runs, tables, grids, names, drawn),
                   "SQNR by layer and operand")


def _spread_sentence(runs, tables):
    parts = []
    for run, table in zip(runs, tables):
        width = table["scale_log2_max"] - table["scale_log2_min"]
        if not width.notna().any():
            parts.append(f"{run.label}: no block with a scale")
            continue
        row = table.loc[width.idxmax()]
        parts.append(f"{run.label}: the scales of {row['layer']}.{row['tensor']} lie furthest "
                     f"apart, {style.digits(float(width.max()), 3)} powers of two at step "
                     f"{int(row['step']):,}")
    return style.sentences(parts)


def _spread(runs, tables, names):
    figure, axes = style.panels(len(runs), style.layers_height(len(names)) + 0.6, sharex=True)
    drawn = _drawn(tables)
    lanes = numpy.linspace(-0.325, 0.325, len(drawn))  # of a layer's row
    handles = []
    for number, (run, ax, table) in enumerate(zip(runs, axes, tables)):
        mean, deviation, *ends = _means(table, names, drawn, "scale_log2_mean",
                                        "scale_log2_std", "scale_log2_min", "scale_log2_max")
        handles = []
        for i, lane in enumerate(lanes):
            there = numpy.isfinite(mean[:, i])
            y = numpy.flatnonzero(there) + lane
            at, around = mean[there, i], deviation[there, i]
            color = style.color(i)
            low, high = ends[0][there, i], ends[1][there, i]
            ax.hlines(y, low, high, color=color, lw=0.8)
            ax.hlines(y, numpy.fmax(at - around, low), numpy.fmin(at + around, high), color=color,
                      lw=2.6)  # no bar beyond its extremes
            for place, middle, first, last in zip(y, at, low, high):
                layer = names[round(place - lane)]
                pointer.area(ax, ALL, (place - 0.065, place + 0.065), (
                    f"{layer}.{drawn[i]}: mean {_power(middle)}, from {_power(first)} to "
                    f"{_power(last)}"))
            handles.append(ax.plot(at, y, "o", ms=2.5, color=color)[0])
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        style.powers_axis(ax.xaxis, 6)
        ax.set_xlabel("scales of blocks")
        style.panel_title(ax, run.label, len(runs))
    style.legend_above(figure, handles, drawn)
    return Picture("operand_scales", figure, _spread_sentence(runs, tables),
                   "spread of the scales of blocks")


def operands(runs, order):
    tables = [run.blocks for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    return [_sqnr(runs, tables, names), _spread(runs, tables, names)]


def _judged_sentence(runs, tables, scenarios):
    """The worst operand of each scenario, and what most is lost or saturated of one."""
    parts = []
    for run, table in zip(runs, tables):
        for scenario in scenarios:
            rows = table[(table["scenario"] == scenario).to_numpy()]
            means = rows.groupby(["layer", "tensor"], observed=True)["sqnr_db"].mean().dropna()
            if not len(means):
                continue
            nonzero = (rows["numel"] - rows["zeros"]).to_numpy()
            with numpy.errstate(divide="ignore", invalid="ignore"):
                saturated = 100 * rows["saturated"].to_numpy() / nonzero
            parts.append(f"{run.label}: under “{scenario}” {'.'.join(means.idxmin())} is worst with "
                         f"{means.min():.1f} dB on average; of an operand "
                         f"{style.percent(float(rows['lost_pct_nonzero'].max()))} are lost and "
                         f"{style.percent(float(numpy.nanmax(saturated)))} saturate at most")
    return style.sentences(parts)


def _least(table, names, columns, kind):
    """Layers x columns: the mean SQNR of the worst tensor of each."""
    keys = list(dict.fromkeys(["layer", "tensor", kind]))
    means = table.groupby(keys, observed=True)["sqnr_db"].mean()
    least = means.groupby(["layer", kind], observed=True).min()
    return numpy.array([[least.get((name, column), numpy.nan) for column in columns]
                        for name in names], dtype=float)


def sums(runs, order):
    """What accumulators leave of the sums of products, layers x products."""
    return _sums("sums", runs, order, "accumulators", "tensor", "product")


def judged_sums(runs, order):
    """What the accumulators of log.what_if would leave: of each layer the worst product, layers x
    scenarios."""
    return _sums("what_if_sums", runs, order, "what_if_accumulators", "scenario", "scenario")


def _sums(name, runs, order, file, kind, what):
    tables = [run.tables[file] for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    columns = list(dict.fromkeys(c for table in tables for c in table[kind]))[:style.MOST_WORDS]
    grids = [_least(table, names, columns, kind) for table in tables]
    figure = _decibels(runs, names, columns, grids, what, "SQNR of the worst sums (dB)")
    parts = []
    for run, mean, table in zip(runs, grids, tables):
        if not numpy.isfinite(mean).any():
            parts.append(f"{run.label}: no sums with an error")
            continue
        row, column = numpy.unravel_index(numpy.nanargmin(mean), mean.shape)
        parts.append(f"{run.label}: {names[row]} under “{columns[column]}” is worst with "
                     f"{mean[row, column]:.1f} dB on average; of a product "
                     f"{style.percent(float(table['swallowed_pct'].max()))} are swallowed at most")
    return [Picture(name, figure, style.sentences(parts), f"SQNR of sums by layer and {what}")]


def judged(runs, order):
    """What operands would keep in the block-scaled formats of log.what_if: of each layer the worst
    operand, layers x scenarios."""
    tables = [run.what_if_blocks for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    scenarios = list(dict.fromkeys(s for t in tables for s in t["scenario"]))[:style.MOST_WORDS]
    grids = [_least(table, names, scenarios, "scenario") for table in tables]
    figure = _decibels(runs, names, scenarios, grids, "scenario", "SQNR of the worst operand (dB)")
    return [Picture("what_if_operands", figure, _judged_sentence(runs, tables, scenarios),
                    "SQNR of operands by layer and scenario")]
