"""What commands say of sums under precision.accumulate: watch, compare, recommend, accumulators, and
what-if of a dump, and of rounding modes."""
import csv
import io
import subprocess
import unittest

from tests.program_case import BINARY, SharedFolderCase

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

CONVOLUTIONS = """
seed: 5
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 7, width: 6, channels: 3, classes: 4, train: 60, test: 8}
  batch_size: 6
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1, bias: false}
    - {name: conv2, kind: conv2d, channels: 12, kernel: 3, padding: 1, stride: 2, groups: 2, bias: false}
    - {name: conv3, kind: conv2d, channels: 6, kernel: 1, bias: false}
    - {name: fc, kind: linear, features: 4}
precision: {format: bf16}
scaling: {policy: fixed, scale: 64}
optimizer: {kind: sgd, lr: 0.05}
train: {max_steps: 2}
log: {every: 2, histogram_every: 2, dump_every: 2, what_if: [{accumulate: hopper_fp8}, {accumulate: ada_fp8}]}
"""


ATTENTION = """
seed: 3
device: {kind: cpu, threads: 2}
task: language
data: {dataset: text, path: text.txt, context: 40, batch_size: 3, validation: 0.2}
model:
  layers:
    - {name: wte, kind: embedding, vocabulary: 256, features: 32}
    - {name: qkv, kind: linear, features: 96, bias: false}
    - {name: attn, kind: attention, heads: 2, causal: true}
    - {name: head, kind: linear, features: 256, bias: false}
precision: {format: bf16, operands: {attention: %s}}
scaling: {policy: fixed, scale: 1024}
optimizer: {kind: sgd, lr: 0.5}
train: {max_steps: 1}
evaluate: {every_epochs: 0}
log: {every: 1, histogram_every: 1, what_if: [{accumulate: hopper_f32}]}
"""


