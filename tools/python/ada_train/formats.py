"""Number formats by the name that the CSVs carry: where values vanish, lose bits and overflow.

The same definitions as src/number/number_format.h; thresholds are those of rounding to nearest even.
"""
import dataclasses
import math
import re


@dataclasses.dataclass(frozen=True)
class Format:
    """A binary floating-point format; the fields are those of the YAML map."""
    exponent: int
    mantissa: int
    bias: int = None
    has_inf: bool = True
    has_nan: bool = True
    negative_zero: bool = True
    saturate: bool = False
    signed: bool = True

    def __post_init__(self):
        if self.bias is None:
            object.__setattr__(self, "bias", 2 ** (self.exponent - 1) - 1)

    @property
    def smallest_normal(self):
        return 2.0 ** ((1 if self.signed else 0) - self.bias)

    @property
    def smallest_subnormal(self):
        return self.smallest_normal * (2.0 ** -self.mantissa if self.signed else 1.0)

    @property
    def underflow(self):
        """The largest magnitude that becomes zero: half the smallest, a tie to the even zero."""
        return self.smallest_subnormal / 2 if self.signed else 0.0

    def largest_parts(self):
        """The largest value as integer and exponent of two."""
        codes = 2 ** (self.exponent + self.mantissa)
        one = 2 ** self.mantissa
        if self.has_inf:
            code = codes - one - 1
        else:
            code = codes - (2 if self.has_nan and self.negative_zero else 1)
        field, rest = divmod(code, one)
        subnormal = field == 0 and self.signed
        power = (1 if subnormal else field) - self.bias - self.mantissa
        return (rest if subnormal else one + rest), power

    @property
    def largest(self):
        integer, power = self.largest_parts()
        return math.ldexp(integer, power)

    @property
    def overflow(self):
        """The magnitude from which on values overflow (where the largest is even: only values above
        it do); inf for fp32."""
        integer, power = self.largest_parts()
        if integer >= 2 ** 23:
            return math.inf
        return math.ldexp(2 * integer + 1, power - 1)


NAMED = {
    "fp32": Format(8, 23),
    "fp16": Format(5, 10),
    "bf16": Format(8, 7),
    "cb16": Format(6, 9),
    "fp8_e4m3": Format(4, 3, has_inf=False),
    "fp8_e5m2": Format(5, 2),
    "fp8_e3m4": Format(3, 4),
    "fp8_e4m3_ieee": Format(4, 3),
    "fp8_e4m3_fnuz": Format(4, 3, 8, has_inf=False, negative_zero=False),
    "fp8_e5m2_fnuz": Format(5, 2, 16, has_inf=False, negative_zero=False),
    "fp8_e4m3_b11fnuz": Format(4, 3, 11, has_inf=False, negative_zero=False),
    "fp6_e2m3": Format(2, 3, has_inf=False, has_nan=False),
    "fp6_e3m2": Format(3, 2, has_inf=False, has_nan=False),
    "fp4_e2m1": Format(2, 1, has_inf=False, has_nan=False),
    "fp4_e1m2": Format(1, 2, 1, has_inf=False, has_nan=False),
    "int8": Format(1, 6, -5, has_inf=False, has_nan=False),
    "int4": Format(1, 2, -1, has_inf=False, has_nan=False),
    "e8m0": Format(8, 0, has_inf=False, signed=False),
}
_ENTRY = re.compile(r"\s*(\w+)\s*:\s*(-?\w+)\s*$")
_FIELDS = {field.name for field in dataclasses.fields(Format)}


def find(name):
    """The format of a name or of a map such as "{exponent: 4, mantissa: 3, bias: 7}"; None where
    the text is neither."""
    text = str(name).strip()
    if text in NAMED:
        return NAMED[text]
    if not (text.startswith("{") and text.endswith("}")):
        return None
    values = {}
    for entry in text[1:-1].split(","):
        match = _ENTRY.match(entry)
        if match is None or match.group(1) not in _FIELDS:
            return None
        word = match.group(2)
        try:
            values[match.group(1)] = {"true": True, "false": False}.get(word, None)
            if values[match.group(1)] is None:
                values[match.group(1)] = int(word)
        except ValueError:
            return None
    if not {"exponent", "mantissa"} <= set(values):
        return None
    return Format(**values) if _is_possible(values) else None


def _is_possible(values):
    """Whether ada-train takes the map: at most 8 exponent and 23 mantissa bits."""
    counts = [values["exponent"], values["mantissa"], values.get("bias", 0)]
    if any(isinstance(count, bool) for count in counts):
        return False
    return 1 <= counts[0] <= 8 and 0 <= counts[1] <= 23 and abs(counts[2]) < 1000
