#!/usr/bin/python3
"""torch_one_cycle.csv: rates of torch's OneCycleLR.

python3 make_one_cycle.py          (torch; writes the file beside itself)"""
import os

import torch
from torch.optim import lr_scheduler as ls

HERE = os.path.dirname(os.path.abspath(__file__))
# total_steps, pct_start, anneal_strategy, three_phase, div_factor, final_div_factor
CASES = [
    (60, 0.3, "cos", False, 25.0, 1e4),
    (60, 0.3, "linear", False, 25.0, 1e4),
    (60, 0.3, "cos", True, 25.0, 1e4),
    (47, 0.45, "linear", True, 10.0, 100.0),
    (33, 0.1, "cos", False, 4.0, 1.0),
    (5, 0.3, "cos", False, 25.0, 1e4),
    (2, 0.3, "linear", False, 25.0, 1e4),
]


def rates(total, pct, anneal, three, div, final):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = ls.OneCycleLR(
        optimizer,
        0.1,
        total_steps=total,
        pct_start=pct,
        anneal_strategy=anneal,
        cycle_momentum=False,
        three_phase=three,
        div_factor=div,
        final_div_factor=final,
    )
    out = []
    for step in range(total):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < total:
            scheduler.step()
    return out


with open(f"{HERE}/torch_one_cycle.csv", "w") as f:
    f.write(f"# torch {torch.__version__}: OneCycleLR, max_lr 0.1, cycle_momentum off; make_one_cycle.py\n")
    f.write("total_steps,pct_start,anneal_strategy,three_phase,div_factor,final_div_factor,rates\n")
    for case in CASES:
        fields = [str(int(v) if isinstance(v, bool) else v) for v in case]
        f.write(",".join(fields) + "," + " ".join(map(repr, rates(*case))) + "\n")
