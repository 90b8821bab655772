"""Random convolution networks, each computed in eight ways: by every instruction set and every
algorithm for its products. What is zero in one way has to be zero in all of them, or the counts of
underflow would depend on the machine."""
import array
import csv
import json
import os
import random
import shutil
import struct
import subprocess

# The settings of the ways, and what each is compared with: the first.
WAYS = {
    "onednn": {"ADA_PRODUCTS": "onednn"},
    "default": {},
    "direct": {"ADA_PRODUCTS": "direct"},
    "avx512": {"ADA_ISA": "avx512"},
    "avx512 direct": {"ADA_ISA": "avx512", "ADA_PRODUCTS": "direct"},
    "avx2": {"ADA_ISA": "avx2"},
    "avx2 direct": {"ADA_ISA": "avx2", "ADA_PRODUCTS": "direct"},
    "sse2": {"ADA_ISA": "sse2"},
}
SECONDS = 120
WRONG_MACHINE = 4  # the exit status where the processor lacks an instruction set


def add_options(parser):
    parser.add_argument("--networks", type=int, default=0, metavar="N",
                        help="compute N random networks in eight ways (0)")  # fmt: skip


def hammer(program, folder, options, pool):
    first = 1000 * options.seed
    pool.collect([(network_round, program, folder, seed)
                  for seed in range(first, first + options.networks)])  # fmt: skip


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, values)} with dtype F32 or I64."""
    header, parts, offset = {}, [], 0
    for name, (dtype, shape, values) in tensors.items():
        data = array.array("f" if dtype == "F32" else "q", values).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_safetensors(path):
    """{name: values} of a dump, whose tensors are all fp32."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            tensors[name] = array.array("f", data[begin:end])
    return tensors


def sparse_values(draw, count, density, size):
    return [draw.gauss(0, size) if draw.random() < density else 0.0 for _ in range(count)]


def random_images(draw, count, shape):
    """Values of all images: dense, sparse, or in few channels or rows."""
    height, width, channels = shape
    density = draw.choice([1, 1, 0.5, 0.1, 0.02, 0.003])
    size = 10 ** draw.uniform(-3, 2)
    dead = {c for c in range(channels) if draw.random() < draw.choice([0, 0, 0.3])}
    values = sparse_values(draw, count * height * width * channels, density, size)
    return [0.0 if i % channels in dead else v for i, v in enumerate(values)]


