#!/usr/bin/python3
"""What accumulators do to a training: `ada-train choose` trains a GPT and ResNet-20 under each of a
list of accumulators, and a Markdown table has the losses, what the sums lost, and the worst product.

usage: tools/sweep/accumulators.py --out DIR [--steps N] [--seeds N] [--config FILE...]
The same command goes on where it was stopped. Environment: ADA_TRAIN, the program (build/ada-train
of this tree).
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ("configs/gpt2_jargon_quick.yaml", "configs/resnet20_cifar_quick.yaml")
FP8 = ("precision: {format: bf16, recipe: torchao_fp8_tensorwise, accumulate: %s}\n"
       "scaling: {policy: none}\n")
FP16 = "precision: {format: fp16, accumulate: %s}\nscaling: {policy: dynamic}\n"
# Keys, and accumulators of forward, dx and dw by name; the first is the baseline.
FAMILIES = {
    "fp8": (FP8, {"fp32_sums": "none", "hopper_fp8": "hopper_fp8",
                  "promoted_every_128": "hopper_fp8_promote128",
                  "hopper_fp8_in_forward": "{forward: hopper_fp8}"}),
    "fp16": (FP16, {"fp32_sums": "none", "hopper_f32": "hopper_f32", "ampere_f32": "ampere_f32",
                    "volta_f16": "volta_f16"}),
}


def choose(config, family, options):
    """Trains a family's arms, or goes on; what `choose --json` says."""
    keys, accumulators = FAMILIES[family]
    out = options.out / f"{pathlib.Path(config).stem}-{family}"
    (out / "arms").mkdir(parents=True, exist_ok=True)
    arms = []
    for name, accumulator in accumulators.items():
        arms.append(out / "arms" / f"{name}.yaml")
        arms[-1].write_text(keys % accumulator, encoding="utf-8")
    program = os.environ.get("ADA_TRAIN", str(TREE / "build/ada-train"))
    done = subprocess.run(
        [program, "choose", str(TREE / config), "--baseline", str(arms[0]), "--formats",
         ",".join(map(str, arms[1:])), "--seeds", str(options.seeds), "--steps", str(options.steps),
         "--out", str(out / "runs"), "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def sums_of(folders):
    """Over runs: share swallowed, mean bias, and the product with the smallest SQNR."""
    found = []
    for path in (folder / "accumulators.csv" for folder in folders):
        if path.exists():
            with open(path, encoding="utf-8", newline="") as file:
                found += csv.DictReader(file)
    if not found:
        return "", "", ""
    products = sum(int(row["products"]) for row in found)
    swallowed = 100 * sum(int(row["swallowed"]) for row in found) / max(1, products)
    bias = statistics.fmean(float(row["bias"]) for row in found if row["bias"] not in ("", "nan"))
    decibels = {}
    for row in found:
        if row["sqnr_db"] not in ("", "inf", "nan"):
            decibels.setdefault(f"{row['layer']}.{row['tensor']}", []).append(float(row["sqnr_db"]))
    means = {name: statistics.fmean(values) for name, values in decibels.items()}
    worst = min(means, key=means.get, default=None)
    return f"{swallowed:.2g}", f"{bias:.1e}", f"{worst}: {means[worst]:.1f} dB" if worst else ""


def table(config, options):
    print(f"\n{config}\n\n| | loss | minus fp32 sums, by seed | swallowed % | bias | worst product |")
    print("|---|---|---|---|---|---|")
    for family in FAMILIES:
        said = choose(config, family, options)
        runs = pathlib.Path(said["out"])
        for arm in said["arms"]:
            beside, sums = "", ("", "", "")
            if arm["arm"] != said["baseline"]:
                minus = arm["loss_minus_baseline_by_seed"]
                beside = ", ".join("-" if value is None else f"{value:+.4f}" for value in minus)
                sums = sums_of([runs / f"{arm['arm']}-seed{seed}" for seed in said["seeds"]])
            loss = "-" if arm["loss"] is None else f"{arm['loss']:.4f}"
            print(f"| {family}, {arm['arm']} | {loss} | {beside} | {' | '.join(sums)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--config", nargs="+", default=list(CONFIGS))
    options = parser.parse_args()
    for config in options.config:
        table(config, options)


if __name__ == "__main__":
    main()
