"""Layers in float64, as PyTorch computes those of their names: y, dx and parameter gradients with their errors.

A layer is called as forward(xs) -> (value, error), backward(dy) -> [(value, error), ...] for each input, after which
`grads` has its
parameters' gradients (name -> (value, error)); both before any rounding, and backward before alpha. Arrays are [n,
channels, rows,
columns]. Keys are those of configs/KEYS.md, without the layer's name.
"""

import math

import numpy as np

import exact
from exact import lowest_bit, single, sum_error



class Layer:
    moves = False  # forward only moves values: no rounding, no row
    rounds_dx = True
    mixes = True  # sums: what is not finite spreads as the way of computing has it
    weighted = False  # multiplies by a rounded copy of a weight
    decides = False  # chooses an alpha under the adaptive policy
    drops = False  # by its random words

    def __init__(self, keys, shapes):
        self.keys, self.shapes = keys, shapes
        self.params, self.grads = {}, {}
        self.setup()

    def setup(self):
        self.shape = self.shapes[0]

    @property
    def trained(self):
        return bool(self.params)

    def key(self, name, default=None):
        return self.keys.get(name, default)


class Cast(Layer):
    decides = True
    mixes = False

    def forward(self, xs):
        return xs[0], np.zeros(xs[0].shape)

    def backward(self, dy):
        return [(dy, np.zeros(dy.shape))]


class Relu(Layer):
    moves, rounds_dx = True, False
    mixes = False

    def forward(self, xs):
        self.x = xs[0]
        return np.where(self.x < 0, 0.0, self.x), np.zeros(self.x.shape)

    def backward(self, dy):
        return [(np.where(self.x > 0, dy, 0.0), np.zeros(dy.shape))]


class Clamp(Layer):
    """relu6, hardtanh: bounds are rounded, dx is dy or zero."""

    rounds_dx = False
    mixes = False

    def forward(self, xs):
        self.x = xs[0]
        self.low, self.high = (0.0, 6.0) if self.keys["kind"] == "relu6" else (self.key("min", -1), self.key("max", 1))
        return single(np.clip(self.x, self.low, self.high)), np.zeros(self.x.shape)

    def backward(self, dy):
        inside = ~((self.x <= single(self.low)) | (self.x >= single(self.high)))
        return [(np.where(inside, dy, 0.0), np.zeros(dy.shape))]


class MaxPool(Layer):
    moves = True
    mixes = False

    def setup(self):
        c, h, w = self.shapes[0]
        self.window = exact.Window(
            (h, w),
            self.keys["kernel"],
            self.key("stride", self.keys["kernel"]),
            self.key("padding", 0),
            1,
            self.key("ceil_mode", False),
        )
        self.shape = (c, *self.window.out)
        self.rounds_dx = self.window.overlaps

    def forward(self, xs):
        taps = self.window.gather(np.where(np.isneginf(xs[0]), -1.7e308, xs[0]), -np.inf)  # padding is below -inf
        flat = taps.reshape(*taps.shape[:2], -1, *taps.shape[4:])
        self.where, self.taps = np.argmax(np.where(np.isnan(flat), -np.inf, flat), axis=2), taps.shape
        last_nan = flat.shape[2] - 1 - np.argmax(np.isnan(flat)[:, :, ::-1], axis=2)  # of several NaN, as in PyTorch
        self.where = np.where(np.isnan(flat).any(2), last_nan, self.where)
        y = np.take_along_axis(flat, self.where[:, :, None], 2)[:, :, 0]
        y = np.where(y == -1.7e308, -np.inf, y)
        return y, np.zeros(y.shape)

    def backward(self, dy):
        flat = np.zeros((*self.taps[:2], self.taps[2] * self.taps[3], *self.taps[4:]))
        np.put_along_axis(flat, self.where[:, :, None], dy[:, :, None], 2)
        taps = flat.reshape(self.taps)
        value, magnitude = self.window.scatter(taps), self.window.scatter(np.abs(taps))
        return [(value, sum_error(magnitude, self.taps[2] * self.taps[3], lowest_bit(dy, None)))]


