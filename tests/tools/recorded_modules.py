"""Networks and layers for tests of recording: what they do is what recorders stumble over."""
import torch
from torch import nn
from torch.nn import functional

IN_PLACE = (nn.LeakyReLU, nn.SiLU, nn.Hardswish, nn.ELU, nn.Hardsigmoid, nn.Mish, nn.CELU, nn.SELU,
            nn.RReLU)


class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)


class Dropped(nn.Module):
    """Whole rows, by numbers drawn in place."""

    def forward(self, x):
        return x * x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(0.7).div_(0.7)


class Opens(nn.Module):
    """With each pass a little more."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.passes += 1
        return x * min(1.0, self.calls / 20)


class Averages(nn.Module):
    """By statistics that each pass moves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.detach().float().mean((0, 1)), 0.1)
        return x - self.mean


class Rows(nn.Module):
    """A result that is written part by part."""

    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 1] * 2
        y[:, 1:] = x[:, 1:].tanh()
        return y


class Waves(nn.Module):
    """Parameters that are complex, in fp64, and integers."""

    def __init__(self):
        super().__init__()
        self.turn = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.wide = nn.Parameter(torch.randn(8, dtype=torch.float64))
        self.order = nn.Parameter(torch.arange(8).flip(0), requires_grad=False)

    def forward(self, x):
        y = torch.fft.irfft(torch.fft.rfft(x.float()) * self.turn)
        return (y * self.wide.float())[..., self.order]


class Wide(nn.Module):
    """fp64 within, and out of it."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8).double()

    def forward(self, x):
        return self.up(x.double()).float()


class Angles(nn.Module):
    """Two tensors, from which no gradient comes."""

    def forward(self, x):
        places = torch.arange(x.shape[1])[:, None] / torch.tensor([1.0, 10, 100, 1000] * 2)
        return places.cos(), places.sin()


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.angles = Angles()

    def forward(self, x):
        cos, sin = self.angles(x)
        return x * cos + x.flip(-1) * sin


class Counted(nn.Module):
    def forward(self, x):
        return {"x": x.tanh(), "mean": x.mean()}


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Counted()

    def forward(self, x):
        return self.inner(x)["x"]


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner = kind(8, 8, 2, batch_first=True, dropout=0.2)

    def forward(self, x):
        return self.inner(x)[0]


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Bilinear(8, 8, 8)

    def forward(self, x):
        return self.inner(x.float(), x.float() * 2)


class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.up, self.inner, self.head = nn.Linear(8, 8), inner, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.inner(self.up(x)))


_KINDS = {"noise": Noise, "dropped": Dropped, "dropout": lambda: nn.Dropout(0.3), "opens": Opens,
          "averages": Averages, "rows": Rows, "waves": Waves, "wide": Wide, "turned": Turned,
          "map": Mapped, "pairs": Pairs, "rrelu": nn.RReLU, "identity": nn.Identity,
          "lstm": lambda: Recurrent(nn.LSTM), "gru": lambda: Recurrent(nn.GRU),
          "rnn": lambda: Recurrent(nn.RNN), "silu": lambda: nn.SiLU(inplace=True),
          "norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))}
NETWORKS = {name: (lambda kind=kind: Net(kind())) for name, kind in _KINDS.items()}


class Gated(nn.Module):
    """Several operations, each of which rounds under autocast."""

    def __init__(self, size):
        super().__init__()
        self.w = nn.Parameter(torch.randn(size, size) / size ** 0.5)

    def forward(self, x):
        y = functional.linear(x, self.w)
        return y * torch.sigmoid(y)


class _Stored(torch.autograd.Function):
    @staticmethod
    def forward(_, x, dtype):
        return x.float().to(dtype).to(x.dtype)

    @staticmethod
    def backward(_, dy):
        return dy, None


def stored(x, dtype):
    """As a dtype holds it; the gradient passes."""
    return _Stored.apply(x, dtype)


class _Minus(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x * 1

    @staticmethod
    def backward(_, dy):
        return -dy


class Reversed(nn.Module):
    def forward(self, x):
        return _Minus.apply(x) + 1


class Join(nn.Module):
    def forward(self, a, b):
        return a * b


class Called(nn.Module):
    """Layers called by keyword, or by position; one of them in another order."""

    def __init__(self, by_name):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.join, self.by_name = Join(), by_name

    def forward(self, pixels):
        if not self.by_name:
            x = self.a(pixels)
            return self.c(self.join(self.b(x.relu()), x.tanh()))
        x = self.a(input=pixels)
        return self.c(input=self.join(b=x.tanh(), a=self.b(input=x.relu())))


class Wrapped(nn.Module):
    """The same logits, in whatever a network gives."""
    KINDS = ("tensor", "map", "tuple", "list", "beside a loss", "with hidden states", "deep")

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.fc, self.kind = nn.Linear(8, 8), nn.Linear(8, 3), kind

    def forward(self, x):
        h = self.up(x)
        y = self.fc(h)
        return {"tensor": y, "map": {"out": y}, "tuple": (y, x), "list": [y], "deep": ({"y": [y]},),
                "beside a loss": {"loss": y.float().mean(), "logits": y},
                "with hidden states": {"logits": y, "hidden_states": (h,)}}[self.kind]

    @staticmethod
    def logits(given):
        while not isinstance(given, torch.Tensor):
            given = (given.get("logits", list(given.values())[0]) if isinstance(given, dict)
                     else given[0])
        return given
