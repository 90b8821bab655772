"""Convolutions, transposed ones and linear layers: three products, whose operands may be rounded once more
(kinds.py)."""

import numpy as np

import exact
from exact import lowest_bit, sum_error
from kinds import Layer


class Product(Layer):
    """What convolutions, transposed ones and linear layers share."""

    weighted = decides = True
    transposed = False
    needs_dx = True

    def operand(self, name, stored):
        """What a product takes of a stored tensor, by the operand's name (forward.x ... dw.dy)."""
        return stored

    def add_bias(self, value, error, magnitude, unit, addends):
        if "bias" not in self.params:
            return value, error
        b = self.params["bias"].reshape(1, -1, 1, 1)
        unit = np.minimum(unit, lowest_bit(b, ()).reshape(b.shape))
        with np.errstate(invalid="ignore"):
            return value + b, sum_error(magnitude + np.abs(b), addends + 1, unit)

    def bias_gradient(self, dy):
        if "bias" in self.params:
            value = dy.sum((0, 2, 3))
            error = sum_error(np.abs(dy).sum((0, 2, 3)), dy.size // dy.shape[1], lowest_bit(dy, (0, 2, 3)))
            self.grads["bias"] = value, error


class Convolution(Product):
    def setup(self):
        c, h, w = self.shapes[0]
        self.groups = self.key("groups", 1)
        self.out = self.keys["channels"]
        keys = [self.key("stride", 1), self.key("padding", 0), self.key("dilation", 1)]
        self.kernel = exact.pair(self.keys["kernel"])
        if self.transposed:
            size = []
            more = exact.pair(self.key("output_padding", 0))
            for i, n in enumerate((h, w)):
                s, p, d = (exact.pair(k)[i] for k in keys)
                size.append((n - 1) * s - 2 * p + d * (self.kernel[i] - 1) + 1 + more[i])
            self.window = exact.Window(size, self.kernel, *keys)
            self.shape = (self.out, *size)
            self.params["weight"] = np.zeros((c, self.out // self.groups, *self.kernel))
        else:
            self.window = exact.Window((h, w), self.kernel, *keys)
            self.shape = (self.out, *self.window.out)
            self.params["weight"] = np.zeros((self.out, c // self.groups, *self.kernel))
        if self.key("bias", True):
            self.params["bias"] = np.zeros(self.out)
        taps = self.kernel[0] * self.kernel[1]
        self.winograd = 8 if taps == 9 and min(c, self.out) >= 16 else 1
        self.fan_reference = self.out * taps
        s = self.window.stride
        # A value of dx is a sum of so many products; strides thin out none of a transposed one.
      
        self.fan = self.fan_reference / self.groups / (1 if self.transposed else s[0] * s[1])

    def _forward(self, x, w, addends):
        units = lowest_bit(x, (1, 2, 3))[:, None, None, None] * lowest_bit(w, (1, 2, 3))[None, :, None, None]
        return (
            exact.product(
                exact.convolve, x, w, self.window, self.groups, addends=addends, units=units, order=self.winograd
            ),
            units,
        )

    def _back(self, dy, w, addends):
        units = lowest_bit(dy, (1, 2, 3))[:, None, None, None] * lowest_bit(w, None)
        return (
            exact.product(
                exact.convolve_back, dy, w, self.window, self.groups, addends=addends, units=units, order=self.winograd
            ),
            units,
        )

    def forward(self, xs):
        self.x, self.w = xs[0], self.copy
        x, w = self.operand("forward.x", xs[0]), self.operand("forward.w", self.copy)
        n = w.shape[1] * self.kernel[0] * self.kernel[1]
        (value, error, magnitude), units = (self._back if self.transposed else self._forward)(x, w, n)
        return self.add_bias(value, error, magnitude, units, n)

    def backward(self, dy):
        n, found = int(self.fan_reference), [(np.zeros(self.x.shape), 0.0)]
        if self.needs_dx:
            d, w = self.operand("dx.dy", dy), self.operand("dx.w", self.w)
            (value, error, _), _ = (self._forward if self.transposed else self._back)(d, w, n)
            found = [(value, error)]
        a, b = self.operand("dw.x", self.x), self.operand("dw.dy", dy)
        a, b = (b, a) if self.transposed else (a, b)
        units = lowest_bit(a, None) * lowest_bit(b, (0, 2, 3))[:, None, None, None]
        dw, dw_error, _ = exact.product(
            exact.convolve_weights,
            a,
            b,
            self.window,
            self.groups,
            addends=b.size // b.shape[1],
            units=units,
            order=self.winograd,
        )
        self.grads["weight"] = dw, dw_error
        self.bias_gradient(dy)
        return found


class Transposed(Convolution):
    transposed = True


class Linear(Product):
    def setup(self):
        c, h, w = self.shapes[0]
        self.sequence = self.key("sequence", False)
        self.out = self.keys["features"]
        self.inputs = c if self.sequence else c * h * w
        self.shape = (self.out, h, 1) if self.sequence else (self.out, 1, 1)
        self.params["weight"] = np.zeros((self.out, self.inputs))
        if self.key("bias", True):
            self.params["bias"] = np.zeros(self.out)
        self.fan = self.fan_reference = self.out

    def rows(self, x):
        """[rows, values]: images, or the positions of all sequences."""
        return x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1]) if self.sequence else x.reshape(len(x), -1)

    def unrows(self, rows, shape, n):
        return (
            rows.reshape(n, shape[1], shape[2], shape[0]).transpose(0, 3, 1, 2)
            if self.sequence
            else rows.reshape(n, *shape)
        )

    def forward(self, xs):
        self.n = len(xs[0])
        self.x, self.w = xs[0], self.copy
        x, w = self.rows(self.operand("forward.x", xs[0])), self.operand("forward.w", self.copy)
        units = lowest_bit(x, 1)[:, None] * lowest_bit(w, 1)[None, :]
        value, error, magnitude = exact.product(lambda a, b: a @ b.T, x, w, addends=self.inputs, units=units)
        parts = [
            self.unrows(np.broadcast_to(a, value.shape), self.shape, self.n) for a in (value, error, magnitude, units)
        ]
        return self.add_bias(*parts, self.inputs)

    def backward(self, dy):
        found = [(np.zeros(self.x.shape), 0.0)]
        if self.needs_dx:
            d, w = self.rows(self.operand("dx.dy", dy)), self.operand("dx.w", self.w)
            units = lowest_bit(d, 1)[:, None] * lowest_bit(w, 0)[None, :]
            value, error, _ = exact.product(lambda a, b: a @ b, d, w, addends=self.out, units=units)
            found = [
                tuple(self.unrows(np.broadcast_to(a, value.shape), self.shapes[0], self.n) for a in (value, error))
            ]
        x, d = self.rows(self.operand("dw.x", self.x)), self.rows(self.operand("dw.dy", dy))
        units = lowest_bit(d, 0)[:, None] * lowest_bit(x, 0)[None, :]
        dw, dw_error, _ = exact.product(lambda a, b: a.T @ b, d, x, addends=len(d), units=units)
        self.grads["weight"] = dw, dw_error
        self.bias_gradient(dy)
        return found
