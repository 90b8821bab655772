#!/usr/bin/python3
"""What accumulators do to a training: runs a GPT and ResNet-20 under each of a list of accumulators,
and prints a Markdown table of losses, of what their sums lost and of the worst product.

usage: tools/sweep/accumulators.py --out DIR [--steps N] [--seeds 1,2,3] [--config FILE...] [--table]
Runs that are there are not made again. --table: prints the table of what is there.
Environment: ADA_TRAIN, the program (build/ada-train of this tree).
"""
import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ("configs/gpt2_jargon_quick.yaml", "configs/resnet20_cifar_quick.yaml")
FP8 = ("precision={recipe: torchao_fp8_tensorwise, accumulate: %s}", "scaling={policy: none}")
FP16 = ("precision={format: fp16, accumulate: %s}", "scaling={policy: dynamic}")
ARMS = {  # name: keys, accumulators of forward, dx, dw
    "fp8, fp32 sums": (FP8, "none"),
    "fp8, hopper_fp8": (FP8, "hopper_fp8"),
    "fp8, promoted every 128": (FP8, "hopper_fp8_promote128"),
    "fp8, hopper_fp8 in forward alone": (FP8, "{forward: hopper_fp8}"),
    "fp16, fp32 sums": (FP16, "none"),
    "fp16, hopper_f32": (FP16, "hopper_f32"),
    "fp16, ampere_f32": (FP16, "ampere_f32"),
    "fp16, volta_f16": (FP16, "volta_f16"),
}


def train(program, config, arm, seed, steps, folder):
    keys, accumulate = ARMS[arm]
    sets = [key % accumulate if "%s" in key else key for key in keys]
    sets += [f"seed={seed}", f"train.max_steps={steps}", "evaluate.every_epochs=0",
             f"log.every={max(1, steps // 8)}", "checkpoint.every_epochs=0"]
    done = subprocess.run([program, "train", str(config), "--output", str(folder), "--no-progress",
                           "--set", *sets], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{folder}: {done.stderr.strip()}", file=sys.stderr)


def rows(path):
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def loss_of(folder):
    """The mean of the last tenth of the losses, 5 at least."""
    losses = [float(row["loss"]) for row in rows(folder / "steps.csv")]
    return statistics.fmean(losses[-max(5, len(losses) // 10):])


def sums_of(folders):
    """Over all runs: share swallowed, mean bias, and the product with the smallest SQNR."""
    found = [row for folder in folders for row in rows(folder / "accumulators.csv")]
    if not found:
        return "", "", ""
    products = sum(int(row["products"]) for row in found)
    swallowed = 100 * sum(int(row["swallowed"]) for row in found) / max(1, products)
    bias = statistics.fmean(float(row["bias"]) for row in found if row["bias"] not in ("", "nan"))
    decibels = {}
    for row in found:
        if row["sqnr_db"] not in ("", "inf", "nan"):
            decibels.setdefault(f"{row['layer']}.{row['tensor']}", []).append(float(row["sqnr_db"]))
    worst = min(decibels, key=lambda name: statistics.fmean(decibels[name]), default="")
    text = f"{worst}: {statistics.fmean(decibels[worst]):.1f} dB" if worst else ""
    return f"{swallowed:.2g}", f"{bias:.1e}", text


def table(out, config, seeds):
    print(f"\n{config}\n\n| | loss | minus fp32 sums, by seed | swallowed % | bias | worst product |")
    print("|---|---|---|---|---|---|")
    for arm in ARMS:
        base = arm.split(",")[0] + ", fp32 sums"
        there = [seed for seed in seeds if all(
            (folder_of(out, config, name, seed) / "summary.json").exists() for name in (arm, base))]
        if not there:
            continue
        losses = [loss_of(folder_of(out, config, arm, seed)) for seed in there]
        minus = [loss - loss_of(folder_of(out, config, base, seed))
                 for loss, seed in zip(losses, there)]
        beside = "" if arm == base else ", ".join(f"{value:+.4f}" for value in minus)
        swallowed, bias, worst = sums_of([folder_of(out, config, arm, seed) for seed in there])
        print(f"| {arm} | {statistics.fmean(losses):.4f} | {beside} | {swallowed} | {bias} | {worst} |")


def folder_of(out, config, arm, seed):
    name = "".join(c if c.isalnum() else "_" for c in arm)
    return out / f"{pathlib.Path(config).stem}-{name}-{seed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--config", nargs="+", default=list(CONFIGS))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    program = os.environ.get("ADA_TRAIN", str(TREE / "build/ada-train"))
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for config in options.config:
        for seed in [] if options.table else seeds:
            for arm in ARMS:
                folder = folder_of(options.out, config, arm, seed)
                if not (folder / "summary.json").exists():
                    train(program, TREE / config, arm, seed, options.steps, folder)
        table(options.out, config, seeds)


if __name__ == "__main__":
    main()
