"""Layers that take pixels or channels beside each other: unpooling, bilinear upsampling, option-A shortcuts, LRN
(kinds.py says how a layer is called)."""

import numpy as np

from kinds import Layer, Moves
from norms import OFF


class Unpool(Layer):
    """Values go back to where the max_pool found them, all else is zero; dx takes them from there again."""

    moves, rounds_dx, mixes = True, False, False

    def setup(self):
        self.pool = self.keys["pool_layer"]
        self.shape = (self.shapes[0][0], *self.pool.shapes[0][1:])

    def forward(self, xs):
        pool = self.pool
        flat = np.zeros((len(xs[0]), *pool.taps[1:2], pool.taps[2] * pool.taps[3], *pool.taps[4:]))
        np.put_along_axis(flat, pool.where[:, :, None], xs[0][:, :, None], 2)
        y = pool.window.scatter(flat.reshape(len(xs[0]), *pool.taps[1:]))
        return y, np.zeros(y.shape)

    def backward(self, dy):
        taps = self.pool.window.gather(dy)
        flat = taps.reshape(*taps.shape[:2], -1, *taps.shape[4:])
        dx = np.take_along_axis(flat, self.pool.where[:, :, None], 2)[:, :, 0]
        return [(dx, np.zeros(dx.shape))]


class Bilinear(Layer):
    """upsample with mode: bilinear: means of the four pixels around, by their distances."""

    def setup(self):
        c, h, w = self.shapes[0]
        factor = self.key("scale", 2)
        self.shape = (c, h * factor, w * factor)
        self.weights = [self.along(n, n * factor) for n in (h, w)]

    def along(self, n, out):
        """[out, n]: the shares of the pixels of one axis."""
        o = np.arange(out)
        if self.key("align_corners", False):
            at = o * (n - 1) / max(out - 1, 1)
        else:
            at = np.clip((o + 0.5) * n / out - 0.5, 0, n - 1)
        low = np.minimum(np.floor(at).astype(int), n - 1)
        share = at - low
        found = np.zeros((out, n))
        found[o, low] += 1 - share
        found[o, np.minimum(low + 1, n - 1)] += share
        return found

    def forward(self, xs):
        value = np.einsum("ai,bj,ncij->ncab", *self.weights, xs[0])
        return value, np.einsum("ai,bj,ncij->ncab", *self.weights, np.abs(xs[0])) * 6e-7

    def backward(self, dy):
        value = np.einsum("ai,bj,ncab->ncij", *self.weights, dy)
        terms = np.einsum("ai,bj,ncab->ncij", *self.weights, np.abs(dy))
        return [(value, terms * 2e-6)]


class Shortcut(Moves):
    """Every stride-th pixel; new channels around the old ones, of which one more is after them, are zeros."""

    mixes = False

    def setup(self):
        c, h, w = self.shapes[0]
        stride, channels = self.key("stride", 1), self.keys["channels"]
        numbers = np.full((channels, *(-(-n // stride) for n in (h, w))), c * h * w)  # one beyond: a zero
        first = (channels - c) // 2
        numbers[first : first + c] = np.arange(c * h * w).reshape(c, h, w)[:, ::stride, ::stride]
        self.numbers, self.shape = numbers, numbers.shape

    def forward(self, xs):
        flat = xs[0].reshape(len(xs[0]), -1)
        y = np.concatenate([flat, np.zeros((len(flat), 1))], 1)[:, self.numbers]
        return y, np.zeros(y.shape)

    def backward(self, dy):
        value = np.zeros((len(dy), int(np.prod(self.shapes[0])) + 1))
        value[:, self.numbers.reshape(-1)] = dy.reshape(len(dy), -1)
        value = value[:, :-1].reshape(len(dy), *self.shapes[0])
        return [(value, np.zeros(value.shape))]


class Lrn(Layer):
    """torch.nn.LocalResponseNorm: x / (k + alpha mean)^beta, the mean of the squares of `size` channels, zeros beyond."""

    def sums(self, a, back=False):
        size, c = self.key("size", 5), a.shape[1]
        before, after = size // 2, (size - 1) // 2
        if back:
            before, after = after, before
        padded = np.pad(a, ((0, 0), (before, after), (0, 0), (0, 0)))
        return sum(padded[:, i : i + c] for i in range(size))

    def forward(self, xs):
        self.x = x = xs[0]
        self.share = self.key("alpha", 1e-4) / self.key("size", 5)
        self.beta = self.key("beta", 0.75)
        self.divisor = self.key("k", 1) + self.share * self.sums(x**2)
        value = x * self.divisor**-self.beta
        return value, np.abs(value) * OFF

    def backward(self, dy):
        term = dy * self.x * self.divisor ** (-self.beta - 1)
        direct = dy * self.divisor**-self.beta
        through = 2 * self.share * self.beta * self.x
        value = direct - through * self.sums(term, back=True)
        size = np.abs(direct) + np.abs(through) * self.sums(np.abs(term), back=True)
        return [(value, size * 3 * OFF)]
