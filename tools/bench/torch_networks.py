"""PyTorch's versions of the networks in models.py: the same layers with the same parameters and
operations as ada-train's (bench.py compares both numbers before it measures). Transformers have one
linear layer for queries, keys and values, `scaled_dot_product_attention`, and the names of nanoGPT
and of torchvision, which are ada-train's names as well. An nn.Identity is a place for a hook."""
import collections
import dataclasses
import functools
import typing

import torch
import torchvision
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # bytes


def convolutions(inputs, *widths):
    """3x3 convolutions with batch norm, each to so many channels; 0: a max pooling."""
    layers = []
    for width in widths:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(inputs, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
                   nn.ReLU(inplace=True)]
        inputs = width
    return layers


def dense(*widths):
    """Linear layers from each width to the next one, with a ReLU between two."""
    layers = [layer for inputs, outputs in zip(widths, widths[1:])
              for layer in (nn.Linear(inputs, outputs), nn.ReLU(inplace=True))]
    return [nn.Flatten(), *layers[:-1]]


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut A: every second pixel, zero channels on both sides."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.stride, self.padding = 1 if inputs == outputs else 2, (outputs - inputs) // 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.sum = nn.Identity()

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return functional.relu(self.sum(y + x))


def resnet(depth):
    blocks = (depth - 2) // 6
    widths = [16] * (blocks + 1) + [32] * blocks + [64] * blocks
    return nn.Sequential(*convolutions(3, 16), *map(ResidualBlock, widths, widths[1:]),
                         nn.AdaptiveAvgPool2d(1), *dense(64, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         *dense(400, 120, 84, 10))


class SegnetBasic(nn.Module):
    """Four 7x7 convolutions with pooling down, four with unpooling up, scores for each pixel."""

    def __init__(self, channels, classes):
        super().__init__()

        def stage(inputs, *after):
            return nn.Sequential(nn.Conv2d(inputs, channels, 7, padding=3, bias=False),
                                 nn.BatchNorm2d(channels), *after)

        self.down = nn.ModuleList(stage(channels if i else 3, nn.ReLU(inplace=True))
                                  for i in range(4))
        self.up = nn.ModuleList(stage(channels) for i in range(4))
        self.norm = nn.LocalResponseNorm(5, 1e-4, 0.75, 1)
        self.pool = nn.MaxPool2d(2, ceil_mode=True, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)
        self.classifier = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        x, kept = self.norm(x), []
        for stage in self.down:
            x, where = self.pool(stage(x))
            kept.append(where)
        for stage, where in zip(self.up, reversed(kept)):  # of odd sizes a row or column more
            x = stage(self.unpool(x[:, :, :where.shape[2], :where.shape[3]], where))
        return self.classifier(x)


class Scores(nn.Identity):
    """A place for a hook that sees the gradient of attention's scores."""


class Probabilities(nn.Identity):
    """A place for a hook that sees attention's probabilities."""


class Attention(nn.Module):
    """From queries, keys and values side by side to what the heads give, side by side. A module of
    its own, without parameters: a place for a hook. Scores and probabilities stay inside PyTorch's
    function, out of the reach of hooks, unless `written_out` is set."""

    def __init__(self, heads, causal, dropout=0.0):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.written_out, self.later = False, None
        self.scores, self.probabilities = Scores(), Probabilities()

    def forward(self, qkv):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in qkv.split(qkv.shape[2] // 3, dim=2))
        dropout = self.dropout if self.training else 0.0
        if self.written_out:
            y = self.by_operations(q, k, v, dropout)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal,
                                                        dropout_p=dropout)
        return y.transpose(1, 2).flatten(2)

    def by_operations(self, q, k, v, dropout):
        scores = self.scores(q @ k.transpose(2, 3) * q.shape[3] ** -0.5)
        if self.causal:
            if self.later is None or self.later.shape != scores.shape[2:]:
                ones = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device)
                self.later = ones.triu(1)
            scores = scores.masked_fill(self.later, -torch.inf)
        return self.probabilities(functional.dropout(scores.softmax(3), dropout)) @ v


def write_attention_out(network):
    """Computes attention operation by operation."""
    for module in network.modules():
        if isinstance(module, Attention):
            module.written_out = True


def named(**modules):
    return nn.Sequential(collections.OrderedDict(modules))


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); `name`: of the attention."""

    def __init__(self, name, attention, mlp, width, eps):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.add_module(name, attention)
        self.name, self.mlp = name, mlp
        self.sum_1, self.sum_2 = nn.Identity(), nn.Identity()

    def forward(self, x):
        x = self.sum_1(x + getattr(self, self.name)(self.ln_1(x)))
        return self.sum_2(x + self.mlp(self.ln_2(x)))


def gpt_block(width, heads, gelu):
    attention = named(c_attn=nn.Linear(width, 3 * width), heads=Attention(heads, causal=True),
                      c_proj=nn.Linear(width, width))
    mlp = named(c_fc=nn.Linear(width, 4 * width), gelu=nn.GELU(approximate=gelu),
                c_proj=nn.Linear(4 * width, width))
    return TransformerBlock("attn", attention, mlp, width, 1e-5)


class Gpt2(nn.Module):
    """Logits [batch, tokens, vocabulary] of the next token, by the embedding's own weight. gelu:
    "none" is exact, as nanoGPT has it, and the faster one in PyTorch; "tanh" is GPT-2's and
    ada-train's."""

    def __init__(self, gelu, layers=4, heads=4, width=128, context=128):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(VOCABULARY, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(gpt_block(width, heads, gelu) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width)})
        self.sum = nn.Identity()
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, tokens):
        x = self.sum(self.transformer.wte(tokens) + self.transformer.wpe.weight[:tokens.shape[1]])
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def vit_block(width, heads, hidden, dropout):
    attention = named(in_proj=nn.Linear(width, 3 * width),
                      heads=Attention(heads, causal=False, dropout=dropout),
                      out_proj=nn.Linear(width, width), dropout=nn.Dropout(dropout))
    mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout),
                        nn.Linear(hidden, width), nn.Dropout(dropout))
    return TransformerBlock("self_attention", attention, mlp, width, 1e-6)


