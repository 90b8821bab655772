"""One run of ada-train: its files are written, it is started, and what it left is read."""

import csv
import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import png_file  # noqa: E402
import safetensors_file  # noqa: E402


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def tensors(path):
    read = safetensors_file.read(path)
    return {
        name: np.frombuffer(data, np.float32).reshape(shape).astype(np.float64) for name, (shape, data) in read.items()
    }


class Run:
    """A folder with run.yaml, data.npz and init.safetensors, and after start() what the program said and wrote."""

    def __init__(self, folder, config, arrays, weights):
        self.folder, self.config = pathlib.Path(folder), config
        self.folder.mkdir(parents=True, exist_ok=True)
        if "trainannot" in arrays:
            self.write_pictures(arrays)
        else:
            np.savez(self.folder / "data.npz", **arrays)
        safetensors_file.write(
            self.folder / "init.safetensors",
            {name: (w.shape, w.astype("<f4").tobytes()) for name, w in weights.items()},
        )
        (self.folder / "run.yaml").write_text(json.dumps(config, indent=1))

    def write_pictures(self, arrays):
        """A camvid data set: pictures and label images, in folders of these names."""
        for name, images in arrays.items():
            place = self.folder / "pictures" / name
            place.mkdir(parents=True)
            kind = png_file.RGB if images.ndim == 4 else png_file.GREY
            for number, image in enumerate(images):
                rows, columns = image.shape[:2]
                (place / f"{number:04}.png").write_bytes(png_file.png(columns, rows, image.tobytes(), kind))

    def start(self, program, output="out", *more, config=None):
        """config: another one than run.yaml, which has the same files."""
        if config is not None:
            (self.folder / f"{output}.yaml").write_text(json.dumps(config))
        done = subprocess.run(
            [program, "train", f"{output if config else 'run'}.yaml", "--output", output, "--no-progress", "--overwrite", *more],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self.code, self.said = done.returncode, done.stdout + done.stderr
        return self.code

    def csv(self, name, output="out"):
        path = self.folder / output / name
        return rows(path) if path.exists() else []

    def dump(self, step, output="out"):
        return tensors(self.folder / output / "dump" / f"step-{step:08}.safetensors")

    def formats(self, step):
        """The metadata of a dump."""
        return safetensors_file.metadata(self.folder / "out/dump" / f"step-{step:08}.safetensors")

    def checkpoint(self, step):
        return tensors(self.folder / "out/checkpoints" / f"step-{step:08}.safetensors")
