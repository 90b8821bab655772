"""Pictures with predictions, as `ada-train evaluate --predictions FOLDER` writes them."""
import base64
import html
import os

from ada_train.report.names import escaped
from ada_train.run_files import visible

MOST_PICTURES = 6       # of a run
MOST_RUNS = 6           # side by side
MOST_BYTES = 4 << 20    # of a file
FOLDER = "predictions"  # of a run, where no other folder is named
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def overlays(folder):
    """name -> path of the pictures in `folder`/overlays, or in `folder` itself."""
    for place in (os.path.join(folder, "overlays"), folder):
        if os.path.isdir(place):
            found = {name: os.path.join(place, name) for name in sorted(os.listdir(place))
                     if name.lower().endswith(".png")}
            if found:
                return found
    return {}


def _spread(names):
    """At most MOST_PICTURES of the names, evenly."""
    count = min(MOST_PICTURES, len(names))
    return [names[i * len(names) // count] for i in range(count)]


def _image(path):
    """The file as an image of the page, or why it is none."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return f"<i>larger than {MOST_BYTES >> 20} MiB</i>"
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        return f"<i>{html.escape(str(error.strerror))}</i>"
    if not data.startswith(SIGNATURE):
        return "<i>no PNG</i>"
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(data).decode("ascii")}">'


def gallery(runs, folders):
    """Rows of pictures, a column a run; of several runs those that all have. `folders`: those of
    the runs, in their order; None: each run's own. Returns HTML; "" where there are none."""
    places = folders or [os.path.join(run.folder, FOLDER) for run in runs]
    columns = [(run, found) for run, found in zip(runs, map(overlays, places)) if found][:MOST_RUNS]
    if not columns:
        return ""
    names = [name for name in columns[0][1] if all(name in found for _, found in columns)]
    if not names:
        return '<p class="absent">No picture has the same name in all runs.</p>'
    head = "".join(f"<th>{escaped(visible(run.label))}</th>" for run, _ in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_image(found[name])}<br>{escaped(visible(name))}</td>"
                         for _, found in columns) + "</tr>" for name in _spread(names))
    return (f'<div class="wide"><table class="gallery"><thead><tr>{head}</tr></thead><tbody>{body}'
            "</tbody></table></div>")
