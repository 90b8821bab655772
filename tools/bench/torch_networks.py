"""PyTorch's versions of the networks in models.py: the same layers with the same parameters and
operations as ada-train's (bench.py compares both numbers before it measures)."""
import torch
from torch import nn
from torch.nn import functional


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


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 (which strides) and a 1x1 convolution, and a shortcut that is a 1x1 convolution
    where the shape changes."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.path(x) + self.shortcut(x), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, the first of which strides, and a shortcut that is a 1x1 convolution
    where the shape changes."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.path(x) + self.shortcut(x), inplace=True)


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        layers += [BasicBlock(inputs, outputs, 1 if inputs == outputs else 2),
                   BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def relu6_normed(inputs, outputs, kernel, stride=1, groups=1):
    """A convolution with batch norm and ReLU6."""
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    """1x1 to `factor` times the channels, a depthwise 3x3, 1x1 without activation; a shortcut where
    the shape stays."""

    def __init__(self, inputs, outputs, stride, factor):
        super().__init__()
        width = factor * inputs
        wider = relu6_normed(inputs, width, 1) if factor > 1 else []
        self.path = nn.Sequential(*wider, *relu6_normed(width, width, 3, stride, width),
                                  nn.Conv2d(width, outputs, 1, bias=False),
                                  nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.path(x) if self.adds else self.path(x)


def mobilenet_v2():
    layers, inputs = relu6_normed(3, 32, 3, 2), 32
    for factor, outputs, times, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                           (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                           (6, 320, 1, 1)):
        for i in range(times):
            layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, factor))
            inputs = outputs
    return nn.Sequential(*layers, *relu6_normed(320, 1280, 1), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


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


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(inplace=True),
                         nn.Linear(256, 128), nn.ReLU(inplace=True), nn.Linear(128, 10))


NETWORKS = {  # name -> what makes it, shape of an image
    "resnet20": (lambda: resnet(20), (3, 32, 32)),
    "resnet56": (lambda: resnet(56), (3, 32, 32)),
    "vgg16": (vgg16, (3, 32, 32)),
    "fashion": (fashion, (1, 28, 28)),
    "lenet": (lenet, (1, 28, 28)),
    "mlp": (mlp, (1, 28, 28)),
    "resnet18": (resnet18, (3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224)),
    "segnet_basic": (lambda: SegnetBasic(32, 11), (3, 180, 240)),
    "resnet50": (resnet50, (3, 224, 224)),
}


def describe(network, image):
    """Trained parameters, and operations of a forward pass over one image (a multiply-add counts
    as 2; convolutions and linear layers alone)."""
    flop = 0

    def count(module, _, y):
        nonlocal flop
        flop += 2 * y.numel() * module.weight[0].numel()

    hooks = [module.register_forward_hook(count) for module in network.modules()
             if isinstance(module, (nn.Conv2d, nn.Linear))]
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, *image))
    network.train()
    for hook in hooks:
        hook.remove()
    return {"parameters": sum(p.numel() for p in network.parameters()), "forward_flop": flop}
