#!/usr/bin/env python3
"""Brings torchvision's networks over with tools/from_torch.py and compares them with PyTorch:
logits in fp32, loss and gradient norms of one training step, five steps in fp16 under the adaptive
policy. Weights are random, and so are the running statistics. Needs torch and torchvision. Half an
hour for all on two cores; prints a table, a row a network, and ends with 1 where one is off.

Loss and norms are compared with PyTorch in fp64, relative to it: ada-train's in fp32, and beside it
PyTorch's own in fp32, the worst of a few ways to sum (threads, memory format, with and without
oneDNN). A ReLU whose input lies within rounding of 0 takes a whole term of a gradient away or adds
it, so that these differ far more than sums do; --smooth puts functions without a kink in its place.

usage: torchvision_networks.py [--binary build/ada-train] [--smooth] [NETWORK...]
"""
import argparse
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch

import network_step

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2",
            "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
            "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "squeezenet1_1",
            "densenet121", "googlenet", "inception_v3", "efficientnet_b0", "convnext_tiny"]
DROP_NOTHING = ("resnet", "wide_resnet", "densenet")  # without dropout and stochastic depth
BATCH, CLASSES = 4, 1000
# How PyTorch sums in fp32: memory format, threads, whether with oneDNN.
WAYS = [(torch.contiguous_format, 1, True), (torch.contiguous_format, 2, True),
        (torch.channels_last, 1, True), (torch.contiguous_format, 1, False)]
# A module for from_torch.py: the network with random running statistics; `plain`: nothing dropped,
# so that a training step can be compared; `smooth`: modules with kinks replaced.
MADE = '''
import torch
import torchvision


SMOOTH = {torch.nn.ReLU: torch.nn.SiLU, torch.nn.ReLU6: torch.nn.SiLU,
          torch.nn.Hardswish: torch.nn.SiLU, torch.nn.Hardsigmoid: torch.nn.Sigmoid}


def replace_kinks(module):
    for name, child in module.named_children():
        replace_kinks(child)
        if type(child) in SMOOTH:
            setattr(module, name, SMOOTH[type(child)]())


def make(name, plain=True, smooth=False):
    torch.manual_seed(7)
    aux = name in ("googlenet", "inception_v3")
    more = {"init_weights": False, "aux_logits": False} if aux else {}
    net = getattr(torchvision.models, name)(weights=None, **more)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
        if plain and isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    if smooth:
        replace_kinks(net)
    return net
'''


def torch_step(net, images, labels):
    """Loss and the gradients' norms."""
    net.train()
    net.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    norms = {name: float(p.grad.double().norm()) for name, p in net.named_parameters()}
    net.zero_grad(set_to_none=True)
    return float(loss.detach()), norms


def worst(norms, truth, counts):
    """Largest relative difference of a norm; gradients that are zero but for rounding left out."""
    return max(abs(norms[name] - value) / value for name, value in truth.items()
               if value > 1e-7 * counts[name] ** 0.5)


def references(name, smooth, images, labels):
    """From PyTorch: logits; how many values each parameter has; loss and norms in fp32, of each of
    WAYS; the same in fp64."""
    import made
    net = made.make(name, smooth=smooth)
    counts = {n: p.numel() for n, p in net.named_parameters()}
    net.eval()
    with torch.no_grad():
        logits = net(images).numpy()
    singles, threads = [], torch.get_num_threads()
    for memory_format, count, onednn in WAYS:  # a training step does not read running statistics
        torch.set_num_threads(count)
        torch.backends.mkldnn.enabled = onednn
        singles.append(torch_step(net.to(memory_format=memory_format),
                                  images.to(memory_format=memory_format), labels))
    torch.set_num_threads(threads)
    torch.backends.mkldnn.enabled = True
    net.to(memory_format=torch.contiguous_format)
    return logits, counts, singles, torch_step(net.double(), images.double(), labels)


def convert(name, size, folder, output, plain, smooth):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/from_torch.py"), "made:make", "--arg", f"name={name}",
         "--arg", f"plain={plain}", "--arg", f"smooth={smooth}", "--input", f"3x{size}x{size}",
         "--output", output], cwd=folder, capture_output=True, text=True, check=True).stdout


