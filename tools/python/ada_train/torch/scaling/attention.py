"""Attention as one function of autograd: the gradients that it rounds, those of the scores, of
queries, keys and values, choose an alpha each (src/scaling/README.md, Attention). No more of
[queries, keys] is in memory than of some images."""
import math
import typing

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ada_train.torch.scaling.attention_backward import Backward

PLAIN = functional.scaled_dot_product_attention
# Scores that are in memory together, of one image at least: those that are computed at once, and
# probabilities that are not computed again.
_PIECE, _MOST = 1 << 18, 1 << 24


class Options(typing.NamedTuple):
    causal: bool
    dropout: float
    factor: float  # of the scores

    def plain(self, q, k, v, mask):
        return PLAIN(q, k, v, attn_mask=mask, is_causal=self.causal, scale=self.factor,
                     enable_gqa=q.shape[1] != k.shape[1])


class Heads:
    """Queries, keys and values [images, heads, positions, width] of any dtype; of some images at a
    time [images x heads, positions, width] in a wide one. A head of keys may serve several of
    queries, which follow each other."""

    def __init__(self, q, k, v, mask, options):
        self.q, self.k, self.v, self.mask, self._options = q, k, v, mask, options
        self.groups = q.shape[1] // k.shape[1]
        self.wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        self._shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        self._scores = math.prod(self._shape)
        self._bias = self._added()

    def _added(self):
        """What is added to the scores before the softmax, or None."""
        bias = None
        if self.mask is not None and self.mask.dtype == torch.bool:
            bias = torch.zeros(self.mask.shape, dtype=self.wide, device=self.q.device)
            bias.masked_fill_(~self.mask, -torch.inf)
        elif self.mask is not None:
            bias = self.mask.to(self.wide)
        if self._options.causal:
            later = torch.full(self._shape[2:], -torch.inf, dtype=self.wide,
                               device=self.q.device).triu_(1)
            bias = later[None, None] if bias is None else bias + later
        return bias

    def pieces(self):
        images = max(1, _PIECE * self._shape[0] // max(1, self._scores))
        return [slice(i, i + images) for i in range(0, max(1, self._shape[0]), images)]

    def may_keep(self):
        """Whether the probabilities of all images may be in memory."""
        return self._scores <= _MOST

    def of_queries(self, x, piece):
        return x[piece].to(self.wide).reshape(-1, *x.shape[2:])

    def of_keys(self, x, piece):
        x = x[piece].to(self.wide)
        x = x if self.groups == 1 else x.repeat_interleave(self.groups, 1)
        return x.reshape(-1, *x.shape[2:])

    def by_queries(self, gradient):
        return gradient.unflatten(0, (-1, self._shape[1]))

    def by_keys(self, gradient):
        """Of a gradient by each head of queries, that by the heads of keys."""
        gradient = self.by_queries(gradient)
        return gradient if self.groups == 1 else gradient.unflatten(1, (-1, self.groups)).sum(2)

    def probabilities(self, piece):
        q, k = self.of_queries(self.q, piece), self.of_keys(self.k, piece).transpose(1, 2)
        if self._bias is None:
            return torch.bmm(q, k).mul_(self._options.factor).softmax(2)
        bias = self._bias[piece] if self._bias.shape[0] > 1 else self._bias
        bias = bias.expand(len(q) // self._shape[1], *self._shape[1:]).reshape(
            -1, *self._shape[2:])
        scores = torch.baddbmm(bias, q, k, alpha=self._options.factor)
        if self.mask is None:
            return scores.softmax(2)
        nothing = (scores == -torch.inf).all(2, keepdim=True)  # a query that sees no key
        return scores.softmax(2).masked_fill_(nothing, 0)


class Rounding:
    """What is stored is rounded: to the dtype that the network computes in."""

    def __init__(self, dtype):
        self._dtype = dtype

    def __call__(self, tensor, x, scale=None, counts=True):
        return x.to(self._dtype).to(x.dtype)


def _kept(q, k, rate):
    """Which probabilities a dropout keeps: PyTorch's own draws, on the processor those that its
    attention draws, which computes 16 bits in fp32."""
    dtype = q.dtype if q.dtype == torch.float64 else torch.float32
    ones = torch.ones((), dtype=dtype, device=q.device).expand(*q.shape[:3], k.shape[2])
    return functional.dropout(ones, rate) != 0


class Dropout:
    """Kept probabilities are divided by the share of them; `kept`: None without a dropout."""

    def __init__(self, kept, rate):
        self._kept, self._rate = kept, rate

    def __call__(self, x, piece):
        if self._kept is None:
            return x
        factor = float(x.new_ones(()).div(1 - self._rate)) if self._rate < 1 else 0.0
        return x * self._kept[piece].reshape(x.shape) * factor


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
                kept = _kept(q, k, options.dropout)
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
        y.append(heads.by_queries(torch.bmm(p, heads.of_keys(heads.v, piece))))
    return rounds("y", torch.cat(y))
