#!/usr/bin/python3
"""Tests the verdicts of `ada-train advise` against what happens: small trainings with planted faults
are given the advice that they get, and trained once more.

usage: verdicts.py OUT [--only WORD...] [-j JOBS] [--markdown]
A verdict is right if the training with the advice ends within the noise of the same training in
fp32, or if it says "keep" of a training that does. How a training ends: the mean loss of its last
tenth of steps. Noise: NOISE times the deviation of the network's twins in fp32, whose first weights
are moved by less than bf16 shows, and of its runs stored in bf16, that is all by which `ada-train
choose` sees trainings differ that nobody would mend. `recommend` must decide what `advise` decides.

The faults stand in verdicts.yaml. OUT keeps the runs, OUT/verdicts.csv a row for each; the same
command goes on, and trains again where a verdict has changed since. --only takes the faults whose
names hold a word, --markdown prints a table of kinds.
Exit code: 0 all right, 1 some are wrong, 2 wrong options. Environment: ADA_TRAIN, the program.
"""
import argparse
import concurrent.futures
import csv
import gzip
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("ADA_TRAIN", ROOT / "build/ada-train"))
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
NOISE = 3
TOLD = 5  # train's exit code where the policy, or skipped steps, end it
# Logged often enough for so few steps, and nothing that a verdict does not read.
COMMON = ("log.every=20", "log.histogram_every=60", "train.stop_after_skips=50",
          "evaluate.every_epochs=0", "checkpoint.every_epochs=0", "device.threads=1")
COLUMNS = ("name", "kind", "network", "seed", "before", "after", "noise", "keep", "keys", "verdict",
           "right", "trouble")


class Trouble(Exception):
    """A command that did not do what it should."""


def program(*words, codes=(0,)):
    """Runs the program; its output. Trouble where it ends with another exit code."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Trouble(f"ada-train {words[0]}: exit code {done.returncode}: {line}")
    return done.stdout


def cases(table, only=()):
    """The faults, each of a network and a seed, as dictionaries."""
    found = []
    for fault in table["faults"]:
        for network, seeds in fault["networks"].items():
            alone = fault.get("alone", {}).get(network, {})
            for seed in seeds:
                name = f"{fault['kind']}-{network}-{seed}".replace(" ", "_").replace(",", "")
                found.append({
                    "name": name, "kind": fault["kind"], "network": network, "seed": seed,
                    "reference": fault.get("reference", {}),
                    "rates": fault.get("rates", False),
                    "set": {**fault.get("reference", {}), **fault.get("set", {}), **alone}})
    return [case for case in found if not only or any(word in case["name"] for word in only)]


def write_noisy(path):
    """A quarter of Fashion-MNIST's images; of 40 % of them the label is drawn by lot."""
    random.seed(1)
    tensors, parts = {}, []
    for split, file, count in (("train", "train", 15000), ("test", "t10k", 100)):
        with gzip.open(FASHION / f"{file}-images-idx3-ubyte.gz") as stream:
            images = stream.read()[16:16 + count * 784]
        with gzip.open(FASHION / f"{file}-labels-idx1-ubyte.gz") as stream:
            labels = [random.randrange(10) if random.random() < 0.4 else label
                      for label in stream.read()[8:8 + count]]
        for name, kind, shape, data in (
                (f"{split}.images", "U8", [count, 28, 28, 1], images),
                (f"{split}.labels", "I64", [count], struct.pack(f"<{count}q", *labels))):
            begin = sum(map(len, parts))
            tensors[name] = {"dtype": kind, "shape": shape,
                             "data_offsets": [begin, begin + len(data)]}
            parts.append(data)
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    whole = path.with_suffix(".new")
    whole.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(parts))
    whole.replace(path)


def losses(folder):
    """The loss of each step of a run."""
    with open(folder / "steps.csv", encoding="utf-8", newline="") as file:
        return [float(row["loss"] or "nan") for row in csv.DictReader(file)]


