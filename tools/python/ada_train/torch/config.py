"""config.yaml of a recorded run: what of the training has a key of ada-train."""
import json

import torch

from ada_train import recording
from ada_train.csv_writer import shortest
from ada_train.torch import optimizers
from ada_train.torch.layers import model_yaml


def _optimizer(optimizer):
    if optimizer is None:
        return "# optimizer: none is known"
    group = optimizer.param_groups[0]
    kind = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}.get(
        type(optimizer))
    if kind is None or not float(group["lr"]) > 0:
        return f"# optimizer: {optimizers.name_of(optimizer)}"
    keys = {"kind": kind, "lr": shortest(float(group["lr"]))}
    for name in ("momentum", "weight_decay"):
        if group.get(name):
            keys[name] = shortest(float(group[name]))
    if group.get("nesterov"):
        keys["nesterov"] = "true"
    return "optimizer: {" + ", ".join(f"{k}: {v}" for k, v in keys.items()) + "}"


def policy_of(scaler, scale):
    """The keys of `scaling:`."""
    if scaler is not None and scaler.is_enabled():
        return {"policy": "dynamic", "preset": "pytorch",
                "init_scale": shortest(float(scaler.get_scale())),
                "growth_factor": shortest(float(scaler.get_growth_factor())),
                "backoff_factor": shortest(float(scaler.get_backoff_factor())),
                "growth_interval": str(scaler.get_growth_interval())}
    if scale != 1:
        return {"policy": "fixed", "scale": shortest(float(scale))}
    return {"policy": "none"}


def _map(keys):
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def text_of(name, batch_size, traced, precision, policy, optimizer, epochs, log):
    """`precision`, `policy`, `log`: the keys of these sections, values as YAML."""
    return "\n".join([
        f"{recording.MARK} (PyTorch {torch.__version__}): ada-train reads this run and cannot "
        "train it.",
        f"name: {json.dumps(name)}",
        f"data: {{dataset: external, batch_size: {max(1, batch_size)}}}",
        *model_yaml(traced),
        f"precision: {_map(precision)}",
        f"scaling: {policy.get('section') or _map(policy)}",
        _optimizer(optimizer),
        f"train: {{epochs: {epochs}}}",
        f"log: {_map(log)}"]) + "\n"