def random_network(seed, folder):
    """Writes FOLDER/network.yaml and its data; returns the configuration."""
    draw = random.Random(seed)
    height, width = draw.randint(1, 12), draw.randint(1, 14)
    batch = draw.choice([1, 1, 2, 3, 8, 33, 64])
    channels = draw.choice([1, 3, 16, 17, 32, 64])
    while batch * height * width * channels > 60_000:
        batch, height, width = max(1, batch // 2), max(1, height - 2), max(1, width - 2)
    classes = draw.randint(2, 12)
    layers, tensors = [], {}
    c, h, w = channels, height, width
    for n in range(draw.randint(1, 3)):
        outs = draw.choice([16, 16, 18, 32, 48, 64])
        kernel = draw.choice([[3, 3], [3, 3], [3, 3], [1, 1], [2, 3]])
        padding = [draw.randint(0, min(2, k - 1)) for k in kernel]
        if h + 2 * padding[0] < kernel[0] or w + 2 * padding[1] < kernel[1]:
            kernel, padding = [1, 1], [0, 0]
        stride = draw.choice([1, 1, 1, 1, 2])
        layers.append({"name": f"c{n}", "kind": "conv2d", "channels": outs, "kernel": kernel,
                       "stride": [stride, stride], "padding": padding, "bias": draw.random() < 0.3})  # fmt: skip
        density = draw.choice([1, 1, 0.7, 0.1])
        tensors[f"c{n}.weight"] = ("F32", [outs, c, *kernel], sparse_values(
            draw, outs * c * kernel[0] * kernel[1], density, (2 / (c * kernel[0] * kernel[1])) ** 0.5))  # fmt: skip
        if layers[-1]["bias"]:
            tensors[f"c{n}.bias"] = ("F32", [outs], sparse_values(draw, outs, 0.5, 0.1))
        h = (h + 2 * padding[0] - kernel[0]) // stride + 1
        w = (w + 2 * padding[1] - kernel[1]) // stride + 1
        c = outs
        if draw.random() < 0.8:
            layers.append({"name": f"e{n}", "kind": "relu"})
    layers.append({"name": "fc", "kind": "linear", "features": classes, "bias": False})
    tensors["fc.weight"] = ("F32", [classes, c * h * w], sparse_values(
        draw, classes * c * h * w, draw.choice([1, 1, 0.2, 0.01]), 0.1))  # fmt: skip
    write_safetensors(folder / "weights.safetensors", tensors)
    shape = [height, width, channels]
    images = ("F32", [batch, *shape], random_images(draw, batch, shape))
    # The largest label says how many classes there are.
    labels = ("I64", [batch], [classes - 1, *(draw.randrange(classes) for _ in range(batch - 1))])
    write_safetensors(folder / "data.safetensors", {
        f"{split}.{name}": value for split in ("train", "test")
        for name, value in (("images", images), ("labels", labels))})  # fmt: skip
    formats = draw.choice([["fp32"] * 2, ["fp16"] * 2, ["bf16"] * 2, ["fp16", "fp8_e5m2"], ["fp8_e4m3"] * 2])
    config = {
        "name": "network",
        "data": {"dataset": "tensors", "path": str(folder / "data.safetensors"), "batch_size": batch,
                 "evaluate_batch_size": batch, "normalize": "none", "shuffle": False, "workers": 0,
                 "layout": "hwc"},
        "model": {"layers": layers, "classes": classes,
                  "init": {"weights": str(folder / "weights.safetensors"), "require_all": True}},
        "precision": {"format": formats[0], "gradients": formats[1],
                      "weight_gradients": draw.choice(["fp16", "fp16", "fp8_e4m3", "bf16"])},
        "scaling": {"policy": "fixed", "scale": draw.choice([1, 1, 128])},
        "optimizer": {"kind": "sgd", "lr": 0.01}, "train": {"max_steps": 1},
        "evaluate": {"every_epochs": 0},
        "log": {"every": 1, "statistics": ["y", "w", "dx", "dy", "dw"], "dump_every": 1},
        "device": {"kind": "cpu", "threads": draw.choice([1, 2])},
    }  # fmt: skip
    (folder / "network.yaml").write_text(json.dumps(config))
    return config


class Run:
    """What one way made of a network's step: counts by (layer, tensor), and the tensors."""

    def __init__(self, folder):
        with open(folder / "underflow.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.counts = {(row["layer"], row["tensor"]):
                       (int(row["zeros_before"]), int(row["underflow"])) for row in rows}  # fmt: skip
        self.tensors = read_safetensors(folder / "dump" / "step-00000001.safetensors")


def same_zeros(a, b):
    return len(a) == len(b) and all((x == 0) == (y == 0) for x, y in zip(a, b))


def differences(name, run, base):
    """Of each product whose operands have the same zeros in both ways: zeros that differ. A value
    at which rounding decides between zero and the smallest number may go either way."""
    operands = {"y": ("x", "w"), "dx": ("dy", "w"), "dw": ("x", "dy")}
    for (layer, tensor), (zeros, underflow) in run.counts.items():
        if tensor not in operands or layer[0] not in "cf":
            continue
        pairs = [(run.tensors.get(f"{layer}.{t}"), base.tensors.get(f"{layer}.{t}"))
                 for t in (*operands[tensor], tensor)]  # fmt: skip
        if any(a is None or b is None for a, b in pairs):
            continue
        if not all(same_zeros(a, b) for a, b in pairs[:2]):
            continue
        want_zeros, want_underflow = base.counts[layer, tensor]
        decided = sum((x == 0) - (y == 0) for x, y in zip(*pairs[2]))
        if zeros != want_zeros or underflow - want_underflow != decided:
            yield (f"{name}: {layer}.{tensor}: {zeros} zeros and {underflow} underflows, "
                   f"{want_zeros} and {want_underflow} by oneDNN")  # fmt: skip


def compute(program, folder, way):
    """Exit status and text of a step of FOLDER's network in one way."""
    output = folder / "run"
    shutil.rmtree(output, ignore_errors=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("ADA_ISA", "ADA_PRODUCTS")}
    result = subprocess.run(
        [str(program), "train", str(folder / "network.yaml"), "--output", str(output), "--quiet"],
        env={**environment, **WAYS[way]}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=SECONDS, check=False)  # fmt: skip
    return result.returncode, result.stdout.decode(errors="replace"), output


def network_round(program, folder, seed):
    """One network in all ways: [(row, status, problem)]."""
    here = folder / f"network{seed}"
    here.mkdir()
    random_network(seed, here)
    results, base = [], None
    for way in WAYS:
        status, text, output = compute(program, here, way)
        if status == WRONG_MACHINE and "this processor offers" in text:
            results.append((f"network, {way}", "not on this processor", None))
            continue
        problem = None
        if status != 0:
            problem = f"network {seed}: ended with {status}: {text.strip()[-300:]}"
        else:
            run = Run(output)
            base = base or run
            problem = "; ".join(differences(f"network {seed}", run, base)) or None
        results.append((f"network, {way}", status, problem))
    if not any(problem for _, _, problem in results):
        shutil.rmtree(here)
    return results
