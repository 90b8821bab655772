"""PyTorch's versions of the networks in models.py: the same layers with the same parameters and
operations as ada-train's (bench.py compares both numbers before it measures). Transformers have one
linear layer for queries, keys and values, `scaled_dot_product_attention`, and the names of nanoGPT
and of torchvision, which are ada-train's names as well."""
import collections
import dataclasses
import functools
import typing

import torch
import torchvision
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # bytes


class Block(nn.Module):
    """Two convolutions and a shortcut A: every second pixel, zero channels on both sides."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.sum = nn.Identity()  # a place for a hook
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return functional.relu(self.sum(y + x))


def normed(inputs, outputs):
    """A 3x3 convolution with batch norm."""
    return [nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True)]


def resnet(depth):
    blocks = (depth - 2) // 6
    widths = [16] * (blocks + 1) + [32] * blocks + [64] * blocks
    stages = [Block(i, o, 1 if i == o else 2) for i, o in zip(widths, widths[1:])]
    return nn.Sequential(*normed(3, 16), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 10))


class SegnetBasic(nn.Module):
    """Four 7x7 convolutions with pooling down, four with unpooling up, scores for each pixel."""

    def __init__(self, channels, classes):
        super().__init__()

        def conv(inputs):
            return nn.Conv2d(inputs, channels, 7, padding=3, bias=False)

        self.down = nn.ModuleList(
            nn.Sequential(conv(3 if i == 0 else channels), nn.BatchNorm2d(channels),
                          nn.ReLU(inplace=True)) for i in range(4))
        self.up = nn.ModuleList(nn.Sequential(conv(channels), nn.BatchNorm2d(channels))
                                for i in range(4))
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


def vgg16():
    layers, inputs = [], 3
    for channels, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            layers += normed(inputs, channels)
            inputs = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def fashion():
    return nn.Sequential(*normed(1, 16), nn.MaxPool2d(2), *normed(16, 32), nn.MaxPool2d(2),
                         *normed(32, 64), nn.Flatten(), nn.Linear(64 * 7 * 7, 64),
                         nn.ReLU(inplace=True), nn.Linear(64, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(inplace=True), nn.Linear(120, 84),
                         nn.ReLU(inplace=True), nn.Linear(84, 10))


def mlp(first=256, second=128):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, first), nn.ReLU(inplace=True),
                         nn.Linear(first, second), nn.ReLU(inplace=True), nn.Linear(second, 10))


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


def write_attention_out(network, written_out=True):
    """Computes attention operation by operation."""
    for module in network.modules():
        if isinstance(module, Attention):
            module.written_out = written_out


class GptAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.heads = Attention(heads, causal=True)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        return self.c_proj(self.heads(self.c_attn(x)))


class GptBlock(nn.Module):
    """nanoGPT's block: one linear layer for queries, keys and values, SDPA, GELU."""

    def __init__(self, width, heads, gelu):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = GptAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(collections.OrderedDict(
            c_fc=nn.Linear(width, 4 * width), gelu=nn.GELU(approximate=gelu),
            c_proj=nn.Linear(4 * width, width)))
        self.sum_1, self.sum_2 = nn.Identity(), nn.Identity()  # places for hooks

    def forward(self, x):
        x = self.sum_1(x + self.attn(self.ln_1(x)))
        return self.sum_2(x + self.mlp(self.ln_2(x)))


class Gpt2(nn.Module):
    """Logits [batch, tokens, vocabulary] of the next token, by the embedding's own weight."""

    def __init__(self, layers, heads, width, context, gelu):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(VOCABULARY, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(GptBlock(width, heads, gelu) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width)})
        self.sum = nn.Identity()  # a place for a hook
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


class VitAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.in_proj = nn.Linear(width, 3 * width)
        self.heads = Attention(heads, causal=False, dropout=dropout)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        return self.out_proj(self.heads(self.in_proj(x)))


class VitBlock(nn.Module):
    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, 1e-6)
        self.self_attention = VitAttention(width, heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, 1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout),
                                 nn.Linear(hidden, width), nn.Dropout(dropout))
        self.sum_1, self.sum_2 = nn.Identity(), nn.Identity()  # places for hooks

    def forward(self, x):
        x = self.sum_1(x + self.dropout(self.self_attention(self.ln_1(x))))
        return self.sum_2(x + self.mlp(self.ln_2(x)))


