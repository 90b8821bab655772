#!/usr/bin/env python3
"""Decoding, random resized crops of 224x224 and flips of photos: the loader of ada-train beside torch's
DataLoader with torchvision's ImageFolder, PIL, ToTensor and Normalize; same files, in turns.

usage: pictures.py [options] FOLDER...

Each FOLDER (with the folders below it) becomes a class of JPEG and PNG files. Prints a Markdown table.
Needs build/bench_pictures (cmake --build build --target bench_pictures) and a Python with torch and
torchvision: --python or ADA_BENCH_PYTHON.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import markdown

# One process per measurement: images per second of each epoch, one a line.
TORCH = """
import sys, time, torch
from torchvision import datasets, transforms as T
root, workers, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
         T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
images = datasets.ImageFolder(root + "/train", T.Compose(steps))
loader = torch.utils.data.DataLoader(images, batch_size=64, shuffle=True, num_workers=workers,
                                     persistent_workers=True)
for _ in range(epochs):
    begin = time.perf_counter()
    count = sum(len(labels) for _, labels in loader)
    print(count / (time.perf_counter() - begin), flush=True)
"""
ENDINGS = (".jpg", ".jpeg", ".png")


def link_photos(folders, root):
    """Makes ROOT/train/CLASS and ROOT/val/CLASS of links; returns how many photos there are."""
    count = 0
    for number, folder in enumerate(folders):
        for split in ("train", "val"):
            (root / split / f"class{number}").mkdir(parents=True)
        files = [path for path in sorted(pathlib.Path(folder).rglob("*"))
                 if path.suffix.lower() in ENDINGS and path.is_file()]
        if not files:
            sys.exit(f"pictures.py: {folder}: no .jpg, .jpeg or .png file in it")
        for i, path in enumerate(files):
            (root / "train" / f"class{number}" / f"{i:06}{path.suffix}").symlink_to(path.resolve())
        first = root / "train" / f"class{number}" / f"{0:06}{files[0].suffix}"
        (root / "val" / f"class{number}" / first.name).symlink_to(first.resolve())
        count += len(files)
    return count


def last_rate(command):
    """Images per second of the last epoch: the first ones start threads and fill caches."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"pictures.py: {command[0]} ended with {done.returncode}: {done.stderr}")
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--python", default=os.environ.get("ADA_BENCH_PYTHON", sys.executable))
    parser.add_argument("--program", default="build/bench_pictures")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="of a measurement; the last counts")
    options = parser.parse_args()
    numbers = [str(options.workers), str(options.epochs)]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        count = link_photos(options.folders, root)
        commands = {
            "ada-train's loader": [options.program, folder, *numbers],
            "torch DataLoader, ImageFolder, PIL": [options.python, "-c", TORCH, folder, *numbers],
        }
        rates = {name: [] for name in commands}
        for number in range(options.rounds):
            for name in list(commands)[:: 1 if number % 2 == 0 else -1]:
                rates[name].append(last_rate(commands[name]))
                print(f"round {number + 1}: {name}: {rates[name][-1]:.0f} images/s", file=sys.stderr)
    ours, theirs = rates.values()
    print(f"{count} photos, {options.workers} workers, {options.rounds} rounds in turns\n")
    print(markdown.table(
        ["", "images/s: median", "lowest, highest"],
        [[name, f"{statistics.median(values):,.0f}", f"{min(values):,.0f}, {max(values):,.0f}"]
         for name, values in rates.items()]))
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"\nratio: median of the rounds {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})")


main()
