"""Which function makes a layer of which call, by the name of a torch function or method."""
import torch
from torch.nn import functional as F

from . import arithmetic, attention, contractions, noise, norms, pending, pools, products, tokens
from .network import CannotExpress, Value
from .tokens import of_sequence
from .views import MOVES, channel_axis, moved


def pointwise(kind):
    return lambda call, x, inplace=False: call.pointwise(kind, x)


def leaky_relu(call, x, negative_slope=0.01, inplace=False):
    return call.pointwise("leaky_relu", x, {"slope": float(negative_slope)})


def hardtanh(call, x, min_val=-1.0, max_val=1.0, inplace=False):
    return call.pointwise("hardtanh", x, {"min": float(min_val), "max": float(max_val)})


def clamp(call, x, min=None, max=None):
    if min is None or isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor):
        call.refuse("needs a number as its lower limit (and another as its upper one)")
    if max is None:
        if min != 0:
            call.refuse("with a lower limit alone, only of 0")
        return call.pointwise("relu", x)
    return hardtanh(call, x, min, max)


def gelu(call, x, approximate="none"):
    return call.pointwise("gelu", x, {"approximate": approximate} if approximate != "none" else {})


def softplus(call, x, beta=1, threshold=20):
    keys = {"beta": float(beta), "threshold": float(threshold)}
    usual = {"beta": 1.0, "threshold": 20.0}
    return call.pointwise("softplus", x, {k: v for k, v in keys.items() if v != usual[k]})


def elu(call, x, alpha=1.0, inplace=False):
    return call.pointwise("elu", x, {"alpha": float(alpha)} if alpha != 1 else {})


def same(call, x, *unused, **unused_too):
    if call.result.dtype != torch.float32:
        call.refuse(f"to {call.result.dtype}; formats are ada-train's own business "
                    "(precision.format)")
    return x


def move(call, *args, **kwargs):
    given = [a for a in [*args, *kwargs.values()] if isinstance(a, Value)]
    if len(given) != 1:
        call.refuse("expected one tensor that the network computed")
    return moved(call, given[0], args, kwargs)


LOSS = "ada-train's loss takes logits and has the softmax in it; leave it out at the end"


def log_softmax(call, *unused, **unused_too):
    call.refuse(LOSS)


def softmax(call, x, dim=None, dtype=None, **unused):
    """Over the channels of each pixel or token; at the end of a network it is refused."""
    rank = len(pending.sizes_of(x))
    found = of_sequence(call, x)
    if found is not None:
        made = call.layer("softmax", [found[0]], found[0]) if dim in (-1, rank - 1) else None
        made = made and found[1].value(made)
    else:
        axis = {"rows": 1, "flat": 1, "pixels": 3}.get(x.form) or channel_axis(x)
        fits = axis is not None and dim in (axis % rank, axis % rank - rank) and (x.form != "flat" or x.is_vector)
        made = call.layer("softmax", [x], x) if fits else None
    if made is None:
        call.refuse(f"over axis {dim} of a tensor of shape {list(call.shape)}; only over the channels of each pixel or "
                    "token")
    call.converter.not_last[made.layer] = CannotExpress(call.path, call.operation, LOSS, call.place)
    return made


def erf(call, x):
    return pending.Function.of(call, x, torch.erf)


