"""tools/report.py with the runs of a sweep: names, titles and legends that fit, colours that differ,
seeds drawn as one with mean and deviation, numbers without exponents."""
import html
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, make_run, python, run_tool  # noqa: E402  (beside this file)

FORMATS = ["fp16", "bf16", "fp8_e5m2", "fp8_e4m3"]
POLICIES = ["fixed-scale-1", "adaptive-exact_range-headroom_bits-2"]
# Draws every picture and prints what lies beyond its figure, and titles that touch one another.
CHECK = """
from matplotlib.backends.backend_agg import FigureCanvasAgg
from ada_train.report import groups, layers, load, sections, selection, style
runs = load.read_runs(groups.expand(sys.argv[2:]))
groups.shorten_labels(runs)
drawn = groups.by_seed(runs, sys.argv[1])
if sys.argv[1] == "each":  # the others are drawn in the same way
    kept = ("training", "limits", "probes", "events")
    sections.PARTS = [part for part in sections.PARTS if part[0] in kept]
with style.look():
    for section in sections.all_sections(selection.of_drawn(runs, drawn), "dx"):
        for picture in section.pictures:
            figure = picture.figure
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            render, whole = canvas.get_renderer(), figure.bbox
            boxes = [legend.get_window_extent(render) for legend in figure.legends]
            titles = [ax.title if ax.title.get_text() else ax._left_title for ax in figure.axes]
            titles = [t for t in titles if t.get_text()]
            boxes += [t.get_window_extent(render) for t in titles]
            for box in boxes:
                if box.x0 < -1 or box.y0 < -1 or box.x1 > whole.x1 + 1 or box.y1 > whole.y1 + 1:
                    print(picture.name, "beyond the figure", box)
            boxes = [t.get_window_extent(render) for t in titles]
            for i, a in enumerate(boxes):
                for b in boxes[:i]:
                    if a.overlaps(b):
                        print(picture.name, "titles touch", a, b)
print("checked", *[run.label for run in drawn], sep="\\n")
"""


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class SweepTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp()) / "sweeps"
        cls.addClassCleanup(shutil.rmtree, cls.folder.parent)
        names = []
        for form in FORMATS:
            for policy in POLICIES:
                for seed in (1, 2):
                    name = f"format={form}__scaling=policy-{policy}__seed={seed}"
                    run = make_run(cls.folder / name, name, policy, 8.0)
                    cls.edit(run, form, policy, seed)
                    names.append(name)
        cls.folder.joinpath("sweep.csv").write_text("\n".join(["run", *names, "not_started"]) + "\n")
        cls.page = cls.folder.parent / "page.html"
        cls.result = run_tool(cls.folder, "-o", cls.page)
        cls.text = html.unescape(re.sub(r"data:image/png;base64,[^\"]*", "",
                                        cls.page.read_text())) if cls.page.exists() else ""

    @staticmethod
    def edit(run, form, policy, seed):
        config = run / "config.yaml"
        config.write_text(config.read_text().replace("seed: 1", f"seed: {seed}")
                          + f"precision: {{format: {form}}}\n")
        rows = run / "evaluation.csv"
        rows.write_text(rows.read_text().replace("0.8125", f"{0.8 + 0.02 * seed}"))
        if form == "fp8_e4m3":  # all is lost
            rows = run / "underflow.csv"
            rows.write_text(rows.read_text().replace(",34.5,34.5,34.5,", ",100,100,100,"))

    def test_all_runs_of_the_sweep_and_nothing_to_say(self):
        self.assertEqual((self.result.returncode, self.result.stderr), (0, ""))
        self.assertIn("<h1>Report: 16 runs of sweeps</h1>", self.text)
        self.assertIn("fp16, policy-fixed-scale-1, seed=1", self.text)

    def test_seeds_have_a_mean_and_a_deviation(self):
        self.assertIn("fp16, policy-fixed-scale-1 (2 seeds)", self.text)
        self.assertIn(">83.00 ± 1.41<", self.text)
        self.assertIn("bf16, policy-fixed-scale-1 (2 seeds): top-1 83.00 ± 1.41 %, 2 steps skipped "
                      "in all", self.text)

    def test_each_run_by_itself_if_asked(self):
        runs = [self.folder / f"format=fp16__scaling=policy-fixed-scale-1__seed={s}" for s in (1, 2)]
        code = ("from ada_train.report import groups, load, pictures_training, style\n"
                "runs = load.read_runs(sys.argv[1:])\ngroups.shorten_labels(runs)\n"
                "for how in ('each', 'auto', 'mean'):\n    drawn = groups.by_seed(runs, how)\n"
                "    print(pictures_training.training(drawn, 30)[0].sentence)")
        each, auto, mean = python(code, *runs).splitlines()
        self.assertIn("seed=2: top-1 84.00 % (test, step 30)", each)
        self.assertEqual(each, auto)
        self.assertRegex(mean, r"\(2 seeds\): top-1 83.00 ± 1.41 %")

    def test_no_exponents(self):
        text = re.sub(r"<pre>.*?</pre>", "", self.text, flags=re.DOTALL)
        self.assertEqual(re.findall(r"[^\w]\d[\d.]*e\+\d+", text), [])

    def test_what_fits(self):
        for how, count in (("auto", 8), ("each", 16)):
            found = python(CHECK, how, self.folder).split("checked\n")
            self.assertEqual(found[0], "")
            self.assertEqual(len(set(found[1].splitlines())), count)

    def test_keys_that_differ_as_rows_of_runs(self):
        start = self.text.index('id="config"')
        table = self.text[start:self.text.index("config.yaml of", start)]
        self.assertIn("<th>run</th><th>seed</th><th>scaling.policy</th><th>precision.format</th>",
                      table.replace(' class="n"', ""))


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class PartsTest(unittest.TestCase):
    def test_colours_differ(self):
        """Pairs of the first 16 are apart in CIELAB, more than lines on white need."""
        code = ("import itertools, numpy\nfrom matplotlib import colors\n"
                "from ada_train.report import style\n"
                "rgb = numpy.array([colors.to_rgb(style.color(i)) for i in range(16)])\n"
                "line = numpy.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)\n"
                "xyz = line @ numpy.array([[.4124, .2126, .0193], [.3576, .7152, .1192],"
                " [.1805, .0722, .9505]]) / [0.9505, 1, 1.089]\n"
                "f = numpy.cbrt(xyz)\n"
                "lab = numpy.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]),"
                " 200 * (f[:, 1] - f[:, 2])], 1)\n"
                "print(min(numpy.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2)))\n"
                "print(min(numpy.linalg.norm(a - [100, 0, 0]) for a in lab))")
        nearest, white = map(float, python(code).split())
        self.assertGreater(nearest, 20)
        self.assertGreater(white, 30)

    def test_numbers(self):
        code = ("from ada_train.report import style\n"
                "for x, n in ((100, 2), (99.6, 2), (1234567, 3), (0.0123456, 3), (1e-12, 3)):\n"
                "    print(style.digits(x, n))\n"
                "print(style.mean_and_spread([1, 2, None, float('nan')], 1))\n"
                "print(style.wrapped('a, ' + 'b' * 30 + ', cc dd', 12, 2))")
        self.assertEqual(python(code).splitlines(),
                         ["100", "100", "1,230,000", "0.0123", "1e-12", "1.5 ± 0.7",
                          "a,", "bbbbb… cc dd"])

    def test_one_run_against_another(self):
        with tempfile.TemporaryDirectory() as folder:
            a = make_run(pathlib.Path(folder) / "a", "one")
            b = make_run(pathlib.Path(folder) / "b", "two")
            rows = (b / "underflow.csv").read_text().replace(
                "fc,dx,fp16,2.0,100,0,2,2,2,", "fc,dx,fp16,2.0,100,0,5,5,5,")
            (b / "underflow.csv").write_text(rows)
            code = ("from ada_train.report import load, pictures_compared as pictures\n"
                    "runs = load.read_runs(sys.argv[1:])\n"
                    "order = ['bn1', 'fc', 'loss']\n"
                    "print(pictures.underflow_difference(runs, 'dx', order, 30)[0].sentence)\n"
                    "print(pictures.scale_spread(runs, 'dx', order, 30)[0].sentence)")
            difference, spread = python(code, a, b).splitlines()
        self.assertEqual(difference, "Against one. Red: more is lost; blue: less. two loses 1 points "
                         "more, most in fc (+3).")
        self.assertIn("one: no layer's scale moves", spread)

    def test_other_names_stay(self):
        code = ("from ada_train.report import groups, load\n"
                "runs = [load.Run('', name=n, label=n) for n in sys.argv[1:]]\n"
                "groups.shorten_labels(runs)\nprint([run.label for run in runs])")
        for names, labels in ((["a", "b"], ["a", "b"]), (["x=1", "y=1"], ["x=1", "y=1"]),
                              (["x=1__y=2", "x=1__y=3"], ["y=2", "y=3"]),
                              (["x=1", "x=1"], ["x=1", "x=1"]), (["f=a__s=1"], ["f=a__s=1"])):
            self.assertEqual(python(code, *names).strip(), str(labels))


if __name__ == "__main__":
    unittest.main()
