#!/usr/bin/python3
"""schedules.csv and updates.csv, recorded from torch.optim and torch.optim.lr_scheduler.

    ATEN_CPU_CAPABILITY=default python3 make.py          (torch; writes both files beside itself)

ATEN_CPU_CAPABILITY=default: torch's kernels without fused multiply-add, so that every fp32 operation rounds by itself."""
import csv
import os

import torch
from torch.optim import lr_scheduler as ls

HERE = os.path.dirname(os.path.abspath(__file__))
NOTE = f"# torch {torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}; make.py\n"


def rates(make, steps):
    """The rate of each step; `make` gets an SGD of rate lr and returns its scheduler."""
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=LR)
    scheduler = make(optimizer)
    out = []
    for _ in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


LR = 0.1
EPOCHS, PER_EPOCH = 12, 5
TOTAL = EPOCHS * PER_EPOCH


def poly(power, min_lr):  # PolynomialLR ends at 0: with a floor, the part above it moves
    return lambda o: ls.LambdaLR(o, lambda i: (min_lr + (LR - min_lr) * (1 - i / TOTAL) ** power) / LR)


def schedules():
    """name, kind, milestones, gamma, power, min_lr: columns of the table; rates by torch."""
    yield "constant", "", 0.1, 1, 0, lambda o: ls.ConstantLR(o, factor=1)
    for milestones, gamma in (([4], 0.1), ([3, 7], 0.5), ([2, 2, 9], 0.3)):
        steps = [m * PER_EPOCH for m in milestones]
        yield "multistep", " ".join(map(str, milestones)), gamma, 1, 0, lambda o, s=steps, g=gamma: ls.MultiStepLR(o, s, g)
    for low in (0.0, 1e-3):
        yield "cosine", "", 0.1, 1, low, lambda o, m=low: ls.CosineAnnealingLR(o, TOTAL, m)
    for low in (0.0, 1e-3):
        yield "linear", "", 0.1, 1, low, lambda o, m=low: ls.LinearLR(o, 1.0, m / LR, TOTAL)
    for power in (0.5, 2.0, 4.0):
        yield "poly", "", 0.1, power, 0, lambda o, p=power: ls.PolynomialLR(o, TOTAL, p)
    yield "poly", "", 0.1, 0.9, 1e-4, poly(0.9, 1e-4)


def write_schedules():
    with open(f"{HERE}/schedules.csv", "w") as f:
        f.write(NOTE + f"# lr {LR}, {PER_EPOCH} steps an epoch, {TOTAL} steps; one rate a step\n")
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["kind", "milestones", "gamma", "power", "min_lr", "rates"])
        for kind, milestones, gamma, power, low, make in schedules():
            out.writerow([kind, milestones, gamma, power, low, " ".join(map(repr, rates(make, TOTAL)))])


def bits(t):
    return " ".join(f"{v & 0xFFFFFFFF:08x}" for v in t.detach().view(torch.int32).tolist())


# kind, lr, momentum, nesterov, weight_decay, beta1, beta2, epsilon, clip_norm
RUNS = [
    ("sgd", 0.1, 0, 0, 0, 0, 0, 0, 0),
    ("sgd", 0.03, 0, 0, 5e-4, 0, 0, 0, 0),
    ("sgd", 0.1, 0.9, 0, 1e-4, 0, 0, 0, 0),
    ("sgd", 0.1, 0.9, 1, 0, 0, 0, 0, 0),
    ("sgd", 0.05, 0.95, 1, 5e-3, 0, 0, 0, 1.5),
    ("adam", 1e-3, 0, 0, 0, 0.9, 0.999, 1e-8, 0),
    ("adam", 1e-2, 0, 0, 1e-2, 0.8, 0.99, 1e-6, 0.5),
    ("adam", 1e-2, 0, 0, 0, 0.4, 0.9, 1e-8, 0),
    ("adamw", 1e-3, 0, 0, 1e-2, 0.9, 0.999, 1e-8, 0),
    ("adamw", 3e-2, 0, 0, 0.1, 0.9, 0.95, 1e-8, 1.0),
]


def make_optimizer(params, kind, lr, momentum, nesterov, decay, beta1, beta2, eps):
    if kind == "sgd":
        return torch.optim.SGD(params, lr, momentum, nesterov=bool(nesterov), weight_decay=decay, foreach=False)
    cls = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return cls(params, lr, (beta1, beta2), eps, weight_decay=decay, foreach=False)


def write_updates():
    g = torch.Generator().manual_seed(7)
    n, steps = 12, 20
    start = torch.randn(n, generator=g)
    # Magnitudes from 1e-6 to 10, one exact zero and one element that is always 0.
    grads = torch.randn(steps, n, generator=g) * torch.logspace(-6, 1, n)
    grads[3, 5] = 0
    grads[:, 7] = 0
    with open(f"{HERE}/updates.csv", "w") as f:
        f.write(NOTE + f"# fp32 bits in hex; run -1: start, then the gradients of steps 0..{steps - 1}; run r: the weights after each step\n")
        out = csv.writer(f, lineterminator="\n")
        out.writerow("run kind lr momentum nesterov weight_decay beta1 beta2 epsilon clip_norm step values".split())
        out.writerow([-1] + [""] * 9 + [-1, bits(start)])
        for i in range(steps):
            out.writerow([-1] + [""] * 9 + [i, bits(grads[i])])
        for r, (*setting, clip) in enumerate(RUNS):
            w = start.clone().requires_grad_()
            optimizer = make_optimizer([w], *setting)
            for i in range(steps):
                w.grad = grads[i].clone()
                if clip:
                    torch.nn.utils.clip_grad_norm_([w], clip, foreach=False)
                optimizer.step()
                out.writerow([r, *setting, clip, i, bits(w)])


write_schedules()
write_updates()
