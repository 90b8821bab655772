"""One fp32 step of segnet_basic and of ssd300 (a quarter as wide), from files of a data set to
gradients, against the same step in plain PyTorch (tests/tools/plain_vision_step.py). The images are
those that the network saw (log.dump); labels, default boxes and their targets are worked out here.
Needs torch, in this Python or in the one that ADA_BENCH_PYTHON names."""
import math
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

from tests.program_case import ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY")
TORCH = os.environ.get("ADA_BENCH_PYTHON", sys.executable)
sys.path.insert(0, str(ROOT / "tests/tools"))
try:
    import numpy
    import network_step
    from PIL import Image
except ImportError:
    numpy = None

NOISE = 2e-4  # of a tensor's length: sums of fp32 in another order, through batch norms
# By Winograd's algorithm sums of conv1_1 and conv1_2 differ in other bits, and a relu or max pool
# after them decides otherwise where values are that near: 6e-4 of these two layers' gradients.
TURNED = 2e-3
CONFIG = """
{model}
optimizer: {{kind: sgd, lr: 1e-30, momentum: 0.9}}
precision: {{format: fp32}}
evaluate: {{every_epochs: 0}}
log: {{every: 1, statistics: [], dump_every: 1, dump: [{first}]}}
"""
SEGNET = """
task: segmentation
model: {zoo: segnet_basic, classes: 5}
data: {dataset: camvid, path: set, class_names: [a, b, c, d, e], ignored_label: 5, batch_size: 2,
  shuffle: false, normalize: none}
train: {max_steps: 1, class_weights: [0.5, 1, 2, 0.25, 1.5]}
"""
SSD = """
task: detection
model: {zoo: ssd300, width: 0.25}
data: {dataset: voc, path: set, class_names: [cat, dog, bird], resize: [300, 300], batch_size: 2,
  shuffle: false, normalize: standard}
train: {max_steps: 1}
"""
# Images with boxes: label, then y0, x0, y1, x1 in pixels from 0 of 150 x 200.
BOXES = ([(0, 20, 30, 90, 120), (2, 100, 150, 140, 190)], [(1, 5, 5, 145, 195), (1, 60, 70, 75, 90)])
NAMES = ("cat", "dog", "bird")


def has_torch():
    try:
        return subprocess.run([TORCH, "-c", "import torch, numpy"], capture_output=True,
                              check=False).returncode == 0
    except OSError:
        return False


def default_boxes():
    """SSD300's, as centre y, centre x, height, width in pixels (Liu et al. 2016, section 2.2)."""
    boxes = []
    sizes = (30, 60, 111, 162, 213, 264, 315)
    grids = ((38, 8, (2,)), (19, 16, (2, 3)), (10, 32, (2, 3)), (5, 64, (2, 3)), (3, 100, (2,)),
             (1, 300, (2,)))
    for k, (cells, step, ratios) in enumerate(grids):
        for row in range(cells):
            for column in range(cells):
                y, x = (row + 0.5) * step, (column + 0.5) * step
                boxes += [(y, x, sizes[k], sizes[k])]
                boxes += [(y, x) + (math.sqrt(sizes[k] * sizes[k + 1]),) * 2]
                for ratio in ratios:
                    root = math.sqrt(ratio)
                    boxes += [(y, x, sizes[k] / root, sizes[k] * root),
                              (y, x, sizes[k] * root, sizes[k] / root)]
    return numpy.array(boxes)


