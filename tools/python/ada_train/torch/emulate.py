"""A model that computes in fp32, rounded to other formats where ada-train rounds: its input, the
copies of weights that products multiply, the outputs of its layers, and their gradients."""
import torch

from ada_train import counting
from ada_train.torch import formats
from ada_train.torch.layers import tensors_of, weight_of
from ada_train.torch.operands import Product, takes
from ada_train.torch.outputs import replaced


class Carried:
    """What a scaled backward pass says of a rounding's gradient: the cell with its scale, whether
    it leaves without it, as gradients of weights do, and under `reference` the cell of the scale
    that it is multiplied by after a first rounding."""
    __slots__ = ("cell", "unscales", "starts", "first")

    def __init__(self, unscales):
        self.cell, self.unscales, self.starts, self.first = None, unscales, None, None


def _is_real(x):
    return isinstance(x, torch.Tensor) and x.dtype == torch.float32


class _Round(torch.autograd.Function):
    """Rounds a tensor on its way forward and its gradient on its way backward, each where there is
    a function for it, which takes and gives a tensor, and is told the scale that it carries."""

    @staticmethod
    def forward(ctx, x, forward, backward, unscales=False):
        ctx.rounds, ctx.carried, ctx.ada_linear = backward, Carried(unscales), True
        y = forward(x) if forward else x
        return y.clone() if y is x or y._is_view() else y  # it may be changed in place

    @staticmethod
    def backward(ctx, dy):
        carried = ctx.carried
        scale = carried.cell.scale if carried.cell is not None else None
        if carried.unscales and scale is not None:
            dy, scale = dy if scale == 1 else dy / scale, 1.0
        if carried.starts is not None:
            scale = carried.starts.scale
            dy = carried.first(dy) * scale
        return (ctx.rounds(dy, scale) if ctx.rounds else dy), None, None, None


class _Replaced:
    """A module whose forward is another one until remove(), as of a hook."""

    def __init__(self, module, forward):
        self._module = module
        module.forward = forward

    def remove(self):
        self._module.__dict__.pop("forward", None)


