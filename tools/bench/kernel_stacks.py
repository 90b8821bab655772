#!/usr/bin/env python3
"""Which kernels keep values in memory of a thread's own, a stack or spilled registers: it costs a
kernel that rounds a multiple of what memory would allow. Compiles sources of src/backend/cuda for
one GPU by nvcc (half a minute each) and reads what ptxas says; needs no GPU.

Exit status: 1: a kernel that does not count has a stack; 2: nvcc failed; 77: there is no nvcc.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import machine
import markdown
from turns import parser_of

FOLDER = machine.ROOT / "src" / "backend" / "cuda"
FRONTEND = machine.ROOT / "build-cudnn-frontend" / "include"
# As src/backend/cuda/CMakeLists.txt has them.
OPTIONS = ["-x", "cu", "-std=c++20", "-O2", "-fmad=false", "--expt-relaxed-constexpr", "-cubin",
           "-o", os.devnull, "-Xptxas", "-v"]
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '\S+'\n.*?\n\s+(\d+) bytes stack frame, "
                   r"(\d+) bytes spill stores, (\d+) bytes spill loads\n.*?Used (\d+) registers")
# Kernels of logged steps and of rare ones, by themselves.
COUNTING = re.compile(r"StatsLevel\)3|^(Count\w*|BranchRepair|BranchSumPart)Kernel")


def kernels_of(text):
    """(name, bytes of stack, spilled bytes, registers) of each entry in ptxas's words."""
    found = [match.groups() for match in ENTRY.finditer(text)]
    names = subprocess.run(["c++filt"], input="\n".join(entry[0] for entry in found), text=True,
                           capture_output=True, check=True).stdout.splitlines()
    return [(short(name), int(entry[1]), int(entry[2]) + int(entry[3]), int(entry[4]))
            for name, entry in zip(names, found)]


def short(name):
    """The kernel of Entry<Kernel>(Kernel, ...), without the backend's namespace."""
    name = name.replace("ada::backend::cuda::", "").replace("(anonymous namespace)::", "")
    match = re.match(r"void Entry<(.*?) ?>\(", name)
    return match[1] if match else name


def compiled(nvcc, arch, source):
    command = [nvcc, f"-arch=sm_{arch}", *OPTIONS, "-I", str(machine.ROOT / "src"), "-I",
               str(FRONTEND), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{source}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout + done.stderr


def main(words):
    parser = parser_of(__doc__)
    parser.add_argument("sources", nargs="*", type=pathlib.Path, metavar="SOURCE.cpp",
                        help="default: all in src/backend/cuda but those of device/, minutes")
    parser.add_argument("--arch", default="90")
    parser.add_argument("--all", action="store_true",
                        help="also kernels without a stack, with their registers")
    options = parser.parse_args(words)
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if nvcc is None:
        print("[skipped] kernel_stacks.py: there is no nvcc")
        return 77
    sources = options.sources or sorted(
        path for path in FOLDER.rglob("*.cpp")
        if path.parent.name != "device" and path.name != "absent.cpp")
    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            texts = list(pool.map(lambda source: compiled(nvcc, options.arch, source), sources))
    except RuntimeError as error:
        print(f"kernel_stacks.py: {error}", file=sys.stderr)
        return 2
    kernels = sorted({kernel for text in texts for kernel in kernels_of(text)})
    held = [kernel for kernel in kernels if kernel[1] > 0]
    hot = [kernel for kernel in held if not COUNTING.search(kernel[0])]
    rows = [[kernel[0], str(kernel[1]), str(kernel[2]), str(kernel[3]), "yes" if kernel in hot else ""]
            for kernel in (kernels if options.all else held)]
    print(markdown.table(["kernel", "bytes of stack", "spilled", "registers", "hot"], rows))
    print(f"\n{len(kernels)} kernels; {len(held)} have a stack, {len(hot)} of them in steps that "
          "are not logged.")
    return 1 if hot else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`: nobody reads on
    sys.exit(main(sys.argv[1:]))
