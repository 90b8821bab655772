"""Values under the pointer: areas over a picture, each with a title of SVG that the browser shows
where the pointer rests. They need no script, and scale with the picture."""
import dataclasses
import html
from typing import Any, Callable

import numpy

from ada_train.report import style
from ada_train.run_files import visible

MOST = 2500       # areas of a picture; more cells are joined
MOST_LINES = 2400  # lines in the titles of a panel with lines
STRIPS = 100      # of a panel with lines


@dataclasses.dataclass
class Cells:
    """A matrix of cells: row i lies around y = i unless `heights` says otherwise."""
    ax: Any
    edges: Any         # of the columns
    rows: list         # their names
    values: Any
    say: Callable      # a value in words
    place: Callable    # the indices of the first and the last column in words
    words: bool        # the values are codes of words: the last one stands for those joined
    heights: Any


def areas(figure):
    if not hasattr(figure, "areas_under_pointer"):
        figure.areas_under_pointer = []
    return figure.areas_under_pointer


def _steps(first, last):
    return f"step {int(first):,}" if int(first) == int(last) else (
        f"steps {int(first):,} to {int(last):,}")


def cells(ax, edges, rows, values, say=None, place=None, words=False, heights=None):
    """The cells of a heat map. Columns are steps unless `place` says otherwise."""
    values = numpy.asarray(values, dtype=float)
    place = place or (lambda first, last: _steps(edges[first], edges[last]))
    heights = numpy.arange(len(values) + 1) - 0.5 if heights is None else heights
    areas(ax.figure).append(Cells(ax, numpy.asarray(edges, dtype=float), list(rows), values,
                                   say or (lambda value: style.digits(value, 4)), place, words,
                                   heights))


def named(names):
    """`place` of columns that have names."""
    return lambda first, last: names[first] if first == last else (
        f"{names[first]} to {names[last]}")


def until(edges):
    """`place` of cells that reach from the step before to their own."""
    return lambda first, last: _steps(edges[first + 1], edges[last + 1])


def area(ax, x, y, text):
    """One area, of the corners' x and y; y None: as high as the panel."""
    areas(ax.figure).append((ax, x, y, text))


def lines(ax, series, say=None):
    """Strips over a panel with lines, each with the values of every series: (name, steps, values).
    """
    say = say or (lambda value: style.digits(value, 4))
    series = [(name, numpy.asarray(steps, dtype=float), numpy.asarray(values, dtype=float))
              for name, steps, values in series if len(steps)]
    logged = numpy.unique(numpy.concatenate([steps for _, steps, _ in series] or [[]]))
    if not len(logged):
        return
    count = max(1, min(STRIPS, MOST_LINES // len(series)))
    for group in numpy.array_split(logged, min(count, len(logged))):
        text = [_steps(group[0], group[-1])]
        for name, steps, values in series:
            here = values[(steps >= group[0]) & (steps <= group[-1])]
            here = here[~numpy.isnan(here)]
            if len(here):
                text.append(f"{name}: {_span(say, here.min(), here.max())}")
        area(ax, (_middle(logged, group[0], -1), _middle(logged, group[-1], 1)), None,
             "\n".join(text))


def _middle(logged, step, side):
    """Half the way from a step to the one before or after it."""
    at = int(numpy.searchsorted(logged, step)) + side
    return (step + logged[at]) / 2 if 0 <= at < len(logged) else step + side * 0.5


def _span(say, low, high):
    first, last = say(low), say(high)
    return first if first == last else f"{first} to {last}"


def _joined(found, every):
    """The matrix with `every` columns as one: smallest, largest, and where a piece of cells with
    the same values begins."""
    starts = numpy.arange(0, found.values.shape[1], every)
    if found.words:
        ends = numpy.append(starts[1:], found.values.shape[1]) - 1
        low = high = found.values[:, ends]
    else:
        low = numpy.fmin.reduceat(found.values, starts, axis=1)
        high = numpy.fmax.reduceat(found.values, starts, axis=1)
    def differs(part):
        return (part[:, 1:] != part[:, :-1]) & ~(numpy.isnan(part[:, 1:])
                                                 & numpy.isnan(part[:, :-1]))
    begins = numpy.ones(low.shape, dtype=bool)
    begins[:, 1:] = differs(low) | differs(high)
    return starts, low, high, begins


def _pieces(found, most):
    """Areas of a matrix, at most so many where its rows let it be."""
    every, columns = 1, found.values.shape[1]
    parts = _joined(found, every)
    while parts[3].sum() > most and every < columns:
        every *= 2
        parts = _joined(found, every)
    starts, low, high, begins = parts
    for row, column in zip(*numpy.nonzero(begins)):
        if numpy.isnan(low[row, column]):
            continue
        after = numpy.flatnonzero(begins[row, column + 1:])
        behind = column + 1 + (after[0] if len(after) else begins.shape[1] - column - 1)
        first = starts[column]
        end = starts[behind] if behind < len(starts) else columns
        text = (f"{found.rows[row]}, {found.place(first, end - 1)}: "
                + _span(found.say, low[row, column], high[row, column]))
        yield (found.ax, (found.edges[first], found.edges[end]),
               (found.heights[row], found.heights[row + 1]), text)


def _rectangle(figure, ax, x, y, text):
    """An area as SVG, in hundredths of an inch from the upper left corner; "" outside the panel."""
    left, right = sorted(ax.get_xlim())
    bottom, top = sorted(ax.get_ylim())
    x = numpy.clip(x, left, right)
    y = numpy.clip(ax.get_ylim() if y is None else y, bottom, top)
    corners = ax.transData.transform(numpy.column_stack([x, y])) * 100 / figure.dpi
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    if not numpy.isfinite(corners).all() or x1 - x0 < 0.05 or y1 - y0 < 0.05:
        return ""
    height = figure.get_size_inches()[1] * 100
    shown = "\n".join(map(visible, text.split("\n")))
    # Areas lie side by side without holes: their ends are rounded, not their widths.
    x0, x1, y0, y1 = (round(float(v), 1) for v in (x0, x1, height - y1, height - y0))
    return (f'<rect x="{x0:g}" y="{y0:g}" width="{x1 - x0:.4g}" height="{y1 - y0:.4g}"><title>'
            f"{html.escape(shown)}</title></rect>")


def svg(figure):
    """The areas of a figure that has been drawn, as SVG of the figure's size; "" without any."""
    found = areas(figure)
    matrices = [one for one in found if isinstance(one, Cells)]
    total = sum(one.values.size for one in matrices) or 1
    pieces = [one for one in found if not isinstance(one, Cells)]
    for one in matrices:
        pieces += _pieces(one, max(len(one.rows), MOST * one.values.size // total))
    text = "".join(_rectangle(figure, *piece) for piece in pieces)
    width, height = figure.get_size_inches() * 100
    return text and (f'<svg viewBox="0 0 {width:.5g} {height:.5g}" preserveAspectRatio="none" '
                     f'aria-hidden="true">{text}</svg>')
