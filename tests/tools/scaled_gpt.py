"""The GPT-2 of tests/golden/text in PyTorch, with nanoGPT's names, and its recorded steps."""
import csv
import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional

import scaled_networks


class Embedding(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(0, 0.02))

    def forward(self, tokens):
        return functional.embedding(tokens, self.weight)


class Positions(nn.Module):
    def __init__(self, context, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width).normal_(0, 0.02))

    def forward(self, x):
        return x + self.weight[:x.shape[1]]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.c_attn(x).chunk(3, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, hidden, eps):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, eps), Attention(width, heads)
        self.add_1 = scaled_networks.Add()
        self.ln_2, self.mlp = nn.LayerNorm(width, eps), Mlp(width, hidden)
        self.add_2 = scaled_networks.Add()

    def forward(self, x):
        x = self.add_1(x, self.attn(self.ln_1(x)))
        return self.add_2(x, self.mlp(self.ln_2(x)))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, hidden, vocabulary, context, eps):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": Embedding(vocabulary, width), "wpe": Positions(context, width),
            "h": nn.ModuleList(Block(width, heads, hidden, eps) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width, eps)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        x = self.transformer.wpe(self.transformer.wte(tokens))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


class Recording:
    """One recorded case of the network: its four steps, each in parts."""

    def __init__(self, folder, case):
        self.files = pathlib.Path(folder) / case
        self.facts = json.loads((self.files / "case.json").read_text(encoding="utf-8"))
        self.sizes = json.loads((pathlib.Path(folder) / "model.json").read_text(encoding="utf-8"))
        self.steps = rows(self.files / "steps.csv")
        data = scaled_networks.safetensors_file.read(pathlib.Path(folder) / "data.safetensors")
        (shape, x), (_, y) = data["x"], data["y"]
        code = torch.uint8 if len(x) == math.prod(shape) else torch.int32
        targets = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
            len(y) // math.prod(shape)]
        self.tokens = torch.frombuffer(bytearray(x), dtype=code).reshape(shape).long()
        self.targets = torch.frombuffer(bytearray(y), dtype=targets).reshape(shape).long()
        self._start = pathlib.Path(folder) / "init.safetensors"

    def network(self):
        m = self.sizes
        net = Gpt(m["layers"], m["heads"], m["width"], m["hidden"], m["vocab"], m["context"],
                  m["eps"])
        return scaled_networks.load(net, self._start)

    def keys(self):
        """Of `scaling:`."""
        s = self.facts["scaling"]
        if s["policy"] != "adaptive":
            scale = s.get("S0", s.get("scale", 1))
            return {"policy": "fixed", "scale": scale} if scale != 1 else {"policy": "none"}
        return {"init_scale": s["S0"], "underflow_target": s["n"], "u_min": s["u_min"],
                "scale_upper_bound": s["SB"], "accum_upper_bound": s["AB"]}

    def optimizer(self, net):
        o = self.sizes["optimizer"]
        groups = {True: [], False: []}
        for name, parameter in net.named_parameters():
            groups[name in o["no_decay"]].append(parameter)
        return torch.optim.AdamW(
            [{"params": groups[False], "weight_decay": o["weight_decay"]},
             {"params": groups[True], "weight_decay": 0.0}], o["lr"], o["betas"], o["eps"])

    def train(self, model, net):
        """(step, loss, norm, decisions of its last part) of each; model: what scales net."""
        optimizer, clip = self.optimizer(net), self.sizes["optimizer"]["clip"]
        for i, row in enumerate(self.steps):
            for group in optimizer.param_groups:
                group["lr"] = float(row["lr"])
            counted, loss = (self.targets[i] != -100).sum(), 0.0
            parts = self.sizes["accumulate"]
            for tokens, targets in zip(self.tokens[i].chunk(parts), self.targets[i].chunk(parts)):
                before = len(model.decisions)
                part = functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(),
                                                ignore_index=-100, reduction="sum") / counted
                model.scale(part).backward()
                loss += part.item()
            norm = nn.utils.clip_grad_norm_(net.parameters(), clip).item()
            yield row, loss, norm, model.decisions[before:]
            model.step(optimizer)
            optimizer.zero_grad()
