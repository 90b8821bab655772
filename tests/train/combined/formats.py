"""Number formats as configs/formats.md has them: rounding in float64, and what is counted at a rounding.

A value that is not known to the last bit is an interval: `value` and `error`, half its width, arrays of one shape
(error 0: exactly
this fp32 number). Rounding never turns the order of two numbers around, so an interval becomes one of stored values.
"""

import re

import numpy as np

TINY = 2.0**-148  # two of fp32's smallest
NAMES = {
    "fp32": dict(exponent=8, mantissa=23),
    "fp16": dict(exponent=5, mantissa=10),
    "bf16": dict(exponent=8, mantissa=7),
    "cb16": dict(exponent=6, mantissa=9),
    "fp8_e4m3": dict(exponent=4, mantissa=3, has_inf=False),
    "fp8_e5m2": dict(exponent=5, mantissa=2),
    "fp8_e3m4": dict(exponent=3, mantissa=4),
    "fp8_e4m3_ieee": dict(exponent=4, mantissa=3),
    "fp8_e4m3_fnuz": dict(exponent=4, mantissa=3, bias=8, has_inf=False, negative_zero=False),
    "fp8_e5m2_fnuz": dict(exponent=5, mantissa=2, bias=16, has_inf=False, negative_zero=False),
    "fp8_e4m3_b11fnuz": dict(exponent=4, mantissa=3, bias=11, has_inf=False, negative_zero=False),
    "fp6_e2m3": dict(exponent=2, mantissa=3, has_inf=False, has_nan=False),
    "fp6_e3m2": dict(exponent=3, mantissa=2, has_inf=False, has_nan=False),
    "fp4_e2m1": dict(exponent=2, mantissa=1, has_inf=False, has_nan=False),
    "fp4_e1m2": dict(exponent=1, mantissa=2, bias=1, has_inf=False, has_nan=False),
    "int8": dict(exponent=1, mantissa=6, bias=-5, has_inf=False, has_nan=False),
    "int4": dict(exponent=1, mantissa=2, bias=-1, has_inf=False, has_nan=False),
}


P3109 = re.compile(r"binary(\d+)p(\d+)s([ef])")


def named(name):
    """The keys of a name; of IEEE P3109's signed formats (bits, precision, extended or finite) too."""
    found = P3109.fullmatch(name)
    if not found:
        return dict(NAMES[name])
    bits, precision = int(found[1]), int(found[2])
    keys = dict(exponent=bits - precision, mantissa=precision - 1, bias=2 ** (bits - precision - 1))
    return {**keys, "has_inf": False, "negative_zero": False, "inf_code": found[3] == "e"}


