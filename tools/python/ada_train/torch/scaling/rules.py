"""One layer's rule: what it looks at, and what libada_scaling decides."""
import torch

from ada_train import native
from ada_train.torch.scaling import groups, statistics

ALONE = groups.Group(everywhere=False)
_FORMAT32 = (2.0 ** -149, (2 - 2.0 ** -23) * 2.0 ** 127)


class Operands:
    """What one backward pass of a layer multiplies: dy and the copy of the weight, with the
    dimensions over which the product of the data gradient sums."""

    def __init__(self, dy, dy_dim=1, w=None, w_dim=0):
        self.dy, self.dy_dim, self.w, self.w_dim = dy, dy_dim, w, w_dim


class LayerRule:
    def __init__(self, engine, name, fans, form, fp16_gradients, within=False):
        """`form`: the format of dx; `fans`: reference and exact; `within`: a gradient within
        attention."""
        self.name, self._engine = name, engine
        low, high = (form.smallest_subnormal, form.largest) if form else _FORMAT32
        self.layer = engine.policy.layer(name, *fans, low, high, True, fp16_gradients, within)

    @property
    def group(self):
        """The processes whose tensors it looks at."""
        return self._engine.group

    def looks(self):
        """Whether the next decision reads statistics."""
        return bool(self.layer.needs() & native.NEEDS_MOMENTS)

    def decide(self, operands, scale_in):
        """Alpha of this pass, with every stage."""
        needs = self.layer.needs()
        seen = native.Observation()
        group = self.group
        if needs & native.NEEDS_MOMENTS:
            seen.dy = statistics.moments(operands.dy, group)
            if operands.w is not None:
                seen.w = statistics.moments(operands.w, ALONE)
        if needs & native.NEEDS_LOGS:
            seen.log_mean, seen.log_std = statistics.logs(operands.dy, group)
        if needs & native.NEEDS_PRODUCTS:
            seen.product_min, seen.product_max = statistics.products(
                operands.dy, operands.dy_dim, operands.w, operands.w_dim, group)
        return self._decide(seen, scale_in)

    def decide_of(self, seen, scale_in):
        """The same of a product of tensors that are both of the batch. `seen`: moments of gradient
        and factor, where the rule looks; extremes of products are those of the extremes."""
        made = native.Observation()
        if seen is not None:
            made.dy, made.w = seen
            high = [statistics.magnitude(moments) for moments in seen]
            made.product_max = high[0] * high[1]
            if made.product_max != 0:
                made.product_min = made.dy.min_abs * made.w.min_abs
        return self._decide(made, scale_in)

    def _decide(self, seen, scale_in):
        parts = self._engine.parts
        decision = self.layer.decide(seen, scale_in * parts,
                                     self._engine.policy.layer_scale(self.name))
        if decision.failed:
            raise native.PolicyEnd(f"{self.name}: {native.error()}")
        self._engine.decided(self.name, decision)
        if parts > 1:
            decision.scale_out /= parts
        return decision

    def check(self, *gradients):
        """Tells a policy that wants to know it whether the layer's own gradients are finite."""
        if self._engine.facts.needs_layers and not all(
                bool(torch.isfinite(g).all()) for g in gradients if g is not None):
            self._engine.bad_layers.add(self.name)

    def observe(self, dx, decision):
        """Exponents of dx, which carries alpha, where the rule wants them."""
        if decision.wants_tail:
            tails = statistics.Tails(decision.alpha)
            tails.add(dx)
            self.observe_tails(tails)

    def observe_tails(self, tails):
        self.layer.observe(tails.found(self.group))
