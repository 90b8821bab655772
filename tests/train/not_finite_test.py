"""Numbers that are not finite, and what updates keep: what a run says of them, against what its
configuration must lead to. ADA_BINARY names the program."""
import json
import math
import os
import struct
import unittest

from tests.program_case import ProgramCase, rows_of
from tests.tools import safetensors_file

NETWORK = """
name: r
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 3, classes: 4, train: 128,
       test: 32}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: fc, kind: linear, features: classes}
device: {kind: cpu, threads: 1}
evaluate: {every_epochs: 0}
"""


class NotFinite(ProgramCase):
    def train(self, text, name="r", code=0, *more):
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        return self.run_program("train", f"{name}.yaml", "--output", name, "--no-progress", *more,
                                code=code)

    def images(self, largest):
        """A file of 16 images of 8x8 whose every 16th value is `largest`, the others 1."""
        values = struct.pack("<1024f", *[largest if i % 16 == 0 else 1.0 for i in range(1024)])
        labels = struct.pack("<16q", *[i % 4 for i in range(16)])
        safetensors_file.write(self.folder / "data.safetensors", {
            "train.images": ([16, 8, 8, 1], values), "test.images": ([16, 8, 8, 1], values),
            "train.labels": ([16], labels, "I64"), "test.labels": ([16], labels, "I64")})

    INPUT = """
data: {dataset: tensors, path: data.safetensors, batch_size: 8, workers: 0}
model:
  layers: [{name: conv1, kind: conv2d, channels: 4, kernel: 3}, {name: relu1, kind: relu},
           {name: fc, kind: linear, features: classes}]
  init: {scheme: constant, value: 0.001}
precision: {format: fp16}
train: {max_steps: 2}
log: {every: 1, statistics: [y, w, dx, dw]}
device: {kind: cpu, threads: 1}
"""

    def test_images_beyond_the_format_are_the_first_culprit(self):
        self.images(70000.0)
        said = self.train(self.INPUT).stdout
        events = rows_of(self.folder / "r/events.csv")
        skip = [row for row in events if row["event"] == "skip"]
        self.assertEqual([(row["layer"], row["tensor"], row["value"]) for row in skip],
                         [("input", "y", "70000")] * 2)
        self.assertIn("first: input (largest magnitude 70000)", skip[0]["message"])
        self.assertEqual(len([row for row in events if row["event"] == "loss_not_finite"]), 1)
        first = rows_of(self.folder / "r/underflow.csv")[0]
        # 8 images of 64 values, of which every 16th overflows.
        self.assertEqual([first[key] for key in ("layer", "tensor", "format", "numel", "overflow")],
                         ["input", "y", "fp16", "512", "32"])
        said = " ".join(said.split())  # in lines of 80 columns
        self.assertIn("finished without training anything", said)
        self.assertIn("not finite from step 1 on, first tensor input (largest magnitude 70000): a "
                      "loss scale does not help", said)
        summary = json.loads((self.folder / "r/summary.json").read_text(encoding="utf-8"))
        self.assertIn("the images leave the format", summary["not_finite"].pop("advice"))
        self.assertEqual(summary["not_finite"], {"since": 1, "layer": "input", "tensor": "y",
                                                 "largest": "70000", "scale_helps": False})
        watched = self.run_program("watch", "r", "--once").stdout
        self.assertIn("not finite from step 1 on", watched)
        self.assertIn("inf, NaN", watched)
        self.assertIn("a loss scale does not help", self.run_program("recommend", "r").stdout)
        advice = self.run_program("advise", "r").stdout
        self.assertEqual(len([line for line in advice.splitlines() if "input" in line]), 1, advice)

    def test_images_within_the_format_are_rounded_and_counted(self):
        self.images(60000.0)
        self.train(self.INPUT)
        first = rows_of(self.folder / "r/underflow.csv")[0]
        self.assertEqual([first[key] for key in ("layer", "overflow", "max_abs")],
                         ["input", "0", "60000.0"])

    def test_the_optimizer_made_weights_that_are_no_numbers(self):
        # The decay of a weight of 0.1 alone is a step of 1e39, beyond fp32.
        said = self.train(NETWORK + "optimizer: {kind: sgd, lr: 1e10, weight_decay: 1e30}\n"
                          "train: {max_steps: 4}\nlog: {every: 1, statistics: [w, y, dx, dw]}\n"
                          ).stdout
        skip = [row for row in rows_of(self.folder / "r/events.csv") if row["event"] == "skip"]
        self.assertEqual([(row["step"], row["layer"], row["tensor"]) for row in skip][:1],
                         [("2", "conv1", "w")])
        self.assertIn("the optimizer's update did it", said)
        self.assertIn("optimizer: {lr: 0.1, weight_decay: 1e-4}",
                      self.run_program("advise", "r").stdout)

    # One value outgrows the scale that the steps before it gave.
    OUTGROWN = NETWORK + ("precision: {format: fp8_e4m3, gradients: fp8_e5m2, overflow: %s,\n"
                          "  tensor_scaling: {kind: delayed, history: 1}}\n"
                          "optimizer: {kind: sgd, lr: 0.3}\ntrain: {max_steps: 20, epochs: 9}\n"
                          "log: {every: 1}\n")

    def test_values_that_outgrow_their_tensors_scale_are_kept_by_saturation(self):
        self.train(self.OUTGROWN % "format", "f")
        skips = [row for row in rows_of(self.folder / "f/events.csv") if row["event"] == "skip"]
        self.assertGreater(len(skips), 0)
        first = skips[0]
        self.assertIn(first["tensor"], ("y", "w", "dx", "dy"))
        self.assertTrue(math.isfinite(float(first["value"])), first)
        self.assertIn("precision.overflow: saturate would keep it", first["message"])
        self.train(self.OUTGROWN % "saturate", "s")
        self.assertEqual([row for row in rows_of(self.folder / "s/events.csv")
                          if row["event"] == "skip"], [])

    def test_a_scale_that_is_too_large_is_said_to_help(self):
        said = self.train(NETWORK + "precision: {format: fp16}\n"
                          "scaling: {policy: fixed, scale: 1e9}\ntrain: {max_steps: 6}\n").stdout
        self.assertIn("without training anything", said)
        self.assertIn("a loss scale helps because the tensor carries it", said)
        advice = self.run_program("advise", "r", "--yaml", "a.yaml").stdout
        self.assertRegex(advice, r"scaling: {policy: dynamic, init_scale: \d{1,5}}  #")
        better = self.run_program("train", "r.yaml", "--with", "a.yaml", "--output", "b",
                                  "--no-progress", "--set", "train.max_steps=40",
                                  "--set", "train.epochs=9").stdout
        self.assertNotIn("without training anything", better)

    KEPT = NETWORK + ("precision: {format: bf16, masters: bf16, optimizer_state: fp8_e5m2}\n"
                      "optimizer: {kind: adamw, lr: 1e-4}\ntrain: {max_steps: 8}\n"
                      "log: {every: 2, statistics: [dx], alert_underflow_pct: 20}\n")

    def test_masters_and_state_are_counted_by_parameter(self):
        said = self.train(self.KEPT).stdout
        table = rows_of(self.folder / "r/underflow.csv")
        of_bn = {row["tensor"]: row for row in table if row["layer"] == "bn1" and row["step"] == "8"}
        self.assertEqual(set(of_bn) - {"dx"}, {
            "update", "update.weight", "update.bias", "master", "master.weight", "master.bias",
            "state", "state.exp_avg", "state.exp_avg_sq"})
        # gamma is 1, whose spacing in bf16 is 2^-8: a change of 1e-4 vanishes; beta is near 0.
        self.assertEqual(of_bn["update.weight"]["underflow_pct_nonzero"], "100.0")
        self.assertLess(float(of_bn["update.bias"]["underflow_pct_nonzero"]), 50)
        self.assertEqual(of_bn["update"]["numel"], "16")
        self.assertEqual(of_bn["state"]["numel"], "32")  # both averages of both parameters
        self.assertEqual(of_bn["state.exp_avg_sq"]["format"], "fp8_e5m2")
        # A thousandth of a gradient's square lies below the format's smallest number, 2^-16.
        self.assertGreater(int(of_bn["state.exp_avg_sq"]["underflow"]), 0)
        self.assertEqual(int(of_bn["update"]["underflow"]),
                         sum(int(of_bn[f"update.{part}"]["underflow"]) for part in
                             ("weight", "bias")))
        alerts = {(row["layer"], row["tensor"]) for row in rows_of(self.folder / "r/events.csv")
                  if row["event"] == "underflow_alert"}
        self.assertIn(("bn1", "update.weight"), alerts)
        self.assertIn("what updates lose most", said)
        self.assertIn("update.weight", said)
        advice = self.run_program("advise", "r").stdout
        self.assertIn("precision: {masters: fp32}", advice)

    def test_state_and_masters_in_fp32_have_no_rows(self):
        self.train(NETWORK + "precision: {format: bf16}\noptimizer: {kind: adamw, lr: 1e-4}\n"
                   "train: {max_steps: 2}\nlog: {every: 1, statistics: [dx, update]}\n")
        names = {row["tensor"] for row in rows_of(self.folder / "r/underflow.csv")}
        self.assertEqual({name.split(".")[0] for name in names}, {"dx", "update"})

    def test_a_dump_of_the_first_step_that_is_not_finite(self):
        self.images(70000.0)
        text = self.INPUT.replace("log: {every: 1,", "log: {every: 1, dump_on: skip,")
        self.train(text)
        self.assertEqual(sorted(os.listdir(self.folder / "r/dump")), ["skip-00000001.safetensors"])
        found = safetensors_file.numbers(self.folder / "r/dump/skip-00000001.safetensors")
        self.assertEqual(set(found), {"batch.images", "batch.labels"})
        self.assertEqual(found["batch.images"][0], [8, 1, 8, 8])
        self.assertEqual(max(found["batch.images"][1]), 70000.0)

    def test_a_dump_has_the_named_layer_and_its_inputs_and_changes_nothing(self):
        text = NETWORK + ("precision: {format: fp16}\nscaling: {policy: dynamic, init_scale: 1e7}\n"
                          "train: {max_steps: 8}\nlog: {every: 2}\n")
        self.train(text, "plain")
        self.train(text.replace("log: {every: 2", "log: {every: 2, dump_on: skip"), "r")
        for name in ("steps.csv", "underflow.csv", "scales.csv", "events.csv"):
            self.assertEqual((self.folder / "r" / name).read_bytes(),
                             (self.folder / "plain" / name).read_bytes(), name)
        skip = next(row for row in rows_of(self.folder / "r/events.csv") if row["event"] == "skip")
        file = self.folder / f"r/dump/skip-{int(skip['step']):08}.safetensors"
        found = safetensors_file.numbers(file)
        layers = {name.rsplit(".", 1)[0] for name in found}
        self.assertEqual(layers, {"batch", skip["layer"]})
        self.assertIn(f"{skip['layer']}.dx", found)

    def test_alerts_and_histograms_and_the_best_checkpoint_are_on_by_default(self):
        self.train(NETWORK.replace("evaluate: {every_epochs: 0}\n", "") +
                   "precision: {format: fp8_e4m3}\ntrain: {epochs: 60}\n")
        self.assertEqual(sorted({int(row["step"]) for row in rows_of(self.folder / "r/histograms.csv")}),
                         [1, 200, 400])
        self.assertIn("underflow_alert",
                      {row["event"] for row in rows_of(self.folder / "r/events.csv")})
        for command in (["evaluate", "r", "--best"], ["recommend", "r"],
                        ["what-if", "r", "--format", "fp16"], ["advise", "r"]):
            self.run_program(*command)

    def test_histograms_that_nobody_asked_for_log_no_step_of_their_own(self):
        for every, steps in (("70", [1, 210]), ("0", [])):
            self.train(NETWORK + "precision: {format: fp16}\ntrain: {max_steps: 230, epochs: 99}\n"
                       f"log: {{every: {every}}}\n", "r", 0, "--overwrite")
            path = self.folder / "r/histograms.csv"
            found = sorted({int(row["step"]) for row in rows_of(path)}) if path.exists() else []
            self.assertEqual(found, steps)


if __name__ == "__main__":
    unittest.main()
