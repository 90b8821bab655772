"""The backward pass of attention, with a decision of its own for each gradient that is rounded: dv
and ds are products of dy, decided before it is read; dq and dk of ds as it is stored."""
import torch

from ada_train.torch.scaling import statistics

DECISIONS = ("dv", "ds", "dq", "dk")


def _sum_to(x, shape):
    """What a gradient of something that was broadcast is."""
    while x.dim() > len(shape):
        x = x.sum(0)
    many = [i for i, size in enumerate(shape) if size == 1 and x.shape[i] != 1]
    return x.sum(many, keepdim=True) if many else x


class Backward:
    """`context`: of Attention; `heads`, `drop`: what the forward pass multiplied."""

    def __init__(self, context, heads, drop, dy):
        self._context, self._heads, self._drop, self._dy = context, heads, drop, dy
        self._rules, self._rounds = context.rules, context.rounds
        self._scale = self._ds_scale = context.came.scale if context.came is not None else 1.0
        self._pieces, self._known = heads.pieces(), {}  # probabilities by piece
        self._of_ds, self._tails, self._dmask = None, None, None

    def run(self):
        """The gradients of queries, keys, values and mask."""
        dv_made, ds_made = self._decide_first()
        if ds_made is not None:
            self._ds_scale = ds_made.scale_out
            if ds_made.wants_tail:
                self._tails = statistics.Tails(ds_made.alpha)
        if any(self._looks(name) for name in ("dq", "dk")):
            self._of_ds = statistics.Parts()
        parts = [self._piece(piece, ds_made) for piece in self._pieces]
        dq, dk, dv = (torch.cat(part) if len(part) > 1 else part[0] for part in zip(*parts))
        if self._tails is not None:
            self._rules["ds"].observe_tails(self._tails)
        heads = self._heads
        made = {"dv": dv_made, "dq": self._decide_last("dq", heads.k),
                "dk": self._decide_last("dk", heads.q)}
        for cell, name in zip(self._context.leaves or (), ("dq", "dk", "dv", "ds")):
            cell.scale = self._scale_of(name, made.get(name))
        return (self._leave("dq", dq, made["dq"]), self._leave("dk", dk, made["dk"]),
                self._leave("dv", dv, made["dv"]), self._dmask)

    # --- Decisions ---

    def _looks(self, name):
        return name in self._rules and self._rules[name].looks()

    def _decide(self, name, seen, scale):
        return self._rules[name].decide_of(seen, scale) if name in self._rules else None

    def _decide_first(self):
        dv_seen = ds_seen = None
        if self._looks("dv") or self._looks("ds"):
            group = self._rules["dv" if "dv" in self._rules else "ds"].group
            found = statistics.Parts()
            for piece in self._pieces:
                p = self._probabilities(piece)
                found.add(p[1])
                if self._heads.may_keep():
                    self._known[piece.start] = p
            p = found.moments(group)
            dy, v = (statistics.moments(x, group) for x in (self._dy, self._heads.v))
            dv_seen, ds_seen = (dy, p), (dy, statistics.together(p, v))
        return (self._decide("dv", dv_seen, self._scale), self._decide("ds", ds_seen, self._scale))

    def _decide_last(self, name, other):
        seen = None
        if self._looks(name):
            group = self._rules[name].group
            seen = (self._of_ds.moments(group), statistics.times(
                statistics.moments(other, group), self._context.options.factor))
        return self._decide(name, seen, self._ds_scale)

    def _scale_of(self, name, made):
        if made is not None:
            return made.scale_out
        return self._scale if name == "dv" else self._ds_scale

    # --- Gradients ---

    def _probabilities(self, piece):
        """As the softmax gives them, and as they are multiplied."""
        known = self._known.pop(piece.start, None)
        if known is not None:
            return known
        p = self._heads.probabilities(piece)
        return p, self._rounds("p", self._drop(p, piece), counts=False)

    def _piece(self, piece, made):
        """dq, dk and dv of some images, in fp32 and before their alphas."""
        heads, needs = self._heads, self._context.needs_input_grad
        p, multiplied = self._probabilities(piece)
        dy = heads.of_queries(self._dy, piece)
        dv = heads.by_keys(torch.bmm(multiplied.transpose(1, 2), dy))
        del multiplied
        dp = self._drop(torch.bmm(dy, heads.of_keys(heads.v, piece).transpose(1, 2)), piece)
        ds = torch.ops.aten._softmax_backward_data(dp, p, 2, p.dtype)
        if made is not None and made.alpha != 1:
            ds.mul_(made.alpha)
        if self._tails is not None:
            self._tails.add(ds)
        ds = self._rounds("ds", ds, self._ds_scale)
        if "ds" in self._rules:
            self._rules["ds"].check(ds)
        if self._of_ds is not None:
            self._of_ds.add(ds)
        if needs[3]:
            self._add_to_mask(heads.by_queries(ds), piece)
        factor = self._context.options.factor
        dq = heads.by_queries(torch.bmm(ds, heads.of_keys(heads.k, piece)).mul_(factor))
        dk = heads.by_keys(torch.bmm(ds.transpose(1, 2),
                                     heads.of_queries(heads.q, piece)).mul_(factor))
        return dq, dk, dv

    def _add_to_mask(self, ds, piece):
        shape = self._heads.mask.shape
        if self._dmask is None:
            self._dmask = ds.new_zeros(shape)
        of_piece = self._dmask[piece] if shape[0] > 1 else self._dmask
        of_piece += _sum_to(ds, of_piece.shape)

    def _leave(self, name, gradient, made):
        if not self._context.needs_input_grad[("dq", "dk", "dv").index(name)]:
            return None
        if made is not None:
            if made.alpha != 1:
                gradient.mul_(made.alpha)
            self._rules[name].observe(gradient, made)
            self._rules[name].check(gradient)
        return self._rounds(name, gradient, self._scale_of(name, made))
