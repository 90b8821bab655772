"""The layers of a configuration as a list of maps, with the shape that each gives."""
import yaml

from .checkpoint import CannotRead
from .zoo import layers_of

BLOCK = "repeat"
MAKE_SEQUENCES = ("embedding", "position_embedding", "class_token", "rope", "attention")
END_SEQUENCES = ("flatten", "select", "global_avg_pool", "adaptive_avg_pool")


def unrolled(entries):
    """Blocks {repeat: N, layers: [...]} written out; inputs always there."""
    flat = []
    for entry in entries:
        if BLOCK not in entry:
            flat.append(dict(entry))
            continue
        for i in range(1, int(entry[BLOCK]) + 1):
            for layer in entry["layers"]:
                flat.append({key: numbered(value, i) for key, value in layer.items()})
    before = "input"
    for layer in flat:
        layer["name"] = str(layer["name"])
        layer["inputs"] = [str(name) for name in layer.get("inputs") or [before]]
        before = layer["name"]
    return flat


def numbered(value, i):
    if isinstance(value, str):
        return value.replace("{i}", str(i))
    return [numbered(v, i) for v in value] if isinstance(value, list) else value


def model_of(text, where):
    """(layers, names of outputs) of the `model:` section in a YAML text; `classes` is put in."""
    try:
        model = (yaml.safe_load(text) or {}).get("model") or {}
    except (yaml.YAMLError, AttributeError) as error:
        raise CannotRead(f"{where}: {error}") from error
    if not isinstance(model, dict):
        raise CannotRead(f"{where}: `model` is no map")
    if "zoo" in model:
        model = {**model, "layers": layers_of(model, where)}
    if not isinstance(model.get("layers"), list) or not model["layers"]:
        raise CannotRead(f"{where}: model has no list `layers` ({', '.join(map(str, model)) or 'it is empty'})")
    layers = unrolled(model["layers"])
    for layer in layers:
        for key in ("features", "channels"):
            if layer.get(key) == "classes":
                layer[key] = int(model["classes"])
    return layers, [str(name) for name in model.get("outputs") or [layers[-1]["name"]]]


def pair(value):
    return [int(v) for v in value] if isinstance(value, list) else [int(value)] * 2


def tokens_of(shape):
    """How many there are: pixels, row by row."""
    return shape[1] * shape[2]


def windows(layer, height, width):
    """Rows and columns of a window's output."""
    kernel = pair(layer["kernel"])
    pool = layer["kind"] in ("max_pool", "avg_pool")
    stride = pair(layer.get("stride", layer["kernel"] if pool else 1))
    padding, dilation = pair(layer.get("padding", 0)), pair(layer.get("dilation", 1))
    sides = []
    for size, k, s, p, d in zip((height, width), kernel, stride, padding, dilation):
        rest = size + 2 * p - d * (k - 1) - 1
        count = (rest + (s - 1 if layer.get("ceil_mode") else 0)) // s + 1
        if layer.get("ceil_mode") and (count - 1) * s >= size + p:
            count -= 1
        sides.append(count)
    return sides


def windows_back(layer, height, width):
    """Rows and columns that a transposed convolution gives."""
    keys = [pair(layer.get(key, usual)) for key, usual in
            (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))]
    return [(size - 1) * s - 2 * p + d * (k - 1) + 1 + more
            for size, k, s, p, d, more in zip((height, width), *keys)]


def shape_of(layer, inputs, shapes, by_name, sequences):
    """(channels, height, width) of what `layer` gives; `inputs`: the shapes of its inputs; `sequences`: names
    of the layers before it whose positions are tokens."""
    c, h, w = inputs[0]
    kind = layer["kind"]
    if kind == "conv2d":
        return (int(layer["channels"]), *windows(layer, h, w))
    if kind == "conv_transpose2d":
        return (int(layer["channels"]), *windows_back(layer, h, w))
    if kind == "linear":
        return (int(layer["features"]), h, w) if layer["inputs"][0] in sequences else (int(layer["features"]), 1, 1)
    if kind == "embedding":
        return int(layer["features"]), h, w
    if kind in ("position_embedding", "rope"):
        return c, h * w, 1
    if kind == "class_token":
        return c, h * w + 1, 1
    if kind == "attention":
        heads, single = int(layer["heads"]), len(inputs) == 1
        parts = heads + 2 * int(layer.get("kv_heads") or heads) if single else heads
        return c // parts * heads, h * w, 1
    if kind == "select":
        return c, 1, 1
    if kind in ("max_pool", "avg_pool"):
        return (c, *windows(layer, h, w))
    if kind == "adaptive_avg_pool":
        return (c, *pair(layer["size"]))
    if kind == "global_avg_pool":
        return c, 1, 1
    if kind == "flatten":
        return c * h * w, 1, 1
    if kind == "concat":
        return sum(shape[0] for shape in inputs), h, w
    if kind == "concat_boxes":
        values = int(layer.get("values", 4))
        return values, 1, sum(a * b * d for a, b, d in inputs) // values
    if kind == "multiply":
        return max(inputs, key=lambda shape: shape[1] * shape[2])
    if kind == "upsample":
        scale = int(layer.get("scale", 2))
        return c, h * scale, w * scale
    if kind == "pixel_shuffle":
        scale = int(layer.get("scale", 2))
        return c // scale ** 2, h * scale, w * scale
    if kind == "slice":
        return int(layer["channels"]), h, w
    if kind == "shortcut":
        stride = pair(layer.get("stride", 1))
        return int(layer["channels"]), -(-h // stride[0]), -(-w // stride[1])
    if kind == "max_unpool":
        return shapes[by_name[layer["pool"]]["inputs"][0]]
    return c, h, w


def shapes_of(layers, size):
    """By name, from images of `size`, (channels, height, width), or (1, tokens, 1); and the names of the
    layers whose positions are tokens, each of which a linear layer maps alone."""
    shapes, by_name = {"input": tuple(size)}, {layer["name"]: layer for layer in layers}
    sequences = set()
    for layer in layers:
        name, kind = layer["name"], layer["kind"]
        missing = [source for source in layer["inputs"] if source not in shapes]
        if missing:
            raise CannotRead(f"{name}: its input {missing[0]} is no layer before it")
        inputs = [shapes[source] for source in layer["inputs"]]
        try:
            shapes[name] = shape_of(layer, inputs, shapes, by_name, sequences)
        except KeyError as error:
            raise CannotRead(f"{name}: kind {kind} lacks the key {error}") from error
        follows = any(source in sequences and (len(inputs) == 1 or shapes[source][1:] == shapes[name][1:])
                      for source in layer["inputs"])
        if kind in MAKE_SEQUENCES or (follows and kind not in END_SEQUENCES):
            sequences.add(name)
    return shapes, sequences
