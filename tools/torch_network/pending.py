"""What several calls compute before it is a layer: attention's scores, rotations, norms and functions
that a network writes out in single operations."""
import torch
from torch.nn import functional as F

from .network import Value
from .rotary import rope_of
from .views import MOVES, like, numbers, view


class Pending:
    """A tensor on its way to a layer. `then`: what a call makes of it, NotImplemented where it wants
    the value; `settle`: the value, of a layer that is made now."""
    what = "a part of an operation"

    def then(self, call, name, args, kwargs):
        return NotImplemented

    def settle(self, call):
        return call.refuse(f"of {self.what}, for which ada-train has no layer of its own")

    def sizes(self):
        """PyTorch's shape."""
        return tuple(numbers(self.base).shape)

    def product(self, call, a, b, first, second, out):
        """The product of `a` and `b`, one of which this is; labels of their axes as in einsum."""
        return self.settle(call)


SAME = ("to", "type", "type_as", "float", "contiguous", "clone")


def number(value):
    """A Python number, or a tensor of one; None: something else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.requires_grad:
        return float(value)
    return None


def arithmetic(name, args, pending):
    """(operation, its other operand, whether `pending` stands first) of a call of two operands."""
    for operation, names in (("add", ("add", "radd", "iadd")), ("sub", ("sub", "subtract", "isub")),
                             ("rsub", ("rsub",)),
                             ("mul", ("mul", "multiply", "rmul", "imul")),
                             ("div", ("div", "divide", "truediv", "true_divide", "itruediv"))):
        if name in names and len(args) == 2:
            first = args[0] is pending
            return operation, args[1] if first else args[0], first
    return None, None, True


def scalar_affine(network, x):
    """(value, factor, offset) with x = value * factor + offset, of numbers: `x` itself, or what a
    layer of kind affine was made of."""
    layer = network.find(x.layer)
    if layer is None or layer.kind != "affine":
        return x, 1.0, 0.0
    factor, offset = (layer.tensors[name][0] for name in ("factor", "offset"))
    if not bool((factor == factor[0]).all() and (offset == offset[0]).all()):
        return x, 1.0, 0.0
    return like(x, layer.inputs[0]), float(factor[0]), float(offset[0])


class Function(Pending):
    """f of each value of `base`: a layer where f is one that there is."""
    what = "a function of single values"
    KNOWN = {
        "gelu": (lambda x: F.gelu(x), {}),
        "gelu, tanh": (lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
        "silu": (lambda x: F.silu(x), {}), "relu": (lambda x: F.relu(x), {}),
        "sigmoid": (torch.sigmoid, {}), "tanh": (torch.tanh, {}),
    }
    UNARY = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "exp": torch.exp}

    def __init__(self, base, f):
        self.base, self.f = base, f

    @staticmethod
    def of(call, x, f):
        """f of a value, which may be a factor and an offset away from the one that counts."""
        base, factor, offset = scalar_affine(call.converter.network, x)
        return Function(base, lambda v: f(v * factor + offset)).known(call)

    def known(self, call):
        x = torch.linspace(-6, 6, 241, dtype=torch.float64)
        with torch.no_grad():
            y = self.f(x)
        for name, (known, keys) in self.KNOWN.items():
            if float((y - known(x)).abs().max()) < 1e-6:
                return call.pointwise(name.split(",")[0], self.base, keys)
        return self

    def other(self, call, x):
        """`x` as a function of the same base; None: it is none."""
        if number(x) is not None:
            return lambda v, c=number(x): torch.full_like(v, c)
        if isinstance(x, Function):
            return x.f if self.same(x.base) else None
        if isinstance(x, Value):
            base, factor, offset = scalar_affine(call.converter.network, x)
            return (lambda v: v * factor + offset) if self.same(base) else None
        return None

    def same(self, base):
        return base.layer == self.base.layer and torch.equal(numbers(base), numbers(self.base))

    def then(self, call, name, args, kwargs):
        if name in SAME:
            return self
        f = self.f
        if name in self.UNARY:
            return Function(self.base, lambda v: self.UNARY[name](f(v))).known(call)
        if name == "neg":
            return Function(self.base, lambda v: -f(v))
        if name == "pow" and number(args[1]) is not None:
            return Function(self.base, lambda v: f(v) ** number(args[1]))
        operation, operand, first = arithmetic(name, args, self)
        g = self.other(call, operand)
        if g is None:
            return NotImplemented
        a, b = (f, g) if first else (g, f)
        made = {"add": lambda v: a(v) + b(v), "sub": lambda v: a(v) - b(v),
                "rsub": lambda v: b(v) - a(v), "mul": lambda v: a(v) * b(v),
                "div": lambda v: a(v) / b(v)}[operation]
        return Function(self.base, made).known(call)


class MeanSquare(Pending):
    """The mean of squares of each token's channels, then 1 / sqrt of it and eps, and x times that:
    an RMS norm but for its factors."""
    what = "an RMS norm written out, without factors by channel, which the layer has"

    def __init__(self, base, eps=0.0, stage="mean"):
        self.base, self.eps, self.stage = base, eps, stage

    def at(self, stage):
        return MeanSquare(self.base, self.eps, stage)

    def then(self, call, name, args, kwargs):
        if name in SAME:
            return self
        operation, other, first = arithmetic(name, args, self)
        if self.stage == "mean":
            if operation == "add" and number(other) is not None:
                return MeanSquare(self.base, self.eps + number(other))
            if name == "pow" and number(args[1]) in (0.5, -0.5):
                return self.at("root" if args[1] > 0 else "inverse")
            return self.at({"rsqrt": "inverse", "sqrt": "root"}[name]) if name in (
                "rsqrt", "sqrt") else NotImplemented
        if isinstance(other, Value) and other.layer == self.base.layer and torch.equal(
                numbers(other), numbers(self.base)):
            if (self.stage, operation) == ("inverse", "mul"):
                return self.at("normed")
            if (self.stage, operation, first) == ("root", "div", False):
                return self.at("normed")
        if self.stage == "normed" and operation == "mul" and isinstance(other, torch.Tensor):
            return call.handled("rms_norm", self.base, [self.base.channels], other, self.eps)
        return NotImplemented


class Mix(Pending):
    """Sums of moved values times constants: each term is where the values lie in the layer's output,
    and what they are multiplied by, in PyTorch's shape. Rotary positions are written so."""
    what = "values times constants that differ between places, and their sums"

    def __init__(self, base, terms):
        self.base, self.terms = base, terms

    @staticmethod
    def of(x):
        if isinstance(x, Mix):
            return x
        index = numbers(x)
        return Mix(Value(x.layer, "rows", *x.size), [(index, torch.ones(index.shape))])

    def sizes(self):
        return tuple(self.terms[0][0].shape)

    def times(self, factor):
        return Mix(self.base, [(i, c * factor) for i, c in self.terms])

    def then(self, call, name, args, kwargs):
        if name in SAME:
            return self
        if name == "neg":
            return self.times(-1)
        if name in ("cat", "concat", "concatenate", "stack"):
            return self.joined(call, args, kwargs)
        if name in MOVES and args[0] is self:
            return self.moved(call, args, kwargs)
        operation, other, first = arithmetic(name, args, self)
        constant = number(other) is not None or (isinstance(other, torch.Tensor)
                                                 and not other.requires_grad)
        if operation in ("mul", "div") and constant and first | (operation == "mul"):
            return self.times(other if operation == "mul" else 1 / other)
        if operation in ("add", "sub") and isinstance(other, (Value, Mix)):
            other = Mix.of(other)
            if other.base.layer == self.base.layer and (
                    other.terms[0][0].shape == self.terms[0][0].shape):
                a, b = (self, other) if first else (other, self)
                return Mix(self.base, a.terms + (b.times(-1) if operation == "sub" else b).terms)
        return NotImplemented

    def moved(self, call, args, kwargs):
        def apply(tensor):
            return call.function(tensor, *args[1:], **kwargs) if (
                call.function is not torch.Tensor.view) else tensor.reshape(
                    args[1] if isinstance(args[1], (tuple, list)) else args[1:])
        made = [(apply(i), apply(c)) for i, c in self.terms]
        if isinstance(made[0][0], (tuple, list)):
            return [Mix(self.base, [(i[k], c[k]) for i, c in made])
                    for k in range(len(made[0][0]))]
        return Mix(self.base, made)

    def joined(self, call, args, kwargs):
        parts = args[0]
        if not all(isinstance(p, (Value, Mix)) for p in parts):
            return NotImplemented
        parts = [Mix.of(p) for p in parts]
        if len({p.base.layer for p in parts}) > 1:
            return NotImplemented
        count, terms = max(len(p.terms) for p in parts), []
        for k in range(count):
            pieces = [p.terms[k] if k < len(p.terms) else
                      (p.terms[0][0], torch.zeros_like(p.terms[0][1])) for p in parts]
            terms.append(tuple(call.function([piece[n] for piece in pieces], *args[1:], **kwargs)
                               for n in (0, 1)))
        return Mix(self.base, terms)

    def settle(self, call):
        return rope_of(call, self)


def sizes_of(x):
    """PyTorch's shape."""
    if isinstance(x, Pending):
        return x.sizes()
    return tuple((numbers(x) if isinstance(x, Value) else x).shape)


def arranged(x, order, shape=None):
    """`x` with its axes in `order`, then in `shape`."""
    def arrange(tensor):
        tensor = tensor.permute(list(order))
        return tensor if shape is None else tensor.reshape(shape)
    if isinstance(x, Mix):
        return Mix(x.base, [(arrange(i), arrange(c.expand(i.shape))) for i, c in x.terms])
    return view(Value(x.layer, "rows", *x.size), arrange(numbers(x)))
