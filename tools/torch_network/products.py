"""Convolutions and linear layers."""
import dataclasses

from .call import pair, short
from .network import Value
from .pending import arranged
from .tokens import of_sequence, vectors_of
from .views import channel_axis, in_form, whole


def window(call, x, kernel, stride, padding, usual_stride=(1, 1), keys=None):
    """Keys of a window. Zeros that pad() added become the layer's own; only as many on all sides,
    or where those too many on one side are never reached."""
    keys = dict(keys or {})
    keys["kernel"] = short(kernel)
    if pair(stride) != list(usual_stride):
        keys["stride"] = short(stride)
    padding = pair(padding)
    if x.padding:
        left, right, top, bottom = x.padding
        padding = [padding[0] + top, padding[1] + left]
        reach = [d * (k - 1) + 1 for d, k in zip(pair(keys.get("dilation", 1)), pair(kernel))]
        sizes = [(side + 2 * p - r) // s + 1 for side, p, r, s in
                 zip((x.height, x.width), padding, reach, pair(stride))]
        if min(padding) < 0 or sizes != list(call.shape[2:]):
            call.refuse(f"zeros on the left {left}, right {right}, top {top}, bottom {bottom}; "
                        "a layer has as many on both sides (networks with TensorFlow's padding: "
                        "take the ones without tf_ in their names, or sizes at which both sides "
                        "are equal)")
    if padding != [0, 0]:
        keys["padding"] = short(padding)
    return keys


def padded(call, x):
    """`x` as images, and its zeros apart."""
    if isinstance(x, Value) and x.padding:
        return dataclasses.replace(x, padding=()), x
    return (call.images(x),) * 2


def conv2d(call, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    kernel = list(weight.shape[2:])
    plain_window = [kernel, pair(stride), pair(padding), groups] == [[1, 1], [1, 1], [0, 0], 1]
    if plain_window and isinstance(x, Value) and x.form == "other" and x.index.dim() == 4 and (
            call.converter.network.is_sequence(x.layer)):  # tokens as rows and columns of an image
        weight = call.stored(weight, list(weight.shape[:2]), "weight")
        return arranged(linear_of(call, arranged(x, [0, 2, 3, 1]), weight, bias), [0, 3, 1, 2])
    plain, x = padded(call, x)
    if padding == "valid":
        padding = 0
    if padding == "same":
        reach = [d * (k - 1) for d, k in zip(pair(dilation), kernel)]
        if any(r % 2 for r in reach):
            call.refuse("padding same of an even kernel pads one side more than the other")
        padding = [r // 2 for r in reach]
    keys = {"channels": int(weight.shape[0])}
    if pair(dilation) != [1, 1]:
        keys["dilation"] = short(dilation)
    found = window(call, x, kernel, stride, padding, keys=keys)
    keys = {"channels": keys["channels"], **{k: found[k] for k in
                                             ("kernel", "stride", "padding", "dilation")
                                             if k in found}}
    if groups != 1:
        keys["groups"] = groups
    if bias is None:
        keys["bias"] = False
    tensors = {"weight": (weight, list(weight.shape))}
    if bias is not None:
        tensors["bias"] = (bias, [keys["channels"]])
    return call.weighted("conv2d", plain, call.made(), keys, tensors)


def conv_transpose2d(call, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                     dilation=1):
    x = call.images(x)
    if any(more >= step for more, step in zip(pair(output_padding), pair(stride))):
        call.refuse("output_padding of a stride or more: rows that no window reaches")
    keys = {"channels": int(weight.shape[1]) * groups, "kernel": short(list(weight.shape[2:]))}
    for name, value, usual in (("stride", stride, 1), ("padding", padding, 0),
                               ("output_padding", output_padding, 0), ("dilation", dilation, 1)):
        if pair(value) != [usual, usual]:
            keys[name] = short(value)
    if groups != 1:
        keys["groups"] = groups
    if bias is None:
        keys["bias"] = False
    tensors = {"weight": (weight, list(weight.shape))}
    if bias is not None:
        tensors["bias"] = (bias, [keys["channels"]])
    return call.weighted("conv_transpose2d", x, call.made(), keys, tensors)


def linear_of_tokens(call, x, features, keys, tensors):
    """A linear layer of each token; None: `x` is of no sequence."""
    found = of_sequence(call, x)
    if found is None:
        return None
    layer, vectors = found
    made = call.weighted("linear", layer, Value("", "rows", features, *layer.size[1:]),
                         {"features": features, **keys}, tensors)
    return vectors.value(made)


def linear(call, x, weight, bias=None):
    weight = call.stored(weight, list(weight.shape), "weight")
    return linear_of(call, x, weight, bias)


def linear_of(call, x, weight, bias):
    """`weight`: as ada-train has it, Stored."""
    features = weight[1][0]
    keys = {} if bias is not None else {"bias": False}
    tensors = {"weight": weight, "bias": (bias, [features])}
    if bias is None:
        del tensors["bias"]
    made = linear_of_tokens(call, x, features, keys, tensors)
    if made is not None:
        return made
    if isinstance(x, Value) and x.form == "other" and not x.is_vector and channel_axis(x) == -1:
        made = linear_of_pixels(call, x, features, keys, tensors)
        rows = dataclasses.replace(made, form="other", index=None)
        return dataclasses.replace(rows, index=tokens(made, x.index.shape[:-1]))
    alone = vectors_of(x) if isinstance(x, Value) and x.form == "other" and x.is_vector else None
    if alone is not None and alone.are_all(x.channels):  # [n, 1, features]
        x = Value(x.layer, "flat", x.channels)
    else:
        x = call.tensor(x)
        alone = vectors_of(x) if x.form == "other" and x.is_vector else None
    if x.form == "flat" or alone:
        made = call.weighted("linear", x, Value("", "flat", features),
                             {"features": features, **keys}, tensors)
        return alone.value(made) if alone else made
    if x.form == "pixels":
        return linear_of_pixels(call, x, features, keys, tensors)
    return call.refuse("of a tensor that is neither [n, features] nor [n, height, width, channels]")


def tokens(value, shape):
    return in_form(whole(value), "pixels").reshape(*shape, value.channels)


def linear_of_pixels(call, x, features, keys, tensors):
    """The same at every pixel: a 1x1 convolution."""
    weight = tensors["weight"]
    tensors = {**tensors, "weight": weight.changed(shape=[*weight[1], 1, 1])}
    return call.weighted("conv2d", x, Value("", "pixels", features, x.height, x.width),
                         {"channels": features, "kernel": 1, **keys}, tensors)
