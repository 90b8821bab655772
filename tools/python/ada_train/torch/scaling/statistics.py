"""What layers' rules look at, of tensors of any dtype and device, and of all processes of a
training. fp32 values in the processor's memory are looked at by libada_scaling."""
import math

import torch
from torch import distributed

from ada_train import native


def _values(x):
    """fp32 values as one piece of memory, in whatever order."""
    x = x.detach().float()
    dense = (x.is_contiguous() or (x.dim() == 2 and x.t().is_contiguous())
             or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
             or (x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)))
    return x if dense else x.contiguous()


def processes():
    return (distributed.get_world_size()
            if distributed.is_available() and distributed.is_initialized() else 1)


class Group:
    """The processes whose tensors are one: statistics are those of the whole batch. Without a group
    this process is alone."""

    def __init__(self, everywhere):
        alone = not (everywhere and processes() > 1)
        # A group of its own: the order of its messages does not depend on those of DDP.
        self._group = None if alone else distributed.new_group()
        self.alone = alone

    def gather(self, numbers, like):
        """The numbers of each process, as a list of lists."""
        if self.alone:
            return [numbers]
        nccl = distributed.get_backend(self._group) == "nccl"
        device = "cpu" if not nccl else like.device if like.is_cuda else "cuda"
        mine = torch.tensor(numbers, dtype=torch.float64, device=device)
        parts = [torch.empty_like(mine) for _ in range(distributed.get_world_size(self._group))]
        distributed.all_gather(parts, mine, group=self._group)
        return [part.tolist() for part in parts]

    def largest(self, number, like):
        found = [part[0] for part in self.gather([number], like)]
        return math.nan if any(map(math.isnan, found)) else max(found)


def _moments(x):
    """Moments of this process alone, and how many values they are of."""
    x = _values(x)
    if x.device.type == "cpu":
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


def moments(x, group):
    count, mine = _moments(x)
    if group.alone:
        return mine
    parts = group.gather([count, mine.mean, mine.mean_square, mine.min, mine.max, mine.min_abs], x)
    total = sum(part[0] for part in parts)
    least = [part[5] for part in parts if part[5] > 0]
    return native.Moments(sum(part[0] * part[1] for part in parts) / total,
                          sum(part[0] * part[2] for part in parts) / total,
                          min(part[3] for part in parts), max(part[4] for part in parts),
                          min(least) if least else 0.0)


def largest(x, group):
    """The largest magnitude; inf or NaN where the tensor holds such."""
    low, high = torch.aminmax(x.detach())
    found = max(abs(float(low)), abs(float(high)))
    return found if group.alone else group.largest(math.nan if math.isnan(float(low)) else found, x)


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


def tail(dx, alpha, limit, group):
    """Exponents of dx before alpha, for exact_range."""
    x = _values(dx)
    if x.device.type != "cpu":
        x = x.cpu()
    found = native.tail_of(x.data_ptr(), x.numel(), alpha, limit)
    if group.alone:
        return found
    parts = group.gather([*found.bins, found.nonzero, found.largest], dx)
    for i in range(native.TAIL_BINS):
        found.bins[i] = int(sum(part[i] for part in parts))
    found.nonzero = int(sum(part[-2] for part in parts))
    last = [part[-1] for part in parts]
    found.largest = math.nan if any(map(math.isnan, last)) else max(last)
    return found
