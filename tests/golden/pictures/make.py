"""Takes from the recordings of gen_vision_torch.py what the tests need, and adds recordings of its own.

usage: make.py RECORDINGS      (its folder images/; needs torch, torchvision, pillow, safetensors)

  resize.safetensors, resize.csv, resized_crop.csv: of RECORDINGS those that need no large picture, and
      `tall.*`: small pictures whose height shrinks more than their width
  random_resized_crop.csv: as it is
  jitter.safetensors, jitter.csv: ColorJitter's functions on a small picture, one by one and in turn
  erasing.csv: RandomErasing.get_params, one row per trial with its draws
"""
import csv
import pathlib
import sys

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from safetensors.numpy import load_file, save_file
from torchvision import transforms
from torchvision.transforms import functional as F

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = f"# torchvision {torchvision.__version__.split('+')[0]}, pillow {PIL.__version__}; make.py\n"


def write(name, header, rows):
    with open(HERE / name, "w") as file:
        file.write(VERSIONS)
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def smooth(random, height, width):
    """A picture with gradients, edges, noise, pure colours and greys."""
    y, x = np.mgrid[0:height, 0:width]
    picture = np.stack([128 + 127 * np.sin(x / (3 + c) + y / (7 - c) + c) for c in range(3)], -1)
    picture[: height // 3] += random.uniform(-90, 90, (height // 3, width, 3))
    picture[-3:] = np.linspace(0, 255, width)[None, :, None]
    picture[:2] = random.choice([0, 255], (2, width, 3))
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def resizing(source, random):
    tensors = load_file(source / "resize.safetensors")
    kept = {"filters.image": tensors["filters.image"]}
    for name in ("resize.csv", "resized_crop.csv"):
        lines = (source / name).read_text().splitlines(keepends=True)
        comments = [line for line in lines if line.startswith("#")]
        rows = [line for line in lines if not line.startswith("#")]
        chosen = []
        for line in rows[1:]:
            case = line.split(",")[0]
            key = (case if name == "resize.csv" else "crop" + case) + ".out"
            if "made" in line or tensors[key].size > 20000:
                continue
            chosen.append(line)
            for which in (key, case + ".resized"):
                if which in tensors:
                    kept[which] = tensors[which]
        (HERE / name).write_text("".join(comments + rows[:1] + chosen))
    for name, value in tensors.items():
        if name.startswith("filters.bilinear."):
            kept[name] = value
    kept["tall.image"] = smooth(random, 150, 31)
    for height, width in ((20, 16), (30, 40), (40, 31), (92, 2), (91, 2), (150, 9)):
        resized = F.resize(Image.fromarray(kept["tall.image"]), [height, width], antialias=True)
        kept[f"tall.{height}x{width}"] = np.asarray(resized)
    save_file({name: np.ascontiguousarray(kept[name]) for name in sorted(kept)}, HERE / "resize.safetensors")
    (HERE / "random_resized_crop.csv").write_text((source / "random_resized_crop.csv").read_text())


def jitter(random):
    picture = Image.fromarray(smooth(random, 37, 29))
    grey = picture.convert("L")
    tensors, rows = {"image": np.asarray(picture), "grey.image": np.asarray(grey)[:, :, None]}, []
    functions = {"brightness": F.adjust_brightness, "contrast": F.adjust_contrast, "saturation": F.adjust_saturation, "hue": F.adjust_hue}
    factors = {
        "brightness": [0.0, 0.37, 1.0, 1.63, 7.5],
        "contrast": [0.0, 0.4142135, 1.0, 1.3, 9.25],
        "saturation": [0.0, 0.123, 1.0, 1.9, 4.0],
        "hue": [-0.5, -0.2501, -0.001, 0.0, 0.1, 0.5],
    }
    for name, values in factors.items():
        for factor in values:
            for prefix, source in (("", picture), ("grey.", grey)):
                case = f"{prefix}{name}.{factor}"
                tensors[case] = np.asarray(functions[name](source, factor)).reshape(37, 29, -1)
                rows.append((case, prefix + "image", name, factor))
    for i in range(4):
        order = random.permutation(4)
        drawn = [float(np.float32(random.uniform(*r))) for r in ((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))]
        result = picture
        for n in order:
            result = list(functions.values())[n](result, drawn[n])
        tensors[f"all.{i}"] = np.asarray(result)
        rows.append((f"all.{i}", "image", " ".join(str(n) for n in order), " ".join(repr(d) for d in drawn)))
    write("jitter.csv", ["case", "image", "what", "factor"], rows)
    save_file({name: np.ascontiguousarray(value) for name, value in sorted(tensors.items())}, HERE / "jitter.safetensors")


def erasing(random):
    log, rows = [], []
    real_uniform, real_randint = torch.Tensor.uniform_, torch.randint

    def uniform_(self, low, high):
        value = real_uniform(self, float(low), float(high))
        log.append(("u", value.item(), float(low), float(high)))
        return value

    def randint(low, high, size):
        value = real_randint(low, high, size=size)
        log.append(("r", value.item(), low, high))
        return value

    torch.Tensor.uniform_, torch.randint = uniform_, randint
    torch.manual_seed(5)
    for case in range(40):
        height, width = (int(v) for v in random.randint(4, 300, 2))
        scale, ratio = ((0.02, 0.33), (0.3, 3.3)) if case % 4 else ((0.5, 1.0), (0.1, 9.0))
        log.clear()
        box = transforms.RandomErasing.get_params(torch.zeros(3, height, width), scale, ratio, [0.0])[:4]
        uniform = [entry for entry in log if entry[0] == "u"]
        places = [entry[1] for entry in log if entry[0] == "r"]
        for trial in range(len(uniform) // 2):
            last = trial == len(uniform) // 2 - 1
            found = last and bool(places)
            rows.append((case, height, width, *scale, *ratio, uniform[2 * trial][1], uniform[2 * trial + 1][1], *(places if found else ("", "")), *(box if found else ("",) * 4)))
    torch.Tensor.uniform_, torch.randint = real_uniform, real_randint
    write("erasing.csv", ["case", "H", "W", "scale0", "scale1", "ratio0", "ratio1", "area_draw", "log_ratio_draw", "top_draw", "left_draw", "top", "left", "h", "w"], rows)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    random = np.random.RandomState(18)
    resizing(pathlib.Path(sys.argv[1]), random)
    jitter(random)
    erasing(random)


main()
