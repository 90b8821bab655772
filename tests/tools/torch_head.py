"""The head that tests of ada_train.torch share: paths, the Python that has torch, libada_scaling,
and a folder of its own for each test."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "tools")]
from ada_train import native, run_files  # noqa: E402

try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    torch = None
OTHER = os.environ.get("ADA_BENCH_PYTHON")
needs_torch = unittest.skipUnless(
    torch, "torch is missing (ADA_BENCH_PYTHON may name a Python that has it)")


def other_python(file, tests, here=torch is not None, wanted=True):
    """A case that runs those tests of the file in the Python that ADA_BENCH_PYTHON names; skipped
    where they run `here`."""
    @unittest.skipUnless(OTHER and wanted and not here, "they run here, or no Python is named")
    class OtherPythonTest(unittest.TestCase):
        def test_there(self):
            result = subprocess.run([OTHER, "-m", "unittest", "-v", "-k", tests, file],
                                    capture_output=True, text=True, check=False, cwd=ROOT,
                                    env={**os.environ, "ADA_BENCH_PYTHON": ""})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("torch is missing", result.stderr)
    return OtherPythonTest


def has_library():
    try:
        native.library()
    except native.NoLibrary:
        return False
    return True


class Scratch(unittest.TestCase):
    """`folder`: for what the test writes."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def rows(self, run, file):
        """Of a file of the run in the folder."""
        return list(run_files.rows(self.folder / run / f"{file}.csv"))


class WithLibrary(Scratch):
    """Skipped where libada_scaling is missing."""

    def setUp(self):
        try:
            native.library()
        except native.NoLibrary as problem:
            self.skipTest(str(problem))
        super().setUp()
