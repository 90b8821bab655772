#!/usr/bin/env python3
"""Decoding, random resized crops of 224x224 and flips of photos: the loader of ada-train beside torch's
DataLoader with torchvision's ImageFolder, PIL, ToTensor and Normalize; same files, in turns.

Each FOLDER (with the folders below it) becomes a class of JPEG and PNG files. Prints a Markdown table.
Needs build/bench_pictures (cmake --build build --target bench_pictures) and a Python with torch and
torchvision: --python or ADA_BENCH_PYTHON.
"""
import os
import pathlib
import sys
import tempfile

import markdown
from turns import end, in_turns, parser_of, words_of

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
        train, val = (root / split / f"class{number}" for split in ("train", "val"))
        train.mkdir(parents=True)
        val.mkdir(parents=True)
        files = [path.resolve() for path in sorted(pathlib.Path(folder).rglob("*"))
                 if path.suffix.lower() in ENDINGS and path.is_file()]
        if not files:
            end(f"{folder}: no .jpg, .jpeg or .png file in it")
        for i, path in enumerate(files):
            (train / f"{i:06}{path.suffix}").symlink_to(path)
        (val / f"{0:06}{files[0].suffix}").symlink_to(files[0])
        count += len(files)
    return count


def main():
    parser = parser_of(__doc__)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--python", default=os.environ.get("ADA_BENCH_PYTHON", sys.executable))
    parser.add_argument("--program", default="build/bench_pictures")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="of a measurement; the last counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = link_photos(options.folders, pathlib.Path(folder))

        def last_rate(*command):
            """Images per second of the last epoch: the first ones start threads and fill caches."""
            return float(words_of(*command, folder, options.workers, options.epochs).split()[-1])
        rates = in_turns(options.rounds, {
            "ada-train's loader": lambda: last_rate(options.program),
            "torch DataLoader, ImageFolder, PIL": lambda: last_rate(options.python, "-c", TORCH),
        }, "{}: {:.0f} images/s".format)
    print(f"{count} photos, {options.workers} workers, {options.rounds} rounds in turns\n")
    print(markdown.table(
        ["", "images/s: median", "lowest, highest"],
        [[name, *markdown.spread(values, "{:,.0f}".format)] for name, values in rates.items()]))
    print(f"\nratio: median of the rounds {markdown.ratios(*rates.values())}")


if __name__ == "__main__":
    main()
