#!/usr/bin/python3
"""The folder that --out names, for all parts of a sweep: as ada-train reads its key `output`, so
that its own files and those of its runs lie in one place.

usage: folder.py OPTION PATH    the folder on stdout, ended by a NUL; no slash at its end
A leading `~` is the home folder, ${VAR} the environment's variable. Exit 2: the message says what
is wrong. What comes out means itself, to ada-train as well, however often it is read.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import whole_file  # noqa: E402


class FolderError(Exception):
    """The path names no folder."""


def expanded(path):
    """What src/config/sections/section_root.cpp makes of a path."""
    begin, rest = "", path
    if path == "~" or path.startswith("~/"):
        if "HOME" not in os.environ:
            raise FolderError("`~` cannot be expanded: HOME is not set")
        begin, rest = os.environ["HOME"], path[1:]
    # The text before the first ${, then the text after each.
    first, *others = rest.split("${")
    result = begin + first
    for other in others:
        name, brace, text = other.partition("}")
        if not brace:
            raise FolderError("`${` without its `}`")
        if name not in os.environ:
            raise FolderError(f"the environment variable '{name}' is not set")
        result += os.environ[name] + text
    if not result:
        raise FolderError("expands to nothing; expected a path")
    return result


def folder(path):
    """The folder in words that are not expanded once more, and that are no option."""
    result = expanded(path)
    if "${" in result:
        raise FolderError(f"expands to {result}, in which ada-train would expand ${{ once more; "
                          "expected a folder without")
    result = re.sub(r"(?<=.)/+\Z", "", result)
    return "./" + result if result[0] in "-~" else result


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    option, path = sys.argv[1:]
    try:
        place = folder(path)
        run = None
        if option == "--out":
            run = place if whole_file.is_run(place) else whole_file.keeper(place)
        if run is not None:
            raise FolderError(f"belongs to the run in {run}, which alone writes there; expected "
                              "another folder")
        sys.stdout.buffer.write(os.fsencode(place) + b"\0")
    except FolderError as error:
        print(f"sweep.sh: {option} {path}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
