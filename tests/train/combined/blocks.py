"""Block-scaled formats as src/number/blocks/README.md has them: scales of blocks, decoded values, and what blocks.csv
counts.

A tensor is seen as [places, rows, length]: `length` is what a product sums over, a tile spans rows and length, and
places are independent. Every operation is one of fp32, as the rules are.
"""

import numpy as np

from exact import single
from formats import NAMES, Format

BLOCKS = {
    "mxfp8_e4m3": dict(element="fp8_e4m3"),
    "mxfp8_e5m2": dict(element="fp8_e5m2"),
    "mxfp6_e2m3": dict(element="fp6_e2m3"),
    "mxfp6_e3m2": dict(element="fp6_e3m2"),
    "mxfp4": dict(element="fp4_e2m1"),
    "nvfp4": dict(element="fp4_e2m1", scale="fp8_e4m3"),
    "mxint8": dict(element="mxint8"),
    "fp8_block128": dict(element="fp8_e4m3", scale="fp32"),
}
MXINT8 = dict(exponent=1, mantissa=6, bias=1, has_inf=False, has_nan=False)
FLT_MAX = float(np.finfo(np.float32).max)
E4M3 = Format("fp8_e4m3", True)
UE5M3_TOP = 114688.0


def is_block(name):
    return isinstance(name, dict) and "element" in name or isinstance(name, str) and name in BLOCKS


def at_least(value, least):
    return np.where(value < least, least, value)


