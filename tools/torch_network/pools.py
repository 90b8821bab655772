"""Pools, upsampling, channels that become pixels."""
import dataclasses

import torch

from .arithmetic import affine
from .call import pair, short
from .network import CannotExpress, Value
from .norms import of_each_head
from .pending import MeanSquare
from .products import padded, window
from .tokens import of_sequence
from .views import channel_axis, like, whole

NOT_NEGATIVE = ("relu", "relu6", "sigmoid", "hardsigmoid", "softplus")  # zeros beside them do not win


def pool_max(call, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False,
             return_indices=False):
    if pair(dilation) != [1, 1] or return_indices:
        call.refuse("dilation or return_indices")
    plain, x = padded(call, x)
    if x.padding and call.converter.network.kind_of(plain) not in NOT_NEGATIVE:
        call.refuse("of zeros added by pad, which could be the largest; give the pool its padding")
    return pool(call, "max_pool", plain, x, kernel_size, stride, padding, ceil_mode)


def pool(call, kind, plain, x, kernel_size, stride, padding, ceil_mode):
    stride = kernel_size if stride in (None, [], ()) else stride
    if ceil_mode and x.padding:
        call.refuse("ceil_mode of zeros added by pad")
    keys = window(call, x, kernel_size, stride, padding, pair(kernel_size))
    if ceil_mode:
        keys["ceil_mode"] = True
    return call.layer(kind, [plain], call.made(), keys)


