"""tools/sweep/verdicts.py: its planted faults are configurations that the program takes, its rule of
right and wrong on made runs, and with ADA_SLOW=1 a few faults from the training to the verdict.
ADA_BINARY names the program."""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
sys.path.insert(0, str(ROOT / "tools/sweep"))
try:
    import verdicts
    import yaml
    TABLE = yaml.safe_load((ROOT / "tools/sweep/verdicts.yaml").read_text(encoding="utf-8"))
except ImportError:
    verdicts = None
SOME = ("scale_too_large-mlp", "floor_rule-mlp", "input_too_small-mlp", "all_is_fine-mlp")


@unittest.skipUnless(verdicts, "PyYAML is missing")
class Verdicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_table_has_sixty_faults_that_the_program_takes(self):
        cases = verdicts.cases(TABLE)
        self.assertEqual(len(cases), 60)
        self.assertEqual(len({case["name"] for case in cases}), 60)
        self.assertGreaterEqual(len({case["kind"] for case in cases}), 15)
        self.assertGreaterEqual(len({case["network"] for case in cases}), 5)
        bench = verdicts.Bench(self.folder, TABLE)
        for case in cases:
            with self.subTest(case["name"]):
                done = subprocess.run([BINARY, "train", bench.network(case["network"]),
                                       "--print-config", *bench.words(case["set"])],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def write(self, name, losses):
        (self.folder / name).mkdir()
        rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
        (self.folder / name / "steps.csv").write_text("step,loss\n" + rows, encoding="utf-8")

    def test_how_a_training_ends_and_what_chance_alone_changes(self):
        self.write("fp32-seed1", [9] * 18 + [1, 3])
        self.write("fp32-seed1-twin1", [9] * 18 + [2, 5])
        self.write("fp32-seed1-twin2", [9] * 18 + [2, 2])
        self.write("bf16-seed1", [9] * 18 + [1, 1])
        self.write("broken", [9] * 19 + ["nan"])
        self.write("short", [1] * 19)
        self.assertEqual(verdicts.ends(self.folder / "fp32-seed1", 20), 2)
        self.assertEqual(verdicts.ends(self.folder / "broken", 20), math.inf)
        self.assertEqual(verdicts.ends(self.folder / "short", 20), math.inf)
        runs = self.folder / "mlp-1"
        runs.mkdir()
        for folder in self.folder.glob("*-seed1*"):
            folder.rename(runs / folder.name)
        self.assertAlmostEqual(verdicts.noise_of([runs], 20),
                               math.sqrt((1.5 ** 2 + 0 + 1 ** 2) / 3))

    @unittest.skipUnless(os.environ.get("ADA_SLOW"), "ADA_SLOW is not set")
    def test_verdicts_against_what_happens(self):
        done = subprocess.run([sys.executable, ROOT / "tools/sweep/verdicts.py", self.folder / "out",
                               "--only", *SOME, "--markdown"], capture_output=True, text=True,
                              env={**os.environ, "ADA_TRAIN": BINARY}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 of 4 are right", done.stdout)


if __name__ == "__main__":
    unittest.main()
