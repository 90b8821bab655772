"""Modules of torch.nn and torchvision as layers: one function a type."""
import torch
from torch import nn

from .network import CannotExpress, Value

try:
    from torchvision.models.convnext import LayerNorm2d
    from torchvision.ops import Permute, StochasticDepth
except ImportError:  # a network of torch.nn alone
    LayerNorm2d = Permute = StochasticDepth = None


def pair(value):
    return list(value) if isinstance(value, (tuple, list)) else [value, value]


def short(value):
    """[3, 3] as 3."""
    value = pair(value)
    return value[0] if value[0] == value[1] else value


def windowed(keys, kernel, stride, padding):
    keys["kernel"] = short(kernel)
    if pair(stride) != keys.get("usual_stride", [1, 1]):
        keys["stride"] = short(stride)
    keys.pop("usual_stride", None)
    if pair(padding) != [0, 0]:
        keys["padding"] = short(padding)
    return keys


class Call:
    """One call of a module or function: where it stands, what it is given, and how a layer is made
    of it."""

    def __init__(self, converter, node, path, operation, name, of_module):
        self.converter, self.node = converter, node
        self.path, self.operation = path, operation
        self.name, self.of_module = name, of_module

    def refuse(self, why=""):
        raise CannotExpress(self.path, self.operation, why)

    def images(self, x):
        """`x` as a value [n, c, h, w]."""
        if not isinstance(x, Value) or x.form != "rows":
            self.refuse("expected an input of [n, channels, height, width]")
        return x

    def shaped(self, form="rows"):
        """What PyTorch made of it, as a value; the layer's name is filled in later."""
        shape = self.node.meta["shape"]
        if form == "flat":
            return Value("", form, shape[1])
        _, a, b, c = shape
        return Value("", form, c, a, b) if form == "pixels" else Value("", form, a, b, c)

    def layer(self, kind, inputs, output, keys=None, tensors=None, name=None):
        network = self.converter.network
        own = network.unique(name or self.name, self.of_module or name is not None)
        return network.add(own, kind, inputs, output, keys, tensors)

    def pointwise(self, kind, x, keys=None):
        if not isinstance(x, Value):
            self.refuse("expected one tensor that the network computed")
        return self.layer(kind, [x], x, keys)


def weights(module, names):
    found = {name: getattr(module, name) for name in names}
    return {name: (tensor, list(tensor.shape)) for name, tensor in found.items()
            if tensor is not None}


