"""fp16 emulated in PyTorch as one would to see underflow on a CPU: computation in fp32, and every
tensor that a mixed-precision run would store rounded to fp16, by hooks."""
import torch
from torch import nn
from torch.nn.utils import parametrize


class Lost:
    """How many values one tensor's rounding lost."""

    def __init__(self):
        self.underflow = self.overflow = 0

    def add(self, before, after):
        self.underflow = self.underflow + ((before != 0) & (after == 0)).sum()
        self.overflow = self.overflow + (after.isinf() & before.isfinite()).sum()


class RoundBoth(torch.autograd.Function):
    """Rounds a value to fp16 on its way forward and its gradient on the way back."""

    @staticmethod
    def forward(ctx, x, lost):
        ctx.lost = lost
        y = x.half().float()
        if lost:
            lost[0].add(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        rounded = gradient.half().float()
        if ctx.lost:
            ctx.lost[1].add(gradient, rounded)
        return rounded, None


class RoundWeight(nn.Module):
    """The rounded copy that is multiplied; its gradient passes unrounded."""

    def forward(self, weight):
        return weight + (weight.half().float() - weight).detach()


def emulate_fp16(network, counting):
    """Puts a rounding behind every module whose output a mixed-precision run would store;
    `counting`: the values that each rounding lost are counted in every step."""
    for module in list(network.modules()):
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            parametrize.register_parametrization(module, "weight", RoundWeight())
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.Identity,
                               nn.AdaptiveAvgPool2d)):
            lost = (Lost(), Lost()) if counting else None
            module.register_forward_hook(lambda _, __, y, lost=lost: RoundBoth.apply(y, lost))
