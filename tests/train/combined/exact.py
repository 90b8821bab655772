"""Sums of products in fp32, in any order: their values in float64, and how far fp32 may be from them.

Where every partial sum of a sum is a multiple of one power of two that fp32 has, and below 2^24 of it, fp32 adds
without rounding, whatever the order, and the error is 0; else it is bounded by the number of addends. Images are [n,
channels, rows, columns].
"""

import numpy as np

UNIT = 2.0**-24
SMALLEST = 2.0**-149  # of fp32


def lowest_bit(x, axes):
    """The power of two of which all values along `axes` are multiples (inf where all are zero)."""
    x = np.asarray(x, np.float64)
    finite = np.where(np.isfinite(x), x, 0.0)
    mantissa, exponent = np.frexp(finite)
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    bit = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    return np.min(np.where(finite == 0, np.inf, bit), axis=axes, initial=np.inf)


def sum_error(magnitude, addends, unit, order_of_products=1):
    """How far an fp32 sum may be off: magnitude is the sum of magnitudes, unit that of which all addends are multiples.

    order_of_products: 8 where an algorithm adds up sums of values before it multiplies them (Winograd's).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = (magnitude / unit <= 2.0**24 / order_of_products**2) & (unit >= SMALLEST)
    bound = np.where(np.isfinite(magnitude), magnitude, 0) * UNIT * order_of_products + SMALLEST
    bound = bound * (addends + 2)
    return np.where(exact | (magnitude == 0), 0.0, bound)


def single(x):
    """One fp32 operation: its exact result, rounded."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float64).astype(np.float32).astype(np.float64)


def within(value, relative=0.0, absolute=0.0):
    """value, known but for a relative and an absolute error."""
    with np.errstate(invalid="ignore"):
        error = np.abs(value) * relative + absolute
    return value, np.where(np.isfinite(error), error, 0.0)


def pair(v):
    return (v, v) if isinstance(v, int) else tuple(v)


class Window:
    """What a convolution reads: for each output place and tap a place of the padded input."""

    def __init__(self, size, kernel, stride=1, padding=0, dilation=1, ceil=False):
        self.size, self.kernel, self.stride = pair(size), pair(kernel), pair(stride)
        self.padding, self.dilation = pair(padding), pair(dilation)
        self.out, self.more = [], []
        for i in range(2):
            reach = self.dilation[i] * (self.kernel[i] - 1) + 1
            rest = self.size[i] + 2 * self.padding[i] - reach
            count = rest // self.stride[i] + 1
            if ceil and rest % self.stride[i] and count * self.stride[i] < self.size[i] + self.padding[i]:
                count += 1  # a window that starts within the input or its left padding
            self.out.append(count)
            last = (count - 1) * self.stride[i] + reach
            self.more.append(max(0, last - self.size[i] - 2 * self.padding[i]))
        rows = self._index(0)
        columns = self._index(1)
        self.rows = rows[:, None, :, None]  # [tap row, tap column, out row, out column]
        self.columns = columns[None, :, None, :]

    def _index(self, i):
        return self.dilation[i] * np.arange(self.kernel[i])[:, None] + self.stride[i] * np.arange(self.out[i])[None, :]

    @property
    def overlaps(self):
        return any(k > s for k, s in zip(self.kernel, self.stride))

    def pad(self, x, value=0.0):
        p = [(0, 0)] * (x.ndim - 2) + [(self.padding[i], self.padding[i] + self.more[i]) for i in range(2)]
        return np.pad(x, p, constant_values=value)

    def gather(self, x, value=0.0):
        """[n, c, kh, kw, oh, ow]"""
        return self.pad(x, value)[:, :, self.rows, self.columns]

    def scatter(self, taps):
        """The sum of taps [n, c, kh, kw, oh, ow] at the places that they come from: [n, c, rows, columns]."""
        n, c = taps.shape[:2]
        padded = np.zeros(
            (n, c, self.size[0] + 2 * self.padding[0] + self.more[0], self.size[1] + 2 * self.padding[1] + self.more[1])
        )
        np.add.at(
            padded,
            (
                slice(None),
                slice(None),
                np.broadcast_to(self.rows, taps.shape[2:]),
                np.broadcast_to(self.columns, taps.shape[2:]),
            ),
            taps,
        )
        return padded[
            :, :, self.padding[0] : self.padding[0] + self.size[0], self.padding[1] : self.padding[1] + self.size[1]
        ]


def _grouped(a, groups):
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *a.shape[2:])


def convolve(x, w, window, groups):
    """[n, out, oh, ow] from x [n, in, h, w] and w [out, in / groups, kh, kw], without regard to rounding."""
    taps = _grouped(window.gather(x), groups)
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.einsum("ngcklhw,gockl->ngohw", taps, weights, optimize=True)
    return y.reshape(y.shape[0], -1, *y.shape[3:])


def convolve_back(dy, w, window, groups):
    """The data gradient of `convolve`: [n, in, h, w]."""
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    taps = np.einsum("ngohw,gockl->ngcklhw", _grouped(dy, groups), weights, optimize=True)
    return window.scatter(taps.reshape(taps.shape[0], -1, *taps.shape[3:]))


def convolve_weights(x, dy, window, groups):
    """The weight gradient of `convolve`: [out, in / groups, kh, kw]."""
    taps = _grouped(window.gather(x), groups)
    w = np.einsum("ngohw,ngcklhw->gockl", _grouped(dy, groups), taps, optimize=True)
    return w.reshape(-1, *w.shape[2:])


def product(kind, a, b, *more, addends, units, order=1, spreads=None):
    """One of the three products with its error: of values, and of magnitudes for the bound; spreads: how far a and b
    may be off."""
    with np.errstate(invalid="ignore", over="ignore"):
        value = kind(a, b, *more)
        magnitude = kind(np.abs(a), np.abs(b), *more)
        if spreads is None:
            return value, sum_error(magnitude, addends, units, order), magnitude
        wide = kind(np.abs(a) + spreads[0], np.abs(b) + spreads[1], *more)
        return value, sum_error(wide, addends, 0.0 * units, order) + np.nan_to_num(wide - magnitude), wide
