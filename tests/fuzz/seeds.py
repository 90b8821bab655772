#!/usr/bin/env python3
"""Writes the inputs that fuzzing begins with: FOLDER/<target>/<name>, one folder a target.

usage: seeds.py ADA_TRAIN FOLDER

They come from the configurations of configs/ and tests/bad, from what one small run of ADA_TRAIN
writes, and from hand: small files of each kind, right and wrong in one place.
"""
import gzip
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A run that writes every file there is.
RUN = """
name: run
data: {dataset: synthetic, batch_size: 8,
       synthetic: {height: 6, width: 6, channels: 1, classes: 3, train: 32, test: 8}}
model:
  layers:
    - {name: fc1, kind: linear, features: 4}
    - {name: relu1, kind: relu}
    - {name: fc2, kind: linear, features: 3}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
precision: {format: fp16}
scaling: {policy: adaptive}
train: {epochs: 2}
log: {every: 2, histogram_every: 2, statistics: [y, w, dx, dw, dy], probe_every: 4,
      what_if: [{format: fp8_e5m2}, {scaling: {policy: dynamic}}]}
checkpoint: {every_steps: 4}
device: cpu
"""


class Seeds:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def add(self, target, name, content):
        path = self.folder / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def yaml_seeds(seeds):
    for path in [*ROOT.glob("configs/*.yaml"), *ROOT.glob("tests/bad/*.yaml")]:
        seeds.add("yaml", path.name, path.read_bytes())
    anchors = "a0: &a0 [1, 2]\n" + "".join(f"a{i}: &a{i} [*a{i-1}, *a{i-1}]\n" for i in range(1, 60))
    seeds.add("yaml", "anchors", anchors)
    seeds.add("yaml", "deep", "a: " + "[" * 300)


