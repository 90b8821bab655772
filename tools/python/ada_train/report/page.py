"""Sections as one HTML page that needs nothing but itself, with still pictures, and pictures as files.
live.py makes the page whose pictures a script draws."""
import base64
import dataclasses
import html
import io
import os

from ada_train.report import names, pointer, style

CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1b1f24;
       margin: 0 auto; max-width: 1140px; padding: 20px 28px 60px; background: #fff; }
h1 { font-size: 26px; margin: 8px 0 2px; }
h2 { font-size: 20px; margin: 40px 0 4px; padding-top: 12px; border-top: 1px solid #d5d9de; }
p { margin: 6px 0 10px; max-width: 100ch; }
p.how { color: #4a5560; }
nav { margin: 10px 0 0; font-size: 14px; }
nav a { margin-right: 10px; }
a { color: #0058a3; }
figure { margin: 10px 0 20px; }
figure img { width: 100%; height: auto; display: block; }
.zoom { display: block; position: relative; cursor: zoom-in; }
.zoom input { position: absolute; opacity: 0; }
.zoom:has(input:checked) { width: max-content; cursor: zoom-out; }
.zoom input:checked + img { width: auto; max-width: none; }
.zoom input:focus-visible + img { outline: 2px solid #0058a3; }
.zoom svg { position: absolute; left: 0; top: 0; width: 100%; height: 100%; }
.zoom rect { fill: none; pointer-events: all; }
.zoom rect:hover { stroke: #1b1f24; stroke-width: 0.8; }
h1, h2, p, li, code, summary { overflow-wrap: anywhere; }
figcaption { border-left: 3px solid #0072b2; padding: 2px 0 2px 12px; margin-top: 6px;
             overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; margin: 8px 0 14px; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid #e4e7ea;
         vertical-align: top; }
td.long { min-width: 26ch; overflow-wrap: anywhere; }
.short { white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
th { border-bottom: 2px solid #aab2ba; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.n { text-align: right; }
pre { background: #f5f6f8; padding: 10px 14px; font-size: 12.5px; overflow-x: auto; }
code { font-size: 13.5px; }
details { margin: 6px 0; }
summary { cursor: pointer; color: #0058a3; }
.absent { color: #6a4a00; background: #fdf5e2; padding: 6px 12px; border-radius: 4px; }
.notes { color: #6a4a00; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 7px; }
.gallery td { white-space: normal; font-size: 12px; color: #4a5560; }
.gallery img { width: 100%; max-width: 520px; height: auto; display: block; }
footer { margin-top: 40px; color: #66707a; font-size: 13px; }
@media (max-width: 640px) {
  body { padding: 12px 14px 40px; }
  h1 { font-size: 21px; }
  ul { padding-left: 22px; }
  td.long { min-width: 16ch; }
}
"""
FOOTER = ("<footer>Made by ada-train report. All axes and colors are the same for all runs of a "
          "picture; values are under the pointer.")
LONG = 40  # rows from which on a table is folded


@dataclasses.dataclass
class Section:
    anchor: str
    title: str
    how: str                     # how to read it
    pictures: list = dataclasses.field(default_factory=list)
    tables: list = dataclasses.field(default_factory=list)  # (summary or "", header, rows)
    extra: str = ""              # more HTML


def png(picture):
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png", dpi=style.DPI)
    return buffer.getvalue()


def _is_number(text):
    text = str(text).replace(",", "").split(" (")[0].split(" ± ")[0]
    try:
        float(text)
        return True
    except ValueError:
        return text in ("–", "…", "")


def _cell(tag, value, number, chips):
    """A cell; before a run's name, or a word that has a color, a chip of its color."""
    color = getattr(value, "color", None) or (
        chips.get(value) if isinstance(value, names.RunName) else None)
    chip = f'<span class="chip" style="background:{color}"></span>' if color else ""
    kind = ' class="n"' if number else ""
    if isinstance(value, names.RunName):
        kind = ' class="long"' if len(value) > names.LONG else ' class="short"'
    return f"<{tag}{kind}>{chip}{names.escaped(value)}</{tag}>"


def table(summary, header, rows, chips):
    """A table; columns of numbers to the right. `chips`: the runs' colors by their names."""
    numeric = [all(_is_number(r[i]) for r in rows) and any(str(r[i]) not in "–…" for r in rows)
               for i in range(len(header))]
    head = "".join(_cell("th", h, n, chips) for h, n in zip(header, numeric))
    body = "".join(
        "<tr>" + "".join(_cell("td", v, n, chips) for v, n in zip(row, numeric)) + "</tr>"
        for row in rows)
    text = (f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
            "</div>")
    if summary or len(rows) > LONG:
        name = names.escaped(summary or f"{len(rows)} rows")
        text = f"<details><summary>{name}</summary>{text}</details>"
    return text


def write_png(picture, folder):
    """The picture as a file of `folder`, where one is given. Returns its bytes."""
    image = png(picture)
    if folder:
        with open(os.path.join(folder, picture.name + ".png"), "wb") as file:
            file.write(image)
    return image


def said(picture):
    """A picture's sentence as HTML."""
    return names.escaped(picture.sentence).replace("\n", "<br>")


def _still(picture, folder):
    image, sentence = write_png(picture, folder), said(picture)
    data = base64.b64encode(image).decode("ascii")
    # A tick box without a script: a tap opens the picture at its full size, which then scrolls.
    return (f'<figure id="picture-{picture.name}"><div class="wide"><label class="zoom">'
            f'<input type="checkbox" aria-label="full size"><img alt="{html.escape(picture.alt)}" '
            f'src="data:image/png;base64,{data}">{pointer.svg(picture.figure)}</label></div>'
            f"<figcaption>{sentence}"
            "</figcaption></figure>")


def _section(section, chips, figure):
    parts = [f'<section id="{section.anchor}"><h2>{html.escape(section.title)}</h2>',
             f'<p class="how">{names.escaped(section.how)}</p>']
    parts += [figure(picture) for picture in section.pictures]
    parts += [table(*t, chips) for t in section.tables]
    return "".join(parts) + section.extra + "</section>"


def body(title, drawn, sections, figure):
    """Heading, links and sections. `figure` makes HTML of a picture."""
    chips = {}
    for i, run in enumerate(drawn if len(drawn) > 1 else []):
        chips.update({one.label: style.color(i) for one in [run, *run.each]})
    links = " ".join(f'<a href="#{s.anchor}">{html.escape(s.title)}</a>' for s in sections)
    return (f"<h1>{names.escaped(title)}</h1><nav>{links}</nav>"
            + "".join(_section(s, chips, figure) for s in sections))


def whole(title, content, css=""):
    """The page around its content."""
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(title)}</title><style>{CSS}{css}</style></head><body>{content}"
            "</body></html>\n")


def page(title, drawn, sections, folder):
    """The whole page with still pictures; these also as PNG files in `folder` where that is given.
    """
    content = body(title, drawn, sections, lambda picture: _still(picture, folder))
    return whole(title, content + FOOTER + "</footer>")
