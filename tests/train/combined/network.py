"""The graph of a configuration: layers in order, who reads whom, and the format of every tensor (configs/formats.md)."""

import fnmatch

import functions
import images
import kinds
import norms
import products
from formats import Format
from operands import Operands
from sequences import ClassToken, Embedding, Position, Rope

ROLES = ("activations", "weights", "gradients", "weight_gradients")
CLASSES = {
    "conv2d": products.Convolution,
    "conv_transpose2d": products.Transposed,
    "linear": products.Linear,
    "scale": kinds.Cast,
    "relu": kinds.Relu,
    "relu6": kinds.Clamp,
    "hardtanh": kinds.Clamp,
    "leaky_relu": functions.Leaky,
    "prelu": functions.Sloped,
    "channel_scale": functions.ChannelScale,
    "affine": functions.Affine,
    "softmax": functions.Softmax,
    "max_pool": kinds.MaxPool,
    "avg_pool": kinds.Means,
    "adaptive_avg_pool": kinds.Means,
    "global_avg_pool": kinds.Means,
    "dropout": kinds.Dropout,
    "stochastic_depth": kinds.Dropout,
    "add": kinds.Add,
    "multiply": kinds.Multiply,
    "concat": kinds.Concat,
    "flatten": kinds.Moves,
    "slice": kinds.Moves,
    "select": kinds.Moves,
    "pixel_shuffle": kinds.Moves,
    "upsample": kinds.Moves,
    "bilinear": images.Bilinear,
    "shortcut": images.Shortcut,
    "max_unpool": images.Unpool,
    "lrn": images.Lrn,
    "batch_norm": norms.BatchNorm,
    "layer_norm": norms.LayerNorm,
    "rms_norm": norms.LayerNorm,
    "l2_normalize": norms.L2,
    "group_norm": norms.GroupNorm,
    "attention": norms.Attention,
    "embedding": Embedding,
    "position_embedding": Position,
    "class_token": ClassToken,
    "rope": Rope,
    **{name: functions.Function for name in functions.FUNCTIONS},
}


def entries(listed, *names):
    """All entries of a list with `match` that fit, later ones over earlier ones, key by key; a role's key beats its
    `format`.

    Of a gradient within attention both LAYER.dq and LAYER are its names.
    """
    found = {}
    for entry in listed:
        if any(fnmatch.fnmatchcase(name, entry["match"]) for name in names):
            if "format" in entry:
                found.update({role: entry["format"] for role in ROLES[:3]})
            found.update({k: v for k, v in entry.items() if k not in ("match", "format")})
    return found


PRODUCTS = ("conv2d", "conv_transpose2d", "linear", "attention")
LOW = (*PRODUCTS, "prelu")
ALWAYS_FP32 = ("l2_normalize", "lrn", "channel_scale", "embedding", "position_embedding", "class_token")
FP32_ON = {
    "autocast": ("layer_norm", "rms_norm", "group_norm", "softmax", "softplus", "upsample"),
    "autocast_cpu": ("max_unpool",),
}


