"""`ada-train assign` on tiny networks: which layers get a format, block-scaled formats as operands,
and the YAML that `train --with` takes. ADA_BINARY names the program."""
import unittest

from tests.program_case import ProgramCase

CONFIG = """
name: r
seed: 1
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 2, classes: 5, train: 256,
       test: 20}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 6, kernel: 3}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: fc1, kind: linear, features: 16}
    - {name: relu2, kind: relu}
    - {name: fc2, kind: linear, features: classes}
scaling: {policy: fixed, scale: 64}
optimizer: {lr: 0.02, momentum: 0.9}
train: {epochs: 1}
log: {every: 0}
evaluate: {every_epochs: 0}
device: {kind: cpu, threads: 1}
"""


class Assign(ProgramCase):
    config = CONFIG

    def assign(self, *more):
        """The format of each layer, and all that was printed."""
        text = self.words_of("assign", "r.yaml", "--steps", "5", *more)
        rows = [line.split() for line in text.split("Weight gradients")[0].splitlines()[1:]]
        return {row[0]: row[1:] for row in rows if len(row) == 3}, text

    def test_layers_that_round_nothing_are_left_out(self):
        found, _ = self.assign("--formats", "bf16", "--budget", "20%")
        self.assertEqual(found, {name: ["bf16", "16"] for name in ("conv1", "bn1", "fc1", "fc2")})

    def test_a_bias_before_a_norm_leaves_the_budget_to_the_others(self):
        found, _ = self.assign("--formats", "bf16", "--budget", "2%")
        self.assertIn(["bf16", "16"], found.values())

    def test_block_scaled_formats_are_of_operands(self):
        found, text = self.assign("--formats", "bf16,nvfp4", "--budget", "100%", "--yaml", "f.yaml")
        self.assertEqual(found, {"conv1": ["nvfp4", "4.5"], "bn1": ["bf16", "16"],
                                 "fc1": ["nvfp4", "4.5"], "fc2": ["nvfp4", "4.5"]})
        self.assertIn("- {match: fc1, operands: nvfp4}", text)
        fragment = (self.folder / "f.yaml").read_text(encoding="utf-8")
        self.assertTrue(text.endswith(fragment), text)
        table = self.words_of("train", "r.yaml", "--with", "f.yaml", "--dry-run")
        self.assertIn("nvfp4", table)

    def test_a_layer_with_such_operands_is_stored_as_the_configuration_says(self):
        found, text = self.assign("--formats", "mxfp8_e4m3", "--budget", "100%", "--set",
                                  "precision.format=bf16")
        self.assertEqual(found["fc1"], ["mxfp8_e4m3", "8.25"])
        self.assertIn("precision:\n  format: bf16\n", text)
        self.assertIn("- {match: fc1, operands: mxfp8_e4m3}", text)
        self.assertIn("- {match: bn1, format: fp32}", text)

    def test_a_preset_of_the_configuration_goes(self):
        with open(self.folder / "r.yaml", "a", encoding="utf-8") as file:
            file.write("precision: {format: fp16, preset: autocast}\n")
        self.assign("--formats", "fp8_e4m3", "--budget", "100%", "--yaml", "f.yaml")
        self.assertIn("\n  preset: none\n", (self.folder / "f.yaml").read_text(encoding="utf-8"))
        self.words_of("train", "r.yaml", "--with", "f.yaml", "--dry-run")

    def test_what_was_measured_is_what_trains(self):
        plain = self.words_of("train", "r.yaml", "--dry-run", "--set", "precision=bf16")
        with open(self.folder / "r.yaml", "a", encoding="utf-8") as file:
            file.write("""precision:
  format: fp16
  gradients: fp8_e5m2
  weight_gradients: fp16
  operands: fp8_e4m3
  rounding: stochastic
  tensor_scaling: {kind: delayed, history: 4}
  masters: bf16
  layers: [{match: fc1, format: fp32}]
  schedule: [{from_step: 3, format: fp8_e4m3}]
""")
        self.assign("--formats", "bf16", "--budget", "100%", "--yaml", "f.yaml")
        fragment = (self.folder / "f.yaml").read_text(encoding="utf-8")
        table = self.words_of("train", "r.yaml", "--with", "f.yaml", "--dry-run")
        layers = [line for line in plain.splitlines() if line.startswith(("conv", "fc", "bn"))]
        self.assertGreater(len(layers), 3)
        for line in layers:
            self.assertIn(line, table.splitlines(), fragment)
        self.words_of("train", "r.yaml", "--with", "f.yaml", "--output", "r", "--quiet")
        config = (self.folder / "r/config.yaml").read_text(encoding="utf-8")
        for key in ("rounding: nearest", "tensor_scaling: {kind: none"):
            self.assertIn(key, config)
        for key in ("schedule:\n    - {from", "masters", "fp16", "e4m3", "e5m2"):
            self.assertNotIn(key, config.split("precision:")[1].split("scaling:\n")[0], config)

    def test_formats_as_maps(self):
        _, text = self.assign("--formats", "{exponent: 6, mantissa: 4},fp32", "--budget", "100%")
        self.assertIn("precision:\n  format: {exponent: 6, mantissa: 4}\n", text)

    def test_budgets_that_are_none(self):
        for budget in ("inf", "-1", "0", "nan", "0x10", "1e400", "1 %", "1%%", "%", "0.1 percent"):
            with self.subTest(budget):
                self.assertIn("expected a share above 0", self.words_of(
                    "assign", "r.yaml", "--formats", "bf16", f"--budget={budget}", code=2))

    def test_a_format_that_is_named_twice(self):
        for formats in ("bf16,fp16,bf16", "fp16,{exponent: 5, mantissa: 10}", "nvfp4,nvfp4"):
            with self.subTest(formats):
                self.assertIn("is named twice", self.words_of(
                    "assign", "r.yaml", "--formats", formats, code=2))

    def test_formats_that_are_none(self):
        for name in ("fp17", "e8m0"):
            self.assertIn("ada-train: --formats: ", self.words_of(
                "assign", "r.yaml", "--formats", f"bf16,{name}", code=2))


if __name__ == "__main__":
    unittest.main()
