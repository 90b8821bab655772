"""Modules that multiply by a weight, as functions of autograd that choose alpha: the scale
multiplies the data gradient before it is rounded, and gradients of parameters leave unscaled."""
import math

import torch
from torch import nn
from torch.nn import functional

from ada_train.torch.operands import rows
from ada_train.torch.scaling.rules import Operands
from ada_train.torch.tape import plain_function

_EXACT = 2.0 ** 64  # factors up to which fp32 weights of usual size stay exact


def _is_power_of_two(value):
    return value > 0 and math.frexp(value)[0] == 0.5


def _carries(w, alpha):
    """Whether alpha * w is exact: then the product itself multiplies by alpha, before it rounds."""
    if not _is_power_of_two(alpha):
        return False
    if w.dtype == torch.float16:
        return alpha >= 1 and (w.numel() == 0 or float(w.abs().max()) * alpha <= 65504.0)
    return 1 / _EXACT <= alpha <= _EXACT


def convolution_fans(shape, stride, transposed, groups):
    """Reference and exact, of a weight's shape."""
    fan = (shape[1] * groups if transposed else shape[0]) * math.prod(shape[2:])
    return fan, fan / groups / (1 if transposed else math.prod(stride))


class Linear:
    """y = x w^T + b; of weights that lie the other way round, y = x w + b."""

    def __init__(self, across=False):
        self._across = across

    def fans(self, w):
        fan = w.shape[1] if self._across else w.shape[0]
        return fan, fan

    def forward(self, x, w, b):
        return functional.linear(x, w.t() if self._across else w, b)

    def operands(self, dy, w):
        return Operands(dy, dy.dim() - 1, w, 1 if self._across else 0)

    def dx(self, dy, x, w):
        of_dy, w = rows(dy), w.t() if self._across else w
        flat = rows(x)
        if flat.stride() == (1, flat.shape[0]):  # PyTorch's order of a product by columns
            found = (w.t() @ of_dy.t()).t()
        else:
            found = of_dy @ w
        return found.reshape(*dy.shape[:-1], found.shape[-1])

    def backward(self, dy, x, w, needs):
        """dx, dw and db, each where it is needed, as PyTorch's own node sums them."""
        dx = self.dx(dy, x, w) if needs[0] else None
        of_dy, flat = rows(dy), rows(x)
        dw = db = None
        if needs[1]:
            dw = flat.t() @ of_dy if self._across else of_dy.t() @ flat
        if needs[2]:  # PyTorch adds the bias to the whole result where x cannot be flattened
            whole = dy if x.dim() > 2 and not x.is_contiguous() else of_dy
            db = whole.sum(tuple(range(whole.dim() - 1)),
                           dtype=torch.float32 if dy.dtype != torch.float64 else None)
        return dx, dw, db


class Convolution:
    def __init__(self, module):
        self._transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
        self._stride, self._dilation = list(module.stride), list(module.dilation)
        padded = isinstance(module.padding, str) or module.padding_mode != "zeros"
        self._padding = [0] * len(self._stride) if padded else list(module.padding)
        self._output_padding = list(module.output_padding)
        self._groups = module.groups

    def with_output_padding(self, output_padding):
        other = object.__new__(Convolution)
        other.__dict__.update(self.__dict__, _output_padding=list(output_padding))
        return other

    def fans(self, w):
        return convolution_fans(w.shape, self._stride, self._transposed, self._groups)

    def forward(self, x, w, b):
        return torch.convolution(x, w, b, self._stride, self._padding, self._dilation,
                                 self._transposed, self._output_padding, self._groups)

    def operands(self, dy, w):
        if self._transposed and self._groups > 1:  # inputs, outputs of one group: outputs first
            w = w.unflatten(0, (self._groups, -1)).transpose(1, 2).flatten(0, 1)
            return Operands(dy, 1, w, 0)
        return Operands(dy, 1, w, 1 if self._transposed else 0)

    def dx(self, dy, x, w):
        return self._gradients(dy, x, w, [True, False, False])[0]

    def backward(self, dy, x, w, needs):
        return self._gradients(dy, x, w, list(needs))

    def _gradients(self, dy, x, w, needs):
        return torch.ops.aten.convolution_backward(
            dy, x, w, [dy.shape[1]], self._stride, self._padding, self._dilation,
            self._transposed, self._output_padding, self._groups, needs)


