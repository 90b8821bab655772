"""Whether the layers compute what the module does: they are run by torch on the module's own
parameters, in training and in evaluation, and outputs, gradients and running statistics compared.
The same calls in the same order draw the same random numbers, so that dropout is no exception."""
import torch
from torch.nn import functional as F

from .network import CannotExpress
from .output import named_outputs
from .trace import example, forward
from .views import to_rows

TOLERANCE = 1e-3  # of the largest value; the same calls of torch usually give the same bits
ROUNDING = 1e-6   # of the largest gradient of all parameters: what sums in fp32 may differ by


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
    return None if stored is None else stored.values()


def conv2d(layer, x, _):
    keys = layer.keys
    return F.conv2d(x, tensor(layer, "weight"), tensor(layer, "bias"), two(keys, "stride", 1),
                    two(keys, "padding", 0), two(keys, "dilation", 1), keys.get("groups", 1))


def conv_transpose2d(layer, x, _):
    keys = layer.keys
    return F.conv_transpose2d(x, tensor(layer, "weight"), tensor(layer, "bias"),
                              two(keys, "stride", 1), two(keys, "padding", 0),
                              two(keys, "output_padding", 0), keys.get("groups", 1),
                              two(keys, "dilation", 1))


def upsample(layer, x, _):
    mode = layer.keys.get("mode", "nearest")
    corners = None if mode == "nearest" else layer.keys.get("align_corners", False)
    return F.interpolate(x, scale_factor=layer.keys["scale"], mode=mode, align_corners=corners)


def batch_norm(layer, x, training):
    statistics = [layer.tensors[name][0] for name in ("running_mean", "running_var")]
    return F.batch_norm(x, *statistics, tensor(layer, "weight"), tensor(layer, "bias"), training,
                        layer.keys["momentum"], layer.keys["eps"])


def layer_norm(layer, x, _):
    weight = tensor(layer, "weight")
    return F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight, tensor(layer, "bias"),
                        layer.keys["eps"]).permute(0, 3, 1, 2)


def dropout(layer, x, training):
    return x * to_rows(layer.output, layer.noise.mask()) if training else x


def stochastic_depth(layer, x, training):
    return x * layer.noise.mask().reshape(-1, 1, 1, 1) if training else x


def l2_normalize(layer, x, _):
    return F.normalize(x, eps=layer.keys["eps"]) * tensor(layer, "weight")[:, None, None]


def affine(layer, x, _):
    return x * tensor(layer, "factor")[:, None, None] + tensor(layer, "offset")[:, None, None]


def shortcut(layer, x, _):
    new = layer.keys["channels"] - x.shape[1]
    stride = layer.keys.get("stride", 1)
    return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, new // 2, new - new // 2))


def slice_of(layer, x, _):
    first = layer.keys.get("first", 0)
    return x[:, first:first + layer.keys["channels"]]


# --- Sequences: tokens are the rows of [n, c, t, 1] ---

def tokens_of(x):
    return x.flatten(2).transpose(1, 2)


def rows_of(x):
    return x.transpose(1, 2)[..., None]


def embedding(layer, x, _):
    return rows_of(F.embedding(x, tensor(layer, "weight")))


def position_embedding(layer, x, _):
    t = tokens_of(x)
    return rows_of(t + tensor(layer, "weight")[:t.shape[1]])


def class_token(layer, x, _):
    return rows_of(torch.cat([tensor(layer, "").expand(len(x), -1, -1), tokens_of(x)], 1))


def rms_norm(layer, x, _):
    t = x.movedim(1, -1)
    return F.rms_norm(t, t.shape[-1:], tensor(layer, "weight"), layer.keys["eps"]).movedim(-1, 1)


def rope(layer, x, _):
    heads, base = layer.keys["heads"], layer.keys.get("base", 10000.0)
    t = tokens_of(x)
    t = t.reshape(*t.shape[:2], heads, -1)
    rotary = layer.keys.get("rotary", t.shape[-1])
    angles = torch.arange(t.shape[1], dtype=torch.float64)[:, None] * base ** (
        torch.arange(0, rotary, 2, dtype=torch.float64) / -rotary)
    cos, sin = (f(angles).float()[:, None] for f in (torch.cos, torch.sin))
    turning, rest = t[..., :rotary], t[..., rotary:]
    half = layer.keys.get("pairing", "half") == "half"
    a, b = turning.chunk(2, -1) if half else (turning[..., ::2], turning[..., 1::2])
    c, d = a * cos - b * sin, b * cos + a * sin
    turned = torch.cat([c, d], -1) if half else torch.stack([c, d], -1).flatten(-2)
    return rows_of(torch.cat([turned, rest], -1).flatten(2))


