"""A run's checkpoint: its tensors, and the configuration that stands beside them."""
import json
import os

import numpy
from safetensors import SafetensorError, safe_open

STATES = ("optimizer.", "ema.")  # of training, not of the network


class CannotRead(Exception):
    """A file, and what is wrong with it."""


def find(path, best=False):
    """The safetensors file that `path`, a run's folder or a file, names."""
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise CannotRead(f"{path}: no such file or folder")
        return path
    folder = os.path.join(path, "checkpoints")
    files = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if best:
        wanted = [name for name in files if name == "best.safetensors"]
    else:
        wanted = [name for name in files
                  if name.startswith("step-") and name.endswith(".safetensors")]
    if not wanted:
        raise CannotRead(f"{folder}: no {'best' if best else 'step-*'}.safetensors"
                         + ("; checkpoint.best keeps one" if best else ""))
    return os.path.join(folder, wanted[-1])


def tensors_of(path):
    """All tensors of a safetensors file, and its metadata."""
    try:
        with safe_open(path, "np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CannotRead(f"{path}: {error}") from error


def weights_of(path, average=False):
    """The network's tensors in a checkpoint, or with `average` their averages (train.ema)."""
    tensors, _ = tensors_of(path)
    if average:
        found = {name[len("ema."):]: t for name, t in tensors.items() if name.startswith("ema.")}
        if not found:
            raise CannotRead(f"{path}: no averaged weights; train.ema keeps them")
        return found
    return {name: t for name, t in tensors.items() if not name.startswith(STATES)}


def state_of(path):
    """What stands beside a checkpoint as JSON; {} where nothing does."""
    beside = os.path.splitext(path)[0] + ".json"
    if not os.path.exists(beside):
        return {}
    try:
        with open(beside, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise CannotRead(f"{beside}: {error}") from error


def shaped(tensor, shape, name):
    if numpy.prod(shape, dtype=numpy.int64) != tensor.size:
        raise CannotRead(f"{name}: of shape {list(tensor.shape)}; expected {list(shape)}")
    return numpy.ascontiguousarray(tensor.reshape(shape))