class Means(Layer):
    """Average pooling of every kind: a mean over windows, given as a list of (row slice, column slice) for each
    output."""

    def setup(self):
        c, h, w = self.shapes[0]
        kind = self.keys["kind"]
        if kind == "avg_pool":
            win = exact.Window(
                (h, w),
                self.keys["kernel"],
                self.key("stride", self.keys["kernel"]),
                self.key("padding", 0),
                1,
                self.key("ceil_mode", False),
            )
            self.out = win.out
            axes, sizes = [], []
            for i, n in enumerate((h, w)):
                p, k, s = win.padding[i], win.kernel[i], win.stride[i]
                starts = np.arange(win.out[i]) * s - p
                ends = np.minimum(starts + k, n + p)
                axes.append([(max(a, 0), min(b, n)) for a, b in zip(starts, ends)])
                sizes.append([b - a for a, b in zip(starts, ends)])
            include = self.key("count_include_pad", True)
        else:
            self.out = (1, 1) if kind == "global_avg_pool" else exact.pair(self.keys["size"])
            axes = [[(i * n // o, -(-(i + 1) * n // o)) for i in range(o)] for n, o in zip((h, w), self.out)]
            sizes, include = None, False
        self.shape = (c, *self.out)
        self.cells = []
        for i, (a, b) in enumerate(axes[0]):
            for j, (d, e) in enumerate(axes[1]):
                size = sizes[0][i] * sizes[1][j] if include else (b - a) * (e - d)
                self.cells.append((i, j, slice(a, b), slice(d, e), size))

    def forward(self, xs):
        x = xs[0]
        value, error = np.zeros((len(x), *self.shape)), np.zeros((len(x), *self.shape))
        for i, j, rows, columns, size in self.cells:
            part = x[:, :, rows, columns]
            total, magnitude = part.sum((2, 3)), np.abs(part).sum((2, 3))
            off = sum_error(magnitude, part.shape[2] * part.shape[3], lowest_bit(part, (2, 3)))
            value[:, :, i, j] = total / size
            error[:, :, i, j] = off / size + (
                0 if size & (size - 1) == 0 else np.abs(total) / size * 2 * exact.UNIT * 2
            )
        return value, np.where(np.isfinite(error), error, 0)

    def backward(self, dy):
        shape = (len(dy), *self.shapes[0])
        value, magnitude, addends, even = np.zeros(shape), np.zeros(shape), 0, True
        for i, j, rows, columns, size in self.cells:
            value[:, :, rows, columns] += dy[:, :, i, j][:, :, None, None] / size
            magnitude[:, :, rows, columns] += np.abs(dy[:, :, i, j])[:, :, None, None] / size
            even = even and size & (size - 1) == 0
            addends += 1
        largest = max(size for *_, size in self.cells)
        error = sum_error(magnitude, min(addends, 9) + 2, lowest_bit(dy, None) / largest if even else 0.0)
        return [(value, error)]


class Dropout(Layer):
    """dropout, of values, and stochastic_depth, of images: zero, or times 1 / (1 - rate); dx likewise."""

    mixes = False

    @property
    def drops(self):
        return self.key("rate", 0.5) > 0

    def forward(self, xs):
        shape = xs[0].shape
        if self.keys["kind"] == "dropout":
            values = self.words.factors(math.prod(shape), self.key("rate", 0.5))
            self.factor = values.reshape(len(xs[0]), *shape[2:], shape[1]).transpose(0, 3, 1, 2)
        else:
            count = 1 if self.key("mode", "row") == "batch" else len(xs[0])
            self.factor = self.words.factors(count, self.key("rate", 0.5)).reshape(-1, 1, 1, 1)
        return self.dropped(xs[0])

    def backward(self, dy):
        return [self.dropped(dy)]

    def dropped(self, x):
        with np.errstate(invalid="ignore"):
            return np.where(self.factor == 0, 0.0, single(x * self.factor)), np.zeros(x.shape)


class Add(Layer):
    rounds_dx = False
    mixes = False

    def forward(self, xs):
        with np.errstate(invalid="ignore"):
            total = xs[0]
            for x in xs[1:]:
                total = single(total + x)
        return total, np.zeros(total.shape)

    def backward(self, dy):
        return [(dy, np.zeros(dy.shape))] * len(self.shapes)


class Multiply(Layer):
    def forward(self, xs):
        self.xs = xs
        with np.errstate(invalid="ignore"):
            y = single(xs[0] * xs[1])
        return y, np.zeros(y.shape)

    def backward(self, dy):
        found = []
        for mine, other in ((self.xs[0], self.xs[1]), (self.xs[1], self.xs[0])):
            with np.errstate(invalid="ignore"):
                d = single(dy * other)
            if mine.shape == d.shape:
                found.append((d, np.zeros(d.shape)))
            else:  # one value a channel
                magnitude = np.abs(d).sum((2, 3), keepdims=True)
                units = lowest_bit(dy * other, (2, 3))[:, :, None, None]
                found.append((d.sum((2, 3), keepdims=True), sum_error(magnitude, d.shape[2] * d.shape[3], units)))
        return found


class Concat(Layer):
    rounds_dx = False
    mixes = False

    def setup(self):
        self.shape = (sum(s[0] for s in self.shapes), *self.shapes[0][1:])

    def forward(self, xs):
        y = np.concatenate(xs, 1)
        return y, np.zeros(y.shape)

    def backward(self, dy):
        at = np.cumsum([s[0] for s in self.shapes])[:-1]
        return [(part, np.zeros(part.shape)) for part in np.split(dy, at, 1)]


class Moves(Layer):
    """flatten, slice, pixel_shuffle, upsample by nearest: an index of the input for every value of the output."""

    moves, rounds_dx = True, False

    def setup(self):
        c, h, w = self.shapes[0]
        numbers = np.arange(c * h * w).reshape(c, h, w)
        kind = self.keys["kind"]
        if kind == "flatten":
            numbers = numbers.reshape(-1, 1, 1)
        elif kind == "slice":
            first = self.key("first", 0)
            numbers = numbers[first : first + self.keys["channels"]]
        elif kind == "select":
            numbers = numbers.reshape(c, -1)[:, self.key("position", 0)].reshape(c, 1, 1)
        elif kind == "pixel_shuffle":
            s = self.key("scale", 2)
            numbers = numbers.reshape(c // s**2, s, s, h, w).transpose(0, 3, 1, 4, 2).reshape(c // s**2, h * s, w * s)
        elif kind == "upsample":
            s = self.key("scale", 2)
            numbers = numbers.repeat(s, 1).repeat(s, 2)
            self.rounds_dx = True
        self.numbers, self.shape = numbers, numbers.shape

    def forward(self, xs):
        y = xs[0].reshape(len(xs[0]), -1)[:, self.numbers]
        return y, np.zeros(y.shape)

    def backward(self, dy):
        n = len(dy)
        value, magnitude = np.zeros((n, *self.shapes[0])), np.zeros((n, *self.shapes[0]))
        for image in range(n):
            np.add.at(value[image].reshape(-1), self.numbers.reshape(-1), dy[image].reshape(-1))
            np.add.at(magnitude[image].reshape(-1), self.numbers.reshape(-1), np.abs(dy[image]).reshape(-1))
        error = sum_error(magnitude, 9, lowest_bit(dy, None)) if self.rounds_dx else np.zeros(value.shape)
        return [(value, error)]
