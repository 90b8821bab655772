"""The GPT-2 of tests/golden/text in PyTorch, with nanoGPT's names."""
import torch
from torch import nn
from torch.nn import functional

import scaled_networks


class Embedding(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(0, 0.02))

    def forward(self, tokens):
        return functional.embedding(tokens, self.weight)


class Positions(nn.Module):
    def __init__(self, context, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width).normal_(0, 0.02))

    def forward(self, x):
        return x + self.weight[:x.shape[1]]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.c_attn(x).chunk(3, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, eps):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, eps), Attention(width, heads)
        self.add_1 = scaled_networks.Add()
        self.ln_2, self.mlp = nn.LayerNorm(width, eps), Mlp(width, hidden)
        self.add_2 = scaled_networks.Add()

    def forward(self, x):
        x = self.add_1(x, self.attn(self.ln_1(x)))
        return self.add_2(x, self.mlp(self.ln_2(x)))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, hidden, vocabulary, context, eps):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": Embedding(vocabulary, width), "wpe": Positions(context, width),
            "h": nn.ModuleList(Block(width, heads, hidden, eps) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width, eps)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        x = self.transformer.wpe(self.transformer.wte(tokens))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))