class Product(torch.autograd.Function):
    """`site`: the place of the product in the model (name, engine); `operation`: Linear or
    Convolution. The plan of a backward pass gives `rule`, and the cells of what comes and leaves.
    """

    @staticmethod
    @plain_function()
    def forward(ctx, x, weight, bias, operation, site):
        kind, dtypes = x.device.type, (x.dtype, weight.dtype, bias.dtype if bias is not None
                                       else None)
        if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
            narrow = torch.get_autocast_dtype(kind)
            x, weight = x.to(narrow), weight.to(narrow)
            bias = None if bias is None else bias.to(narrow)
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        ctx.operation, ctx.site, ctx.dtypes = operation, site, dtypes
        ctx.fans, ctx.computes, ctx.ada_linear = operation.fans(weight), x.dtype, True
        ctx.rule = ctx.came = ctx.leaves = ctx.observer = None
        with torch.autocast(kind, enabled=False):
            return operation.forward(site.taken("forward.x", x), site.taken("forward.w", weight),
                                     bias)

    @staticmethod
    def backward(ctx, dy):
        """A pass without a plan may be differentiated again, as that of the plain product; copies
        that autocast has made are not known to autograd."""
        plain = ctx.came is None and ctx.site.taker is None
        cast = any(dtype not in (None, ctx.computes) for dtype in ctx.dtypes)
        if not torch.is_grad_enabled() or plain and not cast:
            return Product._backward(ctx, dy)
        if plain:
            raise RuntimeError(
                f"{ctx.site.name}: create_graph: a product whose operands autocast has cast is not "
                "differentiated again; expected the outputs that such gradients are of computed "
                "under torch.autocast(..., enabled=False)")
        raise RuntimeError(
            f"{ctx.site.name}: create_graph: a scaled backward pass is not differentiated again; "
            "expected gradients of a loss that scale() was not given, and then scale() of the sum "
            "that they are a part of")

    @staticmethod
    def _backward(ctx, dy):
        if dy is None:
            return None, None, None, None, None
        x, w = ctx.saved_tensors
        operation, rule = ctx.operation, ctx.rule
        scale = ctx.came.scale if ctx.came is not None else 1.0
        needs = ctx.needs_input_grad[:3]
        with torch.autocast(dy.device.type, enabled=False):
            decision = None
            if rule is not None:
                decision = rule.decide(operation.operands(dy, w), scale)
                ctx.leaves.scale = decision.scale_out
            dx, dw, db = _gradients(ctx, dy, x, w, needs, decision)
            if ctx.observer is not None:
                ctx.observer(dy, scale, 1.0 if decision is None else decision.alpha)
            if rule is not None:
                rule.check(dx, dw, db)
        dw = _unscaled(dw, scale, ctx.dtypes[1])
        db = _unscaled(db, scale, ctx.dtypes[2])
        return None if dx is None else dx.to(ctx.dtypes[0]), dw, db, None, None


def _unscaled(gradient, scale, dtype):
    if gradient is None:
        return None
    if scale != 1:
        gradient = gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else (
            gradient)
        gradient = gradient.div_(scale)
    return gradient.to(dtype)


def _gradients(ctx, dy, x, w, needs, decision):
    operation = ctx.operation
    if ctx.site.taker is not None:
        return _of_taken(ctx, dy, x, w, needs, decision)
    if decision is None or not needs[0]:
        return operation.backward(dy, x, w, needs)
    alpha, narrow = decision.alpha, dy.dtype in (torch.float16, torch.bfloat16)
    if decision.alpha_first and alpha != 1:  # the authors' program
        engine = ctx.site.engine
        dx = operation.dx(engine.round_gradient((dy.float() * alpha).to(dy.dtype)), x, w)
    elif narrow and (decision.wants_tail or not (alpha == 1 or _carries(w, alpha))):
        # What a product rounds nobody can see any more.
        dx = operation.dx(dy.float(), x.float(), w.float()) * alpha
        ctx.rule.observe(dx, decision)
        dx = dx.to(dy.dtype)
    elif alpha == 1 or _carries(w, alpha):
        dx, dw, db = operation.backward(dy, x, w if alpha == 1 else w * alpha, needs)
        ctx.rule.observe(dx, decision)
        return dx, dw, db
    else:
        dx = operation.dx(dy, x, w).mul_(alpha)
        ctx.rule.observe(dx, decision)
    _, dw, db = operation.backward(dy, x, w, (False, *needs[1:]))
    return dx, dw, db


def _of_taken(ctx, dy, x, w, needs, decision):
    """Each product takes operands of its own; db is that of dy as it is stored."""
    operation, taken, dx, dw, db = ctx.operation, ctx.site.taken, None, None, None
    alpha = 1.0 if decision is None else decision.alpha
    if needs[0]:
        first = decision is not None and decision.alpha_first and alpha != 1
        stored = ctx.site.engine.round_gradient(dy * alpha) if first else dy
        dx = operation.dx(taken("dx.dy", stored), x, taken("dx.w", w))
        if decision is not None:
            dx = dx if first else dx.mul_(alpha)
            ctx.rule.observe(dx, decision)
    if needs[1]:
        dw = operation.backward(taken("dw.dy", dy), taken("dw.x", x), w, (False, True, False))[1]
    if needs[2]:
        db = operation.backward(dy, x, w, (False, False, True))[2]
    return dx, dw, db