def norms_of(step, names):
    """By PyTorch's names: a channel_scale's tensor is called NAME.weight."""
    found = {}
    for name in names:
        ours = name if f"optimizer.{name}.momentum" in step.tensors else f"{name}.weight"
        found[name] = float(numpy.linalg.norm(step.gradient(ours).astype(numpy.float64)))
    return found


def fp16_losses(binary, folder, config):
    network_step.call(binary, ["train", config, "--output", "half", "--no-progress"], folder)
    with open(os.path.join(folder, "half", "steps.csv"), encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


HALF = """
precision: {format: fp16}
scaling: {policy: adaptive}
optimizer: {kind: sgd, lr: 0.001, momentum: 0.9}
train: {epochs: 5}
log: {every: 1}
"""


def compare(name, smooth, binary, folder):
    """A row of the table, and whether all is well."""
    size = 107 if name == "inception_v3" else 64
    torch.manual_seed(3)
    images = torch.randn(BATCH, 3, size, size)
    labels = torch.tensor([(7 + 331 * i) % CLASSES for i in range(BATCH)])
    network_step.write_images(f"{folder}/images.safetensors", images.numpy(), labels.numpy())
    told = convert(name, size, folder, "net", True, smooth)
    half = "net"
    if not name.startswith(DROP_NOTHING):
        half = "dropping"
        convert(name, size, folder, half, False, smooth)
    layers = told.split(": ", 1)[1].split(" layers")[0]
    last = pathlib.Path(folder, "net/net.yaml").read_text().rsplit("{name: ", 1)[1].split(",")[0]
    files = ("net/net.yaml", "net/net.safetensors", "images.safetensors", BATCH)
    pathlib.Path(folder, "step.yaml").write_text(network_step.configuration(
        *files, network_step.STEP.format(last=last)))
    pathlib.Path(folder, "half.yaml").write_text(network_step.configuration(
        f"{half}/net.yaml", *files[1:], HALF))
    ours = network_step.outputs(binary, folder, "step.yaml")
    step = network_step.Step(binary, folder, "step.yaml")
    losses = fp16_losses(binary, folder, "half.yaml")
    logits, counts, singles, (true_loss, truth) = references(name, smooth, images, labels)
    our_norms = norms_of(step, counts)
    row = {
        "layers": layers, "parameters": sum(counts.values()),
        "logits": abs(ours - logits).max() / abs(logits).max(),
        "loss": abs(step.loss - true_loss) / true_loss,
        "torch_loss": max(abs(loss - true_loss) for loss, _ in singles) / true_loss,
        "norms": worst(our_norms, truth, counts),
        "torch_norms": max(worst(norms, truth, counts) for _, norms in singles),
        "fp16_losses": " ".join(f"{value:.4f}" for value in losses)}
    good = (row["logits"] <= 1e-4 and row["loss"] <= 3 * row["torch_loss"] + 1e-6
            and row["norms"] <= 3 * row["torch_norms"] + 1e-5 and len(losses) == 5
            and all(numpy.isfinite(losses)))
    return row, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--binary", default=str(ROOT / "build/ada-train"))
    parser.add_argument("--smooth", action="store_true",
                        help="SiLU for ReLU, ReLU6 and Hardswish, sigmoid for Hardsigmoid")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all")
    options = parser.parse_args()
    binary = os.path.realpath(options.binary)
    print(f"{'network':19}{'layers':>6}{'parameters':>11}{'logits':>9}{'loss':>9}{'(torch)':>9}"
          f"{'norms':>9}{'(torch)':>9}  losses of five steps in fp16", flush=True)
    bad = []
    for name in options.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "made.py").write_text(MADE)
            sys.path.insert(0, folder)
            sys.modules.pop("made", None)
            try:
                row, good = compare(name, options.smooth, binary, folder)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{name:19}{error} {getattr(error, 'stderr', '')}", flush=True)
                bad.append(name)
                continue
            finally:
                sys.path.remove(folder)
        numbers = "".join(f"{row[key]:9.1e}" for key in
                          ("logits", "loss", "torch_loss", "norms", "torch_norms"))
        print(f"{name:19}{row['layers']:>6}{row['parameters']:>11}{numbers}  {row['fp16_losses']}"
              f"{'' if good else '  OFF'}", flush=True)
        bad += [] if good else [name]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
