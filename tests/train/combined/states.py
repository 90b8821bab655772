"""The optimizer's states as precision.optimizer_state keeps them (configs/update.md): formats by state, scales and maps."""

import numpy as np

from exact import single
from formats import Format, Tally

SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf")  # averages of squares and of magnitudes
ALWAYS_FP32 = ("row_var", "col_var", "variance", "averaging")
MOMENTA = ("momentum", "velocity", "momentum_buffer")
NAMES = {
    "te_fp16": {"format": "fp16", "scaling": "tensor"},
    "te_fp8": {"format": "fp8_e4m3", "scaling": "tensor"},
    # Of tensors of fewer than 4096 values.
    **{name: {"format": "fp32"} for name in ("torchao_8bit", "torchao_4bit", "torchao_fp8")},
    "bitsandbytes_8bit": {"format": "fp32", "scaling": "block"},
}


def dynamic_map(bits, signed):
    """Dettmers' tree of 8 or 4 bits: middles of equal parts of 0.1 .. 1 times powers of ten; torchao's 4 bits of squares
    are sixteenths."""
    if bits == 4 and not signed:
        return np.arange(1, 17) / 16
    powers = bits - 1
    found = [0.0, 1.0]
    for e in range(powers):
        edges = np.linspace(0.1, 1, 2 ** (e + (0 if signed else 1)) + 1)
        some = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (e - powers + 1)
        found += [*some, *(-some if signed else [])]
    return np.sort(found)


class States:
    def __init__(self, keys, saturate):
        if isinstance(keys, str):
            keys = NAMES.get(keys, {"format": keys})
        elif "exponent" in keys:
            keys = {"format": keys}
        self.keys, self.saturate = keys, saturate
        self.few_bits = keys.keys() != {"format"} or keys["format"] != "fp32"
        self.rounding, self.scaling = keys.get("rounding", "nearest"), keys.get("scaling", "none")

    def form(self, state):
        """The format of a state by its name."""
        if state in ALWAYS_FP32:
            return Format("fp32")
        own = "exp_avg_sq" if state in SQUARES else "momentum" if state in MOMENTA else state
        return Format(self.keys.get(own, self.keys.get("format", "fp32")), self.saturate)

    def scaled(self, form):
        return self.scaling != "none" and form.name not in ("bf16", "fp32")

    def map(self, state, form):
        """The values that a code may stand for, times the scale; None: the format's."""
        if self.keys.get("map", "linear") == "linear" or form.bits > 8 or not self.scaled(form):
            return None
        return dynamic_map(4 if form.bits <= 4 else 8, state not in SQUARES)

    def kept(self, key, value, off, after):
        """(format, least, greatest, factor) of what is stored of (value, off), the factor as the checkpoint has it."""
        form = self.form(key.rsplit(".", 1)[1])
        low, high = value - off, value + off
        if form.is_fp32:
            return form, single(low), single(high), None
        if not self.scaled(form):
            if self.rounding == "stochastic":
                return form, form.neighbors(low)[0], form.neighbors(high)[1], None
            return form, form.round(low), form.round(high), None
        codes = self.map(key.rsplit(".", 1)[1], form)
        factor = self.factors(key, value, off, form, after, codes)
        if factor is None:
            return form, np.nan * low, np.nan * high, 1.0
        ends = []
        for which, end in enumerate((low, high)):
            side = (2 * which - 1) * np.sign(end)  # divided, and multiplied, by the scale or by its reciprocal
            x = single(end / factor) * (1 + side * 1.3e-7)
            if codes is not None:
                near = np.searchsorted((codes[:-1] + codes[1:]) / 2, x * (1 + side * 5e-7), ("left", "right")[which])
                ends.append(codes[near] * factor * (1 + (2 * which - 1) * np.sign(codes[near]) * 2e-6))
                continue
            q = form.round(x)
            ends.append(np.clip(q, -form.largest, form.largest) * factor * (1 + side * 1.9e-7))
        return form, *ends, factor

    def factors(self, key, value, off, form, after, codes):
        """The scale of each value, from the checkpoint, found to be largest / top; None where that is not finite."""
        top = form.largest / (2 if form.name == "fp16" and self.scaling == "tensor" else 1)
        at_least = 1e-12 if self.scaling == "block" else 0.0
        if codes is not None:  # bitsandbytes' scale is the largest magnitude, torchao's at least 1e-12
            top, at_least = 1.0, 1e-12 if form.bits <= 4 else 0.0
        flat, spread = np.abs(value).reshape(-1), np.broadcast_to(off, value.shape).reshape(-1)
        size = len(flat) if self.scaling == "tensor" else self.keys.get("block", 256)
        scales = after[key + "_scale"].reshape(-1)
        found = np.zeros(len(flat))
        for number, begin in enumerate(range(0, len(flat), size)):
            part = slice(begin, begin + size)
            low, high = np.max(np.maximum(flat[part] - spread[part], 0)), np.max(flat[part] + spread[part])
            if not np.isfinite(high):
                return None
            low, high, s = max(low, at_least), max(high, at_least), scales[number]
            if low > 1e-30 and not low / top * (1 - 1e-6) <= s <= high / top * (1 + 1e-6):
                raise ValueError(f"{key}_scale {number}: {s!r}, expected {low / top!r} .. {high / top!r}")
            if not s > 0:
                return None
            found[part] = s
        return found.reshape(value.shape)


class StateTally(Tally):
    """A row `state`, some of whose values may have scales: of those, what becomes zero, and no subnormals."""

    pairs = None

    def add_scaled(self, value, error, stored):
        everything, gone = np.ones(value.shape), stored == 0
        zero, inside = (value == 0) & (error == 0), np.abs(value) <= error
        for name, least, most in (
            ("numel", everything, everything),
            ("zeros_before", zero, inside),
            ("zeros_after", gone, gone),
            ("underflow", gone & ~inside, gone & ~zero),
            ("below", gone, gone),
        ):
            self._add(name, least, most)
        self._extremes(value, np.broadcast_to(error, value.shape))

    def add_pairs(self, divided, by):
        """Two stored averages of an update, of which one divides the other."""
        self.pairs = (self.pairs or 0) + int(np.sum((by == 0) & (divided != 0)))

    def differs(self, row):
        form, pairs = self.form, "" if self.pairs is None else str(self.pairs)
        self.form = form if "scaled" not in row["format"] and row["format"] not in NAMES else None
        wrong = super().differs(row)
        self.form = form
        written = row["zero_denominators"]
        return wrong if written == pairs else wrong + [("zero_denominators", written, pairs, pairs)]
