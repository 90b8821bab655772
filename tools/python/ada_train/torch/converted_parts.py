"""The parts of which it is said what a layer computes in."""
import dataclasses

OPERANDS = ("forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy")
PRODUCTS = ("forward", "dx", "dw")


@dataclasses.dataclass(frozen=True)
class Operand:
    """`granularity`: what shares a scale: tensor, row (along what the product sums over), block32,
    block16, tile16; `rule`: what a value is divided by; `counted`: its rounding can be repeated."""
    format: str = "none"
    granularity: str = ""
    rule: str = ""
    rounding: str = ""
    counted: bool = True

    def text(self):
        if self.format == "none":
            return "as it is stored"
        return f"{self.format} {self.granularity}" + (
            "" if self.rounding == "nearest" else f" ({self.rounding})")


NONE = Operand()
PLAIN = dict.fromkeys(OPERANDS, NONE)


@dataclasses.dataclass(frozen=True)
class Conversion:
    """`kind`: float8, mx, int8, nvfp4; `by`: the class that converts, of the module or its weight;
    `operands`, `sums`: by operand, by product; `always`: all products are computed, whatever needs
    a gradient; `bias`: whether it has a part in the output; `through`: of a product the dtype that
    its result is rounded to on its way."""
    kind: str
    by: str
    operands: dict
    sums: dict
    always: bool = True
    bias: bool = True
    through: dict = dataclasses.field(default_factory=dict)

    @property
    def counted(self):
        """Whether all of its roundings can be repeated."""
        return all(operand.counted for operand in self.operands.values())


def word_of(value):
    """Of an enumeration its value."""
    return str(getattr(value, "value", value))
