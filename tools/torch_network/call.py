"""One call of a torch function: where it stands, what it is given, and how a layer is made of it."""
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
        tensors = {name: Stored(self.trained(t[0], name), t[1], getattr(t, "transposed", False))
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
                self.converter.network.is_sequence(x.layer)) or weight.transposed != (
                layer.tensors["weight"].transposed):
            self.refuse(f"has the weight of {owner}; only a linear layer of tokens can share that of "
                        "an embedding or of another one (--untie makes a weight of each)")
        return self.layer("linear", [x], output, {**keys, "weight_of": owner}, tensors)

    def trained(self, tensor, name):
        """The parameter or buffer that `tensor` is, perhaps in another shape."""
        if isinstance(tensor, Value):
            self.refuse(f"its {name} is computed from the images")
        found = self.converter.weights.stored(tensor)
        if found is None:
            self.refuse(f"its {name} is computed (from other parameters, or a constant); ada-train "
                        f"trains a {name} of its own: write what it computes into a parameter")
        return found


class Weights:
    """Parameters and buffers of a module by where they lie in memory, and which layers use them."""

    def __init__(self, module, untie):
        self.by_place, self.names, self.used, self.untie = {}, {}, {}, untie
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            self.by_place[tensor.data_ptr(), tensor.numel()] = tensor
            self.names[id(tensor)] = name

    def stored(self, tensor):
        if id(tensor) in self.names:
            return tensor
        if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
            return None
        return self.by_place.get((tensor.data_ptr(), tensor.numel()))

    def parameter(self, tensor):
        """The trained one that `tensor` is a view of; None: it is a constant."""
        found = self.stored(tensor)
        return found if isinstance(found, torch.nn.Parameter) else None

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
