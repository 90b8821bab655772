"""Functions of each value alone, and factors by channel (kinds.py says how a layer is called).

A function is computed in float64 and known to a few units of fp32; one product or sum is exact before its rounding.
"""

import math

import numpy as np

from exact import single, sum_error, within, lowest_bit
from kinds import Layer

SMOOTH = 3e-6  # relative error of what is made of an exponential


class Leaky(Layer):
    mixes = False

    def forward(self, xs):
        self.x, self.slope = xs[0], single(self.key("slope", 0.01))
        return single(np.where(self.x > 0, self.x, self.x * self.slope)), np.zeros(self.x.shape)

    def backward(self, dy):
        return [(single(np.where(self.x > 0, dy, dy * self.slope)), np.zeros(dy.shape))]


class Sloped(Leaky):
    """prelu: the slope is trained, one of all values or one a channel; a NaN counts as not positive."""

    def setup(self):
        super().setup()
        self.params = {"weight": np.zeros(self.shape[0] if self.key("per_channel", False) else 1)}

    def forward(self, xs):
        self.keys["slope"] = self.params["weight"].reshape(1, -1, 1, 1)
        return super().forward(xs)

    def backward(self, dy):
        part = np.where(self.x > 0, 0.0, dy * self.x)
        axes = (0, 2, 3) if self.key("per_channel", False) else (0, 1, 2, 3)
        self.grads["weight"] = _sum_of(part, axes, len(self.params["weight"]))
        return super().backward(dy)


class ChannelScale(Layer):
    """A trained factor a channel, in fp32."""

    def setup(self):
        super().setup()
        self.params = {"weight": np.ones(self.shape[0])}

    def forward(self, xs):
        self.x, self.factor = xs[0], self.params["weight"].reshape(1, -1, 1, 1)
        return single(self.x * self.factor), np.zeros(self.x.shape)

    def backward(self, dy):
        self.grads["weight"] = _sum_of(dy * self.x, (0, 2, 3), self.shape[0])
        return [(single(dy * self.factor), np.zeros(dy.shape))]


class Affine(Layer):
    """x times a factor by channel, rounded to fp32, plus an offset; neither is trained."""

    mixes, trained = False, False

    def setup(self):
        super().setup()
        self.params = {"factor": np.ones(self.shape[0]), "offset": np.zeros(self.shape[0])}

    def forward(self, xs):
        self.factor, offset = (self.params[k].reshape(1, -1, 1, 1) for k in ("factor", "offset"))
        return single(single(xs[0] * self.factor) + offset), np.zeros(xs[0].shape)

    def backward(self, dy):
        return [(single(dy * self.factor), np.zeros(dy.shape))]


def _sum_of(part, axes, size):
    """The sum of products of two fp32 numbers, and its error: terms are rounded to fp32 and then added."""
    with np.errstate(invalid="ignore"):
        rounded = single(part)
        inexact = np.abs(rounded - part).sum(axes)
        magnitude = np.abs(part).sum(axes)
    addends = part.size // size
    error = sum_error(magnitude, addends, lowest_bit(part, axes)) + 2 * np.nan_to_num(inexact, posinf=0)
    return np.reshape(part.sum(axes), size), np.reshape(error, size)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _silu_slope(x):
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


_erf = np.vectorize(math.erf)
_TANH = math.sqrt(2 / math.pi)


def _normal(x):
    """The normal distribution's function, without the cancellation of 1 + erf."""
    return np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2


def _gelu_tanh_slope(x):
    half = _TANH * (x + 0.044715 * x**3)
    up, down = _sigmoid(2 * half), _sigmoid(-2 * half)
    return up + x * 2 * up * down * _TANH * (1 + 3 * 0.044715 * x**2)


FUNCTIONS = {  # value and slope, of x and the layer's keys
    "sigmoid": (lambda x, _: _sigmoid(x), lambda x, _: _sigmoid(x) * _sigmoid(-x)),
    "tanh": (lambda x, _: np.tanh(x), lambda x, _: 1 / np.cosh(x) ** 2),
    "silu": (lambda x, _: x * _sigmoid(x), lambda x, _: _silu_slope(x)),
    "hardsigmoid": (
        lambda x, _: np.clip(x / 6 + 0.5, 0, 1),
        lambda x, _: np.where((x > -3) & (x < 3), 1 / 6, 0.0),
    ),
    "hardswish": (
        lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x, _: np.where(x <= -3, 0.0, np.where(x < 3, x / 3 + 0.5, 1.0)),
    ),
    "gelu": (
        lambda x, keys: (
            x * _normal(x)
            if keys.get("approximate", "none") == "none"
            else x * _sigmoid(2 * _TANH * (x + 0.044715 * x**3))  # (1 + tanh) / 2, without its cancellation
        ),
        lambda x, keys: (
            _normal(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
            if keys.get("approximate", "none") == "none"
            else _gelu_tanh_slope(x)
        ),
    ),
    "softplus": (
        lambda x, keys: np.where(
            x * keys.get("beta", 1) > keys.get("threshold", 20),
            x,
            np.logaddexp(0, x * keys.get("beta", 1)) / keys.get("beta", 1),
        ),
        lambda x, keys: np.where(
            x * keys.get("beta", 1) > keys.get("threshold", 20), 1.0, _sigmoid(x * keys.get("beta", 1))
        ),
    ),
    "elu": (
        lambda x, keys: np.where(x > 0, x, keys.get("alpha", 1) * np.expm1(np.minimum(x, 0))),
        lambda x, keys: np.where(x > 0, 1.0, keys.get("alpha", 1) * np.exp(np.minimum(x, 0))),
    ),
}
FLAT = ("hardsigmoid", "hardswish")  # whose slope is exactly 0 beyond both ends


class Function(Layer):
    def forward(self, xs):
        self.x = xs[0]
        with np.errstate(over="ignore", invalid="ignore"):
            value = FUNCTIONS[self.keys["kind"]][0](self.x, self.keys)
            return within(value, SMOOTH, 1e-7 * np.minimum(np.abs(self.x), 4) * (value != 0))

    def backward(self, dy):
        with np.errstate(over="ignore", invalid="ignore"):
            slope, error = within(FUNCTIONS[self.keys["kind"]][1](self.x, self.keys), SMOOTH, 3e-7)
            if self.keys["kind"] in FLAT:
                error = np.where(slope == 0, 0.0, error)
            value = np.where(slope == 0, 0.0, dy * slope)
            return [(value, np.where(np.isfinite(dy), np.abs(dy) * error, 0.0))]


class Softmax(Layer):
    """softmax of a pixel's channels; dx takes the probabilities that are not rounded."""

    def forward(self, xs):
        top = xs[0].max(1, keepdims=True)
        e = np.exp(xs[0] - top)
        self.p = e / e.sum(1, keepdims=True)
        return within(self.p, SMOOTH, 1e-37)

    def backward(self, dy):
        along = (self.p * dy).sum(1, keepdims=True)
        size = self.p * (np.abs(dy) + (self.p * np.abs(dy)).sum(1, keepdims=True))
        tiny = 1e-37 * np.abs(dy) + 2.0**-149 * (size > 0)  # what exponentials flush; what is below fp32's smallest
        return [(self.p * (dy - along), np.nan_to_num(size * 3 * SMOOTH + tiny))]
