"""A linear layer that starts at zero and takes one step of length 1, so that its new weights are minus
the sum of its gradients' parts; the parts are those of runs on single parts of the batch. Needs
numpy."""
import csv
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import safetensors_file  # noqa: E402

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
PARTS, ROWS, PIXELS = 4, 4, 96
# Bits of exponent and mantissa.
FORMATS = {"bf16": (8, 7), "fp16": (5, 10), "fp8_e5m2": (5, 2)}


def rounded(values, name):
    """To nearest even in a format, from fp32."""
    if name == "fp32":
        return values.astype(np.float32)
    exponent, mantissa = FORMATS[name]
    wide = values.astype(np.float64)
    least = 2 - 2 ** (exponent - 1)
    power = np.maximum(np.frexp(wide)[1] - 1, least) - mantissa
    near = np.ldexp(np.rint(np.ldexp(wide, -power)), power)
    most = (2 - 2.0 ** -mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
    return np.where(np.abs(near) > most, np.copysign(np.inf, wide), near).astype(np.float32)


class Batch:
    """PARTS parts of ROWS images, whose gradients differ in size from pixel to pixel and from part to
    part."""

    def __init__(self, folder, seed=5):
        self.folder = pathlib.Path(folder)
        draw = np.random.default_rng(seed)
        shape = (PARTS * ROWS, PIXELS)
        sizes = np.repeat(draw.integers(-9, 3, (PARTS, PIXELS)), ROWS, axis=0)
        self.images = np.ldexp(draw.standard_normal(shape), sizes).astype(np.float32)
        self.images[:, 7] = 0
        self.labels = draw.integers(0, 3, PARTS * ROWS)

    def write(self, name, first, count):
        take = slice(first, first + count)
        tensors = {}
        for split in ("train", "test"):
            tensors[split + ".images"] = ((count, PIXELS, 1, 1), self.images[take].tobytes())
            tensors[split + ".labels"] = ((count,), self.labels[take].astype("<i8").tobytes(), "I64")
        safetensors_file.write(self.folder / name, tensors)

    def run(self, output, *keys, first=0, parts=PARTS, launcher=(), step=1, resume=False):
        """One attempt on so many parts of the batch, from part `first` on."""
        data = f"{output}.safetensors"
        self.write(data, first * ROWS, parts * ROWS)
        config = {"seed": 3, "device": {"kind": "cpu", "threads": 1},
                  "data": {"dataset": "tensors", "path": data, "layout": "hwc",
                           "batch_size": parts * ROWS, "shuffle": False, "normalize": "none"},
                  "model": {"layers": [{"name": "fc", "kind": "linear", "features": 3, "bias": False}],
                            "classes": 3, "init": {"scheme": "constant", "value": 0}},
                  "scaling": {"policy": "none"}, "optimizer": {"kind": "sgd", "lr": 1},
                  "train": {"epochs": step, "max_steps": step}, "evaluate": {"every_epochs": 0}, "log": {"every": 1}}
        (self.folder / f"{output}.yaml").write_text(json.dumps(config), encoding="utf-8")
        command = [*launcher, BINARY, "train", f"{output}.yaml", "--output", output, "--no-progress",
                   "--resume" if resume else "--overwrite", *(["--set", *keys] if keys else [])]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def gradients(self, output):
        """Of the layer's weight [features, pixels], as the run's one step has taken them."""
        newest = sorted((self.folder / output / "checkpoints").glob("step-*.safetensors"))[-1]
        (shape, values), = [entry for name, entry in safetensors_file.read(newest).items()
                            if name == "fc.weight"]
        return -np.frombuffer(values, "<f4").reshape(shape)

    def of_parts(self, *keys):
        """The share of each part in the mean over the batch: a power of two, so exact."""
        got = []
        for part in range(PARTS):
            self.run(f"part{part}", *keys, first=part, parts=1)
            got.append(self.gradients(f"part{part}") / np.float32(PARTS))
        return got

    def counts(self, output, tensor):
        with open(self.folder / output / "underflow.csv", encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if row["tensor"] == tensor]