def attention(layer, inputs, training):
    heads, keys = layer.keys["heads"], layer.keys.get("kv_heads", layer.keys["heads"])
    if len(inputs) == 1:
        d = inputs[0].shape[1] // (heads + 2 * keys)
        inputs = inputs[0].split([heads * d, keys * d, keys * d], 1)
    q, k, v = (t.reshape(*t.shape[:2], n, -1).transpose(1, 2)
               for t, n in zip(map(tokens_of, inputs), (heads, keys, keys)))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=layer.keys.get("causal", False),
                                       dropout_p=layer.keys.get("dropout", 0) if training else 0,
                                       enable_gqa=keys != heads)
    return rows_of(y.transpose(1, 2).flatten(2))


def linear(layer, x, weight, of_tokens):
    if of_tokens:
        return F.linear(x.movedim(1, -1), weight, tensor(layer, "bias")).movedim(-1, 1)
    return F.linear(x.flatten(1), weight, tensor(layer, "bias"))[:, :, None, None]


ONE_INPUT = {
    "conv2d": conv2d, "conv_transpose2d": conv_transpose2d, "batch_norm": batch_norm, "layer_norm": layer_norm, "max_pool": pool,
    "avg_pool": pool, "dropout": dropout, "stochastic_depth": stochastic_depth,
    "embedding": embedding, "position_embedding": position_embedding, "class_token": class_token,
    "rms_norm": rms_norm, "rope": rope,
    "select": lambda l, x, _: x.flatten(2)[:, :, l.keys.get("position", 0), None, None],
    "group_norm": lambda l, x, _: F.group_norm(x, l.keys["groups"], tensor(l, "weight"),
                                               tensor(l, "bias"), l.keys["eps"]),
    "global_avg_pool": lambda l, x, _: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool": lambda l, x, _: F.adaptive_avg_pool2d(x, l.keys["size"]),
    "l2_normalize": l2_normalize, "affine": affine, "slice": slice_of,
    "shortcut": shortcut, "lrn": lambda l, x, _: F.local_response_norm(x, **l.keys),
    "channel_scale": lambda l, x, _: x * tensor(l, "weight")[:, None, None],
    "upsample": upsample, "prelu": lambda l, x, _: F.prelu(x, tensor(l, "weight")),
    "pixel_shuffle": lambda l, x, _: F.pixel_shuffle(x, l.keys["scale"]),
    "softplus": lambda l, x, _: F.softplus(x, **l.keys),
    "elu": lambda l, x, _: F.elu(x, l.keys.get("alpha", 1.0)),
    "flatten": lambda l, x, _: x.flatten(1)[:, :, None, None],
    "leaky_relu": lambda l, x, _: F.leaky_relu(x, l.keys["slope"]),
    "hardtanh": lambda l, x, _: F.hardtanh(x, l.keys["min"], l.keys["max"]),
    "gelu": lambda l, x, _: F.gelu(x, approximate=l.keys.get("approximate", "none")),
    "relu": lambda l, x, _: F.relu(x), "relu6": lambda l, x, _: F.relu6(x),
    "softmax": lambda l, x, _: torch.softmax(x, 1),
    "sigmoid": lambda l, x, _: torch.sigmoid(x), "tanh": lambda l, x, _: torch.tanh(x),
    "silu": lambda l, x, _: F.silu(x), "hardswish": lambda l, x, _: F.hardswish(x),
    "hardsigmoid": lambda l, x, _: F.hardsigmoid(x),
}


def joined_boxes(inputs, values):
    """As pixels [1, boxes]."""
    boxes = [x.permute(0, 2, 3, 1).reshape(len(x), -1, values) for x in inputs]
    return torch.cat(boxes, 1).permute(0, 2, 1)[:, :, None]


def run(network, images, training):
    """Outputs of `network`, those of an image in a row."""
    values = {"input": images}
    for layer in network.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.kind == "add":
            result = inputs[0] + inputs[1]
        elif layer.kind == "multiply":
            result = inputs[0] * inputs[1]
        elif layer.kind == "concat":
            result = torch.cat(inputs, 1)
        elif layer.kind == "concat_boxes":
            result = joined_boxes(inputs, layer.keys["values"])
        elif layer.kind == "attention":
            result = attention(layer, inputs, training)
        elif layer.kind == "linear":
            owner = network.find(layer.keys.get("weight_of", layer.name))
            result = linear(layer, inputs[0], tensor(owner, "weight"),
                            network.is_sequence(layer.inputs[0]))
        else:
            result = ONE_INPUT[layer.kind](layer, inputs[0], training)
        if tuple(result.shape[1:]) != layer.output.size:
            raise CannotExpress(layer.name, layer.kind, f"gives {list(result.shape[1:])}, and "
                                f"PyTorch {list(layer.output.size)}")
        values[layer.name] = result
    if network.outputs:  # boxes one after the other
        return in_rows([values[name].permute(0, 2, 3, 1) for name in network.outputs])
    last = network.layers[-1].name
    if network.is_sequence(last):  # token by token
        return tokens_of(values[last]).flatten(1)
    return in_rows([values[last]])


