"""Pictures as data for the page's script (page.js): the panels of a matplotlib figure with their
axes, cells, lines and bars, and the words that stand under the pointer. What a figure shows is
decided once, where it is drawn; the script lays it out, sorts and filters its rows, and hides runs.
"""
import math
import re

import numpy
from matplotlib import colors
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator

from ada_train.report import pointer, style
from ada_train.run_files import visible

STOPS = 33            # of a color scale
UNDER, OVER, BROKEN = -0.1, 1.1, 1.2  # levels of values beyond a scale, and of those not finite
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
MARKERS = {"o": "circle", ".": "circle", "s": "square", "|": "line-ns-open", "^": "triangle-up",
           "v": "triangle-down"}
POWER = re.compile(r"\$2\^\{(-?\d+)\}\$")


def _text(text):
    """Text of a picture as the script shows it: powers of two written out, no formulas."""
    text = POWER.sub(r"2^\1", str(text)).replace(r"\$", "$").replace("\n", " ")
    return visible(text.strip())


def _round(values, digits=4):
    """Numbers with so many significant digits."""
    values = numpy.asarray(values, dtype=float)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        power = 10.0 ** (numpy.floor(numpy.log10(numpy.abs(values))) - (digits - 1))
        rounded = numpy.round(values / power) * power
    return numpy.where(numpy.isfinite(rounded), rounded, values)


def _list(values):
    """Numbers for JSON: None where there is none."""
    return [None if not math.isfinite(v) else int(v) if v == int(v) else float(f"{v:.6g}")
            for v in numpy.ma.filled(numpy.ma.asarray(values, dtype=float), numpy.nan).tolist()]


def _color(value):
    return colors.to_hex(value)


def _axis(axis, limits, scale):
    """Title, range and ticks of an axis."""
    form, found = axis.get_major_formatter(), {"title": _text(axis.get_label_text())}
    found["range"] = _list(limits)
    if scale == "log":
        found["log"] = True
    if getattr(form, "func", None) is style.power_label:
        found["power"] = True
    elif isinstance(axis.get_major_locator(), FixedLocator):
        at = axis.get_majorticklocs()
        found["ticks"] = [_list(at), [_text(word) for word in form.format_ticks(at)]]
    return found


class _Scale:
    """The values of a figure's cells once each: words for the pointer and levels of the color bar."""

    def __init__(self, figure, meshes):
        self.words, self.levels, self._at = [], [], {}
        mesh = next(iter(meshes), None)
        self._norm = mesh.norm if mesh is not None else None
        self.colors = self.bar = None
        if mesh is not None:
            self.colors = self._stops(mesh.cmap)
        if hasattr(figure, "color_bar"):
            self.bar = self._ticks(figure.color_bar)

    def _stops(self, cmap):
        words = isinstance(self._norm, colors.BoundaryNorm)
        at = (numpy.arange(cmap.N) + 0.5) / cmap.N if words else numpy.linspace(0, 1, STOPS)
        return {"scale": [_color(cmap(x)) for x in at], "words": words,
                "under": _color(cmap(-0.1)), "over": _color(cmap(1.1)), "broken": style.BROKEN}

    def _ticks(self, bar):
        at = numpy.asarray(bar.get_ticks(), dtype=float)
        words = bar.ax.yaxis.get_major_formatter().format_ticks(at)
        kept = [(self._level(value), _text(word)) for value, word in zip(at, words)
                if self._norm.vmin <= value <= self._norm.vmax]
        return {"title": _text(bar.ax.get_ylabel()), "ticks": [[l for l, _ in kept],
                                                               [w for _, w in kept]]}

    def _level(self, value):
        if isinstance(self._norm, colors.BoundaryNorm):  # codes of words
            return round((value + 0.5) / self._norm.Ncmap, 4)
        level = float(numpy.ma.filled(self._norm(value), numpy.nan))
        if math.isnan(level):  # of a logarithmic scale, which has no zero
            return 0.0
        return UNDER if level < 0 else OVER if level > 1 else round(level, 4)

    def add(self, cells, broken):
        """The cells' values as indices of words and levels; -1: none."""
        values = _round(cells.values, 3)
        there = numpy.isfinite(values)
        index = numpy.full(values.shape, -1, dtype=int)
        for mark in (False, True):
            where = there & (broken == mark)
            known, inverse = numpy.unique(values[where], return_inverse=True)
            places = []
            for value in known.tolist():
                key = (value, mark)
                if key not in self._at:
                    self._at[key] = len(self.words)
                    self.words.append(_text(cells.say(value)))
                    self.levels.append(BROKEN if mark else self._level(value))
                places.append(self._at[key])
            index[where] = numpy.array(places, dtype=int)[inverse] if places else -1
        return index.tolist()


