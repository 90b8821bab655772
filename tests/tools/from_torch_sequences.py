"""Modules over sequences for from_torch_sequences_test.py: what people write, and what does not come
over."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """As karpathy writes it, with torch's attention or its parts."""

    def __init__(self, width, heads, context, flash, scale=None, old_gelu=False):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
        self.heads, self.flash, self.scale, self.old_gelu = heads, flash, scale, old_gelu
        self.register_buffer("bias", torch.tril(torch.ones(context, context))[None, None])

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(c, dim=2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale,
                                               dropout_p=0.1 if self.training else 0)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(n, t, c)))

    def gelu(self, x):
        if self.old_gelu:
            return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi)
                                               * (x + 0.044715 * torch.pow(x, 3.0))))
        return F.gelu(x)

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    """With tied weights, and all logits only beside a loss."""

    def __init__(self, flash=True, tied=True, **more):
        super().__init__()
        width, context, vocabulary = 24, 12, 40
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(width, 4, context, flash, **more) for _ in range(2))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def written_out():
    return GPT(flash=False, old_gelu=True)


def scaled():
    return GPT(scale=0.25)


class Encoder(nn.Module):
    """torch's own layers after an embedding and a parameter of positions."""

    def __init__(self, batch_first=True, norm_first=False, causal=False, activation="gelu"):
        super().__init__()
        self.embed, self.place = nn.Embedding(30, 24), nn.Parameter(torch.randn(1, 16, 24))
        self.batch_first, self.causal = batch_first, causal
        layer = nn.TransformerEncoderLayer(24, 4, 48, 0.1, activation, batch_first=batch_first,
                                           norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(24, 30)

    def forward(self, x):
        t = x.shape[1]
        y = self.embed(x) + self.place[:, :t]
        y = y if self.batch_first else y.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(t) if self.causal else None
        y = self.encoder(y, mask=mask)
        return self.head(y if self.batch_first else y.transpose(0, 1))


def sequence_first():
    return Encoder(batch_first=False, norm_first=True, causal=True, activation="relu")


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)
        self.norm, self.head = nn.RMSNorm(24, eps=1e-5), nn.Linear(24, 30)

    def forward(self, x):
        x = self.embed(x)
        return self.head(self.norm(x + self.attention(x, x, x, need_weights=False)[0]))


def rotated(x, angles, interleaved):
    cos, sin = angles.cos(), angles.sin()
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    cos, sin = (torch.cat([t, t], -1) for t in (cos, sin))
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Rotary(nn.Module):
    """Grouped queries, rotary positions and SwiGLU, by hand."""

    def __init__(self, interleaved=False, base=10000.0, turn=1.0):
        super().__init__()
        self.embed, self.interleaved, self.base, self.turn = nn.Embedding(30, 24), interleaved, base, turn
        self.norm = nn.Parameter(torch.rand(24) + 0.5)
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 12), nn.Linear(24, 12)
        self.gate, self.up, self.down = nn.Linear(24, 40), nn.Linear(24, 40), nn.Linear(40, 24)
        self.head = nn.Linear(24, 30)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.norm
        q, k, v = (f(y).view(n, t, -1, 6).transpose(1, 2) for f in (self.q, self.k, self.v))
        angles = torch.arange(t)[:, None] * self.turn * self.base ** (-torch.arange(0, 6, 2) / 6)
        q, k = (rotated(part, angles, self.interleaved) for part in (q, k))
        k, v = (part.repeat_interleave(2, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, t, 24)
        return self.head(x + self.down(F.silu(self.gate(x)) * self.up(x)))


def interleaved():
    return Rotary(interleaved=True, base=500.0)


class KeyBias(nn.Module):
    """Attention written out, with a bias of the keys alone, whose gradient is 0 but for rounding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, 30)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        q, k, v = (f(x).view(n, t, 3, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = (q @ k.transpose(-2, -1) / math.sqrt(8)).softmax(-1) @ v
        return self.head(x + y.transpose(1, 2).reshape(n, t, 24))


class Detached(KeyBias):
    """The same, and a gradient that does not reach the keys: no rounding."""

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        q, k, v = (f(x).view(n, t, 3, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = (q @ (k + 0.5 * (k.detach() - k)).transpose(-2, -1) / math.sqrt(8)).softmax(-1) @ v
        return self.head(x + y.transpose(1, 2).reshape(n, t, 24))


class NoBias(nn.Module):
    """Norms with a weight alone, as nanoGPT's own class and nn.LayerNorm have them."""

    def __init__(self):
        super().__init__()
        self.embed, self.first = nn.Embedding(30, 24), nn.LayerNorm(24, bias=False)
        self.last, self.head = nn.Parameter(torch.rand(24) + 0.5), nn.Linear(24, 30)

    def forward(self, x):
        return self.head(F.layer_norm(self.first(self.embed(x)), (24,), self.last, None, 1e-5))


class HeadByHead(nn.Module):
    """One product whose channels are the queries, keys and values of head 0, then those of head 1, with
    rotary positions (GPT-NeoX) or without (BLOOM), on a part of each head or on all of it."""

    def __init__(self, turning=0):
        super().__init__()
        self.embed, self.turning = nn.Embedding(30, 24), turning
        self.qkv, self.out, self.head = nn.Linear(24, 72), nn.Linear(24, 24), nn.Linear(24, 30)

    def turned(self, x):
        if self.turning == 0:
            return x
        angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (
            -torch.arange(0, self.turning, 2) / self.turning)
        return torch.cat([rotated(x[..., :self.turning], angles, False), x[..., self.turning:]], -1)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        q, k, v = self.qkv(x).view(n, t, 3, 24).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).reshape(n, t, 24)))


