"""All runs of a page in one picture, also those that are not drawn layer by layer: runs from top to
bottom, layers from the input (left) to the loss."""
import numpy
from matplotlib import colormaps, colors

from ada_train.report import layers, pictures_layers, pointer, robust, style
from ada_train.report.style import Picture

MOST_NAMES = 75  # of layers below a picture


def _mean_by_layer(run, names, tensor, column, change):
    """The mean of a column over the logged steps, by layer; of several seeds the mean of these."""
    rows = []
    for member in run.each:
        table = pictures_layers.scale_tables([member], tensor)[0] if column == "scale" else (
            layers.of_tensor(member.underflow, tensor))
        values = change(table[column].to_numpy(dtype=float))
        grid = layers.grid(table.assign(step=0.0), layers.codes(table["layer"], names), names, values)
        rows.append(grid.values[:, 0])
    return numpy.nanmean(numpy.array(rows), axis=0)


def _axes(ax, runs, names):
    ax.set_ylim(len(runs) - 0.5, -0.5)
    every = max(1, -(-len(runs) // MOST_NAMES))
    at = range(0, len(runs), every)
    ax.set_yticks(list(at), [style.label(runs[i].label, 72) for i in at],
                  fontsize=8.5 if len(runs) <= 35 else 7)
    ax.set_ylabel("run")
    every = max(1, -(-len(names) // MOST_NAMES))
    at = range(0, len(names), every)
    ax.set_xticks(list(at), [style.label(names[i], 24) for i in at], rotation=90, fontsize=7.5)
    ax.grid(False)


def _ends(runs, names, values, say):
    """The cells with the smallest and the largest value, in words."""
    ends = []
    for pick in (numpy.nanargmin, numpy.nanargmax):
        row, column = numpy.unravel_index(pick(values), values.shape)
        ends.append(f"{say(values[row, column])} ({runs[row].label}, {names[column]})")
    return f"From {ends[0]} to {ends[1]}."


def _map(runs, names, values, cmap, norm, say):
    figure, ax = style.subplots(1, 1, (style.WIDTH, style.layers_height(len(runs)) + 0.8))
    edges = numpy.arange(len(names) + 1) - 0.5
    mesh = style.heat(ax, edges, values, cmap, norm)
    _axes(ax, runs, names)
    pointer.cells(ax, edges, [run.label for run in runs], values, say, pointer.named(names))
    return figure, ax, mesh


def by_run_and_layer(runs, tensor, order):
    """Mean underflow and mean scale of each layer of each run."""
    tables = [pictures_layers.scale_tables([member], tensor)[0] for run in runs
              for member in run.each]
    names = pictures_layers.shown(order, tables)
    if not names:
        return []
    pictures = []
    lost = numpy.array([_mean_by_layer(run, names, tensor, "underflow_pct_nonzero", numpy.asarray)
                        for run in runs])
    if numpy.isfinite(lost).any():
        norm = pictures_layers.lost_norm(numpy.nanmax(lost))
        figure, ax, mesh = _map(runs, names, lost, colormaps["magma_r"], norm,
                               pictures_layers.lost_words)
        values = layers.values_of(names, tensor)
        pictures_layers.lost_bar(figure, mesh, ax, norm, f"underflow, mean\n(% of non-zero {values})")
        pictures.append(Picture("runs_underflow", figure, "Each layer's mean over the run. "
                                + _ends(runs, names, lost, style.percent),
                                "underflow by run and layer"))
    scale = numpy.array([_mean_by_layer(run, names, tensor, "scale", pictures_layers.log2)
                         for run in runs])
    if numpy.isfinite(scale).any():
        low, high = robust.ends(scale, powers=True)
        low, high = numpy.floor(low), numpy.ceil(high)
        norm = colors.Normalize(low, high + (low == high))
        figure, ax, mesh = _map(runs, names, scale, robust.with_ends("viridis"), norm,
                               pictures_layers.power_words)
        bar = style.color_bar(figure, mesh, ax, f"scale of {tensor}, mean\n(factor)",
                              extend=robust.extend(low, high, scale))
        style.powers_axis(bar.ax.yaxis)
        pictures.append(Picture("runs_scale", figure, "Geometric means over the run. "
                                + _ends(runs, names, scale, lambda x: style.power(2.0 ** x)),
                                "scale by run and layer"))
    return pictures
