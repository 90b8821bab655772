"""Rows of the logs as matrices: layers in network order, steps thinned to what can be drawn."""
import dataclasses
import math

import numpy

from ada_train.no_gradient import BRANCH, layers_without_gradient

COLUMNS = 240  # of a heat map; more logged steps share a column
LOGIT = "loss"  # the layer that the logit gradient is logged under


def merge(base, other):
    """`base` with what it lacks of `other` put behind the element before it in `other`."""
    result = list(base)
    known = set(result)
    for i, name in enumerate(other):
        if name in known:
            continue
        at = 0
        if i > 0:
            at = result.index(other[i - 1]) + 1
        elif any(later in known for later in other):
            at = min(result.index(later) for later in other if later in known)
        result.insert(at, name)
        known.add(name)
    return result


def _first_step(frame):
    return frame[frame["step"] == frame["step"].iloc[0]] if len(frame) else frame


def network_order(run):
    """The layers of a run from the input to the loss. The files list the forward pass (y, w) in
    that order, the backward pass (dx, dy, dw) in the opposite one."""
    rows = _first_step(run.underflow)
    backward = rows["tensor"].isin(["dx", "dx2", "dy", "dw"])
    forward = list(dict.fromkeys(rows["layer"][~backward]))
    order = merge(forward, list(dict.fromkeys(rows["layer"][backward]))[::-1])
    for table in (run.scales, run.histograms, run.probes):
        order = merge(order, list(dict.fromkeys(_first_step(table)["layer"]))[::-1])
    if LOGIT in order:
        order.remove(LOGIT)
        order.append(LOGIT)
    return order


def common_order(runs):
    order = []
    for run in runs:
        order = merge(order, network_order(run))
    return order


def codes(column, names):
    """For each row the index of its word in `names`, -1 where it is not among them."""
    index = {name: i for i, name in enumerate(names)}
    column = column.astype("category")
    table = numpy.array([index.get(c, -1) for c in column.cat.categories] + [-1], dtype=int)
    return table[column.cat.codes.to_numpy()]


@dataclasses.dataclass
class Grid:
    edges: numpy.ndarray   # of the columns, in steps
    values: numpy.ndarray  # layers x columns; NaN: no value
    steps: int             # logged steps
    per_column: int        # logged steps that share a column


def grid(table, rows, names, value, how="mean"):
    """`value` of each row of `table`, as layers x steps. `rows`: each row's index in `names`.
    how: `mean` or `last` of what shares a cell."""
    keep = rows >= 0
    steps, rows = table["step"].to_numpy()[keep], rows[keep]
    value = numpy.asarray(value, dtype=float)[keep]
    logged = numpy.unique(steps)
    if len(logged) == 0:
        return Grid(numpy.array([0.0, 1.0]), numpy.full((len(names), 1), numpy.nan), 0, 1)
    per_column = math.ceil(len(logged) / COLUMNS)
    columns = math.ceil(len(logged) / per_column)
    cell = rows * columns + numpy.searchsorted(logged, steps) // per_column
    size = len(names) * columns
    has = ~numpy.isnan(value)
    result = numpy.full(size, numpy.nan)
    if how == "last":
        result[cell[has]] = value[has]
    else:
        count = numpy.bincount(cell[has], minlength=size)
        total = numpy.bincount(cell[has], weights=value[has], minlength=size)
        numpy.divide(total, count, out=result, where=count > 0)
    gap = numpy.median(numpy.diff(logged)) if len(logged) > 1 else 1
    edges = numpy.append(logged[::per_column], logged[-1] + gap)
    return Grid(edges, result.reshape(len(names), columns), len(logged), per_column)


def thinned(grids, how="mean"):
    """The sentence that says what was thinned for drawing; empty where nothing was."""
    most = max((g.per_column for g in grids), default=1)
    if most == 1:
        return ""
    what = {"mean": "their mean", "last": "the last of them"}[how]
    return f" Up to {most} logged steps share a column of the picture, which shows {what}."


def of_tensor(table, tensor):
    return table[(table["tensor"] == tensor).to_numpy()]


def all_zero(table):
    """Whether every value of a row's tensor was zero after rounding."""
    return ((table["numel"] > 0) & (table["zeros_after"] == table["numel"])).to_numpy()


def without_gradient(run):
    """The layers of which all of dx or dw was zero in the last logged step, in the order of the
    backward pass, and where the gradient died: ada_train.no_gradient."""
    table = run.underflow
    table = table[(table["step"] == table["step"].max()).to_numpy()] if len(table) else table
    dead = layers_without_gradient([row._asdict() for row in table.itertuples()])
    places = [at for _, _, at in dead]
    at = next((at for at in places if at != BRANCH), BRANCH)
    return [layer for layer, _, _ in dead], at


def no_gradient_text(run):
    """One sentence for those layers; empty where there are none."""
    if run.members:
        texts = [(member.label, no_gradient_text(member)) for member in run.members]
        return "; ".join(f"{label}: {text}" for label, text in texts if text)
    names, at = without_gradient(run)
    if not names:
        return ""
    what = "layer" if len(names) == 1 else "layers"
    if at == BRANCH:
        where = "in a branch, while the gradient goes on past it"
    elif at is None:
        where = "it died at loss: no tensor had values"
    else:
        where = f"it died at {at['layer']}.{at['tensor']}, the last tensor that still had values"
    return f"{where}; {len(names)} {what} without: {', '.join(names)}"


def per_layer(table, column):
    """Mean and largest of a column by layer, with the step of the largest: rows of (layer, mean,
    largest, step), the largest mean first."""
    table = table[table[column].notna()]
    if not len(table):
        return []
    groups = table.groupby("layer", observed=True, sort=False)[column]
    means, at = groups.mean(), groups.idxmax()
    rows = [(layer, means[layer], table.loc[i, column], int(table.loc[i, "step"]))
            for layer, i in at.items()]
    return sorted(rows, key=lambda row: -row[1])


def last_step(runs):
    """The largest step of any run, for axes that all share."""
    return max([1.0] + [float(t["step"].max()) for run in runs for t in run.tables.values()
                        if len(t)])