def head_by_head_rotated():
    return HeadByHead(8)


def head_by_head_rotated_in_part():
    return HeadByHead(4)


class Grouped(HeadByHead):
    """Two heads of queries, their key and their value, then two more (Falcon)."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 48, bias=False)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        y = self.qkv(x).view(n, t, 2, 4, 6)
        q = y[:, :, :, :2].reshape(n, t, 4, 6).transpose(1, 2)
        k, v = (y[:, :, :, i].repeat_interleave(2, 2).transpose(1, 2) for i in (2, 3))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.head(x + self.out(y.transpose(1, 2).reshape(n, t, 24)))


class Letters(nn.Module):
    """Every product by hand, each in a way of its own, with weights that lie as they are multiplied."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.q, self.k = nn.Parameter(torch.randn(24, 24) / 5), nn.Parameter(torch.randn(24, 4, 6) / 5)
        self.v, self.o = nn.Parameter(torch.randn(24, 24) / 5), nn.Parameter(torch.randn(4, 6, 24) / 5)
        self.k_bias, self.o_bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(24))
        self.up, self.up_bias = nn.Parameter(torch.randn(24, 40) / 5), nn.Parameter(torch.randn(40))
        self.down, self.narrow = nn.Parameter(torch.randn(40, 24) / 5), nn.Parameter(torch.randn(24, 24))
        self.wide, self.head = nn.Parameter(torch.randn(24, 24)), nn.Parameter(torch.randn(1, 24, 30) / 5)
        self.head_bias = nn.Parameter(torch.randn(1, 1, 30))

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        q = (x @ self.q).view(n, t, 4, 6)
        k = torch.einsum("btc,chd->bthd", x, self.k) + self.k_bias
        v = F.linear(x, self.v.t().contiguous()).view(n, t, 4, 6)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(6)
        y = torch.einsum("b h q k, b k h d -> b q h d", scores.softmax(-1), v)
        x = x + (torch.einsum("...hd,hdc->...c", y, self.o) + self.o_bias)
        y = torch.addmm(self.up_bias, x.reshape(n * t, 24), self.up).relu()
        x = x + torch.mm(y, self.down).view(n, t, 24)
        x = x + torch.tensordot(x, self.narrow, ([2], [1]))
        x = x + torch.matmul(self.wide, x.mT).mT
        return torch.baddbmm(self.head_bias, x, self.head.expand(n, 24, 30))


