"""Networks of all kinds that PyTorch can write, for tests: what makes each, its input, and the
layers that choose a scale."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.GELU(),
                         nn.Linear(16, 4))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", padding_mode="circular"), nn.BatchNorm2d(8),
        nn.ReLU(True), nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.Conv2d(4, 4, 3, stride=2, groups=4), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(16, 3))


class Residual(nn.Module):
    """`again`: its first block is computed again in the backward pass; None: it is not."""

    def __init__(self, again=None):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm, self.again = nn.LayerNorm(8), again

    def block(self, x):
        return self.norm(self.c(functional.gelu(self.b(x)))) + x

    def forward(self, x):
        x = self.a(x)
        if self.again is not None:
            x = checkpoint(self.block, x, use_reentrant=self.again == "reentrant")
        else:
            x = self.block(x)
        return self.block(x)


class Attention(nn.Module):
    """Its last layer has the embedding's weight."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(20, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.head(self.norm(x + y))


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 6)
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=6)

    def forward(self, x):
        q, k = self.q(x)[:, None], self.k(x)[:, None]
        return self.attention(q, k, k)[0]


class Parts(nn.Module):
    """Gradients of one output's parts come with scales of their own; a layer runs twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        u, v = self.a(x).chunk(2, -1)
        return self.b(u) + self.c(self.b(v))


class Functions(nn.Module):
    """Products of parameters by functions."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8, 4))
        self.kernel, self.first = nn.Parameter(torch.randn(4, 1, 2, 2)), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        y = functional.linear(x, self.w) @ self.v
        z = functional.conv2d(x.view(-1, 1, 2, 4), self.kernel)
        squares = torch.bmm(x[:, None], x[:, :, None])
        return torch.einsum("bi,bj->b", y, z.flatten(1)) + squares.sum()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy * ctx.saved_tensors[0]


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(Square.apply(self.a(x)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(8, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.lstm(x)[0])


class Grouped(nn.Module):
    """Two heads of queries read one of keys, under a mask that is trained; by a function that is
    computed again in the backward pass where `again`."""

    def __init__(self, again=False):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 8)
        self.bias, self.out = nn.Parameter(torch.randn(4, 1, 5)), nn.Linear(16, 2)
        self.first, self.again = nn.Linear(8, 8), again

    def attend(self, x):
        q, k, v = (part(x).unflatten(2, (-1, 4)).transpose(1, 2)
                   for part in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias, scale=0.3,
                                                       enable_gqa=True)

    def forward(self, x):
        x = self.first(x)
        y = checkpoint(self.attend, x, use_reentrant=False) if self.again else self.attend(x)
        return self.out(y.transpose(1, 2).flatten(2))


def within(name):
    """The decisions of an attention."""
    return [f"{name}.{decision}" for decision in ("dv", "ds", "dq", "dk")]


_GROUPED = ["q", "k", "v", "out", *within("model")]


def _tokens():
    return torch.randn(3, 5, 8)


def _rows():
    return torch.randn(6, 8)


def _images():
    return torch.randn(2, 3, 8, 8)


def _normed():
    return nn.Sequential(nn.Linear(8, 8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
                         nn.utils.spectral_norm(nn.Linear(8, 4)))


class Complex(nn.Module):
    """Gradients of complex numbers are of conjugates."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Linear(8, 8, dtype=torch.cfloat) for _ in range(2))
        self.w = nn.Parameter(torch.randn(8, 8, dtype=torch.cfloat))
        self.c, self.head = nn.Conv1d(1, 2, 3, dtype=torch.cfloat), nn.Linear(6, 3)

    def forward(self, x):
        x = x.to(torch.cfloat)
        return self.head(self.c((self.b(self.a(x) @ self.w) + x)[:, None]).sum(1).abs())


class Mapped(nn.Module):
    """Calls its layers under a transformation of torch.func."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.vmap(self.a)(x).relu())


NETWORKS = {
    "mlp": (mlp, _rows, ["2", "4"]),
    "convolutions": (convolutions, _images, ["3", "4", "8"]),
    "channels last": (lambda: convolutions().to(memory_format=torch.channels_last),
                      lambda: _images().to(memory_format=torch.channels_last), ["3", "4", "8"]),
    "one dimension": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 5, 3)),
                      lambda: torch.randn(2, 3, 9), ["2"]),
    "three dimensions": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Conv3d(2, 2, 2)),
                         lambda: torch.randn(2, 1, 4, 4, 4), ["1"]),
    "residual": (Residual, _rows, ["b", "c", "b.use2", "c.use2"]),
    "checkpoint": (lambda: Residual("again"), _rows, ["b", "c", "b.use2", "c.use2"]),
    "reentrant checkpoint": (lambda: Residual("reentrant"), _rows, ["b", "c"]),
    "attention": (Attention, lambda: torch.randint(0, 20, (3, 5)),
                  ["head", "attention.in_proj", "attention.out_proj", *within("attention")]),
    "cross attention": (Cross, _rows, ["attention.in_proj", "attention.in_proj.2",
                                       "attention.in_proj.3", "attention.out_proj"]),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
                lambda: torch.randn(2, 5, 8),
                ["linear1", "linear2", "self_attn.out_proj", *within("self_attn")]),
    "queries of groups": (Grouped, _tokens, _GROUPED),
    "attention again": (lambda: Grouped(again=True), _tokens, _GROUPED),
    "parts": (Parts, _rows, ["b", "b.use2", "c"]),
    "functions": (Functions, _rows, ["w", "v", "kernel"]),
    "custom function": (Custom, _rows, ["b"]),
    "recurrent": (Recurrent, _rows, ["last"]),
    "normed weights": (_normed, _rows, ["1", "2"]),
    "complex": (Complex, _rows, ["w", "b", "head"]),
    "mapped": (Mapped, _rows, ["b"]),
    "no features": (lambda: nn.Sequential(nn.Linear(8, 0), nn.Linear(0, 3)), _rows, ["1"]),
}
