"""The graph of a configuration: layers in order, who reads whom, and the format of every tensor (configs/README.md)."""
import fnmatch

import kinds
import norms
from formats import Format

ROLES = ("activations", "weights", "gradients", "weight_gradients")
CLASSES = {"conv2d": kinds.Convolution, "conv_transpose2d": kinds.Transposed, "linear": kinds.Linear, "scale": kinds.Cast,
           "relu": kinds.Relu, "relu6": kinds.Clamp, "hardtanh": kinds.Clamp, "leaky_relu": kinds.Leaky, "max_pool": kinds.MaxPool,
           "avg_pool": kinds.Means, "adaptive_avg_pool": kinds.Means, "global_avg_pool": kinds.Means, "add": kinds.Add,
           "multiply": kinds.Multiply, "concat": kinds.Concat, "flatten": kinds.Moves, "slice": kinds.Moves, "select": kinds.Moves,
           "pixel_shuffle": kinds.Moves, "upsample": kinds.Moves, "batch_norm": norms.BatchNorm, "layer_norm": norms.LayerNorm,
           "rms_norm": norms.LayerNorm, "l2_normalize": norms.L2, "attention": norms.Attention,
           **{name: kinds.Function for name in kinds.FUNCTIONS}}


def entries(listed, name):
    """All entries of a list with `match` that fit, later ones over earlier ones, key by key; a role's key beats its `format`."""
    found = {}
    for entry in listed:
        if fnmatch.fnmatchcase(name, entry["match"]):
            if "format" in entry:
                found.update({role: entry["format"] for role in ROLES[:3]})
            found.update({k: v for k, v in entry.items() if k not in ("match", "format")})
    return found


class Precision:
    """Formats by layer and role, of one step."""

    def __init__(self, config, step):
        keys = dict(config.get("precision", {}))
        keys["layers"] = list(keys.get("layers", []))
        for change in keys.get("schedule", []):
            if change["from_step"] <= step:
                keys.update({k: v for k, v in change.items() if k not in ("from_step", "layers")})
                keys["layers"] += change.get("layers", [])
        self.keys = keys
        self.own_scales = keys.get("tensor_scaling")
        if isinstance(self.own_scales, str):
            self.own_scales = {"kind": self.own_scales}
        self.saturates = keys.get("overflow", "default") == "saturate"

    def of(self, role, name=None):
        base = "fp32" if role == "weight_gradients" else self.keys.get("format", "fp32")
        base = self.keys.get(role, base)
        return entries(self.keys["layers"], name).get(role, base) if name is not None else base

    def form(self, role, name=None, own_scale=False):
        saturate = self.saturates or (own_scale and self.keys.get("overflow", "default") == "default")
        return Format(self.of(role, name), saturate)


class Node:
    def __init__(self, name, kind, layer, inputs):
        self.name, self.kind, self.layer, self.inputs, self.readers = name, kind, layer, inputs, []


class Network:
    def __init__(self, config, shape):
        """shape: (channels, rows, columns) of an image."""
        self.config, self.nodes, self.by_name = config, [], {}
        classes = config["model"]["classes"]
        before, sequences = "input", set()
        for keys in config["model"]["layers"]:
            inputs = keys.get("inputs", [before])
            shapes = [shape if i == "input" else self.by_name[i].layer.shape for i in inputs]
            keys = {k: classes if v == "classes" else v for k, v in keys.items()}
            in_sequence = any(i in sequences for i in inputs) and keys["kind"] not in ("select", "global_avg_pool")
            if keys["kind"] == "attention" or in_sequence:
                sequences.add(keys["name"])
            keys["sequence"] = in_sequence
            node = Node(keys["name"], keys["kind"], CLASSES[keys["kind"]](keys, shapes), inputs)
            for i in inputs:
                if i != "input":
                    self.by_name[i].readers.append(node)
            node.trained_before = any(i != "input" and (self.by_name[i].trained_before or self.by_name[i].layer.params) for i in inputs)
            self.nodes.append(node)
            self.by_name[node.name] = node
            before = node.name

    def root(self, name):
        """The layer that made the values: through layers that only move them; `input` for the images."""
        while name != "input" and self.by_name[name].layer.moves:
            name = self.by_name[name].inputs[0]
        return name
