"""What linear layers that torchao converted compute in: format, granularity and rule of each
operand of the three products, y = x w, dx = dy w and dw = x dy. Classes are known by their names and
documented attributes, so nothing of torchao is imported."""
import dataclasses
import sys

import torch
from torch import nn

from ada_train.torch import converted_te
from ada_train.torch.converted_parts import (NONE, OPERANDS, PLAIN, PRODUCTS, Conversion, Operand,
                                             word_of)

_FLOAT8 = {"forward.x": "cast_config_input", "forward.w": "cast_config_weight",
           "dx.dy": "cast_config_grad_output", "dx.w": "cast_config_weight_for_grad_input",
           "dw.x": "cast_config_input_for_grad_weight",
           "dw.dy": "cast_config_grad_output_for_grad_weight"}
_GEMMS = {"forward": "gemm_config_output", "dx": "gemm_config_grad_input",
          "dw": "gemm_config_grad_weight"}
_NAMES = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2",
          torch.float8_e4m3fnuz: "fp8_e4m3fnuz", torch.float8_e5m2fnuz: "fp8_e5m2fnuz"}
# Parts of torchao that only trainings import.
_TRAINING = ("torchao.float8.float8_linear", "torchao.prototype.moe_training.tensor",
             "torchao.prototype.quantized_training.int8_mixed_precision")


def _of_products(made, **left_out):
    """`made` for the operands of the products that are not left out."""
    return {operand: made if left_out.get(operand.split(".")[0], True) else NONE
            for operand in OPERANDS}


def _float8(config):
    operands, two = {}, bool(config.round_scales_to_power_of_2)
    for operand, name in _FLOAT8.items():
        cast = getattr(config, name)
        if word_of(cast.scaling_type) == "disabled":
            operands[operand] = NONE
            continue
        form = _NAMES.get(cast.target_dtype, str(cast.target_dtype))
        top = torch.finfo(cast.target_dtype).max
        rule = f"max(amax, 1e-12) / {top:g}"
        operands[operand] = Operand(
            form, {"tensorwise": "tensor", "axiswise": "row"}.get(
                word_of(cast.scaling_granularity), word_of(cast.scaling_granularity)),
            f"{rule}, up to a power of two" if two else rule, "nearest")
    sums = {product: "fp32, of decoded values" if config.emulate else
            "tensor cores, fast accumulation" if getattr(config, name).use_fast_accum else
            "tensor cores, sums promoted to fp32" for product, name in _GEMMS.items()}
    # PyTorch multiplies rows with scales of their own in bf16, whatever the training computes in.
    through = {} if config.emulate else {
        product: torch.bfloat16 for product in PRODUCTS
        if any(operands[operand].granularity == "row" for operand in OPERANDS
               if operand.startswith(product + "."))}
    return Conversion("float8", "Float8Linear", operands, sums, through=through)


def _mx(by, config, bias):
    mode = word_of(config.scale_calculation_mode)
    operands = _of_products(Operand("fp8_e4m3", "block32", mode, "nearest"),
                            dw=not config.wgrad_with_hp)
    emulated = word_of(config.kernel_preference) == "emulated"
    return Conversion("mx", by, operands, dict.fromkeys(
        PRODUCTS, "fp32, of decoded values" if emulated else "tensor cores"), bias=bias)


def _int8(by, config):
    def wants(name):
        return bool(getattr(config, name, True))
    operands = _of_products(
        Operand("int8", "row", "amax / 127 in the tensor's type", "nearest"),
        forward=wants("output"), dx=wants("grad_input"), dw=wants("grad_weight"))
    return Conversion("int8", by, operands, {
        product: "int32" if operands[product + "." + tensor].format == "int8" else "of PyTorch"
        for product, tensor in (("forward", "x"), ("dx", "dy"), ("dw", "x"))}, always=False)


def _nvfp4(by):
    block = {"rule": "e4m3 of amax / 6, and one fp32 scale of the tensor", "rounding": "nearest"}
    x = Operand("nvfp4", "block16", **block)
    w = Operand("nvfp4", "tile16", **block)
    drawn = Operand("nvfp4", "block16", block["rule"], "by chance", counted=False)
    turned = Operand("nvfp4", "block16", block["rule"], "nearest, after Hadamard", counted=False)
    return Conversion("nvfp4", by, {
        "forward.x": x, "forward.w": w, "dx.dy": drawn, "dx.w": w, "dw.x": turned,
        "dw.dy": dataclasses.replace(drawn, rounding="by chance, after Hadamard")},
        dict.fromkeys(PRODUCTS, "tensor cores"))


def _is_of_torchao(kind):
    return (kind.__module__ or "").startswith("torchao.")


