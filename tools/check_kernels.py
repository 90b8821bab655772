#!/usr/bin/python3
"""Checks that kernels compiled for one instruction set leave no shared copy of a function behind.

usage: tools/check_kernels.py build/libada_kernels.a

An inline function of another namespace that a kernel file does not inline becomes a weak symbol (W).
The linker keeps one copy of those for the whole program, and if it is the AVX-512 one the program dies on
a processor without it. Exits with 1 and names such symbols; 0 where there are none.
"""
import re
import subprocess
import sys

OWN = re.compile(r"ada::(backend::cpu|data)::(generic|sse2|avx2|avx512|amx)::")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    names = subprocess.run(["nm", "-C", sys.argv[1]], capture_output=True, text=True, check=True)
    shared = set()
    for line in names.stdout.splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[1] == "W" and not OWN.search(parts[2]):
            shared.add(parts[2])
    for name in sorted(shared):
        print(f"{sys.argv[1]}: {name}: not inlined, one copy for all instruction sets")
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())
