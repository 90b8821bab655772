"""Converts a module and keeps its logits for images of its own: NAME NET SIZE IMAGES LOGITS. Run by
torch_commands.py beside the tools."""
import importlib
import pathlib
import sys


def main():
    import from_torch
    import torch
    from safetensors.torch import save_file
    name, net, size, images_path, logits_path = sys.argv[1:]
    sys.path.insert(0, ".")
    module, function = name.split(":")
    torch.manual_seed(0)
    made = getattr(importlib.import_module(module), function)()
    for part in made.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    pathlib.Path("torch_logits_module.py").write_text("net = None\n")
    holder = importlib.import_module("torch_logits_module")
    holder.net = made
    sys.argv = ["from_torch.py", "torch_logits_module:net", "--input", size, "--output", net]
    from_torch.main()
    images = torch.randn(4, *(int(n) for n in size.split("x")))
    with torch.no_grad():
        save_file({"logits": made.eval()(images)}, logits_path)
    pixels = images.permute(0, 2, 3, 1).contiguous()
    arrays = {"images": pixels, "labels": torch.tensor([0, 1, 2, 3])}
    save_file({f"{split}.{key}": t.clone() for split in ("train", "test")
               for key, t in arrays.items()}, images_path)
    del sys.modules["torch_logits_module"]
