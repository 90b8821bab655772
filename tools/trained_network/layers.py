"""The layers of a configuration as a list of maps, with the shape that each gives."""
import yaml

from .checkpoint import CannotRead

BLOCK = "repeat"


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
    if "layers" not in model:
        raise CannotRead(f"{where}: model has no `layers` ({', '.join(model) or 'it is empty'})")
    layers = unrolled(model["layers"])
    for layer in layers:
        for key in ("features", "channels"):
            if layer.get(key) == "classes":
                layer[key] = int(model["classes"])
    return layers, [str(name) for name in model.get("outputs") or [layers[-1]["name"]]]


def pair(value):
    return [int(v) for v in value] if isinstance(value, list) else [int(value)] * 2


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


def shape_of(layer, inputs, shapes, by_name):
    """(channels, height, width) of what `layer` gives; `inputs`: the shapes of its inputs."""
    c, h, w = inputs[0]
    kind = layer["kind"]
    if kind == "conv2d":
        return (int(layer["channels"]), *windows(layer, h, w))
    if kind == "conv_transpose2d":
        return (int(layer["channels"]), *windows_back(layer, h, w))
    if kind == "linear":
        return int(layer["features"]), 1, 1
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
    """By name, from images of `size`, (channels, height, width)."""
    shapes, by_name = {"input": tuple(size)}, {layer["name"]: layer for layer in layers}
    for layer in layers:
        inputs = [shapes[name] for name in layer["inputs"]]
        shapes[layer["name"]] = shape_of(layer, inputs, shapes, by_name)
    return shapes
