"""What a module gives, as the last layers: logits of images or of pixels, or a detector's boxes."""
import torch

from .arithmetic import boxes_of
from .network import CannotExpress, Value
from .convert import Refused
from .pending import Pending
from .tokens import vectors_of

KEEPS = ("relu", "relu6", "hardtanh", "leaky_relu", "dropout", "global_avg_pool", "sigmoid", "tanh",
         "silu", "gelu", "hardswish", "hardsigmoid", "elu", "softplus", "prelu", "affine", "upsample", "avg_pool",
         "max_pool")


def named_outputs(output):
    """(name, tensor) of all that are not None."""
    if isinstance(output, torch.Tensor):
        return [("", output)]
    if isinstance(output, dict):
        found = list(output.items())
        if "logits" in output:  # besides a loss: a cache of keys, hidden states
            found = [("logits", output["logits"])]
    elif isinstance(output, (tuple, list)):
        found = list(zip(getattr(output, "_fields", range(len(output))), output))
    else:
        raise CannotExpress("", "output", f"{type(output).__name__}; expected a tensor, or a tuple, "
                            "list or dict of tensors")
    return [(str(name), value) for name, value in found if value is not None]


class Output:
    """Makes `converter`'s network end with what the module gave. `task`, `classes`: what follows;
    `dropped`: names of outputs left out; `names`: of those that are kept."""

    def __init__(self, converter, output, keep_first):
        self.converter, self.network = converter, converter.network
        self.dropped, self.task = [], "classification"
        named = named_outputs(output)
        if len(named) > 1 and self.of_tokens():
            self.dropped = [name for name, _ in named[1:]]
            named = named[:1]
        if len(named) > 1 and not keep_first:
            named = self.detector(named)
        if self.task != "detection":
            self.one(named, keep_first)
        self.names = [name for name, _ in (named if self.task == "detection" else named[:1])]

    def of_tokens(self):
        return any(layer.kind == "embedding" for layer in self.network.layers)

    def value(self, tensor):
        found = self.converter.values.get(id(tensor)) if isinstance(tensor, torch.Tensor) else None
        if isinstance(found, Refused):
            raise found.error
        if isinstance(found, Pending):
            raise CannotExpress("", "output", f"{found.what}, which is no layer")
        if not isinstance(found, Value) or found.layer == "input":
            raise CannotExpress("", "output", "nothing that the trace saw the network compute from "
                                "its images (torch.jit, numpy and functions with a backward of "
                                "their own are not seen)")
        return found

    def detector(self, named):
        """Locations [n, boxes, 4] and scores [n, boxes, 1 + classes], in this order."""
        shapes = [tuple(t.shape) if isinstance(t, torch.Tensor) else () for _, t in named]
        three = all(len(shape) == 3 for shape in shapes)
        if len(named) != 2 or not three or shapes[0][1] != shapes[1][1] or (
                4 not in (shapes[0][2], shapes[1][2])):
            told = ", ".join(f"{name} {list(shape)}" for (name, _), shape in zip(named, shapes))
            raise CannotExpress("", "output", f"{len(named)} of them in training ({told}); --no-aux "
                                "keeps the first alone; a detector gives two, locations [n, boxes, "
                                "4] and scores [n, boxes, 1 + classes]")
        order = [0, 1] if shapes[0][2] == 4 else [1, 0]
        made = [self.boxes(*named[i], self.value(named[i][1])) for i in order]
        self.task, self.classes = "detection", shapes[order[1]][2] - 1
        if self.classes < 1:
            raise CannotExpress("", "output", "scores of one class; expected the background and at "
                                "least one more")
        self.network.outputs = [value.layer for value in made]
        self.end_with(self.network.outputs)
        return [named[i] for i in order]

    def boxes(self, name, tensor, value):
        found = boxes_of(self.converter, value) if value.form == "other" else None
        if found is None:
            raise CannotExpress("", "output", f"{name} of shape {list(tensor.shape)} is not made of "
                                "[n, boxes, values] in the order row, column, box of the pixel: "
                                "conv(x).permute(0, 2, 3, 1).reshape(n, -1, values), and torch.cat "
                                "of these along axis 1")
        if self.network.kind_of(value) == "concat_boxes" and found[1] == value.channels:
            return value
        pixels, values = found
        count = pixels.channels * pixels.height * pixels.width // values
        return self.network.add(self.network.unique("boxes", False), "concat_boxes", [pixels],
                                Value("", "pixels", values, 1, count), {"values": values})

    def one(self, named, keep_first):
        if len(named) > 1:
            self.dropped = [name for name, _ in named[1:]]
        tensor = named[0][1]
        while keep_first and isinstance(tensor, (tuple, list)) and tensor:  # a list of stages
            tensor = tensor[0]
        value = self.value(tensor)
        if self.of_tokens() and (self.network.is_sequence(value.layer) or tensor.dim() > 2):
            return self.language(value, tensor)
        if value.form == "other":
            raise CannotExpress("", "output", f"of shape {list(tensor.shape)}; expected [n, "
                                "classes], or [n, classes, height, width] of a segmenter")
        if value.form == "pixels":
            raise CannotExpress("", "output", f"of shape {list(tensor.shape)}, channels last; "
                                "expected [n, classes, height, width]")
        if value.form == "rows" and not value.is_vector:
            self.task = "segmentation"
        elif not value.is_vector:
            value = self.network.add(self.network.unique("flatten", False), "flatten", [value],
                                     Value("", "flat", value.channels * value.height *
                                           value.width))
        self.classes = value.channels
        self.end_with([value.layer])
        self.name_classes()

    def language(self, value, tensor):
        """Logits of the next token, for every token."""
        vectors = vectors_of(value)
        whole = vectors is not None and vectors.are_all(value.channels)
        if not whole or not self.network.is_sequence(value.layer):
            raise CannotExpress("", "output", f"of shape {list(tensor.shape)}; expected the logits "
                                "of every token, [n, tokens, vocabulary] (a module that gives those "
                                "of the last one alone: let forward take `targets`, or give all)")
        self.task, self.classes = "language", value.channels
        self.end_with([value.layer])
        self.name_classes()

    def end_with(self, layers):
        """Keeps what `layers` need; the last one in the list is the one that the loss is of."""
        for layer in layers:
            if layer in self.converter.not_last:
                raise self.converter.not_last[layer]
        self.network.prune(layers)
        self.network.part_inputs(self.converter.images)
        self.converter.slices.check(self.network)
        users = {}
        for layer in self.network.layers:
            for tensor, _ in layer.tensors.values():
                other = users.setdefault(id(tensor), layer.name)
                if other != layer.name and not self.converter.weights.untie:
                    raise CannotExpress("", layer.name, f"has a weight that {other} has too; layers "
                                        "cannot share weights")
        for layer in self.network.layers:
            if layer.kind == "l2_normalize" and not layer.tensors:
                raise CannotExpress("", layer.name, "the layer has a trained factor by channel, "
                                    "which must follow F.normalize: F.normalize(x) * "
                                    "self.scale.view(1, -1, 1, 1)")

    def name_classes(self):
        """The layer that decides how many classes there are says `classes` instead of a number."""
        by_name = {layer.name: layer for layer in self.network.layers}
        layer = self.network.layers[-1]
        while layer.kind in KEEPS and layer.inputs[0] in by_name:
            layer = by_name[layer.inputs[0]]
        for key in ("features", "channels"):
            if layer.kind in ("linear", "conv2d", "conv_transpose2d") and layer.keys.get(key) == self.classes:
                layer.keys[key] = "classes"