def conv2d(call, m, x):
    if m.padding_mode != "zeros":
        call.refuse(f"padding_mode {m.padding_mode}; only zeros")
    padding = m.padding
    if padding == "valid":
        padding = 0
    if padding == "same":
        reach = [d * (k - 1) for d, k in zip(m.dilation, m.kernel_size)]
        if any(r % 2 for r in reach):
            call.refuse("padding same of an even kernel pads one side more than the other")
        padding = [r // 2 for r in reach]
    keys = windowed({"channels": m.out_channels}, m.kernel_size, m.stride, padding)
    if pair(m.dilation) != [1, 1]:
        keys["dilation"] = short(m.dilation)
    if m.groups != 1:
        keys["groups"] = m.groups
    if m.bias is None:
        keys["bias"] = False
    return call.layer("conv2d", [call.images(x)], call.shaped(), keys, weights(m, ["weight", "bias"]))


def linear(call, m, x):
    tensors = weights(m, ["weight", "bias"])
    bias = {} if m.bias is not None else {"bias": False}
    if isinstance(x, Value) and x.form == "flat":
        return call.layer("linear", [x], call.shaped("flat"), {"features": m.out_features, **bias},
                          tensors)
    if isinstance(x, Value) and x.form == "pixels":  # the same at every pixel
        tensors["weight"] = (m.weight, list(m.weight.shape) + [1, 1])
        return call.layer("conv2d", [x], call.shaped("pixels"),
                          {"channels": m.out_features, "kernel": 1, **bias}, tensors)
    return call.refuse("of a tensor that is neither [n, features] nor [n, height, width, channels]")


def batch_norm(call, m, x):
    if not m.affine or not m.track_running_stats or m.momentum is None:
        call.refuse("needs affine=True, track_running_stats=True and a momentum")
    if x.form == "flat" and not x.is_vector:
        call.refuse("of a flattened image, a mean for each pixel")
    if x.form == "pixels":
        call.refuse("of a permuted tensor, whose second axis is not its channels")
    keys = {"eps": m.eps, "momentum": m.momentum}
    names = ["weight", "bias", "running_mean", "running_var"]
    return call.layer("batch_norm", [x], x, keys, weights(m, names))


def channels_last(call, x):
    if x.form == "pixels" or (x.form == "flat" and x.is_vector):
        return x
    return call.refuse("not over the channels of each pixel")


def layer_norm(call, m, x):
    normalized = list(m.normalized_shape)
    if not m.elementwise_affine or m.bias is None:
        call.refuse("needs a weight and a bias")
    if LayerNorm2d is not None and known_type(m) is LayerNorm2d:
        x = call.images(x)
    else:
        x = channels_last(call, x)
    if normalized != [x.channels]:
        call.refuse(f"over axes of {normalized}; only over the {x.channels} channels of each pixel")
    return call.layer("layer_norm", [x], x, {"eps": m.eps}, weights(m, ["weight", "bias"]))


def group_norm(call, m, x):
    if not m.affine:
        call.refuse("needs affine=True")
    if x.form != "rows" and not (x.form == "flat" and x.is_vector):
        call.refuse("expected an input of [n, channels, height, width]")
    return call.layer("group_norm", [x], x, {"groups": m.num_groups, "eps": m.eps},
                      weights(m, ["weight", "bias"]))


def max_pool(call, m, x):
    if m.return_indices:
        call.refuse("return_indices")
    return pool_max(call, x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode)


def pool_max(call, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False,
             return_indices=False):
    if pair(dilation) != [1, 1] or return_indices:
        call.refuse("dilation or return_indices")
    stride = kernel_size if stride in (None, []) else stride
    keys = windowed({"usual_stride": pair(kernel_size)}, kernel_size, stride, padding)
    if ceil_mode:
        keys["ceil_mode"] = True
    return call.layer("max_pool", [call.images(x)], call.shaped(), keys)


def avg_pool(call, m, x):
    return pool_avg(call, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad,
                    m.divisor_override)


def pool_avg(call, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
    if divisor_override is not None:
        call.refuse("divisor_override")
    stride = kernel_size if stride in (None, []) else stride
    keys = windowed({"usual_stride": pair(kernel_size)}, kernel_size, stride, padding)
    if ceil_mode:
        keys["ceil_mode"] = True
    if "padding" in keys:
        keys["count_include_pad"] = bool(count_include_pad)
    return call.layer("avg_pool", [call.images(x)], call.shaped(), keys)


def adaptive_avg(call, x, output_size):
    x = call.images(x)
    size = [have if want is None else want
            for want, have in zip(pair(output_size), (x.height, x.width))]
    if size == [1, 1]:
        return call.layer("global_avg_pool", [x], call.shaped())
    return call.layer("adaptive_avg_pool", [x], call.shaped(), {"size": size})


def adaptive_max(call, x, output_size, return_indices=False):
    x = call.images(x)
    size = [have if want is None else want
            for want, have in zip(pair(output_size), (x.height, x.width))]
    if return_indices or x.height % size[0] or x.width % size[1]:
        call.refuse(f"{x.height}x{x.width} to {size[0]}x{size[1]}: windows of different sizes")
    kernel = [x.height // size[0], x.width // size[1]]
    return call.layer("max_pool", [x], call.shaped(), {"kernel": short(kernel)})


def dropped(call, x, p, training=True):
    if p == 0 or not training:
        return x
    if p >= 1:
        call.refuse("p of 1 leaves nothing")
    return call.pointwise("dropout", x, {"rate": p})


def dropped_channels(call, x, p, training=True):
    return x if p == 0 or not training else call.refuse("drops whole channels")


def drop_branch(call, x, p, mode, training=True):
    if p == 0 or not training:
        return x
    if p >= 1:
        call.refuse("p of 1 leaves nothing")
    return call.pointwise("stochastic_depth", x, {"rate": p, "mode": mode})


def leaky(call, x, negative_slope=0.01):
    return call.pointwise("leaky_relu", x, {"slope": negative_slope})


def clipped(call, x, min_val=-1.0, max_val=1.0):
    return call.pointwise("hardtanh", x, {"min": min_val, "max": max_val})


def gelu(call, x, approximate="none"):
    return call.pointwise("gelu", x, {"approximate": approximate} if approximate != "none" else {})


def upsample(call, x, size=None, scale_factor=None, mode="nearest", **rest):
    x = call.images(x)
    made = call.shaped()
    scale = made.height // x.height
    whole = (made.height, made.width) == (scale * x.height, scale * x.width)
    if mode != "nearest" or not whole or rest.get("antialias"):
        call.refuse(f"mode {mode} from {x.height}x{x.width} to {made.height}x{made.width}; only "
                    "nearest, by one whole number")
    return call.layer("upsample", [x], made, {"scale": scale})


def permuted(call, x, dims):
    dims = [d % 4 for d in dims]
    forms = {("rows", (0, 2, 3, 1)): "pixels", ("pixels", (0, 3, 1, 2)): "rows"}
    form = forms.get((x.form, tuple(dims)))
    if dims == [0, 1, 2, 3]:
        return x
    if form is None:
        call.refuse(f"axes {dims}; only channels to the end and back")
    return Value(x.layer, form, *x.size)


def flattened(call, x):
    """Of any call that keeps the order of elements: what PyTorch's shape says that it is now."""
    shape, whole = call.node.meta["shape"], x.channels * x.height * x.width
    if shape == x_shape(x, call):
        return x
    ordered = x.form != "pixels" or x.is_vector
    if ordered and len(shape) == 2 and shape[1] == whole:
        return Value(x.layer, "flat", *x.size)
    if ordered and len(shape) == 4 and shape[1:] == x.size:
        return Value(x.layer, "rows", *x.size)
    return call.refuse(f"to shape {list(shape)}; only to [n, features] and back")


def x_shape(x, call):
    n, (c, h, w) = call.node.meta["shape"][0], x.size
    return {"rows": (n, c, h, w), "pixels": (n, h, w, c), "flat": (n, c * h * w)}[x.form]


def activation(kind):
    return lambda call, m, x: call.pointwise(kind, x)


MODULES = {
    nn.Conv2d: conv2d,
    nn.Linear: linear,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
    nn.MaxPool2d: max_pool,
    nn.AvgPool2d: avg_pool,
    nn.AdaptiveAvgPool2d: lambda call, m, x: adaptive_avg(call, x, m.output_size),
    nn.AdaptiveMaxPool2d: lambda call, m, x: adaptive_max(call, x, m.output_size,
                                                          m.return_indices),
    nn.ReLU: activation("relu"),
    nn.ReLU6: activation("relu6"),
    nn.Sigmoid: activation("sigmoid"),
    nn.Tanh: activation("tanh"),
    nn.SiLU: activation("silu"),
    nn.Hardswish: activation("hardswish"),
    nn.Hardsigmoid: activation("hardsigmoid"),
    nn.Hardtanh: lambda call, m, x: clipped(call, x, m.min_val, m.max_val),
    nn.LeakyReLU: lambda call, m, x: leaky(call, x, m.negative_slope),
    nn.GELU: lambda call, m, x: gelu(call, x, m.approximate),
    nn.Dropout: lambda call, m, x: dropped(call, x, m.p),
    nn.Dropout2d: lambda call, m, x: dropped_channels(call, x, m.p),
    nn.Identity: lambda call, m, x: x,
    nn.Flatten: lambda call, m, x: flattened(call, x),
    nn.Unflatten: lambda call, m, x: flattened(call, x),
    nn.Upsample: lambda call, m, x: upsample(call, x, m.size, m.scale_factor, m.mode),
    nn.UpsamplingNearest2d: lambda call, m, x: upsample(call, x, m.size, m.scale_factor),
}
if StochasticDepth is not None:
    MODULES[StochasticDepth] = lambda call, m, x: drop_branch(call, x, m.p, m.mode)
    MODULES[Permute] = lambda call, m, x: permuted(call, x, m.dims)
    MODULES[LayerNorm2d] = layer_norm
# What computes its own loss or probabilities stands where ada-train's loss does.
LOSSES = (nn.Softmax, nn.LogSoftmax, nn.Softmax2d)


def known_type(module):
    """The type in MODULES whose forward `module` runs; None: there is none."""
    for base in type(module).__mro__:
        if base in MODULES:
            parts = ("forward", "_conv_forward", "_check_input_dim")
            same = all(getattr(type(module), p, None) is getattr(base, p, None) for p in parts)
            return base if same else None
    return None


def convert_module(call, module, args, kwargs):
    """The value that a leaf module gives."""
    base = known_type(module)
    if isinstance(module, LOSSES):
        call.refuse("ada-train's loss takes logits and has the softmax in it; leave it out")
    if base is None:
        call.refuse()
    if torch.nn.utils.parametrize.is_parametrized(module):
        call.refuse("its parameters are computed (torch.nn.utils.parametrize)")
    if module._forward_hooks or module._forward_pre_hooks:
        call.refuse("has forward hooks, whose work is not in the graph")
    if kwargs or len(args) != 1 or not isinstance(args[0], Value):
        call.refuse("expected one tensor that the network computed")
    return MODULES[base](call, module, args[0])
