"""Modules that from_torch_test.py converts; images are 3x32x32 where nothing else is said."""
import torch
from torch import nn
from torch.nn import functional as F


class NormAct(nn.BatchNorm2d):
    def forward(self, x):
        return F.relu(super().forward(x))


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 10)
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.25]).view(1, 3, 1, 1))

    def end(self, x):
        return self.head(x.mean((-2, -1)))


class Subclass(Base):
    def __init__(self):
        super().__init__()
        self.norm = NormAct(8)

    def forward(self, x):
        return self.end(self.norm(self.a(x)))


class Functional(Base):
    def forward(self, x):
        n = self.norm
        x = F.batch_norm(self.a(x), n.running_mean, n.running_var, n.weight, n.bias, self.training,
                         n.momentum, n.eps)
        x = F.layer_norm(x.permute(0, 2, 3, 1), (8,), n.weight, n.bias, 1e-6).permute(0, 3, 1, 2) \
            if x.shape[1] != 8 else x
        return self.end(F.relu(x))


class Decided(Base):
    """Shape checks, loops and branches; views that cancel."""

    def forward(self, x):
        n, c, h, w = x.shape
        assert c == 3 and h % 8 == 0, "an image"
        torch._assert(x.dim() == 4, "a batch")
        x = self.a(x) if w > 16 else self.a(2 * x)
        for _ in range(h // 16):
            x = F.relu(x)
        x = x.permute(0, 2, 3, 1).reshape(n, h * w, 8).transpose(1, 2).view(n, 2, 4, h, w)
        return self.end(torch.flatten(x, 1, 2))


class Constants(Base):
    def forward(self, x):
        x = self.a((x - self.mean) / self.std)
        return self.end(x + 0.1 * self.b(1 - x))


class Split(Base):
    def forward(self, x):
        first, second = self.a(x).chunk(2, 1)
        return self.end(torch.cat([first * torch.sigmoid(second), second.tanh()], 1))


class Frozen(Base):
    def __init__(self):
        super().__init__()
        for name in ("w", "v"):
            self.register_buffer(name, torch.rand(8) + 0.5)

    def forward(self, x):
        return self.end(F.relu(self.a(x) * self.w.view(1, -1, 1, 1) + self.v.reshape(8, 1, 1)))


class FrozenNorm(Base):
    """As detectors are fine-tuned."""

    def __init__(self):
        super().__init__()
        self.norm.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.end(F.relu(self.norm(self.a(x))))


class ByHand(Base):
    """A trained factor and summand by channel; a sum and a maximum over pixels."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.rand(1, 8, 1, 1))
        self.summand = nn.Parameter(torch.zeros(8, 1, 1))

    def forward(self, x):
        x = self.a(x) * self.factor + self.summand
        return self.head(x.sum((2, 3)) / 1024 + x.flatten(2).max(2)[0])


class ByKeyword(Base):
    """Functions called by the names that PyTorch's pages give their arguments."""

    def forward(self, x):
        x = F.relu(input=self.a(input=x), inplace=True)
        x = torch.add(input=x, other=torch.mul(input=x, other=torch.sigmoid(input=x)))
        x = torch.flatten(input=F.adaptive_avg_pool2d(input=x, output_size=1), start_dim=1)
        return F.linear(input=x, weight=self.head.weight, bias=self.head.bias)


class Repeated(Base):
    """Layers that take one tensor twice; the images themselves are one."""

    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(6, 8, 1)

    def forward(self, x):
        y = self.c(torch.cat([x, x], 1) + torch.cat((x * x, x), 1))
        y = F.relu(self.a(x)).square() + F.relu(y) ** 2
        return self.end(y + y)


class GatedHalf(Base):
    def forward(self, x):
        x = self.a(x)
        return self.end(F.glu(torch.cat([x, self.b(x)], 1), 1))


class NoGradient(Base):
    def forward(self, x):
        with torch.no_grad():
            return self.end(self.a(x))


class Compiled(Base):
    def __init__(self):
        super().__init__()
        self.head = torch.compile(self.head, backend="eager")

    def forward(self, x):
        return self.end(self.a(x))


class Dropped(Base):
    """Stochastic depth and dropout as people write them."""

    def forward(self, x):
        x = self.a(x)
        y = self.b(x)
        if self.training:
            mask = (0.8 + torch.rand((x.shape[0], 1, 1, 1))).floor_()
            y = y.div(0.8) * mask
            x = x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(0.9).div_(0.9)
            y = y * torch.empty_like(y).bernoulli_(0.7) / 0.7
        return self.end(x + y)


class ByMatrix(Base):
    """The last layer as a product with a parameter [inputs, outputs], in one of the usual ways, and one
    over pixels."""

    def __init__(self, how="mm"):
        super().__init__()
        self.how, self.over_pixels = how, nn.Parameter(torch.randn(8, 8) / 3)
        self.w, self.bias = nn.Parameter(torch.randn(8, 10) / 3), nn.Parameter(torch.randn(10))

    def forward(self, x):
        x = F.relu(torch.einsum("bchw,co->bohw", self.a(x), self.over_pixels)).mean((2, 3))
        return {"addmm": lambda: torch.addmm(self.bias, x, self.w),
                "mm": lambda: torch.mm(x, self.w) + self.bias,
                "linear": lambda: F.linear(x, self.w.t(), self.bias),
                "einsum": lambda: torch.einsum("bi,io->bo", x, self.w) + self.bias,
                "turned": lambda: (self.w.t() @ x.t()).t() + self.bias,
                "bmm": lambda: torch.bmm(x[:, None], self.w.expand(len(x), 8, 10))[:, 0] + self.bias}[self.how]()


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)
        self.a, self.b, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.b(F.dropout(F.gelu(self.a(self.norm(x))), 0.1, self.training))
        return self.head(x.mean(1))


