"""What a run learnt, for other programs; tools/to_torch.py and tools/to_onnx.py are the commands."""
