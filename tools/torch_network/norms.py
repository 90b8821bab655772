"""Norms."""
import torch

from .arithmetic import affine
from .network import Value
from .tokens import of_sequence, vectors_of


def by_channel(**tensors):
    return {name: (t, [t.numel()]) for name, t in tensors.items() if t is not None}


def batch_norm(call, x, running_mean, running_var, weight=None, bias=None, training=False,
               momentum=0.1, eps=1e-5):
    constant = not any(trained(t) for t in (weight, bias))
    if not training and constant and running_mean is not None:
        return frozen_norm(call, x, running_mean, running_var, weight, bias, eps)
    if weight is None or bias is None or running_mean is None or running_var is None or (
            getattr(call.converter.scopes.module, "momentum", momentum) is None):
        call.refuse("needs affine=True, track_running_stats=True and a momentum")
    if not training:
        call.refuse("normalises by its running statistics in training too (eval() of this module, "
                    "or a frozen norm with trained factors); ada-train's takes the batch's: leave "
                    "it in training, or freeze its weight and bias too (requires_grad_(False))")
    x = call.channel_tensor(x, (1,))
    if x.form == "flat" and not x.is_vector:
        call.refuse("of a flattened image, a mean for each pixel")
    if x.form == "pixels":
        call.refuse("of a permuted tensor, whose second axis is not its channels")
    return call.weighted("batch_norm", x, x, {"eps": eps, "momentum": momentum},
                         by_channel(weight=weight, bias=bias, running_mean=running_mean,
                                    running_var=running_var))


def trained(tensor):
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad


def frozen_norm(call, x, mean, var, weight, bias, eps):
    """Constants by channel, on the second axis."""
    factor = (1 if weight is None else weight.detach()) / torch.sqrt(var + eps)
    offset = (0 if bias is None else bias.detach()) - mean * factor
    spread = [-1] + [1] * (call.converter.rank(x) - 2)
    return affine(call, x, factor.reshape(spread), offset.reshape(spread))


def layer_norm(call, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    normalized = list(normalized_shape)
    of_each_head(call, x, normalized)
    if weight is None:
        call.refuse("needs a weight, one factor a channel, which ada-train trains")
    keys = {"eps": eps, **({"bias": False} if bias is None else {})}
    tensors = by_channel(weight=weight, bias=bias)
    found = of_sequence(call, x)
    if found and normalized == [found[0].channels]:
        return of_tokens(call, "layer_norm", found, keys, tensors)
    x = call.channel_tensor(x, (-1,))
    if normalized != [x.channels] or x.form == "rows" or (x.form == "flat" and not x.is_vector):
        call.refuse(f"over axes of {normalized}; only over the {x.channels} channels of each pixel, "
                    "as the last axis")
    return call.weighted("layer_norm", x, x, keys, tensors)


def of_each_head(call, x, normalized):
    """Refuses a norm over a part of each token's channels."""
    network = call.converter.network
    if isinstance(x, Value) and x.form == "other" and network.is_sequence(x.layer) and (
            len(normalized) == 1 and vectors_of(x) is None and x.channels % normalized[0] == 0):
        call.refuse(f"over {normalized[0]} of the {x.channels} channels of each token, head by head (a norm of "
                    "queries and keys?); ada-train's norms are over all of them")


def of_tokens(call, kind, found, keys, tensors):
    """A norm of what of_sequence found."""
    layer, vectors = found
    return vectors.value(call.weighted(kind, layer, layer, keys, tensors))


def rms_norm(call, x, normalized_shape, weight=None, eps=None):
    of_each_head(call, x, list(normalized_shape))
    if weight is None:
        call.refuse("needs a weight, one factor a channel")
    found = of_sequence(call, x)
    if not found or list(normalized_shape) != [found[0].channels]:
        call.refuse(f"over axes of {list(normalized_shape)}; only over the channels of each token "
                    "of a sequence")
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return of_tokens(call, "rms_norm", found, {"eps": eps}, by_channel(weight=weight))


def group_norm(call, x, num_groups, weight=None, bias=None, eps=1e-5):
    if weight is None or bias is None:
        call.refuse("needs a weight and a bias, one of each a channel")
    x = call.channel_tensor(x, (1,))
    if x.form == "pixels" or (x.form == "flat" and not x.is_vector):
        call.refuse("expected an input of [n, channels, height, width]")
    return call.weighted("group_norm", x, x, {"groups": num_groups, "eps": eps},
                         by_channel(weight=weight, bias=bias))


def instance_norm(call, x, running_mean=None, running_var=None, weight=None, bias=None,
                  use_input_stats=True, momentum=0.1, eps=1e-5):
    if running_mean is not None or not use_input_stats:
        call.refuse("keeps running statistics; only track_running_stats=False")
    return group_norm(call, x, call.tensor(x).channels, weight, bias, eps)


def local_response_norm(call, x, size, alpha=1e-4, beta=0.75, k=1.0):
    return call.layer("lrn", [call.images(x)], call.images(x),
                      {"size": size, "alpha": alpha, "beta": beta, "k": float(k)})


def normalize(call, x, p=2.0, dim=1, eps=1e-12):
    """Of each pixel's channels; the factor by channel, which the layer has, must follow."""
    if isinstance(x, Value) and x.form == "other" and dim in (-1, x.index.dim() - 1):
        of_each_head(call, x, [int(x.index.shape[-1])])
    x = call.tensor(x)
    if p != 2 or dim not in {"rows": (1, -3), "flat": (1, -1), "pixels": (3, -1)}[x.form] or (
            x.form == "flat" and not x.is_vector):
        call.refuse("only the length (p=2) of each pixel's channels")
    return call.layer("l2_normalize", [x], x, {"eps": eps})