def ends(folder, steps):
    """The mean loss of the last tenth of a run's steps; inf where it broke off or is not finite."""
    read = losses(folder)
    mean = math.fsum(read[-(steps // 10):]) / (steps // 10)
    return mean if len(read) >= steps and math.isfinite(mean) else math.inf


def is_over(folder):
    """Whether a run has ended, be it by its policy; one that a signal stopped has not."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return summary["status"] != "interrupted"


class Bench:
    """The trainings below one folder."""

    def __init__(self, out, table):
        self.out, self.table = out, table
        for folder in ("networks", "references", "runs"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for name, text in table["networks"].items():
            self.network(name).write_text(text, encoding="utf-8")
        self.steps = {name: yaml.safe_load(text)["train"]["max_steps"]
                      for name, text in table["networks"].items()}
        self.noisy = out / "noisy.safetensors"

    def network(self, name):
        return self.out / "networks" / f"{name}.yaml"

    def words(self, settings, *more):
        """Keys and values as words after --set."""
        return ["--set", *COMMON, *more, *(f"{key}={value}".replace("NOISY", str(self.noisy))
                                           for key, value in settings.items())]

    def reference(self, network, settings, seed):
        """Trains the fp32 run of a seed and what is within its noise; their folder."""
        mark = "".join(letter for letter in "-".join(settings) if letter.isalnum())
        folder = self.out / "references" / f"{network}{mark}-{seed}"
        if (folder / "choose.csv").exists():
            return folder
        program("choose", self.network(network), "--formats", "bf16", "--seeds", 1, "--jobs", 1,
                "--out", folder, *self.words(settings, f"seed={seed}"))
        return folder

    def at_rates(self, case):
        """Trains in fp32 at half and twice the rate: the worst that these end."""
        rate = yaml.safe_load(self.network(case["network"]).read_text(
            encoding="utf-8"))["optimizer"]["lr"]
        plain = {**case, "set": {**case["reference"]}}
        folders = []
        for name, factor in (("half", 0.5), ("twice", 2)):
            plain["set"]["optimizer.lr"] = rate * factor
            folders.append(self.train(name, plain))
        return max(ends(folder, self.steps[case["network"]]) for folder in folders)

    def train(self, name, case, *more):
        """Trains, unless that has been done."""
        folder = self.out / "runs" / case["name"] / name
        if not is_over(folder):
            program("train", self.network(case["network"]), "--quiet", "--overwrite", "--output",
                    folder, *more, *self.words(case["set"], f"seed={case['seed']}"),
                    codes=(0, TOLD))
        return folder

    def judge(self, case, references):
        """One row of the table."""
        steps, row = self.steps[case["network"]], dict.fromkeys(COLUMNS, "")
        row.update((key, case[key]) for key in ("name", "kind", "network", "seed"))
        try:
            first = self.train("first", case)
            said = json.loads(program("advise", first, "--json"))
            also = json.loads(program("recommend", first, "--json"))
            if said["yaml"] != also["yaml"]:
                raise Trouble("recommend decides otherwise than advise")
            row["keep"] = said["keep"]
            row["verdict"] = "; ".join(
                f"{part['section']}: " + ", ".join(f"{key}: {value}"
                                                   for key, value in part["keys"].items())
                for part in said["advice"]) or "keep"
            row["keys"] = ", ".join(f"{part['section']}.{key}" for part in said["advice"]
                                    for key in part["keys"]) or "keep"
            folder, noise = references
            fp32 = ends(folder / f"fp32-seed{case['seed']}", steps)
            row["noise"] = NOISE * noise
            if case["rates"]:
                row["noise"] += max(self.at_rates(case) - fp32, 0)
            row["before"] = ends(first, steps) - fp32
            row["after"] = row["before"]
            if not said["keep"]:
                advice, again = first.parent / "advice.yaml", first.parent / "again"
                same = advice.exists() and advice.read_text(encoding="utf-8") == said["yaml"]
                advice.write_text(said["yaml"], encoding="utf-8")
                if not same or not is_over(again):
                    program("train", first / "config.yaml", "--with", advice, "--quiet",
                            "--overwrite", "--output", again, codes=(0, TOLD))
                row["after"] = ends(again, steps) - fp32
            row["right"] = row["after"] <= row["noise"]
        except (Trouble, OSError, ValueError) as error:
            row["right"], row["trouble"] = False, str(error)
        return row


def noise_of(folders, steps):
    """The deviation of twins and of bf16 from their originals, over the seeds of a network."""
    squares = []
    for folder in folders:
        seed = folder.name.rpartition("-")[2]
        fp32 = ends(folder / f"fp32-seed{seed}", steps)
        squares += [(ends(other, steps) - fp32) ** 2
                    for other in (*folder.glob("fp32-seed*-twin?"), folder / f"bf16-seed{seed}")]
    return math.sqrt(math.fsum(squares) / len(squares))


def number(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def markdown(rows):
    """A table with a line for each kind."""
    kinds = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    print("| planted | keys changed | before | after | noise | right |")
    print("|---|---|---|---|---|---|")
    for kind, group in kinds.items():
        worst = max(group, key=lambda row: row["after"] - row["noise"] if row["after"] != ""
                    else math.inf)
        print(f"| {kind} | {worst['keys']} | {number(worst['before'])} | {number(worst['after'])} | "
              f"{number(worst['noise'])} | {sum(row['right'] for row in group)} of {len(group)} |")
    print(f"\n{sum(row['right'] for row in rows)} of {len(rows)} are right.")


def run_bench(options):
    """Trains what is missing and judges it; the rows."""
    table = yaml.safe_load((pathlib.Path(__file__).parent / "verdicts.yaml").read_text(
        encoding="utf-8"))
    asked = cases(table, options.only)
    bench = Bench(options.out.resolve(), table)
    if not bench.noisy.exists():
        write_noisy(bench.noisy)
    def key_of(case):
        return case["network"], json.dumps(case["reference"])

    wanted, everything = {key_of(case) for case in asked}, cases(table)
    seeds = {key: sorted({case["seed"] for case in everything if key_of(case) == key})
             for key in sorted(wanted)}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        trained = {(key, seed): pool.submit(bench.reference, key[0], json.loads(key[1]), seed)
                   for key in seeds for seed in seeds[key]}
        done = []

        def row_of(case):
            key = key_of(case)
            try:
                folders = {seed: trained[key, seed].result() for seed in seeds[key]}
                noise = noise_of(folders.values(), bench.steps[key[0]])
                row = bench.judge(case, (folders[case["seed"]], noise))
            except Trouble as error:
                row = {**dict.fromkeys(COLUMNS, ""), **{name: case[name] for name in COLUMNS[:4]},
                       "right": False, "trouble": str(error)}
            done.append(row)
            print(f"{len(done)} of {len(asked)}  {'right' if row['right'] else 'WRONG'}  "
                  f"{row['name']}: {row['verdict']}  {number(row['before'])} -> "
                  f"{number(row['after'])} ({number(row['noise'])}) {row['trouble']}",
                  file=sys.stderr, flush=True)
            return row
        rows = list(pool.map(row_of, asked))
    with open(options.out / "verdicts.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if options.markdown:
        markdown(rows)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=(), metavar="WORD")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--markdown", action="store_true")
    rows = run_bench(parser.parse_args())
    print(f"{sum(row['right'] for row in rows)} of {len(rows)} verdicts are right")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