def targets(truth):
    """Locations and labels of all default boxes for rows (label, y0, x0, y1, x1) in pixels."""
    default = default_boxes()
    truth = numpy.array(truth, float)
    corners = truth[:, 1:]
    low = numpy.maximum((default[:, :2] - default[:, 2:] / 2)[:, None], corners[None, :, :2])
    high = numpy.minimum((default[:, :2] + default[:, 2:] / 2)[:, None], corners[None, :, 2:])
    common = numpy.prod(numpy.clip(high - low, 0, None), 2)
    areas = numpy.prod(corners[:, 2:] - corners[:, :2], 1)
    overlap = common / (numpy.prod(default[:, 2:], 1)[:, None] + areas[None] - common)
    match = numpy.where(overlap.max(1) >= 0.5, overlap.argmax(1), -1)
    left = overlap.copy()
    while left.max() > 1e-6:  # each box has at least the default box that it overlaps most
        best, box = numpy.unravel_index(left.argmax(), left.shape)
        match[best] = box
        left[best, :] = left[:, box] = 0
    labels = numpy.where(match >= 0, truth[match, 0] + 1, 0).astype(numpy.int32)
    chosen = corners[match]
    centres, sides = (chosen[:, :2] + chosen[:, 2:]) / 2, chosen[:, 2:] - chosen[:, :2]
    locations = numpy.hstack([(centres - default[:, :2]) / default[:, 2:] / 0.1,
                              numpy.log(sides / default[:, 2:]) / 0.2])
    return locations.astype(numpy.float32), labels


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
@unittest.skipIf(numpy is None, "numpy or PIL is missing")
@unittest.skipUnless(has_torch(), "torch is missing (ADA_BENCH_PYTHON names a Python that has it)")
class VisionStep(ProgramCase):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(3)
        self.noise = NOISE

    def compare(self, network, model, first, inputs):
        (self.folder / "step.yaml").write_text(CONFIG.format(model=model, first=first))
        step = network_step.Step(BINARY, self.folder, "step.yaml")
        given = {"x": step.dump[f"{first}.x"].astype(numpy.float32)} | inputs
        trained = [name.removeprefix("optimizer.").removesuffix(".momentum")
                   for name in step.tensors.entries if name.endswith(".momentum")]
        for name in step.tensors.entries:  # a rate of 1e-30 leaves the weights as they were
            if name in trained:
                given[name] = step.tensors[name]
            elif name.endswith((".running_mean", ".running_var")):
                start = numpy.zeros if name.endswith("mean") else numpy.ones
                given[name] = start(step.tensors[name].shape, numpy.float32)
        network_step.write_arrays(self.folder / "given.safetensors", given)
        subprocess.run([TORCH, str(ROOT / "tests/tools/plain_vision_step.py"), network,
                        "given.safetensors", "torch.safetensors"], cwd=self.folder, check=True)
        torch = network_step.Tensors(self.folder / "torch.safetensors")
        self.assertAlmostEqual(step.loss, float(torch["loss"][0]), delta=1e-5 * abs(step.loss))
        self.assertGreater(len(trained), 20)
        for name in trained:
            self.same(name, step.gradient(name), torch["grad." + name])
        for name in torch.entries:
            if name.startswith("state."):
                self.same(name, step.tensors[name.removeprefix("state.")], torch[name])

    def same(self, name, ours, theirs):
        with self.subTest(name):
            length = numpy.linalg.norm(theirs.astype(numpy.float64))
            error = numpy.linalg.norm(ours.astype(numpy.float64) - theirs)
            self.assertLessEqual(error, self.noise * length + 1e-9 * math.sqrt(theirs.size))

    def picture(self, height, width):
        """Not noise: something that a JPEG file keeps."""
        coarse = self.random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), numpy.uint8)
        return Image.fromarray(coarse).resize((width, height), Image.BILINEAR)

    def test_segnet_basic(self):
        height, width = 36, 48  # 9 rows, then 5, on the way
        labels = []
        for split in ("train", "val", "test"):
            for kind in ("", "annot"):
                (self.folder / "set" / (split + kind)).mkdir(parents=True)
            for image in range(2):
                label = self.random.integers(0, 6, (height, width), numpy.uint8)
                name = f"{split}{image}.png"
                self.picture(height, width).save(self.folder / "set" / split / name)
                Image.fromarray(label).save(self.folder / "set" / (split + "annot") / name)
                if split == "train":
                    labels.append(numpy.where(label == 5, -1, label.astype(numpy.int32)))
        weights = numpy.array([0.5, 1, 2, 0.25, 1.5], numpy.float32)
        self.compare("segnet_basic", SEGNET, "lrn",
                     {"labels": numpy.stack(labels).astype(numpy.int32), "class_weights": weights})

    def test_ssd300(self):
        for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
            (self.folder / "set" / name).mkdir(parents=True)
        for image, boxes in enumerate(BOXES):
            self.picture(150, 200).save(self.folder / "set" / "JPEGImages" / f"{image}.jpg")
            objects = "".join(
                f"<object><name>{NAMES[label]}</name><difficult>0</difficult><bndbox>"
                f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1 + 1}</xmax><ymax>{y1 + 1}</ymax>"
                "</bndbox></object>" for label, y0, x0, y1, x1 in boxes)
            (self.folder / "set" / "Annotations" / f"{image}.xml").write_text(
                f"<annotation><filename>{image}.jpg</filename><size><width>200</width>"
                f"<height>150</height><depth>3</depth></size>{objects}</annotation>")
        for split in ("train", "trainval", "val", "test"):
            (self.folder / "set/ImageSets/Main" / f"{split}.txt").write_text("0\n1\n")
        encoded = [targets([(label, 2 * y0, 1.5 * x0, 2 * y1, 1.5 * x1)
                            for label, y0, x0, y1, x1 in boxes]) for boxes in BOXES]
        for products, self.noise in (("direct", NOISE), ("", TURNED)):
            with self.subTest(products), mock.patch.dict(os.environ, ADA_PRODUCTS=products):
                self.compare("ssd300", SSD, "conv1_1",
                             {"locations": numpy.stack([e[0] for e in encoded]),
                              "labels": numpy.stack([e[1] for e in encoded])})


if __name__ == "__main__":
    unittest.main()
