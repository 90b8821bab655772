"""Attention as one function of autograd: the gradients that it rounds, those of the scores, of
queries, keys and values, choose an alpha each (src/scaling/README.md, Attention). No more of
[queries, keys] is in memory than of some images."""
import typing

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ada_train.torch.scaling.attention_backward import Backward

PLAIN = functional.scaled_dot_product_attention
_MOST = 1 << 24  # scores at once, of one image at least


class Options(typing.NamedTuple):
    causal: bool
    dropout: float
    factor: float  # of the scores

    def plain(self, q, k, v, mask):
        return PLAIN(q, k, v, attn_mask=mask, is_causal=self.causal, scale=self.factor,
                     enable_gqa=q.shape[1] != k.shape[1])


class Heads:
    """Queries, keys and values [images, heads, positions, width] of any dtype, some images of them
    at a time in a wide one. A head of keys may serve several of queries, which follow each other.
    """

    def __init__(self, q, k, v, mask, options):
        self.q, self.k, self.v, self.mask, self._options = q, k, v, mask, options
        self.groups = q.shape[1] // k.shape[1]
        self.wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.scores = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        self._later = None
        if options.causal:
            self._later = torch.ones(self.scores[2:], dtype=torch.bool, device=q.device).triu(1)

    def pieces(self):
        images = max(1, _MOST * self.scores[0] // max(1, torch.Size(self.scores).numel()))
        return [slice(i, i + images) for i in range(0, self.scores[0], images)]

    def of_queries(self, x, piece):
        return x[piece].to(self.wide)

    def of_keys(self, x, piece):
        x = x[piece].to(self.wide)
        return x if self.groups == 1 else x.repeat_interleave(self.groups, 1)

    def over_queries(self, gradient):
        """Of a gradient by each head of queries, that by the heads of keys."""
        return gradient if self.groups == 1 else gradient.unflatten(1, (-1, self.groups)).sum(2)

    def probabilities(self, piece):
        q, k = self.of_queries(self.q, piece), self.of_keys(self.k, piece)
        scores = (q @ k.transpose(2, 3)).mul_(self._options.factor)
        if self._later is not None:
            scores.masked_fill_(self._later, -torch.inf)
        if self.mask is None:
            return scores.softmax(3)
        mask = self.mask[piece] if self.mask.shape[0] > 1 else self.mask
        if mask.dtype == torch.bool:
            scores.masked_fill_(~mask, -torch.inf)
        else:
            scores += mask
        nothing = (scores == -torch.inf).all(3, keepdim=True)  # a query that sees no key
        return scores.softmax(3).masked_fill_(nothing, 0)


class Rounding:
    """What is stored is rounded: to the dtype that the network computes in."""

    def __init__(self, dtype):
        self._dtype = dtype

    def __call__(self, tensor, x, scale=None, counts=True):
        return x.to(self._dtype).to(x.dtype)


class Dropout:
    """Kept probabilities are divided by the share of them; `kept`: None without a dropout."""

    def __init__(self, kept, rate):
        self._kept, self._factor = kept, 1 / (1 - rate) if rate < 1 else 0.0

    def __call__(self, x, piece):
        return x if self._kept is None else x * self._kept[piece] * self._factor


class Attention(torch.autograd.Function):
    """`site`: its place in the model (name, engine). The plan of a backward pass gives `rules` (by
    decision, none where nothing is chosen), and the cells of what comes and of what leaves to
    queries, keys, values and mask."""

    @staticmethod
    def forward(ctx, q, k, v, mask, options, site):
        kind = q.device.type
        ctx.dtypes = (q.dtype, k.dtype, v.dtype, None if mask is None else mask.dtype)
        if torch.is_autocast_enabled(kind) and q.dtype != torch.float64:
            narrow = torch.get_autocast_dtype(kind)
            q, k, v = q.to(narrow), k.to(narrow), v.to(narrow)
            mask = mask if mask is None or mask.dtype == torch.bool else mask.to(narrow)
        ctx.options, ctx.site, ctx.computes, ctx.ada_linear = options, site, q.dtype, True
        ctx.rounds = site.rounding() or Rounding(q.dtype)
        ctx.fans = _fans(q, k, v)
        ctx.rules, ctx.came, ctx.leaves = {}, None, None
        ctx.set_materialize_grads(False)
        kept = None
        with torch.autocast(kind, enabled=False):
            if options.dropout:
                kept = torch.rand(*q.shape[:3], k.shape[2], device=q.device) >= options.dropout
            if options.dropout or site.rounding() is not None:
                y = _forward(Heads(q, k, v, mask, options), Dropout(kept, options.dropout),
                             ctx.rounds)
            else:
                y = options.plain(q, k, v, mask)
        ctx.save_for_backward(q, k, v, mask, kept)
        return y.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        if dy is None:
            return (None,) * 6
        q, k, v, mask, kept = ctx.saved_tensors
        with torch.autocast(dy.device.type, enabled=False):
            heads = Heads(q, k, v, mask, ctx.options)
            gradients = Backward(ctx, heads, Dropout(kept, ctx.options.dropout), dy).run()
        return (*(g if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes)),
                None, None)


def _fans(q, k, v):
    """How many products a value of each gradient sums."""
    keys = q.shape[2] * (q.shape[1] // k.shape[1])
    return {"dv": keys, "ds": v.shape[3], "dq": k.shape[2], "dk": keys}


def _forward(heads, drop, rounds):
    y = []
    for piece in heads.pieces():
        p = rounds("p", drop(heads.probabilities(piece), piece))
        y.append(p @ heads.of_keys(heads.v, piece))
    return rounds("y", torch.cat(y))
