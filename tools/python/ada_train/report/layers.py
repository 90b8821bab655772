"""Rows of the logs as matrices: layers in network order, steps thinned to what can be drawn."""
import dataclasses
import math

import numpy
import pandas

from ada_train.no_gradient import BRANCH, layers_without_gradient

COLUMNS = 240  # of a heat map; more logged steps share a column
LOGIT = "loss"  # the layer that the logit gradient is logged under
ATTENTION = ("ds", "dq", "dk", "dv")  # gradients of its scores, queries, keys and values
# Tensors that log.statistics counts with another one. A picture of that one has them too, as rows
# LAYER.TENSOR: scales.csv names attention's decisions like this as well.
BESIDE = {"dx": ("dx2", *ATTENTION), "y": ("p",)}
INSIDE = ("dq", "dk", "dv", "ds", "p", "dx2")  # the same, from the input to the loss
BACKWARD = ("dx", "dx2", "dy", "dw", *ATTENTION)  # listed in the opposite order
MEANINGS = {"dq": "queries", "dk": "keys", "dv": "values", "ds": "scores"}


def merge(base, other):
    """`base` with what it lacks of `other` put after the element before it in `other`."""
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
    backward = rows["tensor"].isin(BACKWARD)
    forward = list(dict.fromkeys(rows["layer"][~backward]))
    order = merge(forward, list(dict.fromkeys(rows["layer"][backward]))[::-1])
    order = _with_inside(order, zip(rows["layer"], rows["tensor"]))
    decided = [_layer_and_tensor(name) for name in dict.fromkeys(_first_step(run.scales)["layer"])]
    order = merge(order, _backward(decided))
    for table in (run.histograms, run.probes):
        rows = _first_step(table)
        order = merge(order, _backward(list(zip(rows["layer"], rows["tensor"]))))
    if LOGIT in order:
        order.remove(LOGIT)
        order.append(LOGIT)
    return order


def _layer_and_tensor(name):
    """The layer and the tensor that a decision LAYER.TENSOR of an attention is about; of other
    decisions the layer and ""."""
    layer, _, tensor = name.rpartition(".")
    return (layer, tensor) if layer and tensor in ATTENTION else (name, "")


def _backward(pairs):
    """Names of (layer, tensor), listed in the order of the backward pass, from the input on."""
    return _with_inside(list(dict.fromkeys(layer for layer, _ in pairs))[::-1], pairs)


def _with_inside(order, pairs):
    """`order` with the rows LAYER.TENSOR of INSIDE put before their layers."""
    there = set(pairs)
    return [name for layer in order for name in [f"{layer}.{tensor}" for tensor in INSIDE
                                                 if (layer, tensor) in there] + [layer]]


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


def is_of(table, tensor):
    """Which rows `of_tensor` takes."""
    return table["tensor"].isin((tensor, *BESIDE.get(tensor, ()))).to_numpy()


def of_tensor(table, tensor):
    """The rows of a tensor, and those of the tensors that count with it (BESIDE): of these the layer
    is LAYER.TENSOR."""
    rows = table[is_of(table, tensor)]
    kinds = (tensor, *BESIDE.get(tensor, ()))
    kind = codes(rows["tensor"], kinds)
    if not kind.any():
        return rows
    layer = rows["layer"].astype("category")
    code = layer.cat.codes.to_numpy().astype(int) * len(kinds) + kind
    names, place = {}, numpy.zeros(len(layer.cat.categories) * len(kinds), dtype=int)
    for i in numpy.flatnonzero(numpy.bincount(code)):
        name = layer.cat.categories[i // len(kinds)]
        name = name if i % len(kinds) == 0 else f"{name}.{kinds[i % len(kinds)]}"
        place[i] = names.setdefault(name, len(names))
    return rows.assign(layer=pandas.Categorical.from_codes(place[code], list(names)))


def _is_beside(name, tensor):
    return name.endswith(tuple("." + other for other in BESIDE.get(tensor, ())))


def values_of(names, tensor):
    """What the rows of these names have values of, in a word: the tensor, or, where some are of
    others that count with it, values."""
    return "values" if any(_is_beside(name, tensor) for name in names) else tensor


def beside_note(names, tensor):
    """What the rows LAYER.TENSOR among `names` are; "" where there are none."""
    there = [other for other in INSIDE if other in BESIDE.get(tensor, ())
             and any(name.endswith("." + other) for name in names)]
    attention = [other for other in there if other in ATTENTION]
    parts = []
    if attention:
        parts.append(f"{', '.join('LAYER.' + other for other in attention)}: gradients of an "
                     f"attention's {', '.join(MEANINGS[other] for other in attention)}")
    if "dx2" in there:
        parts.append("LAYER.dx2: gradient of a layer's second input")
    if "p" in there:
        parts.append("LAYER.p: an attention's probabilities")
    return f" Rows {'; '.join(parts)}." if parts else ""


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
