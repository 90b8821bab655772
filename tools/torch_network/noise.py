"""Random numbers that a network draws for itself, and dropout made of them."""
import torch

from .views import like

# Functions whose result is made of no argument's values.
EMPTY = ("empty", "empty_like", "new_empty", "zeros", "zeros_like", "new_zeros", "ones",
         "ones_like", "new_ones", "full", "full_like", "new_full", "new_tensor", "tensor", "arange",
         "linspace", "eye")
UNIFORM = ("rand", "rand_like")
RANDOM = ("randn", "randn_like", "randint", "randint_like", "randperm", "normal", "uniform",
          "multinomial", "poisson", "exponential", "random")


class Noise:
    """A random tensor. Where `keep` is known it is `factor` with that probability, else 0; `offset`
    is what was added to numbers uniform in [0, 1). `like`: a tensor as it lies in memory, which is
    the order that numbers are drawn in."""

    def __init__(self, like, keep=None, factor=1.0, offset=None):
        self.shape, self.stride = tuple(like.shape), tuple(like.stride())
        self.like, self.keep, self.factor, self.offset = like, keep, factor, offset

    def mask(self):
        """Drawn once more from torch's generator, with a mean of 1."""
        drawn = torch.empty_strided(self.like.shape, self.stride)
        if self.offset is None:
            return drawn.bernoulli_(self.keep) / self.keep
        return (self.offset + drawn.uniform_()).floor() / self.keep


def noise_of(name, args, kwargs, result):
    """What a function called `name` makes where no argument is computed from images; None: nothing
    random. Values of `args` are constants and Noise."""
    given = [a for a in [*args, *kwargs.values()] if isinstance(a, Noise)]
    if name == "bernoulli":
        p = kwargs.get("p", args[1] if len(args) > 1 else None)
        return Noise(result, p if isinstance(p, float) and 0 < p < 1 else None)
    if name in UNIFORM:
        return Noise(result, offset=0.0)
    if name in RANDOM:
        return Noise(result)
    if not given:
        return None
    noise, others = given[0], [a for a in args if not isinstance(a, Noise)]
    number = others[0] if len(others) == 1 and isinstance(others[0], (int, float)) else None
    uniform = noise.offset is not None and noise.keep is None
    if name in ("add", "radd") and number is not None and uniform:
        return Noise(noise.like, offset=noise.offset + number)
    if name == "floor" and uniform and 0 < noise.offset < 1:
        return Noise(noise.like, noise.offset, offset=noise.offset)
    if name in ("div", "truediv", "mul", "rmul") and number and noise.keep is not None:
        factor = noise.factor * number if "mul" in name else noise.factor / number
        return Noise(noise.like, noise.keep, factor, noise.offset)
    if name in ("to", "type", "float", "view", "reshape", "contiguous", "clone"):
        noise.shape = tuple(result.shape)  # and drawn as it lay before
        return noise
    return Noise(result)


def dropped_by(call, x, noise, affine):
    """x times `noise`."""
    if noise.keep is None:
        call.refuse("by random numbers; nn.Dropout, torchvision.ops.StochasticDepth and timm's "
                    "DropPath come over")
    shape, wanted = noise.shape, call.shape
    per_image = len(shape) == len(wanted) and shape[1:] == (1,) * (len(shape) - 1)
    if per_image and shape[0] in (1, wanted[0]):
        kind = "stochastic_depth"
        more = {"mode": "row" if shape[0] == wanted[0] else "batch"}
    elif shape == wanted:
        kind, more = "dropout", {}
    else:
        call.refuse(f"by random numbers of shape {list(shape)}: drops whole channels")
    # The layer divides by what it keeps; a factor that stands before it goes after it, where it
    # cancels with what the network itself divides by.
    x, factor = call.pointwise_tensor(x), noise.factor * noise.keep
    network = call.converter.network
    before = network.find(x.layer)
    if before is not None and before.kind == "affine" and not before.tensors["offset"][0].any():
        factor = before.tensors["factor"][0] * factor
        x = like(x, before.inputs[0])
    made = call.layer(kind, [x], x, {"rate": float(f"{1 - noise.keep:.7g}"), **more})
    network.find(made.layer).noise = noise
    one = bool((torch.as_tensor(factor - 1.0).abs() < 1e-6).all())
    return made if one else affine(call, made, factor, 0.0)


def dropped(call, x, p=0.5, training=True, inplace=False):
    if p == 0 or not training:
        return x
    if p >= 1:
        call.refuse("p of 1 leaves nothing")
    made = call.pointwise("dropout", x, {"rate": p})
    call.converter.network.find(made.layer).noise = Noise(call.arguments[0], 1 - p)
    return made


def dropped_channels(call, x, p=0.5, training=True, inplace=False):
    return x if p == 0 or not training else call.refuse(
        "drops whole channels; nn.Dropout and stochastic depth come over")
