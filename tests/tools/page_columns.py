"""The columns of a run's CSV files as src/telemetry/README.md has them."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def documented():
    """{file: {column: type}} as src/telemetry/README.md has them."""
    files = {}
    for line in (ROOT / "src/telemetry/README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):  # sections that are no file's are left out
            name = line[3:]
            columns = files.setdefault(name.removesuffix(".csv"), {}) if name.endswith(".csv") else {}
        cells = [cell.strip() for cell in line.split("|")]
        names = re.findall("`([^`]+)`", cells[1]) if len(cells) > 4 else []
        if names and cells[2] in {"integer", "flag", "number", "scale", "text"}:
            columns.update(dict.fromkeys(names, cells[2]))
        elif len(names) == 2 and not cells[2]:  # from one column of another file to a later one
            other = files[re.search("`(.+)[.]csv`", cells[3]).group(1)]
            between = list(other)
            between = between[between.index(names[0]):between.index(names[1]) + 1]
            columns.update({name: other[name] for name in between})
    return files
