"""What underflows in the heads: the layers at the end of a network whose gradients come from the
losses alone, before they meet those of others."""
import numpy
import pandas
from matplotlib import colormaps

from ada_train.report import layers, pictures_layers, style
from ada_train.report.style import Picture

TENSORS = ["dx", "dx2", *layers.ATTENTION, "dw"]
PREFIXES = ("multibox.", "cast", layers.LOGIT)  # of the networks that ada-train has
LAST = 6  # layers of a network without such names


def head_layers(order):
    """Those of `order` that are heads: by the names of SSD's and of casts, else the last ones."""
    named = [name for name in order if name.startswith(PREFIXES)]
    if any(name.startswith("multibox.") for name in named):
        return named
    return order[-LAST:]


def _rows(run, names):
    """The run's rows of these layers' gradients, with a column `row`: LAYER.TENSOR."""
    table = run.underflow
    keep = table["tensor"].isin(TENSORS) & table["layer"].isin(names)
    table = table[keep.to_numpy()].copy()
    table["row"] = table["layer"].astype(str) + "." + table["tensor"].astype(str)
    return table


def _sentence(runs, tables):
    parts = []
    for run, table in zip(runs, tables):
        table = table[table["underflow_pct_nonzero"].notna()]
        if not len(table):
            continue
        means = table.groupby("row", observed=True)["underflow_pct_nonzero"].mean()
        worst = means.idxmax()
        parts.append(f"{run.label}: {worst} loses most, {style.percent(means[worst])} of its "
                     "non-zero values on average")
    return style.sentences(parts) if parts else "Nothing was logged of the heads."


def heads(runs, order, last):
    logged = set().union(*[set(run.underflow["layer"].unique()) for run in runs])
    ends = head_layers([name for name in order if name in logged])
    tables = [_rows(run, ends) for run in runs]
    there = set().union(*[set(table["row"]) for table in tables])
    names = [f"{layer}.{tensor}" for layer in ends for tensor in TENSORS
             if f"{layer}.{tensor}" in there]
    if not names:
        return []
    grids = [layers.grid(t, layers.codes(pandas.Series(t["row"], dtype="category"), names), names,
                         t["underflow_pct_nonzero"]) for t in tables]
    top = numpy.nanmax([0.0] + [numpy.nanmax(g.values) for g in grids
                                if numpy.isfinite(g.values).any()])
    norm = pictures_layers.lost_norm(top)
    cmap = colormaps["magma_r"]
    figure, axes, mesh = pictures_layers.heat_maps(runs, names, grids, last, cmap, norm,
                                                   pictures_layers.lost_words)
    for ax in axes[::style.PER_ROW]:
        ax.set_ylabel("gradient (loss at the bottom)")
    pictures_layers.lost_bar(figure, mesh, axes, norm, "underflow\n(% of non-zero values)")
    return [Picture("heads", figure, _sentence(runs, tables) + layers.thinned(grids),
                    "underflow in the heads by layer and step")]
