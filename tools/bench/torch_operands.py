"""Operands of products in block-scaled formats as one emulates them in PyTorch: autograd functions
quantize and decode each operand by tensor operations, as microxcaling's layers do, and multiply what
was decoded. Formats, blocks and roundings are those of ada-train's recipes of the same names
(configs/blocks.md); what surrounds the layers runs under autocast to bf16, which is their `format`.

MXFP8's decoded operands are bf16 numbers, so that their products are PyTorch's in bf16; NVFP4's have
13 bits and are multiplied in fp32."""
import functools

import torch
from torch import nn
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

E4M3_TOP, FP4_TOP = 448.0, 6.0
LARGEST = torch.finfo(torch.float32).max
SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)  # Transformer Engine's


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
    if length % block:
        x = functional.pad(x, (0, -length % block))
    return x.unflatten(-1, (-1, block)), length


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


@functools.cache
def hadamard_matrix():
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < len(SIGNS):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix @ torch.diag(torch.tensor(SIGNS, dtype=torch.float32)) / 4


def transformed(x):
    """Each 16 images by Hadamard's transform, as bf16 keeps it; what is beyond a multiple of 16
    stays."""
    whole = x.shape[0] // 16 * 16
    mixed = hadamard_matrix() @ x[:whole].reshape(whole // 16, 16, -1)
    mixed = mixed.reshape(whole, *x.shape[1:]).bfloat16().float()
    return mixed if whole == x.shape[0] else torch.cat([mixed, x[whole:]])


class Mxfp8:
    """Recipe torchao_mxfp8."""
    multiplied = torch.bfloat16
    x = w = dy = staticmethod(mxfp8)
    dw_x = dw_dy = staticmethod(mxfp8)


class Nvfp4:
    """Recipe te_nvfp4: tiles of weights, dy rounded stochastically, both operands of dw
    transformed."""
    multiplied = torch.float32
    x = staticmethod(nvfp4)
    w = staticmethod(functools.partial(nvfp4, square=True))
    dy = staticmethod(functools.partial(nvfp4, stochastic=True))

    @staticmethod
    def dw_x(x, axis):
        return nvfp4(x, axis)

    @staticmethod
    def dw_dy(dy, axis):
        return nvfp4(dy, axis, stochastic=True)


RECIPES = {"mxfp8": Mxfp8, "nvfp4": Nvfp4}


def stored(x):
    """As bf16 keeps it, in fp32."""
    return x.bfloat16().float()


class LinearProducts(torch.autograd.Function):
    """y = x w^T, dx = dy w and dw = dy^T x of quantized operands."""

    @staticmethod
    def forward(ctx, x, w, recipe):
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        with torch.autocast("cpu", enabled=False):
            of_x, of_w = recipe.x(x.float(), 1), recipe.w(stored(w), 1)
            return (of_x.to(recipe.multiplied) @ of_w.to(recipe.multiplied).t()).bfloat16()

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        recipe, dx = ctx.recipe, None
        x, dy = x.float(), dy.float()
        if ctx.needs_input_grad[0]:
            of_dy, of_w = recipe.dy(dy, 1), recipe.w(stored(w), 0)
            dx = (of_dy.to(recipe.multiplied) @ of_w.to(recipe.multiplied)).bfloat16()
        if recipe is Nvfp4:
            x, dy = transformed(x), transformed(dy)
        of_dy, of_x = recipe.dw_dy(dy, 0), recipe.dw_x(x, 0)
        dw = (of_dy.to(recipe.multiplied).t() @ of_x.to(recipe.multiplied)).float()
        return dx, dw, None


def along_pixels(quantize, x):
    """Blocks along images and pixels, image by image and row by row."""
    lines = x.permute(0, 2, 3, 1)
    return quantize(lines.reshape(-1, x.shape[1]), 0).reshape(lines.shape).permute(0, 3, 1, 2)


class ConvolutionProducts(torch.autograd.Function):
    """The same three products of a convolution without groups."""

    @staticmethod
    def forward(ctx, x, w, stride, padding, recipe):
        ctx.save_for_backward(x, w)
        ctx.how, ctx.recipe = (stride, padding), recipe
        with torch.autocast("cpu", enabled=False):
            of_x = recipe.x(x.float(), 1).to(recipe.multiplied)
            of_w = recipe.w(stored(w), 1).to(recipe.multiplied)
            return functional.conv2d(of_x, of_w, None, stride, padding).bfloat16()

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        recipe, dx = ctx.recipe, None
        x, dy = x.float(), dy.float()
        if ctx.needs_input_grad[0]:
            of_dy = recipe.dy(dy, 1).to(recipe.multiplied)
            of_w = recipe.w(stored(w), 0).to(recipe.multiplied)
            dx = conv2d_input(x.shape, of_w, of_dy, *ctx.how).bfloat16()
        if recipe is Nvfp4:
            x, dy = transformed(x), transformed(dy)
        of_dy = along_pixels(recipe.dw_dy, dy).to(recipe.multiplied)
        of_x = along_pixels(recipe.dw_x, x).to(recipe.multiplied)
        return dx, conv2d_weight(of_x, w.shape, of_dy, *ctx.how).float(), None, None, None


class Linear(nn.Linear):
    def forward(self, x):
        return LinearProducts.apply(x.bfloat16(), self.weight, self.recipe) + self.bias.bfloat16()


class Convolution(nn.Conv2d):
    def forward(self, x):
        return ConvolutionProducts.apply(x.bfloat16(), self.weight, self.stride, self.padding,
                                         self.recipe)


class TorchaoLinear(nn.Linear):
    """torchao's emulated MXFP8 layer: its own autograd function, with its PyTorch kernels. It takes
    whole blocks of 32 alone, so that inputs and weights get channels of zeros."""

    def forward(self, x):
        from torchao.prototype.moe_training import mxfp8_linear as of  # needs torchao 0.18
        more = -self.in_features % 32
        w = self.weight.bfloat16()
        x = x.bfloat16()
        if more:
            x, w = functional.pad(x, (0, more)), functional.pad(w, (0, more))
        kind = torch.float8_e4m3fn
        y = of.mx_mm.apply(x, w, kind, kind, kind, 32, of.KernelPreference.EMULATED,
                           of.MXFP8Dim0CastKernelChoice.TORCH, of.MXFP8Dim1CastKernelChoice.TORCH,
                           of.ScaleCalculationMode.RCEIL, False)
        return y + self.bias.bfloat16()


def quantize_operands(network, mode):
    """Makes the convolutions and linear layers of a network quantize their operands. `torchao`: a
    layer whose outputs are no whole blocks of 32 stays as it is."""
    for module in network.modules():
        if mode == "mxfp8-torchao":
            if isinstance(module, nn.Linear) and module.out_features % 32 == 0:
                module.__class__ = TorchaoLinear
        elif isinstance(module, nn.Linear):
            module.__class__, module.recipe = Linear, RECIPES[mode]
        elif isinstance(module, nn.Conv2d):
            module.__class__, module.recipe = Convolution, RECIPES[mode]
