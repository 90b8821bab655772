#!/usr/bin/python3
"""How many files know one layer kind, policy, number format, data set or CSV column: what adding
another one takes. For each of them an example of this tree is looked for, by the names that it
alone has; README.md in src/ has the number of files of each.

usage: tools/change_files.py
"""
import pathlib
import re
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = {".cpp", ".h"}

# What is added, an example, and a pattern of the example's own names.
CHANGES = (
    ("layer, elementwise", "hardswish", r"\b(hardswish|Hardswish|HardswishSpec)\b"),
    ("layer with a spec of its own", "dropout",
     r"\b(DropoutSpec|DropoutSpecOf|\w*Dropout(Op|Value)?|MakeDropout)\b"),
    ("layer with kernels", "layer_norm", r"\b(LayerNormSpec|\w*LayerNorm)\b"),
    ("policy", "histogram", r"\b(\w*HistogramPolicy|HistogramParameters|MakeHistogram\w*)\b"),
    ("name of a number format", "cb16", r"\b(kCb16|cb16)\b"),
    ("data set", "fashion_mnist", r"\bfashion_mnist\b"),
    ("CSV column", "sqnr_db", r"\bsqnr_db\b"),
)


def code_of(path):
    """The text of a file without the lines that are C++ comments."""
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


def files_with(pattern, folder, kinds):
    """The files below `folder` in whose code the pattern occurs, by their paths from the root."""
    found = []
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in kinds and path.is_file() and re.search(pattern, code_of(path)):
            found.append(path.relative_to(ROOT).as_posix())
    return found


def main():
    """Prints the table as Markdown."""
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    print("| what | example | files of src | which | files of tests |\n|---|---|---|---|---|")
    for what, example, pattern in CHANGES:
        source = files_with(pattern, "src", CODE)
        tests = files_with(pattern, "tests", CODE | {".py"})
        names = ", ".join(f"`{path.removeprefix('src/')}`" for path in source)
        print(f"| {what} | {example} | {len(source)} | {names} | {len(tests)} |")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`: nobody reads on
    sys.exit(main())
