"""Which modules of a model are layers, what they are called, and how config.yaml describes them."""
import inspect
import json
import re
import warnings

import torch
from torch import nn

# Modules that only move values, or clip them: nothing is rounded there.
PASSIVE = (nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Threshold,
           nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
           nn.AdaptiveMaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle,
           nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d, nn.Dropout,
           nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
           nn.Embedding, nn.EmbeddingBag)
# Products of their input and a weight: autocast computes them in the narrow format.
PRODUCTS = (nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d,
            nn.ConvTranspose2d, nn.ConvTranspose3d)
_TAKEN = {"loss", "input"}


def is_layer(module):
    """A module that computes something itself and is no loss; a parametrization below it is part
    of it."""
    inner = [name for name, _ in module.named_children() if name != "parametrizations"]
    loss = type(module).__name__.endswith("Loss")
    return not inner and not loss and not isinstance(module, PASSIVE)


def is_wrapped(module):
    """Whether torch.compile made the module, around another one."""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def is_compiled(model):
    """Whether torch.compile has wrapped the model or its forward, or model.compile() changed its
    call."""
    return (is_wrapped(model) or getattr(model, "_compiled_call_impl", None) is not None
            or uncompiled_forward(model) is not None)


def uncompiled_forward(module):
    """What torch.compile made module.forward of; None where it did not."""
    return getattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable", None)


def check(model, who):
    """Raises TypeError where `model` is no module, ValueError where TorchScript hides its layers.
    `who`: what the user called."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{who}: the model is of type {type(model).__name__}; expected a "
                        "torch.nn.Module")
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"{who}: TorchScript hides the layers of {path or 'the model'}; "
                             "expected the model as it was before torch.jit")


def name_of(path):
    """A module's path as ada-train may call a layer."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", path) or "model"
    return name + "_" if name in _TAKEN else name


class Names:
    """names(path): what a model's module is called. Of modules whose paths read the same
    ("x y", "x_y") the one that is spelled so keeps the name; others become x_y-2, x_y-3."""

    def __init__(self, model):
        by_name, self._names, self.apart = {}, {}, []
        for path, _ in model.named_modules():
            if path:
                by_name.setdefault(name_of(path), []).append(path)
        for name, paths in by_name.items():
            paths.sort(key=lambda path: path != name)
            for i, path in enumerate(paths):
                number = 2
                while i and f"{name}-{number}" in by_name.keys() | self._names.values():
                    number += 1
                self._names[path] = f"{name}-{number}" if i else name
                if i:
                    self.apart.append((path, paths[0], self._names[path]))

    def __call__(self, path):
        return self._names.get(path) or name_of(path)

    def warn(self):
        """Names the modules that are not called as they read."""
        for path, other, name in self.apart:
            warnings.warn(f"modules {path!r} and {other!r} read the same; {path!r} is called "
                          f"{name}", stacklevel=5)


def _order(forward):
    """The names of a forward's parameters, each with its place."""
    try:
        return {name: i for i, name in enumerate(inspect.signature(forward).parameters)}
    except (TypeError, ValueError):
        return {}


def tensors_of(module, args, kwargs):
    """[(place, tensor)] of the tensors that a module is called with, in the order of its forward's
    parameters; the place is an index of `args` or a name of `kwargs`."""
    names = list(kwargs)
    if len(names) > 1:
        order = _order(type(module).forward)
        names.sort(key=lambda name: order.get(name, len(order)))
    given = [*enumerate(args), *((name, kwargs[name]) for name in names)]
    return [(place, x) for place, x in given if isinstance(x, torch.Tensor)]


def is_conv1d(module):
    """transformers' linear layer whose weight lies the other way round (GPT-2)."""
    return type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers")


def is_product(module):
    return isinstance(module, PRODUCTS) or is_conv1d(module)


def weight_of(module):
    """The weight that a product multiplies, where it is the module's own; None."""
    return module._parameters.get("weight") if is_product(module) else None


def _pair(value):
    return list(value) if isinstance(value, (tuple, list)) else [value, value]


def _window(module):
    return {"channels": module.out_channels, "kernel": _pair(module.kernel_size),
            "stride": _pair(module.stride), "padding": _pair(module.padding),
            "dilation": _pair(module.dilation), "groups": module.groups,
            "bias": module.bias is not None}


def _keys(module):
    """The kind of ada-train that the module is, with its keys; `external` where it is none."""
    if isinstance(module, nn.Linear):
        return {"kind": "linear", "features": module.out_features, "bias": module.bias is not None}
    if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros" and not isinstance(
            module.padding, str):
        return {"kind": "conv2d", **_window(module)}
    if isinstance(module, nn.ConvTranspose2d):
        return {"kind": "conv_transpose2d", **_window(module),
                "output_padding": _pair(module.output_padding)}
    if isinstance(module, nn.BatchNorm2d) and module.affine:
        return {"kind": "batch_norm", "eps": float(module.eps)}
    return {"kind": "external"}


def _flow(value):
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value)


def _line(keys, comment=""):
    text = ", ".join(f"{key}: {_flow(value)}" for key, value in keys.items())
    return f"    - {{{text}}}{'  # ' + comment if comment else ''}"


def model_yaml(traced):
    """`model:` of the layers in the order in which they ran. `traced`: (name, module, names of the
    layers whose outputs it takes). What several outputs become on their way stands as an add."""
    lines, before = ["model:", "  layers:"], "input"
    for name, module, inputs in traced:
        if len(inputs) > 1:
            before = name + ".inputs"
            lines.append(_line({"name": before, "kind": "add", "inputs": inputs},
                               "or whatever joins them"))
            inputs = [before]
        keys = {"name": name, **_keys(module)}
        source = inputs[0] if inputs else "input"
        if source != before:
            keys["inputs"] = [source]
        lines.append(_line(keys, type(module).__name__ if keys["kind"] == "external" else ""))
        before = name
    return lines


def trace(value, makers, most=10000):
    """The layers whose outputs `value` is made of, found backwards through autograd's graph;
    `makers`: node -> layer."""
    found, seen, queue = {}, set(), [value.grad_fn]
    while queue and len(seen) < most:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in makers:
            found[makers[node]] = True
        else:
            queue += [following for following, _ in node.next_functions]
    order = list(makers.values())
    return sorted(found, key=order.index)
