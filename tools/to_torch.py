#!/usr/bin/env python3
"""Writes what a run learnt as a PyTorch state dict: module.load_state_dict(..., strict=True) takes
it. CHECKPOINT is a run's folder (its newest checkpoint) or a safetensors file. --net names the
folder in which from_torch.py wrote the network: tensors get the names and shapes that the module
has, and what the network has no layer for (counters, constants, parts that are not used) is taken
from there, as it was. Without --net names stay as they are, which are PyTorch's.

Exit status: 0; 1 packages missing; 2 command line; 3 a file that is damaged or does not fit; 6
cannot write.
"""
import argparse
import io
import json
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from help_format import WrappedHelp  # noqa: E402

EXAMPLES = """examples:
  tools/to_torch.py runs/a --net net --output trained.safetensors
  tools/to_torch.py runs/a --best --net net --output trained.pt
then, in Python:
  state = safetensors.torch.load_file("trained.safetensors")
  module.load_state_dict(state, strict=True)
  module.load_state_dict(torch.load("trained.pt"), strict=True)
"""


def parser():
    result = argparse.ArgumentParser(
        prog="to_torch.py", formatter_class=WrappedHelp,
        description=__doc__, epilog=EXAMPLES)
    result.add_argument("checkpoint", metavar="CHECKPOINT", help="a run's folder, or a file")
    result.add_argument("--output", "-o", required=True, metavar="FILE",
                        help="*.safetensors, or *.pt and *.pth (needs torch)")
    result.add_argument("--net", metavar="FOLDER", help="where from_torch.py wrote the network")
    result.add_argument("--best", action="store_true", help="of a folder: the best checkpoint")
    result.add_argument("--average", action="store_true", help="the averaged weights (train.ema)")
    return result


def fail(code, message):
    print(f"to_torch.py: {message}", file=sys.stderr)
    sys.exit(code)


def own_names(weights, numpy):
    """Names as they are; batch norms count their batches in PyTorch."""
    state = dict(weights)
    for name in weights:
        layer, dot, last = name.rpartition(".")
        if last == "running_mean":
            state[f"{layer}{dot}num_batches_tracked"] = numpy.array(0, numpy.int64)
    return state


def in_modules_order(value, shape, order, numpy):
    """The values of a tensor of `shape` as they lie in the module. `order`: how from_torch.py changed
    that, first `view` and `axes`, a shape and how its axes are permuted, then `rows`, (first row,
    count) one after the other; or the word transposed."""
    if order == "transposed":
        order = {"view": shape, "axes": [1, 0]}
    if "rows" in order:
        rows = numpy.concatenate([numpy.arange(first, first + count) for first, count in order["rows"]])
        sorted_rows = numpy.empty_like(value).reshape(len(rows), -1)
        sorted_rows[rows] = value.reshape(len(rows), -1)
        value = sorted_rows
    if "axes" in order:
        axes = order["axes"]
        value = value.reshape([order["view"][axis] for axis in axes]).transpose(numpy.argsort(axes))
    return numpy.ascontiguousarray(value)


def module_names(weights, folder, numpy, checkpoint):
    """As the module that from_torch.py was given has them."""
    path = os.path.join(folder, "torch.safetensors")
    state, metadata = checkpoint.tensors_of(path)
    if "names" not in metadata:
        raise checkpoint.CannotRead(f"{path}: not written by from_torch.py")
    state = {name: t for name, t in state.items() if name != "nothing"}
    came_from = {}
    for ours, (names, shape, *order) in json.loads(metadata["names"]).items():
        if ours not in weights:
            raise checkpoint.CannotRead(f"the checkpoint has no {ours}: it is of another network "
                                        f"than {folder}")
        value = checkpoint.shaped(weights.pop(ours), [math.prod(shape)], ours)
        for changed in order:
            value = in_modules_order(value, shape, changed, numpy)
        value = value.reshape(shape)
        for name in names:
            if name in came_from and not numpy.array_equal(state[name], value, equal_nan=True):
                raise checkpoint.CannotRead(
                    f"{name}: {came_from[name]} and {ours}, which shared it, were trained apart "
                    "(from_torch.py --untie); the module cannot hold both")
            state[name], came_from[name] = value, ours
    constants = json.loads(metadata.get("constants", "[]"))
    unknown = [name for name in weights if name not in constants]
    if unknown:
        raise checkpoint.CannotRead(f"{path} knows nothing of {unknown[0]}: the checkpoint is of "
                                    "another network")
    return state


def write(state, path, pickled):
    if pickled:
        import torch
        whole = io.BytesIO()  # torch's writer of files has no word for a full disk
        torch.save({name: torch.from_numpy(t.copy()) for name, t in state.items()}, whole)
        with open(path, "wb") as file:
            file.write(whole.getbuffer())
    else:
        from safetensors.numpy import save_file
        save_file(state, path, {"format": "pt"})


def main():
    options = parser().parse_args()
    try:
        import numpy
        import safetensors  # noqa: F401
        if options.output.endswith((".pt", ".pth")):
            import torch  # noqa: F401
    except ImportError as error:
        fail(1, f"{error}; needs numpy and safetensors (and torch for .pt and .pth)")
    if not options.output.endswith((".pt", ".pth", ".safetensors")):
        fail(2, f"--output {options.output}: expected *.safetensors, *.pt or *.pth")
    import whole_file
    from trained_network import checkpoint
    try:
        found = checkpoint.find(options.checkpoint, options.best)
        read = [found, found.removesuffix(".safetensors") + ".json"]
        read += [os.path.join(options.net, "torch.safetensors")] if options.net else []
        refused = whole_file.refusal(options.output, read)
        if refused:
            fail(2, f"--output {refused}")
        weights = checkpoint.weights_of(found, options.average)
        state = (module_names(weights, options.net, numpy, checkpoint) if options.net
                 else own_names(weights, numpy))
    except checkpoint.CannotRead as error:
        fail(3, error)
    try:
        whole_file.replace(options.output, lambda temporary: write(
            state, temporary, not options.output.endswith(".safetensors")))
    except OSError as error:
        fail(6, f"{options.output}: {error.strerror or error}")
    values = sum(t.size for t in state.values())
    print(f"{options.output}: {len(state)} tensors, {values} values, of {found}")


if __name__ == "__main__":
    main()
