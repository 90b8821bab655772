"""Where gradients of several consumers meet: they are brought to one scale, added in fp32 and
rounded once, as src/scaling/README.md has it."""
import math

import torch

from ada_train import native
from ada_train.formats import NAMED
from ada_train.torch.scaling import statistics


def times(x, factor):
    """The product, laid out as `x` is: in which order sums add later depends on that."""
    if factor == 1:
        return x
    inner = x
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride())):
        if stride == 0 and size > 1:  # expanded
            inner = inner.narrow(dim, 0, 1)
    return (inner * factor).expand(x.shape)


def _rounded(x, dtype):
    return x if x.dtype == dtype else x.to(dtype)


class Cell:
    """The scale that the gradients of connected edges carry; set in the backward pass. `passes`:
    of the one that enters at the loss, how many have begun."""
    __slots__ = ("scale", "passes")

    def __init__(self, scale=1.0):
        self.scale, self.passes = scale, 0


class Merge:
    """The gradients of one tensor, as they arrive. The last one to come brings their sum. `start`:
    the cell of the loss: what a pass that ended early has left is no part of the next one."""

    def __init__(self, engine, name, count, start):
        self.cell, self.name, self._engine, self._count = Cell(), name, engine, count
        self._arrived, self._start, self._pass = [], start, 0

    def arrive(self, gradient, scale, order):
        """`order`: the place of its consumer in the forward pass."""
        if self._pass != self._start.passes:
            self._pass, self._arrived = self._start.passes, []
        self._arrived.append((order, gradient, scale))
        if len(self._arrived) < self._count:
            return None
        if self._engine.emulation is not None:  # ada-train's order; else as PyTorch adds them
            self._arrived.sort(key=lambda item: item[0])
        arrived = [(g, s) for _, g, s in self._arrived if g is not None]
        self._arrived = []
        if not arrived:
            return None
        reference = self._engine.facts.follows_reference
        result, self.cell.scale = self._as_reference(arrived) if reference else self._sum(arrived)
        self._engine.merged(self.name, self.cell.scale)
        return result

    def _sum(self, arrived):
        gradients, scales = zip(*arrived)
        if len(set(scales)) == 1:
            return self._added(gradients, scales, scales[0]), scales[0]
        group, u_max = self._engine.group, self._engine.largest_stored(gradients[0].dtype)
        largest = statistics.largest_unscaled(arrived, group)
        target = native.branch_target(scales, largest, u_max)
        while True:
            total = self._added(gradients, scales, target)
            if u_max > 1e38:
                return total, target  # no sum of fp32 values is larger than what fp32 holds
            found = statistics.largest(self._engine.round_gradient(total), group)
            if not native.branch_halves(target, largest, found, u_max):
                return total, target
            target /= 2
            self._engine.halved(self.name, target)

    def _as_reference(self, arrived):
        """The authors' way: every factor, product and partial sum is rounded. Under other methods
        than approx_range nothing is rescaled, and the sum is said to carry the first scale."""
        gradients, scales = zip(*arrived)
        rounds, target = self._engine.round_gradient, scales[0]
        factors = [1.0] * len(scales)
        if self._engine.policy.rescales_branches(self.name):
            sizes = [statistics.largest(g, self._engine.group) for g in gradients]
            target = native.branch_target_reference(
                scales, sizes, min(self._engine.largest_stored(gradients[0].dtype),
                                   NAMED["fp16"].largest))
            if math.isnan(target):
                raise native.PolicyEnd(f"{self.name}: no common scale keeps the gradients of all "
                                       "branches within range")
            factors = rounds(torch.tensor([target / s for s in scales])).tolist()
        total = None
        for g, factor in zip(gradients, factors):
            g = rounds(g * factor)
            total = g if total is None else rounds(total + g)
        return total, target

    @staticmethod
    def _added(gradients, scales, target):
        dtype = gradients[0].dtype
        total = None
        for g, s in zip(gradients, scales):
            g, factor = g.float() if dtype != torch.float64 else g, target / s
            if total is None:
                total = times(g, factor)
            else:
                total = torch.add(total, g, alpha=factor)
        return _rounded(total, dtype)
