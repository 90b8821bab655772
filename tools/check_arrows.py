#!/usr/bin/python3
"""Checks that the includes in src/ follow the arrows of the design: folders depend in one
direction, and each foreign library is known to one folder only.

usage: tools/check_arrows.py [SOURCE_FOLDER]    (default: src of this tree)
       tools/check_arrows.py --diagram          prints the diagram
Prints one line per violation, file:line, and exits 1 if there are any.
"""
import pathlib
import re
import signal
import sys
import textwrap

# What every folder may include.
BASE = ["error.h", "number", "io"]
# What a folder may include besides itself and BASE: a whole folder or one header (a glob). The
# longest entry that contains a file is its folder. CMakeLists.txt links the same arrows.
ARROWS = {
    "error.h": [],
    "number": [],
    "io": [],
    "scaling/rules": [],
    "scaling/policies": ["scaling/rules"],
    "vision": [],
    "parallel": [],
    "parallel/mpi": ["parallel"],
    "data": ["vision", "data/images/kernels"],
    "data/images/kernels": [],
    "layers": ["scaling/rules", "backend/*.h"],
    "config": ["scaling", "data/catalog.h", "data/settings.h", "layers", "backend/update.h",
               "optim/schedule.h"],
    "telemetry": ["scaling"],
    "backend": ["scaling/rules", "parallel/communicator.h"],
    "backend/values": ["scaling/rules", "backend/*.h"],
    "backend/cpu/kernels": ["scaling/rules", "backend/*.h", "backend/values", "backend/cpu/*.h"],
    "backend/cpu/rounding": ["scaling/rules", "backend/*.h", "backend/cpu/*.h"],
    "backend/cpu/matmul/kernels": ["scaling/rules", "backend/*.h", "backend/cpu/*.h",
                                   "backend/cpu/kernels", "backend/cpu/matmul/matmul_kernels.h"],
    "backend/cpu/matmul": ["scaling/rules", "backend/*.h", "backend/cpu/*.h",
                           "backend/cpu/rounding", "backend/cpu/matmul/kernels"],
    "backend/cpu": ["scaling/rules", "backend/*.h", "backend/values", "backend/cpu/rounding",
                    "backend/cpu/matmul"],
    "backend/cuda": ["scaling/rules", "backend/*.h", "backend/values", "vision/image_placement.h"],
    "backend/compare": ["scaling/rules", "backend/*.h"],
    "graph": ["vision", "config/model_config.h", "config/precision_config.h", "scaling", "backend/*.h", "layers",
              "parallel/communicator.h"],
    "optim": ["backend/*.h"],
    "judge": ["config", "scaling", "backend/*.h", "layers", "graph/network", "telemetry"],
    "step": ["config", "data", "scaling", "backend/*.h", "graph", "optim", "telemetry", "parallel"],
    "record": ["config", "scaling", "backend/*.h", "graph", "optim", "telemetry", "parallel",
               "judge", "step"],
    "run": ["vision", "config", "data", "scaling", "backend", "graph", "optim", "telemetry",
            "parallel", "judge", "step", "record"],
    "study": ["vision", "config", "scaling", "backend", "telemetry", "run", "step", "optim",
              "judge",
              "data/images", "data/detection"],
    "c_api": ["scaling", "config"],
    "cli": ["config", "telemetry", "run", "step", "study", "parallel"],
    "main.cpp": ["cli", "parallel"],
}
# Of BASE, what its own folders may include.
BASE_ARROWS = {"error.h": [], "number": ["error.h"], "io": ["error.h", "number"],
               "data/images/kernels": []}

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


def arrows_of(folder):
    """What a folder may include, BASE among it."""
    return BASE_ARROWS.get(folder, BASE) + ARROWS[folder]


def allowed(folder, target):
    """Whether a file of `folder` may include the project's header `target`."""
    target_folder = folder_of(target)
    if target_folder is None:
        return False
    if target_folder == folder:
        return True
    parts = pathlib.PurePosixPath(target)
    for arrow in arrows_of(folder):
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
        arrows = ", ".join(arrows_of(folder)) or "nothing"
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
    """The arrows as lines of text, the folder that includes most first; what all may include is
    left out."""
    lines, width = [], max(map(len, ARROWS))
    for folder, arrows in reversed(ARROWS.items()):
        own = BASE_ARROWS.get(folder, [] if arrows else BASE) + arrows
        lines += textwrap.wrap(", ".join(own) or "nothing", 100,
                               initial_indent=f"{folder:<{width}} -> ",
                               subsequent_indent=" " * (width + 4), break_on_hyphens=False)
    return lines


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
    for message in violations:
        print(message)
    return 1 if violations else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`: nobody reads on
    sys.exit(main())
