"""Converts a module of from_torch_sequences.py and keeps its logits for tokens, or images, of its
own: NAME TOKENS. Run by torch_commands.py beside the tools."""
import importlib
import os
import sys


def main():
    import from_torch
    import torch
    from safetensors.torch import save_file
    name, count = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    torch.manual_seed(0)
    made = getattr(importlib.import_module("from_torch_sequences"), name)()
    holder = type(sys)("sequence_holder")
    holder.net = made
    sys.modules["sequence_holder"] = holder
    images = name in ("ViT", "Pooled", "Distilled")
    sys.argv = ["from_torch.py", "sequence_holder:net", "--input" if images else "--tokens",
                "32" if images else count, "--output", name]
    from_torch.main()
    given = torch.randn(4, 3, 32, 32) if images else torch.randint(30, (4, int(count)))
    from torch_network import output, trace
    with torch.no_grad():
        logits = output.named_outputs(trace.forward(made.eval(), given))[0][1]
    save_file({"logits": logits.clone()}, f"{name}/logits.safetensors")
    if images:
        arrays = {"images": given.permute(0, 2, 3, 1).contiguous(), "labels": torch.arange(4)}
    else:
        arrays = {"tokens": given.to(torch.int32)}
    save_file({f"{split}.{key}": t.clone() for split in ("train", "test")
               for key, t in arrays.items()}, f"{name}/data.safetensors")
