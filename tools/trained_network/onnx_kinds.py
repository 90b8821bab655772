"""Layers as nodes of an ONNX graph: one function a kind, which gives the name of its output."""
import numpy

from . import onnx_sequences
from .checkpoint import CannotRead
from .layers import pair


def padded(layer):
    top, left = pair(layer.get("padding", 0))
    return [top, left, top, left]


def conv2d(g, layer, x):
    channels, groups = int(layer["channels"]), int(layer.get("groups", 1))
    shape = [channels, g.shape_in(layer)[0] // groups, *pair(layer["kernel"])]
    inputs = [x[0], g.weight(layer, "weight", shape)]
    if layer.get("bias", True):
        inputs.append(g.weight(layer, "bias", [channels]))
    return g.node("Conv", inputs, layer["name"], kernel_shape=pair(layer["kernel"]), group=groups,
                  strides=pair(layer.get("stride", 1)), pads=padded(layer),
                  dilations=pair(layer.get("dilation", 1)))


def conv_transpose2d(g, layer, x):
    channels, groups = int(layer["channels"]), int(layer.get("groups", 1))
    shape = [g.shape_in(layer)[0], channels // groups, *pair(layer["kernel"])]
    inputs = [x[0], g.weight(layer, "weight", shape)]
    if layer.get("bias", True):
        inputs.append(g.weight(layer, "bias", [channels]))
    return g.node("ConvTranspose", inputs, layer["name"], kernel_shape=pair(layer["kernel"]),
                  group=groups, strides=pair(layer.get("stride", 1)), pads=padded(layer),
                  output_padding=pair(layer.get("output_padding", 0)),
                  dilations=pair(layer.get("dilation", 1)))


def linear(g, layer, x):
    if layer["inputs"][0] in g.sequences:
        return onnx_sequences.linear(g, layer, x)
    c, h, w = g.shape_in(layer)
    features, name = int(layer["features"]), layer["name"]
    flat = g.node("Flatten", x, f"{name}:in", axis=1)
    inputs = [flat, g.weight(layer, "weight", [features, c * h * w])]
    if layer.get("bias", True):
        inputs.append(g.weight(layer, "bias", [features]))
    made = g.node("Gemm", inputs, f"{name}:out", transB=1)
    return g.node("Unsqueeze", [made, g.ints("axes:pixels", 2, 3)], name)


def batch_norm(g, layer, x):
    count = g.shapes[layer["name"]][0]
    vectors = [g.weight(layer, suffix, [count])
               for suffix in ("weight", "bias", "running_mean", "running_var")]
    return g.node("BatchNormalization", [x[0], *vectors], layer["name"],
                  epsilon=float(layer.get("eps", 1e-5)))


def layer_norm(g, layer, x):
    name, count = layer["name"], g.shapes[layer["name"]][0]
    pixels = g.node("Transpose", x, f"{name}:pixels", perm=[0, 2, 3, 1])
    bias = [g.weight(layer, "bias", [count])] if layer.get("bias", True) else []
    made = g.node("LayerNormalization", [pixels, g.weight(layer, "weight", [count]), *bias], f"{name}:out",
                  axis=-1, epsilon=float(layer.get("eps", 1e-6)))
    return g.node("Transpose", [made], name, perm=[0, 3, 1, 2])


def group_norm(g, layer, x):
    name, groups = layer["name"], int(layer["groups"])
    c, h, w = g.shapes[name]
    grouped = g.node("Reshape", [x[0], g.ints(f"{name}:groups", 0, groups, -1)], f"{name}:in")
    ones = g.constant(f"{name}:ones", numpy.ones(groups, numpy.float32))
    zeros = g.constant(f"{name}:zeros", numpy.zeros(groups, numpy.float32))
    normal = g.node("InstanceNormalization", [grouped, ones, zeros], f"{name}:normal",
                    epsilon=float(layer.get("eps", 1e-5)))
    image = g.node("Reshape", [normal, g.ints(f"{name}:image", 0, c, h, w)], f"{name}:out")
    return scaled(g, layer, image, "weight", "bias")


def scaled(g, layer, x, factor, offset=None):
    name = layer["name"]
    if offset is None:
        return g.node("Mul", [x, g.by_channel(layer, factor)], name)
    made = g.node("Mul", [x, g.by_channel(layer, factor)], f"{name}:product")
    return g.node("Add", [made, g.by_channel(layer, offset)], name)


def l2_normalize(g, layer, x):
    name = layer["name"]
    eps = g.constant(f"{name}:eps", numpy.array(float(layer.get("eps", 1e-5)), numpy.float32))
    length = g.node("ReduceL2", [x[0], g.ints("axes:channels", 1)], f"{name}:length", keepdims=1)
    divisor = g.node("Add", [length, eps], f"{name}:divisor")
    return scaled(g, layer, g.node("Div", [x[0], divisor], f"{name}:out"), "weight")


def lrn(g, layer, x):
    size = pair(layer.get("size", 5))[0]
    if size % 2 == 0:
        raise CannotRead(f"{layer['name']}: an lrn over an even size ({size}) sums other channels "
                         "in ONNX")
    return g.node("LRN", x, layer["name"], size=size, alpha=float(layer.get("alpha", 1e-4)),
                  beta=float(layer.get("beta", 0.75)), bias=float(layer.get("k", 1)))


def max_pool(g, layer, x):
    return g.node("MaxPool", x, layer["name"], 2 if layer["name"] in g.unpooled else 1,
                  **window_of(layer))


def window_of(layer):
    return {"kernel_shape": pair(layer["kernel"]), "pads": padded(layer),
            "strides": pair(layer.get("stride", layer["kernel"])),
            "ceil_mode": int(layer.get("ceil_mode", False))}


def max_unpool(g, layer, x):
    pool, name = g.by_name[layer["pool"]], layer["name"]
    if layer.get("whole") or g.shape_in(layer) != g.shapes[pool["name"]]:
        raise CannotRead(f"{name}: an unpool of whole windows, or of another size than its pool "
                         "gave, has no node in ONNX")
    size = g.node("Shape", [g.values[pool["inputs"][0]]], f"{name}:size")
    c, h, w = g.shape_in(layer)
    if [h, w] == [1, 1] and c != g.shapes[pool["name"]][0]:
        raise CannotRead(f"{name}: its channels are not those of {pool['name']}")
    return g.node("MaxUnpool", [x[0], f"{g.values[pool['name']]}:1", size], name,
                  kernel_shape=pair(pool["kernel"]), pads=padded(pool),
                  strides=pair(pool.get("stride", pool["kernel"])))


def avg_pool(g, layer, x):
    return g.node("AveragePool", x, layer["name"], **window_of(layer),
                  count_include_pad=int(layer.get("count_include_pad", True)))


def mean_weights(size, count):
    """[count, size]: row i has the mean over pixels floor(i s / n) to ceil((i + 1) s / n)."""
    rows = numpy.zeros([count, size], numpy.float32)
    for i in range(count):
        first, last = i * size // count, -(-(i + 1) * size // count)
        rows[i, first:last] = 1 / (last - first)
    return rows


def adaptive_avg_pool(g, layer, x):
    name, (_, h, w) = layer["name"], g.shape_in(layer)
    height, width = pair(layer["size"])
    rows = g.constant(f"{name}:rows", mean_weights(h, height))
    columns = g.constant(f"{name}:columns", mean_weights(w, width).T)
    return g.node("MatMul", [rows, g.node("MatMul", [x[0], columns], f"{name}:narrow")], name)


def concat_boxes(g, layer, x):
    name, values = layer["name"], int(layer.get("values", 4))
    parts = []
    for i, one in enumerate(x):
        pixels = g.node("Transpose", [one], f"{name}:pixels{i}", perm=[0, 2, 3, 1])
        parts.append(g.node("Reshape", [pixels, g.ints(f"{name}:boxes", 0, -1, values)],
                            f"{name}:part{i}"))
    joined = g.node("Concat", parts, f"{name}:joined", axis=1)
    turned = g.node("Transpose", [joined], f"{name}:turned", perm=[0, 2, 1])
    return g.node("Unsqueeze", [turned, g.ints("axes:rows", 2)], name)


def flatten(g, layer, x):
    flat = g.node("Flatten", x, f"{layer['name']}:out", axis=1)
    return g.node("Unsqueeze", [flat, g.ints("axes:pixels", 2, 3)], layer["name"])


def upsample(g, layer, x):
    name, scale = layer["name"], float(layer.get("scale", 2))
    scales = g.constant(f"{name}:scales", numpy.array([1, 1, scale, scale], numpy.float32))
    if layer.get("mode") == "bilinear":
        places = "align_corners" if layer.get("align_corners") else "half_pixel"
        return g.node("Resize", [x[0], "", scales], name, mode="linear",
                      coordinate_transformation_mode=places)
    return g.node("Resize", [x[0], "", scales], name, mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")


def slice_of(g, layer, x):
    name, first = layer["name"], int(layer.get("first", 0))
    return g.node("Slice", [x[0], g.ints(f"{name}:first", first),
                            g.ints(f"{name}:last", first + int(layer["channels"])),
                            g.ints("axes:channels", 1)], name)


def shortcut(g, layer, x):
    name, (c, h, w) = layer["name"], g.shape_in(layer)
    new = int(layer["channels"]) - c
    part = g.node("Slice", [x[0], g.ints(f"{name}:from", 0, 0), g.ints(f"{name}:to", h, w),
                            g.ints("axes:pixels", 2, 3),
                            g.ints(f"{name}:steps", *pair(layer.get("stride", 1)))], f"{name}:part")
    pads = g.ints(f"{name}:pads", 0, new // 2, 0, 0, 0, new - new // 2, 0, 0)
    return g.node("Pad", [part, pads], name)


def plain(kind, **attributes):
    return lambda g, layer, x: g.node(kind, x, layer["name"], **attributes)


def clipped(low, high):
    def make(g, layer, x):
        least, most = (float(layer.get(key, usual)) for key, usual in (("min", low), ("max", high)))
        bounds = [g.constant(f"{layer['name']}:{key}", numpy.array(value, numpy.float32))
                  for key, value in (("min", least), ("max", most))]
        return g.node("Clip", [x[0], *bounds], layer["name"])
    return make


def silu(g, layer, x):
    gate = g.node("Sigmoid", x, f"{layer['name']}:gate")
    return g.node("Mul", [x[0], gate], layer["name"])


def prelu(g, layer, x):
    slopes = g.shape_in(layer)[0] if layer.get("per_channel") else 1
    return g.node("PRelu", [x[0], g.weight(layer, "weight", [slopes, 1, 1])], layer["name"])


def softplus(g, layer, x):
    name = layer["name"]
    numbers = [g.constant(f"{name}:{key}", numpy.array(float(layer.get(key, usual)), numpy.float32))
               for key, usual in (("beta", 1), ("threshold", 20))]
    wide = g.node("Mul", [x[0], numbers[0]], f"{name}:wide")
    soft = g.node("Div", [g.node("Softplus", [wide], f"{name}:soft"), numbers[0]], f"{name}:out")
    above = g.node("Greater", [wide, numbers[1]], f"{name}:above")
    return g.node("Where", [above, x[0], soft], name)


KINDS = {
    **onnx_sequences.KINDS,
    "conv2d": conv2d, "conv_transpose2d": conv_transpose2d, "linear": linear, "batch_norm": batch_norm, "layer_norm": layer_norm,
    "group_norm": group_norm, "l2_normalize": l2_normalize, "lrn": lrn, "max_pool": max_pool,
    "max_unpool": max_unpool, "avg_pool": avg_pool, "adaptive_avg_pool": adaptive_avg_pool,
    "global_avg_pool": plain("GlobalAveragePool"), "add": plain("Sum"),
    "multiply": plain("Mul"), "concat": plain("Concat", axis=1), "concat_boxes": concat_boxes,
    "flatten": flatten, "upsample": upsample, "slice": slice_of, "shortcut": shortcut,
    "channel_scale": lambda g, layer, x: scaled(g, layer, x[0], "weight"),
    "affine": lambda g, layer, x: scaled(g, layer, x[0], "factor", "offset"),
    "relu": plain("Relu"), "relu6": clipped(0, 6), "hardtanh": clipped(-1, 1),
    "sigmoid": plain("Sigmoid"), "tanh": plain("Tanh"), "silu": silu,
    "hardsigmoid": plain("HardSigmoid", alpha=1 / 6, beta=0.5), "hardswish": plain("HardSwish"),
    "prelu": prelu, "softplus": softplus,
    "elu": lambda g, layer, x: g.node("Elu", x, layer["name"], alpha=float(layer.get("alpha", 1))),
    "pixel_shuffle": lambda g, layer, x: g.node("DepthToSpace", x, layer["name"], mode="CRD",
                                                blocksize=int(layer.get("scale", 2))),
    "leaky_relu": lambda g, layer, x: g.node("LeakyRelu", x, layer["name"],
                                             alpha=float(layer.get("slope", 0.01))),
    "gelu": lambda g, layer, x: g.node("Gelu", x, layer["name"],
                                       approximate=layer.get("approximate", "none")),
    # In evaluation they pass everything on.
    **dict.fromkeys(("dropout", "stochastic_depth", "scale"), plain("Identity")),
}
