"""What README.md says of its two runs, beside what the program does: the end of the quick start, the
first event of the run that fails, its exit code, and what `advise` makes of it. ADA_SLOW=1 and
Fashion-MNIST; ADA_BINARY names the program."""
import csv
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
ACCURACY = re.compile(r"test accuracy ([\d.]+) %")
POINTS = 1.5  # by which instruction sets, which add in another order, may differ


@unittest.skipUnless(os.environ.get("ADA_SLOW") and DATA.is_dir(),
                     "ADA_SLOW is not set, or Fashion-MNIST is missing")
class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, *words, code=0):
        done = subprocess.run([BINARY, *map(str, words)], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        return done.stdout

    def train(self, name, *more, code=0):
        return self.run_program("train", *more, "--no-progress", "--output", name, code=code)

    def test_the_quick_start_ends_as_the_page_shows(self):
        said = self.train("runs/fashion_quickstart", ROOT / "configs/fashion_quickstart.yaml")
        shown = re.search(r"```\n(run fashion_quickstart.*?)```", PAGE, re.DOTALL).group(1)
        for text in (shown, said):
            self.assertIn("4 epochs, 1872 steps (0 skipped)", text)
        self.assertAlmostEqual(float(ACCURACY.search(said).group(1)),
                               float(ACCURACY.search(shown).group(1)), delta=POINTS)
        rows = [dict(re.findall(r"^  (\w+)\s+dx\s+([\d.]+) %", text, re.MULTILINE))
                for text in (shown, said)]
        self.assertGreaterEqual(len(rows[0]), 4)
        self.assertEqual(sorted(rows[0]), sorted(rows[1]))
        for layer, lost in rows[0].items():
            self.assertAlmostEqual(float(lost), float(rows[1][layer]), delta=max(float(lost) / 4, 1))
        counted = re.compile(r"^counted: .*$", re.MULTILINE)
        self.assertEqual(counted.search(shown).group(), counted.search(said).group())

    def test_the_run_that_fails_and_the_advice_that_mends_it(self):
        config = ROOT / "configs/fashion_deep_fp8.yaml"
        self.train("bad", config, code=5)
        log = (self.folder / "bad/log.txt").read_text(encoding="utf-8")
        self.assertIn(re.search(r"^step 1: (fc3\.dx: .*)$", PAGE, re.MULTILINE).group(1), log)
        with open(self.folder / "bad/steps.csv", encoding="utf-8", newline="") as file:
            self.assertTrue(all(row["skipped"] == "1" for row in list(csv.DictReader(file))[-50:]))
        advice = self.run_program("advise", "bad", "--yaml", "a.yaml")
        self.assertRegex(advice.splitlines()[0], r"^scaling: .*65536.*fc3\.dx lost 100 % ")
        self.assertNotIn("optimizer:", advice)
        said = self.run_program("recommend", "bad", "--yaml", "b.yaml")
        for wrong in ("does not help", "does not mend", "smaller scale", "too large"):
            self.assertNotIn(wrong, advice + said)
        self.assertEqual((self.folder / "a.yaml").read_bytes(),
                         (self.folder / "b.yaml").read_bytes())
        mended = float(ACCURACY.search(self.train("good", config, "--with", "a.yaml")).group(1))
        said = self.train("fp32", config, "--set", "precision={format: fp32}")
        fp32 = float(ACCURACY.search(said).group(1))
        told = re.search(r"reaches ([\d.]+) % on the\s+test set; in fp32 it reaches ([\d.]+) %",
                         " ".join(PAGE.split()))
        self.assertAlmostEqual(mended, float(told.group(1)), delta=POINTS)
        self.assertAlmostEqual(fp32, float(told.group(2)), delta=POINTS)
        self.assertGreater(mended, fp32 - POINTS)


if __name__ == "__main__":
    unittest.main()
