"""Products whose operands are rounded to block-scaled formats: y = x w, dx = dy w and dw = x dy each
take two, and a tensor is rounded for each product anew, along what the product sums over. The rules
are libada_scaling's."""
import json
import types

import torch
from torch import nn
from torch.nn import functional

from ada_train import native
from ada_train.torch.formats import unwrapped

OPERANDS = ("forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy")
_PRODUCTS = {"forward": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}


def _format(text):
    """A name or map as a format; None for none."""
    if text is None or text == "none":
        return None
    return native.BlockFormat(text if isinstance(text, str) else json.dumps(text))


def formats_of(operands):
    """{operand: format or None} of what record() is given: a format for all; {x, w, dy}; or
    {forward: {x, w}, dx: {dy, w}, dw: {x, dy}}. A map with `element` is a format."""
    if isinstance(operands, str) or "element" in operands:
        made = _format(operands)
        return {operand: made for operand in OPERANDS}
    products = set(operands) & set(_PRODUCTS)
    known = set(_PRODUCTS) if products else {"x", "w", "dy"}
    if not operands or set(operands) - known:
        raise ValueError(f"operands: expected a format, keys of x, w, dy, or of forward, dx, dw; "
                         f"got {operands!r}")
    made = {}
    for operand in OPERANDS:
        product, tensor = operand.split(".")
        given = operands.get(product) if products else operands
        if given is None or isinstance(given, str) or "element" in given:
            made[operand] = _format(given)
            continue
        if set(given) - set(_PRODUCTS[product]) and products:
            raise ValueError(f"operands.{product}: expected " + " and ".join(_PRODUCTS[product]))
        made[operand] = _format(given.get(tensor))
    return made


def text_of(formats):
    """What formats_of gave, as `precision.operands` of a configuration says it."""
    names = {operand: "none" if form is None else form.name for operand, form in formats.items()}
    if len(set(names.values())) == 1:
        return names["forward.x"]
    products = [product + ": {" + ", ".join(f"{tensor}: {names[f'{product}.{tensor}']}"
                                            for tensor in tensors) + "}"
                for product, tensors in _PRODUCTS.items()]
    return "{" + ", ".join(products) + "}"


def rows(tensor):
    """[rows, features] of a tensor whose features come last; there may be no features."""
    return tensor.reshape(tensor.shape[:-1].numel(), tensor.shape[-1])


def takes(module):
    """Whether the module's operands can be rounded: nn.Linear and nn.Conv2d themselves."""
    return type(module) in (nn.Linear, nn.Conv2d)


class Product:
    """One layer's products. `formats`: of formats_of; `seen`: told operand, format and figures of
    each that is rounded while it says so: seen(operand, format, figures), None otherwise."""

    def __init__(self, name, module, formats, seen, bf16=False):
        self.name, self._module, self._formats = name, module, formats
        self._seen, self._bf16 = seen, bf16
        if isinstance(module, nn.Conv2d) and (
                module.padding_mode != "zeros" or isinstance(module.padding, str)):
            raise ValueError(f"{name}: operands of a convolution are rounded where it pads with "
                             f"zeros, by numbers; this one has padding={module.padding!r}, "
                             f"padding_mode={module.padding_mode!r}")

    def __reduce__(self):
        """A copy of the module multiplies as it did before."""
        return types.MethodType, (type(self._module).forward, self._module)

    def __call__(self, input):
        m = self._module
        alone = not isinstance(m, nn.Linear) and input.dim() == 3  # one image without its batch
        y = _Multiplied.apply(input.unsqueeze(0) if alone else input, m.weight, m.bias, self)
        return y.squeeze(0) if alone else y

    def taken(self, operand, tensor):
        """The tensor as the product takes it."""
        form = self._formats[operand]
        if form is None or tensor.numel() == 0:
            return tensor
        linear = isinstance(self._module, nn.Linear)
        weight = operand.endswith(".w")
        shape = tensor.shape
        if linear and not weight:  # all that stands before the features are images
            tensor = rows(tensor)
        x = unwrapped(tensor.detach()).float().cpu().contiguous()
        decoded = torch.empty_like(x)
        along = operand.split(".")[0] == "forward" or operand == "dx.dy"
        seen = self._seen()
        figures = form.quantize(
            x.data_ptr(), decoded.data_ptr(), x.shape, weight=weight, linear=linear, along=along,
            groups=1 if linear else self._module.groups, bf16=self._bf16, counts=seen is not None)
        if seen is not None:
            seen(self.name, operand, form.name, figures)
        return decoded.reshape(shape).to(tensor.device)

    def multiply(self, x, w, bias):
        m = self._module
        if isinstance(m, nn.Linear):
            return functional.linear(x, w, bias)
        return functional.conv2d(x, w, bias, m.stride, m.padding, m.dilation, m.groups)

    def gradient_of_x(self, shape, w, dy):
        m = self._module
        if isinstance(m, nn.Linear):
            return dy @ w
        return nn.grad.conv2d_input(shape, w, dy, m.stride, m.padding, m.dilation, m.groups)

    def gradient_of_w(self, x, shape, dy):
        m = self._module
        if isinstance(m, nn.Linear):
            return rows(dy).T @ rows(x)
        return nn.grad.conv2d_weight(x, shape, dy, m.stride, m.padding, m.dilation, m.groups)


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, bias, product):
        ctx.save_for_backward(x, w)
        ctx.product, ctx.bias, ctx.ada_linear = product, bias is not None, True  # in S
        return product.multiply(product.taken("forward.x", x), product.taken("forward.w", w), bias)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        product, dx, dw, db = ctx.product, None, None, None
        if ctx.needs_input_grad[0]:
            dx = product.gradient_of_x(x.shape, product.taken("dx.w", w),
                                       product.taken("dx.dy", dy))
        if ctx.needs_input_grad[1]:
            dw = product.gradient_of_w(product.taken("dw.x", x), w.shape,
                                       product.taken("dw.dy", dy))
        if ctx.bias and ctx.needs_input_grad[2]:
            db = rows(dy).sum(0) if w.dim() == 2 else dy.sum((0, 2, 3))
        return dx, dw, db, None
