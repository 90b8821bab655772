"""One call of a torch function: where it stands, what it is given, and how a layer is made of it."""
import itertools

import torch

from .network import CannotExpress, Stored, Value
from .tokens import of_sequence, selected
from .views import channel_axis, channels_of, is_whole, runs


def pair(value):
    return list(value) if isinstance(value, (tuple, list)) else [value, value]


def short(value):
    """[3, 3] as 3."""
    value = pair(value)
    return value[0] if value[0] == value[1] else value


# Nodes of autograd that only move values.
MOVES = ("Clone", "View", "T", "Transpose", "Permute", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze",
         "ToCopy", "Alias")


def copied_from(tensor):
    """The parameter of which `tensor` is a copy with its axes moved; None: it is something else."""
    node = tensor.grad_fn
    while node is not None and not hasattr(node, "variable"):
        before = [after for after, _ in node.next_functions if after is not None]
        known = type(node).__name__.split("Backward")[0] in MOVES
        node = before[0] if known and len(before) == 1 else None
    return None if node is None else node.variable


class Call:
    """What a handler of functions.py sees. `name`: of the layer, unless a weight has one for it."""

    def __init__(self, converter, function, path, operation, name, of_module, arguments,
                 result, place):
        self.converter, self.function = converter, function
        self.path, self.operation, self.place = path, operation, place
        self.name, self.of_module = name, of_module
        self.arguments = arguments  # as torch got them
        self.result = result  # the tensor, or tensors, that PyTorch made

    def refuse(self, why=""):
        raise CannotExpress(self.path, self.operation, why, self.place)

    def handled(self, name, *args):
        """What the handler of a function of functions.py makes of these arguments."""
        return self.converter.handlers[name](self, *args)

    @property
    def shape(self):
        return tuple(self.result.shape)

    def tensor(self, x):
        """`x` as a value of one of the three forms: parts of channels become layers."""
        if not isinstance(x, Value):
            self.refuse("expected a tensor that the network computed")
        if x.padding:
            self.refuse("of zeros added by pad, which only a convolution or a pool takes")
        return x if x.form != "other" else self.part(x)

    def part(self, x):
        """`x` of form "other" as layers: slices of channels."""
        found = channels_of(x)
        if found is None:
            made = self.tokens_of(x)
            if made is not None:
                return made
            if self.converter.network.is_sequence(x.layer) and is_whole(x):
                self.refuse(f"of a tensor of shape {list(x.index.shape)}, all tokens of {x.layer} in another "
                            "arrangement (as rows and columns of an image?); layers of images take no tokens")
            if self.converter.network.is_sequence(x.layer):
                self.refuse(f"of a tensor of shape {list(x.index.shape)} that is neither all tokens of {x.layer}, "
                            "nor one of them: some tokens, parts of them (each head for itself), or other axes "
                            "than tokens and channels")
            self.refuse(f"of a tensor of shape {list(x.index.shape)} whose elements lie otherwise "
                        "than in images [n, channels, height, width] or [n, height, width, "
                        "channels], or in [n, features]; a part of them can be of channels alone")
        channels, form = found
        return self.converter.slices.of(self, x, runs(channels), form)

    def tokens_of(self, x):
        """`x` as one token of each image, or as channels of all tokens; None: it is neither."""
        made = selected(self, x)
        if made is None:
            found = of_sequence(self, x)
            made = found and found[1].value(found[0])
        return made

    def channel_tensor(self, x, axes):
        """`x` for a function by channel: as it is where its channels lie on one of `axes` (1, -1)
        and all pixels in order on the others, else as a value of one of the three forms."""
        apart = isinstance(x, Value) and x.form == "other" and channel_axis(x) in axes
        return x if apart else self.tensor(x)

    def pointwise_tensor(self, x):
        """`x` for a function of each element alone, which takes any order of all of them."""
        if isinstance(x, Value) and x.form == "other" and not x.padding and is_whole(x):
            return x
        return self.tensor(x)

    def images(self, x):
        """`x` as a value [n, c, h, w]."""
        x = self.tensor(x)
        if x.form != "rows":
            self.refuse("expected an input of [n, channels, height, width]")
        return x

    def made(self):
        """What PyTorch made of images, as a value; the layer's name is filled in later."""
        return Value("", "rows", *self.shape[1:])

    def layer(self, kind, inputs, output, keys=None, tensors=None, name=None):
        network = self.converter.network
        own = network.unique(name or self.name, self.of_module or name is not None)
        return network.add(own, kind, inputs, output, keys, tensors)

    def pointwise(self, kind, x, keys=None):
        x = self.pointwise_tensor(x)
        return self.layer(kind, [x], x, keys)

    def weighted(self, kind, x, output, keys, tensors):
        """A layer with parameters, called after the module that has its weight. `tensors`: name in
        ada-train -> (tensor, the shape it has there), or Stored."""
        tensors = {name: t if isinstance(t, Stored) else self.stored(t[0], t[1], name)
                   for name, t in tensors.items() if t[0] is not None}
        weight = tensors["weight"][0]
        weights = self.converter.weights
        if kind == "linear" and id(weight) in weights.used and not weights.untie:
            return self.tied(x, output, keys, tensors, weights.used[id(weight)])
        name = weights.layer_name(self, weight)
        return self.layer(kind, [x], output, keys, tensors, name)

    def tied(self, x, output, keys, tensors, owner):
        """A linear layer of tokens with the weight of the layer called `owner`."""
        layer = self.converter.network.find(owner)
        weight = tensors.pop("weight")
        if layer is None or layer.kind not in ("embedding", "linear") or not (
                self.converter.network.is_sequence(x.layer)) or weight.permuted != (
                layer.tensors["weight"].permuted):
            self.refuse(f"has the weight of {owner}; only a linear layer of tokens can share that of "
                        "an embedding or of another one (--untie makes a weight of each)")
        return self.layer("linear", [x], output, {**keys, "weight_of": owner}, tensors)

    def trained(self, tensor, name):
        """The parameter or buffer that `tensor` is, perhaps in another shape."""
        found = self.stored(tensor, None, name)
        if found.permuted is not None:
            self.refuse(f"its {name} is a parameter whose axes are permuted")
        return found[0]

    def stored(self, tensor, shape, name):
        """The parameter or buffer whose values `tensor` has, all of them, perhaps in another order or
        shape, as ada-train has it in `shape`."""
        if not isinstance(tensor, torch.Tensor):
            self.refuse(f"its {name} is computed from the network's input")
        weights = self.converter.weights
        found = weights.found(tensor)
        if found is not None:
            return Stored(found[0], shape, found[1])
        whole = weights.part_of(tensor)
        if whole is not None:
            self.refuse(f"its {name} is a part of {whole}; ada-train trains a {name} of its own: give "
                        "the part a parameter to itself")
        return self.refuse(f"its {name} is computed (from other parameters, or a constant); ada-train "
                           f"trains a {name} of its own: write what it computes into a parameter")


