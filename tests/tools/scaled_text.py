"""The recorded steps of tests/golden/text, trained by PyTorch."""
import csv
import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional

import scaled_gpt
import scaled_llama
import scaled_networks
import scaled_vit


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


class Recording:
    """One recorded case of a network: its four steps, each in parts."""

    def __init__(self, folder, case):
        self.files = pathlib.Path(folder) / case
        self.facts = json.loads((self.files / "case.json").read_text(encoding="utf-8"))
        self.sizes = json.loads((pathlib.Path(folder) / "model.json").read_text(encoding="utf-8"))
        self.steps = rows(self.files / "steps.csv")
        data = scaled_networks.safetensors_file.read(pathlib.Path(folder) / "data.safetensors")
        (shape, x), (places, y) = data["x"], data["y"]
        code = torch.uint8 if len(x) == math.prod(shape) else torch.int32
        targets = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
            len(y) // math.prod(places)]
        self.inputs = torch.frombuffer(bytearray(x), dtype=code).reshape(shape)
        self.targets = torch.frombuffer(bytearray(y), dtype=targets).reshape(places).long()
        self.inputs = self.inputs.long() if self.inputs.dim() == 3 else self.pixels()
        self._start = pathlib.Path(folder) / "init.safetensors"

    def pixels(self):
        mean, deviation = (torch.tensor(x).reshape(3, 1, 1) for x in (
            (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)))
        return (self.inputs.float() / 255 - mean) / deviation

    def network(self):
        m = self.sizes
        sizes = [m[key] for key in ("layers", "heads", "width", "hidden")]
        if m["family"] == "gpt2":
            net = scaled_gpt.Gpt(*sizes, m["vocab"], m["context"], m["eps"])
        elif m["family"] == "llama":
            net = scaled_llama.Llama(*sizes, m["vocab"], m["kv_heads"], m["eps"], m["rope_base"])
        else:
            tokens = (self.inputs.shape[-1] // m["patch"]) ** 2 + 1
            net = scaled_vit.Vit(*sizes, m["classes"], m["patch"], tokens, m["eps"])
        return scaled_networks.load(net, self._start, scaled_vit.MODULES)

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
            spared = name in o["no_decay"] or name in (
                scaled_vit.MODULES.get(other) for other in o["no_decay"])
            groups[spared].append(parameter)
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
            for inputs, targets in zip(self.inputs[i].chunk(parts), self.targets[i].chunk(parts)):
                before = len(model.decisions)
                part = functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(),
                                                ignore_index=-100, reduction="sum") / counted
                model.scale(part).backward()
                loss += part.item()
            norm = nn.utils.clip_grad_norm_(net.parameters(), clip or torch.inf).item()
            yield row, loss, norm, model.decisions[before:]
            model.step(optimizer)
            optimizer.zero_grad()
