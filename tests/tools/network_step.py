"""What ada-train makes of a network for a given batch: its outputs in evaluation, and one training
step in fp32. And the formula that fills weights in golden/models."""
import csv
import json
import os
import struct
import subprocess

import numpy

from safetensors_file import write_arrays

TYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64, "I32": numpy.int32,
         "U8": numpy.uint8, "U16": numpy.uint16}


class Tensors:
    """A file of safetensors; arrays are read when they are asked for."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            self.entries = json.loads(file.read(length))
        self.entries.pop("__metadata__", None)
        self.start = 8 + length

    def __contains__(self, name):
        return name in self.entries

    def __getitem__(self, name):
        entry = self.entries[name]
        begin, end = entry["data_offsets"]
        with open(self.path, "rb") as file:
            file.seek(self.start + begin)
            data = file.read(end - begin)
        return numpy.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"])


def formula(count, tensor, seed=0):
    """`count` numbers in [-1, 1) of tensor number `tensor`: a hash of the element's index."""
    with numpy.errstate(over="ignore"):
        h = (numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(2654435761)
             + numpy.uint32(tensor * 40503 & 0xFFFFFFFF) + numpy.uint32(seed * 2246822519 & 0xFFFFFFFF))
        h ^= h >> numpy.uint32(16)
        h *= numpy.uint32(0x85EBCA6B)
        h ^= h >> numpy.uint32(13)
        h *= numpy.uint32(0xC2B2AE35)
        h ^= h >> numpy.uint32(16)
    return h.astype(numpy.float64) / 2.0 ** 31 - 1


def formula_parameter(number, kind, shape, seed=0):
    """A parameter of golden/models: `kind` is weight, gamma or bias."""
    values = formula(int(numpy.prod(shape)), number, seed)
    if kind == "weight":
        values *= numpy.sqrt(6.0 / numpy.prod(shape[1:]))
    elif kind == "gamma":
        values = 1.0 + 0.2 * values
    else:
        values *= 0.1
    return values.astype(numpy.float32).reshape(shape)


def write_images(path, images, labels):
    """`images`: fp32, [n, c, h, w]; the same ones for training and test."""
    pixels = numpy.ascontiguousarray(images.transpose(0, 2, 3, 1), numpy.float32)
    labels = numpy.asarray(labels, numpy.int64)
    write_arrays(path, {"train.images": pixels, "train.labels": labels,
                         "test.images": pixels, "test.labels": labels})


def configuration(net, weights, images, count, more=""):
    return f"""
model: {{file: {net}, init: {{weights: {weights}, require_all: true}}}}
data: {{dataset: tensors, path: {images}, batch_size: {count}, evaluate_batch_size: {count},
  shuffle: false, normalize: none}}
evaluate: {{every_epochs: 0}}
{more}"""


def call(binary, arguments, folder):
    done = subprocess.run([str(binary), *map(str, arguments)], cwd=folder, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ada-train {' '.join(map(str, arguments))}: exit {done.returncode}\n"
                           f"{done.stderr}")
    return done


def outputs(binary, folder, config):
    """Logits in evaluation, as the weights file has the network."""
    call(binary, ["evaluate", "-c", config, "--outputs", "outputs.safetensors", "--no-progress"],
         folder)
    return Tensors(os.path.join(folder, "outputs.safetensors"))["outputs"]


STEP = """
optimizer: {{kind: sgd, lr: 1e-30, momentum: 0.9}}
train: {{max_steps: 1}}
log: {{every: 1, statistics: [], dump_every: 1, dump: [{last}]}}
"""


class Step:
    """One step in fp32: loss, logits in training, gradients (momentum's first value is the gradient
    itself), running statistics afterwards."""

    def __init__(self, binary, folder, config):
        call(binary, ["train", config, "--output", "run", "--no-progress", "--overwrite"], folder)
        run = os.path.join(folder, "run")
        with open(os.path.join(run, "steps.csv"), encoding="utf-8") as file:
            self.loss = float(next(csv.DictReader(file))["loss"])
        self.tensors = Tensors(os.path.join(run, "checkpoints", "step-00000001.safetensors"))
        self.dump = Tensors(os.path.join(run, "dump", "step-00000001.safetensors"))

    def gradient(self, name):
        return self.tensors[f"optimizer.{name}.momentum"]