class Weights:
    """Parameters and buffers of a module by where they lie in memory, and which layers use them."""

    def __init__(self, module, untie):
        self.by_place, self.names, self.used, self.untie = {}, {}, {}, untie
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            self.by_place[tensor.data_ptr(), tensor.numel()] = tensor
            self.names[id(tensor)] = name

    def found(self, tensor):
        """(parameter or buffer, how its axes are permuted) of which `tensor` has all values: a view,
        or a copy that is made of it; (shape, axes), or None where they lie as they are. None: there is
        no such one."""
        if id(tensor) in self.names:
            return tensor, None
        owner = self.by_place.get((tensor.data_ptr(), tensor.numel()))
        if owner is not None:
            if tensor.is_contiguous():
                return owner, None
            order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
            if not tensor.permute(order).is_contiguous():
                return None
            return owner, ([tensor.shape[axis] for axis in order],
                           [order.index(axis) for axis in range(tensor.dim())])
        owner = copied_from(tensor)
        if owner is None or id(owner) not in self.names or owner.numel() != tensor.numel():
            return None
        for axes in itertools.permutations(range(owner.dim())):
            if torch.equal(owner.detach().permute(axes).reshape(tensor.shape), tensor.detach()):
                ordered = list(axes) == sorted(axes)
                return owner, None if ordered else (list(owner.shape), list(axes))
        return None

    def part_of(self, tensor):
        """The name of the parameter of which `tensor` is a part; None: of none."""
        place = tensor.untyped_storage().data_ptr()
        return next((self.names[id(whole)] for whole in self.by_place.values()
                     if whole.untyped_storage().data_ptr() == place and whole.numel() > tensor.numel()
                     and isinstance(whole, torch.nn.Parameter)), None)

    def parameter(self, tensor):
        """The trained one that `tensor` is, perhaps in another shape; None: it is a constant, or
        computed."""
        found = self.found(tensor) if isinstance(tensor, torch.Tensor) else None
        plain = found is not None and found[1] is None and isinstance(found[0], torch.nn.Parameter)
        return found[0] if plain else None

    def layer_name(self, call, weight):
        """After the module whose weight it is, or after the parameter itself."""
        name = self.names[id(weight)]
        return self.taken(call, weight, name.removesuffix(".weight") if name != "weight"
                          else call.name)

    def taken(self, call, weight, name):
        """`name`, of the layer that uses `weight`; one layer alone may, but for --untie."""
        if id(weight) in self.used and not self.untie:
            call.refuse(f"is called twice, the first time as {self.used[id(weight)]}; layers cannot "
                        "share weights; --untie makes a layer of each call, with weights that start "
                        "alike and are trained apart")
        self.used.setdefault(id(weight), name)
        return name
