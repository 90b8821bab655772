"""net.yaml and net.safetensors."""
import json

import torch
import yaml
from safetensors.torch import save_file

from whole_file import replace

from .views import runs


def flow(data):
    text = yaml.safe_dump(data, default_flow_style=True, sort_keys=False, width=10 ** 9)
    return text.strip().removesuffix("...").strip()


def layer_lines(network):
    """One line a layer; inputs where they are not the layer before."""
    lines, before = [], "input"
    for layer in network.layers:
        entry = {"name": layer.name, "kind": layer.kind}
        if layer.inputs != [before]:
            entry["inputs"] = layer.inputs
        entry.update(layer.keys)
        lines.append(f"    - {flow(entry)}\n")
        before = layer.name
    return lines


def model_text(network, classes, comment, weights):
    """The `model:` section; `weights`: path of the file, or None."""
    text = f"# {comment}\nmodel:\n  classes: {classes}\n"
    if weights is not None:
        text += f"  init: {flow({'weights': weights, 'require_all': True})}\n"
    if network.outputs:
        text += f"  outputs: {flow(network.outputs)}\n"
    return text + "  layers:\n" + "".join(layer_lines(network))


def plain(path):
    """`path` so that ada-train, which expands ${VAR} and ~, takes it as it is."""
    return "./" + path if path.startswith("~") else path


def write_tensors(network, path):
    tensors = {name: stored.values().detach().to("cpu", torch.float32).clone().contiguous()
               for name, stored in network.tensors().items()}
    replace(path, lambda temporary: save_file(tensors, temporary, {"format": "pt"}))


def write_rest(state, network, path):
    """`state`: the module's state dict. What tools/to_torch.py needs to make a state dict of trained weights: which of the module's
    tensors (all names, shape, and the order of its values where that is another) each of the network's is, and those that the
    network lacks."""
    state = {name: t for name, t in state.items() if isinstance(t, torch.Tensor)}
    names, constants, used = {}, [], set()
    for ours, stored in network.tensors().items():
        tensor = stored[0]
        theirs = [name for name, t in state.items()
                  if t.data_ptr() == tensor.data_ptr() and t.numel() == tensor.numel()]
        if theirs:
            order = {}
            if stored.permuted is not None:
                order["view"], order["axes"] = map(list, stored.permuted)
            if stored.rows is not None:
                order["rows"] = runs(stored.rows)
            names[ours] = (theirs, list(tensor.shape), *([order] if order else []))
            used.update(theirs)
        else:
            constants.append(ours)
    rest = {name: t.detach().clone().contiguous() for name, t in state.items() if name not in used}
    metadata = {"format": "pt", "names": json.dumps(names), "constants": json.dumps(constants)}
    rest = rest or {"nothing": torch.zeros(1)}  # safetensors wants a tensor
    replace(path, lambda temporary: save_file(rest, temporary, metadata))


def write_text(text, path):
    def write(temporary):
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    replace(path, write)
