"""The ViT of tests/golden/text in PyTorch, with torchvision's names: attention is
nn.MultiheadAttention."""
import collections

import torch
from torch import nn

import scaled_gpt
import scaled_networks

# Parameters that are modules here, so that what they make is rounded.
MODULES = {"class_token": "class_token.weight", "encoder.pos_embedding":
           "encoder.pos_embedding.weight"}


class ClassToken(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, x):
        return torch.cat([self.weight.expand(x.shape[0], -1, -1), x], 1)


class Positions(scaled_gpt.Positions):
    def __init__(self, tokens, width):
        super().__init__(tokens, width)
        self.weight = nn.Parameter(self.weight[None])

    def forward(self, x):
        return x + self.weight


class Block(nn.Module):
    def __init__(self, width, heads, hidden, eps):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.add_1, self.ln_2 = scaled_networks.Add(), nn.LayerNorm(width, eps)
        # The places of torchvision's: 1 and 2 are the function and a dropout of nothing.
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Identity(),
                                 nn.Linear(hidden, width))
        self.add_2 = scaled_networks.Add()

    def forward(self, x):
        y = self.ln_1(x)
        x = self.add_1(x, self.self_attention(y, y, y, need_weights=False)[0])
        return self.add_2(x, self.mlp(self.ln_2(x)))


class Encoder(nn.Module):
    def __init__(self, tokens, layers, heads, width, hidden, eps):
        super().__init__()
        self.pos_embedding = Positions(tokens, width)
        self.layers = nn.Sequential(collections.OrderedDict(
            (f"encoder_layer_{i}", Block(width, heads, hidden, eps)) for i in range(layers)))
        self.ln = nn.LayerNorm(width, eps)

    def forward(self, x):
        return self.ln(self.layers(self.pos_embedding(x)))


class Vit(nn.Module):
    def __init__(self, layers, heads, width, hidden, classes, patch, tokens, eps):
        super().__init__()
        self.conv_proj, self.class_token = nn.Conv2d(3, width, patch, patch), ClassToken(width)
        self.encoder = Encoder(tokens, layers, heads, width, hidden, eps)
        self.heads = nn.Sequential(collections.OrderedDict(head=nn.Linear(width, classes)))

    def forward(self, images):
        x = self.class_token(self.conv_proj(images).flatten(2).transpose(1, 2))
        return self.heads(self.encoder(x)[:, 0])
