"""Scales a PyTorch training as ada-train does (AdaLossScaled, GradScaler), and records one in the
files of an ada-train run: `report`, `watch`, `what-if`, `recommend` and `compare` read them."""
import importlib

from ada_train.recording import FolderInUse
from ada_train.torch import optimizers
from ada_train.torch.recorder import Recorder

__all__ = ["AdaLossScaled", "GradScaler", "Policy", "Scale", "callbacks", "record", "Recorder", "FolderInUse"]
_LATER = {"AdaLossScaled": "scaled", "GradScaler": "scaler", "callbacks": "callbacks",
          "Policy": "policy", "Scale": "policy"}


def __getattr__(name):
    """Scaling wants a newer torch than recording, and the native library."""
    if name not in _LATER:
        raise AttributeError(f"module 'ada_train.torch' has no attribute {name!r}")
    module = importlib.import_module("ada_train.torch." + _LATER[name])
    return module if name == "callbacks" else getattr(module, name)


def record(model, optimizer, folder, *, scaler=None, scale=1.0, format=None, activations=None,
           weights=None, gradients=None, weight_gradients=None, saturate=False, every=100,
           histogram_every=None, statistics=("y", "dx", "dy", "dw"), layers="*", name=None,
           dataset=None, overwrite=False, operands=None, dump_every=0):
    """Records the training of `model` by `optimizer` into `folder`, until close().

    Call recorder.step(loss) once after each attempt to update the weights, skipped ones included:

        recorder = ada_train.torch.record(model, optimizer, "runs/mine", scaler=scaler)
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            recorder.step(loss)
        recorder.close()

    optimizer: a torch.optim.Optimizer, one that wraps it (accelerate's), a list of several that
        update the weights together, or None.
    scaler: the GradScaler, or `scale`: the number with which the loss is multiplied.
    format: a format to emulate ("fp8_e5m2", "{exponent: 4, mantissa: 3}") in a model that computes
        in fp32, or one for a role alone: activations, weights, gradients, weight_gradients, as in
        ada-train's `precision`. Without any of them the model is recorded in the formats in which
        it computes, and nothing of what it computes changes.
    operands: a block-scaled format ("mxfp8_e4m3", "nvfp4", "{element: fp4_e2m1, rule: rceil}") to
        which the operands of nn.Linear and nn.Conv2d are rounded once more where a product takes
        them, forwards and backwards; or {"x": ..., "w": ..., "dy": ...}, or {"forward": {"x", "w"},
        "dx": {"dy", "w"}, "dw": {"x", "dy"}}, where None leaves one alone. Rows of blocks.csv say
        what each lost. It needs libada_scaling.
    saturate: beyond a format's largest value stands the largest value.
    every: steps between rows of underflow.csv and scales.csv; histogram_every: between histograms
        (default: `every`; 0: none). The first step is logged too.
    statistics: which of y, w, dx, dw, dy are counted; layers: glob on the modules' names, or
        several: others are neither recorded nor rounded.
    dump_every: steps between files dump/step-*.safetensors with x, w and dy of linear layers and
        convolutions (0: none), by which `ada-train what-if` judges recipes and formats in blocks.
    overwrite: delete a recorded run that the folder holds.

    Layers are modules without children, under their names in the model. Those that only move
    values, embeddings and dropout have no rows; others without rows are named by a warning. What
    `forward` does by functions is not rounded by an emulation. No module is called again; a failing
    recording is a warning and ends no training. Rows of `dw` carry S until the optimizer's step, and
    loss.dx needs recorder.loss(...) under autocast. Micro-batches of one update count as one.
    """
    return Recorder(model, optimizers.of(optimizer), folder, scaler=scaler, scale=scale,
                    formats=(format, activations, weights, gradients, weight_gradients, saturate),
                    every=every, histogram_every=every if histogram_every is None
                    else histogram_every, statistics=statistics, layers=layers, name=name,
                    dataset=dataset, overwrite=overwrite, operands=operands,
                    dump_every=dump_every)
