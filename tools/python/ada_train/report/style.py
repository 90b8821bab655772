"""How pictures look: colours that colour-blind people can tell apart, sizes for a page of 1200
pixels, axes with units, and the sentence that stands under each picture."""
import dataclasses
import math
import statistics

import matplotlib
import numpy
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ada_train.report.names import lines as name_lines
from ada_train.run_files import visible

# Okabe and Ito's palette without its yellow, which is too light for lines; after it those that are
# farthest from all before them, seen with and without red and green.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
          "#888888", "#554400", "#EE9977", "#1122AA", "#BB33FF", "#772233", "#668833", "#005555",
          "#BB1199", "#FF8899", "#99BB44", "#BB77FF", "#333366", "#FF77DD"]
SHORT = 7  # colors that need no line style to tell them apart
LINES = ["-", "--", "-.", ":"]
BROKEN = "#1f6feb"  # cells with values that are not finite
NO_VALUE = "#c9c9c9"  # hatching of a heat map's cells without one
DPI = 144
WIDTH = 11.2  # inches; shown at 100 pixels an inch
PER_ROW = 3   # panels side by side
TEXT_CELLS = 40  # rows of a heat map that still have their numbers written in
MOST_WORDS = 40  # kinds, limits and scenarios that a picture can show

RC = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.labelsize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e3e3e3", "grid.linewidth": 0.7, "axes.axisbelow": True, "legend.fontsize": 8.5,
    "legend.frameon": False, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
    "figure.facecolor": "white", "axes.titlelocation": "left",
}


def look():
    """A context in which what is drawn has this look; what others draw keeps theirs."""
    return matplotlib.rc_context(RC)


