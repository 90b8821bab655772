"""Steps that ada-train recorded, for PyTorch to train as well: first weights of a checkpoint, batches
of dumps."""
import json

import torch


def tensors_of(path):
    """The fp32 tensors of a safetensors file by name, in the order of their data."""
    raw = bytearray(path.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    entries = sorted(header.items(), key=lambda entry: entry[1]["data_offsets"])
    body = memoryview(raw)[8 + length:]
    return {name: torch.frombuffer(body[slice(*entry["data_offsets"])], dtype=torch.float32)
            .reshape(entry["shape"]) for name, entry in entries if entry["dtype"] == "F32"}


def first_weights(network, path):
    """Gives a network the parameters of a checkpoint, which lie in PyTorch's order."""
    given = [tensor for name, tensor in tensors_of(path).items()
             if not name.startswith("optimizer.") and not name.endswith(("running_mean",
                                                                         "running_var"))]
    with torch.no_grad():
        for parameter, tensor in zip(network.parameters(), given, strict=True):
            if parameter.shape != tensor.shape:
                raise ValueError(f"{path}: {list(tensor.shape)} for {list(parameter.shape)}")
            parameter.copy_(tensor)


def recorded_batches(folder):
    """Yields (images, labels, gradient) of each step: x and dw of the first layer, and where the
    loss gradient is below zero, which it is at the label alone."""
    for path in sorted(folder.glob("step-*.safetensors")):
        tensors = tensors_of(path)
        layer = next(name for name in tensors if name.endswith(".w")).removesuffix(".w")
        yield tensors[layer + ".x"], tensors["loss.dx"].argmin(1), tensors[layer + ".dw"]
