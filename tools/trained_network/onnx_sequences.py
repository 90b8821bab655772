"""Layers of sequences as nodes of an ONNX graph. Tokens are the rows of [n, channels, tokens, 1]; where
the network is given tokens, there may be fewer of them than it was trained on."""
import numpy

from .layers import tokens_of

INF = float("inf")


def rows(g, layer, x, number=0):
    """The input `number` of `layer` as [n, channels, tokens, 1]: pixels are tokens, row by row."""
    source = layer["inputs"][number]
    if g.shapes[source][2] == 1:
        return x[number]
    return g.node("Reshape", [x[number], g.ints("shape:rows", 0, 0, -1, 1)], f"{layer['name']}:rows{number}")


def length_of(g, name, x, axis=2):
    return g.node("Shape", [x], name, start=axis, end=axis + 1)


def cut(g, name, table, length, axis):
    """The first of `table` along `axis`, as many as `length`, a tensor, says."""
    return g.node("Slice", [table, g.ints("cut:first", 0), length, g.ints(f"axis:{axis}", axis)], name)


def linear(g, layer, x):
    """The same at every token: a convolution of a window of 1. Its weight may be another layer's."""
    name, features, count = layer["name"], int(layer["features"]), g.shape_in(layer)[0]
    owner = g.by_name[layer.get("weight_of", name)]
    weight = g.weight(owner, "weight", [features, count])
    inputs = [x[0], g.node("Unsqueeze", [weight, g.ints("axes:pixels", 2, 3)], f"{name}:kernel")]
    if layer.get("bias", True):
        inputs.append(g.weight(layer, "bias", [features]))
    return g.node("Conv", inputs, name, kernel_shape=[1, 1])


def embedding(g, layer, x):
    name = layer["name"]
    weight = g.weight(layer, "weight", [int(layer["vocabulary"]), int(layer["features"])])
    found = g.node("Gather", [weight, x[0]], f"{name}:found", axis=0)
    turned = g.node("Transpose", [found], f"{name}:turned", perm=[0, 2, 1])
    return g.node("Unsqueeze", [turned, g.ints("axis:3", 3)], name)


def position_embedding(g, layer, x):
    name, (c, h, w) = layer["name"], g.shape_in(layer)
    context = int(layer.get("context", h * w))
    table = g.tensor(layer.get("tensor", f"{name}.weight"), [context, c]).T.reshape(1, c, context, 1)
    tokens = rows(g, layer, x)
    part = cut(g, f"{name}:part", g.constant(f"{name}:table", table), length_of(g, f"{name}:count", tokens), 2)
    return g.node("Add", [tokens, part], name)


def class_token(g, layer, x):
    name, c = layer["name"], g.shape_in(layer)[0]
    tokens = rows(g, layer, x)
    one = g.constant(f"{name}:value", g.tensor(name, [1, c, 1, 1]))
    shape = g.node("Concat", [length_of(g, f"{name}:count", tokens, 0), g.ints(f"{name}:shape", c, 1, 1)],
                   f"{name}:all", axis=0)
    return g.node("Concat", [g.node("Expand", [one, shape], f"{name}:first"), tokens], name, axis=2)


def rope(g, layer, x):
    name, c, heads = layer["name"], g.shape_in(layer)[0], int(layer["heads"])
    width = c // heads
    rotary, half = int(layer.get("rotary", width)), layer.get("pairing", "half") == "half"
    pairs = rotary // 2
    angles = numpy.arange(tokens_of(g.shape_in(layer))) * float(layer.get("base", 10000)) ** (
        -numpy.arange(pairs)[:, None] / pairs)
    tokens = rows(g, layer, x)
    length = length_of(g, f"{name}:count", tokens)
    cos, sin = (cut(g, f"{name}:{f.__name__}", g.constant(f"{name}:{f.__name__}s", f(angles)[None, None].astype(
        numpy.float32)), length, 3) for f in (numpy.cos, numpy.sin))
    by_head = g.node("Reshape", [tokens, g.ints(f"{name}:heads", 0, heads, width, -1)], f"{name}:by_head")

    def taken(part, first, step):
        """Every step-th value of a head from `first` on, one for each pair."""
        last = first + (pairs - 1) * step + 1
        return g.node("Slice", [by_head, g.ints(f"{name}:{part}:from", first), g.ints(f"{name}:{part}:to", last),
                                g.ints("axis:2", 2), g.ints(f"step:{step}", step)], f"{name}:{part}")
    a, b = (taken("a", 0, 1), taken("b", pairs, 1)) if half else (taken("a", 0, 2), taken("b", 1, 2))

    def product(first, second, part):
        return g.node("Mul", [first, second], f"{name}:{part}")
    turned = [g.node("Sub", [product(a, cos, "a_cos"), product(b, sin, "b_sin")], f"{name}:a_turned"),
              g.node("Add", [product(b, cos, "b_cos"), product(a, sin, "a_sin")], f"{name}:b_turned")]
    if not half:
        beside = [g.node("Unsqueeze", [part, g.ints("axis:3", 3)], f"{part}:apart") for part in turned]
        joined = g.node("Concat", beside, f"{name}:pairs", axis=3)
        turned = [g.node("Reshape", [joined, g.ints(f"{name}:turning", 0, heads, rotary, -1)], f"{name}:turned")]
    if rotary < width:
        turned.append(g.node("Slice", [by_head, g.ints(f"{name}:rest:from", rotary), g.ints(f"{name}:rest:to", width),
                                       g.ints("axis:2", 2)], f"{name}:rest"))
    whole = turned[0] if len(turned) == 1 else g.node("Concat", turned, f"{name}:whole", axis=2)
    return g.node("Reshape", [whole, g.ints(f"{name}:tokens", 0, c, -1, 1)], name)


