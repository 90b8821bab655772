"""under_sanitizer.sh's choice of tests launches every kernel that the CUDA backend has, in at least
one of its storages and levels of statistics: those that the host executor's library holds beside
those that its test program launches with that choice."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ADA_BINARY", ROOT / "build" / "ada-train")).parent
PROGRAM, LIBRARY = BUILD / "test_cuda", BUILD / "libada_backend_cuda_host.a"
# Kernels that more than one GPU takes, which compute-sanitizer's tests do not have
# (tests/parallel/kernels has them), and two that only the tests of ops on the host executor launch
# (tests/backend): masters of fewer bits, averages of weights. And three that no test of this choice
# launches by themselves: totals of batch norms, which run as last blocks there, and the rounding of
# a dw apart from its making.
ELSEWHERE = re.compile(
    r"(Join|Put|Take)(Looks|Tails|Observations?|Statistics|GradientSums|Largest|Moments)|JoinTailsKernel"
    r"|BranchSumPartKernel|RoundSegments|StoreSegments|SumAsReference|RoundBiasSum"
    r"|StoreUnscaled|ApplyRoundedUpdate|MoveAverage|^ChannelTotalsKernel"
    r"|^RoundValuesKernel<StoredValues>$|LargestOfProcesses")


def plain(name):
    """A kernel's type without namespaces and without numbers and words of enumerations."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\([\w:]+\)\d+|\b(true|false|\d+)\b", "", name)
    return re.sub(r"\w+::|[\s,]+(?=[,>])|(?<=<)[\s,]+|\s+", "", name)


# Kernels of several kernels, which one launch runs.
TOGETHER = re.compile("(LastBlockKernel|FusedKernels|FusedPair|FusedPhases|SumsAndTotals|RowStage)<(.*)>$")


def parts(kernel):
    """The kernels that one launch runs."""
    several = TOGETHER.match(kernel)
    if not several:
        return {kernel}
    arguments, depth = [""], 0
    for sign in several.group(2):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += sign
    return {part for inner in arguments if inner for part in parts(inner)}


def argument(text, start):
    """The template argument that begins at `start`, up to its own '>'."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "<":
            depth += 1
        elif text[at] == ">":
            depth -= 1
            if depth < 0:
                return text[start:at]
    return text[start:]


def of_library():
    words = subprocess.run(["nm", "-C", LIBRARY], capture_output=True, text=True, check=True).stdout
    mark = "cuda_host::Launch<"
    return {part for line in words.splitlines() if mark in line
            for part in parts(plain(argument(line, line.index(mark) + len(mark))))}


def launched():
    script = (ROOT / "tests" / "cuda" / "under_sanitizer.sh").read_text(encoding="utf-8")
    chosen = re.search(r"--test-case='([^']*)'", script).group(1)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace")
        subprocess.run([PROGRAM, "--test-suite=cpu", f"--test-case={chosen}"], check=True, cwd=ROOT,
                       capture_output=True, env={**os.environ, "ADA_KERNEL_TRACE": str(trace)})
        names = subprocess.run(["c++filt", "-t"], input=trace.read_text(encoding="utf-8"),
                               capture_output=True, text=True, check=True).stdout
    return {part for name in names.splitlines() for part in parts(plain(name))}


class SanitizerFilterTest(unittest.TestCase):
    def test_every_kernel_is_launched(self):
        if not PROGRAM.exists():
            self.skipTest(f"{PROGRAM} is not built")
        every = of_library()
        self.assertGreater(len(every), 100)
        missing = sorted(name for name in every - launched() if not ELSEWHERE.search(name))
        self.assertEqual(missing, [], f"{len(missing)} kernels")


if __name__ == "__main__":
    unittest.main()
