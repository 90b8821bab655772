"""Operands of products in block-scaled formats as one emulates them in PyTorch: each operand is
quantized and decoded by tensor operations, as microxcaling's layers do, and what was decoded is
multiplied. Formats, blocks and roundings are those of ada-train's recipes of the same names
(configs/blocks.md); what surrounds the layers runs under autocast to bf16, which is their `format`.

MXFP8's decoded operands are bf16 numbers, so that their products are PyTorch's in bf16; NVFP4's have
13 bits and are multiplied in fp32."""
import functools

import torch
from torch import nn
from torch.nn import functional

from ada_train.torch.operands import Product

E4M3_TOP, FP4_TOP = 448.0, 6.0
LARGEST = torch.finfo(torch.float32).max
SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)  # Transformer Engine's
HADAMARD = functools.reduce(torch.kron, [torch.tensor([[1.0, 1.0], [1.0, -1.0]])] * 4) * (
    torch.tensor(SIGNS) / 4)


def e4m3(x):
    """To the nearest fp8_e4m3, ties to even; beyond the largest one it is that."""
    return x.clamp(-E4M3_TOP, E4M3_TOP).to(torch.float8_e4m3fn).float()


def fp4(x, stochastic):
    """To the nearest fp4_e2m1, ties to even, or to one of both neighbours by chance."""
    size = x.abs()
    spacing = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    steps = size / spacing
    steps = torch.floor(steps + torch.rand_like(steps)) if stochastic else steps.round()
    return torch.copysign((steps * spacing).clamp(max=FP4_TOP), x)


def in_blocks(x, axis, block):
    """x with `axis` last, in blocks: [..., blocks, block], zeros where it ends; and how long it is."""
    x = x.movedim(axis, -1)
    length = x.shape[-1]
    return functional.pad(x, (0, -length % block)).unflatten(-1, (-1, block)), length


def of_blocks(blocks, length, axis):
    return blocks.flatten(-2)[..., :length].movedim(-1, axis)


def mxfp8(x, axis):
    """fp8_e4m3 under a power of two for 32 values, by rule rceil."""
    blocks, length = in_blocks(x, axis, 32)
    bits = (blocks.abs().amax(-1, keepdim=True) * (1 / E4M3_TOP)).view(torch.int32)
    field = ((bits >> 23) + ((bits & 0x7FFFFF) != 0)).clamp(min=1)
    scale = (field << 23).view(torch.float32)
    return of_blocks(e4m3(blocks / scale) * scale, length, axis)


def nvfp4(x, axis, square=False, stochastic=False):
    """fp4_e2m1 under an fp8 scale for 16 values, or of weights [out, in, taps...] for tiles of 16 x
    16, and an fp32 scale of the tensor, by Transformer Engine's rule."""
    amax = x.abs().amax()
    encode = (E4M3_TOP * FP4_TOP / amax).clamp(max=LARGEST)
    blocks, length = in_blocks(x, axis, 16)
    largest = blocks.abs().amax(-1, keepdim=True)
    if square:  # the largest of 16 lines, which are those of the other channels, now in front
        lines, count = in_blocks(largest, 0, 16)
        largest = of_blocks(lines.amax(-1, keepdim=True).expand_as(lines), count, 0)
    scale = e4m3(largest * (encode * (1 / FP4_TOP)))
    factor = (1 / (scale * (1 / encode))).clamp(max=LARGEST)
    elements = fp4(blocks * factor, stochastic)
    return of_blocks(elements * (scale * amax * (1 / (E4M3_TOP * FP4_TOP))), length, axis)


def transformed(x):
    """Each 16 images by Hadamard's transform, as bf16 keeps it; what is beyond a multiple of 16
    stays."""
    whole = x.shape[0] // 16 * 16
    mixed = HADAMARD @ x[:whole].reshape(whole // 16, 16, -1)
    mixed = mixed.reshape(whole, *x.shape[1:]).bfloat16().float()
    return mixed if whole == x.shape[0] else torch.cat([mixed, x[whole:]])


class EmulatedProduct(Product):
    """The products of a linear layer or a convolution without groups, by recipe torchao_mxfp8 or
    te_nvfp4: tiles of weights, dy rounded stochastically, both operands of dw transformed."""

    def __init__(self, module, recipe):
        super().__init__("", module, {}, None)
        self._nvfp4 = recipe == "nvfp4"

    def __call__(self, x):
        return super().__call__(x.bfloat16())

    def taken(self, operand, tensor):
        product, _, name = operand.partition(".")
        x = tensor.bfloat16().float()
        if product == "dw":  # blocks along images and pixels, image by image and row by row
            lines = (transformed(x) if self._nvfp4 else x).movedim(1, -1)
            flat = self._quantized(name, lines.reshape(-1, lines.shape[-1]), 0)
            x = flat.reshape(lines.shape).movedim(-1, 1)
        else:
            x = self._quantized(name, x, 0 if operand == "dx.w" else 1)
        return x if self._nvfp4 else x.bfloat16()

    def _quantized(self, name, x, axis):
        return (nvfp4(x, axis, square=name == "w", stochastic=name == "dy") if self._nvfp4
                else mxfp8(x, axis))

    def multiply(self, x, w, bias):
        with torch.autocast("cpu", enabled=False):
            y = super().multiply(x, w, None).bfloat16()
        if bias is None:
            return y
        return y + bias.bfloat16().reshape(-1, *[1] * (y.dim() - 2))


class TorchaoLinear(nn.Linear):
    """torchao's emulated MXFP8 layer: its own autograd function, with its PyTorch kernels. It takes
    whole blocks of 32 alone, so that inputs and weights get channels of zeros."""

    def forward(self, x):
        from torchao.prototype.moe_training import mxfp8_linear as of  # needs torchao 0.18
        more = -self.in_features % 32
        x, w = (functional.pad(tensor.bfloat16(), (0, more)) for tensor in (x, self.weight))
        kind = torch.float8_e4m3fn
        y = of.mx_mm.apply(x, w, kind, kind, kind, 32, of.KernelPreference.EMULATED,
                           of.MXFP8Dim0CastKernelChoice.TORCH, of.MXFP8Dim1CastKernelChoice.TORCH,
                           of.ScaleCalculationMode.RCEIL, False)
        return y + self.bias.bfloat16()


def quantize_operands(network, mode):
    """Makes the convolutions and linear layers of a network quantize their operands. `torchao`: a
    layer whose outputs are no whole blocks of 32 stays as it is."""
    for module in network.modules():
        if mode != "mxfp8-torchao" and isinstance(module, (nn.Linear, nn.Conv2d)):
            module.forward = EmulatedProduct(module, mode)
        elif isinstance(module, nn.Linear) and module.out_features % 32 == 0:
            module.__class__ = TorchaoLinear
