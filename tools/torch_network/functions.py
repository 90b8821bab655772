"""Functions and methods of tensors as layers."""
import inspect
import operator

import torch
from torch.nn import functional as F

from .modules import (adaptive_avg, adaptive_max, clipped, drop_branch, dropped, dropped_channels,
                      flattened, gelu, leaky, permuted, pool_avg, pool_max, upsample)
from .network import Value

try:
    from torchvision.ops import stochastic_depth
except ImportError:
    stochastic_depth = None


def pointwise(kind):
    return lambda call, x, inplace=False: call.pointwise(kind, x)


def both_values(call, a, b):
    if not isinstance(a, Value) or not isinstance(b, Value):
        call.refuse("expected two tensors that the network computed")
    if a.form != b.form:
        call.refuse("of tensors whose axes lie in different orders")


def add(call, a, b, alpha=1):
    both_values(call, a, b)
    if a.size != b.size or alpha != 1:
        call.refuse(f"of {list(a.size)} and {list(b.size)}; only of equal shapes, without alpha")
    return call.layer("add", [a, b], a)


def multiply(call, a, b):
    tensors = [v for v in (a, b) if isinstance(v, torch.nn.Parameter)]
    if tensors:
        return channel_scale(call, a if isinstance(b, torch.nn.Parameter) else b, tensors[0])
    both_values(call, a, b)
    large, gate = (b, a) if a.is_vector and not b.is_vector else (a, b)
    if gate.size != large.size and (not gate.is_vector or gate.channels != large.channels):
        call.refuse(f"of {list(a.size)} and {list(b.size)}; only of equal shapes, or by one number "
                    "a channel")
    if gate.form == "flat" and gate.size != large.size:
        call.refuse("of [n, c] and a larger tensor")
    return call.layer("multiply", [large, gate], large)


def channel_scale(call, x, scale):
    if not isinstance(x, Value):
        call.refuse("of two parameters")
    shape = list(scale.shape)
    wanted = {"rows": ([x.channels, 1, 1], [1, x.channels, 1, 1]),
              "pixels": ([x.channels], [1, 1, 1, x.channels]),
              "flat": ([x.channels], [1, x.channels]) if x.is_vector else ()}[x.form]
    if shape not in [list(w) for w in wanted]:
        call.refuse(f"by a parameter of shape {shape}; only by one number a channel")
    first = float(scale.detach().flatten()[0])
    keys = {"value": float(f"{first:.7g}")} if bool((scale == scale.flatten()[0]).all()) else {}
    return call.layer("channel_scale", [x], x, keys, {"weight": (scale, [x.channels])},
                      name=call.converter.parameter_path(scale))


def concat(call, tensors, dim=0, axis=None):
    dim = dim if axis is None else axis
    if not tensors or any(not isinstance(t, Value) for t in tensors):
        call.refuse("expected a list of tensors that the network computed")
    first = tensors[0]
    same = all(t.form == first.form and t.size[1:] == first.size[1:] for t in tensors)
    axes = {"rows": (1, -3), "pixels": (3, -1), "flat": (1, -1)}[first.form]
    if not same or dim not in axes:
        call.refuse(f"along axis {dim}; only of channels, of equal heights and widths")
    if len(tensors) == 1:
        return first
    output = Value("", first.form, sum(t.channels for t in tensors), *first.size[1:])
    return call.layer("concat", list(tensors), output)


def mean(call, x, dim=None, keepdim=False):
    dims = [dim] if isinstance(dim, int) else dim
    axes = {"rows": [2, 3], "pixels": [1, 2]}.get(x.form)
    if dims is None or axes is None or sorted(d % 4 for d in dims) != axes:
        call.refuse(f"over axes {dims}; only over height and width")
    output = Value("", x.form if keepdim else "flat", x.channels)
    return call.layer("global_avg_pool", [x], output)


def expanded(call, x, *unused):
    shape = call.node.meta["shape"]
    if x.form != "rows" or not x.is_vector or len(shape) != 4 or shape[1] != x.channels:
        call.refuse("only of [n, c, 1, 1] to an image's height and width")
    return x  # a product takes it as it is; nothing else does


