"""What is measured of a model: ada-train's formats and policies, and PyTorch's ways of training."""
import dataclasses

ADAPTIVE = ("precision={format: fp16}", "scaling={policy: adaptive, underflow_target: 1e-3, "
            "scale_upper_bound: 128, accum_upper_bound: 4096}")
UNSCALED = "scaling={policy: none}"


@dataclasses.dataclass(frozen=True)
class Mode:
    title: str
    values: tuple = None  # of ada-train: --set values in addition to the model's; None: PyTorch
    # "": measured where none is named; "compiled": a minute each before the first step, and a C++
    # compiler; "graphed", "tuned": of a GPU; "operands": of a processor; "written": of transformers,
    # on processors faster than PyTorch's own attention in bf16.
    of: str = ""


TORCH = {
    "fp32": "PyTorch fp32",
    "bf16": "PyTorch bf16 autocast",
    "fp16": "PyTorch fp16 autocast",
    "emulated": "PyTorch fp16 emulated by hooks",
    "counted": "PyTorch fp16 emulated, lost values counted",
}
MODES = {
    "ada-fp16": Mode("ada-train fp16, adaptive", ADAPTIVE),
    "ada-bf16": Mode("ada-train bf16", ("precision={format: bf16}", UNSCALED)),
    "ada-fp32": Mode("ada-train fp32", ("precision={format: fp32}", UNSCALED)),
    **{f"torch-{mode}": Mode(title) for mode, title in TORCH.items()},
    **{f"torch-{mode}-{of}": Mode(f"{TORCH[mode]}, {words}", of=of) for of, words, ways in (
        ("compiled", "torch.compile", ("fp32", "bf16", "fp16")),
        ("graphed", "CUDA graph", ("fp32", "bf16", "fp16")),
        ("written", "attention written out", TORCH)) for mode in ways},
    "ada-fp16-tuned": Mode("ada-train fp16, adaptive, autotune",
                           (*ADAPTIVE, "device.autotune=true", "device.deterministic=false"), "tuned"),
    "ada-mxfp8": Mode("ada-train bf16, operands MXFP8",
                      ("precision={recipe: torchao_mxfp8}", UNSCALED), "operands"),
    "ada-nvfp4": Mode("ada-train bf16, operands NVFP4, Hadamard",
                      ("precision={recipe: te_nvfp4}", UNSCALED), "operands"),
    "torch-mxfp8": Mode("PyTorch bf16 autocast, operands MXFP8 by tensor operations", of="operands"),
    "torch-nvfp4": Mode("PyTorch bf16 autocast, operands NVFP4 by tensor operations, Hadamard",
                        of="operands"),
    "torch-mxfp8-torchao": Mode("PyTorch bf16 autocast, torchao's emulated MXFP8 layers but the last",
                                of="operands"),
}


def of(*kinds):
    """The names of the modes of these kinds."""
    return [name for name, mode in MODES.items() if mode.of in kinds]


BASE, CUDA_BASE = "torch-fp32", "torch-fp16"
CUDA = ["ada-fp16", "ada-fp16-tuned", "ada-bf16", "torch-fp16", "torch-bf16", "torch-fp16-graphed",
        "torch-bf16-graphed", "torch-fp16-compiled"]
