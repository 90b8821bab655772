"""Sums, products, constants, and tensors side by side."""
import dataclasses
import numbers as numeric

import torch

from .network import CannotExpress, Stored, Value
from .noise import Noise, dropped_by
from .pending import Function, Mix, number
from .products import tokens
from .tokens import class_token, positions, source_of
from .views import BATCH, is_gate, is_whole, like, numbers, whole


# --- Two tensors that the network computed ---

def alike(call, a, b):
    """Both in the same order of axes; moved elements stay where both are moved alike."""
    both_other = a.form == b.form == "other" and not a.padding and not b.padding
    if both_other and a.size == b.size and torch.equal(a.index, b.index) and is_whole(a):
        return a, b
    a, b = call.tensor(a), call.tensor(b)
    if a.form != b.form:
        call.refuse("of tensors whose axes lie in different orders")
    return a, b


def sum_of(call, a, b):
    one, other = sorted((a, b), key=lambda v: v.width)
    if one.size == (other.channels, other.height * other.width, 1) != other.size:
        call.refuse(f"of {one.height} tokens and the pixels of {other.height}x{other.width}; no layer but positions "
                    "and a class token makes a sequence of an image")
    a, b = alike(call, a, b)
    if a.size != b.size:
        call.refuse(f"of {list(a.size)} and {list(b.size)}; only of equal shapes: repeat the "
                    "smaller one with F.interpolate")
    if a.layer == b.layer:
        return affine(call, a, 2.0, 0.0)
    return call.layer("add", [a, b], a)


def product_of(call, a, b):
    if is_gate(a) or is_gate(b):
        a, b = (Value(v.layer, "rows", v.channels) if is_gate(v) else v for v in (a, b))
    a, b = alike(call, a, b)
    large, gate = (b, a) if a.is_vector and not b.is_vector else (a, b)
    if gate.size != large.size and (not gate.is_vector or gate.channels != large.channels):
        call.refuse(f"of {list(a.size)} and {list(b.size)}; only of equal shapes, or by one number "
                    "a channel")
    if gate.form == "flat" and gate.size != large.size:
        call.refuse("of [n, c] and a larger tensor")
    return call.layer("multiply", [large, gate], large)


# --- A tensor and a constant or a parameter ---

def by_channel(call, x, constant, what):
    """`constant` as PyTorch would spread it over `x`: a number for each channel of the layer."""
    if isinstance(constant, numeric.Number):
        return float(constant)
    index = numbers(x)
    try:
        spread = constant.detach().to(torch.float32).expand(index.shape)
    except RuntimeError:
        return call.refuse(f"{what} of shape {list(constant.shape)} makes the tensor larger")
    values = torch.full((whole(x).numel(),), float("nan"))
    values[index.flatten()] = spread.flatten()
    values = values.reshape(BATCH, *x.size)
    first = values[0, :, 0, 0]
    if not torch.equal(values, first[:, None, None].expand(values.shape)):
        if call.converter.network.is_sequence(x.layer):
            call.refuse(f"{what} of shape {list(constant.shape)} that differs between tokens; positions "
                        "that are added are trained: an nn.Parameter or nn.Embedding")
        call.refuse(f"{what} of shape {list(constant.shape)} that differs between pixels; only one "
                    "number, or one a channel")
    return float(first[0]) if bool((first == first[0]).all()) else first


def shortest(value):
    """The decimal number of fewest digits that is this one in fp32."""
    return next(number for number in (float(f"{float(value):.{d}g}") for d in range(1, 18))
                if float(torch.tensor(number)) == float(value))


def affine(call, x, factor, offset):
    """x times `factor` plus `offset`, both untrained; several in a row become one layer."""
    x = call.pointwise_tensor(x)
    factor, offset = (by_channel(call, x, v, "a constant") for v in (factor, offset))
    network = call.converter.network
    before = network.find(x.layer)
    if before is not None and before.kind == "affine":
        first, base = [before.tensors[n][0] for n in ("factor", "offset")], before.inputs[0]
        offset = first[1] * factor + offset
        factor = first[0] * factor
        x = like(x, base)
    ones = torch.ones(x.channels)
    factor, offset = ones * factor, ones * offset
    if bool((factor == 1).all()) and bool((offset == 0).all()):
        return x
    keys = {name: shortest(values[0])
            for name, values, plain in (("factor", factor, 1), ("offset", offset, 0))
            if bool((values == values[0]).all()) and float(values[0]) != plain}
    tensors = {"factor": (factor, [x.channels]), "offset": (offset, [x.channels])}
    return call.layer("affine", [x], x, keys, tensors)


def is_one_a_channel(call, x, parameter):
    """Whether PyTorch spreads `parameter` over `x` as one number a channel, in their order."""
    places = torch.arange(1.0, parameter.numel() + 1)
    spread = by_channel(call, x, places.reshape(parameter.shape), "a parameter")
    return torch.equal(torch.ones(x.channels) * spread, torch.arange(1.0, x.channels + 1))