def same(call, x, *unused, **unused_too):
    return x


def reordered(call, x, *dims):
    return permuted(call, x, dims[0] if len(dims) == 1 else dims)


def reshaped(call, x, *unused, **unused_too):
    return flattened(call, x)


def indexed(call, x, index):
    if isinstance(x, Value) and x.is_vector and call.node.meta["shape"][1:] == (x.channels,):
        return flattened(call, x)
    return call.refuse("takes a part of a tensor (networks with transform_input: give --arg "
                       "transform_input=False and normalize images by mean 0.5, std 0.5)")


def dropout(call, x, p=0.5, training=True, inplace=False):
    return dropped(call, x, p, training)


def feature_dropout(call, x, p=0.5, training=True, inplace=False):
    return dropped_channels(call, x, p, training)


def leaky_relu(call, x, negative_slope=0.01, inplace=False):
    return leaky(call, x, negative_slope)


def hardtanh(call, x, min_val=-1.0, max_val=1.0, inplace=False):
    return clipped(call, x, min_val, max_val)


def avg_pool1(call, x, output_size):
    return adaptive_avg(call, x, output_size)


# By name, for functions (torch.relu, F.relu) and methods (x.relu_) alike.
BY_NAME = {
    **{kind: pointwise(kind) for kind in
       ("relu", "relu6", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid")},
    "leaky_relu": leaky_relu, "hardtanh": hardtanh, "gelu": gelu,
    "add": add, "mul": multiply, "multiply": multiply, "cat": concat, "concat": concat,
    "concatenate": concat, "mean": mean, "dropout": dropout, "dropout2d": feature_dropout,
    "max_pool2d": pool_max, "avg_pool2d": pool_avg, "adaptive_avg_pool2d": avg_pool1,
    "adaptive_max_pool2d": adaptive_max, "interpolate": upsample, "upsample": upsample,
    "flatten": reshaped, "reshape": reshaped, "view": reshaped, "squeeze": reshaped,
    "unsqueeze": reshaped, "unflatten": reshaped, "permute": reordered, "contiguous": same,
    "clone": same, "expand": expanded, "expand_as": expanded,
}
FUNCTIONS = {operator.add: add, operator.iadd: add, operator.mul: multiply,
             operator.imul: multiply, operator.getitem: indexed}
if stochastic_depth is not None:
    FUNCTIONS[stochastic_depth] = drop_branch
# max_pool2d is chosen at run time between two functions of torch.
NAMES = {"boolean_dispatch": "max_pool2d", "_max_pool2d": "max_pool2d",
         "_adaptive_max_pool2d": "adaptive_max_pool2d", "fn": "max_pool2d"}
# Changed in place: PyTorch's later readers of the same tensor see the change.
IN_PLACE = {operator.iadd, operator.imul}


def name_of(target):
    """A function or a method's name without the underscore of its form that works in place."""
    if isinstance(target, str):
        return target.removesuffix("_")
    if target is F.max_pool2d:
        return "max_pool2d"
    if target is F.adaptive_max_pool2d:
        return "adaptive_max_pool2d"
    name = getattr(target, "__name__", str(target))
    return NAMES.get(name, name).removesuffix("_")


def works_in_place(node):
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if target in IN_PLACE or (name.endswith("_") and not name.endswith("__")):
        return True
    try:
        given = inspect.signature(target).bind(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # a method, or written in C++: without such an argument
        given = node.kwargs
    return given.get("inplace") is True


def of_torch(target):
    """A function of torch's own, or an operator: what its name says it is."""
    module = getattr(target, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "_operator", "operator", "")


def handler_of(target):
    """The function that makes a layer of a call of `target`; None: there is none."""
    if isinstance(target, str):
        return BY_NAME.get(name_of(target))
    if target in FUNCTIONS:
        return FUNCTIONS[target]
    return BY_NAME.get(name_of(target)) if of_torch(target) else None
