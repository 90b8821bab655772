"""The Llama of tests/golden/text in PyTorch, with Hugging Face's names."""
import torch
from torch import nn
from torch.nn import functional

import scaled_gpt
import scaled_networks


class Rope(nn.Module):
    """Turns the two halves of each head [images, positions, heads, width]."""

    def __init__(self, base):
        super().__init__()
        self._base = base

    def forward(self, x):
        half = x.shape[3] // 2
        rates = self._base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = (torch.arange(x.shape[1], dtype=torch.float64)[:, None] * rates)[:, None]
        cos, sin = angles.cos().float(), angles.sin().float()
        a, b = x.chunk(2, 3)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], 3)


class Multiply(nn.Module):
    def forward(self, a, b):
        return a * b


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, base):
        super().__init__()
        keys = width // heads * kv_heads
        self.q_proj, self.k_proj = (nn.Linear(width, n, bias=False) for n in (width, keys))
        self.v_proj, self.o_proj = (nn.Linear(width, n, bias=False) for n in (keys, width))
        self.q_rope, self.k_rope, self.width = Rope(base), Rope(base), width // heads

    def forward(self, x):
        q, k, v = (part(x).unflatten(2, (-1, self.width))
                   for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (part.transpose(1, 2) for part in (self.q_rope(q), self.k_rope(k), v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.silu, self.multiply = nn.SiLU(), Multiply()
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(self.multiply(self.silu(self.gate_proj(x)), self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, kv_heads, eps, base):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.self_attn, self.add_1 = Attention(width, heads, kv_heads, base), scaled_networks.Add()
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp, self.add_2 = Mlp(width, hidden), scaled_networks.Add()

    def forward(self, x):
        x = self.add_1(x, self.self_attn(self.input_layernorm(x)))
        return self.add_2(x, self.mlp(self.post_attention_layernorm(x)))


class Llama(nn.Module):
    def __init__(self, layers, heads, width, hidden, vocabulary, kv_heads, eps, base):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": scaled_gpt.Embedding(vocabulary, width),
            "layers": nn.ModuleList(Block(width, heads, hidden, kv_heads, eps, base)
                                    for _ in range(layers)),
            "norm": nn.RMSNorm(width, eps)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model["layers"]:
            x = block(x)
        return self.lm_head(self.model["norm"](x))
