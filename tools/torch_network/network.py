"""The network as ada-train describes it, while it grows: layers in order, values, names."""
import dataclasses
import re

import torch


class CannotExpress(Exception):
    """A part of a module for which ada-train has no layer: its path, the operation, why, and where
    it stands ("net.py:12")."""

    def __init__(self, path, operation, why="", place=""):
        why = why or "ada-train has no layer for it"
        super().__init__(f"{path or '(the module itself)'}: {operation}: {why}"
                         + (f" ({place})" if place else ""))


@dataclasses.dataclass
class Value:
    """A tensor of the traced module: the layer that made it, its channels, rows and columns, and
    how PyTorch has its axes: "rows" [n, c, h, w], "pixels" [n, h, w, c], "flat" [n, c * h * w],
    and "other" for all else; then `index` has for each element its number in the layer's output as
    [n, c, h, w]. `padding`: zeros around it that no layer has added yet: left, right, top, bottom."""
    layer: str
    form: str
    channels: int
    height: int = 1
    width: int = 1
    index: object = None
    padding: tuple = ()

    @property
    def size(self):
        return self.channels, self.height, self.width

    @property
    def is_vector(self):
        return self.height == self.width == 1


class Stored(tuple):
    """A parameter or buffer of the module, and the shape that ada-train gives it. Its values may lie
    in another order there: first (`view`, `axes`), a shape and how its axes are permuted, then `rows`,
    which row of that each one is."""

    def __new__(cls, tensor, shape, permuted=None, rows=None):
        made = super().__new__(cls, (tensor, shape))
        made.permuted, made.rows = permuted, rows
        return made

    def changed(self, **parts):
        return Stored(**{"tensor": self[0], "shape": self[1], "permuted": self.permuted, "rows": self.rows,
                         **parts})

    def values(self):
        tensor = self[0]
        if self.permuted is not None:
            tensor = tensor.reshape(self.permuted[0]).permute(self.permuted[1])
        tensor = tensor.reshape(self[1])
        return tensor if self.rows is None else tensor[self.rows]


@dataclasses.dataclass
class Layer:
    name: str
    kind: str
    keys: dict
    inputs: list   # names
    tensors: dict  # suffix -> Stored; "": the layer's name is the tensor's
    output: Value  # as it lies in PyTorch
    noise: object = None  # what draws as PyTorch does, of layers that drop
    instead_of: str = ""  # the layer whose name it has where that one is not needed


MAKE_SEQUENCES = ("embedding", "position_embedding", "class_token", "rope", "attention")
END_SEQUENCES = ("flatten", "select", "global_avg_pool", "adaptive_avg_pool")


class Network:
    """Layers in the order in which they were called."""

    def __init__(self, taken):
        self.layers = []
        self.taken = set(taken) | {"input", "loss"}  # names of modules: functions get others
        self.used = set()
        self.outputs = []  # names of the layers that the loss is of, where there are several

    def unique(self, name, of_module):
        """A name that no layer has, near `name`; a module's own stays as it is at its first call."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        free = name not in self.used and (
            of_module or name not in self.taken) and name not in ("input", "loss")
        number = 2
        result = name
        while not free:
            result = f"{name}_{number}"
            free = result not in self.used and result not in self.taken
            number += 1
        self.used.add(result)
        return result

    def add(self, name, kind, inputs, output, keys=None, tensors=None):
        """Appends a layer whose output is like `output`; returns that value."""
        made = dataclasses.replace(output, layer=name)
        tensors = {suffix: t if isinstance(t, Stored) else Stored(*t)
                   for suffix, t in (tensors or {}).items()}
        self.layers.append(Layer(name, kind, keys or {}, [v.layer for v in inputs], tensors, made))
        return made

    def find(self, name):
        """The layer called `name`; None for the images."""
        return next((layer for layer in reversed(self.layers) if layer.name == name), None)

    def is_sequence(self, name):
        """Whether the output of the layer called `name` is a sequence of tokens, as ada-train sees
        it: `linear` works on each of them alone."""
        layer = self.find(name)
        while layer is not None and layer.kind not in MAKE_SEQUENCES + END_SEQUENCES:
            layer = self.find(layer.inputs[0])
        return layer is not None and layer.kind in MAKE_SEQUENCES

    def kind_of(self, value):
        layer = self.find(value.layer)
        return layer.kind if layer else "input"

    def prune(self, outputs):
        """Leaves out what the layers called `outputs` do not need."""
        needed = set(outputs)
        for layer in reversed(self.layers):
            if layer.name in needed:
                needed.update(layer.inputs)
        self.layers = [layer for layer in self.layers if layer.name in needed]
        for layer in self.layers:
            if layer.instead_of and layer.instead_of not in needed:
                self.rename(layer.name, layer.instead_of)

    def part_inputs(self, images):
        """A layer takes different ones: of a tensor that it takes twice, as x * x and cat((x, x)) do,
        a second one is made, by an affine layer that changes nothing. `images`: what goes in."""
        made = []
        for layer in self.layers:
            for i, name in enumerate(layer.inputs):
                if name in layer.inputs[:i]:
                    found, again = self.find(name), self.unique(f"{name}_again", False)
                    value = found.output if found else images
                    c = value.channels
                    made.append(Layer(again, "affine", {}, [name], {
                        "factor": Stored(torch.ones(c), [c]),
                        "offset": Stored(torch.zeros(c), [c])},
                        dataclasses.replace(value, layer=again)))
                    layer.inputs[i] = again
            made.append(layer)
        self.layers = made

    def rename(self, before, after):
        self.outputs = [after if name == before else name for name in self.outputs]
        for layer in self.layers:
            layer.inputs = [after if name == before else name for name in layer.inputs]
            if layer.keys.get("weight_of") == before:
                layer.keys["weight_of"] = after
            if layer.name == before:
                layer.name = after
                layer.output = dataclasses.replace(layer.output, layer=after)

    def constants(self):
        """Names of layers whose constants are no keys."""
        return [layer.name for layer in self.layers if layer.kind == "affine" and any(
            bool((t != t[0]).any()) for t, _ in layer.tensors.values())]

    def tensors(self):
        """Name and Stored of all that has values, in order."""
        return {f"{layer.name}.{suffix}" if suffix else layer.name: tensor
                for layer in self.layers for suffix, tensor in layer.tensors.items()}