def vit(width=128, heads=4, hidden=256, dropout=0.1):
    """torchvision's, with blocks in which a hook sees every sum."""
    network = torchvision.models.VisionTransformer(
        image_size=32, patch_size=4, num_layers=6, num_heads=heads, hidden_dim=width,
        mlp_dim=hidden, dropout=dropout, num_classes=10)
    for name, _ in list(network.encoder.layers.named_children()):
        setattr(network.encoder.layers, name, vit_block(width, heads, hidden, dropout))
    network.encoder.dropout = nn.Sequential(nn.Identity(), nn.Dropout(dropout))
    return network


def adamw(network, beta2=0.999, weight_decay=0.0, spared=()):
    """AdamW without decay of vectors and of the parameters named; fused, which took the least time
    of PyTorch's updates on a processor."""
    groups = {True: [], False: []}
    for name, parameter in network.named_parameters():
        groups[parameter.dim() > 1 and name not in spared].append(parameter)
    return torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": weight_decay},
         {"params": groups[False], "weight_decay": 0.0}], 1e-3, (0.9, beta2), fused=True)


def sgd(network):
    """Fused, as adamw is."""
    return torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A network and how it is trained."""
    make: typing.Callable
    shape: tuple  # of a sample: channels, height, width; or how many tokens
    optimizer: typing.Callable = sgd  # of a network
    clip: float = None  # the largest norm of all gradients together
    smoothing: float = 0.0  # of labels

    def samples(self, count, device="cpu"):
        """Random ones."""
        if len(self.shape) == 1:
            return torch.randint(0, VOCABULARY, (count, *self.shape), device=device)
        return torch.randn(count, *self.shape, device=device)


GPT_ADAMW = functools.partial(adamw, beta2=0.99, weight_decay=0.1)
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
NETWORKS = {
    "resnet20": Case(lambda: resnet(20), (3, 32, 32)),
    "resnet56": Case(lambda: resnet(56), (3, 32, 32)),
    "vgg16": Case(lambda: nn.Sequential(*convolutions(3, *VGG16), *dense(512, 10)), (3, 32, 32)),
    "fashion": Case(lambda: nn.Sequential(*convolutions(1, 16, 0, 32, 0, 64),
                                          *dense(64 * 7 * 7, 64, 10)), (1, 28, 28)),
    "lenet": Case(lenet, (1, 28, 28)),
    "mlp": Case(lambda: nn.Sequential(*dense(784, 256, 128, 10)), (1, 28, 28)),
    "mlp512": Case(lambda: nn.Sequential(*dense(784, 512, 512, 10)), (1, 28, 28)),
    "resnet18": Case(torchvision.models.resnet18, (3, 224, 224)),
    "mobilenet_v2": Case(torchvision.models.mobilenet_v2, (3, 224, 224)),
    "segnet_basic": Case(lambda: SegnetBasic(32, 11), (3, 180, 240)),
    "resnet50": Case(torchvision.models.resnet50, (3, 224, 224)),
    "gpt2_jargon": Case(lambda: Gpt2("none"), (128,), GPT_ADAMW, clip=1.0),
    "gpt2_jargon_tanh": Case(lambda: Gpt2("tanh"), (128,), GPT_ADAMW, clip=1.0),
    "vit_cifar": Case(vit, (3, 32, 32), functools.partial(
        adamw, weight_decay=0.05, spared=("class_token", "encoder.pos_embedding")),
        clip=1.0, smoothing=0.1),
}


def describe(case, network):
    """Trained parameters, in all and by layer; and operations of a forward pass over one sample (a
    multiply-add counts as 2; convolutions, linear layers and attention's products alone, where
    masked ones count as well)."""
    flop = 0

    def count(module, _, y):
        nonlocal flop
        terms = 2 * y.shape[1] if isinstance(module, Attention) else module.weight[0].numel()
        flop += 2 * y.numel() * terms

    hooks = [module.register_forward_hook(count) for module in network.modules()
             if isinstance(module, (nn.Conv2d, nn.Linear, Attention))]
    network.eval()
    with torch.no_grad():
        network(case.samples(1))
    network.train()
    for hook in hooks:
        hook.remove()
    layers = {}
    for name, parameter in network.named_parameters():
        layer = name.removesuffix(".weight").removesuffix(".bias")
        layers[layer] = layers.get(layer, 0) + parameter.numel()
    return {"parameters": sum(layers.values()), "layers": layers, "forward_flop": flop}
