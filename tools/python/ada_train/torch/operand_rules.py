"""What rounding an operand of a converted layer does to it, by the layer's own rule: of torchao's
float8 and INT8 as torchao 0.18.0 computes them, in its operations and their order; MX by
libada_scaling."""
import math
import sys

import torch

from ada_train import counting, native
from ada_train.torch import formats

_TYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class Rounded:
    """`taken`: as the product takes the values of `x`, in fp64; `figures`: the columns of blocks.csv
    that BlockFigures fill; `own`: what they were multiplied by, where all have one scale."""

    def __init__(self, x, taken, figures, subnormal, own=1.0):
        self.taken, self._figures, self._x = taken, figures, x
        self._subnormal, self._own = subnormal, own

    def values(self):
        """As BlockFigures has it."""
        return dict(self._figures)

    def row(self, scale):
        """The columns of underflow.csv; `scale`: S that the tensor carries."""
        f = self._figures
        grid = formats.of(torch.float32).grid
        made = counting.count(grid, self._x.contiguous(), torch).row(scale)
        lost = sum(f["lost_" + cause] for cause in (
            "beside_largest", "scale_rounding", "scale_floor", "tensor_scale"))
        after = int((self.taken == 0).sum())
        nonzero = f["numel"] - f["zeros"]
        noise = (self._x.double() - self.taken).square()
        return {**made, "scale": scale * self._own, "zeros_after": after, "underflow": lost,
                "underflow_pct_nonzero": 100 * lost / nonzero if nonzero else math.nan,
                "underflow_pct_numel": 100 * lost / f["numel"] if f["numel"] else math.nan,
                "below_min_pct": 100 * after / f["numel"] if f["numel"] else math.nan,
                "subnormal": self._subnormal, "overflow": f["saturated"],
                "mse": float(noise.mean()) / scale ** 2 if f["numel"] else math.nan,
                "sqnr_db": f["sqnr_db"]}


def _decibels(signal, noise):
    return math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal > 0 else -math.inf


def _figures(x, values, factor, top, floor):
    """`factor`: what values are multiplied by, [1, 1], [rows, 1] or [1, columns]; `top`: the largest
    element with the first magnitude that saturates and the largest that becomes zero; `floor`:
    where the scale stands at its least."""
    wide, magnitude = x.double(), x.double().abs()
    largest, saturates, vanishes = top
    dims = tuple(d for d in (0, 1) if factor.shape[d] == 1)
    amax = magnitude.amax(dims, keepdim=True) if x.numel() else magnitude.new_zeros(factor.shape)
    lost = (magnitude > 0) & torch.isfinite(wide) & (values == 0)
    beside = lost & (magnitude * (largest / amax) <= vanishes)
    at_floor = lost & ~beside & floor
    fine = (amax > 0) & torch.isfinite(amax)
    logs = -torch.log2(factor.double().expand(amax.shape)[fine])
    signal, noise = (t.sum(dims, keepdim=True)[fine] for t in (
        wide.square(), (wide - values).square()))
    some = noise > 0
    single = [_decibels(s, n) for s, n in zip(signal[some].tolist(), noise[some].tolist())]
    nan = math.nan
    found = {"numel": x.numel(), "zeros": (magnitude == 0).sum(), "inf": torch.isinf(wide).sum(),
             "nan": torch.isnan(wide).sum(), "lost_beside_largest": beside.sum(),
             "lost_scale_floor": at_floor.sum(),
             "lost_scale_rounding": (lost & ~beside & ~at_floor).sum(), "lost_tensor_scale": 0,
             "saturated": (torch.isfinite(wide) & (magnitude * factor > saturates)).sum(),
             "blocks": amax.numel(), "zero_blocks": (amax == 0).sum(),
             "broken_blocks": (~torch.isfinite(amax)).sum(),
             "scale_floor": (floor.expand(amax.shape) & fine).sum(), "scale_ceiling": 0}
    found = {name: int(value) for name, value in found.items()}
    return {**found, "scale_log2_min": float(logs.min()) if len(logs) else nan,
            "scale_log2_max": float(logs.max()) if len(logs) else nan,
            "scale_log2_mean": float(logs.mean()) if len(logs) else nan,
            "scale_log2_std": float(logs.std(unbiased=False)) if len(logs) else nan,
            "sqnr_db": _decibels(float(signal.sum()), float(noise.sum())) if len(signal) else nan,
            "sqnr_mean_db": sum(single) / len(single) if single else nan,
            "sqnr_worst_db": min(single, default=nan)}


