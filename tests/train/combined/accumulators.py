"""Sums of products as a tensor core makes them (configs/ACCUMULATORS.md): the rule, and a row of accumulators.csv."""

import numpy as np

from exact import single
from formats import Format
from storing import Unsure

E8M13 = {"exponent": 8, "mantissa": 13}
NAMED = {  # group, fraction bits, accumulator, rounding, promote
    "volta_f32": (4, 23, "fp32", "truncate", 0),
    "volta_f16": (4, 23, "fp16", "nearest", 0),
    "ampere_f32": (8, 24, "fp32", "truncate", 0),
    "ampere_f16": (8, 24, "fp16", "nearest", 0),
    "hopper_f32": (16, 25, "fp32", "truncate", 0),
    "hopper_f16": (16, 25, "fp16", "nearest", 0),
    "hopper_fp8": (32, 13, E8M13, "truncate", 0),
    "hopper_fp8_promote128": (32, 13, E8M13, "truncate", 128),
    "hopper_fp8_f16": (32, 13, "fp16", "nearest", 0),
    "ada_fp8": (16, 13, E8M13, "truncate", 0),
    "blackwell_fp8": (32, 25, "fp32", "truncate", 0),
    "fma_fp16": (1, "exact", "fp16", "nearest", 0),
    "fma_bf16": (1, "exact", "bf16", "nearest", 0),
    "fma_fp32": (1, "exact", "fp32", "nearest", 0),
}
NEVER = -100000  # the exponent of zero


def exponents(x, lowest):
    return np.where(x == 0, NEVER, np.maximum(np.frexp(np.where(x == 0, 1.0, x))[1] - 1, lowest))


