"""ResNet-20 for CIFAR in PyTorch, and one training step of it per number format. It is what
ada-train's speed is compared with; runs in the virtual environment that run.sh makes.

Started by bench.py. Reads requests "MODE STEPS" from stdin, one a line, and answers each with the
seconds of every step as a JSON list. Data stay in memory: no loader, no augmentation, no logging.
"""
import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

WARM_UP = 5  # steps of a mode before its first measurement


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


def resnet20():
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(i, o, 1 if i == o else 2) for i, o in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Lost:
    """How many values one tensor's rounding lost, kept on the device of the tensor."""

    def __init__(self):
        self.underflow = self.overflow = 0

    def add(self, before, after):
        self.underflow = self.underflow + ((before != 0) & (after == 0)).sum()
        self.overflow = self.overflow + (after.isinf() & before.isfinite()).sum()


class RoundBoth(torch.autograd.Function):
    """Rounds a value to fp16 on its way forward and its gradient on the way back."""

    @staticmethod
    def forward(ctx, x, lost):
        ctx.lost = lost
        y = x.half().float()
        if lost:
            lost[0].add(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        rounded = gradient.half().float()
        if ctx.lost:
            ctx.lost[1].add(gradient, rounded)
        return rounded, None


class RoundWeight(nn.Module):
    """The rounded copy that is multiplied; its gradient passes unrounded."""

    def forward(self, weight):
        return weight + (weight.half().float() - weight).detach()


def emulate_fp16(model, counting):
    """Puts a rounding behind every module whose output a mixed-precision run would store."""
    for module in list(model.modules()):
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            parametrize.register_parametrization(module, "weight", RoundWeight())
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.Identity,
                               nn.AdaptiveAvgPool2d)):
            lost = (Lost(), Lost()) if counting else None
            module.register_forward_hook(lambda _, __, y, lost=lost: RoundBoth.apply(y, lost))


AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Run:
    """A model in one mode and its training step."""

    def __init__(self, mode, batch):
        torch.manual_seed(0)
        self.model = resnet20().to(memory_format=torch.channels_last)
        if mode.startswith("emulated"):
            emulate_fp16(self.model, counting=mode == "emulated-counting")
        elif mode != "fp32" and mode not in AUTOCAST:
            raise ValueError(f"unknown mode {mode}")
        self.autocast = AUTOCAST.get(mode)
        self.scaler = torch.amp.GradScaler("cpu", enabled=self.autocast == torch.float16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9,
                                         weight_decay=1e-4)
        self.images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (batch,))
        for _ in range(WARM_UP):
            self.step()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=self.autocast or torch.bfloat16,
                            enabled=self.autocast is not None):
            loss = functional.cross_entropy(self.model(self.images), self.labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def measure(self, steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=0, help="0: torch's own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    runs = {}
    for request in sys.stdin:
        mode, steps = request.split()
        if mode not in runs:
            runs[mode] = Run(mode, options.batch)
        print(json.dumps(runs[mode].measure(int(steps))), flush=True)


if __name__ == "__main__":
    main()
