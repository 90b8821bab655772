"""tools/bench/kernel_stacks.py with a made-up nvcc: what of ptxas's words counts, and exit codes."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
import kernel_stacks  # noqa: E402

SPACE = "3ada7backend4cuda"


def entry(kernel, stack, level=None):
    """ptxas's words about Entry<kernel<level>>(int)."""
    name = f"N{SPACE}{len(kernel)}{kernel}" + (
        "E" if level is None else f"ILN{SPACE}10StatsLevelE{level}EEE")
    return (f"ptxas info    : Compiling entry function '_ZN{SPACE}5EntryI{name}EEvi' for 'sm_90'\n"
            f"ptxas info    : Function properties for it\n"
            f"    {stack} bytes stack frame, {stack} bytes spill stores, 4 bytes spill loads\n"
            "ptxas info    : Used 40 registers, 380 bytes cmem[0]\n")


class KernelStacksTest(unittest.TestCase):
    def run_on(self, words, status=0):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "words").write_text(words, encoding="utf-8")
            (path / "nvcc").write_text(f"#!/bin/sh\ncat {path}/words >&2\nexit {status}\n",
                                       encoding="utf-8")
            (path / "nvcc").chmod(0o755)
            out, err = io.StringIO(), io.StringIO()
            with mock.patch.dict(os.environ, PATH=f"{path}:{os.environ['PATH']}"), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return kernel_stacks.main(["any.cpp"]), out.getvalue(), err.getvalue()

    def test_no_stack(self):
        status, out, _ = self.run_on(entry("Sums", 0) + entry("Values", 0, 1))
        self.assertEqual(status, 0)
        self.assertIn("2 kernels; 0 have a stack, 0 of them", out)

    def test_a_stack_where_values_are_counted(self):
        status, out, _ = self.run_on(entry("Values", 16, 3) + entry("Values", 0, 2))
        self.assertEqual(status, 0)
        self.assertIn("| Values<(StatsLevel)3> | 16 | 20 | 40 |  |", out)

    def test_a_stack_elsewhere(self):
        status, out, _ = self.run_on(entry("Values", 16, 1))
        self.assertEqual(status, 1)
        self.assertIn("| Values<(StatsLevel)1> | 16 | 20 | 40 | yes |", out)

    def test_what_does_not_compile(self):
        status, _, err = self.run_on("any.cpp(3): error: expected a declaration", 1)
        self.assertEqual(status, 2)
        self.assertIn("any.cpp: any.cpp(3): error: expected a declaration", err)

    def test_without_nvcc(self):
        with mock.patch.object(kernel_stacks.shutil, "which", return_value=None), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(kernel_stacks.main([]), 77)
        self.assertIn("[skipped]", out.getvalue())


if __name__ == "__main__":
    unittest.main()
