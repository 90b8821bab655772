"""The operands of a product as matrices [M, K] and [N, K], K in the order in which an accumulator adds
(configs/ACCUMULATORS.md), one pair for each group; and the way back to the tensor's shape.
"""

import numpy as np


def toward_small(layer, big, w):
    """y of a convolution: taps row by row, within a tap the channels."""
    window, g = layer.window, layer.groups
    taps = window.gather(big)
    n, c, kh, kw, oh, ow = taps.shape
    taps = taps.reshape(n, g, c // g, kh, kw, oh, ow).transpose(1, 0, 5, 6, 3, 4, 2).reshape(g, n * oh * ow, -1)
    weights = w.reshape(g, w.shape[0] // g, *w.shape[1:]).transpose(0, 1, 3, 4, 2).reshape(g, w.shape[0] // g, -1)
    back = lambda parts: np.concatenate([p.reshape(n, oh, ow, -1).transpose(0, 3, 1, 2) for p in parts], 1)
    return list(zip(taps, weights)), back


def toward_big(layer, small, w):
    """dx of a convolution: taps, within a tap the output channels; a tap that meets no output is zeros."""
    window, g = layer.window, layer.groups
    n, o = small.shape[:2]
    kh, kw = window.kernel
    sizes = [window.size[i] + 2 * window.padding[i] + window.more[i] for i in range(2)]
    spread = np.zeros((n, o, kh, kw, *sizes))
    for i in range(kh):
        for j in range(kw):
            rows, columns = window.rows[i, 0, :, 0], window.columns[0, j, 0, :]
            spread[:, :, i, j, rows[:, None], columns[None, :]] = small
    p, size = window.padding, window.size
    spread = spread[..., p[0] : p[0] + size[0], p[1] : p[1] + size[1]]
    spread = spread.reshape(n, g, o // g, kh, kw, *size).transpose(1, 0, 5, 6, 3, 4, 2)
    spread = spread.reshape(g, n * size[0] * size[1], -1)
    weights = w.reshape(g, w.shape[0] // g, *w.shape[1:]).transpose(0, 2, 3, 4, 1).reshape(g, w.shape[1], -1)
    back = lambda parts: np.concatenate([q.reshape(n, *size, -1).transpose(0, 3, 1, 2) for q in parts], 1)
    return list(zip(spread, weights)), back


def of_weights(layer, big, small):
    """dw: the pixels of the smaller side, row by row, image after image."""
    g = layer.groups
    taps = layer.window.gather(big)
    n, c = taps.shape[:2]
    kh, kw = layer.window.kernel
    columns = taps.reshape(n, g, c // g, kh, kw, -1).transpose(1, 2, 3, 4, 0, 5).reshape(g, (c // g) * kh * kw, -1)
    rows = small.reshape(n, g, small.shape[1] // g, -1).transpose(1, 2, 0, 3).reshape(g, small.shape[1] // g, -1)
    back = lambda parts: np.concatenate([p.reshape(-1, c // g, kh, kw) for p in parts])
    return list(zip(rows, columns)), back


def of_convolution(layer, product, a, b):
    """a, b: x and w of forward, dy and w of dx, x and dy of dw, in PyTorch's shapes."""
    if product == "dw":
        return of_weights(layer, *((b, a) if layer.transposed else (a, b)))
    small = (product == "forward") != layer.transposed
    return (toward_small if small else toward_big)(layer, a, b)


def of_linear(layer, product, a, b):
    rows = layer.rows
    if product == "forward":
        return [(rows(a), b)], lambda p: layer.unrows(p[0], layer.shape, layer.n)
    if product == "dx":
        return [(rows(a), b.T)], lambda p: layer.unrows(p[0], layer.shapes[0], layer.n)
    return [(rows(b).T, rows(a).T)], lambda p: p[0]