class Format:
    """One format: its largest and smallest numbers, and rounding to nearest, ties to even, or by a mode of P3109."""

    def __init__(self, name, saturate=False, mode="nearest", keeps_inf=False):
        self.name, self.mode = name, "nearest" if name == "fp32" or mode == "nearest_even" else mode
        keys = named(name) if isinstance(name, str) else dict(name)
        e, m = keys["exponent"], keys["mantissa"]
        self.mantissa, self.bits, bias = m, 1 + e + m, keys.get("bias", 2 ** (e - 1) - 1)
        self.has_inf, self.has_nan = keys.get("has_inf", True), keys.get("has_nan", True)
        self.negative_zero = keys.get("negative_zero", True)
        self.saturate = keys.get("saturate", False) or saturate and name != "fp32" or not self.has_nan
        self.lowest = 1 - bias  # exponent of the smallest normal number
        top = 2**e - 1 - bias - (1 if self.has_inf else 0)
        steps = 2 ** (m + 1) - 1  # of the largest mantissa; where inf has no code NaN may take the last one
        if not self.has_inf and self.has_nan and self.negative_zero:
            steps -= 1
        if keys.get("inf_code"):  # the last code is inf
            self.has_inf, steps = True, steps - 1
        self.finite = isinstance(name, str) and P3109.fullmatch(name) and not self.has_inf  # nothing beyond the largest
        self.keeps_inf = keeps_inf and self.has_inf and name != "fp32" and not keys.get("saturate", False)
        self.saturate = self.saturate or keeps_inf and name != "fp32"
        self.largest = steps * 2.0 ** (top - m)
        self.smallest = 2.0 ** (self.lowest - m)
        self.smallest_normal = 2.0**self.lowest

    def same_numbers(self, other):
        names = ("mantissa", "lowest", "largest", "has_inf", "has_nan", "negative_zero")
        return all(getattr(self, n) == getattr(other, n) for n in names)

    @property
    def is_fp32(self):
        return self.name == "fp32"

    def unbounded(self, x):
        """Rounded as if exponents went on: what is beyond `largest` overflows."""
        finite = np.where(np.isfinite(x), x, 0.0)
        exponent = np.maximum(np.frexp(finite)[1] - 1, self.lowest)
        spacing = np.ldexp(1.0, exponent - self.mantissa)
        return np.where(np.isfinite(x), self.steps(finite / spacing) * spacing, x)

    def steps(self, x):
        """Whole numbers beside x, by the mode."""
        if self.mode == "nearest_away":
            return np.copysign(np.floor(np.abs(x) + 0.5), x)
        if self.mode == "toward_odd":
            down = np.trunc(x)
            return np.where((down != x) & (down % 2 == 0), down + np.copysign(1.0, x), down)
        modes = {"toward_zero": np.trunc, "toward_positive": np.ceil, "toward_negative": np.floor}
        return modes.get(self.mode, np.rint)(x)

    def round(self, x):
        """The stored values of fp32 numbers x."""
        x = np.asarray(x, np.float64)
        q = self.unbounded(x)
        beyond = np.abs(q) > self.largest
        if self.saturate:
            end = np.copysign(self.largest, x)
        else:
            end = np.copysign(np.inf, x) if self.has_inf else np.full_like(x, np.nan)
        finite = np.isfinite(x)
        if self.finite:
            end = np.copysign(self.largest, x)
        elif not self.saturate and self.mode.startswith("toward_") and self.mode != "toward_odd":
            stays = {"toward_positive": x < 0, "toward_negative": x > 0}.get(self.mode, finite)
            end = np.where(stays & finite, np.copysign(self.largest, x), end)
        if self.keeps_inf:
            end = np.where(finite, end, x)
        q = np.where(beyond, end, q)
        if not self.has_nan:
            q = np.where(np.isnan(x), 0.0, q)
        return q

    def neighbors(self, x):
        """The two numbers of the format beside x, of which stochastic rounding takes one: beyond the largest as to
        nearest."""
        x = np.asarray(x, np.float64)
        finite = np.where(np.isfinite(x), x, 0.0)
        spacing = np.ldexp(1.0, np.maximum(np.frexp(finite)[1] - 1, self.lowest) - self.mantissa)
        inside = np.abs(x) < self.largest
        return tuple(np.where(inside, f(finite / spacing) * spacing, self.round(x)) for f in (np.floor, np.ceil))

    def overflows(self, x):
        return np.isfinite(x) & (np.abs(self.unbounded(x)) > self.largest)


def both_ends(value, error):
    """The ends of intervals; what is not finite has none."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(value), value - error, value), np.where(np.isfinite(value), value + error, value)


def middle(low, high):
    """What lies between two values, and how far off it may be; what is not finite is known."""
    with np.errstate(invalid="ignore"):
        return np.where(low == high, low, (low + high) / 2), np.where(low == high, 0.0, np.nan_to_num((high - low) / 2))


def scaled(x, factor):
    """x times a tensor's own scale, as 24 bits; the product may lie beyond fp32 all the same."""
    mantissa, exponent = np.frexp(x * factor)
    return np.ldexp(mantissa.astype(np.float32).astype(np.float64), exponent)


def stored_ends(value, error, form, factor=None, stochastic=False):
    """Least and greatest stored value: form.round of both ends; with a factor s round(s x) / s, as fp32 has it."""
    ends = []
    for which, end in enumerate(both_ends(value, error)):
        rounded = (lambda x, which=which: form.neighbors(x)[which]) if stochastic else form.round
        if factor is None:
            ends.append(rounded(end))
        else:
            ends.append((rounded(scaled(end, factor)) / factor).astype(np.float32).astype(np.float64))
    return ends


