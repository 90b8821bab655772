#!/usr/bin/env python3
"""Trains networks of timm under AdaLossScaled, a family each, and says which convolutions, linear
layers and attentions chose a scale: each has its rows, or is named with a reason. As Markdown;
ends with 1 where one has neither, or a loss is not finite. Weights are random; nothing is
downloaded. Needs torch, timm and libada_scaling; minutes.

usage: timm_scaled.py [--steps N] [--format NAME] [NETWORK...]
"""
import argparse
import math
import pathlib
import re
import sys
import warnings

import timm
import torch
from torch.nn import functional

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path[:0] = [str(TOOLS / "python"), str(TOOLS / "bench")]
import markdown  # noqa: E402
from ada_train.torch import AdaLossScaled  # noqa: E402
from ada_train.torch.layers import is_product, name_of  # noqa: E402

SIZE, BATCH, CLASSES = 64, 4, 4
SIZED = {"img_size": SIZE}
NETWORKS = {  # name: arguments
    "resnet10t": {}, "resnetv2_50": {}, "nf_resnet26": {}, "densenet121": {}, "regnety_002": {},
    "efficientnet_b0": {}, "mobilenetv3_small_050": {}, "ghostnet_050": {}, "repvgg_a0": {},
    "dla34": {}, "hrnet_w18_small": {}, "convnext_atto": {}, "poolformer_s12": {},
    "edgenext_xx_small": {}, "mobilevit_xxs": {}, "pvt_v2_b0": {},
    "vit_tiny_patch16_224": SIZED, "swin_tiny_patch4_window7_224": {**SIZED, "window_size": 4},
    "beit_base_patch16_224": {**SIZED, "embed_dim": 96, "depth": 4, "num_heads": 3},
    "xcit_nano_12_p16_224": SIZED, "mixer_s32_224": SIZED,
    "levit_128s": SIZED, "coatnet_nano_rw_224": SIZED, "cait_xxs24_224": {**SIZED, "depth": 4},
}


def layers_of(model, made):
    """(those with rows, {name: reason}, those with neither) of its products; its attentions."""
    products = {name_of(path) for path, module in model.module.named_modules()
                if is_product(module)}
    chosen = {re.sub(r"\.use\d+$", "", d["layer"]) for d in made if d["limit"] != "branch"}
    reasons = model.reasons
    return (products & chosen, {name: reasons[name] for name in sorted(reasons)},
            products - chosen - set(reasons), {n for n in chosen if n.endswith(".ds")})


def trained(name, options):
    """Losses and what layers_of() gives."""
    torch.manual_seed(0)
    net = timm.create_model(name, pretrained=False, num_classes=CLASSES, **NETWORKS[name])
    model = AdaLossScaled(net, {"init_scale": "auto"}, format=options.format)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, SIZE, SIZE), torch.arange(BATCH) % CLASSES
    losses, made = [], []
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        model.scale(loss).backward()
        losses.append(loss.item())
        made += model.decisions
        model.step(optimizer)
    return losses, layers_of(model, made)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--format", default="fp16")
    parser.add_argument("networks", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    timm.layers.set_fused_attn(True, experimental=True)  # swin too calls attention as a function
    rows, reasons, bad = [], {}, False
    for name in options.networks or NETWORKS:
        losses, (chosen, named, neither, within) = trained(name, options)
        bad = bad or bool(neither) or not all(map(math.isfinite, losses))
        for layer, reason in named.items():
            reasons.setdefault(reason, []).append(f"{name} {layer}")
        rows.append([name, str(len(chosen)), str(len(within)), str(len(named)), str(len(neither)),
                     f"{losses[0]:.3f} to {losses[-1]:.3f}"])
        print(f"{name}: {rows[-1]} {named} {sorted(neither)}", file=sys.stderr, flush=True)
    print(f"timm {timm.__version__}, torch {torch.__version__}, {options.format} emulated, "
          f"{options.steps} steps of {BATCH} images of {SIZE} x {SIZE}\n")
    print(markdown.table(["network", "products with rows", "attentions", "named", "neither",
                          "loss"], rows))
    print("\n" + "\n".join(f"* {reason}: {len(places)}" for reason, places in reasons.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
