"""Sequences: which token each vector of a tensor belongs to, and the layers that make tokens. Tokens
of a layer are its pixels, row by row."""
import torch

from .network import Stored, Value
from .views import BATCH, numbers, runs, view, whole


class Vectors:
    """A tensor whose last axis has channels of one token, all tokens once, in any order of axes:
    `image` and `place` (which token) in the shape of the other axes, and which channels."""

    def __init__(self, image, place, channels):
        self.image, self.place, self.channels = image, place, channels

    def are_all(self, count):
        """Whether they have all `count` channels of their layer, in order."""
        return self.channels == list(range(count))

    def value(self, layer):
        """A tensor that lies like this one, of the layer of `layer`, with all its channels."""
        count = layer.height * layer.width
        first = self.image * layer.channels * count + self.place
        return view(layer, first[..., None] + torch.arange(layer.channels) * count)


def vectors_of(x):
    """`x` as Vectors; None: it is something else."""
    index = numbers(x)
    if index.dim() < 2 or not index.numel():
        return None
    count = x.height * x.width
    image, place, channel = index // (x.channels * count), index % count, index // count % x.channels
    alike = [torch.equal(a, a[..., :1].expand(a.shape)) for a in (image, place)]
    channels = channel.reshape(-1, channel.shape[-1])
    if not all(alike) or not torch.equal(channels, channels[:1].expand(channels.shape)):
        return None
    image, place = image[..., 0], place[..., 0]
    once = (image * count + place).flatten().sort().values
    if not torch.equal(once, torch.arange(BATCH * count)):
        return None
    return Vectors(image, place, channels[0].tolist())


def of_sequence(call, x):
    """(layer, vectors) of tokens that a layer can take: the layer's output, or a slice of its
    channels, as a value, and how PyTorch has it. None: `x` is of no sequence."""
    if not isinstance(x, Value) or x.padding or not call.converter.network.is_sequence(x.layer):
        return None
    vectors = vectors_of(x)
    if vectors is None:
        return None
    if vectors.are_all(x.channels):
        return Value(x.layer, "rows", *x.size), vectors
    layer = call.converter.slices.of(call, x, runs(vectors.channels), "rows")
    return layer, vectors


def selected(call, x):
    """`x`, of form "other", as the value of one token of each image; None: it is something else."""
    if not call.converter.network.is_sequence(x.layer) or x.index.shape[0] != BATCH:
        return None
    index, count = x.index.reshape(BATCH, -1), x.height * x.width
    place = int(index[0, 0]) % count
    rows = whole(x).reshape(BATCH, x.channels, count)[:, :, place]
    if not torch.equal(index, rows):
        return None
    network = call.converter.network
    name = f"{x.layer}.token"
    found = next((layer for layer in network.layers if layer.kind == "select" and
                  layer.inputs == [x.layer] and layer.keys.get("position", 0) == place), None)
    made = found.output if found else network.add(
        network.unique(name, False), "select", [x], Value("", "flat", x.channels),
        {"position": place} if place else {})
    return view(made, whole(made).reshape(x.index.shape))


# --- What makes tokens ---

def embedding(call, tokens, weight, padding_idx=None, max_norm=None, norm_type=2.0,
              scale_grad_by_freq=False, sparse=False):
    if not isinstance(tokens, Value) or tokens.layer != "input":
        call.refuse("of numbers that the network computed; only of the tokens that it is given, or "
                    "of places 0, 1, 2 ...")
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq:
        call.refuse("padding_idx, max_norm or scale_grad_by_freq: a row that is not trained, or "
                    "trained by another rule; ada-train's trains all rows; it has a layer for an embedding "
                    "without these (of many transformers: pad_token_id=None)")
    vocabulary, features = weight.shape
    made = call.weighted("embedding", tokens,
                         Value("", "rows", int(features), tokens.height),
                         {"vocabulary": int(vocabulary), "features": int(features)},
                         {"weight": (weight, [int(vocabulary), int(features)])})
    index = numbers(tokens)
    return Vectors(index // tokens.height, index % tokens.height, None).value(made)


def source_of(tensor):
    """The one parameter that `tensor` was computed from; None: there is none, or several."""
    if isinstance(tensor, torch.nn.Parameter):
        return tensor
    found, seen, left = set(), set(), [tensor.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(node.variable)
        left += [after for after, _ in node.next_functions]
    return found.pop() if len(found) == 1 else None


def layer_of(call, kind, x, output, keys, suffix, parameter, shape, rows=None, permuted=None):
    """A layer with one parameter, which has its name; `rows`, `permuted`: as Stored has them."""
    stored = call.trained(parameter, "parameter")
    weights = call.converter.weights
    name = weights.taken(call, stored, weights.names[id(stored)].removesuffix(".weight"))
    return call.layer(kind, [x], output, keys, {suffix: Stored(stored, shape, permuted, rows)}, name)


def positions(call, x, other):
    """x plus rows of a parameter, one after the other, one for each token; None: `other` is no such
    rows."""
    parameter = source_of(other)
    as_image = parameter is not None and tuple(parameter.shape) == (1, *x.size) and not x.is_vector
    if as_image and x.form == "rows" and parameter.shape == other.shape:
        made = positions(call, view(x, numbers(x).movedim(1, -1)), other.movedim(1, -1))
        return made and view(made, numbers(made).movedim(-1, 1))
    vectors = vectors_of(x)
    if parameter is None or vectors is None or not vectors.are_all(x.channels):
        return None
    permuted, table = None, parameter.detach()
    if as_image and other.shape[-1] == x.channels:
        permuted, table = (list(parameter.shape), [0, 2, 3, 1]), table.movedim(1, -1)
    if table.shape[-1] != x.channels:
        return None
    table = table.reshape(-1, x.channels)
    if len(table) < x.height * x.width or vectors.place.numel() == BATCH:
        return None
    count, wanted = x.height * x.width, (*vectors.place.shape, x.channels)
    if other.dim() > len(wanted):
        return None
    wanted = other.detach().expand(wanted)
    one = wanted[vectors.place == 0][0]
    first = next((n for n in range(len(table) - count + 1)
                  if torch.equal(table[n], one) and torch.equal(table[vectors.place + n], wanted)), None)
    if first is None:
        return None
    rows = [*range(first, len(table)), *range(first)] if first else None
    made = layer_of(call, "position_embedding", Value(x.layer, "rows", *x.size),
                    Value("", "rows", x.channels, count), {"context": len(table)}, "weight",
                    parameter, [len(table), x.channels], rows, permuted)
    return vectors.value(made)


def class_token(call, first, x):
    """[first; x] along the axis of tokens, where `first` is a parameter for each image."""
    parameter, vectors = source_of(first), vectors_of(x)
    if parameter is None or vectors is None or parameter.numel() != x.channels or (
            not vectors.are_all(x.channels) or vectors.image.dim() != 2):
        return None
    if not torch.equal(first.detach().flatten(), parameter.detach().flatten().repeat(BATCH)):
        return None
    ordered = torch.arange(BATCH * x.height * x.width).reshape(BATCH, -1)
    if not torch.equal(vectors.image * x.height * x.width + vectors.place, ordered):
        return None
    count = x.height * x.width + 1
    made = layer_of(call, "class_token", Value(x.layer, "rows", *x.size),
                    Value("", "rows", x.channels, count), {}, "", parameter, [1, 1, x.channels])
    places = torch.arange(count).expand(BATCH, count)
    return Vectors(torch.arange(BATCH)[:, None].expand(BATCH, count), places, None).value(made)
