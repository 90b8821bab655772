"""Rounding of fp32 values to a format, and what is counted of it: the definitions of
src/number/number_grid.h and src/README.md ("What is counted"), on integers, for whole tensors. `m` is
numpy or torch: both have what is used here, and tensors of either are counted where they lie.
"""
import dataclasses
import math
import struct

INFINITY_BITS, QUIET_NAN_BITS, SIGN, MAGNITUDE = 0x7f800000, 0x7fc00000, -0x80000000, 0x7fffffff
LOWEST, HIGHEST = -280, 280  # exponents of a histogram
CHUNK = 1 << 24              # values that are looked at together


def _bits(value):
    """The bits of a magnitude that fp32 holds exactly; 0 of one below fp32's smallest."""
    return struct.unpack("<i", struct.pack("<f", value))[0]


def _of_bits(bits):
    return struct.unpack("<f", struct.pack("<i", bits))[0]


class Grid:
    """A format as bits of fp32. Unsigned formats are for scales: no tensor is rounded to one."""

    def __init__(self, form):
        if not form.signed:
            raise ValueError("an unsigned format holds scales, tensors have signs")
        self.form = form
        kept = form.mantissa
        self.exact = kept == 23 and form.exponent == 8 and form.bias == 127 and form.has_inf
        lowest = 1 - form.bias          # exponent of the smallest normal value
        self.spacing = lowest - kept    # of subnormals, as a power of two
        self.shift = 23 - kept
        self.keep = -(1 << self.shift)
        self.tie = 0 if self.shift == 0 or kept == 0 else 1
        self.half_minus = 0 if self.shift == 0 else (1 << (self.shift - 1)) - self.tie
        self.min_normal = _bits(math.ldexp(1, lowest))
        self.below_min = _bits(math.ldexp(1, self.spacing))
        self.largest = _bits(form.largest)
        self.overflow_min = self._overflow(form)
        self.over = (self.largest if form.saturate or not form.has_nan
                     else INFINITY_BITS if form.has_inf else QUIET_NAN_BITS)
        # From here on `shift` alone rounds; fp32's own subnormals have one spacing.
        self.direct_min = 0 if lowest == -126 else max(self.min_normal, 0x800000)
        # The largest magnitude that becomes zero, and the first that becomes a normal value. Half
        # of fp32's smallest value is no fp32: nothing lies between it and zero.
        half = self.spacing - 1
        self.zero_max = 0 if half < -149 else _bits(math.ldexp(1, half))
        self.normal_min = (self.min_normal if half < -149
                           else _bits(math.ldexp(2 ** (kept + 1) - 1, half)))

    @staticmethod
    def _overflow(form):
        integer, power = form.largest_parts()
        if integer >= 1 << 23 or power <= -149:
            return _bits(math.ldexp(integer, power)) + 1
        return _bits(math.ldexp(2 * integer + 1, power - 1)) + (1 if integer % 2 == 0 else 0)


def _as_bits(x, m):
    return x.view(m.int32)


def round_to(grid, x, m):
    """The nearest values of the format, ties to even, as fp32; `x` is fp32 and contiguous."""
    if grid.exact:
        return x
    bits = _as_bits(x, m)
    u, sign = bits & MAGNITUDE, bits & SIGN
    zero = m.zeros_like(u)
    rounded = (u + grid.half_minus + ((u >> grid.shift) & grid.tie)) & grid.keep
    if grid.direct_min > 0:
        small = _as_float(m.where(u < grid.direct_min, u, zero), m)
        rounded = m.where(u >= grid.direct_min, rounded, _round_small(grid, small, m))
    over = m.full_like(u, grid.over)
    rounded = m.where(u >= grid.overflow_min, over, rounded)
    if not grid.form.negative_zero:
        sign = m.where(rounded == 0, zero, sign)
    nan = bits if grid.form.has_nan else (bits & SIGN) ^ SIGN
    return _as_float(m.where(u > INFINITY_BITS, nan, sign | rounded), m)


def _as_float(bits, m):
    return bits.view(m.float32)


def _round_small(grid, x, m):
    """Below what `shift` rounds: adding and taking off a number whose spacing is that of the
    format's subnormals rounds to them; in double where fp32 has no such number, or the format
    normal values among fp32's subnormals."""
    if -126 <= grid.spacing + 23 <= 127 and grid.form.bias <= 127:
        magic = math.ldexp(1, grid.spacing + 23)
        return _as_bits((x + magic) - magic, m)
    wide = _to(x, m.float64)
    _, exponent = m.frexp(wide)
    lowest = grid.spacing + grid.form.mantissa
    spacing = 2.0 ** _to((exponent - 1).clip(min=lowest) - grid.form.mantissa, m.float64)
    return _as_bits(_to(m.round(wide / spacing) * spacing, m.float32), m)


def _to(x, kind):
    return x.to(kind) if hasattr(x, "to") else x.astype(kind)