def _run_of(text, labels):
    """The run that the title of a panel, or the words of an area, are about; None."""
    for label in sorted(labels, key=len, reverse=True):
        if text == label or text.startswith((label + ", ", label + ": ")) or text.endswith(
                (": " + label, ", " + label)) or f", {label}: " in text:
            return label
    return None


def _heat(ax, scale, cells, meshes):
    """The cells of a panel; those that a second mesh lies over are not finite."""
    broken = numpy.zeros(cells.values.shape, dtype=bool)
    if len(meshes) > 1 and numpy.size(meshes[1].get_array()) == cells.values.size:
        broken = ~numpy.ma.getmaskarray(meshes[1].get_array()).reshape(cells.values.shape)
    return {"edges": _list(cells.edges), "heights": _list(cells.heights),
            "rows": [visible(str(name)) for name in cells.rows],
            "places": [_text(cells.place(i, i)) for i in range(cells.values.shape[1])],
            "index": scale.add(cells, broken)}


def _y_of(ax, line):
    """A line's heights as data; those that are given as shares of the axis are put there."""
    y = numpy.asarray(line.get_ydata(), dtype=float)
    if line.get_transform() == ax.get_xaxis_transform():
        low, high = ax.get_ylim()
        return low * (high / low) ** y if ax.get_yscale() == "log" else low + y * (high - low)
    return y


def _line(ax, line, run_at):
    raw = getattr(line, "raw", None)
    x, y = raw if raw is not None else (line.get_xdata(), _y_of(ax, line))
    found = {"x": _list(numpy.asarray(x, dtype=float)), "y": _list(_round(y)),
             "color": _color(line.get_color()), "name": _text(line.get_label()),
             "width": line.get_linewidth(), "run": run_at(line)}
    if found["name"].startswith("_") or found["run"]:
        found["name"] = found["run"] or ""
    if raw is not None:
        found["smooth"] = True
    if line.get_linestyle() not in ("None", "none", " ", ""):
        found["dash"] = DASHES.get(line.get_linestyle(), "solid")
        if line.get_drawstyle() == "steps-post":
            found["steps"] = True
    if line.get_marker() in MARKERS:
        found["marker"], found["size"] = MARKERS[line.get_marker()], line.get_markersize() + 1
    if getattr(line, "layer", None):
        found["layer"] = line.layer
    return found


def _segments(found, run_at):
    """A collection of strokes as one line with holes for each of its colors."""
    lines = {}
    shades, widths = found.get_colors(), found.get_linewidths()
    for i, piece in enumerate(found.get_segments()):
        key = _color(shades[i % len(shades)])
        at = lines.setdefault(key, {"x": [], "y": [], "color": key, "name": "", "dash": "solid",
                                    "width": float(widths[i % len(widths)]), "run": run_at(key)})
        at["x"] += _list(piece[:, 0]) + [None]
        at["y"] += _list(_round(piece[:, 1], 6)) + [None]
    return list(lines.values())


def _band(found, run_at):
    corners = found.get_paths()[0].vertices if found.get_paths() else numpy.zeros((0, 2))
    shade = _color(found.get_facecolor()[0])
    return {"x": _list(corners[:, 0]), "y": _list(_round(corners[:, 1])), "color": shade,
            "name": "", "width": 0, "run": run_at(shade), "band": True}


def _bars(ax, areas, labels):
    """Rectangles that are bars, with the words of the areas over them."""
    found = []
    for patch in ax.patches:
        if not isinstance(patch, Rectangle) or patch.get_hatch() or not patch.get_width():
            continue
        x, y = patch.get_x(), patch.get_y() + patch.get_height() / 2
        words = next((text for _, across, up, text in areas if up and up[0] <= y <= up[1]
                      and math.isclose(across[0], x, abs_tol=1e-9)), "")
        found.append({"x": x, "width": patch.get_width(), "y": y, "height": patch.get_height(),
                      "color": _color(patch.get_facecolor()), "words": _text(words),
                      "run": _run_of(words, labels)})
    return found


def _points(ax, areas, labels):
    """Areas under the pointer that belong to no cell and no bar, as points in their middles."""
    found = []
    for _, across, up, words in areas:
        low, high = sorted(ax.get_xlim())
        x = (max(across[0], low) + min(across[1], high)) / 2
        found.append({"x": float(f"{x:.6g}"), "y": (up[0] + up[1]) / 2, "words": _text(words),
                      "run": _run_of(words, labels)})
    return found


