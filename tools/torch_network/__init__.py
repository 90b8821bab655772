"""From a torch.nn.Module to ada-train's `model:` section and its weights; tools/from_torch.py is
the command."""
