"""Counts of whole runs on images that are worked out by hand: values that outgrow a scale of their
tensor's own, weight gradients that are rounded after each part of a batch, NaN in a format that has
none, entries of precision.layers that change nothing; gradients under `preset: autocast_cpu` beside
torch's (ADA_BENCH_PYTHON). ADA_BINARY names the program."""
import csv
import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

from tests.program_case import ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import safetensors_file  # noqa: E402

TORCH = os.environ.get("ADA_BENCH_PYTHON", sys.executable)
FC = [{"name": "fc", "kind": "linear", "features": 2, "bias": False}]
# The gradient by the input of an overlapping pool before a linear layer: torch's and the run's are
# fp32 sums of what the linear layer hands back in fp16.
AUTOCAST = """
import sys
import torch
from safetensors.torch import load_file
dump = {name: value.float() for name, value in load_file(sys.argv[1]).items()}
torch.manual_seed(1)

def gradients(x, layer, head):
    "By x, and by what the layer makes of it."
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.float16):
        y = layer(x)
        y.retain_grad()
        head(y).float().square().sum().backward()
    return x.grad, y.grad

pool = torch.nn.MaxPool2d(3, 1, 1)
x = dump["pool.x"]
flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), 5))
theirs, dy = gradients(x, pool, flat)

def of_pool(dy):
    "The gradient of the pool by hand, in fp32 from gradients that fp16 holds."
    y, places = torch.nn.functional.max_pool2d(x, 3, 1, 1, return_indices=True)
    dx = torch.zeros_like(x).flatten(2)
    return dx.scatter_add_(2, places.flatten(2), dy.flatten(2)).view_as(x)

assert dy.dtype == theirs.dtype == torch.float32
assert torch.equal(dy, dy.half().float()) and torch.equal(theirs, of_pool(dy))
assert not torch.equal(theirs, theirs.half().float())
ours = dump["pool.dy"]
assert torch.equal(ours, ours.half().float()) and ours.abs().max() > 0
assert torch.equal(dump["pool.dx"], of_pool(ours))
assert not torch.equal(of_pool(ours), of_pool(ours).half().float())
"""


def rows(path, **wanted):
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file)
                if all(row[key] == value for key, value in wanted.items())]


