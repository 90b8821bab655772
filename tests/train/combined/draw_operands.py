"""Random operands: formats of every kind, in blocks too, scales, transforms, and layers that are spared."""

from accumulators import NAMED
from blocks import BLOCKS

MODES = ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative", "toward_odd")
ELEMENTS = (
    "fp8_e4m3",
    "fp8_e5m2",
    "fp6_e2m3",
    "fp6_e3m2",
    "fp4_e2m1",
    "fp4_e1m2",
    "int8",
    "int4",
    "mxint8",
)


class DrawOperands:
    def accumulator(self):
        if self.chance(0.75):
            return self.one(*NAMED)
        keys = {"group": self.one(1, 2, 4, 8), "fraction_bits": self.one(6, 13, 23, 25)}
        keys["accumulator"] = self.one("fp16", "bf16", "fp32", {"exponent": 8, "mantissa": 13}, "fp8_e5m2")
        self.maybe(keys, "rounding", 0.5, "nearest", "truncate")
        self.maybe(keys, "promote", 0.4, 2 * keys["group"], 0)
        return keys

    def accumulate(self, entry=False):
        if self.chance(0.5):
            return self.accumulator()
        keys = {name: self.accumulator() for name in ("forward", "dx", "dw") if self.chance(0.6)}
        if self.chance(0.2):
            keys["dx"] = "none"
        if not entry and self.chance(0.3):
            keys["spared"] = {"first": self.whole(0, 1), "last": self.whole(0, 1)}
        return keys or self.accumulator()

    def accumulates(self, keys, wanted=False):
        """precision.accumulate and its entries, where scales are those that the reference adds up."""
        wanted = wanted or self.chance(0.25)
        text = str(keys)
        beyond = ("'tensor_scale': 'row'", "'scale': 'fp32'", "modelopt", "four_over_six", "fp8_block128", "preset")
        if self.chance(0.5):
            beyond += ("'row'", "torchao")
        if not wanted or any(word in text for word in beyond):
            return
        keys["accumulate"] = self.accumulate()
        for entry in keys.get("layers", []):
            if self.chance(0.2):
                entry["accumulate"] = self.accumulate(entry=True)
        for change in keys.get("schedule", []):
            if self.chance(0.3):
                change["accumulate"] = self.accumulate(entry=True)

    def block_format(self):
        if self.chance(0.4):
            return self.one(*BLOCKS)
        scale = self.one("e8m0", "e8m0", "fp8_e4m3", "fp8_e4m3", "fp32", "ue5m3")
        keys = {"element": "fp4_e2m1" if scale == "fp8_e4m3" else self.one(*ELEMENTS)}
        if scale != "e8m0" or self.chance(0.3):
            keys["scale"] = scale
        self.maybe(keys, "block", 0.6, 1, 2, 3, 4, 8, 16, [1, 4], [2, 2], [4, 4], [16, 16])
        if scale == "e8m0":
            self.maybe(keys, "rule", 0.7, "floor", "ceil", "even", "rceil")
        elif scale == "fp8_e4m3":
            self.maybe(keys, "rule", 0.7, "te", "four_over_six", "torchao", "modelopt")
            rule, tile = keys.get("rule", "te"), isinstance(keys.get("block"), list) and keys["block"][0] > 1
            if rule in ("te", "four_over_six") and not tile:
                self.maybe(keys, "tensor_scale", 0.4, "row", *([False] if rule == "te" else []))
            if rule == "four_over_six":
                self.maybe(keys, "error", 0.5, "mse", "mae")
                self.maybe(keys, "top", 0.5, 448, 256)
        elif scale == "fp32":
            self.maybe(keys, "power_of_two", 0.6, True)
        return keys

    def operand_format(self):
        return self.block_format() if self.chance(0.5) else self.format()

    def operand_value(self, scales, forward=False):
        """What one key of operands may be."""
        if forward and self.chance(0.2):
            return "as_forward"
        if self.chance(0.1):
            return "none"
        form = self.operand_format()
        if self.chance(0.6):
            return form
        keys = {"format": form}
        if isinstance(form, str) and form in BLOCKS or isinstance(form, dict) and "element" in form:
            return keys
        self.maybe(keys, "tensor_scaling", 0.6, *scales)
        self.maybe(keys, "overflow", 0.3, "format", "saturate", "default", "none", "saturate_finite")
        self.maybe(keys, "rounding", 0.25, *MODES)
        return keys

    def operands(self, entry=False):
        """precision.operands, or those of an entry of layers."""
        if self.chance(0.25):
            return self.operand_format()
        keys, scaling, scales = {}, None, ("none", "current", "row")
        if not entry and self.chance(0.5):
            kind = self.one("current", "current", "row", "row", "delayed", "static")
            scaling = {"kind": kind}
            self.maybe(scaling, "power_of_two", 0.5, True)
            if kind == "static":
                scaling["values"] = {name: self.one(2, 0.5, 64, 3) for name in ("x", "w", "dy") if self.chance(0.7)}
            else:
                self.maybe(scaling, "margin", 0.3, 1, 2)
            if kind in ("current", "row"):
                self.maybe(scaling, "rule", 0.3, "torchao", "te")
            if kind == "delayed":
                self.maybe(scaling, "history", 0.5, 1, 2)
                self.maybe(scaling, "amax", 0.5, "most_recent", "max")
            scales = ("none", "current", "row", kind)
            if scaling == {"kind": "current"} and self.chance(0.5):
                scaling = "current"
        for tensor in ("x", "w", "dy"):
            self.maybe(keys, tensor, 0.6, self.operand_value(scales))
        for product, pair in (("forward", ("x", "w")), ("dx", ("dy", "w")), ("dw", ("x", "dy"))):
            if self.chance(0.3):
                forward = {"dx": "w", "dw": "x"}.get(product)
                own = {t: self.operand_value(scales, t == forward) for t in pair if self.chance(0.7)}
                keys[product] = self.one("none", own or "none", own or "none", self.operand_format())
        if self.chance(0.35):
            plain = lambda: {"format": self.format(), "tensor_scaling": "none"}
            of = {t: self.operand_value(scales) for t in ("q", "k", "v", "dy") if self.chance(0.5)}
            of.update({t: plain() for t in ("p", "ds") if self.chance(0.5)})
            keys["attention"] = of or "none"
        if not keys:
            keys["x"] = self.operand_format()
        if entry:
            self.maybe(keys, "tensor_scaling", 0.2, "current", "row", {"kind": "none"})
            for product in ("dx", "dw"):  # refused beside a transform
                if isinstance(keys.get(product), dict):
                    keys[product] = {t: v for t, v in keys[product].items() if v != "as_forward"} or "none"
            return keys
        if scaling:
            keys["tensor_scaling"] = scaling
        if self.chance(0.2):
            keys["hadamard"] = {}
            self.maybe(keys["hadamard"], "products", 0.6, ["forward"], ["dx", "dw"], ["forward", "dx", "dw"])
            if self.chance(0.2):
                keys["hadamard"]["size"] = 64
            if self.chance(0.3):
                size = keys["hadamard"].get("size", 16)
                keys["hadamard"]["signs"] = [self.one(1, -1) for _ in range(size)]
            for product in ("dx", "dw"):  # refused beside as_forward
                if isinstance(keys.get(product), dict):
                    keys[product] = {t: v for t, v in keys[product].items() if v != "as_forward"} or "none"
        if self.chance(0.2):
            keys["spared"] = {}
            self.maybe(keys["spared"], "first", 0.6, 1, 2)
            self.maybe(keys["spared"], "last", 0.6, 1, 2)
        return keys