class VitEncoder(nn.Module):
    def __init__(self, tokens, layers, heads, width, hidden, dropout):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, width).normal_(0, 0.02))
        self.sum = nn.Identity()  # a place for a hook
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(collections.OrderedDict(
            (f"encoder_layer_{i}", VitBlock(width, heads, hidden, dropout)) for i in range(layers)))
        self.ln = nn.LayerNorm(width, 1e-6)

    def forward(self, x):
        return self.ln(self.layers(self.dropout(self.sum(x + self.pos_embedding))))


class Vit(nn.Module):
    def __init__(self, side, patch, classes, layers, heads, width, hidden, dropout):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = VitEncoder((side // patch) ** 2 + 1, layers, heads, width, hidden, dropout)
        self.heads = nn.Sequential(collections.OrderedDict(head=nn.Linear(width, classes)))

    def forward(self, images):
        x = self.conv_proj(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def gpt2_jargon(gelu="none"):
    """As nanoGPT is written, with the exact GELU, the faster one in PyTorch; "tanh": as GPT-2 and
    ada-train have it."""
    return Gpt2(layers=4, heads=4, width=128, context=128, gelu=gelu)


def vit_cifar():
    return Vit(side=32, patch=4, classes=10, layers=6, heads=4, width=128, hidden=256, dropout=0.1)


def adamw(network, _device, beta2=0.999, weight_decay=0.0, spared=()):
    """AdamW without decay of vectors and of the parameters named; fused, which took the least time
    of PyTorch's updates on a processor."""
    groups = {True: [], False: []}
    for name, parameter in network.named_parameters():
        groups[parameter.dim() > 1 and name not in spared].append(parameter)
    return torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": weight_decay},
         {"params": groups[False], "weight_decay": 0.0}], 1e-3, (0.9, beta2), fused=True)


def sgd(network, _device):
    """Fused, as adamw is."""
    return torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A network and how it is trained."""
    make: typing.Callable
    shape: tuple  # of a sample: channels, height, width; or how many tokens
    optimizer: typing.Callable = sgd  # of a network and a device
    clip: float = None  # the largest norm of all gradients together
    smoothing: float = 0.0  # of labels

    def samples(self, count, device="cpu"):
        """Random ones."""
        if len(self.shape) == 1:
            return torch.randint(0, VOCABULARY, (count, *self.shape), device=device)
        return torch.randn(count, *self.shape, device=device).contiguous(
            memory_format=torch.channels_last)


GPT_ADAMW = functools.partial(adamw, beta2=0.99, weight_decay=0.1)
NETWORKS = {
    "resnet20": Case(lambda: resnet(20), (3, 32, 32)),
    "resnet56": Case(lambda: resnet(56), (3, 32, 32)),
    "vgg16": Case(vgg16, (3, 32, 32)),
    "fashion": Case(fashion, (1, 28, 28)),
    "lenet": Case(lenet, (1, 28, 28)),
    "mlp": Case(mlp, (1, 28, 28)),
    "mlp512": Case(lambda: mlp(512, 512), (1, 28, 28)),
    "resnet18": Case(torchvision.models.resnet18, (3, 224, 224)),
    "mobilenet_v2": Case(torchvision.models.mobilenet_v2, (3, 224, 224)),
    "segnet_basic": Case(lambda: SegnetBasic(32, 11), (3, 180, 240)),
    "resnet50": Case(torchvision.models.resnet50, (3, 224, 224)),
    "gpt2_jargon": Case(gpt2_jargon, (128,), GPT_ADAMW, clip=1.0),
    "gpt2_jargon_tanh": Case(lambda: gpt2_jargon("tanh"), (128,), GPT_ADAMW, clip=1.0),
    "vit_cifar": Case(vit_cifar, (3, 32, 32),
                      functools.partial(adamw, weight_decay=0.05,
                                        spared=("class_token", "encoder.pos_embedding")),
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
