"""Writes layers.csv and layers.safetensors: layers of decoders as PyTorch computes them in float64,
from inputs that fp32 holds: y of x, and the gradients of sum(y * dy).

usage: make.py [FOLDER]      (torch, safetensors)
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

COLUMNS = ("case", "kind", "channels", "kernel_h", "kernel_w", "stride_h", "stride_w", "padding_h",
           "padding_w", "output_padding_h", "output_padding_w", "dilation_h", "dilation_w",
           "groups", "scale", "align_corners", "alpha", "beta", "threshold")


def transposed(name, size, channels, kernel, stride=1, padding=0, more=0, dilation=1, groups=1,
               bias=True):
    def two(value):
        return value if isinstance(value, tuple) else (value, value)
    kernel, stride, padding, more, dilation = map(two, (kernel, stride, padding, more, dilation))
    keys = {"kernel": kernel, "stride": stride, "padding": padding, "output_padding": more,
            "dilation": dilation}
    keys = {f"{key}_{axis}": value[i] for key, value in keys.items()
            for i, axis in enumerate("hw")}
    parameters = {"w": (size[1], channels // groups, *kernel)}
    if bias:
        parameters["b"] = (channels,)
    return name, "conv_transpose2d", size, parameters, {"channels": channels, "groups": groups,
                                                        **keys}, (
        lambda x, w, b=None: F.conv_transpose2d(x, w, b, stride, padding, more, groups, dilation))


def bilinear(size, scale, corners):
    name = f"bilinear_{size[2]}x{size[3]}_by_{scale}" + ("_corners" if corners else "")
    return name, "bilinear", size, {}, {"scale": scale, "align_corners": int(corners)}, (
        lambda x: F.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=corners))


def cases():
    yield transposed("transposed_2x2_stride_2", (2, 6, 4, 5), 5, 2, 2)
    yield transposed("transposed_3x3_one_more", (2, 4, 4, 3), 6, 3, 2, 1, 1, groups=2, bias=False)
    yield transposed("transposed_4x4", (2, 3, 3, 4), 4, 4, 2, 1)
    yield transposed("transposed_uneven", (2, 4, 3, 4), 3, (2, 5), (1, 3), (1, 2), (0, 2))
    yield transposed("transposed_dilated", (2, 4, 4, 4), 4, 3, 2, 2, (1, 0), (2, 3), 4)
    for size, scale in (((2, 3, 4, 5), 2), ((1, 2, 3, 3), 3), ((1, 2, 1, 4), 4), ((1, 3, 7, 1), 5),
                        ((1, 2, 1, 1), 2), ((1, 1, 13, 11), 7)):
        for corners in (False, True):
            yield bilinear(size, scale, corners)
    for scale in (2, 3):
        yield f"pixel_shuffle_{scale}", "pixel_shuffle", (2, 2 * scale ** 2, 3, 2), {}, {
            "scale": scale}, lambda x, scale=scale: F.pixel_shuffle(x, scale)
    for slopes in (1, 5):
        yield f"prelu_{slopes}", "prelu", (3, 5, 4, 6), {"w": (slopes,)}, {}, F.prelu
    for alpha in (1.0, 0.3):
        yield f"elu_{alpha}", "elu", (2, 3, 16, 16), {}, {"alpha": alpha}, (
            lambda x, alpha=alpha: F.elu(x, alpha))
    for beta, threshold in ((1, 20), (2.5, 4)):
        yield f"softplus_{beta}", "softplus", (2, 3, 16, 16), {}, {
            "beta": beta, "threshold": threshold}, (
            lambda x, beta=beta, threshold=threshold: F.softplus(x, beta, threshold))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    folder = folder if folder.is_dir() else folder.parent
    torch.manual_seed(5)
    rows, tensors = [f"# torch {torch.__version__}, float64", ",".join(COLUMNS)], {}
    for name, kind, size, parameters, keys, function in cases():
        given = {"x": torch.randn(size) * (6 if kind in ("elu", "softplus") else 1)}
        given.update((key, torch.randn(shape)) for key, shape in parameters.items())
        wide = {key: value.double().requires_grad_() for key, value in given.items()}
        y = function(*wide.values())
        dy = torch.randn(y.shape)
        y.backward(dy.double())
        made = {"y": y, "dy": dy, **{f"d{key}": value.grad for key, value in wide.items()}}
        for key, value in {**given, **made}.items():
            tensors[f"{name}.{key}"] = value.detach().float().contiguous()
        rows.append(",".join(str({"case": name, "kind": kind, **keys}.get(c, "")) for c in COLUMNS))
    (folder / "layers.csv").write_text("\n".join(rows) + "\n")
    save_file(tensors, folder / "layers.safetensors")


main()
