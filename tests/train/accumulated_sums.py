"""Sums of products by the published rule of accumulators, in fp64, and the layers whose products they
are."""
from tests.train.dumped_runs import np

IMAGES = 12  # of a batch
# name: kernel, stride, padding, groups; fc takes the whole image
WINDOWS = {"conv1": (3, 1, 1, 1), "conv2": (3, 2, 1, 2), "up": (2, 2, 0, 2)}
# mantissa bits, exponent of the smallest normal number, largest
FORMATS = {"fp32": (23, -126, np.finfo(np.float32).max if np else 0), "e8m13": (13, -126, 3.4e38),
           "fp16": (10, -14, 65504.0), "bf16": (7, -126, 3.39e38), "fp8_e4m3": (3, -6, 448.0),
           "fp8_e5m2": (2, -14, 57344.0)}
# group, fraction bits, accumulator, nearest, promote
RULES = {"volta_f16": (4, 23, "fp16", True, 0), "ampere_f32": (8, 24, "fp32", False, 0),
         "hopper_f32": (16, 25, "fp32", False, 0), "hopper_fp8": (32, 13, "e8m13", False, 0),
         "hopper_fp8_promote128": (32, 13, "e8m13", False, 128),
         "hopper_fp8_f16": (32, 13, "fp16", True, 0)}


def rounded(x, name, nearest=True):
    bits, lowest, top = FORMATS[name]
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(np.where(x == 0, 1, x))[1] - 1, lowest)
    unit = np.exp2((exponent - bits).astype(np.float64))
    return np.clip((np.rint if nearest else np.trunc)(x / unit) * unit, -top, top)


def exponents(x, name):
    lowest = FORMATS[name][1]
    return np.where(x == 0, -100000, np.maximum(np.frexp(np.where(x == 0, 1, x))[1] - 1, lowest))


def sums(a, b, format_a, format_b, rule):
    """[M, K], [N, K] of values to [M, N], and how many products were cut to zero, of how many."""
    group, fraction, accumulator, nearest, promote = RULES[rule]
    a, b = a.astype(np.float64), b.astype(np.float64)
    ea, eb = exponents(a, format_a), exponents(b, format_b)
    c, main = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)), np.float32)
    swallowed = products = 0
    for begin in range(0, a.shape[1], group):
        part = slice(begin, begin + group)
        p = a[:, None, part] * b[None, :, part]
        top = np.where(p == 0, -100000, ea[:, None, part] + eb[None, :, part]).max(-1)
        own = exponents(c, accumulator)
        if accumulator != "fp16":
            own = np.maximum(own, -126)
        unit = np.exp2(np.maximum(np.maximum(top, own), -900).astype(np.float64) - fraction)
        cut = np.trunc(p / unit[..., None])
        swallowed += int(((cut == 0) & (p != 0)).sum())
        products += int((p != 0).sum())
        c = rounded((cut.sum(-1) + np.trunc(c / unit)) * unit, accumulator, nearest)
        if promote and (begin + group) % promote == 0:
            main, c = main + c.astype(np.float32), np.zeros_like(c)
    return (main + c.astype(np.float32)) if promote else c.astype(np.float32), swallowed, products


def window_of(layer, big, small):
    """Indices [pixels of small, taps] into the pixels of big, one more for none."""
    if layer == "fc":
        kernel, stride, padding, _ = big, (1, 1), 0, 1
    else:
        size, step, padding, _ = WINDOWS[layer]
        kernel, stride = (size, size), (step, step)
    index = np.full((small[0] * small[1], kernel[0] * kernel[1]), big[0] * big[1])
    for h in range(small[0]):
        for w in range(small[1]):
            for i in range(kernel[0]):
                for j in range(kernel[1]):
                    y, x = h * stride[0] - padding + i, w * stride[1] - padding + j
                    if 0 <= y < big[0] and 0 <= x < big[1]:
                        index[h * small[1] + w, i * kernel[1] + j] = y * big[1] + x
    return index