def attention(g, layer, x):
    """softmax(q k^T / sqrt(width)) v by head, groups of queries beside the keys that they share."""
    name, heads = layer["name"], int(layer["heads"])
    groups = int(layer.get("kv_heads") or heads)
    each, single = heads // groups, len(x) == 1
    width = g.shape_in(layer)[0] // (heads + 2 * groups if single else heads)
    if single:
        sizes = g.ints(f"{name}:sizes", heads * width, groups * width, groups * width)
        g.node("Split", [rows(g, layer, x), sizes], f"{name}:parts", 3, axis=1)
        parts = [f"{name}:parts", f"{name}:parts:1", f"{name}:parts:2"]
    else:
        parts = [rows(g, layer, x, number) for number in range(3)]
    q, k, v = (g.node("Reshape", [part, g.ints(f"{name}:{what}:heads", 0, groups, count, width, -1)], f"{name}:{what}")
               for what, part, count in zip("qkv", parts, (each, 1, 1)))
    turned = g.node("Transpose", [q], f"{name}:q:turned", perm=[0, 1, 2, 4, 3])
    scale = g.constant(f"{name}:scale", numpy.array(width ** -0.5, numpy.float32))
    scores = g.node("Mul", [g.node("MatMul", [turned, k], f"{name}:products"), scale], f"{name}:scores")
    if layer.get("causal"):
        longest = max(tokens_of(g.shapes[source]) for source in layer["inputs"])
        places = g.ints(f"{name}:places", *range(longest))
        own = g.node("Unsqueeze", [cut(g, f"{name}:own", places, length_of(g, f"{name}:queries", q, 4), 0),
                                   g.ints("axis:1", 1)], f"{name}:own:column")
        others = cut(g, f"{name}:others", places, length_of(g, f"{name}:keys", k, 4), 0)
        later = g.node("Greater", [others, own], f"{name}:later")
        hidden = g.constant("hidden:value", numpy.array(-INF, numpy.float32))
        scores = g.node("Where", [later, hidden, scores], f"{name}:seen")
    shares = g.node("Softmax", [scores], f"{name}:shares", axis=-1)
    back = g.node("Transpose", [shares], f"{name}:shares:turned", perm=[0, 1, 2, 4, 3])
    sums = g.node("MatMul", [v, back], f"{name}:sums")
    return g.node("Reshape", [sums, g.ints(f"{name}:tokens", 0, heads * width, -1, 1)], name)


def select(g, layer, x):
    place = g.ints(f"{layer['name']}:place", int(layer.get("position", 0)))
    return g.node("Gather", [rows(g, layer, x), place], layer["name"], axis=2)


def rms_norm(g, layer, x):
    name = layer["name"]
    eps = g.constant(f"{name}:eps", numpy.array(float(layer.get("eps", 1e-5)), numpy.float32))
    squares = g.node("Mul", [x[0], x[0]], f"{name}:squares")
    mean = g.node("ReduceMean", [squares, g.ints("axes:channels", 1)], f"{name}:mean", keepdims=1)
    root = g.node("Sqrt", [g.node("Add", [mean, eps], f"{name}:above")], f"{name}:root")
    return g.node("Mul", [g.node("Div", [x[0], root], f"{name}:normal"), g.by_channel(layer, "weight")], name)


KINDS = {
    "embedding": embedding, "position_embedding": position_embedding, "class_token": class_token, "rope": rope,
    "attention": attention, "select": select, "rms_norm": rms_norm,
    "softmax": lambda g, layer, x: g.node("Softmax", x, layer["name"], axis=1),
}
