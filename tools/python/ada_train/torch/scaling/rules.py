"""One layer's rule: what it looks at, and what libada_scaling decides."""
import torch

from ada_train import native
from ada_train.torch.scaling import statistics

ALONE = statistics.Group(everywhere=False)
_FORMAT32 = (2.0 ** -149, (2 - 2.0 ** -23) * 2.0 ** 127)


class Operands:
    """What one backward pass of a layer multiplies: dy and the copy of the weight, with the
    dimensions over which the product of the data gradient sums."""

    def __init__(self, dy, dy_dim=1, w=None, w_dim=0):
        self.dy, self.dy_dim, self.w, self.w_dim = dy, dy_dim, w, w_dim


class LayerRule:
    def __init__(self, engine, name, fans, form, fp16_gradients, has_weight=True):
        """`form`: the format of dx; `fans`: reference and exact."""
        self.name, self._engine = name, engine
        low, high = (form.smallest_subnormal, form.largest) if form else _FORMAT32
        self.layer = engine.policy.layer(name, *fans, low, high, has_weight, fp16_gradients)

    def decide(self, operands, scale_in):
        """Alpha of this pass, with every stage."""
        needs = self.layer.needs()
        seen = native.Observation()
        group = self._engine.group
        if needs & native.NEEDS_MOMENTS:
            seen.dy = statistics.moments(operands.dy, group)
            if operands.w is not None:
                seen.w = statistics.moments(operands.w, ALONE)
        if needs & native.NEEDS_LOGS:
            seen.log_mean, seen.log_std = statistics.logs(operands.dy, group)
        if needs & native.NEEDS_PRODUCTS:
            seen.product_min, seen.product_max = statistics.products(
                operands.dy, operands.dy_dim, operands.w, operands.w_dim, group)
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
            self.layer.observe(statistics.tail(dx, decision.alpha, decision.tail_limit,
                                               self._engine.group))
