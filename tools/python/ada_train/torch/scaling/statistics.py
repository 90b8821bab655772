"""What layers' rules look at, of tensors of any dtype and device, and of all processes of a
training. fp32 values in the processor's memory are looked at by libada_scaling."""
import math

import torch

from ada_train import native
from ada_train.torch.formats import is_plain, unwrapped


def _values(x):
    """fp32 values as one piece of memory, in whatever order; both parts of complex ones."""
    x = unwrapped(x.detach())
    x = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).float()
    dense = (x.is_contiguous() or (x.dim() == 2 and x.t().is_contiguous())
             or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
             or (x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)))
    return x if dense else x.contiguous()


def _moments(x):
    """Moments of this process alone, and how many values they are of; zeros where there are none.
    """
    x = _values(x)
    if x.numel() == 0:
        return 0, native.Moments()
    if x.device.type == "cpu" and is_plain(x):
        return x.numel(), native.moments_of(x.data_ptr(), x.numel())
    return x.numel(), moments_there(x)


def moments_there(x):
    """By PyTorch, where the tensor lies: one number of bytes comes back to the host."""
    low, high = x.aminmax()
    magnitudes = x.abs()
    least = torch.where(magnitudes > 0, magnitudes, math.inf).min()
    wide = torch.stack([x.sum(dtype=torch.float64),
                        torch.linalg.vector_norm(x, dtype=torch.float64).square(),
                        low.double(), high.double(), least.double()])
    total, square, low, high, least = wide.tolist()
    count = x.numel()
    if not math.isfinite(square):
        square = math.nan if math.isnan(low) else math.inf
    return native.Moments(total / count, square / count, low, high,
                          least if math.isfinite(least) else 0.0)


def _merged(parts):
    """Moments of the values of several parts, each as [count, *moments]. A part without values
    adds nothing."""
    parts = [part for part in parts if part[0] > 0]
    if not parts:
        return native.Moments()
    total = sum(part[0] for part in parts)
    least = [part[5] for part in parts if part[5] > 0]
    return native.Moments(sum(part[0] * part[1] for part in parts) / total,
                          sum(part[0] * part[2] for part in parts) / total,
                          min(part[3] for part in parts), max(part[4] for part in parts),
                          min(least) if least else 0.0)


class Parts:
    """Moments of a tensor that is never whole."""

    def __init__(self):
        self._parts = []

    def add(self, x):
        count, found = _moments(x)
        self._parts.append([count, *found.values().values()])
        self._like = x

    def moments(self, group):
        if not group.alone:
            count, mine = sum(part[0] for part in self._parts), _merged(self._parts)
            return _merged(group.gather([count, *mine.values().values()], self._like))
        return _merged(self._parts)


def moments(x, group):
    if group.alone:
        return _moments(x)[1]
    parts = Parts()
    parts.add(x)
    return parts.moments(group)


def magnitude(found):
    """The largest of moments; inf or NaN where the tensor holds such."""
    if not math.isfinite(found.mean_square):
        return found.mean_square
    return max(abs(found.min), abs(found.max))


def times(found, factor):
    """Moments of the values times a factor above zero."""
    return native.Moments(found.mean * factor, found.mean_square * factor ** 2,
                          found.min * factor, found.max * factor, found.min_abs * factor)


def together(one, other):
    """Moments of values that are a product of one value of each, as far as rules look."""
    high = magnitude(one) * magnitude(other)
    return native.Moments(0.0, one.mean_square * other.mean_square, -high, high,
                          one.min_abs * other.min_abs)


def largest(x, group):
    """The largest magnitude; inf or NaN where the tensor holds such."""
    low, high = map(float, torch.aminmax(x.detach())) if x.numel() else (0.0, 0.0)
    found = max(abs(low), abs(high))
    return found if group.alone else group.largest(math.nan if math.isnan(low) else found, x)


def largest_unscaled(given, group):
    """The largest magnitude of several (gradient, scale) without their scales; inf where a gradient
    is not finite."""
    found = [largest(g, group) / scale for g, scale in given]
    return max(found, default=0.0) if all(map(math.isfinite, found)) else math.inf


def logs(dy, group):
    """Mean and deviation of ln|dy| over the values other than zero."""
    magnitudes = dy.detach().double().abs()
    magnitudes = magnitudes[magnitudes > 0].log()
    count = magnitudes.numel()
    first = float(magnitudes[0]) if count else 0.0
    off = magnitudes - first  # equal magnitudes have no deviation at all
    mean = first + float(off.mean()) if count else 0.0
    parts = group.gather([count, mean, float(off.var(unbiased=False)) if count else 0.0], dy)
    total = sum(part[0] for part in parts)
    if total == 0:
        return 0.0, 0.0
    mean = sum(n * m for n, m, _ in parts) / total
    square = sum(n * (v + (m - mean) ** 2) for n, m, v in parts) / total
    return mean, math.sqrt(max(square, 0.0))


def _by_channel(x, dim):
    """Smallest magnitude other than zero (inf: none) and largest one, of each index of `dim`."""
    rows = x.detach().float().abs().transpose(0, dim).flatten(1)
    if rows.shape[1] == 0:
        none = rows.new_zeros(rows.shape[0], dtype=torch.float64)
        return none + math.inf, none
    low = torch.where(rows > 0, rows, math.inf).amin(1).double()
    high = rows.amax(1).double()
    return torch.where(torch.isnan(rows).any(1), math.nan, low), high


def products(dy, dy_dim, w, w_dim, group):
    """Smallest and largest |dy_k| |w_k| over operands other than zero that meet in the product of
    the data gradient; k runs over `dy_dim` of dy and `w_dim` of w."""
    low, high = _by_channel(dy, dy_dim)
    count = low.shape[0]
    parts = group.gather(low.tolist() + high.tolist(), dy)
    gathered = torch.tensor(parts, dtype=torch.float64)
    low, high = gathered[:, :count].amin(0), gathered[:, count:].amax(0)
    w_low, w_high = (x.cpu() for x in _by_channel(w, w_dim))
    if not bool(torch.isfinite(high).all()):
        return 0.0, math.inf
    some = (high > 0) & (w_high > 0)
    if not bool(some.any()):
        return 0.0, 0.0
    return float((low * w_low)[some].min()), float((high * w_high)[some].max())


class Tails:
    """Exponents of a tensor before alpha, for exact_range; added part by part."""

    def __init__(self, alpha):
        self._alpha, self._found, self._like = alpha, [], None

    def add(self, dx):
        x = _values(dx)
        x, self._like = x if x.device.type == "cpu" else x.cpu(), dx
        found = native.tail_of(x.data_ptr(), x.numel(), self._alpha)
        self._found.append([*found.bins, found.nonzero, found.largest])

    def found(self, group):
        mine = self._sum(self._found)
        parts = mine if group.alone else self._sum(group.gather(mine, self._like))
        tail = native.Tail()
        for i in range(native.TAIL_BINS):
            tail.bins[i] = int(parts[i])
        tail.nonzero, tail.largest = int(parts[-2]), parts[-1]
        return tail

    @staticmethod
    def _sum(parts):
        last = [part[-1] for part in parts]
        return [sum(column) for column in list(zip(*parts))[:-1]] + [
            math.nan if any(map(math.isnan, last)) else max(last)]