class Tally:
    """What a row of underflow.csv says of a tensor, over the parts of a batch: of each count the least and the
    greatest."""

    def __init__(self, form, scale):
        self.form, self.scale = form, scale
        self.seen, self.kept, self.unsure = [], [], 0  # (value, error, S) of each part; magnitudes; how many may differ
        self.found, self.finite, self.signed = {}, True, np.zeros(2)
        self.low_max = self.high_max = 0.0
        self.low_min = self.high_min = np.inf

    def _add(self, name, least, most):
        low, high = self.found.get(name, (0, 0))
        self.found[name] = low + int(np.sum(least)), high + int(np.sum(most))

    def add(self, value, error, stored, factor=None):
        """value and error before the rounding, `stored` after it; factor is the tensor's own scale."""
        form, factor = self.form, 1.0 if factor is None else factor
        low, high = (scaled(end, factor) for end in both_ends(value, error))
        after = np.abs(stored) * factor
        nan, inf = np.isnan(value), np.isinf(value)
        first, last = both_ends(value, error)
        inside, zero = (first <= 0) & (last >= 0), (first == 0) & (last == 0)
        near = np.where(inside, 0.0, np.minimum(np.abs(low), np.abs(high)))
        far = np.maximum(np.abs(low), np.abs(high))
        gone = (stored == 0) & ~nan
        small = (after > 0) & (after < form.smallest_normal * (1 - 1e-6))
        everything = np.ones(value.shape)
        self._add("numel", everything, everything)
        self._add("zeros_before", zero, inside)
        self._add("zeros_after", stored == 0, stored == 0)
        self._add("underflow", gone & ~inside, gone & ~zero)
        self._add("subnormal", small, small)
        lost = np.isnan(low) & np.isfinite(value)  # under a scale that is not finite
        beyond = form.overflows(low), form.overflows(high)
        sure = beyond[0] & beyond[1] & ~inside
        self._add("overflow", sure & ~inf | lost, (beyond[0] | beyond[1]) & ~inf | lost)
        self._add("inf", inf, inf)
        self._add("nan", nan, nan)
        self._add("below", far < form.smallest, near < form.smallest)
        error = np.broadcast_to(error, value.shape)
        self.seen.append((value, error, self.scale))
        self.kept.append(after)
        self._extremes(value / self.scale, error / self.scale)

    def add_between(self, value, error, low, high, factor=None):
        """add() where what is stored lies between two values."""
        self.add(value, error, (low + high) / 2, factor)
        unsure = int((low != high).sum())
        self.unsure += unsure
        for column in ("zeros_after", "underflow", "subnormal"):
            least, most = self.found[column]
            self.found[column] = least - unsure, most + unsure

    def above(self, edge):
        """How many stored values lie above a share of the format's largest, at least and at most, and of how many."""
        count = sum(int((a > edge * self.form.largest * (1 + 1e-6)).sum()) for a in self.kept)
        return count - self.unsure, count + self.unsure, sum(a.size for a in self.kept)

    def _extremes(self, value, error):
        self.finite = self.finite and bool(np.isfinite(value).all())
        a = np.abs(value)
        if not self.finite or not (a + error).any():
            return
        low, high = np.maximum(a - error, 0), a + error
        self.low_max, self.high_max = max(self.low_max, low.max()), max(self.high_max, high.max())
        if (low > 0).any():  # others may be zeros
            self.high_min = min(self.high_min, high[low > 0].min())
        self.low_min = min(self.low_min, low[high > 0].min())
        slack = 1e-6 * a.sum() + error.sum()
        self.signed += (value.sum(), slack)
        for name, x in (("l1", a), ("l2", a**2)):
            total, off = getattr(self, name, (0.0, 0.0))
            setattr(
                self,
                name,
                (total + x.sum(), off + (slack if name == "l1" else (2 * a * error + error**2).sum() + 1e-6 * x.sum())),
            )

    def differs(self, row):
        """Columns of the row that are not between what they may be, as (column, written, least, greatest)."""
        found = {k: v for k, v in self.found.items() if k != "below"}
        numel = found["numel"][0]
        wrong = [(k, int(row[k]), *span) for k, span in found.items() if not span[0] <= int(row[k]) <= span[1]]
        low, high = (100.0 * n / numel for n in self.found["below"])
        spans = {"below_min_pct": (low * (1 - 1e-8), high * (1 + 1e-8))}
        if self.finite and self.high_max > 0:
            spans["max_abs"] = self.low_max * (1 - 1e-7), self.high_max * (1 + 1e-7) + TINY
            spans["min_abs"] = self.low_min * (1 - 1e-7) - TINY, self.high_min * (1 + 1e-7) + TINY
            spans["mean"] = (self.signed[0] - self.signed[1]) / numel, self.signed.sum() / numel
            spans["l1"] = self.l1[0] - self.l1[1], self.l1[0] + self.l1[1]
            spans["l2"] = max(self.l2[0] - self.l2[1], 0) ** 0.5 * (1 - 1e-6), (self.l2[0] + self.l2[1]) ** 0.5 * (
                1 + 1e-6
            )
        for name, (low, high) in spans.items():
            nine = 1e-8 * max(abs(low), abs(high))  # digits that a file has
            if row[name] and not low - nine <= float(row[name]) <= high + nine:
                wrong.append((name, float(row[name]), low, high))
        if type(self.form) is Format and not self.form.same_numbers(parsed(row["format"])):
            wrong.append(("format", row["format"], self.form.name, ""))
        if abs(float(row["scale"]) - self.row_scale) > 1e-7 * self.row_scale * (np.frexp(self.scale)[0] != 0.5):
            wrong.append(("scale", row["scale"], self.row_scale, ""))
        return wrong


def parsed(text):
    """The format that a column `format` names."""
    if not text.startswith("{"):
        return Format(text)
    words = {"true": True, "false": False}
    keys = dict(item.split(":") for item in text.strip("{}").split(","))
    return Format({k.strip(): words[v.strip()] if v.strip() in words else int(v) for k, v in keys.items()})
