"""Whether the layers compute what the module does: they are run by torch on the module's own
parameters, in training and in evaluation, and outputs, gradients and running statistics compared.
The same calls in the same order draw the same random numbers, so that dropout is no exception."""
import torch
from torch.nn import functional as F

from .network import CannotExpress
from .trace import BATCH

TOLERANCE = 1e-3  # of the largest value; the same calls of torch usually give the same bits


def two(keys, name, default):
    value = keys.get(name, default)
    return tuple(value) if isinstance(value, list) else (value, value)


def pool(layer, x, _):
    kernel, keys = two(layer.keys, "kernel", 1), layer.keys
    stride = two(keys, "stride", list(kernel))
    padding, ceil = two(keys, "padding", 0), keys.get("ceil_mode", False)
    if layer.kind == "max_pool":
        return F.max_pool2d(x, kernel, stride, padding, 1, ceil)
    return F.avg_pool2d(x, kernel, stride, padding, ceil, keys.get("count_include_pad", True))


def tensor(layer, suffix):
    stored = layer.tensors.get(suffix)
    return None if stored is None else stored[0].reshape(stored[1])


def conv2d(layer, x, _):
    keys = layer.keys
    return F.conv2d(x, tensor(layer, "weight"), tensor(layer, "bias"), two(keys, "stride", 1),
                    two(keys, "padding", 0), two(keys, "dilation", 1), keys.get("groups", 1))


def batch_norm(layer, x, training):
    statistics = [layer.tensors[name][0] for name in ("running_mean", "running_var")]
    return F.batch_norm(x, *statistics, tensor(layer, "weight"), tensor(layer, "bias"), training,
                        layer.keys["momentum"], layer.keys["eps"])


def layer_norm(layer, x, _):
    weight = tensor(layer, "weight")
    return F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, tensor(layer, "bias"),
                        layer.keys["eps"]).permute(0, 3, 1, 2)


def dropout(layer, x, training):
    if layer.output.form != "pixels":
        return F.dropout(x, layer.keys["rate"], training)
    return F.dropout(x.permute(0, 2, 3, 1), layer.keys["rate"], training).permute(0, 3, 1, 2)


def stochastic_depth(layer, x, training):
    from torchvision.ops import stochastic_depth as drop
    return drop(x, layer.keys["rate"], layer.keys["mode"], training)


ONE_INPUT = {
    "conv2d": conv2d, "batch_norm": batch_norm, "layer_norm": layer_norm, "max_pool": pool,
    "avg_pool": pool, "dropout": dropout, "stochastic_depth": stochastic_depth,
    "linear": lambda l, x, _: F.linear(x.flatten(1), tensor(l, "weight"),
                                       tensor(l, "bias"))[:, :, None, None],
    "group_norm": lambda l, x, _: F.group_norm(x, l.keys["groups"], tensor(l, "weight"),
                                               tensor(l, "bias"), l.keys["eps"]),
    "global_avg_pool": lambda l, x, _: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool": lambda l, x, _: F.adaptive_avg_pool2d(x, l.keys["size"]),
    "channel_scale": lambda l, x, _: x * tensor(l, "weight")[:, None, None],
    "upsample": lambda l, x, _: F.interpolate(x, scale_factor=l.keys["scale"]),
    "flatten": lambda l, x, _: x.flatten(1)[:, :, None, None],
    "leaky_relu": lambda l, x, _: F.leaky_relu(x, l.keys["slope"]),
    "hardtanh": lambda l, x, _: F.hardtanh(x, l.keys["min"], l.keys["max"]),
    "gelu": lambda l, x, _: F.gelu(x, approximate=l.keys.get("approximate", "none")),
    "relu": lambda l, x, _: F.relu(x), "relu6": lambda l, x, _: F.relu6(x),
    "sigmoid": lambda l, x, _: torch.sigmoid(x), "tanh": lambda l, x, _: torch.tanh(x),
    "silu": lambda l, x, _: F.silu(x), "hardswish": lambda l, x, _: F.hardswish(x),
    "hardsigmoid": lambda l, x, _: F.hardsigmoid(x),
}


def run(network, images, training):
    """Logits of `network`."""
    values = {"input": images}
    for layer in network.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.kind == "add":
            result = inputs[0] + inputs[1]
        elif layer.kind == "multiply":
            result = inputs[0] * inputs[1]
        elif layer.kind == "concat":
            result = torch.cat(inputs, 1)
        else:
            result = ONE_INPUT[layer.kind](layer, inputs[0], training)
        if tuple(result.shape[1:]) != layer.output.size:
            raise CannotExpress(layer.name, layer.kind, f"gives {list(result.shape[1:])}, and "
                                f"PyTorch {list(layer.output.size)}")
        values[layer.name] = result
    return values[network.layers[-1].name].flatten(1)


def first_output(output):
    """Of several: the logits."""
    if isinstance(output, dict):
        output = list(output.values())
    return output if isinstance(output, torch.Tensor) else output[0]


def far_apart(a, b):
    """Whether two tensors differ by more than the noise of fp32."""
    a, b = a.detach(), b.detach()
    largest = max(float(b.abs().max()), 1e-20)
    return not float((a - b).abs().max()) / largest <= TOLERANCE


class Pass:
    """One pass in training: logits, gradients, and running statistics afterwards."""

    def __init__(self, forward, parameters, buffers, images):
        before = [b.clone() for b in buffers]
        torch.manual_seed(1)
        self.logits = forward(images)
        weighted = torch.linspace(-1, 1, self.logits.numel()).reshape(self.logits.shape)
        loss = (self.logits * weighted).sum()
        self.gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        self.buffers = [b.clone() for b in buffers]
        with torch.no_grad():
            for buffer, value in zip(buffers, before):
                buffer.copy_(value)


def verify(module, network, size):
    """Raises CannotExpress where they differ."""
    torch.manual_seed(0)
    images = torch.randn(BATCH, *size)
    used = {id(stored[0]) for stored in network.tensors().values()}
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and id(p) in used]
    buffers = [(n, b) for n, b in module.named_buffers() if id(b) in used]
    module.eval()
    with torch.no_grad():
        if far_apart(run(network, images, False), first_output(module(images.clone()))):
            raise CannotExpress("", "forward", "computes something else in evaluation than in "
                                "training, beyond dropout and batch norm")
    module.train()
    parameters, statistics = [p for _, p in named], [b for _, b in buffers]
    theirs = Pass(lambda x: first_output(module(x.clone())), parameters, statistics, images)
    ours = Pass(lambda x: run(network, x, True), parameters, statistics, images)
    module.eval()
    if far_apart(ours.logits, theirs.logits):
        raise CannotExpress("", "forward", "its graph computes something else in training: forward "
                            "depends on values, or on what it keeps between calls")
    for (name, _), a, b in zip(named, ours.gradients, theirs.gradients):
        if b is None or far_apart(a, b):
            raise CannotExpress(name, "gradient", "another one reaches it in PyTorch (detach, "
                                "no_grad, or a function with a backward of its own)")
    for (name, _), a, b in zip(buffers, ours.buffers, theirs.buffers):
        if far_apart(a, b):
            raise CannotExpress(name, "running statistics", "move otherwise in PyTorch")
