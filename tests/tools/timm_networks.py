#!/usr/bin/env python3
"""Brings timm's networks over with tools/from_torch.py and compares their logits in evaluation with
PyTorch's: 4 images of 64x64, weights and running statistics random. Prints a table, a row a network,
with the reason where one does not come over; ends with 1 where logits differ by more than 1e-4 of the
largest. Needs torch and timm. Minutes on two cores.

usage: timm_networks.py [--binary build/ada-train] [NETWORK...]
"""
import argparse
import os
import pathlib
import sys
import tempfile

import timm
import torch

import network_step

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from torch_network import convert, network, output, trace, verify, write  # noqa: E402

NETWORKS = """
    resnet10t resnet18d seresnet18 resnext26ts resnext50_32x4d seresnext26d_32x4d resnetaa50
    resnetv2_50 res2net50_26w_4s dla34 dpn48b densenet121 selecsls42 hrnet_w18_small vgg11_bn
    regnetx_002 regnety_002 efficientnet_b0 efficientnet_lite0 mobilenetv2_050 mobilenetv3_small_050
    mobilenetv4_conv_small mnasnet_050 semnasnet_075 hardcorenas_a fbnetc_100 spnasnet_100 lcnet_050
    tinynet_e mixnet_s rexnet_100 ghostnet_050 repghostnet_050 repvgg_a0 mobileone_s0 repvit_m1
    gernet_s hgnet_tiny vovnet39a ese_vovnet19b_dw darknet53 cspresnet50 cspdarknet53 cs3darknet_s
    xception xception41 convnext_atto convmixer_768_32 poolformer_s12 fasternet_t0 starnet_s1
    tf_efficientnet_lite0 convnextv2_atto ecaresnet26t nf_resnet26 resnest14d skresnet18
    resnetblur18 edgenext_xx_small efficientvit_b0""".split()
BATCH, CLASSES, SIZE = 4, 10, (3, 64, 64)


def made(name):
    torch.manual_seed(7)
    net = timm.create_model(name, num_classes=CLASSES)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return net


def compare(net, binary, folder):
    """(layers, parameters, the largest difference of a logit over the largest logit)."""
    converter = convert.Converter(net)
    ends = output.Output(converter, trace.trace(net, SIZE, converter), False)
    layers = converter.network
    verify.verify(net, layers, SIZE, ends.names)
    write.write_tensors(layers, f"{folder}/net.safetensors")
    write.write_text(write.model_text(layers, ends.classes, "made for this comparison",
                                      "net.safetensors"), f"{folder}/net.yaml")
    images = torch.randn(BATCH, *SIZE)
    network_step.write_images(f"{folder}/images.safetensors", images.numpy(),
                              [i % CLASSES for i in range(BATCH - 1)] + [CLASSES - 1])
    pathlib.Path(folder, "step.yaml").write_text(network_step.configuration(
        "net.yaml", "net.safetensors", "images.safetensors", BATCH))
    ours = network_step.outputs(binary, folder, "step.yaml")
    with torch.no_grad():
        theirs = net.eval()(images).numpy()
    count = sum(t.numel() for t, _ in layers.tensors().values()
                if isinstance(t, torch.nn.Parameter))
    return len(layers.layers), count, float(abs(ours - theirs).max() / abs(theirs).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--binary", default=str(ROOT / "build/ada-train"))
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all of the table")
    options = parser.parse_args()
    binary, off, over = os.path.realpath(options.binary), [], 0
    torch.set_num_threads(1)
    names = options.networks or NETWORKS
    print(f"timm {timm.__version__}, torch {torch.__version__}\n")
    print("| network | layers | parameters | logits |\n|---|---|---|---|", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                layers, count, difference = compare(made(name), binary, folder)
            except network.CannotExpress as error:
                print(f"| {name} | | | {error} |", flush=True)
                continue
            except RuntimeError as error:
                print(f"| {name} | | | OFF: {error} |", flush=True)
                off.append(name)
                continue
        over += 1
        print(f"| {name} | {layers} | {count:,} | {difference:.1e} |", flush=True)
        off += [name] if not difference <= 1e-4 else []
    print(f"\n{over} of {len(names)} come over" + (f"; off: {', '.join(off)}" if off else ""))
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
