"""Axes that a few outliers do not flatten: values far beyond all others of their run are not drawn
but marked at the edge, and the picture's sentence names them."""
import dataclasses

import numpy
from matplotlib import colormaps

from ada_train.report import style

FAR = 10         # times as far away as the farthest of the others is an outlier
SHARE = 0.05     # of the values, which may be outliers
POWERS = 4       # powers of two that count as the least distance of a scale
MOST_NAMED = 4   # outliers that a sentence names
UNDER, OVER = "#CC79A7", "#D55E00"  # of cells beyond a color bar
MOST_MARKED = 200  # markers of a line


@dataclasses.dataclass
class Outlier:
    run: str
    what: str   # loss, scale ...
    step: float
    value: str


def outliers(values, beside=(), powers=False):
    """Which of the values lie far beyond the others, and beyond those of `beside`. Distances are
    those from zero; of powers of two (logarithms) from their median. A loss that falls from step to
    step has no outliers: the next largest value is never far away."""
    values = numpy.asarray(values, dtype=float)
    known = numpy.concatenate([values, numpy.asarray(beside, dtype=float)])
    known = known[numpy.isfinite(known)]
    if len(known) < 3:  # which of two is the outlier?
        return numpy.zeros(len(values), dtype=bool)
    origin = numpy.median(known) if powers else 0.0
    distances = numpy.sort(numpy.abs(known - origin))
    few = max(1, int(SHARE * len(distances)))
    limits = FAR * numpy.maximum(distances[-1 - few:-1], POWERS if powers else 0)
    jumps = limits[(distances[-few:] > limits) & (limits > 0)]
    if not len(jumps):
        return numpy.zeros(len(values), dtype=bool)
    return numpy.isfinite(values) & (numpy.abs(values - origin) > jumps[0])


def ends(values, powers=False):
    """The smallest and the largest of the values that are no outliers; (0, 1) of none."""
    values = numpy.asarray(values, dtype=float)
    values = values[numpy.isfinite(values)]
    kept = values[~outliers(values, powers=powers)]
    return (float(kept.min()), float(kept.max())) if len(kept) else (0.0, 1.0)


def with_ends(name):
    """A color map that shows outliers in colors that its own are not."""
    return colormaps[name].with_extremes(under=UNDER, over=OVER)


def extend(low, high, values):
    """Which ends of a color bar have values beyond them, as matplotlib says it."""
    below, above = (values < low).any(), (values > high).any()
    return {(False, False): "neither", (True, False): "min", (False, True): "max",
            (True, True): "both"}[bool(below), bool(above)]


def mark(ax, steps, values, color):
    """Triangles at the edge to which these outliers point."""
    steps, values = numpy.asarray(steps, dtype=float), numpy.asarray(values, dtype=float)
    middle = sum(ax.get_ylim()) / 2
    for where, marker, at in ((values > middle, "^", 0.985), (values <= middle, "v", 0.015)):
        if where.any():  # an empty line would upset the layout
            some = steps[where][::max(1, where.sum() // MOST_MARKED)]
            ax.plot(some, numpy.full(len(some), at), ls="none", marker=marker, ms=6, color=color,
                    mec="white", mew=0.5, transform=ax.get_xaxis_transform(), zorder=4)


def sentence(found):
    """What a picture says of the outliers that it does not draw; "" where there are none."""
    if not found:
        return ""
    named = [f"{one.run}: {one.what} {one.value} at step {int(one.step):,}"
             for one in found[:MOST_NAMED]]
    more = len(found) - len(named)
    text = "; ".join(named) + (f"; and {style.counted(more, 'other')}" if more > 0 else "")
    return f"\n▲▼ at the edge: values far beyond the others, which are not drawn: {text}."
