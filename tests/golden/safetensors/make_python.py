"""Writes python.safetensors beside itself: every dtype that PyTorch can save, odd sizes, metadata.

    python make_python.py      (torch, safetensors)
"""
import os

import torch
from safetensors.torch import save_file

values = torch.tensor([0.0, -0.0, 1.0, -1.5, 65504.0, 6.103515625e-05, 5.9604644775390625e-08])
tensors = {
    "conv1.weight": torch.arange(24, dtype=torch.float32).reshape(2, 3, 2, 2) / 8,
    "values.f64": values.double() / 3,
    "values.f16": values.half(),
    "values.bf16": values.bfloat16(),
    "values.e4m3": torch.tensor([1.0, -448.0, 0.001953125]).to(torch.float8_e4m3fn),
    "values.e5m2": torch.tensor([1.0, 57344.0, -0.25]).to(torch.float8_e5m2),
    "bn1.num_batches_tracked": torch.tensor(1234567890123),
    "count.i32": torch.tensor([[-1], [2]], dtype=torch.int32),
    "bytes.u8": torch.tensor([0, 127, 255], dtype=torch.uint8),
    "flags": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 4),
    'quote " backslash \\ umlaut \u00fc': torch.tensor([2.5]),
}
here = os.path.dirname(os.path.abspath(__file__))
save_file(tensors, os.path.join(here, "python.safetensors"), metadata={"format": "pt", "k\u00fc": "v"})
