"""Formats of tensors, by PyTorch's dtypes and by ada-train's names."""
import dataclasses

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ada_train import formats
from ada_train.counting import Grid

DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def is_plain(x):
    """Whether the tensor is of PyTorch's own class, whose values lie at its address."""
    return type(x) in (torch.Tensor, torch.nn.Parameter)


def unwrapped(x):
    """The tensor that holds the values of one whose class wraps it, as a weight of torchao's; `x`
    itself where its values are others than those of a single tensor within."""
    while not is_plain(x) and is_traceable_wrapper_subclass(x):
        inner = [getattr(x, name) for name in x.__tensor_flatten__()[0]]
        if len(inner) != 1 or (inner[0].shape, inner[0].dtype) != (x.shape, x.dtype):
            break
        x = inner[0]
    return x


@dataclasses.dataclass(frozen=True)
class Named:
    """A format with the name that the CSVs carry."""
    name: str
    grid: Grid


def named(text, saturate=False):
    """The format that a name ("fp8_e5m2") or a map ("{exponent: 4, mantissa: 3}") says."""
    form = formats.find(text)
    if form is None:
        raise ValueError(f"format '{text}': expected one of {', '.join(formats.NAMED)}, or "
                         "{exponent: E, mantissa: M}")
    if saturate and text != "fp32":
        form = dataclasses.replace(form, saturate=True)
    return Named(str(text).strip(), Grid(form))


_BY_DTYPE = {dtype: named(name) for dtype, name in DTYPES.items()}


def of(*dtypes):
    """The narrowest of the dtypes: that of the one rounding of a value between them."""
    narrow = [dtype for dtype in dtypes if dtype != torch.float32]
    return _BY_DTYPE[narrow[0] if narrow else torch.float32]
