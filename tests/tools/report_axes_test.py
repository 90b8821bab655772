"""What tools/report.py draws stays readable: outliers do not flatten an axis, bars end within their
extremes, long names keep whole words, and limits have colors that differ."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, make_run, python  # noqa: E402  (beside this file)

# Draws one picture of the runs in the arguments; `axes` are those of its figure.
DRAW = """
from ada_train.report import load, layers, {file}, style
runs = load.read_runs(sys.argv[1:])
with style.look():
    picture = {file}.{draw}[0]
axes = picture.figure.axes
"""


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class AxesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def draw(self, file, draw, code, *runs):
        return python(DRAW.format(file=file, draw=draw) + code, *runs).splitlines()

    def run_with(self, name, losses):
        run = make_run(self.folder / name, name)
        (run / "steps.csv").write_text(
            "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n" + "".join(
                f"{step},1,{loss},0.5,0.1,1024,0,0,1\n" for step, loss in enumerate(losses, 1)))
        return run

    def test_which_values_are_outliers(self):
        code = ("from ada_train.report import robust\n"
                "for values, powers in (([1, 2, 3, 1e9], False), ([1, -1e9, 3, 2], False),\n"
                "                       ([1, 1e9], False), ([0, 0, 0, 0.1], False),\n"
                "                       ([1, 2, 3, 25], False), ([float('nan'), 1, 2, 1e9], False),\n"
                "                       ([10, 10, 12, 99], True), ([0, 5, 10, 40], True),\n"
                "                       ([2.3 * 0.8 ** i for i in range(60)], False)):\n"
                "    print(*robust.outliers(values, powers=powers).nonzero()[0])")
        self.assertEqual(python(code).splitlines(), ["3", "1", "", "", "", "3", "3", "", ""])

    def test_one_outlier_leaves_the_axis_to_the_others(self):
        losses = [2 - step / 60 for step in range(1, 61)]
        losses[39] = 1e9
        top, scale, text = self.draw(
            "pictures_training", "training(runs, 60)",
            "print(axes[0].get_ylim()[1])\nprint(axes[0].get_yscale())\n"
            "print(picture.sentence.split(chr(10))[-1])", self.run_with("a", losses))
        self.assertLess(float(top), 3)
        self.assertEqual(scale, "linear")
        self.assertIn("a: loss 1,000,000,000 at step 40", text)

    def test_a_loss_that_diverges_keeps_its_logarithmic_axis(self):
        losses = [2.0 / step for step in range(1, 41)] + [1e6] * 20
        scale, text = self.draw(
            "pictures_training", "training(runs, 60)",
            "print(axes[0].get_yscale())\nprint(picture.sentence)", self.run_with("a", losses))
        self.assertEqual(scale, "log")
        self.assertNotIn("▲", text)

    def test_learning_rates_that_lie_far_apart_are_all_seen(self):
        runs = [make_run(self.folder / name, name) for name in ("a", "b")]
        rows = (runs[1] / "steps.csv").read_text().replace(",0.1,", ",1e9,")
        (runs[1] / "steps.csv").write_text(rows)
        for given, expected in ((runs, "log"), (runs[:1], "linear")):
            self.assertEqual(self.draw("pictures_training", "training(runs, 30)",
                                       "print(axes[2].get_yscale())", *given), [expected])

    def test_bars_of_scales_end_within_their_extremes(self):
        run = make_run(self.folder / "a")
        rows = (run / "underflow.csv").read_text().splitlines()
        rows = [row.replace("fp16,1.0,", "fp16,1024.0,") if row.startswith("30,") else row
                for row in rows]  # far from the mean, so that mean and deviation go beyond it
        (run / "underflow.csv").write_text("\n".join(rows) + "\n")
        code = ("for bars in axes[0].collections:\n"
                "    print(*[x for piece in bars.get_segments() for x in piece[:, 0]])")
        thin, thick = ([float(x) for x in line.split()] for line in self.draw(
            "pictures_compared", "scale_spread(runs, 'dx', layers.common_order(runs), 30)", code,
            run))
        self.assertEqual(max(thin), 10)
        for low, high, first, last in zip(thin[::2], thin[1::2], thick[::2], thick[1::2]):
            self.assertLessEqual(low, first)
            self.assertLessEqual(last, high)

    def test_long_names_keep_their_words(self):
        code = ("from ada_train.report import names, style\n"
                "name = 'resnet20_cifar10_fp8_e4m3_policy_adaptive_exact_range_headroom_bits_11'\n"
                "print('…' in style.wrapped(name, 32), *names.lines(name, 32))\n"
                "print(names.escaped('a<b>_' + 'c' * 20 + ' d_e'))")
        self.assertEqual(python(code).splitlines(), [
            "False resnet20_cifar10_fp8_e4m3_ policy_adaptive_exact_range_ headroom_bits_11",
            "a&lt;b&gt;_<wbr>cccccccccccccccccccc d_e"])

    def test_limits_that_nobody_knows_have_colors_of_their_own(self):
        code = ("from ada_train.report import pictures_layers as pictures\n"
                "words = [*pictures.LIMITS, 'new', 'newer']\n"
                "print(len(words), len(set(pictures.limit_colors(words))))")
        many, different = python(code).split()
        self.assertEqual(many, different)


if __name__ == "__main__":
    unittest.main()