class AccumulateStudy(SharedFolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, rule in (("a", "hopper_fp8"), ("b", "hopper_fp8_promote128"),
                           ("c", "hopper_fp8")):
            (cls.folder / f"{name}.yaml").write_text(RUN % rule)
            cls.told(["train", f"{name}.yaml", "--output", name])

    @classmethod
    def told(cls, arguments):
        return " ".join(cls.words_of(*arguments).split())

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
        """Sums that are coarser than their operands are in fp32, promoted before or not."""
        rule = "{group: 32, fraction_bits: 2, accumulator: fp32%s}"
        key, why = "accumulate: {forward: none}", "dB; in fp32 they lose less"
        for given in ("{forward: %s}" % rule % "", "{forward: %s}" % rule % ", promote: 32"):
            (self.folder / "d.yaml").write_text(RUN.replace("lr: 0.05", "lr: 0.5") % given)
            self.told(["train", "d.yaml", "--output", f"d{len(given)}"])
            told = self.told(["advise", f"d{len(given)}"])
            self.assertIn(key, told)
            self.assertIn(why, told)

    def test_choose(self):
        (self.folder / "plain.yaml").write_text(RUN % "none")
        (self.folder / "fast.yaml").write_text("precision: {accumulate: hopper_fp8}\n")
        told = self.told(["choose", "plain.yaml", "--formats", "fast.yaml", "--seeds", "1",
                          "--out", "chosen"])
        self.assertIn("sums by hopper_fp8: ", told)

    def rows(self, text):
        return list(csv.DictReader(io.StringIO(text)))

    def test_sums_of_a_dump(self):
        """What a dump's products would lose is what log.what_if told of the same step."""
        (self.folder / "conv.yaml").write_text(CONVOLUTIONS)
        self.words_of("train", "conv.yaml", "--output", "conv")
        rules = ["hopper_fp8", "{forward: ada_fp8, dw: volta_f16}"]
        asked = [word for rule in rules for word in ("--accumulate", rule)]
        told = self.rows(self.words_of("what-if", "conv", "--csv", *asked))
        run = self.rows((self.folder / "conv/what_if_accumulators.csv").read_text())
        met = 0
        for row in run:
            if row["step"] != "2":
                continue
            same = [r for r in told if all(r[k] == row[k] for k in ("layer", "tensor", "accumulator"))]
            if row["accumulator"] == "ada_fp8" and row["tensor"] != "forward":
                continue
            (one,) = same
            for key in ("numel", "products", "swallowed", "lost", "overflow"):
                self.assertEqual(one[key], row[key], row)
            self.assertAlmostEqual(float(one["bias"]), float(row["bias"]), delta=1e-9)
            met += 1
        self.assertEqual(met, 11 + 4)  # conv1 has no dx
        newest = str(max((self.folder / "conv/dump").glob("*.safetensors")))
        self.assertEqual(self.rows(self.words_of("inspect", newest, "--csv", "sums", *asked)), told)
        self.assertEqual(self.rows(self.words_of("inspect", newest, "--csv", "sums", "--tensors", "fc.dy", *asked)),
                         [r for r in told if r["layer"] == "fc"])
        table = " ".join(self.words_of("what-if", "conv", *asked[:2], "--format", "fp8_e5m2", "--table").split())
        self.assertIn("hopper_fp8, fp8_e5m2", table)
        for words, arguments in (("expected an accumulator", ("--accumulate", "none")),
                                 ("lie within a tap", (*asked[:2], "--format", "mxfp4")),
                                 ("leave out --policy", (*asked[:2], "--policy", "dynamic"))):
            self.assertIn(words, self.words_of("what-if", "conv", *arguments, code=2))

    def test_attention(self):
        """Sums that are judged are those that a run with the accumulator makes, of scaled operands too."""
        (self.folder / "text.txt").write_text("to be or not to be, that is the question; " * 40)
        for number, operands in enumerate(("{q: none}", "{q: nvfp4, k: nvfp4, p: fp8_block128, v: fp8_block128}")):
            text = ATTENTION % operands
            (self.folder / "attn.yaml").write_text(text)
            self.words_of("train", "attn.yaml", "--output", f"attn{number}")
            (self.folder / "made.yaml").write_text(text.replace("operands:", "accumulate: hopper_f32, operands:"))
            self.words_of("train", "made.yaml", "--output", f"made{number}")
            judged, beside = ([r for r in self.rows((self.folder / f"{name}{number}/what_if_accumulators.csv").read_text())
                               if r["layer"] == "attn"] for name in ("made", "attn"))
            made = [r for r in self.rows((self.folder / f"made{number}/accumulators.csv").read_text())
                    if r["layer"] == "attn"]
            self.assertEqual([r["tensor"] for r in made], ["forward", "dx"])
            self.assertEqual([{k: v for k, v in r.items() if k != "scenario"} for r in judged], made)
            for one, other in zip(beside, made):
                self.assertEqual(one["numel"], other["numel"])
                self.assertLess(abs(int(one["products"]) - int(other["products"])), int(other["products"]) / 50)

    def test_judges_round_by_the_modes_of_the_run(self):
        """What-if of a run as it was is what the run counted."""
        for mode, unsure in (("toward_zero", False), ("toward_odd", False), ("toward_positive", True)):
            text = RUN % "none"
            text = text.replace("format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2}",
                                f"format: fp8_e4m3, rounding: {mode}").replace("{accumulate: ada_fp8}", "{scale: 1}")
            (self.folder / f"{mode}.yaml").write_text(text.replace("scale: 64", "scale: 1"))
            self.words_of("train", f"{mode}.yaml", "--output", mode)
            judged = self.rows(self.words_of("what-if", mode, "--scale", "1", "--csv"))
            counted = {(r["step"], r["layer"], r["tensor"]): r
                       for r in self.rows((self.folder / mode / "underflow.csv").read_text())}
            lost = 0
            for row in judged + self.rows((self.folder / mode / "what_if.csv").read_text()):
                was = counted[row["step"], row["layer"], row["tensor"]]
                if was["format"] == "fp32" or not row["underflow_pct_nonzero"]:
                    continue
                near = float(row["underflow_unsure_pct"]) + 1e-6
                self.assertLessEqual(abs(float(row["underflow_pct_nonzero"]) - float(was["underflow_pct_nonzero"])),
                                     near, row)
                lost += float(row["underflow_pct_nonzero"]) > 0
                self.assertTrue(unsure or near < 60, row)
            self.assertEqual(lost > 0, mode != "toward_odd")
            self.assertNotIn(": fp8_e4m3}", self.words_of("recommend", mode))
        told = subprocess.run([BINARY, "what-if", "toward_positive", "--scale", "1", "--csv"], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertIn("rounds by sign", told.stderr)

    def test_list(self):
        told = self.told(["accumulators"])
        for words in ("volta_f32: 4 products at once, 23 fraction bits, accumulator fp32 (truncated)",
                      "hopper_fp8_promote128: 32 products at once, 13 fraction bits, accumulator "
                      "e8m13 (truncated), added to fp32 every 128 products; H100",
                      "fma_fp16: 1 product at once, nothing cut, accumulator fp16 (to nearest)"):
            self.assertIn(words, told)


if __name__ == "__main__":
    unittest.main()
