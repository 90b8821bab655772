"""Of at most five classes each is among the first five: top-5 is left out wherever results are shown.
ADA_BINARY names the program."""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

from tests.program_case import SharedFolderCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = """
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 1, classes: %d, train: 32,
       test: 16}, batch_size: 16, workers: 0}
model: {zoo: mlp, hidden: [4]}
optimizer: {lr: 0.01}
train: {epochs: 1}
device: {kind: cpu, threads: 1}
"""


class TopFive(SharedFolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.told = {}
        for classes in (5, 6):
            (cls.folder / f"{classes}.yaml").write_text(RUN % classes)
            cls.told[classes] = cls.run_program("train", f"{classes}.yaml", "--output",
                                                f"of{classes}").stderr

    def test_while_training(self):
        self.assertNotIn("top-5", self.told[5])
        self.assertIn("top-5", self.told[6])

    def test_compare(self):
        self.assertNotIn("top-5", self.words_of("compare", "of5", "of5"))
        self.assertRegex(self.words_of("compare", "of5", "of6"), r"test top-5 % +- +[0-9]")

    @unittest.skipUnless(all(importlib.util.find_spec(name) for name in ("pandas", "matplotlib")),
                         "pandas or matplotlib are missing")
    def test_report(self):
        for names, has in ((["of5"], False), (["of5", "of6"], True)):
            subprocess.run([sys.executable, ROOT / "tools/report.py", *names, "-o", "page.html",
                            "--static"],
                           cwd=self.folder, capture_output=True, check=True)
            page = (self.folder / "page.html").read_text(encoding="utf-8")
            self.assertEqual("top-5 (%)" in page, has)
            self.assertIn("best top-1 (%)", page)


if __name__ == "__main__":
    unittest.main()