class Padded(Base):
    """Zeros by pad, and the shortcut of CIFAR's ResNets."""

    def forward(self, x):
        x = F.relu(self.a(F.pad(x, (1, 1, 1, 1))))
        x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
        x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4))
        return self.end(self.b(x[:, 4:12]))


class Twice(Base):
    def forward(self, x):
        act = nn.ReLU()
        return self.end(act(self.b(act(self.b(self.a(x))))))


class Segmenter(nn.Module):
    def __init__(self, up=None):
        super().__init__()
        self.a, self.b, self.out = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), \
            nn.Conv2d(16, 3, 1)
        self.pool, self.up = nn.MaxPool2d(2), up or nn.Upsample(scale_factor=2)

    def forward(self, x):
        a = F.relu(self.a(x))
        return self.out(torch.cat([a, self.up(self.b(self.pool(a)))], 1))


def bilinear(align=False):
    return Segmenter(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=align))


def transposed():
    return Segmenter(nn.ConvTranspose2d(8, 8, 2, 2))


def by(scale):
    return nn.Sequential(nn.Conv2d(3, 2, 3, padding=1),
                         nn.Upsample(scale_factor=scale, mode="bilinear"))


class Enlarged(Base):
    def forward(self, x):
        return self.end(F.interpolate(self.a(x), scale_factor=1.5, mode="bilinear"))


class Decoder(nn.Module):
    """What decoders and super-resolution have: slopes, transposed convolutions, pixel shuffle."""

    def __init__(self):
        super().__init__()
        self.a, self.slope = nn.Conv2d(3, 8, 3, 2, 1), nn.PReLU(8)
        self.up = nn.ConvTranspose2d(8, 6, 3, (2, 2), 1, output_padding=(1, 1), groups=2, bias=False)
        self.odd = nn.ConvTranspose2d(8, 2, (3, 5), 2, (2, 4), (1, 1), dilation=2)
        self.act, self.one, self.shuffle = nn.ELU(0.5), nn.PReLU(init=0.1), nn.PixelShuffle(2)
        self.soft, self.out = nn.Softplus(2, threshold=10), nn.ConvTranspose2d(18, 3, 1)

    def forward(self, x):
        x = self.slope(self.a(x))
        large = [self.up(x), self.soft(self.shuffle(x)),
                 F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
                 self.one(self.odd(x))]
        return self.out(self.act(torch.cat(large, 1)))


