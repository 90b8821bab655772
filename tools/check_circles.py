#!/usr/bin/python3
"""Checks that includes make no circle at any floor of src/: in each folder, its subfolders and its
files (a header with its source is one) include each other in one direction only.

usage: tools/check_circles.py [SOURCE_FOLDER]    (default: src of this tree)
Prints one line per circle that is not among KNOWN, and per entry of KNOWN that is no longer there,
and exits 1 if there are any. KNOWN may only shrink.
"""
import pathlib
import re
import sys

# Circles that are still there: the folder, and what in it goes round.
KNOWN = set()

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SUFFIXES = {".cpp", ".h", ".cu", ".cuh", ".inc"}


def unit(parts, depth):
    """What a file is called among the entries of the folder `depth` levels down: the subfolder that
    it lies in, or itself. A header NAME_inline.h holds the definitions of NAME.h."""
    if len(parts) - 1 > depth:
        return parts[depth] + "/"
    name = pathlib.PurePosixPath(parts[-1]).stem
    return name.removesuffix("_inline")


def edges_of(source):
    """By folder: the pairs (unit, unit that it includes)."""
    files = {path.relative_to(source).as_posix(): path for path in source.rglob("*")
             if path.suffix in SUFFIXES}
    edges = {}
    for name, path in files.items():
        for target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if target not in files:
                continue
            one, other = name.split("/"), target.split("/")
            depth = 0
            while depth < min(len(one), len(other)) - 1 and one[depth] == other[depth]:
                depth += 1
            pair = unit(one, depth), unit(other, depth)
            if depth > 0 and pair[0] != pair[1]:  # arrows between top folders: check_arrows.py
                edges.setdefault("/".join(one[:depth]), set()).add(pair)
    return edges


def circles_of(pairs):
    """The sets of units that reach each other, of more than one unit each."""
    after = {}
    for one, other in pairs:
        after.setdefault(one, set()).add(other)
        after.setdefault(other, set())

    def reached(start):
        seen, waiting = set(), [start]
        while waiting:
            for other in after[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reach = {one: reached(one) for one in after}
    return {frozenset(other for other in after if other in reach[one] and one in reach[other])
            for one in after if one in reach[one]}


def found(source):
    """Circles as KNOWN has them."""
    return {(folder, " ".join(sorted(name.rstrip("/") for name in circle)))
            for folder, pairs in edges_of(source).items() for circle in circles_of(pairs)}


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    here = pathlib.Path(__file__).resolve().parent.parent / "src"
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else here
    if not source.is_dir():
        print(f"check_circles.py: {source} is no folder", file=sys.stderr)
        return 2
    known = KNOWN if source.resolve() == here else set()
    there = found(source)
    for folder, names in sorted(there - known):
        print(f"{folder}: {names} include each other in a circle")
    for folder, names in sorted(known - there):
        print(f"tools/check_circles.py: KNOWN has {folder}: {names}, which is no circle any more")
    return 1 if there != known else 0


if __name__ == "__main__":
    sys.exit(main())
