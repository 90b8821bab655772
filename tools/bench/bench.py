#!/usr/bin/python3
"""ada-train beside PyTorch: images or tokens per second of training, in turns so that a machine
whose speed drifts treats both alike, with ratios, shares of the machine's peak and peak memory. Or:
single layers beside oneDNN (--ops); over numbers of threads (--scaling); what policies cost; what
logs cost. On the processor, or on an NVIDIA GPU (--device cuda).

Started by run.sh, which prepares the programs. Prints Markdown tables.
"""
import argparse
import os
import sys
import tempfile

import ada_runs
import compare
import costs
import machine
import models
import modes
import op_rows
from turns import end


def names_of(known, everything):
    """An argparse type: a list "a,b" of known names, in that order; "all" is `everything`."""
    def parse(text):
        names = list(everything) if text == "all" else text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown name '{name}'; known are all, {', '.join(known)}")
        return names
    return parse


def at_least(least):
    """An argparse type: a whole number from `least` on."""
    def parse(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}': expected a whole number from {least} on")
        return int(text)
    return parse


def batches(text):
    """An argparse type: a list "64,128" of numbers of images or sequences."""
    return [at_least(2)(size) for size in text.split(",")]  # batch norm over a 1x1 image needs two


def arguments(words):
    parser = argparse.ArgumentParser(prog="tools/bench/run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    only = parser.add_mutually_exclusive_group()
    for name, text in (
            ("ops", "each distinct convolution, linear layer and attention by itself; needs no "
             "PyTorch"), ("scaling", "speed over numbers of threads"),
            ("policy-cost", "what each policy costs; needs no PyTorch"),
            ("log-cost", "what statistics and histograms cost; needs no PyTorch")):
        only.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="what both programs compute on (default cpu)")
    parser.add_argument("--models", type=names_of(models.MODELS, models.usual("cpu")),
                        metavar="NAME,...",
                        help=f"of {', '.join(models.MODELS)}; default: those of small images; --ops and "
                        "--scaling: resnet20; --device cuda: resnet20,resnet50")
    parser.add_argument("--modes", type=names_of(modes.MODES, modes.of("", "compiled")),
                        metavar="NAME,...",
                        help=f"of {', '.join(modes.MODES)}; default: those neither compiled nor "
                        f"graphed; --device cuda: {', '.join(modes.CUDA)}")
    parser.add_argument("--batch", type=batches, metavar="N,...",
                        help="images or sequences of a step (default: 128, of large images and of "
                        "sequences fewer)")
    parser.add_argument("--isa", choices=machine.ISA_LIMITS,
                        help="no program may use more of the processor's instruction sets")
    for name, default, text in (
            ("rounds", 5, None),
            ("threads", machine.cores(), "of each program; --scaling: the most (default: all cores)"),
            ("ada-steps", None, "steps of one measurement; default: some seconds of each model"),
            ("torch-steps", None, "default: an eighth of ada-train's"),
            ("log-every", 100, "of ada-train; at least once in a measurement (default 100)")):
        parser.add_argument(f"--{name}", type=at_least(1), default=default, help=text)
    parser.add_argument("--config", help=f"of --policy-cost (default {models.RESNET20}) and "
                        f"--log-cost (default {costs.LOG_CONFIG})")
    parser.add_argument("--program", default=machine.BUILD / "ada-train",
                        help="another build of ada-train")
    for name, default in (("python", sys.executable), ("peak", machine.BUILD / "bench_peak"),
                          ("op-bench", machine.BUILD / "bench_ops")):
        parser.add_argument(f"--{name}", default=default, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    on_gpu = options.device == "cuda"
    if on_gpu and (options.ops or options.scaling):
        parser.error("--ops and --scaling are of the processor; --device cuda goes without them")
    if options.models is None:
        options.models = (["resnet20"] if options.ops or options.scaling
                          else models.usual(options.device))
    if options.policy_cost or options.log_cost:
        options.batch = options.batch or [128]
    options.modes = options.modes or list(modes.CUDA if on_gpu else modes.of(""))
    for names, allowed, text in (
            (modes.of("graphed"), on_gpu, "CUDA graphs need --device cuda"),
            (modes.of("operands"), not on_gpu, "operands in blocks are of the processor; --device "
             "cuda goes without them"),
            (["torch-mxfp8-torchao"], options.models == ["mlp512"], "torchao's layers are linear "
             "ones: --models mlp512"),
            (modes.of("tuned"), on_gpu, "plans are measured with --device cuda alone"),
            (modes.of("written"), all(models.MODELS[name].transformer for name in options.models),
             "attention is written out in transformers alone")):
        if not allowed and any(mode in names for mode in options.modes):
            parser.error(text)
    options.config = options.config or (costs.LOG_CONFIG if options.log_cost else models.RESNET20)
    return options


def main():
    options = arguments(sys.argv[1:])
    os.environ.update(machine.ISA_LIMITS.get(options.isa, {}))
    if options.device == "cuda" and machine.gpu() is None:
        end("--device cuda: nvidia-smi finds no GPU on this machine; nothing was measured")
    warning = machine.load_warning(os.getloadavg()[0])
    if warning:
        print(warning, flush=True)
    with tempfile.TemporaryDirectory(prefix="ada-bench-") as scratch:
        if options.ops:
            op_rows.run(options)
            return
        ada = ada_runs.AdaTrain(options.program, scratch, options.device)
        if options.policy_cost:
            (costs.run_on_device if options.device == "cuda" else costs.run_policies)(options, ada)
        elif options.log_cost:
            costs.run_logs(options, ada)
        elif options.scaling:
            compare.run_threads(options, ada)
        else:
            compare.run(options, ada)


if __name__ == "__main__":
    main()
