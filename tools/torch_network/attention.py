"""Attention, as torch's functions have it and written out in products and a softmax."""
import math

import torch

from .network import CannotExpress, Value
from .pending import Mix, Pending, SAME, arithmetic, number
from .tokens import of_sequence
from .views import BATCH, numbers, view


class Heads:
    """Which channels of a layer are the queries, keys or values of a tensor [B, H, T, d]."""

    def __init__(self, call, x, what):
        if isinstance(x, Mix):
            x = x.settle(call)
        if not isinstance(x, Value) or x.padding:
            call.refuse(f"its {what} are no tensor that the network computed")
        index, count = numbers(x), x.height * x.width
        if index.dim() == 3:  # [B, T, d], or [B H, T, d]
            index = index.reshape(BATCH, -1, *index.shape[1:])
        if index.dim() != 4 or index.shape[2] != count:
            call.refuse(f"its {what} are a tensor of shape {list(numbers(x).shape)} and the layer "
                        f"{x.layer} has {count} tokens; expected [n, heads, tokens, width], of all "
                        "of them")
        image, place = index // (x.channels * count), index % count
        channel = index // count % x.channels
        images = torch.arange(BATCH)[:, None, None, None].expand(index.shape)
        places = torch.arange(count)[None, None, :, None].expand(index.shape)
        alike = channel[:1, :, :1].expand(index.shape)
        if not (torch.equal(image, images) and torch.equal(place, places)
                and torch.equal(channel, alike)):
            call.refuse(f"its {what} are not channels of each token, head by head")
        self.layer = Value(x.layer, "rows", *x.size)
        rows = [tuple(row) for row in channel[0, :, 0].tolist()]
        self.repeats = next((n for n, row in enumerate(rows) if row != rows[0]), len(rows))
        self.heads, self.width, self.first = len(rows) // self.repeats, len(rows[0]), rows[0][0]
        expected = [tuple(self.first + h // self.repeats * self.width + j
                          for j in range(self.width)) for h in range(len(rows))]
        if rows != expected:
            call.refuse(f"the channels of its {what} are not those of one head after the other")

    @property
    def total(self):
        return self.heads * self.width

    def part(self, call):
        return call.converter.slices.of(call, self.layer, [(self.first, self.total)], "rows")


def attend(call, q, k, v, causal, dropout, scale, shape, name=None):
    """The layer, and its output in `shape`: [B, H, T, d], or with the first two axes as one."""
    q, k, v = Heads(call, q, "queries"), Heads(call, k, "keys"), Heads(call, v, "values")
    heads = q.heads * q.repeats
    if q.repeats > 1 and q.heads > 1 or k.heads != v.heads or heads % k.heads or (
            len({q.width, k.width, v.width}) > 1):
        call.refuse(f"{heads} heads of queries ({q.width} wide), {k.heads} of keys ({k.width}), "
                    f"{v.heads} of values ({v.width}); expected one width, and as many keys as "
                    "values, of which the queries are a multiple")
    tokens = {x.layer.height * x.layer.width for x in (q, k, v)}
    if len(tokens) > 1:
        call.refuse("of queries from one sequence and keys from another")
    usual = 1 / math.sqrt(q.width)
    if scale is not None and abs(scale / usual - 1) > 1e-5:
        call.refuse(f"scores times {scale:g}; ada-train's are times 1 / sqrt({q.width}), the width "
                    "of a head")
    keys = {"heads": heads}
    if k.heads != heads:
        keys["kv_heads"] = k.heads
    if causal:
        keys["causal"] = True
    if dropout:
        keys["dropout"] = dropout
    one = q.layer.layer == k.layer.layer == v.layer.layer
    ends = [q.first, k.first, v.first, v.first + v.total]
    fused = one and ends == [0, q.total, q.total + k.total, q.layer.channels]
    inputs = [q.layer] if fused else [x.part(call) for x in (q, k, v)]
    count, total = tokens.pop(), heads * q.width
    network = call.converter.network
    name = network.unique(name or call.path or "attention", True)
    made = network.add(name, "attention", inputs, Value("", "rows", total, count), keys)
    image = torch.arange(BATCH)[:, None, None, None] * (total * count)
    head = torch.arange(heads)[None, :, None, None] * (q.width * count)
    place = torch.arange(count)[None, None, :, None]
    index = image + head + place + torch.arange(q.width) * count
    return view(made, index.reshape(shape))


def is_causal_mask(call, mask, added):
    """Whether `mask`, of which True and 0 let a query see a key, hides what comes later; False
    where it hides nothing."""
    if not isinstance(mask, torch.Tensor) or mask.requires_grad:
        call.refuse("with a mask that the network computes or trains")
    sees = mask if mask.dtype == torch.bool and not added else mask == 0
    hidden = ~sees
    if added and mask.dtype != torch.bool and bool((mask[hidden] > -1e3).any()):
        call.refuse("adds a bias to its scores; only a mask of 0 and -inf comes over")
    if bool(sees.all()):
        return False
    if sees.dim() < 2 or sees.shape[-1] != sees.shape[-2] or not torch.equal(
            sees, torch.ones(sees.shape[-2:], dtype=torch.bool).tril().expand(sees.shape)):
        call.refuse("with a mask that is neither empty nor causal (a query sees itself and what "
                    "stands before it)")
    return True