HANDLERS = {
    **{kind: pointwise(kind) for kind in
       ("relu", "relu6", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid")},
    "leaky_relu": leaky_relu, "hardtanh": hardtanh, "clamp": clamp, "clip": clamp, "gelu": gelu,
    "clamp_min": clamp, "softplus": softplus, "elu": elu, "prelu": arithmetic.prelu,
    "conv2d": products.conv2d, "conv_transpose2d": products.conv_transpose2d, "linear": products.linear,
    "batch_norm": norms.batch_norm, "layer_norm": norms.layer_norm, "group_norm": norms.group_norm,
    "instance_norm": norms.instance_norm, "local_response_norm": norms.local_response_norm,
    "normalize": norms.normalize,
    "max_pool2d": pools.pool_max, "avg_pool2d": pools.pool_avg, "mean": pools.mean,
    "adaptive_avg_pool2d": pools.adaptive_avg, "adaptive_max_pool2d": pools.adaptive_max,
    "pad": pools.pad, "amax": pools.largest, "max": pools.largest_and_where,
    "sum": pools.total, "interpolate": pools.upsample, "upsample": pools.upsample,
    "pixel_shuffle": pools.pixel_shuffle,
    "add": arithmetic.add, "radd": arithmetic.add, "iadd": arithmetic.add,
    "sub": arithmetic.subtract, "subtract": arithmetic.subtract, "isub": arithmetic.subtract,
    "rsub": arithmetic.reversed_subtract, "mul": arithmetic.multiply, "neg": arithmetic.negative,
    "multiply": arithmetic.multiply, "rmul": arithmetic.multiply, "imul": arithmetic.multiply,
    "div": arithmetic.divide, "divide": arithmetic.divide, "truediv": arithmetic.divide,
    "true_divide": arithmetic.divide, "itruediv": arithmetic.divide, "idiv": arithmetic.divide,
    "rdiv": arithmetic.reversed_divide, "rtruediv": arithmetic.reversed_divide,
    "pow": arithmetic.power, "square": arithmetic.square,
    "cat": arithmetic.concat, "concat": arithmetic.concat, "concatenate": arithmetic.concat,
    "dropout": noise.dropped, "dropout2d": noise.dropped_channels,
    "feature_dropout": noise.dropped_channels,
    "softmax": softmax, "log_softmax": log_softmax, "erf": erf,
    "scaled_dot_product_attention": attention.dot_product, **contractions.NAMES,
    "multi_head_attention_forward": attention.multi_head,
    "embedding": tokens.embedding, "rms_norm": norms.rms_norm,
    "affine": arithmetic.affine,  # no function of torch's: what rotary.py asks for
    **dict.fromkeys(("clone", "to", "float", "type", "type_as", "cpu", "detach", "requires_grad",
                     "data", "alias"), same),
    **dict.fromkeys(MOVES, move),
}
# What a refused function's author can do.
ADVICE = {
    "conv1d": "only two-dimensional convolutions; a kernel of 1 is nn.Linear or nn.Conv2d",
    "conv3d": "only two-dimensional convolutions",
    "celu": "no layer for it; nn.ELU is the same where alpha is 1",
    "selu": "no layer for it; nn.ELU is near it",
    "glu": "no layer for it; a, b = x.chunk(2, dim) and a * torch.sigmoid(b) come over",
    "mish": "no layer for it; nn.SiLU is near it",
    "conv_transpose1d": "only two-dimensional convolutions",
    "conv_transpose3d": "only two-dimensional convolutions",
    "embedding_bag": "no layer adds up tokens; nn.Embedding comes over",
    "bilinear": "no layer multiplies two inputs by a weight",
    "setitem": "writes into a part of a tensor; torch.cat of the parts comes over",
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "compares values of the input, or of what was "
                    "computed from it (to find padding?): no layer does other things by value"),
    "stack": "tensors along a new axis (attention over branches); torch.cat of channels comes over",
    "norm": "no layer divides by a computed length but F.normalize over channels, times a factor",
}
NAMES = {"boolean_dispatch": "max_pool2d", "fn": "max_pool2d", "_max_pool2d": "max_pool2d",
         "_adaptive_max_pool2d": "adaptive_max_pool2d"}


def name_of(function):
    """Its name, without the underscores of methods of operators and of forms that work in place."""
    if function is F.adaptive_max_pool2d:
        return "adaptive_max_pool2d"
    if function is F.max_pool2d:
        return "max_pool2d"
    name = getattr(function, "__name__", str(function))
    if name == "__get__":
        name = getattr(function.__self__, "__name__", name)
    return NAMES.get(name, name).strip("_")