def in_rows(tensors):
    return torch.cat([t.flatten(1) for t in tensors], 1)


def outputs_of(output, names):
    """Those of a module's outputs that the network gives; in evaluation it may give fewer."""
    found = dict(named_outputs(output))
    if len(names) == 1 and names[0] not in found:
        names = list(found)[:1]
    missing = [name for name in names if name not in found]
    if missing:
        raise CannotExpress("", "output", f"{missing[0]} is there in training alone")
    return in_rows([first_tensor(found[name]) for name in names])


def first_tensor(value):
    while isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value


def far_apart(a, b):
    """Whether two tensors differ by more than the noise of fp32."""
    a, b = a.detach(), b.detach()
    largest = max(float(b.abs().max()), 1e-20)
    return not float((a - b).abs().max()) / largest <= TOLERANCE


def is_rounding(a, b, largest):
    """Whether two gradients differ by no more than rounding does beside the `largest` of all
    parameters: that of a bias of keys, which softmax takes out of the scores, is zero but for that."""
    return float((a - b).abs().max()) <= ROUNDING * largest


def is_noise(a, b, nudged):
    """Whether two gradients, or means, differ no more than PyTorch's own do where images change in
    their last bits: a bias before a norm has a gradient of 0 but for rounding."""
    return float((a - b).abs().max()) <= 10 * float((nudged - b).abs().max())


class Pass:
    """One pass in training: logits, gradients, and running statistics afterwards."""

    def __init__(self, forward, parameters, buffers, images):
        before = [b.clone() for b in buffers]
        torch.manual_seed(1)
        self.logits = forward(images)
        weighted = torch.linspace(-1, 1, self.logits.numel()).reshape(self.logits.shape)
        loss = (self.logits * weighted).sum()
        self.gradients = [None] * len(parameters) if not loss.requires_grad else (
            torch.autograd.grad(loss, parameters, allow_unused=True))
        self.buffers = [b.clone() for b in buffers]
        with torch.no_grad():
            for buffer, value in zip(buffers, before):
                buffer.copy_(value)


def verify(module, network, size, outputs):
    """Raises CannotExpress where they differ. `outputs`: names of those of the module's that the
    network gives. The module is left in evaluation, its buffers as they were."""
    before = [(b, b.clone()) for b in module.buffers()]
    torch.manual_seed(0)
    images = example(module, size)
    try:
        compare_in_evaluation(module, network, images, outputs)
        compare_in_training(module, network, images, outputs)
    finally:
        module.eval()
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def compare_in_evaluation(module, network, images, outputs):
    module.eval()
    with torch.no_grad():
        if far_apart(run(network, images, False), outputs_of(forward(module, images.clone()), outputs)):
            raise CannotExpress("", "forward", "computes something else in evaluation than in "
                                "training, beyond dropout and batch norm")


def compare_in_training(module, network, images, outputs):
    used = {id(stored[0]) for stored in network.tensors().values()}
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and id(p) in used]
    buffers = [(n, b) for n, b in module.named_buffers() if id(b) in used]
    module.train()
    parameters, statistics = [p for _, p in named], [b for _, b in buffers]

    def passed(forward):
        return Pass(forward, parameters, statistics, images)
    theirs = passed(lambda x: outputs_of(forward(module, x.clone()), outputs))
    ours = passed(lambda x: run(network, x, True))
    if far_apart(ours.logits, theirs.logits):
        raise CannotExpress("", "forward", "its graph computes something else in training: forward "
                            "depends on values, or on what it keeps between calls")
    nudged = None

    def differ(a, b, of):
        nonlocal nudged
        if not far_apart(a, b):
            return False
        if not images.is_floating_point():  # tokens cannot be moved a little
            return True
        nudged = nudged or passed(lambda x: outputs_of(module(x * (1 + 1e-6)), outputs))
        return not is_noise(a, b, of(nudged))
    largest = max((float(g.abs().max()) for g in theirs.gradients if g is not None), default=0.0)
    for i, ((name, _), a, b) in enumerate(zip(named, ours.gradients, theirs.gradients)):
        if b is None or not is_rounding(a, b, largest) and differ(a, b, lambda p, i=i: p.gradients[i]):
            raise CannotExpress(name, "gradient", "another one reaches it in PyTorch (detach, "
                                "no_grad, or a function with a backward of its own)")
    for i, ((name, _), a, b) in enumerate(zip(buffers, ours.buffers, theirs.buffers)):
        if differ(a, b, lambda p, i=i: p.buffers[i]):
            raise CannotExpress(name, "running statistics", "move otherwise in PyTorch")
