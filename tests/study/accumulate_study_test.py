"""What commands say of sums under precision.accumulate: watch, compare, recommend, accumulators."""
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
RUN = """
seed: 5
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 6, width: 6, channels: 3, classes: 4, train: 60, test: 8}
  batch_size: 12
model: {zoo: mlp, hidden: [24]}
precision: {format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2}, accumulate: %s}
scaling: {policy: fixed, scale: 64}
optimizer: {kind: sgd, lr: 0.05}
train: {max_steps: 4}
log: {every: 2, statistics: [dx, dy, dw], histogram_every: 2, what_if: [{accumulate: ada_fp8}]}
"""


class AccumulateStudy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        for name, rule in (("a", "hopper_fp8"), ("b", "hopper_fp8_promote128"),
                           ("c", "hopper_fp8")):
            (cls.folder / f"{name}.yaml").write_text(RUN % rule)
            cls.told(["train", f"{name}.yaml", "--output", name])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def told(cls, arguments):
        done = subprocess.run([BINARY, *arguments], cwd=cls.folder, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return " ".join(done.stdout.split())

    def test_watch(self):
        told = self.told(["watch", "a", "--once"])
        self.assertIn(" by hopper_fp8 is the worst: ", told)
        self.assertIn("% of products swallowed, bias ", told)

    def test_compare(self):
        self.assertIn("accumulators.csv", self.told(["compare", "a", "b"]))
        self.assertNotIn("accumulators.csv parts", self.told(["compare", "a", "c"]))

    def test_recommend(self):
        told = self.told(["recommend", "a"])
        self.assertIn("sums by hopper_fp8: ", told)
        self.assertIn("what if: sums by ada_fp8: ", told)
        self.assertIn("(what_if_accumulators.csv)", told)

    def test_advise(self):
        """Sums that are coarser than their operands are promoted, or in fp32 where they were."""
        rule = "{group: 32, fraction_bits: 2, accumulator: fp32}"
        for given, key, why in (
                ("{forward: %s}" % rule, "promote: 128", "dB; added to fp32 every 128 products"),
                ("{forward: {group: 32, fraction_bits: 2, accumulator: fp32, promote: 32}}",
                 "accumulate: {forward: none}", None)):
            (self.folder / "d.yaml").write_text(RUN.replace("lr: 0.05", "lr: 0.5") % given)
            self.told(["train", "d.yaml", "--output", f"d{len(given)}"])
            told = self.told(["advise", f"d{len(given)}"])
            self.assertIn(key, told)
            if why:
                self.assertIn(why, told)

    def test_choose(self):
        (self.folder / "plain.yaml").write_text(RUN % "none")
        (self.folder / "fast.yaml").write_text("precision: {accumulate: hopper_fp8}\n")
        told = self.told(["choose", "plain.yaml", "--formats", "fast.yaml", "--seeds", "1",
                          "--out", "chosen"])
        self.assertIn("sums by hopper_fp8: ", told)

    def test_list(self):
        told = self.told(["accumulators"])
        for words in ("volta_f32: 4 products at once, 23 fraction bits, accumulator fp32 (truncated)",
                      "hopper_fp8_promote128: 32 products at once, 13 fraction bits, accumulator "
                      "e8m13 (truncated), added to fp32 every 128 products; H100",
                      "fma_fp16: 1 product at once, nothing cut, accumulator fp16 (to nearest)"):
            self.assertIn(words, told)


if __name__ == "__main__":
    unittest.main()