def channel_scale(call, x, scale):
    x = call.pointwise_tensor(x)
    parameter = call.converter.weights.parameter(scale)
    if parameter is None:
        call.refuse("by a tensor that is computed from parameters; ada-train trains what the layer "
                    "multiplies by: write it into a parameter of one number a channel")
    if not is_one_a_channel(call, x, scale):
        call.refuse(f"by a parameter of shape {list(scale.shape)}; only by one number a channel: "
                    f"give it the shape [{x.channels}, 1, 1]")
    tensors = {"weight": (parameter, [x.channels])}
    weights, network = call.converter.weights, call.converter.network
    before = network.find(x.layer)
    if before is not None and before.kind == "l2_normalize" and not before.tensors:
        weights.taken(call, parameter, before.name)
        before.tensors = {name: Stored(*t) for name, t in tensors.items()}
        return x
    first = parameter.detach().flatten()[0]
    keys = {"value": shortest(first)} if bool((parameter == first).all()) else {}
    name = weights.taken(call, parameter, weights.names[id(parameter)])
    return call.layer("channel_scale", [x], x, keys, tensors, name)


def prelu(call, x, weight):
    """The slope of all values, or of the channels on axis 1."""
    if weight.numel() == 1:
        x = call.pointwise_tensor(x)
    else:
        x = call.tensor(x)
        if x.form == "pixels" or (x.form == "flat" and not x.is_vector):
            call.refuse("of a slope for each channel, which are not on axis 1 here")
    parameter = call.trained(weight, "slope")
    first = parameter.detach().flatten()[0]
    keys = {"per_channel": True} if weight.numel() > 1 else {}
    if bool((parameter == first).all()) and float(first) != 0.25:
        keys["value"] = shortest(first)
    name = call.converter.weights.layer_name(call, parameter)
    return call.layer("prelu", [x], x, keys, {"weight": (parameter, [weight.numel()])}, name)


def bias_of_product(call, x, bias):
    """x + bias by channel, where x comes from a layer of weights that has no bias: the layer with one.
    None: it does not."""
    network = call.converter.network
    before, parameter = network.find(x.layer), call.converter.weights.parameter(bias)
    if before is None or before.keys.get("bias", True) or parameter is None or (
            parameter.numel() != x.channels):
        return None
    try:
        if not is_one_a_channel(call, x, bias):
            return None
    except CannotExpress:
        return None
    keys = {key: value for key, value in before.keys.items() if key != "bias"}
    name = network.unique(before.name, True)
    base = Value(before.inputs[0], "rows", 1)  # its name alone counts
    network.add(name, before.kind, [base], before.output, keys,
                {**before.tensors, "bias": (parameter, [x.channels])})
    network.layers[-1].instead_of = before.name
    weights = call.converter.weights
    weights.used.update({key: name for key, user in weights.used.items() if user == before.name})
    return like(x, name)


def scale_and_bias(call, x, bias):
    """x * factor + bias by channel, both trained: a 1x1 convolution of each channel alone. None: no
    such factor stands before."""
    before = call.converter.network.find(x.layer)
    parameter = call.converter.weights.parameter(bias)
    if before is None or before.kind != "channel_scale" or parameter is None or (
            parameter.numel() != x.channels) or not is_one_a_channel(call, x, bias):
        return None
    factor, base = before.tensors["weight"][0], like(x, before.inputs[0])
    tensors = {"weight": (factor, [x.channels, 1, 1, 1]), "bias": (parameter, [x.channels])}
    keys = {"channels": x.channels, "kernel": 1, "groups": x.channels}
    return call.layer("conv2d", [base], x, keys, tensors)


def trained(call, other):
    return isinstance(other, torch.Tensor) and other.requires_grad


def add(call, a, b, alpha=1, out=None):
    return plus(call, a, b, alpha)


def subtract(call, a, b, alpha=1):
    return plus(call, a, b, -alpha)


def reversed_subtract(call, a, b, alpha=1):
    return plus(call, b, a, -alpha)


def plus(call, a, b, alpha):
    """a + alpha * b."""
    if isinstance(a, Value) and isinstance(b, Value):
        return sum_of(call, a, b if alpha == 1 else affine(call, b, alpha, 0.0))
    x, other = (a, b) if isinstance(a, Value) else (b, a)
    if isinstance(other, Noise):
        call.refuse("adds random numbers")
    if trained(call, other):
        if alpha == 1:
            for way in (bias_of_product, scale_and_bias, positions):
                made = way(call, x, other)
                if made is not None:
                    return made
        name = call.converter.weights.names.get(id(source_of(other)), "what several parameters make")
        call.refuse(f"adds {name}, as a tensor of shape {list(other.shape)}; make it the bias of the layer "
                    "before, or of a norm, or x * factor + bias of one number a channel; what all tokens get "
                    "alike can be a part of their positions")
    if x is a:
        return affine(call, x, 1.0, other * alpha)
    return affine(call, x, float(alpha), other)


