"""tools/report.py with more runs than it draws by layer: a page in bounded size, which says so and
still has all runs in its tables and in two pictures."""
import html
import pathlib
import re
import shutil
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, PICTURES, make_run, python, run_tool  # noqa: E402

RUNS = 60  # which differ in more than their seeds
HIGHEST = 9000  # pixels of a picture; PNG knows 2^31, the drawing library 2^16


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class SelectionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        first = make_run(cls.folder / "lr=0", "lr=0", "fixed", 8.0)
        cls.runs = [first]
        for i in range(1, RUNS):
            run = shutil.copytree(first, cls.folder / f"lr={i}")
            for name in ("config.yaml", "summary.json"):
                text = (run / name).read_text().replace("lr=0", f"lr={i}")
                (run / name).write_text(text)
            cls.runs.append(pathlib.Path(run))
        for i, run in enumerate(cls.runs):
            with open(run / "config.yaml", "a", encoding="utf-8") as file:
                file.write(f"optimizer: {{lr: {i}}}\n")

    def page(self, *options, runs=None, expect=0):
        out, pictures = self.folder / "page.html", self.folder / "pictures"
        shutil.rmtree(pictures, ignore_errors=True)
        result = run_tool(*(self.runs if runs is None else runs), "-o", out, "--png", pictures,
                          *options)
        self.assertEqual(result.returncode, expect, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result if expect else html.unescape(
            re.sub(r"data:image/png;base64,[^\"]*", "", out.read_text(encoding="utf-8")))

    def pictures(self):
        """Width and height of each, by name."""
        return {path.stem: struct.unpack(">II", path.read_bytes()[16:24])
                for path in (self.folder / "pictures").iterdir()}

    def test_some_are_drawn_and_all_are_told(self):
        text = self.page("--draw", "4")
        self.assertIn("Pictures by layer show 4 of 60 runs, at even distances", text)
        self.assertIn("--draw N draws N of them (at most 100)", text)
        self.assertIn("4 of 60 are drawn.", text[text.index('id="histograms"'):])
        self.assertIn("Pale, behind them: the other 56.", text)
        found = self.pictures()
        self.assertEqual(set(found), PICTURES | {"runs_underflow", "runs_scale"})
        for name, size in found.items():
            self.assertLess(max(size), HIGHEST, name)
        results = text[text.index('id="runs"'):text.index('id="config"')]
        for i in range(RUNS):
            self.assertRegex(results, rf">lr={i}<")
        drawn = set(re.findall(r"(lr=\d+): top-1", text[text.index('id="training"'):]))
        self.assertEqual(drawn, {"lr=0", "lr=20", "lr=39", "lr=59"})

    def test_as_many_as_are_drawn_unless_asked(self):
        text = self.page(runs=self.runs[:25])
        self.assertIn("Pictures by layer show 24 of 25 runs", text)
        for name, size in self.pictures().items():
            self.assertLess(max(size), HIGHEST, name)
        text = self.page(runs=self.runs[:5])
        self.assertNotIn("All runs", text)
        self.assertNotIn("are drawn.", text)

    def test_means_of_seeds_count_as_one(self):
        seeds = []
        for i in range(6):
            run = pathlib.Path(shutil.copytree(self.runs[i % 2], self.folder / f"seeds{i}"))
            text = (run / "config.yaml").read_text().replace("seed: 1", f"seed: {i}")
            (run / "config.yaml").write_text(text)
            seeds.append(run)
        text = self.page("--draw", "1", runs=seeds)
        self.assertIn("Pictures by layer show 1 of 2 configurations", text)
        table = text[text.index("<th>configuration</th>"):text.index('id="config"')]
        self.assertEqual(table.count("81.25 ± 0.00"), 2)  # also of those that are not drawn

    def test_numbers_that_make_no_page(self):
        for number in ("0", "-1", "101", "x"):
            self.page("--draw", number, expect=2)

    def test_the_pictures_of_all_runs(self):
        code = ("from ada_train.report import layers, pictures_runs, selection, style\n"
                "chosen = selection.read(sys.argv[1:], 'each', 'dx', 2)\n"
                "order = layers.common_order(chosen.runs)\n"
                "for p in pictures_runs.by_run_and_layer(chosen.all, 'dx', order):\n"
                "    mesh = p.figure.axes[0].collections[0]\n"
                "    print(p.name, *mesh.get_array().reshape(4, 3)[1].tolist())\n")
        lost, scale = python(code, *self.runs[:4]).splitlines()
        # bn1 loses 4, 4, 34.5 and 4 % in the four logged steps, and carries 4 times the scale.
        self.assertEqual(lost.split(), ["runs_underflow", "11.625", "2.0", "0.0"])
        self.assertEqual(scale.split(), ["runs_scale", "5.0", "4.0", "3.0"])


if __name__ == "__main__":
    unittest.main()
