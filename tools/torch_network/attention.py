"""Attention, as torch's functions have it and written out in products and a softmax."""
import math

import torch

from .arithmetic import affine
from .network import CannotExpress, Value
from .pending import Mix, Pending, SAME, arithmetic, arranged, number, scalar_affine, sizes_of
from .tokens import of_sequence
from .views import BATCH, numbers, out_of_order, runs, view


def unscaled(call, x):
    """`x` without the constant factor that it was multiplied by, and the factor."""
    if isinstance(x, Value):
        base, factor, offset = scalar_affine(call.converter.network, x)
        if offset == 0:
            return base, factor
    if isinstance(x, Mix) and len(x.terms) == 1 and len(x.terms[0][1].unique()) == 1:
        return view(x.base, x.terms[0][0]), float(x.terms[0][1].flatten()[0])
    return x, 1.0


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
        rows, self.what = channel[0, :, 0].tolist(), what
        self.repeats = next((n for n, row in enumerate(rows) if row != rows[0]), len(rows))
        own = rows[::self.repeats]
        self.heads, self.width = len(own), len(rows[0])
        self.channels = [channel for row in own for channel in row]
        if rows != [row for row in own for _ in range(self.repeats)] or (
                len(set(self.channels)) < len(self.channels)):
            call.refuse(f"several heads share channels of its {what}, and not as many next to each other each")

    @property
    def total(self):
        return self.heads * self.width

    def part(self, call):
        """The layer that has these channels alone, in this order."""
        found, slices = runs(self.channels), call.converter.slices
        if len(found) == 1:
            return slices.of(call, self.layer, found, "rows")
        made = slices.ordered_part(call, self.layer, self.channels)
        if made is None:
            call.refuse(out_of_order(self.what, found, self.layer.layer))
        return made


def side_by_side(call, q, k, v):
    """The one layer whose channels are the queries, keys and values, in this order; None: there is
    none."""
    channels = [*q.channels, *k.channels, *v.channels]
    if not q.layer.layer == k.layer.layer == v.layer.layer or sorted(channels) != list(
            range(q.layer.channels)):
        return None
    if channels == sorted(channels):
        return q.layer
    return call.converter.slices.ordered_part(call, q.layer, channels)


def attend(call, q, k, v, causal, dropout, scale, shape, name=None):
    """The layer, and its output in `shape`: [B, H, T, d], or with the first two axes as one."""
    scale = 1 / math.sqrt(sizes_of(q)[-1]) if scale is None else scale
    q, factor = unscaled(call, q)
    k, other = unscaled(call, k)
    scale *= factor * other * math.sqrt(sizes_of(q)[-1])  # beside the layer's own
    q, k, v = Heads(call, q, "queries"), Heads(call, k, "keys"), Heads(call, v, "values")
    heads = q.heads * q.repeats
    if q.repeats > 1 and q.heads > 1 or k.heads != v.heads or heads % k.heads or (
            len({q.width, k.width, v.width}) > 1):
        call.refuse(f"{heads} heads of queries ({q.width} wide), {k.heads} of keys ({k.width}), "
                    f"{v.heads} of values ({v.width}); expected one width, and as many keys as "
                    "values, of which the queries are a multiple")
    counts = [x.layer.height * x.layer.width for x in (q, k, v)]
    if counts[1] != counts[2] or causal and counts[0] != counts[1]:
        call.refuse(f"of {counts[0]} queries, {counts[1]} keys and {counts[2]} values; expected as many keys as "
                    "values, and of a causal mask as many queries")
    keys = {"heads": heads}
    if k.heads != heads:
        keys["kv_heads"] = k.heads
    if causal:
        keys["causal"] = True
    if dropout:
        keys["dropout"] = dropout
    other_scale = abs(scale - 1) > 1e-5
    one = None if other_scale else side_by_side(call, q, k, v)
    inputs = [one] if one else [x.part(call) for x in (q, k, v)]
    if other_scale:
        inputs[0] = affine(call, inputs[0], float(f"{scale:.7g}"), 0.0)
    count, total = counts[0], heads * q.width
    network = call.converter.network
    name = network.unique(name or call.path or "attention", True)
    if one and one.layer in call.converter.slices.ordered:
        call.converter.slices.ordered[one.layer].readers.add(name)
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
        return NotImplemented

    def sizes(self):
        return *sizes_of(self.q)[:-1], sizes_of(self.k)[-2]

    def scaled(self, factor):
        return self.changed(scale=self.scale * factor)

    def product(self, call, a, b, first, second, out):
        """Probabilities times values."""
        own, values, others = (first, b, second) if a is self else (second, a, first)
        *batch, row, column = own
        width = [label for label in others if label not in own]
        if not self.soft or not isinstance(values, (Value, Mix)) or len(width) != 1 or (
                set(others) != {*batch, column, *width} or set(out) != {*batch, row, *width}):
            return self.settle(call)
        values = arranged(values, [others.index(label) for label in (*batch, column, *width)])
        made = attend(call, self.q, self.k, values, self.causal, self.dropout, self.scale,
                      (*self.sizes()[:-1], sizes_of(values)[-1]))
        natural = [*batch, row, *width]
        return arranged(made, [natural.index(label) for label in out])

    def before_softmax(self, call, name, args, kwargs):
        operation, other, first = arithmetic(name, args, self)
        if operation in ("mul", "div") and number(other) is not None and first | (
                operation == "mul"):
            return self.scaled(number(other) if operation == "mul" else 1 / number(other))
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


def scores_of(call, a, b, first, second, out):
    """The product of two computed tensors: queries times keys; all else is refused."""
    batch = [label for label in out if label in first and label in second]
    summed = [label for label in first if label in second and label not in out]
    rows, columns = ([label for label in own if label not in (*batch, *summed)] for own in (first, second))
    if columns and rows and out[-1] == rows[-1]:
        a, b, first, second, rows, columns = b, a, second, first, columns, rows
    layers = [(x if isinstance(x, Value) else x.base).layer for x in (a, b)]
    sequences = all(call.converter.network.is_sequence(layer) for layer in layers)
    if not sequences or len(summed) != 1 or list(out) != [*batch, *rows, *columns] or (
            len(rows) != 1 or len(columns) != 1):
        call.refuse("of two computed tensors; only attention over a sequence of tokens comes over "
                    "(queries [n, heads, tokens, width] times keys, a softmax, times values)")
    q = arranged(a, [first.index(label) for label in (*batch, *rows, *summed)])
    k = arranged(b, [second.index(label) for label in (*batch, *columns, *summed)])
    return Scores(q, k)
