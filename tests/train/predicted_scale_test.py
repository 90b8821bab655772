"""operands.tensor_scaling predicted beside NumPy, from the formula of MOSS (arXiv 2511.05811):
max|W_t| <= max|W_0| + the sum of the learning rates; measurements, a resume, groups, refusals. Needs
numpy."""
import csv
import json
import pathlib
import sys
import unittest

from tests.program_case import ProgramCase

try:
    import numpy as np
except ImportError:
    np = None
else:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
    import safetensors_file  # noqa: E402

STEPS, INTERVAL, RATE = 8, 3, 0.03125


@unittest.skipUnless(np, "numpy is missing")
class PredictedScale(ProgramCase):
    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(3)
        tensors = {}
        for split in ("train", "test"):
            tensors[split + ".images"] = ((16, 24, 1, 1), draw.standard_normal((16, 24)).astype("<f4").tobytes())
            tensors[split + ".labels"] = ((16,), draw.integers(0, 3, 16).astype("<i8").tobytes(), "I64")
        safetensors_file.write(self.folder / "data.safetensors", tensors)
        self.start = {"a.weight": (draw.standard_normal((5, 24)) * 0.2).astype("<f4"),
                      "b.weight": (draw.standard_normal((3, 5)) * 0.3).astype("<f4")}
        safetensors_file.write(self.folder / "start.safetensors",
                               {name: (w.shape, w.tobytes()) for name, w in self.start.items()})

    def run_it(self, output, *keys, steps=STEPS, resume=False, kind="adamw"):
        layers = [{"name": "a", "kind": "linear", "features": 5, "bias": False}, {"name": "r", "kind": "relu"},
                  {"name": "b", "kind": "linear", "features": 3, "bias": False}]
        config = {"seed": 3, "device": {"kind": "cpu", "threads": 1},
                  "data": {"dataset": "tensors", "path": "data.safetensors", "layout": "hwc", "batch_size": 16,
                           "shuffle": False, "normalize": "none"},
                  "model": {"layers": layers, "classes": 3, "init": {"weights": "start.safetensors"}},
                  "precision": {"operands": {"x": "fp8_e4m3", "w": "fp8_e4m3", "dy": "fp8_e5m2",
                                             "tensor_scaling": {"kind": "predicted", "interval": INTERVAL}}},
                  "scaling": {"policy": "none"}, "optimizer": {"kind": kind, "lr": RATE},
                  "checkpoint": {"every_steps": 1, "keep": 99},
                  "train": {"epochs": steps, "max_steps": steps}, "evaluate": {"every_epochs": 0},
                  "log": {"every": 1, "statistics": ["dx", "dw", "operands"]}}
        (self.folder / f"{output}.yaml").write_text(json.dumps(config), encoding="utf-8")
        done = self.run_program("train", f"{output}.yaml", "--output", output, "--no-progress",
                                "--resume" if resume else "--overwrite",
                                *(["--set", *keys] if keys else []))
        return done.stdout + done.stderr

    def rows(self, output, file="underflow.csv"):
        with open(self.folder / output / file, encoding="utf-8", newline="") as text:
            return list(csv.DictReader(text))

    def weight(self, output, step, name):
        if step == 0:
            return self.start[name]
        shape, data = safetensors_file.read(self.folder / output / f"checkpoints/step-{step:08d}.safetensors")[name][:2]
        return np.frombuffer(data, "<f4").reshape(shape)

    def check(self, output, layer, factor=1, power_of_two=False):
        """Scales of both products, step by step."""
        for step in range(1, STEPS + 1):
            since = (step - 1) % INTERVAL
            measured = np.abs(self.weight(output, step - 1 - since, layer + ".weight")).max()
            bound = np.float32(np.float64(measured) + since * RATE * factor)
            scale = np.float32(448) / bound
            if power_of_two:
                scale = np.exp2(np.floor(np.log2(scale)))
            for operand in ("forward.w", "dx.w"):
                found = [row for row in self.rows(output) if row["step"] == str(step) and row["layer"] == layer
                         and row["tensor"] == operand]
                for row in found:
                    self.assertEqual(np.float32(row["scale"]), scale, (layer, operand, step))
                self.assertEqual(len(found), 0 if layer == "a" and operand == "dx.w" else 1)

    def test_scales(self):
        self.run_it("run")
        self.check("run", "a"), self.check("run", "b")
        events = [row for row in self.rows("run", "events.csv") if row["event"] == "scale_measured"]
        self.assertEqual([row["step"] for row in events if (row["layer"], row["tensor"]) == ("b", "forward.w")],
                         ["1", "4", "7"])
        self.assertIn("predicted", events[-1]["message"])

    def test_groups_and_powers_of_two(self):
        self.run_it("run", "optimizer.groups=[{match: 'a.*', lr_factor: 2}]",
                    f"precision.operands.tensor_scaling={{kind: predicted, interval: {INTERVAL}, power_of_two: true}}")
        self.check("run", "a", factor=2, power_of_two=True), self.check("run", "b", power_of_two=True)

    def test_other_operands_have_scales_of_their_own(self):
        self.run_it("run")
        self.run_it("current", "precision.operands.tensor_scaling=current")
        one, other = ([row for row in self.rows(output) if row["step"] == "1" and row["tensor"].endswith(".x")]
                      for output in ("run", "current"))
        self.assertEqual(one, other)

    def test_a_resume(self):
        self.run_it("run")
        self.run_it("cut", steps=5)
        self.run_it("cut", resume=True)
        self.assertEqual(self.rows("run"), self.rows("cut"))
        self.assertEqual(self.rows("run", "events.csv"), self.rows("cut", "events.csv"))

    def test_refusals(self):
        for kind in ("sgd", "lion"):
            with self.subTest(kind), self.assertRaisesRegex(AssertionError, "adam and adamw"):
                self.run_it("run", kind=kind)
        with self.assertRaisesRegex(AssertionError, "hadamard"):
            self.run_it("run", "precision.operands.hadamard={products: [forward], size: 16}")


if __name__ == "__main__":
    unittest.main()
