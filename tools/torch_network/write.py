"""net.yaml and net.safetensors."""
import os

import torch
import yaml
from safetensors.torch import save_file


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
    return text + "  layers:\n" + "".join(layer_lines(network))


def plain(path):
    """`path` so that ada-train, which expands ${VAR} and ~, takes it as it is."""
    return "./" + path if path.startswith("~") else path


def replace(path, write):
    """A file appears whole or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def write_tensors(network, path):
    tensors = {name: tensor.detach().to("cpu", torch.float32).reshape(shape).clone().contiguous()
               for name, (tensor, shape) in network.tensors().items()}
    replace(path, lambda temporary: save_file(tensors, temporary, {"format": "pt"}))


def write_text(text, path):
    def write(temporary):
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    replace(path, write)
