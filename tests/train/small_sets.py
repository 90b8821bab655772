"""Small sets of pictures in the layouts of a folder, CamVid and VOC, a text, as files, and runs on
them."""
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import png_file  # noqa: E402

CLASSES = ("ant", "bee", "cat")
SIDE = 12

FOLDER_RUN = """
seed: 3
device: {kind: cpu, threads: 1}
data: {dataset: folder, path: photos, batch_size: 4, evaluate_batch_size: 4, workers: 0}
model:
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3, stride: 2}
    - {name: bn, kind: batch_norm}
    - {name: relu, kind: relu}
    - {name: fc, kind: linear, features: classes}
precision: {format: fp16}
scaling: {policy: adaptive}
train: {epochs: 50, max_steps: 2}
output: run
"""
PIXEL_RUN = """
task: segmentation
seed: 3
device: {kind: cpu, threads: 1}
data:
  dataset: camvid
  path: shapes
  class_names: [ant, bee, cat]
  batch_size: 4
  evaluate_batch_size: 4
  workers: 0
model:
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3, padding: 1}
    - {name: bn, kind: batch_norm}
    - {name: relu, kind: relu}
    - {name: last, kind: conv2d, channels: classes, kernel: 1}
precision: {format: fp16}
scaling: {policy: adaptive}
train: {epochs: 50, max_steps: 2}
output: run
"""
BOX_RUN = """
task: detection
seed: 3
device: {kind: cpu, threads: 1}
data:
  dataset: voc
  path: boxes
  batch_size: 4
  evaluate_batch_size: 4
  resize: [12, 12]
  workers: 0
detection:
  boxes: {grids: [6], steps: [2], sizes: [4, 8], aspect_ratios: [[]]}
model:
  outputs: [locations, scores]
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3, stride: 2, padding: 1}
    - {name: relu, kind: relu}
    - {name: loc, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: locations, kind: concat_boxes, values: 4, inputs: [loc]}
    - {name: conf, kind: conv2d, channels: 8, kernel: 3, padding: 1, inputs: [relu]}
    - {name: scores, kind: concat_boxes, values: 4, inputs: [conf]}
precision: {format: fp16}
scaling: {policy: adaptive}
train: {epochs: 50, max_steps: 2}
output: run
"""
WORD_RUN = """
task: language
seed: 3
device: {kind: cpu, threads: 1}
data:
  dataset: text
  path: words
  context: 8
  batch_size: 4
  evaluate_batch_size: 4
  validation: 0.2
  workers: 0
model: {zoo: llama, layers: 1, heads: 2, kv_heads: 1, width: 8, hidden: 12}
precision: {format: fp16}
scaling: {policy: adaptive}
train: {epochs: 50, max_steps: 2}
output: run
"""
RUNS = {"classification": FOLDER_RUN, "segmentation": PIXEL_RUN, "detection": BOX_RUN,
        "language": WORD_RUN}


def picture(label, number):
    """Noise, brighter in the channel of the label."""
    noise = random.Random(1000 * label + number)
    pixels = bytes(noise.randrange(60) + (150 if i % 3 == label else 0)
                   for i in range(SIDE * SIDE * 3))
    return png_file.png(SIDE, SIDE, pixels, png_file.RGB)


def write_folder(path, classes=CLASSES, train=4, val=2):
    """A folder of photos, `train` and `val` of each class."""
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(classes):
            folder = pathlib.Path(path) / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}.png").write_bytes(picture(label, i))


def write_camvid(path, train=6, test=3):
    """Pictures with label images of three classes."""
    for split, count in (("train", train), ("test", test)):
        folder = pathlib.Path(path)
        (folder / split).mkdir(parents=True)
        (folder / (split + "annot")).mkdir()
        for i in range(count):
            labels = bytes((x * 3) // SIDE for _ in range(SIDE) for x in range(SIDE))
            (folder / split / f"p{i}.png").write_bytes(picture(i % 3, i))
            (folder / (split + "annot") / f"p{i}.png").write_bytes(
                png_file.png(SIDE, SIDE, labels))


def write_voc(path, classes=CLASSES, trainval=6, test=3):
    """Pictures with a box of each of the classes."""
    folder = pathlib.Path(path)
    for part in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (folder / part).mkdir(parents=True)
    for split, count in (("trainval", trainval), ("test", test)):
        names = [f"{split}{i}" for i in range(count)]
        for i, name in enumerate(names):
            (folder / "JPEGImages" / f"{name}.jpg").write_bytes(picture(i % 3, i))
            objects = "".join(
                f"<object><name>{of}</name><bndbox><xmin>{2 + k}</xmin><ymin>2</ymin>"
                f"<xmax>{7 + k}</xmax><ymax>9</ymax></bndbox></object>"
                for k, of in enumerate(classes))
            (folder / "Annotations" / f"{name}.xml").write_text(
                f"<annotation><size><width>{SIDE}</width><height>{SIDE}</height></size>"
                f"{objects}</annotation>")
        (folder / "ImageSets/Main" / f"{split}.txt").write_text("\n".join(names) + "\n")


def write_words(path):
    """A folder with a text of some sequences."""
    folder = pathlib.Path(path)
    folder.mkdir(parents=True)
    (folder / "text.txt").write_bytes(b"the cat sat on the mat. a dog lay in the fog. " * 6)


def write_all(folder):
    """The four sets, and the files of the runs on them: TASK.yaml."""
    write_words(folder / "words")
    write_folder(folder / "photos")
    write_camvid(folder / "shapes")
    write_voc(folder / "boxes")
    for task, text in RUNS.items():
        (folder / f"{task}.yaml").write_text(text)
