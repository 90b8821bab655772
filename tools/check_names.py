#!/usr/bin/python3
"""Checks that names in unnamed namespaces are unique within a folder of src/: the files of a folder
are compiled together (ADA_UNITY), where a function of one file would be an overload of another's,
which no compiler complains of.

usage: tools/check_names.py [SOURCE_FOLDER]    (default: src of this tree)
Prints one line per name that stands in several files, and exits 1 if there are any.
"""
import collections
import pathlib
import re
import sys

# Not compiled together: kernels (once per instruction set), and what nvcc compiles.
ALONE = ("backend/cpu/kernels/", "backend/cpu/matmul/kernels/", "backend/cuda/",
         "data/images/kernels/")
# Rooms below others, as CMakeLists.txt has them.
INNER = ("backend/cpu", "backend/compare")

DECLARATION = re.compile(
    r"(?:\[\[\w+\]\] )?(?:"
    r"(?:struct|class|enum class|enum) (?P<type>\w+)"
    r"|(?:constexpr|const|static) [\w:<>,&* ]*?\b(?P<constant>\w+)(?:\[\])?(?: =|\{|\[)"
    r"|[\w:<>,&* ]*?[\s&*>](?P<function>\w+)\()"
)


def folder_of(path):
    """The folder of a path relative to the source folder."""
    inner = next((folder for folder in INNER if path.startswith(folder + "/")), None)
    return inner or path.split("/")[0]


def names_of(text):
    """Names that a file declares in unnamed namespaces, by the layout that clang-format gives."""
    names, inside = set(), False
    for line in text.splitlines():
        if line == "namespace {":
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and re.match(r"[A-Za-z\[]", line):
            found = DECLARATION.match(line)
            if found:
                names.add(next(name for name in found.groups() if name))
    return names


def main():
    """Prints what is not unique; returns the exit status."""
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "src")
    files = collections.defaultdict(list)
    for path in sorted(source.rglob("*.cpp")):
        name = path.relative_to(source).as_posix()
        if not name.startswith(ALONE):
            for declared in names_of(path.read_text(encoding="utf-8")):
                files[folder_of(name), declared].append(name)
    several = {key: paths for key, paths in files.items() if len(paths) > 1}
    for (folder, name), paths in sorted(several.items()):
        print(f"{folder}: {name} stands in the unnamed namespaces of {', '.join(paths)}")
    if not files:
        print(f"{source}: no C++ files")
    return 1 if several or not files else 0


if __name__ == "__main__":
    sys.exit(main())