@dataclasses.dataclass
class Stats:
    """What rounding one tensor did: counts, and extremes and moments of the values before it, with
    the scale that they carry."""
    numel: int = 0
    zeros_before: int = 0
    zeros_after: int = 0
    underflow: int = 0
    below_min: int = 0
    subnormal: int = 0
    overflow: int = 0
    inf: int = 0
    nan: int = 0
    min_bits: int = INFINITY_BITS  # of the smallest finite magnitude that is not zero
    max_bits: int = 0
    total: float = 0.0
    square: float = 0.0
    l1: float = 0.0

    def add(self, other):
        """The two tensors as one."""
        for field in dataclasses.fields(self):
            a, b = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, min(a, b) if field.name == "min_bits" else
                    max(a, b) if field.name == "max_bits" else a + b)
        return self

    @property
    def max_abs(self):
        return _of_bits(self.max_bits)

    def row(self, scale):
        """The columns of underflow.csv from `scale` on."""
        def share(part, whole):
            return 100 * part / whole if whole else math.nan
        n = max(self.numel, 1)
        mean, square = self.total / n, self.square / n
        variance = square - mean * mean
        any_value = self.min_bits < INFINITY_BITS
        not_zero = self.numel - self.zeros_before
        finite = self.inf + self.nan < not_zero  # else nothing can be said of underflow
        smallest, largest = _of_bits(self.min_bits), self.max_abs
        return {
            "scale": scale, "numel": self.numel, "zeros_before": self.zeros_before,
            "zeros_after": self.zeros_after, "underflow": self.underflow,
            "underflow_pct_nonzero": share(self.underflow, not_zero if finite else 0),
            "underflow_pct_numel": share(self.underflow, self.numel),
            "below_min_pct": share(self.below_min, self.numel), "subnormal": self.subnormal,
            "overflow": self.overflow, "inf": self.inf, "nan": self.nan,
            "min_abs": smallest / scale if any_value else math.nan, "max_abs": largest / scale,
            "mean": mean / scale,
            "std": (math.sqrt(variance) if variance > 0 else variance if variance != variance
                    else 0.0) / scale,
            "l1": self.l1 / scale, "l2": math.sqrt(self.square) / scale,
            "range_log2": math.log2(largest / smallest) if any_value else math.nan,
            "mse": math.nan, "sqnr_db": math.nan}


def _chunks(x):
    flat = x.reshape(-1)
    for first in range(0, flat.shape[0], CHUNK):
        yield flat[first:first + CHUNK]


def _count(grid, x, m):
    u = _as_bits(x, m) & MAGNITUDE
    finite, no = u < INFINITY_BITS, m.full_like(u, INFINITY_BITS)
    nonzero, nan = u > 0, u > INFINITY_BITS
    lost = nonzero & (u <= grid.zero_max)
    after = (u == 0) | lost
    if not grid.form.has_nan:
        after = after | nan
    if not grid.form.signed:  # has no zero
        after = m.zeros_like(after)
    found = [u == 0, after, lost, u < grid.below_min,
             (u > grid.zero_max) & (u < grid.normal_min), (u >= grid.overflow_min) & finite,
             u == INFINITY_BITS, nan]
    wide = _to(x, m.float64)
    low = m.where(nonzero & finite, u, no).min()
    whole = m.stack([part.sum() for part in found] + [_to(low, m.int64), _to(u.max(), m.int64)])
    real = m.stack([wide.sum(), (wide * wide).sum(), abs(wide).sum()])
    return Stats(u.shape[0], *whole.tolist(), *real.tolist())


def count(grid, x, m):
    """Stats of rounding `x` (fp32, contiguous) to the format."""
    stats = Stats()
    for chunk in _chunks(x):
        stats.add(_count(grid, chunk, m))
    return stats


class Bins:
    """How many values of a tensor have which exponent: floor(log2 |x|) without the scale."""

    def __init__(self):
        self.zeros = self.inf = self.nan = 0
        self.counts = [0] * (HIGHEST - LOWEST + 1)

    def add(self, other):
        self.zeros += other.zeros
        self.inf += other.inf
        self.nan += other.nan
        self.counts = [a + b for a, b in zip(self.counts, other.counts)]
        return self

    def rows(self):
        """(exponent as text, count), in the order of histograms.csv."""
        yield from (("zero", self.zeros), ("inf", self.inf), ("nan", self.nan))
        for i, number in enumerate(self.counts):
            if number:
                yield str(LOWEST + i), number


def bins(x, scale, m):
    """Bins of `x` (fp32, contiguous), which carries `scale`."""
    result = Bins()
    scale = scale if 0 < scale < math.inf else 1.0
    for chunk in _chunks(x):
        u = _as_bits(chunk, m) & MAGNITUDE
        some = (u > 0) & (u < INFINITY_BITS)
        values = abs(_to(chunk[some], m.float64)) / scale  # a quotient of two fp32 stays below a
        _, exponent = m.frexp(values)                      # power of two where the exact one does
        part = Bins()
        if values.shape[0]:
            part.counts = m.bincount(_to(exponent, m.int64) - 1 - LOWEST,
                                     minlength=HIGHEST - LOWEST + 1).tolist()
        part.zeros, part.inf, part.nan = m.stack(
            [(u == 0).sum(), (u == INFINITY_BITS).sum(), (u > INFINITY_BITS).sum()]).tolist()
        result.add(part)
    return result