def conversion_of(module):
    """How the module computes; None of one that nobody converted."""
    of_te = converted_te.conversion_of(module)
    if of_te is not None:
        return of_te
    kind = next((kind for kind in type(module).__mro__ if _is_of_torchao(kind)), None)
    name = kind.__name__ if kind is not None else ""
    if name == "Float8Linear":
        return _float8(module.config)
    if name == "MXFP8Linear":
        return _mx(name, module, True)
    if name == "Int8MixedPrecisionTrainingLinear":
        return _int8(name, module.config)
    if name == "NVFP4Linear":
        return _nvfp4(name)
    weight = getattr(module, "_parameters", {}).get("weight")
    if not isinstance(module, nn.Linear) or weight is None:
        return None
    held = next((kind for kind in type(weight).__mro__ if _is_of_torchao(kind)), None)
    if held is None:
        return None
    if held.__name__ == "MXFP8TrainingWeightWrapperTensor":
        return _mx(held.__name__, weight.config, False)
    if held.__name__ == "Int8MixedPrecisionTrainingLinearWeight":
        return _int8(held.__name__, weight.config)
    return None


def plain_weight(weight):
    """The values of a weight that torchao wrapped."""
    for name in ("_data", "_tensor"):  # the latter under FSDP's float8 all-gather
        weight = getattr(weight, name, weight)
    return weight.detach()


def linear_layers(model, names):
    """[(name, module)] of what a table is about."""
    return [(names(path), module) for path, module in model.named_modules()
            if isinstance(module, nn.Linear) or conversion_of(module) is not None]


def _class_of_weight(module):
    """Without asking a parametrized module, which would compute it."""
    weight = module._parameters.get("weight")
    return "Tensor" if weight is None else type(weight.data).__name__


class Table(list):
    """Of recorder.table(): a map for each operand of each linear layer. str() is a line for each
    product of layers that compute alike."""

    def __init__(self, layers, idle=()):
        """layers: [(name, module)]; idle: names of those that compute as if nobody had converted
        them."""
        super().__init__()
        self._lines, alike = [], {}
        for name, module in layers:
            made, kind = conversion_of(module), type(module).__name__
            if name in idle:
                made = dataclasses.replace(made, kind="idle", operands=PLAIN,
                                           sums=dict.fromkeys(PRODUCTS, "of PyTorch"))
            alike.setdefault((kind, str(made)), (made, kind, []))[2].append(name)
            for operand in OPERANDS:
                how = made.operands[operand] if made else NONE
                self.append({
                    "layer": name, "class": kind,
                    "weight_class": _class_of_weight(module),
                    "converted": made is not None, "operand": operand, "format": how.format,
                    "granularity": how.granularity, "scale": how.rule, "rounding": how.rounding,
                    "accumulator": made.sums[operand.split(".")[0]] if made else "of PyTorch"})
        self._converted = sum(len(names) for made, _, names in alike.values() if made)
        self._layers = len(layers)
        for made, kind, names in alike.values():
            self._tell(made, kind, names)
        left = [name for made, _, names in alike.values() if not made for name in names]
        self._verdict(left)

    def _tell(self, made, kind, names):
        text = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        by = kind if made is None or made.by == kind else f"{kind} of {made.by}"
        if made is None:
            self._lines.append(f"{text}: {by}, not converted")
            return
        if made.kind == "idle":
            self._lines.append(f"{text}: {by}, which has no part in what they compute")
            return
        self._lines.append(f"{text}: {by}")
        for product in PRODUCTS:
            found = [f"{operand.split('.')[1]} {made.operands[operand].text()}"
                     for operand in OPERANDS if operand.startswith(product + ".")]
            self._lines.append(f"  {product}: {', '.join(found)}; sums: {made.sums[product]}")
        rules = {f"{how.format} {how.granularity}: {how.rule}": None
                 for how in made.operands.values() if how.format != "none"}
        self._lines += [f"  scale of {rule}" for rule in rules]

    def _verdict(self, left):
        some = f"{self._converted} of {self._layers} linear layers are converted"
        if self._converted and left:
            self._lines.append(f"{some}; left out: {', '.join(left)}")
        elif self._converted:
            self._lines.append(some)
        elif any(name in sys.modules for name in _TRAINING):
            self._lines.append(f"{some}, though torchao's training was loaded: a filter that "
                               "matched nothing leaves the model as it was")

    @property
    def converted(self):
        """How many layers are."""
        return self._converted

    @property
    def says_something(self):
        return self._converted > 0 or "though" in (self._lines or [""])[-1]

    def __str__(self):
        return "\n".join(self._lines)