class CountedRuns(ProgramCase):
    def images(self, images):
        """Images of one row of pixels with one channel, as the file of the data set."""
        tensors = {}
        for split in ("train", "test"):
            flat = [value for image in images for value in image]
            tensors[split + ".images"] = ((len(images), len(images[0]), 1, 1),
                                          struct.pack(f"<{len(flat)}f", *flat))
            tensors[split + ".labels"] = ((len(images),), struct.pack(
                f"<{len(images)}q", *[i % 2 for i in range(len(images))]), "I64")
        safetensors_file.write(self.folder / "data.safetensors", tensors)
        return tensors

    def train(self, layers, batch, *more, **sections):
        config = {"seed": 3, "device": {"kind": "cpu", "threads": 1},
                  "data": {"dataset": "tensors", "path": "data.safetensors", "layout": "hwc",
                           "batch_size": batch, "shuffle": False, "normalize": "none"},
                  "model": {"layers": layers, "classes": 2}, "scaling": {"policy": "none"},
                  "optimizer": {"kind": "sgd", "lr": 1e-9}, "train": {"epochs": 1},
                  "evaluate": {"every_epochs": 0},
                  "log": {"every": 1, "statistics": ["y", "w", "dx", "dw", "dy"]}}
        for name, keys in sections.items():
            config[name] = {**config.get(name, {}), **keys}
        (self.folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
        return self.run_program("train", "run.yaml", "--output", "run", "--no-progress",
                                "--overwrite", *more)

    def counts(self, **wanted):
        return rows(self.folder / "run/underflow.csv", **wanted)

    def test_values_that_outgrow_a_scale_of_their_own(self):
        # Scaled by what fitted one step before, the two largest of each image leave the format;
        # in one with fp32's exponents they leave fp32 as well.
        unit = [-1.0, -0.75, -0.5, 0.0, 0.5, 0.75, 1.0, 0.25]
        self.images([[value * 1.5 ** step for value in unit]
                     for step in range(6) for _ in range(2)])
        wide = {"exponent": 8, "mantissa": 3}
        for form in ("bf16", wide, {**wide, "has_inf": False, "bias": 128}, "fp16", "fp8_e4m3"):
            with self.subTest(format=form):
                self.train(FC, 2, precision={
                    "format": form, "tensor_scaling": {"kind": "delayed", "history": 1}})
                found = self.counts(layer="input")
                self.assertEqual(len(found), 6)
                for step, row in enumerate(found):
                    self.assertEqual((row["inf"], row["nan"]), ("0", "0"))
                    self.assertEqual(float(row["max_abs"]), 1.5 ** step)
                    self.assertEqual(float(row["min_abs"]), 0.25 * 1.5 ** step)
                    self.assertEqual(row["zeros_before"], "2")
                    self.assertEqual(row["overflow"], "0" if step == 0 else "8")
                    self.assertAlmostEqual(float(row["l1"]), 9.5 * 1.5 ** step, 4)
                scales = [float(row["scale"]) for row in found]
                for before, after in zip(scales[1:], scales[2:]):
                    self.assertAlmostEqual(before / after, 1.5, 5)

    def test_weight_gradients_in_parts(self):
        tiny, none = [1e-5] * 10, [0.0] * 10
        for images in ([tiny, none], [none, tiny], [tiny, none, tiny, none]):
            self.images(images)
            parts = len(images)
            with self.subTest(parts=parts):
                self.train(FC, parts, precision={"format": "fp32", "weight_gradients": "fp8_e5m2"},
                           train={"accumulate": parts, "max_steps": 1},
                           log={"histogram_every": 1})
                (row,) = self.counts(tensor="dw")
                lost = 20 * images.count(tiny)  # each part's, which nothing before it could help
                self.assertEqual(int(row["numel"]), 20 * parts)
                self.assertEqual(int(row["zeros_before"]), 20 * parts - lost)
                self.assertEqual(int(row["underflow"]), lost)
                self.assertEqual(int(row["zeros_after"]), 20 * parts)
                self.assertGreater(float(row["max_abs"]), 0)
                binned = rows(self.folder / "run/histograms.csv", tensor="dw")
                self.assertEqual(sum(int(r["count"]) for r in binned), 20 * parts)
                # A sum that nothing rounds is counted once, when it is complete.
                self.train(FC, parts, precision={"format": "fp32"},
                           train={"accumulate": parts, "max_steps": 1})
                (row,) = self.counts(tensor="dw")
                self.assertEqual((row["numel"], row["zeros_before"]), ("20", "0"))

    def test_nan_where_there_is_none(self):
        # Products with the first image leave fp32, so that its logits have no softmax; the gradient
        # of the other is -0.25 and 0.25, or near.
        self.images([[3e38] * 8, [0.0] * 8])
        for form, zeros in (("fp6_e3m2", "2"), ("fp4_e2m1", "4"), ("fp8_e4m3", "0"), ("fp16", "0")):
            with self.subTest(format=form):
                self.train(FC, 2, precision={"format": "fp32", "gradients": form})
                (row,) = self.counts(layer="loss", tensor="dx")
                self.assertEqual((row["nan"], row["inf"], row["zeros_before"]), ("2", "0", "0"))
                self.assertEqual(row["zeros_after"], zeros)
                self.assertEqual(row["underflow"], "2" if form == "fp4_e2m1" else "0")

    def test_entries_that_change_nothing(self):
        self.images([[1.0] * 16] * 2)
        layers = [{"name": "l0", "kind": "linear", "features": 12}, {"name": "r", "kind": "relu"},
                  {"name": "flat", "kind": "flatten"}, {"name": "bn", "kind": "batch_norm"}] + FC
        for entry, told in (({"match": "r", "format": "fp8_e4m3"}, "has no effect"),
                            ({"match": "fl*", "gradients": "bf16"}, "has no effect"),
                            ({"match": "bn", "weights": "bf16"}, "has no effect"),
                            ({"match": "bn", "weight_gradients": "bf16"}, "has no effect"),
                            ({"match": "input", "gradients": "bf16"}, "has no effect"),
                            ({"match": "nothing*", "format": "bf16"}, "matches no layer"),
                            ({"match": "*l*", "format": "bf16"}, None),
                            ({"match": "bn", "activations": "bf16"}, None),
                            ({"match": "fc", "weight_gradients": "bf16"}, None),
                            ({"match": "r*", "format": "bf16"}, "has no effect"),
                            ({"match": "input", "activations": "bf16"}, None)):
            for key in ("layers", "schedule"):
                with self.subTest(entry=entry, key=key):
                    precision = {"format": "fp16", "layers": [entry]}
                    if key == "schedule":
                        precision["layers"] = []
                        precision["schedule"] = [{"from_step": 2, "layers": [entry]}]
                    done = self.train(layers, 1, "--dry-run", precision=precision)
                    warnings = [line for line in done.stdout.splitlines()
                                if "[].match: '" in line and "warning" in line]
                    self.assertEqual(len(warnings), 0 if told is None else 1, done.stdout)
                    for line in warnings:
                        self.assertIn(f"'{entry['match']}' {told}", line)

    def test_entries_for_layers_that_decide_no_scale(self):
        self.images([[1.0] * 16] * 2)
        layers = [{"name": "l0", "kind": "linear", "features": 12}, {"name": "r", "kind": "relu"},
                  {"name": "flat", "kind": "flatten"}, {"name": "bn", "kind": "batch_norm"}] + FC
        for match, told in (("r", "has no effect"), ("bn", "has no effect"),
                            ("l0", "has no effect"),  # nothing reads its dx
                            ("nothing*", "matches no layer"), ("fc", None), ("*", None)):
            with self.subTest(match=match):
                done = self.train(layers, 1, "--dry-run", precision={"format": "fp16"},
                                  scaling={"policy": "adaptive",
                                           "layers": [{"match": match, "underflow_target": 0.01}]})
                warnings = [line for line in done.stdout.splitlines()
                            if "scaling.layers[].match: '" in line and "warning" in line]
                self.assertEqual(len(warnings), 0 if told is None else 1, done.stdout)
                for line in warnings:
                    self.assertIn(f"'{match}' {told}", line)

    def test_entries_reach_the_input(self):
        self.images([[1.0] * 16] * 2)
        for entries, form in (([{"match": "input", "activations": "bf16"}], "bf16"),
                              ([{"match": "*", "format": "fp8_e4m3"}], "fp8_e4m3"),
                              ([{"match": "*", "format": "bf16"},
                                {"match": "input", "format": "fp32"}], "fp32"),
                              ([{"match": "fc", "format": "bf16"}], "fp16"),
                              ([{"match": "*", "gradients": "bf16"}], "fp16")):
            with self.subTest(entries=entries):
                self.train(FC, 2, precision={"format": "fp16", "layers": entries})
                (row,) = self.counts(layer="input")
                self.assertEqual(row["format"], form)

    def test_autocast_of_a_pool_beside_torch(self):
        if subprocess.run([TORCH, "-c", "import torch, safetensors"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("torch is missing (ADA_BENCH_PYTHON names a Python that has it)")
        side, channels = 8, 4
        flat = [((7 * i * i + 3 * i) % 101 - 50) / 32 for i in range(3 * side * side * channels)]
        tensors = {}
        for split in ("train", "test"):
            tensors[split + ".images"] = ((3, side, side, channels),
                                          struct.pack(f"<{len(flat)}f", *flat))
            tensors[split + ".labels"] = ((3,), struct.pack("<3q", 0, 1, 0), "I64")
        safetensors_file.write(self.folder / "data.safetensors", tensors)
        layers = [{"name": "conv", "kind": "conv2d", "channels": channels, "kernel": 1},
                  {"name": "norm", "kind": "l2_normalize"}, {"name": "relu", "kind": "relu"},
                  {"name": "pool", "kind": "max_pool", "kernel": 3, "stride": 1, "padding": 1}] + FC
        self.train(layers, 3, precision={"preset": "autocast_cpu", "format": "fp16"},
                   log={"dump_every": 1})
        self.assertEqual([r["format"] for r in self.counts(layer="pool", tensor="dx")], ["fp32"])
        self.assertEqual([r["format"] for r in self.counts(layer="fc", tensor="dx")], ["fp16"])
        self.assertEqual([r["format"] for r in self.counts(layer="norm", tensor="y")], ["fp16"])
        subprocess.run([TORCH, "-c", AUTOCAST, self.folder / "run/dump/step-00000001.safetensors"],
                       check=True)


if __name__ == "__main__":
    unittest.main()
