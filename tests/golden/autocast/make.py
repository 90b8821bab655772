"""Writes autocast.csv: what torch.autocast makes of each kind of layer on CUDA, asked of torch
itself with tensors that have a device and no data, so that no GPU is needed; and on the CPU, in bf16.

usage: make.py [FILE]      (torch and torchvision)
"""
import pathlib
import sys

import torch
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F


def kinds(empty, other):
    """`empty(sizes)`: a parameter in fp32; `other`: a value in fp16, of a second input."""
    return {
        "conv2d": lambda x: F.conv2d(x, empty(4, 8, 3, 3), empty(4)),
        "conv_transpose2d": lambda x: F.conv_transpose2d(x, empty(8, 4, 2, 2), empty(4), 2),
        "linear": lambda x: F.linear(x.flatten(1), empty(4, 288), empty(4)),
        "batch_norm": lambda x: F.batch_norm(x, None, None, empty(8), empty(8), True),
        "layer_norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (8,), empty(8), empty(8)),
        "group_norm": lambda x: F.group_norm(x, 2, empty(8), empty(8)),
        "channel_scale": lambda x: x * empty(8, 1, 1),
        "affine": lambda x: x * 0.5 + 1,
        "relu": F.relu, "relu6": F.relu6, "hardtanh": F.hardtanh, "leaky_relu": F.leaky_relu,
        "sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu,
        "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "gelu": F.gelu,
        "softplus": F.softplus, "elu": F.elu, "prelu": lambda x: F.prelu(x, empty(8)),
        "max_pool": lambda x: F.max_pool2d(x, 2),
        "avg_pool": lambda x: F.avg_pool2d(x, 2),
        "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 2),
        "global_avg_pool": lambda x: x.mean([2, 3]),
        "add": lambda x: x + other,
        "concat": lambda x: torch.cat([x, other], 1),
        "multiply": lambda x: x * other,
        "slice": lambda x: x[:, 2:5],
        "flatten": lambda x: x.flatten(1),
        "dropout": lambda x: F.dropout(x, 0.5),
        "stochastic_depth": lambda x: torchvision.ops.stochastic_depth(x, 0.5, "row"),
        "upsample": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        "lrn": lambda x: F.local_response_norm(x, 5),
        "l2_normalize": lambda x: F.normalize(x) * empty(8, 1, 1),
        "embedding": lambda x: F.embedding(torch.zeros(2, 3, dtype=torch.long, device=x.device),
                                           empty(4, 8)),
        "position_embedding": lambda x: x.flatten(2) + empty(8, 36),
        "class_token": lambda x: torch.cat([empty(2, 8, 1), x.flatten(2)], 2),
        "rms_norm": lambda x: F.rms_norm(x.permute(0, 2, 3, 1), (8,), empty(8)),
        "rope": lambda x: x * empty(6).to(x.dtype) + x.flip(3) * empty(6).to(x.dtype),
        "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
        "softmax": lambda x: F.softmax(x, 1),
        "select": lambda x: x.flatten(2)[:, :, 0],
        "concat_boxes": lambda x: torch.cat([x.flatten(1), other.flatten(1)], 1),
    }


def types(device, low):
    """By kind: the types for an input in `low` and one in fp32."""
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, low)
    made = [torch.zeros(2, 8, 6, 6, device=device, dtype=d) for d in (low, torch.float32)]
    computed = kinds(lambda *n: torch.zeros(*n, device=device), made[0])
    found = {kind: [NAMES[f(x).dtype] for x in made] for kind, f in computed.items()}
    torch.set_autocast_enabled(device, False)
    return found


NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def main():
    with FakeTensorMode():
        cuda = types("cuda", torch.float16)
    cpu = types("cpu", torch.bfloat16)
    rows = [f"# torch {torch.__version__}", "kind,of_fp16,of_fp32,cpu_of_bf16,cpu_of_fp32"]
    rows += [",".join([kind, *of, *cpu[kind]]) for kind, of in cuda.items()]
    default = pathlib.Path(__file__).with_name("autocast.csv")
    pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else default).write_text("\n".join(rows) + "\n")


main()