def dot_product(call, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                scale=None, enable_gqa=False):
    causal = is_causal or (attn_mask is not None and is_causal_mask(
        call, attn_mask, attn_mask.dtype != torch.bool))
    return attend(call, query, key, value, causal, dropout_p, scale, call.shape)


def multi_head(call, query, key, value, embed_dim_to_check, num_heads, in_proj_weight,
               in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight,
               out_proj_bias, training=True, key_padding_mask=None, need_weights=True,
               attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None,
               k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
               average_attn_weights=True, is_causal=False):
    """nn.MultiheadAttention of a sequence with itself."""
    if query.layer != key.layer or query.layer != value.layer or use_separate_proj_weight:
        call.refuse("of queries from one sequence and keys from another (or with widths of their "
                    "own): its weight would be cut in parts; separate nn.Linear and "
                    "F.scaled_dot_product_attention come over")
    if bias_k is not None or bias_v is not None or add_zero_attn or key_padding_mask is not None:
        call.refuse("add_bias_kv, add_zero_attn or key_padding_mask")
    found = of_sequence(call, query)
    if found is None:
        call.refuse("expected the tokens of a sequence, with their channels on the last axis")
    layer, vectors = found
    causal = False
    if attn_mask is not None:  # True hides here
        hides = isinstance(attn_mask, torch.Tensor) and attn_mask.dtype == torch.bool
        causal = is_causal_mask(call, ~attn_mask if hides else attn_mask, not hides)
    count, width = layer.height * layer.width, layer.channels
    projected = product(call, layer, in_proj_weight, in_proj_bias, f"{call.path}.in_proj")
    d = width // num_heads
    parts = [view(projected, numbers(projected).permute(0, 2, 3, 1).reshape(
        BATCH, count, 3, num_heads, d).permute(2, 0, 3, 1, 4)[n]) for n in range(3)]
    attend(call, *parts, causal, dropout_p if training else 0, None,
           (BATCH, num_heads, count, d), call.path)
    network = call.converter.network
    inner = Value(network.layers[-1].name, "rows", width, count)
    made = vectors.value(product(call, inner, out_proj_weight, out_proj_bias,
                                 f"{call.path}.out_proj"))
    return [made, CannotExpress(call.path, call.operation, "its probabilities are no output of a "
                                "layer: need_weights=False", call.place)]


def product(call, x, weight, bias, name):
    """A linear layer of tokens, called `name`."""
    keys = {"features": int(weight.shape[0])}
    tensors = {"weight": (call.trained(weight, "weight"), list(weight.shape))}
    if bias is None:
        keys["bias"] = False
    else:
        tensors["bias"] = (call.trained(bias, "bias"), list(bias.shape))
    call.converter.weights.taken(call, tensors["weight"][0], name)
    return call.layer("linear", [x], Value("", "rows", keys["features"], x.height * x.width), keys,
                      tensors, name)


class Scores(Pending):
    """Products of queries and keys on their way to attention."""
    what = "attention's scores or probabilities"

    def __init__(self, q, k, scale=1.0, causal=False, soft=False, dropout=0.0):
        self.q, self.k, self.scale, self.causal = q, k, scale, causal
        self.soft, self.dropout = soft, dropout

    def changed(self, **parts):
        return Scores(**{**self.__dict__, **parts})

    def then(self, call, name, args, kwargs):
        if name in SAME:
            return self
        if not self.soft:
            return self.before_softmax(call, name, args, kwargs)
        if name == "dropout":
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            return self.changed(dropout=p) if training and p else self
        if name in ("matmul", "bmm") and args[0] is self and isinstance(args[1], (Value, Mix)):
            return attend(call, self.q, self.k, args[1], self.causal, self.dropout, self.scale,
                          call.shape)
        return NotImplemented

    def before_softmax(self, call, name, args, kwargs):
        operation, other, first = arithmetic(name, args, self)
        if operation in ("mul", "div") and number(other) is not None and first | (
                operation == "mul"):
            factor = number(other) if operation == "mul" else 1 / number(other)
            return self.changed(scale=self.scale * factor)
        if operation == "add" and isinstance(other, torch.Tensor):
            return self.masked(call, other, True)
        if name == "masked_fill" and number(args[2]) is not None and number(args[2]) < -1e3:
            return self.masked(call, ~args[1].bool(), False)
        if name == "where" and args[1] is self and isinstance(args[0], torch.Tensor) and (
                float(torch.as_tensor(args[2]).max()) < -1e3):
            return self.masked(call, args[0], False)
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if name == "softmax" and axis in (-1, len(call.shape) - 1):
            return self.changed(soft=True)
        return NotImplemented

    def masked(self, call, mask, added):
        return self.changed(causal=self.causal or is_causal_mask(call, mask, added))


def matmul(call, a, b):
    """Queries times keys; all else is refused."""
    if isinstance(a, (Value, Mix)) and isinstance(b, (Value, Mix)):
        k = Mix.of(b)
        k = Mix(k.base, [(i.transpose(-1, -2), c.transpose(-1, -2)) for i, c in k.terms])
        if isinstance(b, Value):
            k = view(k.base, k.terms[0][0])
        if isinstance(a, Value) and not call.converter.network.is_sequence(a.layer):
            call.refuse("of two computed tensors; only attention over a sequence of tokens comes "
                        "over (queries [n, heads, tokens, width] times keys, a softmax, times "
                        "values)")
        return Scores(a, k)
    return call.refuse("of a tensor that the network computed and one that it did not; F.linear "
                       "multiplies by a parameter")
