"""fp16 emulated in PyTorch as one would to see underflow on a CPU: computation in fp32, and every
tensor that a mixed-precision run would store rounded to fp16, by hooks."""
import torch
from torch import nn
from torch.nn.utils import parametrize

from torch_networks import Attention, Probabilities, Scores

MULTIPLIED = (nn.Conv2d, nn.Linear)  # by their weights, of which there is a rounded copy
STORED = (*MULTIPLIED, nn.BatchNorm2d, nn.Identity, nn.AdaptiveAvgPool2d, nn.Embedding,
          nn.LayerNorm, nn.GELU, nn.Dropout, Attention)


class Lost:
    """How many values one tensor's rounding lost."""

    def __init__(self):
        self.underflow = self.overflow = 0

    def add(self, before, after):
        self.underflow = self.underflow + ((before != 0) & (after == 0)).sum()
        self.overflow = self.overflow + (after.isinf() & before.isfinite()).sum()


class Round(torch.autograd.Function):
    """Rounds a value to fp16 on its way forward and its gradient on the way back, or one of both
    alone."""

    @staticmethod
    def forward(ctx, x, lost, value, gradient):
        ctx.lost, ctx.gradient = lost, gradient
        if not value:
            return x.view_as(x)
        y = x.half().float()
        if lost:
            lost[0].add(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.gradient:
            return gradient, None, None, None
        rounded = gradient.half().float()
        if ctx.lost:
            ctx.lost[1].add(gradient, rounded)
        return rounded, None, None, None


class RoundWeight(nn.Module):
    """The rounded copy that is multiplied; its gradient passes unrounded."""

    def forward(self, weight):
        return weight + (weight.half().float() - weight).detach()


def emulate_fp16(network, counting):
    """Puts a rounding after every module whose output a mixed-precision run would store; `counting`:
    the values that each rounding lost are counted in every step. Of attention that is written out,
    probabilities and the gradient of scores are rounded as well."""
    for module in list(network.modules()):
        if isinstance(module, MULTIPLIED):
            parametrize.register_parametrization(module, "weight", RoundWeight())
        if isinstance(module, STORED):
            lost = (Lost(), Lost()) if counting else None
            module.register_forward_hook(lambda module, _, y, lost=lost: Round.apply(
                y, lost, not isinstance(module, Scores), not isinstance(module, Probabilities)))
