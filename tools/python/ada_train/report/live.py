"""The page whose pictures a script draws with Plotly: runs can be switched off, layers filtered and
sorted, curves smoothed and zoomed. It holds the library and all data, packed, and loads nothing."""
import base64
import gzip
import html
import json
import pathlib

from ada_train.report import layers, names, page, style, traces
from ada_train.report.pictures_operands import OPERANDS

SCRIPT = pathlib.Path(__file__).with_name("page.js")
INSTALL = ("Plotly is missing ({}): apt-get install python3-plotly (tools/setup.sh does), or pip "
           "install plotly; --static draws still pictures without it")
CSS = """
#bar { position: sticky; top: 0; z-index: 5; background: #fff; border-bottom: 1px solid #d5d9de;
       padding: 6px 0; font-size: 13.5px; display: flex; flex-wrap: wrap; gap: 4px 18px; }
#bar label { white-space: nowrap; }
#bar label.run { white-space: normal; overflow-wrap: anywhere; }
#bar details { flex-basis: 100%; }
#bar input[type=text] { width: 15ch; }
#bar input[type=range] { width: 90px; vertical-align: middle; }
h2, figure { scroll-margin-top: 64px; }
.picture { min-height: 120px; max-width: 100%; overflow: hidden; }
.picture.none { min-height: 0; color: #66707a; }
.nothing { border-left: 3px solid #d5d9de; padding: 2px 0 2px 12px; overflow-wrap: anywhere; }
.legend { font-size: 12.5px; margin: 0; padding: 0; list-style: none; }
.legend li { display: inline-block; margin-right: 16px; }
#trouble { color: #a00; }
"""
MOST_TICKS = 6  # runs that the bar at the top has unfolded


class MissingLibrary(Exception):
    """Plotly cannot be used; the message says what to install."""


def library():
    """(the source of plotly.js, its version), of Debian's package or PyPI's. Raises MissingLibrary.
    """
    try:
        from plotly.offline import get_plotlyjs, get_plotlyjs_version
        return get_plotlyjs(), get_plotlyjs_version()
    except (ImportError, OSError) as error:
        raise MissingLibrary(INSTALL.format(error)) from error


def _packed(text):
    """Text as base64 of gzip, which a page may hold as it is."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


def worst_first(runs, tensor):
    """The layers by the largest share that a run loses of their tensor or an operand, on the mean;
    where nothing is lost by the signal over noise of their operands; else in network order."""
    order, share, noise = layers.common_order(runs), {}, {}
    for run in runs:
        table = run.underflow
        known = table["tensor"].isin(OPERANDS).to_numpy()
        for rows in (layers.of_tensor(table, tensor), table[known]):
            for name, part in rows.groupby("tensor", observed=True):
                for layer, mean, _, _ in layers.per_layer(part, "underflow_pct_nonzero"):
                    share[layer] = max(share.get(layer, 0), mean)
        means = run.blocks.groupby(["layer", "tensor"], observed=True)["sqnr_db"].mean().dropna()
        for (layer, _), value in means.items():
            noise[layer] = min(noise.get(layer, value), value)
    return sorted(order, key=lambda layer: (-share.get(layer, 0), noise.get(layer, float("inf"))))


def _figure(picture, data, folder):
    if folder:
        page.write_png(picture, folder)
    found = traces.of(picture, data["runs"])
    data["pictures"].append(found)
    sentence = page.said(picture) + "".join("<br>" + names.escaped(note)
                                            for note in found.pop("notes"))
    if "panels" not in found:
        return f'<p class="nothing" id="picture-{picture.name}">{sentence}</p>'
    legend = "".join(f'<li><span class="chip" style="background:{one["color"]}"></span>'
                     f'{names.escaped(one["text"])}</li>' for one in found.pop("legend"))
    title = f"<b>{names.escaped(found['title'])}</b>" if "title" in found else ""
    return (f'<figure id="picture-{picture.name}">{title}'
            + (f'<ul class="legend">{legend}</ul>' if legend else "")
            + f'<div class="picture" data-picture="{picture.name}" role="img" '
              f'aria-label="{html.escape(picture.alt)}"></div>'
              f"<figcaption>{sentence}</figcaption></figure>")


def content(title, chosen, sections, tensor, folder=None):
    """(HTML of heading and sections, data for the script as JSON)."""
    data = {"runs": [run.label for run in chosen.drawn], "pictures": [],
            "worst": worst_first(chosen.drawn, tensor)}
    text = page.body(title, chosen.drawn, sections, lambda picture: _figure(picture, data, folder))
    return text, json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def bar(runs):
    """What is chosen at the top: runs, layers, their order, smoothing."""
    ticks = "".join(
        f'<label class="run"><input type="checkbox" name="run" checked value="{html.escape(run)}">'
        f'<span class="chip" style="background:{style.color(i)}"></span>{names.escaped(run)}'
        "</label> " for i, run in enumerate(runs))
    if len(runs) < 2:
        ticks = ""
    elif len(runs) > MOST_TICKS:
        ticks = f"<details><summary>{len(runs)} runs</summary>{ticks}</details>"
    return ('<div id="bar">' + ticks +
            '<label>layers <input type="text" id="layers" placeholder="all; fc, conv1" '
            'title="parts of names, with commas between them"></label>'
            '<label>order <select id="order"><option value="worst">worst first</option>'
            '<option value="network">network</option></select></label>'
            '<label>smooth <input type="range" id="smooth" min="0" max="40" value="10"></label>'
            '<span id="fresh"></span><span id="trouble" role="alert"></span></div>')


def footer(version):
    return (page.FOOTER + f" Drag to zoom, double-click to return. Drawn with plotly.js {version} "
            "(MIT license).</footer>")


def whole(title, chosen, sections, tensor, folder):
    """The page. Raises MissingLibrary."""
    source, version = library()
    text, data = content(title, chosen, sections, tensor, folder)
    packed = "".join(f'<script type="text/plain" id="{name}">{_packed(part)}</script>'
                     for name, part in (("plotly", source), ("data", data)))
    return page.whole(title, f'{bar([run.label for run in chosen.drawn])}<main id="content">{text}</main>'
                      + footer(version) + packed + f"<script>{SCRIPT.read_text('utf-8')}</script>",
                      CSS)