class Read(nn.Module):
    """Classes from all pixels of the decoder, and of a segmenter's."""

    def __init__(self):
        super().__init__()
        self.decoder, self.segmenter = Decoder(), bilinear()
        self.fc = nn.Linear(2 * 3 * 32 * 32, 10)

    def forward(self, x):
        return self.fc(torch.cat([self.decoder(x), self.segmenter(x)], 1).flatten(1))


class SlopeOfTokens(Base):
    def __init__(self):
        super().__init__()
        self.slope = nn.PReLU(32)

    def forward(self, x):
        return self.end(self.slope(self.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


class Detector(nn.Module):
    """Two maps of features, the first one normalised as SSD does; 4 boxes a pixel, 5 classes."""

    def __init__(self, swapped=False):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.place = nn.ModuleList(nn.Conv2d(8, 16, 3, padding=1) for _ in range(2))
        self.kind = nn.ModuleList(nn.Conv2d(8, 24, 3, padding=1) for _ in range(2))
        self.factor, self.swapped = nn.Parameter(torch.full((8,), 20.0)), swapped

    def forward(self, x):
        a = F.relu(self.a(x))
        maps = [self.factor.view(1, -1, 1, 1) * F.normalize(a), F.relu(self.b(a))]

        def boxes(heads, values):
            return torch.cat([head(m).permute(0, 2, 3, 1).reshape(len(m), -1, values)
                              for head, m in zip(heads, maps)], 1)
        place, kind = boxes(self.place, 4), boxes(self.kind, 6)
        return (kind, place) if self.swapped else {"bbox_regression": place, "cls_logits": kind}


class Outputs(Base):
    def forward(self, x):
        x = self.a(x)
        return {"out": self.end(x), "aux": torch.softmax(x, 1)}


# --- What does not come over ---

class ByValue(Base):
    def forward(self, x):
        x = self.a(x)
        return self.end(x * 2 if x.sum() > 0 else x)


class Standardized(Base):
    def forward(self, x):
        w = self.a.weight
        return self.end(F.conv2d(x, w - w.mean((1, 2, 3), keepdim=True)))


class PartOfAWeight(Base):
    def forward(self, x):
        return self.end(torch.cat([F.conv2d(self.a(x), self.b.weight[:4])] * 2, 1))


class Grouped(Base):
    """A matrix of its own for each half of the channels."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self, x):
        x = self.a(x).mean((2, 3)).view(-1, 2, 4)
        return self.head(torch.einsum("bgi,gio->bgo", x, self.w).flatten(1))


class Absolute(Base):
    """A weight that has the parameter's values at first, and no longer when it is trained."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(8, 10) + 0.1)

    def forward(self, x):
        return self.a(x).mean((2, 3)) @ self.w.abs()


class Written(Base):
    def forward(self, x):
        x = self.a(x).clone()
        x[:, :2] = 0
        return self.end(x)


class PartInPlace(Base):
    def forward(self, x):
        x = self.a(x).clone()
        x[:, :2].relu_()
        return self.end(x)


class Attention(Base):
    def forward(self, x):
        x = self.a(x).flatten(2)
        return self.head((x @ x.transpose(1, 2)).mean(2))


class OneSided(Base):
    def forward(self, x):
        return self.end(F.conv2d(F.pad(self.a(x), (0, 1, 0, 1)), self.b.weight, stride=2))


class Scalar(Base):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.end(self.a(x) * self.factor)


class Pixels(Base):
    def forward(self, x):
        return self.end(self.a(x + torch.linspace(0, 1, x.shape[-1])))
