"""The modules whose products choose a scale: their `forward` multiplies by Product, everything else
of them stays as it is."""
import types

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.modules import activation

from ada_train.torch.converted import conversion_of
from ada_train.torch.layers import is_conv1d
from ada_train.torch.operands import Product as Taker
from ada_train.torch.scaling.products import Convolution, Linear, Product

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Of the arguments of multi_head_attention_forward.
_OUT_WEIGHT = 11
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Site:
    """A module's place in its model. Without an engine, as in a model that was saved, it says
    nothing. `taker`: what rounds the products' operands (operands.Product), or None."""

    def __init__(self, name, engine, operation, taker=None):
        self.name, self.engine, self.operation, self.taker = name, engine, operation, taker

    def __reduce__(self):
        return Site, (self.name, None, self.operation)  # of copies and pickles

    def plain(self, forward, module, x):
        """Without gradients."""
        return forward(module, x) if self.taker is None else self.taker(x)

    def taken(self, operand, tensor):
        return tensor if self.taker is None else self.taker.taken(operand, tensor)

    def product(self, x, weight, bias, operation=None):
        return Product.apply(x, weight, bias, operation or self.operation, self)


def _stays_plain(x):
    """Where no layer chooses a scale: without gradients, of complex numbers, whose gradients are of
    conjugates, and where a pass is transformed."""
    return not torch.is_grad_enabled() or _is_transformed() or x.is_complex()


def _is_transformed():
    """Within vmap, grad and jvp of torch.func, and in forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _forward(function):
    """Methods are pickled by their names: a model that was saved is loaded as a plain one."""
    function.__name__ = "forward"
    return function


@_forward
def _linear(self, input):
    if _stays_plain(input):
        return self._ada_site.plain(nn.Linear.forward, self, input)
    return self._ada_site.product(input, self.weight, self.bias)


@_forward
def _conv1d(self, x):
    if _stays_plain(x):
        return type(self).forward(self, x)
    return self._ada_site.product(x, self.weight, self.bias)


@_forward
def _convolution(self, input):
    if _stays_plain(input):
        return self._ada_site.plain(type(self).forward, self, input)
    if isinstance(self.padding, str) or self.padding_mode != "zeros":
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        input = functional.pad(input, self._reversed_padding_repeated_twice, mode=mode)
    return _with_batch(self, input, self._ada_site.operation)


@_forward
def _transposed(self, input, output_size=None):
    if _stays_plain(input):
        return type(self).forward(self, input, output_size)
    operation = self._ada_site.operation
    if output_size is not None:
        operation = operation.with_output_padding(self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size,
            len(self.kernel_size), self.dilation))
    return _with_batch(self, input, operation)


def _with_batch(self, x, operation):
    alone = x.dim() == len(self.kernel_size) + 1
    y = self._ada_site.product(x.unsqueeze(0) if alone else x, self.weight, self.bias, operation)
    return y.squeeze(0) if alone else y


@_forward
def _attention(self, *args, **kwargs):
    """nn.MultiheadAttention as it is written, but for the function that it multiplies by."""
    if not torch.is_grad_enabled() or _is_transformed():
        return nn.MultiheadAttention.forward(self, *args, **kwargs)
    site, calls, last = self._ada_site, [], []

    def linear(x, weight, bias=None):
        out = weight is last[0]
        calls.append(None)
        name = "out_proj" if out else "in_proj" + ("" if len(calls) == 1 else f".{len(calls)}")
        inner = Site(f"{site.name}.{name}" if site.name else name, site.engine, site.operation)
        if site.engine is not None and site.engine.emulation is not None:
            return site.engine.emulation.product(inner.name, x, weight, bias, inner.product)
        return inner.product(x, weight, bias)
    names = dict(vars(functional), linear=linear)
    for inner in ("_in_projection_packed", "_in_projection", "multi_head_attention_forward"):
        names[inner] = types.FunctionType(getattr(functional, inner).__code__, names, inner,
                                          getattr(functional, inner).__defaults__)

    def attend(*args, **kwargs):
        last.append(args[_OUT_WEIGHT])  # asking out_proj for it computes a parametrization anew
        return names["multi_head_attention_forward"](*args, **kwargs)
    forward = nn.MultiheadAttention.forward
    return types.FunctionType(
        forward.__code__, dict(vars(activation), F=types.SimpleNamespace(
            **{**names, "multi_head_attention_forward": attend})),
        "forward", forward.__defaults__)(self, *args, **kwargs)


def _kind(module):
    """(forward, operation) of a module that multiplies as PyTorch's own does; None of others."""
    own = type(module).forward
    if conversion_of(module) is not None:
        return None
    if own is nn.Linear.forward:
        return _linear, Linear()
    if is_conv1d(module):
        return _conv1d, Linear(across=True)
    for kinds, forward in ((_CONVOLUTIONS, _convolution), (_TRANSPOSED, _transposed)):
        if any(own is kind.forward for kind in kinds):
            return forward, Convolution(module)
    if own is nn.MultiheadAttention.forward:
        return _attention, Linear()
    return None


def check(model):
    """Raises ValueError where the model is scaled already. What a copy of a scaled model has left
    of it is taken off."""
    left = [module for module in model.modules() if "_ada_site" in module.__dict__]
    if any(module._ada_site.engine is not None for module in left):
        raise ValueError(f"{type(model).__name__} is scaled already: expected remove() of the "
                         "AdaLossScaled that it has")
    remove(left)


def install(model, engine, name_of):
    """Gives each such module its Site; the modules that have one, for remove()."""
    found = []
    for path, module in model.named_modules():
        kind, taker = _kind(module), module.__dict__.get("forward")
        if getattr(taker, "__func__", None) is type(module).forward:
            taker = None  # in a copy of a module whose operands were rounded
        if kind is None or not (taker is None or isinstance(taker, Taker)):
            continue
        module._ada_site = Site(name_of(path), engine, kind[1], taker)
        module.forward = types.MethodType(kind[0], module)
        found.append(module)
    return found


def remove(modules):
    for module in modules:
        if module.__dict__.pop("_ada_site", None) is not None:
            module.__dict__.pop("forward", None)
