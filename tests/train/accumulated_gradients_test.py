"""precision.accumulated_gradients beside sums that NumPy makes of the gradients of single
micro-batches, with exact counts; other keys beside it, threads, a resume. Needs numpy."""
import pathlib
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
    from summed_parts import FORMATS, PARTS, rounded

KEY = "precision.accumulated_gradients"
IN_PARTS = "train.accumulate=4"


@unittest.skipUnless(np, "numpy is missing")
class AccumulatedGradients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.batch = summed_parts.Batch(folder.name)

    def expected(self, parts, form):
        total, asked, lost, still = np.zeros_like(parts[0]), 0, 0, 0
        for part in parts:
            before, total = total, rounded(total + part, form)
            asked += (part != 0).sum()
            lost += ((part != 0) & (total == before)).sum()
            still += (total == before).sum()
        return total, asked, lost, still

    def check(self, output, parts, form):
        total, asked, lost, still = self.expected(parts, form)
        np.testing.assert_array_equal(self.batch.gradients(output), total)
        (row,) = self.batch.counts(output, "accumulated")
        self.assertEqual((row["layer"], row["format"], row["scale"]), ("fc", form, "1.0"))
        self.assertEqual(int(row["numel"]), PARTS * total.size)
        self.assertEqual(int(row["zeros_before"]), PARTS * total.size - asked)
        self.assertEqual(int(row["underflow"]), lost)
        self.assertEqual(int(row["zeros_after"]), still)
        return lost

    def test_sums_and_counts(self):
        parts = self.batch.of_parts()
        for form in FORMATS:
            with self.subTest(form):
                self.batch.run("run", IN_PARTS, f"{KEY}={form}")
                self.assertGreater(self.check("run", parts, form), 0)
        self.batch.run("plain", IN_PARTS)
        np.testing.assert_array_equal(self.batch.gradients("plain"),
                                      self.expected(parts, "fp32")[0])
        self.assertEqual(self.batch.counts("plain", "accumulated"), [])
        # One part is rounded once.
        self.batch.run("one", f"{KEY}=bf16")
        self.batch.run("whole")
        np.testing.assert_array_equal(self.batch.gradients("one"),
                                      rounded(self.batch.gradients("whole"), "bf16"))

    def test_beside_other_keys(self):
        # A scale of a power of two changes no part; each part is rounded before it is added.
        for keys, of_part in (
                (["precision.format=bf16", "scaling={policy: fixed, scale: 1024}"], "fp32"),
                (["precision={format: bf16, weight_gradients: fp8_e5m2}"], "fp8_e5m2"),
                (["precision.format=bf16", "scaling.policy=adaptive"], "fp32")):
            with self.subTest(keys=keys):
                plain = [key.replace(", weight_gradients: fp8_e5m2", "") for key in keys]
                parts = [rounded(part, of_part) for part in self.batch.of_parts(*plain)]
                self.batch.run("run", *keys, IN_PARTS, f"{KEY}=bf16")
                self.check("run", parts, "bf16")
                if of_part != "fp32":
                    (row,) = self.batch.counts("run", "dw")
                    self.assertEqual(int(row["numel"]), PARTS * parts[0].size)

    def test_stochastic_sums(self):
        """Both neighbours occur, nothing else does, and the mean of the errors is near none."""
        parts = self.batch.of_parts()
        errors = []
        for seed in range(8):
            self.batch.run("run", IN_PARTS, f"seed={seed}",
                           KEY + "={format: fp8_e5m2, rounding: stochastic}")
            errors.append(self.batch.gradients("run").astype(np.float64) - sum(parts))
        self.assertTrue((np.std(errors, axis=0) > 0).any())
        size = np.abs(sum(np.abs(part) for part in parts))
        mean = (np.mean(errors, axis=0) / np.maximum(size, 1e-30))[size > 1e-3].mean()
        self.assertLess(abs(mean), 0.02)

    def test_an_overflow_is_skipped_or_saturates(self):
        self.batch.images *= np.float32(2.0 ** 17)
        text = self.batch.run("run", IN_PARTS, f"{KEY}=fp8_e5m2", "train.stop_after_skips=9")
        self.assertIn("step skipped", text)
        self.batch.run("run", IN_PARTS, f"{KEY}=fp8_e5m2", "precision.overflow=saturate")
        self.assertEqual(np.abs(self.batch.gradients("run")).max(), 57344)

    def test_threads_and_a_resume(self):
        keys = [IN_PARTS, KEY + "={format: bf16, rounding: stochastic}", "optimizer.momentum=0.9",
                "optimizer.lr=0.1"]
        self.batch.run("one", *keys, step=6)
        self.batch.run("three", *keys, "device.threads=3", step=6)
        self.batch.run("cut", *keys, step=2)
        self.batch.run("cut", *keys, step=6, resume=True)
        for other in ("three", "cut"):
            np.testing.assert_array_equal(self.batch.gradients("one"), self.batch.gradients(other))
            self.assertEqual(self.batch.counts("one", "accumulated"),
                             self.batch.counts(other, "accumulated"))


if __name__ == "__main__":
    unittest.main()