def subplots(rows, columns, size, **options):
    """A figure of no window and its axes: nothing here needs a display, or takes one."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


@dataclasses.dataclass
class Picture:
    name: str         # of the file under --png
    figure: object
    sentence: str     # what to look for, made from the data
    alt: str = ""


def color(index):
    return COLORS[index % len(COLORS)]


def line(index):
    return LINES[index // SHORT % len(LINES)]


def shorten(text, most):
    """`text` with its middle left out where it is longer than `most` characters."""
    text = str(text)
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return text[:head] + "…" + text[len(text) - (most - 1 - head):]


def label(text, most):
    """A name of a file as a picture may have it: `$` begins no formula, a line end no line, and a
    legend does not leave out what begins with `_`."""
    text = shorten(visible(str(text)), most).replace("$", r"\$")
    return " " + text if text.startswith("_") else text


def percent(value):
    """A percentage for a sentence: three digits at most."""
    if value is None or not math.isfinite(value):
        return "an unknown share"
    if value == 0:
        return "0 %"
    if value < 0.001:
        return "under 0.001 %"
    return digits(value, 3) + " %"


def power(value):
    """A scale for a sentence: a power of two as such, anything else with four digits."""
    if not (value > 0 and math.isfinite(value)):
        return str(value)
    exponent = math.log2(value)
    if abs(exponent) >= 40 and abs(exponent - round(exponent)) >= 1e-9:
        return f"2^{exponent:.1f}"
    if abs(exponent - round(exponent)) < 1e-9 and abs(exponent) >= 4:
        return f"2^{round(exponent)}"
    return digits(value, 4)


def digits(value, count):
    """A number with so many significant digits; none with an exponent that reads well without."""
    if value is None or not math.isfinite(value):
        return str(value)
    text = f"{value:.{count}g}"
    if abs(value) >= 1e15:
        return f"{'-' if value < 0 else ''}10^{math.log10(abs(value)):.1f}"
    if "e+" in text:
        return f"{float(text):,.0f}"
    return text


def mean_and_spread(values, places):
    """Mean and sample standard deviation of the finite ones of some numbers."""
    values = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not values:
        return "unknown"
    text = f"{sum(values) / len(values):,.{places}f}"
    return text if len(values) < 2 else f"{text} ± {statistics.stdev(values):,.{places}f}"


def sentences(parts):
    """What is said of each run, as one text; a line each where there are many."""
    return "; ".join(parts) + "." if len(parts) <= 3 else "\n".join(part + "." for part in parts)


def counted(count, what):
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def most_first(column):
    """The words of a column with their counts, the most frequent first, in a fixed order."""
    counts = [(word, int(n)) for word, n in column.value_counts().items() if n > 0]
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))


def power_label(exponent, _=None):
    return f"$2^{{{round(exponent)}}}$"


def powers_axis(axis, ticks=8):
    """Ticks of an axis whose values are log2 of something."""
    axis.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(power_label))


def step_axis(ax, last, label=True):
    ax.set_xlim(0, last)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    if label:
        ax.set_xlabel("step (attempts of an update)")


def panels(count, height, **options):
    """A figure of `count` panels with the same axes, three in a row; each row `height` inches.
    Returns figure and axes, in order."""
    columns = min(count, PER_ROW)
    rows = math.ceil(count / columns)
    figure, axes = subplots(rows, columns, (WIDTH, rows * height), squeeze=False, **options)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return figure, list(axes.flat[:count])


def layer_axis(ax, names, first):
    """Layers from top to bottom; names at the first panel of a row, no more than are readable."""
    ax.rows = list(names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    every = max(1, math.ceil(len(names) / 75))
    at = range(0, len(names), every)
    ax.set_yticks(list(at))
    if first:
        ax.set_yticklabels([label(names[i], 34) for i in at],
                           fontsize=8.5 if len(names) <= 35 else 7)
        ax.set_ylabel("layer (input at the top)")
    else:
        ax.set_yticklabels([])
    ax.tick_params(axis="y", length=2)
    ax.grid(False)


def layers_height(count):
    """Inches of a panel with so many layers."""
    return 1.0 + min(10.5, max(1.4, count * (0.2 if count <= 35 else 0.145)))


def heat(ax, edges, matrix, cmap, norm):
    """Cells of a matrix layers x steps; NaN is hatched."""
    rows = numpy.arange(len(matrix) + 1) - 0.5
    if numpy.isnan(matrix).any():
        ax.add_patch(Rectangle((edges[0], rows[0]), edges[-1] - edges[0], len(matrix), lw=0,
                               fc="white", ec=NO_VALUE, hatch="/////", zorder=0.5))
    return ax.pcolormesh(edges, rows, numpy.ma.masked_invalid(matrix), cmap=cmap, norm=norm)


def mark(ax, edges, where):
    """Lays BROKEN over the cells of a heat map in which `where` is true."""
    if where.any():
        rows = numpy.arange(len(where) + 1) - 0.5
        ax.pcolormesh(edges, rows, numpy.ma.masked_where(~where, where.astype(float)),
                      cmap=ListedColormap([BROKEN]))


def color_bar(figure, mesh, axes, label, **options):
    """A bar of the same width beside figures of any height."""
    bar = figure.colorbar(mesh, ax=axes, pad=0.01, shrink=0.9,
                          aspect=max(12, 6.5 * figure.get_size_inches()[1]), **options)
    bar.set_label(label)
    figure.color_bar = bar
    return bar


def wrapped(text, most, lines=5):
    """`text` in lines of at most `most` characters, broken where its words end; its middle is left
    out where it needs more lines."""
    rows = name_lines(str(text).replace(" seeds)", "\u00a0seeds)"), most)  # not broken there
    if len(rows) > lines:
        rows[lines - 1:] = [shorten(" ".join(rows[lines - 1:]), most)]
    return "\n".join(label(row, most) for row in rows)


def panel_title(ax, text, panels):
    """A title within the width of its panel, beside which stand others. The figure grows by the
    lines that it has beyond the first two, once for each row of panels."""
    title, ax.whole_title = wrapped(text, 96 // min(panels, PER_ROW)), str(text)
    ax.set_title(title)
    row, figure = ax.get_subplotspec().rowspan.start, ax.figure
    figure.title_lines = getattr(figure, "title_lines", {})
    more = title.count("\n") + 1 - figure.title_lines.get(row, 2)
    if more > 0:
        figure.title_lines[row] = title.count("\n") + 1
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.17 * more)


def legend_above(figure, handles, labels, most=60):
    """A legend over the figure, which grows by its height: as many columns as its names let fit.
    `most`: characters of a line."""
    labels = [wrapped(text, most) for text in labels]
    longest = max((len(line) for text in labels for line in text.split("\n")), default=1)
    columns = max(1, int(WIDTH / (0.62 + 0.07 * longest)))
    width, height = figure.get_size_inches()
    heights = numpy.array([0.19 + 0.14 * text.count("\n") for text in labels])
    columns = max(1, min(columns, len(labels)))
    room = max(part.sum() for part in numpy.array_split(heights, columns)) + 0.12
    figure.set_size_inches(width, height + room)
    figure.legend(handles, labels, loc="upper center", ncol=columns)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - room / (height + room)))
