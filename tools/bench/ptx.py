#!/usr/bin/env python3
"""Counts the PTX instructions of kernels, and of the loop over the values.

  tools/bench/ptx.py FILE... [--kernel REGEX] [--values N] [--arch 90]

FILE: a source of src/backend/cuda, which nvcc compiles as the build does, or PTX. --values: what a
turn of the loop makes, to divide by. A kernel without a loop counts as a whole; one with several
is counted by its largest, or with --loops by each that loads, outermost ones. The table goes to stdout as Markdown. Instructions are counted as they stand, whether or not they run: where a loop
has few branches a turn runs nearly all of them.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ["-x", "cu", "-O2", "-fmad=false", "--expt-relaxed-constexpr", "-std=c++20", "-ptx"]


class Block:
    """A run of instructions that is entered at its top alone, and the blocks that may follow it."""

    def __init__(self):
        self.size = self.branches = 0
        self.next = []
        self.loads = False

    def add(self, instruction):
        self.size += 1
        self.branches += bool(re.search(r"\b(bra|brx)\b", instruction))
        self.loads |= "ld.global" in instruction


def blocks_of(lines):
    """{label: Block} of one kernel, the first label being ""."""
    blocks, order, tables = {"": Block()}, [""], {}
    falls = True  # whether the last instruction lets the next run
    waiting = None  # the name of a table of branch targets
    for line in lines:
        line = line.strip()
        label = re.match(r"(\$[\w$]+):\s*(.*)", line)
        if label and not label[1].startswith("$L__BB"):
            waiting, line = label[1], label[2]
        elif label:
            if falls:
                blocks[order[-1]].next.append(label[1])
            blocks.setdefault(label[1], Block())
            order.append(label[1])
            falls, line = True, label[2]
        if line.startswith(".branchtargets"):
            tables[waiting] = re.findall(r"\$[\w$]+", line)
            continue
        if not line.endswith(";") or line.startswith((".", "//", "{.")):
            continue
        if not falls:  # nobody comes here but by a label
            order.append(f"after {order[-1]}")
            blocks[order[-1]] = Block()
            falls = True
        block = blocks[order[-1]]
        block.add(line)
        jump = re.search(r"\bbra(\.uni)?\s+(\$[\w$]+)", line)
        table = re.search(r"\bbrx\.idx(\.uni)?\s+%\w+,\s*(\$[\w$]+)", line)
        if jump:
            block.next.append(jump[2])
            falls = line.startswith("@")
            if falls:
                order.append(f"after {order[-1]} {len(order)}")
                blocks[order[-1]] = Block()
                block.next.append(order[-1])
        elif table:
            block.next.append(table[2])
            falls = False
        elif re.match(r"(@\S+\s+)?(ret|exit|trap)\b", line):
            falls = line.startswith("@")
    for block in blocks.values():
        block.next = [b for label in block.next for b in tables.get(label, [label]) if b in blocks]
    return blocks


def loops_of(blocks):
    """Sets of labels: the strongly connected parts that hold a way back (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(root):
        work = [(root, iter(blocks[root].next))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            label, following = work[-1]
            for after in following:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    work.append((after, iter(blocks[after].next)))
                    break
                if after in stack:
                    low[label] = min(low[label], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[label])
                if low[label] == index[label]:
                    part = set()
                    while label not in part:
                        part.add(stack.pop())
                    if len(part) > 1 or label in blocks[label].next:
                        found.append(part)

    for label in blocks:
        if label not in index:
            visit(label)
    return found


def kernels_of(text):
    """(readable name, lines) of each kernel."""
    parts = re.split(r"^\.visible \.entry |^\.entry ", text, flags=re.M)[1:]
    names = [part.split("(", 1)[0].strip() for part in parts]
    readable = subprocess.run(["c++filt"], input="\n".join(names), text=True, check=True,
                              stdout=subprocess.PIPE).stdout.splitlines()
    for name, part in zip(readable, parts):
        body = part[part.index("{") + 1:]
        yield short(name), body[:body.index("\n}")].splitlines()


def short(name):
    """The kernel's own name, without namespaces."""
    inner = re.search(r"Entry<(.*)>\(", name)
    name = inner[1] if inner else name
    return re.sub(r"\(ada::[\w:]*?(\w+)\)", "", re.sub(r"ada::(\w+::)*", "", name)).strip()


def ptx_of(path, arch):
    if path.endswith(".ptx"):
        with open(path, encoding="utf-8") as file:
            return file.read()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "kernels.ptx")
        nvcc = os.environ.get("NVCC", "nvcc")
        subprocess.run([nvcc, *FLAGS, f"-arch=compute_{arch}", "-I", os.path.join(ROOT, "src"),
                        path, "-o", out], check=True)
        with open(out, encoding="utf-8") as file:
            return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--kernel", default="", metavar="REGEX", help="names to be counted")
    parser.add_argument("--values", type=int, default=1, metavar="N", help="values of a turn")
    parser.add_argument("--loops", action="store_true", help="a row for each loop that loads")
    parser.add_argument("--arch", default="90", metavar="NN", help="compute capability (90)")
    given = parser.parse_args()
    print("| kernel | instructions | of the loop | its branches | instructions a value |")
    print("|---|---|---|---|---|")
    for path in given.files:
        for name, lines in kernels_of(ptx_of(path, given.arch)):
            if re.search(given.kernel, name):
                blocks = blocks_of(lines)
                loops = loops_that_load(blocks)
                for loop in loops if given.loops else [max(loops, key=size_of)]:
                    print(row(name, size_of(blocks.values()), loop, given.values))


def size_of(blocks):
    return sum(block.size for block in blocks)


def loops_that_load(blocks):
    loops = [[blocks[label] for label in loop] for loop in loops_of(blocks)]
    return [loop for loop in loops if any(block.loads for block in loop)] or [blocks.values()]


def row(name, whole, loop, values):
    size = size_of(loop)
    branches = sum(block.branches for block in loop)
    return f"| {name} | {whole} | {size} | {branches} | {size / values:.1f} |"


if __name__ == "__main__":
    sys.exit(main())
