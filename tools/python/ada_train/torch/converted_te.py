"""What modules of Transformer Engine compute in, by the recipe that they were last called under: the
documented attributes of its classes. No GPU has been there to see the package itself."""
from ada_train.torch.converted_parts import NONE, PRODUCTS, Conversion, Operand, word_of

_MODULES = ("Linear", "LayerNormLinear", "LayerNormMLP", "GroupedLinear")


def _operands(x, w, dy, dw_x=None, dw_dy=None):
    return {"forward.x": x, "forward.w": w, "dx.dy": dy, "dx.w": w, "dw.x": dw_x or x,
            "dw.dy": dw_dy or dy}


def _by_tensor(recipe, rule):
    """fp8_format: E4M3 both ways, or HYBRID: gradients in e5m2."""
    hybrid = "HYBRID" in str(getattr(recipe, "fp8_format", "HYBRID")).upper()
    x, dy = (Operand(form, "tensor", rule, "nearest", counted=False)
             for form in ("fp8_e4m3", "fp8_e5m2" if hybrid else "fp8_e4m3"))
    return _operands(x, x, dy)


def _delayed(recipe):
    length = getattr(recipe, "amax_history_len", 1)
    how = word_of(getattr(recipe, "amax_compute_algo", "max"))
    return _by_tensor(recipe, f"{how} of the last {length} amax / largest, margin "
                              f"{getattr(recipe, 'margin', 0)}")


def _mx(_):
    one = Operand("fp8_e4m3", "block32", "rceil", "nearest", counted=False)
    return _operands(one, one, one)


def _blocks(_):
    row, tile = (Operand("fp8_e4m3", shape, "amax / 448", "nearest", counted=False)
                 for shape in ("block128", "tile128"))
    return _operands(row, tile, row)


def _nvfp4(recipe):
    def off(name):
        return bool(getattr(recipe, "disable_" + name, False))
    rule = "e4m3 of amax / 6, and one fp32 scale of the tensor"
    chance = "nearest" if off("stochastic_rounding") else "by chance"
    turned = "" if off("rht") else ", after Hadamard"

    def operand(shape, rounding):
        return Operand("nvfp4", shape, rule, rounding, counted=False)
    return _operands(operand("block16", "nearest"),
                     operand("block16" if off("2d_quantization") else "tile16", "nearest"),
                     operand("block16", chance), operand("block16", "nearest" + turned),
                     operand("block16", chance + turned))


_RECIPES = {"DelayedScaling": _delayed, "MXFP8BlockScaling": _mx, "Float8BlockScaling": _blocks,
            "Float8CurrentScaling": lambda recipe: _by_tensor(recipe, "amax / largest"),
            "NVFP4BlockScaling": _nvfp4}


def conversion_of(module):
    """How a module of Transformer Engine computes; None of any other one."""
    kind = next((kind for kind in type(module).__mro__ if kind.__name__ in _MODULES and (
        kind.__module__ or "").startswith("transformer_engine.")), None)
    if kind is None:
        return None
    meta = getattr(module, "fp8_meta", None) or {}
    recipe = meta.get("recipe") if getattr(module, "fp8", True) else None
    make = next((_RECIPES[name.__name__] for name in type(recipe).__mro__
                 if name.__name__ in _RECIPES), None)
    operands = make(recipe) if make else dict.fromkeys(_operands(NONE, NONE, NONE), NONE)
    sums = "tensor cores" if make else "of PyTorch"
    return Conversion("te", kind.__name__, operands, dict.fromkeys(PRODUCTS, sums))