class Rule:
    def __init__(self, value):
        if isinstance(value, str):
            value = dict(zip(("group", "fraction_bits", "accumulator", "rounding", "promote"), NAMED[value]))
        self.group, self.fraction = value["group"], value["fraction_bits"]
        self.form, self.nearest = Format(value["accumulator"]), value.get("rounding", "truncate") == "nearest"
        self.promote = value.get("promote", 0)

    def into(self, total, rest):
        """The exact sum total + rest in the accumulator; |rest| is below half a unit of total in double."""
        form = self.form
        given, total = total, np.where(np.isfinite(total), total, 0.0)
        exponent = np.maximum(np.frexp(total)[1] - 1, form.lowest)
        unit = np.ldexp(1.0, exponent - form.mantissa)
        steps = total / unit
        whole = np.floor(steps)
        part = steps - whole
        if self.nearest:
            above = (part > 0.5) | (part == 0.5) & ((rest > 0) | (rest == 0) & (whole % 2 == 1))
            steps = whole + above
        else:  # toward zero
            down = np.where(rest == 0, steps, np.nextafter(steps, np.where(rest > 0, np.inf, -np.inf)))
            steps = np.trunc(down)
        q = steps * unit
        q = np.where(np.abs(q) > form.largest, np.copysign(np.inf, q), q)
        return np.where(np.isfinite(given), q, given)

    def sums(self, a, b, lowest_a, lowest_b):
        """[M, K], [N, K] to ([M, N], how many products there are, how many were cut to zero)."""
        m, n, length = len(a), len(b), a.shape[1]
        c, main = np.zeros((m, n)), np.zeros((m, n))
        products = swallowed = 0
        for begin in range(0, length, self.group):
            x, w = a[:, None, begin : begin + self.group], b[None, :, begin : begin + self.group]
            p = x * w
            products += int(np.count_nonzero(p))
            if self.fraction == "exact":
                high = p.sum(-1) + c  # of one product: its rest is known
                back = high - c
                rest = (c - (high - back)) + (p.sum(-1) - back)
                c = self.into(high, rest)
            else:
                top = np.where(p == 0, NEVER, exponents(x, lowest_a) + exponents(w, lowest_b)).max(-1)
                own = exponents(c, self.form.lowest)
                if self.form.lowest == -126:
                    own = np.where(c == 0, -126, own)
                unit = np.ldexp(1.0, np.maximum(np.maximum(top, own), -900) - self.fraction)
                cut = np.trunc(p / unit[..., None])
                # To inf nothing is added that could be cut.
                swallowed += int(((cut == 0) & (p != 0) & np.isfinite(c)[..., None]).sum())
                c = self.into((cut.sum(-1) + np.trunc(c / unit)) * unit, np.zeros((m, n)))
            if self.promote and (begin + self.group) % self.promote == 0:
                main, c = single(main + c), np.zeros((m, n))
        return (single(main + c) if self.promote else c), products, swallowed

    def off(self, a, b, lowest_a, lowest_b):
        """How far sums of codes of at most these magnitudes are from exact ones; inf where they may overflow."""
        groups, size = -(-a.shape[1] // self.group), a @ b.T * 1.01
        top = np.max(exponents(a, lowest_a)[:, None] + exponents(b, lowest_b)[None], -1, initial=-126)
        top = np.maximum(top, np.frexp(size)[1])
        cut = 0.0 if self.fraction == "exact" else (a.shape[1] + groups) * np.ldexp(1.0, top - self.fraction)
        found = cut + groups * np.ldexp(1.0, np.maximum(np.frexp(size + cut)[1], self.form.lowest) - self.form.mantissa)
        found = found + groups * 2.0**-23 * (size + found) * (self.promote > 0)
        return np.where(size + found < self.form.largest, found, np.inf)

    def by_rows(self, a, b, scale_a, scale_b, taps, lowest_a, lowest_b, row):
        """(value, error) of sums of codes whose rows have scales: multiplied by their inverses at the end of each tap.

        scale_a, scale_b: of each code, 0 where a window sees padding. row: what counts, with the scales.
        """
        length = a.shape[1] // taps
        value, exact, magnitudes, error = (np.zeros((len(a), len(b))) for _ in range(4))
        for begin in range(0, a.shape[1], length):
            part = slice(begin, begin + length)
            result, products, swallowed = self.sums(a[:, part], b[:, part], lowest_a, lowest_b)
            top = [np.max(s[:, part], axis=1) for s in (scale_a, scale_b)]
            inverse = [single(1 / np.where(s > 0, s, 1.0)) for s in top]
            by = single(inverse[0][:, None] * inverse[1][None, :])
            if not np.isfinite(by).all() or (by < 2.0**-120).any():
                raise Unsure("scales of codes beyond fp32")
            value = value + result * by
            row.products, row.swallowed = row.products + products, row.swallowed + swallowed
            exact += a[:, part] @ b[:, part].T * by
            magnitudes += np.abs(a[:, part]) @ np.abs(b[:, part]).T * by
            error += np.abs(np.nan_to_num(result, posinf=0, neginf=0)) * by * 5e-7
        row.add(value, exact, magnitudes, 0, 0, error)
        return value, error


class Accumulated:
    """A row of accumulators.csv, over the parts of a batch and the groups of a product."""

    def __init__(self):
        self.numel = self.products = self.swallowed = self.lost = self.overflow = 0
        self.signal = self.noise = self.pull = self.size = self.worst = self.unsure = self.off = 0.0
        self.certain = "numel", "products", "swallowed", "lost", "overflow"

    def add(self, result, exact, magnitudes, products, swallowed, error=0.0):
        """error: how far results may be off, so that what they lost is known to as much."""
        exact = single(exact)
        self.unsure += float(np.sum(error))
        self.off = max(self.off, float(np.max(error / np.where(magnitudes > 0, magnitudes, 1.0))))
        self.numel += result.size
        self.products += products
        self.swallowed += swallowed
        self.lost += int(((exact != 0) & (result == 0)).sum())
        broken = np.isfinite(exact) & ~np.isfinite(result)
        self.overflow += int(broken.sum())
        known = np.isfinite(exact) & ~broken
        r, s, m = (x[known] for x in (result, exact, magnitudes))
        self.signal += (s**2).sum()
        self.noise += ((r - s) ** 2).sum()
        self.pull += ((r - s) * np.sign(s)).sum()
        self.size += np.abs(s).sum()
        if (m > 0).any():
            self.worst = max(self.worst, float(np.max(np.abs(r - s)[m > 0] / m[m > 0])))

    def of_either(self, low, high):
        """Some codes are one of two neighbors, which may be zero: only few counts are known."""
        if (low != high).any():
            zeros = ((low <= 0) & (high >= 0) & (low != high)).any()
            self.certain = ("numel",) if zeros or "products" not in self.certain else ("numel", "products")

    def differs(self, row):
        wrong = [(k, row[k], getattr(self, k)) for k in self.certain if int(row[k]) != getattr(self, k)]
        if "lost" not in self.certain:
            return wrong
        want, near = {"max_rel": self.worst}, {"max_rel": self.off}
        if self.size:
            want["bias"], near["bias"] = self.pull / self.size, self.unsure / self.size
        if self.signal and not self.unsure:
            want["sqnr_db"] = 10 * np.log10(self.signal / self.noise) if self.noise else np.inf
        for name, value in want.items():
            got = float(row[name]) if row[name] else np.nan
            if not (got == value or abs(got - value) <= 1e-5 * abs(value) + 1e-9 + near.get(name, 0.0)):
                wrong.append((name, row[name], value))
        return wrong