class BlockFormat:
    def __init__(self, name):
        keys = dict(BLOCKS[name]) if isinstance(name, str) else dict(name)
        self.name, self.scale = name, keys.get("scale", "e8m0")
        self.element = Format(MXINT8 if keys["element"] == "mxint8" else keys["element"], True)
        default = {"e8m0": (32, "floor"), "fp8_e4m3": (16, "te"), "ue5m3": (16, "te"), "fp32": (128, "te")}[self.scale]
        block, self.rule = keys.get("block", default[0]), keys.get("rule", default[1])
        self.tile = tuple(block) if isinstance(block, list) else (1, block)
        self.tensor_scale = keys.get("tensor_scale", self.scale == "fp8_e4m3")
        self.power_of_two, self.error = keys.get("power_of_two", False), keys.get("error", "mae")
        self.top, self.emax = self.element.largest, int(np.frexp(self.element.largest)[1]) - 1
        self.tensor_top = self.top * (keys.get("top", 448) if self.rule == "four_over_six" else 448)
        self.divides = self.rule == "modelopt" or self.scale == "ue5m3"
        self.is_fp32 = False

    def quantize(self, x, row_axes=None):
        """Decoded values of x [places, rows, length], and what Counts takes of its blocks."""
        places, rows, length = x.shape
        m, n = self.tile
        row_pad, pad = -rows % m, -length % n
        padded = np.pad(x, ((0, 0), (0, row_pad), (0, pad)))
        inside = np.pad(np.ones(x.shape, bool), ((0, 0), (0, row_pad), (0, pad)))
        shape = (places, (rows + row_pad) // m, m, (length + pad) // n, n)
        v, inside = padded.reshape(shape), inside.reshape(shape)
        with np.errstate(all="ignore"):
            block = np.max(np.abs(v), axis=(2, 4), keepdims=True)
            if self.tensor_scale == "row":
                whole = np.max(np.abs(x), axis=2).reshape(places, rows, 1, 1, 1)
            else:
                whole = np.max(np.abs(x))
            tensor = self.tensor_factor(whole)
            factor = self.factor(block, tensor)
            if self.rule == "four_over_six":
                factor = self.better(v, block, tensor, factor)
            stored, encode, decode, floor, ceiling = factor
            scaled = np.where(decode == 0, 0.0, single(v / decode)) if self.divides else single(v * encode)
            taken = self.elements(scaled)
            decoded = single(taken * decode)
            if self.divides:
                decoded = decoded + 0.0
            coded = taken * stored
        back = lambda a: np.broadcast_to(a, shape).reshape(places, shape[1] * m, -1)[:, :rows, :length]
        seen = dict(v=v, inside=inside, block=block, scaled=scaled, decoded=decoded)
        seen.update(by=np.broadcast_to(decode, block.shape), bounded=np.broadcast_to(tensor[3], block.shape))
        seen.update(floor=np.broadcast_to(floor, block.shape), ceiling=np.broadcast_to(ceiling, block.shape))
        seen["coded"] = back(coded)
        return back(decoded), seen

    def elements(self, scaled):
        q = self.element.round(scaled)
        if self.tensor_scale and self.rule != "torchao":
            q = np.where((scaled < 0) | (scaled > 0), q, 0.0)
        elif self.tensor_scale or self.scale == "ue5m3":
            q = np.where(np.isnan(scaled), 0.0, q)
        return q

    def tensor_factor(self, amax):
        """(amax, encode, decode, whether encode stands at its end)."""
        one = np.ones(np.shape(amax))
        if not self.tensor_scale:
            return amax, one, one, one < 0
        if self.rule in ("torchao", "modelopt"):
            decode = single(amax / self.tensor_top)
            encode = single(1 / decode)
            return amax, encode, decode, ~((encode > 0) & (encode <= FLT_MAX))
        exact = single(self.tensor_top / amax)
        encode = np.where(exact > FLT_MAX, FLT_MAX, exact)
        encode = np.where(encode == 0, 1.0, encode)
        return amax, encode, single(1 / encode), ~((exact > 0) & (exact <= FLT_MAX))

    def factor(self, a, tensor):
        """(stored scale, what elements are multiplied by, what they are decoded with, at the least, at the most)."""
        if self.scale == "e8m0":
            return self.power(a)
        if self.scale == "fp32":
            encode = single(self.top / a)
            bounded = np.isinf(encode) & (a != 0)
            encode = np.where(np.isinf(encode), FLT_MAX, encode)
            if self.power_of_two:
                power = 2.0 ** (np.frexp(np.where(encode == 0, 1, encode))[1] - 1)
                encode = np.where(np.isfinite(encode) & (encode != 0), power, encode)
                if self.element.has_nan:
                    encode = np.where(np.isnan(a), 0.5, encode)
            encode = np.where(a == 0, 1.0, encode)
            stored = single(1 / encode)
            return stored, encode, stored, bounded, np.zeros(a.shape, bool)
        if self.scale == "ue5m3":
            scale = Format(dict(exponent=5, mantissa=3, has_inf=False), True)
            stored = scale.round(single(a / self.top))
            return stored, single(1 / stored), stored, stored == 0, stored == UE5M3_TOP
        _, encode, decode, _ = tensor
        if self.rule == "modelopt":
            wanted = single(a / single(self.top * decode))
            wanted = np.where(wanted == 0, 1.0, wanted)
            stored = E4M3.round(at_least(wanted, 2.0**-9))
            by = single(stored * decode)
            return stored, single(1 / by), by, stored <= 2.0**-9, stored >= 448
        if self.tensor_scale and self.rule != "torchao":
            if self.rule == "four_over_six":
                return self.under_tensor(single(single(a / self.top) * encode), tensor)
            return self.under_tensor(single(a * single(encode * single(1 / self.top))), tensor)
        stored = E4M3.round(at_least(single(single(a / self.top) / decode), 2.0**-6))
        return stored, single(encode / stored), single(stored * decode), stored <= 2.0**-6, stored >= 448

    def under_tensor(self, wanted, tensor):
        amax, _, decode, _ = tensor
        stored = E4M3.round(wanted)
        encode = np.minimum(single(1 / single(stored * decode)), FLT_MAX)
        by = single(single(stored * amax) * single(1 / self.tensor_top))
        return stored, encode, by, stored == 0, stored == 448

    def better(self, v, a, tensor, six):
        """four_over_six: of the two scales that with the smaller error; the six where both are equal."""
        four = self.under_tensor(single(single(single(a / self.top) * tensor[1]) * 1.5), tensor)
        errors = []
        for stored, encode, *_ in (six, four):
            q = self.elements(single(v * encode))
            difference = single(single(single(single(q * stored) * tensor[0]) / self.tensor_top) - v)
            each = single(difference**2) if self.error == "mse" else np.abs(difference)
            total = np.zeros(a.shape)
            for i in range(each.shape[2]):
                for k in range(each.shape[4]):
                    total = single(total + each[:, :, i : i + 1, :, k : k + 1])
            errors.append(total)
        take = errors[1] < errors[0]
        return tuple(np.where(take, f, s) for s, f in zip(six, four))

    def power(self, a):
        """Scales that are powers of two: rules floor, ceil, even, rceil."""
        safe = np.where(np.isfinite(a) & (a > 0), a, 1.0)
        if self.rule == "even":  # to the element's mantissa first, half up
            mantissa, exponent = np.frexp(safe)
            steps = 2.0 ** (self.element.mantissa + 1)
            safe = np.ldexp(np.floor(mantissa * steps + 0.5) / steps, exponent)
        k = np.maximum(np.frexp(safe)[1] - 1, -127) - self.emax  # subnormals have the field 0
        if self.rule == "ceil":
            k = k + ((safe != 2.0 ** (np.frexp(safe)[1] - 1)) | (safe < 2.0**-126))
        elif self.rule == "rceil":
            q = single(safe * single(1 / self.top))
            k = np.frexp(q)[1] - 1
            k = k + (q != np.ldexp(1.0, k))
        k = np.where(a > 0, np.maximum(k, -127), -127)
        broken = ~np.isfinite(a) | (k > 127)
        scale = np.where(broken, np.nan, np.ldexp(1.0, k))
        return scale, 1 / scale, scale, k == -127, k == 127


class Counts:
    """A row of blocks.csv, over the parts of a batch."""

    def __init__(self, form):
        self.form, self.n = form, {}
        self.parts = []  # of each part: S of its values, log2 of its blocks' scales, their signal and noise

    def add(self, seen, scale=1.0):
        form, v, block = self.form, seen["v"], seen["block"]
        inside, decoded = seen["inside"], seen["decoded"]
        count = lambda what: int(np.sum(what & inside))
        axes = (2, 4)
        with np.errstate(all="ignore"):
            broken = (~np.isfinite(decoded) & inside).any(axes, keepdims=True)
            zero = (v == 0).all(axes, keepdims=True)
            lost = np.isfinite(v) & (v != 0) & (decoded == 0)
            beside = lost & (np.abs(v) * form.top <= block * form.element.smallest / 2)
            beyond = np.abs(form.element.unbounded(seen["scaled"])) > form.top
        tensor = lost & ~beside & seen["bounded"]
        floor = lost & ~beside & ~tensor & seen["floor"]
        used = ~broken & ~zero
        found = dict(
            numel=inside.sum(),
            zeros=count(v == 0),
            inf=count(np.isinf(v)),
            nan=count(np.isnan(v)),
            lost=count(lost),
            lost_beside_largest=count(beside),
            lost_tensor_scale=count(tensor),
            lost_scale_floor=count(floor),
            lost_scale_rounding=count(lost & ~beside & ~tensor & ~floor),
            saturated=count(np.isfinite(v) & (decoded != 0) & beyond),
            blocks=block.size,
            zero_blocks=int(zero.sum()),
            broken_blocks=int(broken.sum()),
            scale_floor=int((seen["floor"] & used).sum()),
            scale_ceiling=int((seen["ceiling"] & used).sum()),
        )
        for name, value in found.items():
            self.n[name] = self.n.get(name, 0) + int(value)
        by = seen["by"][used]
        logs = np.log2(by[np.isfinite(by) & (by > 0)])
        safe = lambda a: np.where(np.isfinite(a), a, 0.0)
        whole = ~broken & np.isfinite(v).all(axes, keepdims=True)
        signal = (safe(v) ** 2 * inside).sum(axes, keepdims=True)[whole]
        noise = (safe(decoded - v) ** 2 * inside).sum(axes, keepdims=True)[whole]
        self.parts.append((scale, logs, signal, noise))

    def differs(self, row):
        """Columns that are not what they should be: (column, written, expected). Values of earlier parts are brought
        to the last one's S."""
        wrong = [(k, row[k], v) for k, v in self.n.items() if int(row[k]) != v]
        more = [self.parts[-1][0] / part[0] for part in self.parts]
        logs = np.concatenate([part[1] + np.log2(m) for m, part in zip(more, self.parts)])
        signal, noise = (np.concatenate([part[i] * m**2 for m, part in zip(more, self.parts)]) for i in (2, 3))
        want = {}
        if logs.size:
            want.update(scale_log2_min=logs.min(), scale_log2_max=logs.max(), scale_log2_mean=logs.mean())
            want["scale_log2_std"] = logs.std()
        if signal.sum() > 0:
            db = lambda s, n: 10 * np.log10(s / n) if n > 0 else np.inf
            want["sqnr_db"] = db(signal.sum(), noise.sum())
            noisy = [db(s, n) if s > 0 else -np.inf for s, n in zip(signal, noise) if n > 0]
            if noisy:
                want.update(sqnr_mean_db=np.mean(noisy), sqnr_worst_db=np.min(noisy))
        for name, value in want.items():
            near = 1e-5 if name == "scale_log2_std" else 2e-6
            if row[name] == "" or not (float(row[name]) == value or abs(float(row[name]) - value) <= near * (1 + abs(value))):
                wrong.append((name, row[name], value))
        return wrong
