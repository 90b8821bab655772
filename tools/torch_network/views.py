"""Calls that only move elements: views, permutations, slices. What they give is found by doing the
same with the elements' numbers, so that pairs that cancel leave nothing behind."""
import dataclasses

import torch
from torch.utils import _pytree

from .network import Value

BATCH = 3  # images; no axis of a network has this meaning by chance when views are told apart
# Functions that only move values.
MOVES = (
    "contiguous", "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel",
    "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "T", "mT", "t",
    "squeeze", "unsqueeze", "getitem", "narrow", "select", "chunk", "split", "tensor_split",
    "split_with_sizes", "unbind", "index_select", "flip", "roll", "expand", "expand_as", "broadcast_to",
    "repeat_interleave", "repeat", "channel_shuffle", "native_channel_shuffle",
    "pixel_unshuffle")


def whole(value):
    """Numbers of all elements of the layer's output, [n, c, h, w]."""
    count = BATCH * value.channels * value.height * value.width
    return torch.arange(count).reshape(BATCH, *value.size)


def numbers(value):
    """Where each element of `value` lies in the layer's output, in the shape that PyTorch has."""
    if value.form == "other":
        return value.index
    return in_form(whole(value), value.form)


def in_form(rows, form):
    return {"rows": lambda: rows, "pixels": lambda: rows.permute(0, 2, 3, 1),
            "flat": lambda: rows.flatten(1)}[form]()


def view(base, index):
    """The value of the same layer whose elements are `index`."""
    rows = whole(base)
    for form in ("rows", "flat", "pixels"):
        same = in_form(rows, form)
        if same.shape == index.shape and torch.equal(same, index):
            return Value(base.layer, form, *base.size)
    return Value(base.layer, "other", *base.size, index)


def moved(call, x, args, kwargs):
    """What call.function(*args, **kwargs) makes of `x`, one of its arguments: one value or several."""
    if x.padding:
        call.refuse("of zeros added by pad, which only a convolution or a pool takes")
    index = numbers(x)
    given, named = _pytree.tree_map(lambda a: index if a is x else a, (args, kwargs))
    if call.function is torch.Tensor.view:
        given = (index, *given[1:])
        result = torch.reshape(index, given[1] if isinstance(given[1], (tuple, list)) else given[1:])
    else:
        result = call.function(*given, **named)
    if isinstance(result, (tuple, list)):
        return [view(x, part) for part in result]
    return view(x, result)


def channels_of(x):
    """The channels of the layer's output that `x`, of form "other", is made of, and in which form
    it has them; None where it is something else."""
    pixels, rows = x.height * x.width, whole(x)
    for form in ("rows", "pixels", "flat"):
        index = x.index
        if form == "pixels" and index.dim() == 4:
            index = index.permute(0, 3, 1, 2)
        elif form == "flat" and index.dim() == 2 and index.shape[1] % pixels == 0:
            index = index.reshape(BATCH, -1, x.height, x.width)
        elif form != "rows":
            continue
        if index.dim() != 4 or index.shape[0] != BATCH or tuple(index.shape[2:]) != x.size[1:]:
            continue
        channels = index[0, :, 0, 0] // pixels
        if int(channels.max()) < x.channels and torch.equal(index, rows[:, channels]):
            return channels.tolist(), form
    return None


def runs(channels):
    """[4, 5, 6, 1, 2] as [(4, 3), (1, 2)]: first channel and count."""
    found = []
    for channel in channels:
        if found and channel == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((channel, 1))
    return found


def is_gate(x):
    """Whether `x` is one number a channel, spread over an image's pixels."""
    if x.form != "other" or not x.is_vector or x.index.dim() != 4:
        return False
    return torch.equal(x.index, whole(x).expand(x.index.shape))


def channel_axis(x):
    """Which axis of "other" has the channels, all pixels in order on the axes behind (1) or before
    (-1) it: [n, c, h * w], [n, h * w, c]. None: neither."""
    shape = tuple(x.index.shape)
    for axis, form in ((1, "rows"), (-1, "pixels")):
        same = in_form(whole(x), form)
        if len(shape) > 1 and shape[0] == BATCH and shape[axis] == x.channels and (
                x.index.numel() == same.numel()
                and torch.equal(x.index.reshape(same.shape), same)):
            return axis
    return None


def is_whole(x):
    """Whether each element of the layer's output stands in `x` once."""
    return x.form != "other" or torch.equal(x.index.flatten().sort().values, whole(x).flatten())


def to_rows(value, moved):
    """`moved`, a tensor with its axes as those of `value`, as [n, c, h, w] of its layer."""
    return moved.flatten()[numbers(value).flatten().argsort()].reshape(BATCH, *value.size)


def like(x, layer):
    """`x` with its axes as they are, of another layer whose output is as large."""
    return dataclasses.replace(x, layer=layer)


def out_of_order(what, found, layer):
    """`found`: the runs of channels, (first, count), of which the heads are made."""
    told = ", ".join(f"{first} to {first + count - 1}" for first, count in found[:3])
    return (f"its {what} are channels {told}{' ...' if len(found) > 3 else ''} of {layer}, where expected are "
            "those of one head after the other, and nothing between them; only of a linear layer, which nothing "
            "else reads, can the rows be written in that order")
