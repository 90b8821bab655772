"""Whether PyTorch's networks with quantized operands do what ada-train's do: the same weights and
batches, and losses that agree step by step."""
import models
from ada_runs import run_files
from modes import MODES
from turns import end, note

STEPS = 5
# What a mode of PyTorch is compared with: the mode of the same format, further --set values; how far
# losses may be apart, and the first gradient of the first weight, as shares. It has been through all
# products. Both programs keep activations and gradients in bf16 and round in different places (a
# bias before or after its sum is rounded). Without quantized operands, or under another format, the
# MLP's gradient is 0.12 and more away (MXFP8), 0.33 (NVFP4, whose gradients are rounded by chances
# that are not the same: 0.15).
AS_IN = {"torch-mxfp8": ("ada-mxfp8", (), 0.005, 0.02),
         "torch-nvfp4": ("ada-nvfp4", (), 0.02, 0.25),
         # torchao's layer has no last block that is shorter, and the last layer none that is whole.
         "torch-mxfp8-torchao": ("ada-mxfp8", ("precision.operands.spared={last: 1}",), 0.005, 0.02)}
# A deep network spreads what is rounded elsewhere: the first gradients of its plain bf16 networks are
# 0.09 apart. Without quantized operands, or under the other format, they are 0.95 (MXFP8) and 1.08
# (NVFP4) away, quantized alike 0.33 and 0.68.
DEEP = {("resnet20", "torch-mxfp8"): 0.5, ("resnet20", "torch-nvfp4"): 0.85}


class Recorded:
    """Some steps of ada-train that a mode of PyTorch is compared with: its losses, and `files`, in
    which a PyTorch process finds the first weights and the batches."""

    def __init__(self, ada, model, mode, batch, threads):
        same, more, _, _ = AS_IN[mode]
        name = "recorded-" + mode
        common = (*model.network, f"data.batch_size={batch}", *MODES[same].values, *more)
        first = f"log={{every: 1, dump_every: 1, dump: [{model.first_layer}, loss]}}"
        ada.finish(ada.start(model.config, (*common, "optimizer.lr=1.0e-30", "train.max_steps=1",
                                            "checkpoint.every_steps=1"), threads, name + "-weights"),
                   least=1)
        ada.finish(ada.start(model.config, (*common, f"train.max_steps={STEPS}", first), threads,
                             name))
        self.files = [
            str(ada.folder(name + "-weights") / "checkpoints" / "step-00000001.safetensors"),
            str(ada.folder(name) / "dump")]
        self.losses = [float(row["loss"])
                       for row in run_files.rows(ada.folder(name) / "steps.csv")]


def check(name, mode, ours, about):
    """Ends the program where losses or gradients differ by more than they may. `about`: what the
    PyTorch process says."""
    _, _, loss, gradient = AS_IN[mode]
    gradient = DEEP.get((name, mode), gradient)
    theirs, distance = about["losses"], about["gradient_distance"]
    apart = [abs(a - b) / abs(a) for a, b in zip(ours, theirs)]
    close = len(ours) == len(theirs) and all(one <= loss for one in apart) and distance <= gradient
    text = (f"{models.MODELS[name].title}: {mode} beside ada-train: losses of the first "
            f"{len(ours)} steps {100 * max(apart):.2g} % apart at most ({100 * loss:g} % are allowed), "
            f"the first gradient {100 * distance:.2g} % ({100 * gradient:g} %)")
    if not close:
        end(f"{text}: ours {ours}, PyTorch's {theirs}")
    note(text)
