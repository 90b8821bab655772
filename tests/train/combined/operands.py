"""What products take of stored tensors (configs/blocks.md): formats by operand, scales, transforms, and how each
operand is seen as lines along the sum.
"""

import fnmatch
import math

import numpy as np

from accumulators import Rule
from blocks import FLT_MAX, BlockFormat, is_block
from exact import single
from formats import Format
from products import PAIRS

SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)
SCALES_DEFAULT = {"kind": "none"}


def plain(value):
    """Whether a value of `operands` names one format, or none."""
    return not isinstance(value, dict) or "exponent" in value or "element" in value


def of_operand(value):
    """The keys of {format, rounding, tensor_scaling, overflow} that a value gives."""
    if value == "as_forward" or plain(value):
        return {"format": value}
    return value


def level(keys, name, before):
    """One level of keys (precision, or an entry of layers) over what stood before it, for one operand."""
    if plain(keys):
        return {"format": keys}
    product, tensor = name.split(".")
    found = before
    if tensor in keys:
        found = of_operand(keys[tensor])
    if product in keys:
        value = keys[product]
        if plain(value):
            found = {"format": value}
        elif tensor in value:
            found = of_operand(value[tensor])
    return found


def of_product(keys, product, before):
    """What a level of `accumulate` says of a product."""
    if isinstance(keys, dict) and "group" not in keys:
        return keys.get(product, before)
    return keys


class Operand:
    """One operand of one layer: what it is rounded to, and by which scale."""

    def __init__(self, keys, precision, scaling):
        self.format = keys.get("format", "none")
        self.none = self.format in (None, "none")
        self.as_forward = self.format == "as_forward"
        if self.none or self.as_forward:
            return
        self.block = is_block(self.format)
        self.rounding = keys.get("rounding", "nearest")
        self.stochastic = self.rounding == "stochastic"
        self.rounding = "nearest" if self.stochastic else self.rounding
        self.scaling = {**scaling, "kind": keys.get("tensor_scaling", scaling["kind"])}
        if self.block:
            self.form = BlockFormat(self.format)
            return
        self.overflow = keys.get("overflow", precision.get("overflow", "default"))
        self.scaled = self.scaling["kind"] != "none" and self.format != "fp32"
        saturate = self.overflow == "saturate" or self.overflow == "default" and self.scaled
        self.form = Format(self.format, saturate, self.rounding, self.overflow == "saturate_finite")


class Operands:
    """The part of Precision that knows operands."""

    def operand(self, name, operand):
        """The Operand of a product of the layer (forward.x ... dw.dy); None where it takes what is stored."""
        found = {}
        for keys in self.operand_levels:
            found = level(keys, operand, found)
        if name in self.spared(self.operand_levels):
            found = {}
        for entry in self.entries_with_operands(name):
            found = level(entry["operands"], operand, found)
        if found.get("format") == "as_forward":
            return self.operand(name, "forward." + operand.split(".")[1]) and Operand(found, {}, {"kind": "none"})
        made = Operand(found, self.keys, self.operand_scales(name))
        return None if made.none else made

    def head_operand(self, name, tensor):
        """The Operand of a product of attention (q, k, v, p, dy, ds); None where it takes what is stored."""
        found = {}
        levels = self.operand_levels + [e["operands"] for e in self.entries_with_operands(name)]
        for keys in levels:
            keys = keys.get("attention") if isinstance(keys, dict) else None
            if keys is not None and plain(keys):
                found = {"format": keys}
            elif keys is not None and tensor in keys:
                found = of_operand(keys[tensor])
        made = Operand(found, self.keys, self.operand_scales(name))
        return None if made.none else made

    def entries_with_operands(self, name):
        return [e for e in self.keys["layers"] if "operands" in e and fnmatch.fnmatchcase(name, e["match"])]

    def latest(self, name, key):
        """What the last of `operands` and its entries of layers says of a key."""
        levels = self.operand_levels + [e["operands"] for e in self.entries_with_operands(name)]
        found = [keys[key] for keys in levels if isinstance(keys, dict) and key in keys]
        return found[-1] if found else None

    def operand_scales(self, name):
        scales = self.latest(name, "tensor_scaling") or "none"
        return {"kind": "none", **(scales if isinstance(scales, dict) else {"kind": scales})}

    def spared(self, levels):
        """Names of the layers with weights at the ends of the network that are left as they are; None: not said."""
        said = [keys["spared"] for keys in levels if isinstance(keys, dict) and "spared" in keys]
        if not said:
            return set()
        names = [n.name for n in self.network.nodes if n.layer.decides and n.layer.weighted]
        last = said[-1].get("last", 0)
        return set(names[: said[-1].get("first", 0)]) | set(names[len(names) - last :] if last else [])

    def accumulator(self, name, product):
        """The Rule by which sums of a product of the layer are made, None: in fp32."""
        found = "none"
        for keys in self.accumulate_levels:
            found = of_product(keys, product, found)
        own = any(isinstance(keys, dict) and "spared" in keys for keys in self.accumulate_levels)
        if name in self.spared(self.accumulate_levels if own else self.operand_levels):
            found = "none"
        for entry in self.keys["layers"]:
            if "accumulate" in entry and fnmatch.fnmatchcase(name, entry["match"]):
                found = of_product(entry["accumulate"], product, found)
        return None if found == "none" else Rule(found)

    def hadamard(self, name, product):
        """(size, signs) of the transform of both operands of a product, one of which is rounded; or None."""
        keys = self.latest(name, "hadamard")
        if keys is None or product not in keys.get("products", ["dw"]):
            return None
        if not any(self.operand(name, f"{product}.{tensor}") for tensor in PAIRS[product]):
            return None
        size, signs = keys.get("size", 16), keys.get("signs", "fixed")
        return size, np.array(SIGNS * (size // 16) if signs == "fixed" else signs, np.float64)


def transform(lines, size, signs):
    """H diag(signs) v / sqrt(size) of consecutive values along the last axis; what remains of a line stays."""
    whole = lines.shape[-1] // size * size
    if whole == 0:
        return lines
    v = lines[..., :whole].reshape(*lines.shape[:-1], -1, size) * signs
    half = 1
    while half < size:  # in fp32, neighbors first
        pairs = v.reshape(*v.shape[:-1], -1, 2, half)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        v = np.stack([single(a + b), single(a - b)], -2).reshape(v.shape)
        half *= 2
    v = single(v * single(1 / math.sqrt(size)))
    return np.concatenate([v.reshape(*lines.shape[:-1], whole), lines[..., whole:]], -1)


def row_scales(amax, largest, keys):
    """s of current and row scales, by the largest magnitudes: rules te and torchao."""
    margin = 2.0 ** keys.get("margin", 0)
    with np.errstate(all="ignore"):
        if keys.get("rule", "te") == "torchao":
            s = single(largest / np.maximum(amax, 1e-12))
            s = single(np.where(np.isinf(amax), 0.0, s) / margin)
        else:
            s = np.minimum(single(single(single(largest) / amax) / margin), FLT_MAX)
            s = np.where((amax == 0) | ~np.isfinite(amax), 1.0, s)
        if keys.get("power_of_two"):
            s = np.where((s > 0) & np.isfinite(s), 2.0 ** (np.frexp(np.where(s > 0, s, 1))[1] - 1), s)
    return s