def _float8(x, how, axis):
    kind = _TYPES[how.format]
    limits = torch.finfo(kind)
    amax = x.abs().amax() if how.granularity == "tensor" else x.abs().amax(axis, keepdim=True)
    amax = amax.double().reshape(amax.shape if amax.dim() else (1, 1))
    factor = (limits.max / amax.clamp(min=1e-12)).float()
    if how.rule.endswith("power of two"):
        factor = torch.exp2(torch.floor(torch.log2(factor)))
    codes = (x.float() * factor).clamp(-limits.max, limits.max).to(kind)
    step = limits.smallest_normal * limits.eps  # of subnormals
    top = limits.max, limits.max * (1 + limits.eps / 4), step / 2
    values = codes.double() / factor.double()
    small = codes.float().abs()
    subnormal = int(((small > 0) & (small < limits.smallest_normal)).sum())
    own = float(factor) if factor.numel() == 1 else 1.0
    return Rounded(x.float(), values, _figures(x, values, factor, top, amax < 1e-12), subnormal,
                   own)


def _int8(x, how, axis):
    scale = x.abs().amax(axis, keepdim=True) / 127  # rounded to the tensor's type
    factor = 1.0 / scale.float().clamp(1e-12)
    codes = (x.float() * factor).round().clamp(-128, 127)
    values = codes.double() * scale.double()
    found = _figures(x, values, factor, (127.0, 127.5, 0.5), scale.float() < 1e-12)
    return Rounded(x.float(), values, found, 0)


_blocks = {}  # rule -> BlockFormat


def _mx(x, how, operand):
    if how.rule not in _blocks:
        _blocks[how.rule] = native.BlockFormat(
            "mxfp8_e4m3" if how.rule == "floor" else
            f"{{element: {how.format}, rule: {how.rule}}}")
    values = x.detach().float().contiguous()
    host = values.cpu()
    decoded = torch.empty_like(host)
    figures = _blocks[how.rule].quantize(
        host.data_ptr(), decoded.data_ptr(), host.shape, weight=operand.endswith(".w"),
        linear=True, along=operand in ("forward.x", "forward.w", "dx.dy"),
        bf16=x.dtype == torch.bfloat16)
    decoded = decoded.double().to(x.device)
    return Rounded(values, decoded, figures.values(), _subnormal(values, decoded, how, operand))


def _subnormal(x, decoded, how, operand):
    """How many elements of e4m3 are subnormal: below 2^-6 times the scale of their block."""
    if axis_of(operand) == 0:
        x, decoded = x.t(), decoded.t()
    short = -x.shape[1] % 32
    x, decoded = (torch.nn.functional.pad(t.double(), (0, short)).abs().unflatten(1, (-1, 32))
                  for t in (x, decoded))
    amax = x.amax(2, keepdim=True)
    fraction, exponent = torch.frexp(amax / 448 if how.rule == "rceil" else amax)
    exponent = exponent - (fraction == 0.5).int() if how.rule == "rceil" else exponent - 9
    smallest = torch.ldexp(torch.full_like(amax, 2.0 ** -6), exponent)
    return int(((decoded > 0) & (decoded < smallest)).sum())


def axis_of(operand):
    """What the product sums over: of x [tokens, inputs], w [outputs, inputs] or dy [tokens,
    outputs]."""
    return 1 if operand in ("forward.x", "forward.w", "dx.dy") else 0


def rounded(x, how, operand):
    """Rounded of a matrix; None where the rule cannot be repeated."""
    if how.format in _TYPES and how.granularity in ("tensor", "row"):
        return _float8(x, how, axis_of(operand))
    if how.format == "int8":
        return _int8(x, how, axis_of(operand))
    if how.granularity == "block32" and how.format == "fp8_e4m3":
        return _mx(x, how, operand)
    return None


def by_the_library(x, how, operand):
    """The same values as torchao's own function makes them, in fp64; None where it is not to be
    had."""
    if how.format in _TYPES and how.granularity != "block32":
        scaling = sys.modules.get("torchao.float8.float8_scaling_utils")
        config = sys.modules.get("torchao.float8.config")
        if scaling is None or config is None:
            return None
        row = how.granularity == "row"
        made = scaling.hp_tensor_to_float8_dynamic(
            x, _TYPES[how.format], None, scaling_granularity=config.ScalingGranularity(
                "axiswise" if row else "tensorwise"),
            axiswise_dim=-axis_of(operand) if row else None,  # -1: the last
            round_scales_to_power_of_2=how.rule.endswith("power of two"))
        return made._data.double() / made._scale.double()
    if how.format == "int8":
        library = sys.modules.get("torchao.prototype.quantized_training.int8")
        if library is None:
            return None
        across = axis_of(operand) == 0
        codes, scale = library.quantize_int8_rowwise(x.t() if across else x)
        made = codes.double() * scale.double().view(-1, 1)
        return made.t() if across else made
    library = sys.modules.get("torchao.prototype.mx_formats.mx_tensor")
    modes = sys.modules.get("torchao.prototype.mx_formats.config")
    if library is None or modes is None or x.shape[axis_of(operand)] % 32:
        return None
    across = axis_of(operand) == 0
    made = library.MXTensor.to_mx((x.t() if across else x).contiguous(), torch.float8_e4m3fn, 32,
                                  modes.ScaleCalculationMode(how.rule)).dequantize(torch.float32)
    return (made.t() if across else made).double()
