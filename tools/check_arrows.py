#!/usr/bin/python3
"""Checks that the includes in src/ follow the arrows of the design: folders depend in one
direction, and each foreign library is known to one folder only. Where the source folder has a
README.md with a diagram of the arrows, that is to be the one that this program prints.

usage: tools/check_arrows.py [SOURCE_FOLDER]    (default: src of this tree)
       tools/check_arrows.py --diagram          prints the diagram
Prints one line per violation, file:line, and exits 1 if there are any.
"""
import pathlib
import re
import sys
import textwrap

# What a folder may include besides itself: a whole folder or one header (a glob). The longest entry
# that contains a file is its folder. CMakeLists.txt links the same arrows.
ARROWS = {
    "core": [],
    "scaling/rules": ["core"],
    "scaling/policies": ["core", "scaling/rules"],
    "vision": ["core"],
    "parallel": ["core"],
    "parallel/mpi": ["core", "parallel"],
    "data": ["core", "vision", "data/images/kernels"],
    "data/images/kernels": [],
    "graph/layers": ["core", "scaling/rules", "backend/*.h"],
    "config": ["core", "scaling", "data/catalog.h", "data/settings.h", "graph/layers",
               "backend/update.h", "optim/schedule.h"],
    "telemetry": ["core", "scaling"],
    "backend": ["core", "scaling/rules", "parallel/communicator.h"],
    "backend/values": ["core", "scaling/rules", "backend/*.h"],
    "backend/cpu/kernels": ["core", "scaling/rules", "backend/*.h", "backend/values",
                            "backend/cpu/*.h"],
    "backend/cpu/rounding": ["core", "scaling/rules", "backend/*.h", "backend/cpu/*.h"],
    "backend/cpu/matmul/kernels": ["core", "scaling/rules", "backend/*.h", "backend/cpu/*.h",
                                   "backend/cpu/kernels", "backend/cpu/matmul/matmul_kernels.h"],
    "backend/cpu/matmul": ["core", "scaling/rules", "backend/*.h", "backend/cpu/*.h",
                           "backend/cpu/rounding", "backend/cpu/matmul/kernels"],
    "backend/cpu": ["core", "scaling/rules", "backend/*.h", "backend/values", "backend/cpu/rounding",
                    "backend/cpu/matmul"],
    "backend/cuda": ["core", "scaling/rules", "backend/*.h", "backend/values"],
    "backend/compare": ["core", "scaling/rules", "backend/*.h"],
    "graph": ["core", "vision", "config/config.h", "scaling", "backend/*.h", "graph/layers",
              "parallel/communicator.h"],
    "optim": ["core", "backend/*.h"],
    "what_if": ["core", "config", "scaling", "graph/layers", "graph/network", "telemetry"],
    "train": ["core", "vision", "config", "data", "scaling", "backend", "graph", "optim", "telemetry", "what_if",
              "parallel"],
    "study": ["core", "vision", "config", "scaling", "backend", "telemetry", "train", "optim", "what_if",
              "data/images", "data/detection"],
    "c_api": ["core", "scaling", "config"],
    "cli": ["core", "config", "telemetry", "train", "study", "parallel"],
    "main.cpp": ["core", "cli", "parallel"],
}

# Foreign headers and the only folders, with the folders within them, that may know them.
LIBRARIES = {
    r"yaml-cpp/": "config",
    r"(oneapi/dnnl|dnnl)": "backend/cpu",
    r"[a-z0-9]*(mm|x86|avx\w*|amx\w*)intrin\.h$": ("backend/cpu", "data/images/kernels"),
    r"(cpuid\.h|omp\.h)$": "backend/cpu",
    r"(cu(da|dnn|blas|rand|pti)\w*(\.h|/)|nvrtc\.h|nccl\.h)": "backend/cuda",
    r"mpi\.h$": "parallel/mpi",
    r"spdlog/": "telemetry",
    r"CLI/": "cli",
    r"zlib\.h$": "data",
    r"(jpeglib|jerror|jmorecfg|turbojpeg)\.h$": "data",
    r"png(conf)?\.h$": "data",
    r"webp/": "data",
    r"pugi(xml|config)\.hpp$": "data",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path):
    """The folder of a path relative to the source folder, or None where it lies in none."""
    folders = [folder for folder in ARROWS if path == folder or path.startswith(folder + "/")]
    return max(folders, key=len, default=None)


def allowed(folder, target):
    """Whether a file of `folder` may include the project's header `target`."""
    target_folder = folder_of(target)
    if target_folder is None:
        return False
    if target_folder == folder:
        return True
    parts = pathlib.PurePosixPath(target)
    for arrow in ARROWS[folder]:
        if "*" in arrow or arrow.endswith(".h"):
            if parts.match(arrow) and len(parts.parts) == arrow.count("/") + 1:
                return True
        elif target.startswith(arrow + "/"):
            return True
    return False


def violation(folder, bracket, target):
    """What is wrong with one include, or None."""
    if bracket == "<":
        for pattern, owner in LIBRARIES.items():
            owners = (owner,) if isinstance(owner, str) else owner
            if re.match(pattern, target) and not any(
                    (folder + "/").startswith(owner + "/") for owner in owners):
                return f"<{target}> is for {' and '.join(owners)} only"
        if folder_of(target) is not None:
            return f"<{target}> is ours: write \"{target}\""
        return None
    if target.startswith(".") or folder_of(target) is None:
        return f"\"{target}\": write \"folder/file.h\", from src/"
    if not allowed(folder, target):
        arrows = ", ".join(ARROWS[folder]) or "nothing"
        return f"{folder} must not include \"{target}\" (it may include: {arrows})"
    return None


def check_file(source, path):
    """Yields 'file:line: message' for each violation in one file."""
    relative = path.relative_to(source).as_posix()
    folder = folder_of(relative)
    if folder is None:
        yield f"{path}:1: lies in no folder of the design"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            wrong = violation(folder, include.group(1), include.group(2))
            if wrong:
                yield f"{path}:{number}: {wrong}"


def check_tree(source):
    """All violations below `source`, in the order of the paths."""
    files = sorted(p for p in source.rglob("*") if p.suffix in {".cpp", ".h", ".cu", ".cuh", ".inc"})
    return [message for path in files for message in check_file(source, path)]


def diagram():
    """The arrows as lines of text, the folder that includes most first; core is left out, since all
    folders may include it."""
    lines, width = [], max(map(len, ARROWS))
    for folder, arrows in reversed(ARROWS.items()):
        others = ", ".join(arrow for arrow in arrows if arrow != "core") or (
            "core" if arrows else "nothing")
        lines += textwrap.wrap(others, 100, initial_indent=f"{folder:<{width}} -> ",
                               subsequent_indent=" " * (width + 4), break_on_hyphens=False)
    return lines


def check_diagram(page):
    """Yields what is wrong with the diagram of a page: a block of code whose first line has an
    arrow from main.cpp."""
    blocks = re.findall(r"^```\n(main\.cpp +-> .*?)\n```$", page.read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    if blocks != ["\n".join(diagram())]:
        yield f"{page}: its diagram is not what tools/check_arrows.py --diagram prints"


def main():
    if sys.argv[1:] == ["--diagram"]:
        print(*diagram(), sep="\n")
        return 0
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    source = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else
                          pathlib.Path(__file__).resolve().parent.parent / "src")
    if not source.is_dir():
        print(f"check_arrows.py: {source} is no folder", file=sys.stderr)
        return 2
    violations = check_tree(source)
    if (source / "README.md").is_file():
        violations += check_diagram(source / "README.md")
    for message in violations:
        print(message)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