class Precision(Operands):
    """Formats by layer and role, of one step."""

    def __init__(self, config, step, network):
        self.network = network
        keys = dict(config.get("precision", {}))
        keys["layers"] = list(keys.get("layers", []))
        self.operand_levels = [keys.get("operands", "none")]
        self.accumulate_levels = [keys.get("accumulate", "none")]
        for change in keys.get("schedule", []):
            if change["from_step"] <= step:
                keys.update({k: v for k, v in change.items() if k not in ("from_step", "layers")})
                keys["layers"] += change.get("layers", [])
                self.operand_levels += [change["operands"]] if "operands" in change else []
                self.accumulate_levels += [change["accumulate"]] if "accumulate" in change else []
        self.keys = keys
        self.own_scales = keys.get("tensor_scaling")
        if isinstance(self.own_scales, str):
            self.own_scales = {"kind": self.own_scales}
        self.saturates = keys.get("overflow", "default") == "saturate"
        sums = keys.get("accumulated_gradients", "fp32")
        sums = Format(sums["format"] if isinstance(sums, dict) and "format" in sums else sums, self.saturates)
        self.accumulated_gradients = None if sums.is_fp32 else sums

    def of(self, role, name, reader=None):
        """The format of a role of the layer `name` (or of `input`); reader: who gives a gradient by its output."""
        if "preset" in self.keys and role != "weight_gradients":
            return entries(self.keys["layers"], name).get(role, self.autocast(role, name, reader))
        base = "fp32" if role == "weight_gradients" else self.keys.get("format", "fp32")
        base = self.keys.get(role, base)
        return entries(self.keys["layers"], name).get(role, base)

    def autocast(self, role, name, reader):
        """configs/formats.md, preset: autocast."""
        low = self.keys["format"]
        if role == "weights":
            return low
        readers = self.network.by_name[name].readers if name != "input" else self.network.reads_images
        read = [r for reader in readers for r in self.network.ends(reader)]
        only_products = bool(read) and all(r.kind in (*PRODUCTS[:3], "prelu") for r in read)
        if only_products and (role == "activations" or reader is not None and reader.kind in LOW):
            return low
        return low if self.natural(name) else "fp32"

    def natural(self, name):
        """Whether torch gives the output of this layer in the low format."""
        if name == "input":
            return False
        node = self.network.by_name[name]
        if node.kind in LOW:
            return True
        if node.kind in ALWAYS_FP32 or node.kind in FP32_ON[self.keys["preset"]]:
            return False
        return all(self.natural(i) for i in node.inputs)

    def without_effect(self):
        """Globs of entries that name nothing that a layer which they match rounds."""
        found = []
        for entry in self.keys["layers"]:
            matched = [n for n in self.network.nodes if fnmatch.fnmatchcase(n.name, entry["match"])]
            images = not self.network.language and fnmatch.fnmatchcase("input", entry["match"])
            output = images and ("format" in entry or "activations" in entry)
            output |= any(not n.layer.moves for n in matched) and any(
                k in entry for k in ("format", "activations", "gradients")
            )
            weight = any(n.copied for n in matched) and any(k in entry for k in ("format", "weights"))
            weight |= any("weight" in n.layer.params and n.layer.weighted for n in matched) and "weight_gradients" in entry
            weight |= any(isinstance(n.layer, products.Product) for n in matched) and any(
                k in entry for k in ("operands", "accumulate")
            )
            within = entry.get("operands", "none")
            weight |= any(n.kind == "attention" for n in matched) and "attention" in within
            if not output and not weight:
                found.append(entry["match"])
        return found

    def form(self, role, name, own_scale=False, reader=None):
        saturate = self.saturates or (own_scale and self.keys.get("overflow", "default") == "default")
        overflow, rounding = self.keys.get("overflow", "default"), self.keys.get("rounding", "nearest")
        mode = "nearest" if rounding == "stochastic" else rounding
        return Format(self.of(role, name, reader), saturate, mode, overflow == "saturate_finite")


class Node:
    def __init__(self, name, kind, layer, inputs):
        self.name, self.kind, self.layer, self.inputs, self.readers = name, kind, layer, inputs, []
        self.tied = None  # the layer that multiplies the weight of this one

    def parameter(self, name):
        """The name of a parameter in files; of a layer with a single vector it is the layer's."""
        return f"{self.name}.{name}" if name else self.name

    @property
    def copied(self):
        """Whether a rounded copy of its weight is multiplied, be it by another layer."""
        return isinstance(self.layer, products.Product) and self.owner is self or self.tied is not None


class Network:
    def __init__(self, config, shape):
        """shape: (channels, rows, columns) of an image."""
        self.config, self.nodes, self.by_name, self.reads_images = config, [], {}, []
        self.of_parameter = {}  # layer and part, by the names in files
        classes = config["model"]["classes"]
        self.language = config.get("task") == "language"
        before, sequences = "input", {"input"} if self.language else set()
        for keys in config["model"]["layers"]:
            inputs = keys.get("inputs", [before])
            shapes = [shape if i == "input" else self.by_name[i].layer.shape for i in inputs]
            keys = {k: classes if v == "classes" else v for k, v in keys.items()}
            in_sequence = any(i in sequences for i in inputs) and keys["kind"] not in ("select", "global_avg_pool")
            if keys["kind"] in ("attention", "class_token") or in_sequence:
                sequences.add(keys["name"])
            keys["sequence"] = in_sequence
            if keys["kind"] == "max_unpool":
                keys["pool_layer"] = self.by_name[keys["pool"]].layer
            made = "bilinear" if keys.get("mode") == "bilinear" else keys["kind"]
            node = Node(keys["name"], keys["kind"], CLASSES[made](keys, shapes), inputs)
            node.owner = self.by_name.get(keys.get("weight_of"), node)  # of the weight that it multiplies
            if node.owner is not node:
                node.layer.params.pop("weight")
                node.owner.tied = node
            for i in inputs:
                (self.by_name[i].readers if i != "input" else self.reads_images).append(node)
            node.trained_before = any(
                i != "input" and (self.by_name[i].trained_before or self.by_name[i].layer.trained) for i in inputs
            )
            self.nodes.append(node)
            self.of_parameter.update({node.parameter(name): (node.name, name) for name in node.layer.params})
            self.by_name[node.name] = node
            before = node.name

    def ends(self, reader):
        """Who reads what `reader` hands on: itself where it computes."""
        if not reader.layer.moves:
            return [reader]
        return [end for after in reader.readers for end in self.ends(after)]

    def root(self, name):
        """The layer that made the values: through layers that only move them; `input` for the images."""
        while name != "input" and self.by_name[name].layer.moves:
            name = self.by_name[name].inputs[0]
        return name
