#!/usr/bin/env python3
"""Brings torchvision's networks over with tools/from_torch.py and compares them with PyTorch: logits
in fp32, loss and gradient norms of one training step, five steps in fp16 under the adaptive policy.
Weights are random, and so are the running statistics. Needs torch and torchvision. Half an hour for
all on two cores; prints a table, a row a network, and ends with 1 where one is off.

usage: torchvision_networks.py --binary build/ada-train [NETWORK...]
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
BATCH, CLASSES = 4, 1000
# A module for from_torch.py: the network with random running statistics; `plain`: nothing dropped,
# so that a training step can be compared.
MADE = '''
import torch
import torchvision


def make(name, plain=True):
    torch.manual_seed(7)
    more = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    net = getattr(torchvision.models, name)(weights=None, **more)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
        if plain and isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
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


def references(name, images, labels):
    """From PyTorch: logits; loss and norms in fp32; the same in fp64."""
    import made
    net = made.make(name)
    counts = {n: p.numel() for n, p in net.named_parameters()}
    net.eval()
    with torch.no_grad():
        logits = net(images).numpy()
    saved = {n: b.clone() for n, b in net.named_buffers()}
    single = torch_step(net, images, labels)
    for n, buffer in net.named_buffers():
        buffer.copy_(saved[n])
    return logits, counts, single, torch_step(net.double(), images.double(), labels)


def convert(name, size, folder, output, plain):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/from_torch.py"), "made:make", "--arg", f"name={name}",
         "--arg", f"plain={plain}", "--input", f"3x{size}x{size}", "--output", output], cwd=folder,
        capture_output=True, text=True, check=True).stdout


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


def compare(name, binary, folder):
    """A row of the table, and whether all is well."""
    size = 107 if name == "inception_v3" else 64
    torch.manual_seed(3)
    images = torch.randn(BATCH, 3, size, size)
    labels = torch.tensor([(7 + 331 * i) % CLASSES for i in range(BATCH)])
    network_step.write_images(f"{folder}/images.safetensors", images.numpy(), labels.numpy())
    told = convert(name, size, folder, "net", True)
    convert(name, size, folder, "dropping", False)
    layers = told.split(": ", 1)[1].split(" layers")[0]
    last = pathlib.Path(folder, "net/net.yaml").read_text().rsplit("{name: ", 1)[1].split(",")[0]
    files = ("net/net.yaml", "net/net.safetensors", "images.safetensors", BATCH)
    pathlib.Path(folder, "step.yaml").write_text(network_step.configuration(
        *files, network_step.STEP.format(last=last)))
    pathlib.Path(folder, "half.yaml").write_text(network_step.configuration(
        "dropping/net.yaml", *files[1:], HALF))
    ours = network_step.outputs(binary, folder, "step.yaml")
    step = network_step.Step(binary, folder, "step.yaml")
    losses = fp16_losses(binary, folder, "half.yaml")
    logits, counts, (loss, norms), (true_loss, truth) = references(name, images, labels)
    our_norms = norms_of(step, counts)
    row = {
        "layers": layers, "parameters": sum(counts.values()),
        "logits": abs(ours - logits).max() / abs(logits).max(),
        "loss": abs(step.loss - true_loss) / true_loss,
        "torch_loss": abs(loss - true_loss) / true_loss,
        "norms": worst(our_norms, truth, counts), "torch_norms": worst(norms, truth, counts),
        "fp16_losses": " ".join(f"{value:.4f}" for value in losses)}
    good = (row["logits"] <= 1e-4 and row["loss"] <= 4 * row["torch_loss"] + 1e-6
            and row["norms"] <= 4 * row["torch_norms"] + 1e-5 and len(losses) == 5
            and all(numpy.isfinite(losses)))
    return row, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--binary", default=str(ROOT / "build/ada-train"))
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
                row, good = compare(name, binary, folder)
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
