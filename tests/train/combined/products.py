"""Convolutions, transposed ones and linear layers: three products, whose operands may be rounded once more
(kinds.py)."""

import numpy as np

import exact
from exact import lowest_bit, single, sum_error
from kinds import Layer

PAIRS = {"forward": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}


class Product(Layer):
    """What convolutions, transposed ones and linear layers share."""

    weighted = decides = True
    transposed = False
    needs_dx = True

    def setup(self):
        self.scaled = set()  # products whose sums are multiplied by a scale of the whole tensor afterwards
        self.spread = {}  # of operands that are rounded at random: how far they may be off

    def unit(self, product, *units):
        """What all products of a sum are multiples of; 0 where a scale is multiplied with the sum."""
        return 0.0 * units[0] * units[1] if product in self.scaled else units[0] * units[1]

    def spreads(self, product, change=lambda x, w: (x, w)):
        """How far both operands of a product may be off, as `change` turns them; None: they are known."""
        first, second = (self.spread.get(f"{product}.{name}") for name in PAIRS[product])
        if first is None and second is None:
            return None
        return change(*(0.0 if s is None else s for s in (first, second)))

    def accumulated(self, product, a, b):
        """(value, error) of a product whose sums an accumulator makes; None: they are fp32's."""
        return None

    def and_bias(self, made):
        value, error = made
        if "bias" in self.params:
            with np.errstate(invalid="ignore", over="ignore"):
                value = single(value + self.params["bias"].reshape(1, -1, 1, 1))
            error = np.where(error > 0, error + np.abs(value) * 1.2e-7, 0.0)
        return value, error

    def operand(self, name, stored):
        """What a product takes of a stored tensor, by the operand's name (forward.x ... dw.dy)."""
        return stored

    def add_bias(self, value, error, magnitude, unit, addends):
        if "bias" not in self.params:
            return value, error
        b = self.params["bias"].reshape(1, -1, 1, 1)
        unit = np.minimum(unit, lowest_bit(b, ()).reshape(b.shape))
        with np.errstate(invalid="ignore"):
            found = sum_error(magnitude + np.abs(b), addends + 1, unit)
            return value + b, np.maximum(found, error + np.abs(value + b) * 1.2e-7 * (error > found))

    def bias_gradient(self, dy):
        if "bias" in self.params:
            value = dy.sum((0, 2, 3))
            error = sum_error(np.abs(dy).sum((0, 2, 3)), dy.size // dy.shape[1], lowest_bit(dy, (0, 2, 3)))
            self.grads["bias"] = value, error


class Convolution(Product):
    def setup(self):
        super().setup()
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

    def _product(self, how, a, b, units, addends, name, change=lambda x, w: (x, w)):
        spreads = self.spreads(name, change)
        return exact.product(how, a, b, self.window, self.groups, addends=addends, units=units, order=self.winograd, spreads=spreads)

    def _forward(self, x, w, addends, name):
        units = self.unit(name, lowest_bit(x, (1, 2, 3))[:, None, None, None], lowest_bit(w, (1, 2, 3))[None, :, None, None])
        return self._product(exact.convolve, x, w, units, addends, name), units

    def _back(self, dy, w, addends, name):
        units = self.unit(name, lowest_bit(dy, (1, 2, 3))[:, None, None, None], lowest_bit(w, None))
        return self._product(exact.convolve_back, dy, w, units, addends, name), units

    def forward(self, xs):
        self.x, self.w = xs[0], self.copy
        x, w = self.operand("forward.x", xs[0]), self.operand("forward.w", self.copy)
        n = w.shape[1] * self.kernel[0] * self.kernel[1]
        made = self.accumulated("forward", x, w)
        if made is not None:
            return self.and_bias(made)
        (value, error, magnitude), units = (self._back if self.transposed else self._forward)(x, w, n, "forward")
        return self.add_bias(value, error, magnitude, units, n)

    def backward(self, dy):
        n, found = int(self.fan_reference), [(np.zeros(self.x.shape), 0.0)]
        if self.needs_dx:
            d, w = self.operand("dx.dy", dy), self.operand("dx.w", self.w)
            made = self.accumulated("dx", d, w)
            if made is None:
                made = (self._forward if self.transposed else self._back)(d, w, n, "dx")[0]
            found = [made[:2]]
        a, b = self.operand("dw.x", self.x), self.operand("dw.dy", dy)
        made = self.accumulated("dw", a, b)
        if made is not None:
            self.grads["weight"] = made
            self.bias_gradient(dy)
            return found
        a, b = (b, a) if self.transposed else (a, b)
        units = self.unit("dw", lowest_bit(a, None), lowest_bit(b, (0, 2, 3))[:, None, None, None])
        turned = lambda x, d: (d, x) if self.transposed else (x, d)
        dw, dw_error, _ = self._product(exact.convolve_weights, a, b, units, b.size // b.shape[1], "dw", turned)
        self.grads["weight"] = dw, dw_error
        self.bias_gradient(dy)
        return found


    def lines(self, name, a):
        """An operand as [places, rows, length], the product's sum along the last axis; and the way back."""
        product, tensor = name.split(".")
        g = self.groups
        if tensor == "w":
            split = a.reshape(g, -1, *a.shape[1:])
            last = 2 if (product == "forward") != self.transposed else 1
            order = (0, 3, 4, 3 - last, last)
        elif product == "dw":
            split, order = a, (1, 0, 2, 3)
            moved = split.transpose(order)
            return moved.reshape(1, a.shape[1], -1), lambda x: x.reshape(moved.shape).transpose(np.argsort(order))
        else:
            split, order = a.reshape(len(a), g, -1, *a.shape[2:]), (1, 0, 3, 4, 2)
            moved = split.transpose(order)
            lines = moved.reshape(g, -1, moved.shape[-1])
            return lines, lambda x: x.reshape(moved.shape).transpose(np.argsort(order)).reshape(a.shape)
        moved = split.transpose(order)
        shape = (-1, *moved.shape[3:])
        return moved.reshape(shape), lambda x: x.reshape(moved.shape).transpose(np.argsort(order)).reshape(a.shape)

    def transformed(self, name, a):
        """The lines whose consecutive values a transform turns."""
        pixels = self.kernel == (1, 1) and self.window.stride == (1, 1) and self.window.padding == (0, 0)
        if pixels or not name.startswith("dw"):
            return self.lines(name, a)
        moved = a.transpose(1, 2, 3, 0)
        return moved, lambda x: x.transpose(3, 0, 1, 2)


class Transposed(Convolution):
    transposed = True


class Linear(Product):
    def setup(self):
        super().setup()
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

    def of_rows(self, spread):
        return self.rows(spread) if np.ndim(spread) else spread

    def unrows(self, rows, shape, n):
        return (
            rows.reshape(n, shape[1], shape[2], shape[0]).transpose(0, 3, 1, 2)
            if self.sequence
            else rows.reshape(n, *shape)
        )

    def forward(self, xs):
        self.n = len(xs[0])
        self.x, self.w = xs[0], self.copy
        x, w = self.operand("forward.x", xs[0]), self.operand("forward.w", self.copy)
        made = self.accumulated("forward", x, w)
        if made is not None:
            return self.and_bias(made)
        x = self.rows(x)
        units = self.unit("forward", lowest_bit(x, 1)[:, None], lowest_bit(w, 1)[None, :])
        value, error, magnitude = exact.product(lambda a, b: a @ b.T, x, w, addends=self.inputs, units=units,
                                                spreads=self.spreads("forward", lambda s, v: (self.of_rows(s), v)))
        parts = [
            self.unrows(np.broadcast_to(a, value.shape), self.shape, self.n) for a in (value, error, magnitude, units)
        ]
        return self.add_bias(*parts, self.inputs)

    def backward(self, dy):
        found = [(np.zeros(self.x.shape), 0.0)]
        if self.needs_dx:
            d, w = self.operand("dx.dy", dy), self.operand("dx.w", self.w)
            made = self.accumulated("dx", d, w)
            d = self.rows(d)
            units = self.unit("dx", lowest_bit(d, 1)[:, None], lowest_bit(w, 0)[None, :])
            value, error, _ = exact.product(lambda a, b: a @ b, d, w, addends=self.out, units=units,
                                           spreads=self.spreads("dx", lambda s, v: (self.of_rows(s), v)))
            found = [
                tuple(self.unrows(np.broadcast_to(a, value.shape), self.shapes[0], self.n) for a in (value, error))
            ]
            found = found if made is None else [made]
        x, d = self.operand("dw.x", self.x), self.operand("dw.dy", dy)
        made = self.accumulated("dw", x, d)
        if made is not None:
            self.grads["weight"] = made
            self.bias_gradient(dy)
            return found
        x, d = self.rows(x), self.rows(d)
        units = self.unit("dw", lowest_bit(d, 0)[:, None], lowest_bit(x, 0)[None, :])
        dw, dw_error, _ = exact.product(lambda a, b: a.T @ b, d, x, addends=len(d), units=units,
                                        spreads=self.spreads("dw", lambda s, e: (self.of_rows(e), self.of_rows(s))))
        self.grads["weight"] = dw, dw_error
        self.bias_gradient(dy)
        return found

    def lines(self, name, a):
        """An operand as [1, rows, length], the product's sum along the last axis; and the way back."""
        product, tensor = name.split(".")
        rows = a if tensor == "w" else self.rows(a)
        turned = (name == "dx.w") or product == "dw"
        moved = rows.T if turned else rows

        def back(x):
            x = x[0].T if turned else x[0]
            return x if tensor == "w" else self.unrows(x, a.shape[1:], len(a))

        return moved[None], back

    def transformed(self, name, a):
        return self.lines(name, a)