def multiply(call, a, b, out=None):
    if isinstance(a, Value) and isinstance(b, Value):
        return product_of(call, a, b)
    x, other = (a, b) if isinstance(a, Value) else (b, a)
    if isinstance(other, Noise):
        return dropped_by(call, x, other, affine)
    if trained(call, other):
        return channel_scale(call, x, other)
    if isinstance(other, torch.Tensor) and other.numel() > 1 and (
            call.converter.network.is_sequence(x.layer)):
        return Mix.of(x).times(other)
    return part_times(call, x, other) or affine(call, x, other, 0.0)


def part_times(call, x, factor):
    """A part of the channels of tokens, as the queries of a product of all three, times a number, which
    attention takes into its scale; None: it is something else."""
    sequence = call.converter.network.is_sequence(x.layer) and x.form == "other" and not is_whole(x)
    return Mix.of(x).times(number(factor)) if sequence and number(factor) is not None else None


def divide(call, a, b, rounding_mode=None):
    if isinstance(b, Value) or rounding_mode is not None:
        call.refuse("by a tensor that the network computed" if isinstance(b, Value) else
                    "rounds; its gradient is 0")
    if isinstance(b, Noise) or trained(call, b):
        call.refuse("by a parameter or random numbers; multiply instead")
    return part_times(call, a, 1.0 / b) or affine(call, a, 1.0 / b, 0.0)


def reversed_divide(call, a, b):
    return divide(call, b, a)


def negative(call, x):
    if x.form == "other" and call.converter.network.is_sequence(x.layer):
        return Mix.of(x).times(-1)
    return affine(call, x, -1.0, 0.0)


def power(call, x, exponent):
    if isinstance(x, Value) and exponent in (1, 2):
        return x if exponent == 1 else product_of(call, x, x)
    if isinstance(x, Value) and isinstance(exponent, (int, float)):
        return Function.of(call, x, lambda v: v ** exponent)
    return call.refuse(f"exponent {exponent}; only 2")


def square(call, x):
    return product_of(call, x, x)


# --- Side by side ---

def concat(call, tensors, dim=0, axis=None):
    dim = dim if axis is None else axis
    tensors = [t for t in tensors if isinstance(t, Value) or t.numel()]
    while len(tensors) > 1 and isinstance(tensors[-1], Value) and trained(call, tensors[-2]) and (
            dim in (1, -2)):
        made = class_token(call, tensors[-2], tensors[-1])
        if made is None:
            break
        tensors = [*tensors[:-2], made]
    parameter = next((t for t in tensors if trained(call, t)), None)
    if parameter is not None:
        call.refuse(f"a parameter of shape {list(parameter.shape)} beside computed tensors; only one token of all "
                    "channels in front of the others (a class token) has a layer")
    if not tensors or any(not isinstance(t, Value) for t in tensors):
        call.refuse("expected a list of tensors that the network computed")
    if len(tensors) == 1:
        return tensors[0]
    boxes = [boxes_of(call, t) for t in tensors]
    if dim in (1, -2) and all(boxes) and len({v for _, v in boxes}) == 1:
        return joined_boxes(call, [t for t, _ in boxes], boxes[0][1])
    tensors = [call.tensor(t) for t in tensors]
    first = tensors[0]
    same = all(t.form == first.form and t.size[1:] == first.size[1:] for t in tensors)
    axes = {"rows": (1, -3), "pixels": (3, -1), "flat": (1, -1)}[first.form]
    if not same or dim not in axes:
        call.refuse(f"along axis {dim}; only of channels, of equal heights and widths")
    if first.form == "flat" and any(not t.is_vector for t in tensors):
        call.refuse("of flattened images; flatten after the concatenation")
    output = Value("", first.form, sum(t.channels for t in tensors), *first.size[1:])
    return call.layer("concat", list(tensors), output)


def boxes_of(call, x):
    """[n, boxes, values] made of the channels of each pixel in order: the value as pixels, and how
    many values a box has. None: something else."""
    if x.form != "other" or x.index.dim() != 3 or x.index.shape[0] != BATCH:
        return None
    pixels = Value(x.layer, "pixels", *x.size)
    values = int(x.index.shape[2])
    if x.channels % values or not torch.equal(x.index.flatten(), numbers(pixels).flatten()):
        return None
    return pixels, values


def joined_boxes(call, tensors, values):
    boxes = sum(t.channels * t.height * t.width for t in tensors) // values
    made = call.layer("concat_boxes", tensors, Value("", "pixels", values, 1, boxes),
                      {"values": values})
    return dataclasses.replace(made, form="other", index=tokens(made, (BATCH, boxes)))
