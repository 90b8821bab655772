"""The examples of tools/python/examples run, and leave runs that ada-train reads: a plain loop,
Lightning, Hugging Face's Trainer. Needs torch, lightning and transformers (ADA_BENCH_PYTHON)."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from ada_train import native, run_files  # noqa: E402

PYTHON = os.environ.get("ADA_BENCH_PYTHON") or sys.executable
BINARY = os.environ.get("ADA_BINARY")
EXAMPLES = ROOT / "tools" / "python" / "examples"


def has(*modules):
    """Whether the Python has them all."""
    done = subprocess.run([PYTHON, "-c", "import " + ", ".join(modules)], capture_output=True,
                          check=False)
    return done.returncode == 0


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        try:
            native.library()
        except native.NoLibrary as problem:
            self.skipTest(str(problem))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "run"

    def run_example(self, name, *modules):
        if not has("torch", *modules):
            self.skipTest(f"{PYTHON} has not all of torch, {', '.join(modules)} (ADA_BENCH_PYTHON)")
        done = subprocess.run([PYTHON, EXAMPLES / name, self.folder], capture_output=True,
                              text=True, check=False, timeout=280,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(
                                  filter(None, [str(ROOT / "tools" / "python"),
                                                os.environ.get("PYTHONPATH")]))})
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = list(run_files.rows(self.folder / "steps.csv"))
        scales = list(run_files.rows(self.folder / "scales.csv"))
        self.assertLess(float(steps[-1]["loss"]), 0.6 * float(steps[0]["loss"]))
        self.assertEqual({row["policy"] for row in scales}, {"adaptive"})
        if BINARY:
            seen = subprocess.run([BINARY, "watch", self.folder, "--once"], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(seen.returncode, 0, seen.stderr)
            self.assertIn("finished", seen.stdout)
        return {row["layer"] for row in scales if row["limit"] != "branch"}

    def test_plain_loop(self):
        self.assertEqual(self.run_example("plain_loop.py"), {"3", "7", "9"})

    def test_lightning(self):
        self.assertEqual(self.run_example("with_lightning.py", "lightning"), {"2", "5", "7"})

    def test_transformers(self):
        layers = self.run_example("with_transformers.py", "transformers", "accelerate")
        self.assertEqual(len(layers), 9 + 2 * 4)  # of attention four each
        self.assertTrue({"lm_head", "transformer.h.0.attn.c_attn", "transformer.h.1.attn.ds"}
                        <= layers)


if __name__ == "__main__":
    unittest.main()
