"""precision.schedule beside trainings that never switch: the steps before a switch are those of the
first precision, the steps from it on those of another training that starts from the weights."""
import json
import os
import unittest

from tests.program_case import ProgramCase, rows_of

BINARY = os.environ.get("ADA_BINARY")

# Each step sees the same batch, and no optimizer remembers anything: a step depends on the weights
# alone.
NETWORK = """
name: run
seed: 5
device: {kind: cpu, threads: 2}
data:
  dataset: synthetic
  synthetic: {height: 6, width: 5, channels: 3, classes: 10, train: 24, test: 16}
  batch_size: 24
  shuffle: false
model:
  %s
  layers:
    - {name: conv1, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: fc1, kind: linear, features: 20}
    - {name: fc2, kind: linear, features: 10}
precision: %s
scaling: {policy: fixed, scale: 16}
optimizer: {kind: sgd, lr: 0.05}
train: {max_steps: %d, epochs: 100}
evaluate: {every_epochs: 100}
checkpoint: {every_epochs: 0, every_steps: 3, keep: 10}
log: {every: 1, statistics: [dx, operands], alert_underflow_pct: 0}
"""
LOGS = ("steps.csv", "underflow.csv", "scales.csv", "blocks.csv", "events.csv", "evaluation.csv")


def without(row, *keys):
    return {key: value for key, value in row.items() if key not in keys}


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
class PrecisionSchedule(ProgramCase):
    def train(self, name, precision, steps, init="", options=()):
        config = self.folder / f"{name}.yaml"
        config.write_text(NETWORK % (init, precision, steps), encoding="utf-8")
        self.run_program("train", config, "--output", self.folder / name, *options)
        return self.folder / name

    def test_before_and_after(self):
        """Operands, layers and formats: each stretch is what a training of that precision does."""
        cases = {
            "format": ("{format: fp8_e5m2, schedule: [{from_step: 4, format: bf16}]}",
                       "{format: fp8_e5m2}", "{format: bf16}"),
            "operands": ("{format: bf16, operands: mxfp4, schedule: [{from_step: 4, operands: "
                         "{forward: none}}]}",
                         "{format: bf16, operands: mxfp4}",
                         "{format: bf16, operands: {dx: mxfp4, dw: mxfp4}}"),
            "recipe": ("{recipe: te_mxfp8, schedule: [{from_step: 4, recipe: none}]}",
                       "{recipe: te_mxfp8}", "{format: bf16}"),
            "layers": ("{format: bf16, operands: mxfp8_e4m3, layers: [{match: fc1, operands: "
                       "none}], schedule: [{from_step: 4, layers: [{match: 'fc*', format: fp32, "
                       "operands: {dw: mxfp4}}]}]}",
                       "{format: bf16, operands: mxfp8_e4m3, layers: [{match: fc1, operands: "
                       "none}]}",
                       "{format: bf16, operands: mxfp8_e4m3, layers: [{match: fc1, operands: none}"
                       ", {match: 'fc*', format: fp32, operands: {dw: mxfp4}}]}"),
        }
        for name, (switched, first, second) in cases.items():
            with self.subTest(name):
                whole = self.train(f"{name}-whole", switched, 6)
                before = self.train(f"{name}-before", first, 3)
                weights = before / "checkpoints/step-00000003.safetensors"
                after = self.train(f"{name}-after", second, 3,
                                   init=f"init: {{weights: '{weights}'}}")
                for log in ("steps.csv", "underflow.csv", "blocks.csv"):
                    got, one, other = (rows_of(f / log) for f in (whole, before, after))
                    self.assertEqual([r for r in got if int(r["step"]) <= 3], one, log)
                    self.assertEqual(
                        [without(r, "step", "epoch") for r in got if int(r["step"]) > 3],
                        [without(r, "step", "epoch") for r in other], log)
                losses = [r["loss"] for r in rows_of(whole / "steps.csv")]
                self.assertEqual(len(set(losses)), 6)
                events = [r for r in rows_of(whole / "events.csv") if r["event"] == "precision"]
                self.assertEqual([(r["step"], r["epoch"]) for r in events], [("4", "4")])
                self.assertIn("from step 4 on {", events[0]["message"])

    def test_killed_and_resumed(self):
        """A run that stopped anywhere, before, at or after a switch, goes on to the same bytes; and
        so does one that was finished before the switch, and then extended."""
        precision = ("{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, "
                     "tensor_scaling: {kind: delayed, history: 3}}, schedule: [{from_step: 4, "
                     "operands: {dy: mxfp8_e5m2}}, {from_step: 6, recipe: te_nvfp4}]}")
        whole = self.train("whole", precision, 8)
        want = {log: (whole / log).read_bytes() for log in LOGS}
        state = whole / "checkpoints/step-00000008.safetensors"
        for steps in (1, 2, 3, 4, 5, 6, 7, 8):  # 8: in the last evaluation
            name = f"cut{steps}"
            cut = self.train(name, precision, 8)
            # As a kill leaves it: no newer checkpoint is there.
            for file in (cut / "checkpoints").glob("step-*"):
                if int(file.stem.split("-")[1]) > steps:
                    file.unlink()
            (cut / "summary.json").unlink()
            self.run_program("train", "--resume", cut)
            for log, content in want.items():
                self.assertEqual((cut / log).read_bytes(), content, (steps, log))
            self.assertEqual((cut / state.relative_to(whole)).read_bytes(), state.read_bytes())
        extended = self.train("extended", precision, 3)
        self.run_program("train", "--resume", extended, "--set", "train.max_steps=8")
        for log in ("steps.csv", "underflow.csv", "blocks.csv", "events.csv"):
            self.assertEqual((extended / log).read_bytes(), want[log], log)
        written = {int(json.loads(file.read_text(encoding="utf-8"))["step"])
                   for file in (whole / "checkpoints").glob("step-*.json")}
        self.assertEqual(written, {3, 5, 6, 8})

    def test_history_survives(self):
        """A tensor whose format stays keeps its history and scale; one of another format gets the
        scale that its history gives there."""
        out = self.train("run", "{format: bf16, operands: {x: fp8_e4m3, dy: fp8_e4m3, "
                         "tensor_scaling: {kind: delayed, history: 8}}, schedule: [{from_step: 4, "
                         "operands: {dy: fp8_e5m2}}]}", 4)
        plain = self.train("plain", "{format: bf16, operands: {x: fp8_e4m3, dy: fp8_e4m3, "
                           "tensor_scaling: {kind: delayed, history: 8}}}", 4)

        def scales(folder):
            return {(r["layer"], r["tensor"]): float(r["scale"])
                    for r in rows_of(folder / "underflow.csv") if r["step"] == "4" and
                    r["tensor"] in ("forward.x", "dw.x", "dx.dy", "dw.dy")}
        got, want = scales(out), scales(plain)
        self.assertEqual(len(got), 11)
        for key, scale in got.items():
            ratio = 57344 / 448 if key[1].endswith("dy") else 1
            self.assertAlmostEqual(scale / (want[key] * ratio), 1, 6, key)

    def test_a_later_switch_may_still_change(self):
        out = self.train("run", "{format: bf16, schedule: [{from_step: 3, format: fp16}, "
                         "{from_step: 7, format: fp32}]}", 5)
        moved = "precision.schedule=[{from_step: 3, format: fp16}, {from_step: 6, format: fp32}]"
        self.run_program("train", "--resume", out, "--set", "train.max_steps=6", moved)
        events = [r["step"] for r in rows_of(out / "events.csv") if r["event"] == "precision"]
        self.assertEqual(events, ["3", "6"])
        past = "precision.schedule=[{from_step: 2, format: fp16}, {from_step: 6, format: fp32}]"
        done = self.run_program("train", "--resume", out, "--set", "train.max_steps=7", past,
                                code=2)
        self.assertIn("precision.schedule", done.stderr)

    def test_evaluation_has_the_precision_of_the_checkpoint(self):
        out = self.train("run", "{format: fp32, schedule: [{from_step: 4, format: fp4_e2m1}]}", 6)
        logged = {r["step"]: r["loss"] for r in rows_of(out / "evaluation.csv")}
        checkpoint = out / "checkpoints/step-00000006.safetensors"
        printed = self.run_program("evaluate", checkpoint, "--no-progress").stdout.splitlines()
        row = dict(zip(printed[0].split(","), printed[-1].split(",")))
        self.assertEqual(float(row["loss"]), float(logged["6"]))
        wide = self.run_program("evaluate", checkpoint, "--no-progress", "--set",
                                "precision.schedule=[]").stdout.splitlines()
        self.assertNotEqual(wide[-1], printed[-1])

    def test_a_switch_that_is_refused_is_refused_before_the_first_step(self):
        config = self.folder / "run.yaml"
        config.write_text(NETWORK % ("", "{format: bf16, accumulate: hopper_fp8, schedule: [{from_step: 4, "
                                     "operands: {x: ue5m3}}]}", 20), encoding="utf-8")
        told = self.run_program("train", config, "--output", self.folder / "out", code=2).stderr
        self.assertIn("no exponents that an accumulator could align", told)
        self.assertFalse((self.folder / "out").exists())

    def test_a_switch_that_never_comes_is_told(self):
        config = self.folder / "run.yaml"
        config.write_text(NETWORK % ("", "{format: bf16, schedule: [{from_step: 21, format: fp32}]}",
                                     20), encoding="utf-8")
        told = (r"run\.yaml:\d+:\d+: precision\.schedule\[\]\.from_step: 21 never comes, the run "
                "has 20 steps")
        self.assertRegex(self.run_program("train", config, "--dry-run").stdout, told)
        done = self.run_program("train", config, "--output", self.folder / "out")
        self.assertRegex(done.stdout + done.stderr, told)

    def test_dry_run_and_print_config(self):
        config = self.folder / "run.yaml"
        config.write_text(NETWORK % ("", "{recipe: nvfp4_pretraining, schedule: [{from_step: 4, "
                                     "operands: {forward: none}}, {from_step: 9, recipe: none}]}",
                                     20), encoding="utf-8")
        table = self.run_program("train", config, "--dry-run").stdout
        parts = table.split("from step ")
        self.assertEqual(len(parts), 3)
        self.assertIn("nvfp4", parts[0])
        self.assertTrue(parts[1].startswith("4 on: {operands:"), parts[1])
        self.assertTrue(parts[2].startswith("9 on: {recipe: none}"), parts[2])
        self.assertNotIn("nvfp4", parts[2].split("device")[0])
        printed = self.run_program("train", config, "--print-config").stdout
        (self.folder / "printed.yaml").write_text(printed, encoding="utf-8")
        again = self.run_program("train", self.folder / "printed.yaml", "--print-config").stdout
        self.assertEqual(again, printed)


if __name__ == "__main__":
    unittest.main()