class Scaled(HeadByHead):
    """The queries times a number, and then the scores; positions from row 2 of a table on (OPT)."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(14, 24)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x) + self.places(torch.arange(t) + 2)
        q, k, v = self.qkv(x).view(n, t, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = (0.25 * q @ k.transpose(-2, -1) / 8 ** 0.5).softmax(-1) @ v
        return self.head(x + self.out(y.transpose(1, 2).reshape(n, t, 24)).softmax(-1))


def written_scale():
    """As many write 1 / sqrt(width), before the product."""
    class Written(HeadByHead):
        def forward(self, x):
            n, t = x.shape
            x = self.embed(x)
            q, k, v = self.qkv(x).view(n, t, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q * 8 ** -0.25, k / 8 ** 0.25, v, scale=1.0)
            return self.head(x + self.out(y.transpose(1, 2).reshape(n, t, 24)))
    return Written()


class Pooled(nn.Module):
    """A ViT without a class token: positions as an image of them, fewer keys than queries, a mean."""

    def __init__(self, queries=16):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 24, 8, 8), nn.Parameter(torch.randn(1, 24, 4, 4))
        self.norm, self.qkv, self.proj = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.wide, self.head = nn.Conv2d(24, 24, 1), nn.Linear(24, 5)

    def forward(self, x):
        x = self.patch(x) + self.place
        x = (x + self.wide(x)).flatten(2).transpose(1, 2)
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, t, 3, 4, 6).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c)
        return self.head((x + self.proj(y)).mean(1))


class Distilled(nn.Module):
    """Two tokens in front of the patches (DeiT)."""

    def __init__(self):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 24, 8, 8), nn.Parameter(torch.zeros(1, 18, 24))
        self.cls, self.teacher = nn.Parameter(torch.randn(1, 1, 24)), nn.Parameter(torch.randn(1, 1, 24))
        self.attention, self.head = nn.MultiheadAttention(24, 3, batch_first=True), nn.Linear(24, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), self.teacher.expand(len(x), -1, -1), x], 1) + self.place
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x[:, 1])


class ViT(nn.Module):
    """Patches, a class token, one fused projection cut in three."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 8, 8)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, 24)), nn.Parameter(torch.randn(1, 17, 24))
        self.norm, self.qkv, self.proj = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, t, 3, 4, 6).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c)
        return self.head((x + self.proj(y))[:, 0])


def gpt2_of_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16,
                                      bos_token_id=0, eos_token_id=0))


def llama_of_transformers():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=24,
        intermediate_size=40, vocab_size=64, max_position_embeddings=16))


# --- What does not come over ---

class Biased(Encoder):
    """Adds a number to each score."""

    def forward(self, x):
        y = self.embed(x)
        t = y.shape[1]
        slope = -torch.arange(t).float().expand(t, t)
        return self.head(self.encoder(y, mask=slope))


class HeadNorms(HeadByHead):
    """Queries and keys normalised head by head (Qwen3)."""

    def __init__(self, norm=None):
        super().__init__()
        self.norm = norm or nn.RMSNorm(8)

    def forward(self, x):
        n, t = x.shape
        x = self.embed(x)
        q, k, v = self.qkv(x).view(n, t, 3, 3, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(self.norm(q), self.norm(k), v)
        return self.head(x + self.out(y.transpose(1, 2).reshape(n, t, 24)))


def unit_heads():
    return HeadNorms(lambda x: F.normalize(x, dim=-1))


def bare_heads():
    return HeadNorms(lambda x: F.rms_norm(x, (8,)))


class Waves(GPT):
    """Positions that are not trained."""

    def __init__(self):
        super().__init__()
        angles = torch.arange(12)[:, None] / 10 ** torch.linspace(0, 3, 12)
        self.register_buffer("waves", torch.cat([angles.sin(), angles.cos()], 1))

    def forward(self, idx):
        return self.lm_head(self.wte(idx) + self.waves[:idx.shape[1]])


class TwoOrders(HeadByHead):
    """The product head by head, which the last layer reads too."""

    def forward(self, x):
        n, t = x.shape
        y = self.qkv(self.embed(x))
        q, k, v = y.view(n, t, 3, 24).transpose(1, 2).chunk(3, -1)
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, 24)
        return self.head(z + self.out(y[..., :24]))


class PartsOfChannels(HeadByHead):
    """The same after a function, whose channels nothing can reorder."""

    def forward(self, x):
        n, t = x.shape
        q, k, v = self.qkv(self.embed(x)).tanh().view(n, t, 3, 24).transpose(1, 2).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, 24))


class ByToken(HeadByHead):
    def forward(self, x):
        y = self.embed(x)
        return self.head(y * (x != 0).unsqueeze(-1))


class Padding(Encoder):
    def forward(self, x):
        return self.head(self.encoder(self.embed(x), src_key_padding_mask=torch.zeros(
            x.shape, dtype=torch.bool)))


class Crossed(MultiHead):
    def forward(self, x):
        x = self.embed(x)
        return self.head(self.attention(x, self.norm(x), x, need_weights=False)[0])


class Last(GPT):
    def __init__(self):
        super().__init__(tied=False)

    def forward(self, idx):
        return super().forward(idx)[0]


def other_angles():
    return Rotary(turn=0.5)


class PaddedEmbedding(MultiHead):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24, padding_idx=0)


class Bare(Rotary):
    """An RMS norm without factors."""

    def forward(self, x):
        x = self.embed(x)
        return self.head(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