def safetensors(header, data=b""):
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds(seeds):
    one = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    more = {
        "__metadata__": {"scale:x.dy": "1024", "format": "pt"},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]},
        "c": {"dtype": "F8_E4M3", "shape": [0, 7], "data_offsets": [2, 2]},
        "d": {"dtype": "F64", "shape": [1], "data_offsets": [2, 10]},
        "e": {"dtype": "BOOL", "shape": [3], "data_offsets": [10, 13]},
    }
    seeds.add("safetensors", "one", safetensors(one, bytes(24)))
    seeds.add("safetensors", "more", safetensors(more, bytes(range(13))))
    seeds.add("safetensors", "none", safetensors({}))
    seeds.add("safetensors", "padded", safetensors(json.dumps(one) + "    ", bytes(24)))
    seeds.add("safetensors", "cut", safetensors(one, bytes(20)))
    seeds.add("safetensors", "length", struct.pack("<Q", 2**63) + b"{}")
    seeds.add("safetensors", "deep", safetensors("[" * 1000))
    seeds.add("safetensors", "twice", safetensors('{"a":1,"a":2}'))
    huge = {"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 24]}}
    seeds.add("safetensors", "huge", safetensors(huge, bytes(24)))


def idx(magic, *sizes):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", size) for size in sizes)


def data_seeds(seeds):
    labels = idx(0x801, 2) + bytes([1, 2])
    images = idx(0x803, 2, 2, 3) + bytes(range(12))
    seeds.add("idx", "whole", bytes([len(labels)]) + labels + images)
    packed = gzip.compress(labels, mtime=0)
    seeds.add("idx", "packed", bytes([128 + len(packed)]) + packed + gzip.compress(images, mtime=0))
    seeds.add("idx", "many", bytes([len(labels)]) + labels + idx(0x803, 10**6, 2, 3))
    seeds.add("idx", "label", bytes([len(labels)]) + idx(0x801, 2) + bytes([1, 10]) + images)
    record = bytes([3]) + bytes(range(18))
    seeds.add("cifar", "ten", b"\0" + record * 2)
    seeds.add("cifar", "hundred", b"\1" + (b"\7" + record) * 2)
    seeds.add("cifar", "label", b"\0" + b"\x0a" + record[1:] * 2)
    seeds.add("cifar", "long", b"\0" + record * 3)


def image_seeds(seeds):
    """The first two bytes choose a box and changes."""
    for i, path in enumerate(sorted((ROOT / "tests/golden/pictures/files").iterdir())):
        content = path.read_bytes()
        seeds.add("images", path.name, bytes([16 * i % 256, 37 * i % 256]) + content)
        seeds.add("images", path.name + ".cut", bytes([7, i]) + content[: len(content) // 2])


ANNOTATION = """<?xml version="1.0"?>
<annotation><size><width>13</width><height>9</height><depth>3</depth></size>
<object><name>cat &amp; dog</name><difficult>0</difficult>
<bndbox><xmin>2</xmin><ymin>1.5</ymin><xmax>11</xmax><ymax>9</ymax></bndbox></object>
<object><name>b</name><bndbox><xmin>5</xmin><ymin>3</ymin><xmax>5</xmax><ymax>8</ymax></bndbox>
</object><!-- text --><![CDATA[more]]></annotation>
"""
BOX = "<object><name>a</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>" \
      "<ymax>{}</ymax></bndbox></object>"


def annotation_seeds(seeds):
    """The first byte chooses the changes."""
    for choice in range(4):
        seeds.add("annotation", f"whole{choice}", bytes([choice]) + ANNOTATION.encode())
    for name, corners in {"outside": (90, 1, 99, 5), "inverted": (9, 8, 3, 2),
                          "beyond": (-4, -4, 40, 40), "empty": (3, 3, 3, 3)}.items():
        text = "<annotation>" + BOX.format(*corners) + "</annotation>"
        seeds.add("annotation", name, b"\5" + text.encode())
    many = "".join(BOX.format(i % 9, i % 5, 4 + i % 9, 4 + i % 5) for i in range(20))
    seeds.add("annotation", "many", f"\7<annotation>{many}</annotation>".encode())
    for name, text in {"deep": "<a>" * 200, "cut": ANNOTATION[:150], "entity": "&#x0;&bad;<a/>",
                       "doctype": '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
                       "word": "<annotation><object><name>a</name><bndbox><ymin>x"}.items():
        seeds.add("annotation", name, b"\1" + text.encode())
    for path in sorted((ROOT / "tests/golden/pictures/files").glob("*.png")):
        content = path.read_bytes()
        seeds.add("label_image", path.name, content)
        seeds.add("label_image", path.name + ".cut", content[: len(content) // 2])


CSV = {
    "quotes": '"a","b ""c"""\r\n1,"x\ny"\r\n',
    "quote_first": '"step,epoch\n1,2\n',
    "torn": "step,loss\n1,0.5\n2,0.",
    "words": "a,b\ninf,nan\n-inf,\n1e400,0x10\n",
    "comments": "# a\n# b\nstep,overflow\n1,0\n2,1\n",
    "same": "overflow,overflow\n0,1\n",
    "bom": "\ufeffstep,loss\n1,2\n",
}


def csv_seeds(seeds, run):
    """What the run wrote, cut to some rows; the first byte chooses file and command."""
    names = ["steps.csv", "scales.csv", "underflow.csv", "events.csv", "evaluation.csv",
             "timing.csv", "histograms.csv", "what_if.csv", "probes.csv"]
    study = ["histograms.csv", "underflow.csv", "steps.csv", "scales.csv", "evaluation.csv",
             "events.csv"]
    for name, text in CSV.items():
        seeds.add("csv", name, text)
        seeds.add("rows", name, b"\0" + text.encode())
        seeds.add("watch", name, b"\0" + text.encode())
        seeds.add("study", name, b"\2" + text.encode())
        seeds.add("replay", name, b"\0" + text.encode())
    for i, name in enumerate(names):
        lines = (run / name).read_text().splitlines(keepends=True)
        text = "".join(lines[:8])
        seeds.add("csv", name, text)
        seeds.add("rows", name, bytes([i]) + text.encode())
        if i < 5:
            seeds.add("watch", name, bytes([i]) + text.encode())
        if name in study:
            for command in range(7):
                choice = bytes([8 * command + study.index(name)])
                seeds.add("study", f"{name}.{command}", choice + text.encode())
    seeds.add("replay", "dynamic", b"\0overflow\n0\n1\n0\n")
    seeds.add("replay", "table", b"\x08\xef\xbb\xbf# x\nstep, Overflow\n1.0, False\n2, 1.0\n")
    seeds.add("replay", "bare", b"\0False\nTrue\n")
    seeds.add("replay", "logmax", b"\1attempt,step,amax\n1,1,0.5\n2,1,inf\n3,2,1e-30\n")


def json_seeds(seeds, run):
    newest = sorted((run / "checkpoints").glob("step-*.json"))[-1].read_bytes()
    seeds.add("checkpoint", "as_it_is", b"\0" + newest)
    seeds.add("checkpoint", "made_right", b"\1" + newest)
    for key in json.loads(newest):
        changed = json.loads(newest)
        changed[key] = -1
        seeds.add("checkpoint", "minus_" + key, b"\1" + json.dumps(changed).encode())
    seeds.add("checkpoint", "deep", b"\0" + b"[" * 80000)
    deep = b'{"state_xxh3":"x","policy":' + b"[" * 80000 + b"]" * 80000 + b"}"
    seeds.add("checkpoint", "deep_closed", b"\0" + deep)
    seeds.add("checkpoint", "deep_config", b'\1{"policy":' + b"[" * 500 + b"]" * 500 + b"}")
    seeds.add("summary", "whole", (run / "summary.json").read_bytes())
    seeds.add("summary", "list", "[]")
    seeds.add("summary", "cut", (run / "summary.json").read_bytes()[:50])
    seeds.add("summary", "deep", "[" * 80000)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, seeds = pathlib.Path(sys.argv[1]).resolve(), Seeds(sys.argv[2])
    yaml_seeds(seeds)
    safetensors_seeds(seeds)
    data_seeds(seeds)
    image_seeds(seeds)
    annotation_seeds(seeds)
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "run.yaml"
        config.write_text(RUN)
        command = [program, "--config", config, "--output", pathlib.Path(folder) / "run"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"seeds.py: the run that makes seeds ended with {done.returncode}: {done.stderr}")
        csv_seeds(seeds, pathlib.Path(folder) / "run")
        json_seeds(seeds, pathlib.Path(folder) / "run")


main()