class Emulation:
    """`roles`: activations, weights, gradients, weight_gradients -> Named format; `operands`:
    operand -> block-scaled format or None, as operands.formats_of gives them; None: products take
    what is stored."""

    def __init__(self, recorder, roles, operands=None):
        self._recorder, self._roles, self._operands = recorder, roles, operands
        self._summed = set()  # layers whose dy was the sum of several gradients
        self._masters, self.start = {}, None

    def _rounding(self, layer, tensor, role):
        """The function that counts and rounds a tensor; an empty layer is not counted."""
        form, attempt = self._roles[role], self._recorder.attempt

        def rounded(x, scale=None):
            if attempt is not None and layer:
                attempt.add(layer, tensor, x, form, scale)
            return counting.round_to(form.grid, x.contiguous(), torch)
        return rounded

    def _sum_of_branches(self, layer):
        """dy: several consumers sent gradients where the sum is not yet a value of the format. It
        is rounded, and counted from then on."""
        form, attempt = self._roles["gradients"], self._recorder.attempt

        def rounded(dy, scale=None):
            dy = dy.contiguous()
            result = counting.round_to(form.grid, dy, torch)
            if attempt is not None and attempt.counts:
                if layer not in self._summed and not torch.equal(
                        result.view(torch.int32), dy.view(torch.int32)):
                    self._summed.add(layer)
                if layer in self._summed:
                    attempt.add(layer, "dy", dy, form, scale)
            return result
        return rounded

    def _counted(self):
        """What products tell of their operands, in attempts that count."""
        attempt = self._recorder.attempt
        return attempt.add_operand if attempt is not None and attempt.counts else None

    def hook(self, name, module):
        if self._operands is None or not takes(module):
            return self._hooks(name, module)
        bf16 = self._roles["activations"].name == "bf16"
        product = Product(name, module, self._operands, self._counted, bf16)
        return [*self._hooks(name, module), _Replaced(module, product)]

    def _hooks(self, name, module):
        return [module.register_forward_pre_hook(
                    lambda _, args, kwargs: self._before(name, module, args, kwargs),
                    with_kwargs=True),
                module.register_forward_hook(
                    lambda _, args, y: self._after(name, module, y), always_call=True)]

    def hook_input(self, args, kwargs):
        """What the network is called with, its real tensors rounded, those of lists too."""
        rounding = self._rounding("input", "y", "activations")

        def rounded(x):
            return _Round.apply(x, rounding, None) if _is_real(x) else x
        return replaced(args, rounded), replaced(kwargs, rounded)

    def hook_logits(self, outputs):
        """What the network gives, with gradients that are rounded where a loss takes them."""
        def rounded(logits):
            if not _is_real(logits) or not logits.requires_grad or (
                    logits.dim() == 0 and logits is not outputs):  # a loss beside them
                return logits
            made = _Round.apply(logits, None, self._rounding("loss", "dx", "gradients"))
            carried = made.grad_fn.carried
            carried.starts, carried.first = self.start, self._rounding("", "dx", "gradients")
            return made
        made = replaced(outputs, rounded)
        return None if made is outputs else made

    def _before(self, name, module, args, kwargs):
        weight = self._masters.get(module, weight_of(module))
        if weight is not None:
            self._masters[module] = weight
            module._parameters["weight"] = self._weight(name, weight)
        args, kwargs, layer = list(args), dict(kwargs), name
        for place, x in tensors_of(module, args, kwargs):
            if _is_real(x) and x.requires_grad:
                given = args if isinstance(place, int) else kwargs
                given[place] = _Round.apply(x, None, self._rounding(layer, "dx", "gradients"))
                layer = ""  # a second input's gradient is rounded, and has no row
        return tuple(args), kwargs

    def settle(self):
        """Gives layers their weights back that an interrupt ended: they run no hook."""
        while self._masters:
            module, weight = self._masters.popitem()
            module._parameters["weight"] = weight

    def _weight(self, name, weight):
        return _Round.apply(weight, self._rounding(name, "w", "weights"),
                            self._rounding(name, "dw", "weight_gradients"), True)

    def within(self, name, alone):
        """What rounds and counts the tensors of attention: (tensor, x, scale, counts) -> x rounded.
        `alone`: y is the output of a layer that rounds and counts it."""
        def rounded(tensor, x, scale=None, counts=True):
            counts = counts and not (alone and tensor == "y")
            role = "activations" if tensor in ("p", "y") else "gradients"
            return self._rounding(name if counts else "", tensor, role)(x, scale)
        return rounded

    def product(self, name, x, weight, bias, multiply):
        """multiply(x, weight, bias), rounded as a module's product is."""
        x = _Round.apply(x, None, self._rounding(name, "dx", "gradients"))
        y = multiply(x, self._weight(name, weight), bias)
        return _Round.apply(y, self._rounding(name, "y", "activations"), None)

    def _after(self, name, module, y):
        if module in self._masters:
            module._parameters["weight"] = self._masters.pop(module)
        if not _is_real(y):
            return None
        return _Round.apply(y, self._rounding(name, "y", "activations"),
                            self._sum_of_branches(name))

    @staticmethod
    def check(model):
        for name, parameter in model.named_parameters():
            if parameter.dtype != torch.float32:
                raise ValueError(f"{name} is {parameter.dtype}: a format is emulated in a model "
                                 "whose parameters are torch.float32; leave `format` out to record "
                                 "what the model itself computes in")


def roles_of(format, activations, weights, gradients, weight_gradients, saturate, always=False):
    """The formats by role as `precision:` has them; None where nothing is to be emulated, unless
    `always`."""
    given = {"activations": activations, "weights": weights, "gradients": gradients}
    if not any([format, weight_gradients, always, *given.values()]):
        return None
    roles = {role: formats.named(text or format or "fp32", saturate)
             for role, text in given.items()}
    roles["weight_gradients"] = formats.named(weight_gradients or "fp32", saturate)
    return roles