def _panel(ax, scale, found, labels):
    areas = [one for one in found if not isinstance(one, pointer.Cells) and one[0] is ax
             and one[2] is not None]
    cells = next((one for one in found if isinstance(one, pointer.Cells) and one.ax is ax), None)
    whole = getattr(ax, "whole_title", "")
    title = whole or ax.get_title(loc="left") or ax.get_title()
    run = _run_of(whole, labels)
    shades = {} if run else {_color(style.color(i)): label
                             for i, label in reversed(list(enumerate(labels)))}

    def run_at(artist):
        if isinstance(artist, str):
            return shades.get(artist)
        label = artist.get_label()
        return label if label in labels else shades.get(_color(artist.get_color()))
    meshes = [one for one in ax.collections if isinstance(one, QuadMesh)]
    panel = {"title": _text(title), "run": run,
             "x": _axis(ax.xaxis, ax.get_xlim(), ax.get_xscale()),
             "y": _axis(ax.yaxis, ax.get_ylim(), ax.get_yscale())}
    rows = getattr(ax, "rows", None)
    if rows is not None:
        panel["rows"] = [visible(str(name)) for name in rows]
    if cells is not None:
        panel["heat"] = _heat(ax, scale, cells, meshes)
    lines = [_line(ax, line, run_at) for line in ax.lines if not getattr(line, "faint", False)]
    for one in ax.collections:
        if isinstance(one, LineCollection):
            lines += _segments(one, run_at)
        elif isinstance(one, PolyCollection) and not isinstance(one, QuadMesh):
            lines.append(_band(one, run_at))
    panel["lines"] = [line for line in lines if any(v is not None for v in line["y"])]
    panel["texts"] = [{"x": _round(one.get_position()[0]).item(), "y": one.get_position()[1],
                       "text": _text(one.get_text()), "color": _color(one.get_color())}
                      for one in ax.texts]
    panel["bars"] = _bars(ax, areas, labels)
    if cells is None and not panel["bars"]:
        panel["points"] = _points(ax, areas, labels)
    return panel


def _legend(figure, labels):
    """What stands in the figure's legend, but for the runs, which the page has once for all."""
    found = []
    for legend in figure.legends:
        handles = getattr(legend, "legend_handles", None) or legend.legendHandles
        for handle, text in zip(handles, legend.get_texts()):
            words = text.get_text().replace("\n", " ")
            if words not in labels:
                shade = handle.get_facecolor() if hasattr(handle, "get_facecolor") else (
                    handle.get_color())
                found.append({"color": _color(shade), "text": _text(words)})
    return found


def _constant(panel):
    """The one height of all lines of a panel, as a tuple; () where there are several, or none."""
    if "heat" in panel or panel["bars"]:
        return ()
    along = "x" if panel.get("rows") else "y"
    known = {v for line in panel["lines"] for v in line[along] if v is not None}
    return tuple(known) if len(known) == 1 else ()


def _is_flat(panel):
    """Whether a panel shows one value of each run, or none: a sentence says as much."""
    if "heat" in panel:
        known = {i for row in panel["heat"]["index"] for i in row if i >= 0}
        return len(known) <= 1 and not panel["lines"]
    if panel["bars"]:
        return False
    values, along = {}, "x" if panel.get("rows") else "y"
    for line in panel["lines"]:
        values.setdefault(line["run"], set()).update(v for v in line[along] if v is not None)
    return all(len(known) <= 1 for known in values.values())


def _said(panel):
    """A panel of one value as a sentence."""
    value, axis = _constant(panel)[0], panel["x" if panel.get("rows") else "y"]
    words = style.power(2.0 ** value) if axis.get("power") else style.digits(float(value), 4)
    return f"{panel['title']}: {words} all the time."


def of(picture, labels):
    """A picture as the script draws it: a map with `panels`, or without where it says no more than
    its `sentence`. `labels`: the runs' labels in the order of their colors."""
    figure = picture.figure
    found = pointer.areas(figure)
    axes = [ax for ax in figure.axes if ax.axison and ax.get_label() != "<colorbar>"]
    meshes = [one for ax in axes for one in ax.collections if isinstance(one, QuadMesh)]
    scale = _Scale(figure, meshes)
    panels = [_panel(ax, scale, found, labels) for ax in axes]
    data = {"name": picture.name, "alt": picture.alt, "sentence": picture.sentence, "notes": []}
    if all(map(_is_flat, panels)):
        return data
    drawn = []
    for panel in panels:
        if _constant(panel) and not panel["run"]:
            data["notes"].append(_said(panel))
        else:
            drawn.append(panel)
    data.update(panels=drawn, legend=_legend(figure, labels), words=scale.words,
                levels=scale.levels, colors=scale.colors, bar=scale.bar)
    if figure._suptitle is not None:
        data["title"] = _text(figure._suptitle.get_text())
    return data
