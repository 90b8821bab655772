"""Data sets of one black picture, as the task of a network wants them, and the sections of a
configuration that read them."""
import json
import os
import struct
import zlib

CHANNELS = 3  # of the pictures that segmenters and detectors are trained on


def sections(task, network, size, classes, folder):
    """`task:`, `data:` and what else the task needs, as YAML, with the data in `folder`. size: of an
    image, (c, h, w), or (tokens,) of a sequence; classes: what the network gives. Raises ValueError
    where no data set of this program fits."""
    if task == "language":
        return _tokens(size, classes, os.path.join(folder, "tokens.bin"))
    if task == "classification":
        return (f"data:\n  dataset: synthetic\n  batch_size: 1\n  synthetic: {{channels: {size[0]}, "
                f"height: {size[1]}, width: {size[2]}, classes: 2, train: 1, test: 1}}\n")
    if size[0] != CHANNELS:
        raise ValueError(f"task: {task} takes pictures of {CHANNELS} channels, and the network "
                         f"takes {size[0]}")
    names = json.dumps([f"c{i}" for i in range(classes)])
    data = (f"task: {task}\ndata:\n  path: {json.dumps(folder)}\n  batch_size: 1\n"
            f"  class_names: {names}\n")
    if task == "segmentation":
        for split in ("train", "test"):
            _picture(os.path.join(folder, split, "a.png"), *size)
            _picture(os.path.join(folder, f"{split}annot", "a.png"), 1, *size[1:])
        return data + "  dataset: camvid\n"
    _voc(size, folder)
    return (data + f"  dataset: voc\n  resize: [{size[1]}, {size[2]}]\n"
            f"detection: {{boxes: {_default_boxes(network, size)}}}\n")


def _tokens(size, classes, path):
    with open(path, "wb") as file:  # a sequence, and the token after it
        file.write(bytes(2 * (size[0] + 1)))
    return ("task: language\ndata:\n  dataset: tokens\n  element: uint16\n"
            f"  path: {json.dumps(path)}\n  batch_size: 1\n  context: {size[0]}\n"
            f"  vocabulary: {classes}\n")


def _voc(size, folder):
    _picture(os.path.join(folder, "JPEGImages", "a.png"), *size)
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
    _write(os.path.join(folder, "Annotations", "a.xml"),
           f"<annotation><object><name>c0</name>{box}</object></annotation>".encode())
    for split in ("trainval", "test"):
        _write(os.path.join(folder, "ImageSets", "Main", f"{split}.txt"), b"a\n")


def _default_boxes(network, size):
    """detection.boxes for the maps of features that the locations come from: as many boxes a place,
    of any shape."""
    if size[1] != size[2]:
        raise ValueError(f"task: detection takes square images, and the network takes "
                         f"{size[1]}x{size[2]}")
    by_name = {layer.name: layer for layer in network.layers}
    grids, ratios = [], []
    for name in by_name[network.outputs[0]].inputs:
        channels, height, width = by_name[name].output.size
        boxes = channels // 4
        if height != width or boxes % 2:
            raise ValueError(f"{name}: {boxes} boxes on each of {height}x{width} places; "
                             "detection.boxes has square maps and 2 + 2 ratios boxes a place")
        grids.append(height)
        ratios.append([2 + i for i in range(boxes // 2 - 1)])
    sizes = [size[1] * (i + 1) / (len(grids) + 2) for i in range(len(grids) + 1)]
    steps = [size[1] / grid for grid in grids]
    return json.dumps({"grids": grids, "steps": steps, "sizes": sizes, "aspect_ratios": ratios})


def _picture(path, channels, height, width):
    """A black PNG: gray of one channel, RGB of three."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    rows = bytes((1 + channels * width) * height)
    _write(path, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
           chunk(b"IEND", b""))


def _write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
