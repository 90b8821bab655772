"""precision.accumulated_gradients with scaling fp8_lm beside NumPy, which follows MS-AMP's formulas
(msamp/common/tensor/meta.py, msamp/megatron/distributed.py and optimizer/distrib_optimizer.py):
scales, sums, mu, a resume, processes; and what is refused. Needs numpy."""
import csv
import pathlib
import shutil
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    np = None
else:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import summed_parts
    from summed_parts import PARTS

LARGEST = 448
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]


def e4m3(values):
    """To nearest even in fp8_e4m3, saturating, from fp32."""
    wide = values.astype(np.float64)
    power = np.maximum(np.frexp(wide)[1] - 1, -6) - 3
    near = np.ldexp(np.rint(np.ldexp(wide, -power)), power)
    return np.clip(near, -LARGEST, LARGEST).astype(np.float32)


def inverse(scale):
    return np.float32(1) / scale


def cast(wide, mu):
    """Codes of a gradient, and the scale that they carry."""
    quotient = np.float32(LARGEST) / np.abs(wide).max()
    scale = np.float32(2) ** np.floor(np.log2(quotient)) * mu
    return e4m3(wide * scale), scale


def accumulate(parts, mu):
    code, scale = np.zeros_like(parts[0]), np.float32(1)
    for part in parts:
        code, scale = cast(code * inverse(scale) + part, mu)
    return code, scale


def next_mu(mu, code, limit, window):
    if (np.abs(code) == LARGEST).sum() / code.size > limit:
        return mu / np.float32(2)
    return mu * np.float32(2.0 ** (1.0 / window))


@unittest.skipUnless(np, "numpy is missing")
class SumScale(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.batch = summed_parts.Batch(folder.name)

    def keys(self, **more):
        text = ", ".join(f"{key}: {value}" for key, value in more.items())
        return f"precision.accumulated_gradients={{format: fp8_e4m3, scaling: fp8_lm, {text}}}"

    def events(self, output, name):
        with open(self.batch.folder / output / "events.csv", encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if row["event"] == name]

    def test_one_step(self):
        parts = self.batch.of_parts()
        for count in (1, 2, PARTS):
            with self.subTest(parts=count):
                self.batch.run("run", f"train.accumulate={count}", self.keys())
                joined = [sum(parts[i::count]) for i in range(count)] if count < PARTS else parts
                if count == PARTS:
                    code, scale = accumulate(joined, np.float32(1))
                    np.testing.assert_array_equal(self.batch.gradients("run"), code * inverse(scale))
                (row,) = self.batch.counts("run", "accumulated")
                self.assertEqual(row["format"], "fp8_e4m3")
                self.assertEqual(int(row["numel"]), count * parts[0].size)
        self.assertEqual(np.float32(row["scale"]), scale)
        self.assertEqual(float(row["max_abs"]), float(f"{max(np.abs(p).max() for p in parts):.9g}"))

    def test_mu(self):
        """Steps too short to move a gradient: mu alone moves the scale."""
        parts = self.batch.of_parts()
        limit, window, steps = 0.001, 2, 20
        keys = [f"train.accumulate={PARTS}", "optimizer.lr=1e-30"]
        for interval in (1, 4):
            with self.subTest(interval=interval):
                rule = self.keys(saturation_limit=limit, growth_interval=window, interval=interval)
                self.batch.run("run", *keys, rule, step=steps)
                rows = self.batch.counts("run", "accumulated")
                mu, halved = np.float32(1), []
                for step, row in enumerate(rows, 1):
                    code, scale = accumulate(parts, mu)
                    self.assertEqual(np.float32(row["scale"]), scale, step)
                    if step % interval:
                        continue
                    moved = next_mu(mu, code, limit, window)
                    if moved < mu:
                        halved.append((str(step), np.float32(moved)))
                    mu = moved
                self.assertGreater(len(halved), 0)
                self.assertEqual([(row["step"], np.float32(row["value"]))
                                  for row in self.events("run", "mu_halved")], halved)

    def test_a_resume_and_threads(self):
        keys = [f"train.accumulate={PARTS}", "optimizer.lr=0.1",
                self.keys(saturation_limit=0.001, growth_interval=3)]
        self.batch.run("one", *keys, step=9)
        self.batch.run("three", *keys, "device.threads=3", step=9)
        self.batch.run("cut", *keys, step=4)
        self.batch.run("cut", *keys, step=9, resume=True)
        for other in ("three", "cut"):
            np.testing.assert_array_equal(self.batch.gradients("one"), self.batch.gradients(other))
            self.assertEqual(self.batch.counts("one", "accumulated"),
                             self.batch.counts(other, "accumulated"))

    def test_what_is_not_finite_is_skipped(self):
        """dw leaves fp32 before it is divided by S."""
        self.batch.images *= 1000
        text = self.batch.run("run", f"train.accumulate={PARTS}", self.keys(),
                              "scaling={policy: fixed, scale: 1.0e38}")
        self.assertIn("step skipped", text)
        self.assertEqual(np.count_nonzero(self.batch.gradients("run")), 0)

    def test_vectors_stay_fp32(self):
        """A bias has no scale: its gradient is that of a run without the key."""
        shown = []
        for keys in ([], [self.keys()]):
            self.batch.run("run", f"train.accumulate={PARTS}", *keys,
                           "model.layers=[{name: fc, kind: linear, features: 3, bias: true}]")
            newest = sorted((self.batch.folder / "run/checkpoints").glob("*.safetensors"))[-1]
            shown.append(summed_parts.safetensors_file.read(newest)["fc.bias"][1])
        self.assertEqual(*shown)

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is missing")
    def test_processes(self):
        parts = self.batch.of_parts()
        mu = np.float32(1 / np.sqrt(2))
        for order in ("ranks", "ring"):
            with self.subTest(order=order):
                try:
                    self.batch.run("run", "train.accumulate=2", self.keys(), f"parallel.reduction={order}",
                                   launcher=MPIRUN)
                except AssertionError as error:
                    if "without MPI" in str(error):
                        self.skipTest("built without MPI")
                    raise
                # Each process has a half of each pair of parts.
                sums = [accumulate([parts[rank], parts[2 + rank]], mu) for rank in range(2)]
                least = min(scale for _, scale in sums)
                codes = [e4m3(code * inverse(scale) * least) if scale != least else code
                         for code, scale in sums]
                total = e4m3(codes[0] + codes[1])
                np.testing.assert_array_equal(self.batch.gradients("run"), total * inverse(least))
                (row,) = self.batch.counts("run", "sent")
                self.assertEqual(np.float32(row["scale"]), least)
                self.assertEqual(int(row["overflow"]),
                                 int((np.abs(codes[0].astype(np.float64) + codes[1]) >= 464).sum()))

    def test_refusals(self):
        for keys, words in ((["precision.accumulated_gradients={format: bf16, scaling: fp8_lm}"], "at most 8 bits"),
                            ([self.keys(rounding="stochastic")], "rounds to nearest"),
                            ([self.keys(), "parallel.gradients=bf16"], "fp8_lm decides the format"),
                            ([self.keys(), "parallel.reduction={order: ring, format: bf16}"],
                             "fp8_lm decides the format"),
                            (["precision.accumulated_gradients={format: fp8_e4m3, growth_interval: 9}"],
                             "growth_interval")):
            with self.subTest(keys=keys), self.assertRaisesRegex(AssertionError, words):
                self.batch.run("run", *keys)


if __name__ == "__main__":
    unittest.main()