class Layer:
    """A convolution from `big` to `small`; a transposed one is the same the other way round."""

    def __init__(self, name, dump):
        self.name = name
        x, y = dump[f"{name}.x"], dump[f"{name}.y"]
        if name == "fc":
            x, y = x.reshape(IMAGES, 16, 10, 8), y.reshape(IMAGES, 10, 1, 1)
        self.transposed = name == "up"
        self.groups = WINDOWS[name][3] if name in WINDOWS else 1
        self.w = dump[f"{name}.w"]
        dy = dump[f"{name}.dy"].reshape(y.shape)
        self.big, self.small = (dy, x) if self.transposed else (x, dy)
        self.x, self.y, self.dy = x, y, dy
        self.index = window_of(name, self.big.shape[2:], self.small.shape[2:])

    def weights(self, group):
        """[out of the group, taps, in of the group]"""
        w = np.split(self.w.reshape(self.w.shape[0], -1), self.groups)[group]
        taps = self.index.shape[1]
        return w.reshape(w.shape[0], -1, taps).transpose(0, 2, 1)

    def place(self, values):
        """taps, channels to one axis, in the order of the layer."""
        if self.name == "fc":
            values = np.swapaxes(values, -1, -2)
        return values.reshape(*values.shape[:-2], -1)

    def gathered(self, tensor, index, group):
        """[images * pixels, taps, channels of the group]"""
        part = np.split(tensor, self.groups, axis=1)[group]
        flat = part.reshape(len(part), part.shape[1], -1)
        flat = np.concatenate([flat, np.zeros_like(flat[:, :, :1])], axis=2)
        return flat[:, :, index].transpose(0, 2, 3, 1).reshape(-1, index.shape[1], part.shape[1])

    def toward_small(self, source, group):
        w = self.weights(group)
        return self.place(self.gathered(source, self.index, group)), self.place(w)

    def toward_big(self, source, group):
        pixels = self.big.shape[2] * self.big.shape[3]
        back = np.full((pixels, self.index.shape[1]), self.index.shape[0])
        for pixel in range(self.index.shape[0]):
            for tap, at in enumerate(self.index[pixel]):
                if at < pixels:
                    back[at, tap] = pixel
        w = self.weights(group).transpose(2, 1, 0)
        return self.place(self.gathered(source, back, group)), self.place(w)

    def product(self, name):
        """Pairs of operands [M, K], [N, K], a group each."""
        if (self.name, name) == ("fc", "dx"):  # no taps: a matrix by one image's gradient
            yield self.dy.reshape(IMAGES, -1), self.w.reshape(len(self.w), -1).T
            return
        forward, data = ((self.toward_big, self.toward_small) if self.transposed
                         else (self.toward_small, self.toward_big))
        for group in range(self.groups):
            if name == "forward":
                yield forward(self.x, group)
            elif name == "dx":
                yield data(self.dy, group)
            else:
                small = np.split(self.small, self.groups, axis=1)[group]
                columns = self.gathered(self.big, self.index, group)
                yield (small.transpose(1, 0, 2, 3).reshape(small.shape[1], -1),
                       columns.reshape(len(columns), -1).T)

    def result(self, name, parts):
        """As the dump has it."""
        if name == "dw":
            taps = self.index.shape[1]
            return np.concatenate([p.reshape(len(p), taps, -1).transpose(0, 2, 1).reshape(len(p), -1)
                                   for p in parts]).reshape(self.w.shape)
        to = self.y if name == "forward" else self.x
        if (self.name, name) == ("fc", "dx"):
            return parts[0].reshape(to.shape)
        pixels = to.shape[2] * to.shape[3]
        joined = [p.reshape(IMAGES, pixels, -1).transpose(0, 2, 1) for p in parts]
        return np.concatenate(joined, axis=1).reshape(to.shape)
