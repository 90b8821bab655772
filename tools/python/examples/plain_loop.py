"""Adaptive loss scaling in a plain PyTorch loop: two lines more than without. A LeNet on made-up
images, its gradients emulated in 8 bits.

usage: plain_loop.py [FOLDER]       then: ada-train watch FOLDER --once
"""
import sys

import torch
from torch import nn
from torch.nn import functional

from ada_train.torch import AdaLossScaled


def images(count, seed):
    """Ten classes: stripes of ten widths, under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    column = torch.arange(28).float()
    stripes = torch.sin(column * (0.2 + 0.15 * labels[:, None]))[:, None, None, :].expand(
        count, 1, 28, 28)
    return stripes + 0.5 * torch.randn(count, 1, 28, 28, generator=generator), labels


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10))
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    model = AdaLossScaled(net, policy={"method": "exact_range", "init_scale": 64},
                          format="fp8_e5m2", folder=folder, every=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = images(1024, 1)
    for step in range(60):
        rows = torch.arange(step * 32, step * 32 + 32) % len(x)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[rows]), y[rows])
        model.scale(loss).backward()
        model.step(optimizer)
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    model.close()
    model.eval()
    x, y = images(512, 2)
    with torch.no_grad():
        print(f"accuracy {(model(x).argmax(1) == y).float().mean().item():.1%}")


if __name__ == "__main__":
    main()