def pool_avg(call, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
    if divisor_override is not None:
        call.refuse("divisor_override")
    plain, x = padded(call, x)
    if x.padding and (pair(padding) != [0, 0] or not any(x.padding)):
        call.refuse("of zeros added by pad and padding of its own")
    made = pool(call, "avg_pool", plain, x, kernel_size, stride, padding, ceil_mode)
    keys = call.converter.network.layers[-1].keys
    if "padding" in keys:
        keys["count_include_pad"] = bool(count_include_pad) or bool(x.padding)
    return made


def sizes_of(x, output_size):
    return [have if want is None else want
            for want, have in zip(pair(output_size), (x.height, x.width))]


def adaptive_avg(call, x, output_size):
    x = call.images(x)
    size = sizes_of(x, output_size)
    if size == [1, 1]:
        return call.layer("global_avg_pool", [x], call.made())
    return call.layer("adaptive_avg_pool", [x], call.made(), {"size": size})


def adaptive_max(call, x, output_size, return_indices=False):
    x = call.images(x)
    size = sizes_of(x, output_size)
    if return_indices or x.height % size[0] or x.width % size[1]:
        call.refuse(f"{x.height}x{x.width} to {size[0]}x{size[1]}: windows of different sizes")
    kernel = [x.height // size[0], x.width // size[1]]
    return call.layer("max_pool", [x], call.made(), {"kernel": short(kernel)})


def pixel_axes(call, x, dim):
    """Whether `dim` are the axes that pixels lie on; the form of what is left."""
    dims = [dim] if isinstance(dim, int) else dim
    rank = call.converter.rank(x)
    axes = {"rows": [2, 3], "pixels": [1, 2]}.get(x.form)
    if x.form == "other":
        axis = channel_axis(x)
        axes = {1: list(range(2, rank)), -1: list(range(1, rank - 1))}.get(axis)
    if dims is None or axes is None or sorted(d % rank for d in dims) != axes:
        call.refuse(f"over axes {dims}; only over height and width")


def mean_of_squares(call, x, dim, keepdim):
    """The mean over the channels of tokens times themselves; None: it is another mean."""
    layer = call.converter.network.find(x.layer) if isinstance(x, Value) else None
    if layer is None or layer.kind != "multiply" or layer.inputs[0] != layer.inputs[1] or (
            not keepdim or dim not in (-1, [-1], (-1,), call.converter.rank(x) - 1)):
        return None
    base = like(x, layer.inputs[0])
    found = of_sequence(call, base)
    return MeanSquare(base) if found and found[0].channels == x.channels else None


def mean(call, x, dim=None, keepdim=False, axis=None, dtype=None):
    if isinstance(x, Value) and x.form == "other" and (dim if dim is not None else axis) in (-1, [-1], (-1,)):
        of_each_head(call, x, [x.index.shape[-1]])
    square = mean_of_squares(call, x, dim if dim is not None else axis, keepdim)
    if square is not None:
        return square
    x = call.channel_tensor(x, (1, -1))
    pixel_axes(call, x, dim if dim is not None else axis)
    made = call.layer("global_avg_pool", [x], Value("", "rows", x.channels))
    return call.converter.shaped(made, call.shape)


def total(call, x, dim=None, keepdim=False, axis=None, dtype=None):
    """The sum over pixels."""
    made = mean(call, x, dim, keepdim, axis)
    return affine(call, made, float(x.height * x.width), 0.0)


def largest_and_where(call, x, dim=None, keepdim=False):
    """torch.max along an axis gives two tensors; no layer gives the second."""
    if not isinstance(dim, int):
        call.refuse("of all elements, or of two tensors; only over height and width")
    return [largest(call, x, dim, keepdim, call.result[0].shape),
            CannotExpress(call.path, call.operation, "its indices", call.place)]


def largest(call, x, dim=None, keepdim=False, shape=None):
    """amax over pixels."""
    x = call.channel_tensor(x, (1, -1))
    pixel_axes(call, x, dim)
    made = call.layer("max_pool", [x], Value("", "rows", x.channels),
                      {"kernel": short([x.height, x.width])})
    return call.converter.shaped(made, shape or call.shape)


def upsample(call, x, size=None, scale_factor=None, mode="nearest", align_corners=None,
             recompute_scale_factor=None, antialias=False):
    x = call.images(x)
    made = call.made()
    if made.size == x.size:
        return x
    scale = made.height // x.height
    whole = (made.height, made.width) == (scale * x.height, scale * x.width)
    if scale_factor is not None and not recompute_scale_factor and not align_corners:
        whole = whole and pair(scale_factor) == [scale, scale]
    if whole and not antialias:
        if mode in ("nearest", "nearest-exact") or (x.is_vector and mode != "area"):
            return call.layer("upsample", [x], made, {"scale": scale})
        if mode == "bilinear":
            corners = {"align_corners": True} if align_corners else {}
            return call.layer("upsample", [x], made, {"scale": scale, "mode": mode, **corners})
    by = "" if scale_factor is None else f" by {scale_factor}"
    return call.refuse(
        f"mode {mode}{', antialias' if antialias else ''}, from {x.height}x{x.width} to "
        f"{made.height}x{made.width}{by}; nearest and bilinear come over, by one whole number")


def pixel_shuffle(call, x, upscale_factor):
    return call.layer("pixel_shuffle", [call.images(x)], call.made(), {"scale": upscale_factor})


def channel_axis_of(x):
    return -1 if x.form == "pixels" else channel_axis(x) if x.form == "other" else 1


def pad(call, x, pad, mode="constant", value=None):
    """Zeros around an image wait for the window that takes them; channels of zeros make the
    shortcut of CIFAR's ResNets."""
    widths = [int(n) for n in pad]
    if not any(widths):
        return x
    if mode != "constant" or value not in (None, 0, 0.0) or min(widths) < 0:
        call.refuse(f"of {widths}, mode {mode}{'' if value is None else f', value {value}'}; only "
                    "zeros around an image, and none cut off")
    if isinstance(x, Value) and x.form != "rows" and channel_axis_of(x) == -1:
        call.refuse(f"of {widths}: zeros around an image whose channels are its last axis; only around [n, channels, "
                    "height, width]")
    if len(widths) == 6 and not any(widths[:4]):
        return shortcut(call, x, widths[4], widths[5])
    if len(widths) > 4 and any(widths[4:]):
        call.refuse(f"of {widths}: zeros around the image and new channels at once")
    before = x.padding if isinstance(x, Value) else ()
    plain = call.images(dataclasses.replace(x, padding=())) if before else call.images(x)
    widths = (widths + [0, 0])[:4]
    return dataclasses.replace(plain, padding=tuple(a + b for a, b in
                                                    zip(widths, before or (0, 0, 0, 0))))


def stride_of(x):
    """s where `x` is every s-th row and column of the layer's output, in order; None: something
    else."""
    if x.form == "rows":
        return 1
    if x.form != "other" or x.index.dim() != 4 or x.index.shape[2] < 1:
        return None
    rows = whole(x)
    for stride in range(2, 9):
        part = rows[:, :, ::stride, ::stride]
        if part.shape == x.index.shape and torch.equal(part, x.index):
            return stride
    return None


def shortcut(call, x, before, behind):
    """Every s-th pixel with channels of zeros, half before and half after."""
    stride = stride_of(x)
    if stride is None or before != (before + behind) // 2:
        call.refuse(f"{before} channels of zeros before and {behind} after; only half before, of "
                    "an image or of x[:, :, ::s, ::s]")
    keys = {"channels": x.channels + before + behind, **({"stride": stride} if stride > 1 else {})}
    plain = Value(x.layer, "rows", *x.size)
    return call.layer("shortcut", [plain], call.made(), keys)
