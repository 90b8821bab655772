#!/usr/bin/env python3
"""Writes the inputs that fuzzing begins with: FOLDER/<target>/<name>, one folder a target.

usage: seeds.py ADA_TRAIN FOLDER

They come from the configurations of configs/ and tests/bad, from what one small run of ADA_TRAIN
writes, and from hand: small files of each kind, right and wrong in one place.
"""
import gzip
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

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


def made_png(width, height, depth, kind, rows, palette=b"", interlaced=0):
    """The pieces of which the target makes a PNG."""
    return bytes([2, width, height, depth, kind, interlaced, len(palette)]) + palette + rows


def image_seeds(seeds):
    """The first two bytes choose a part and changes, those of PNG files a third how they are made."""
    pieces = {
        "grey": made_png(3, 2, 8, 0, b"\0abc\1def"),
        "grey16": made_png(2, 2, 16, 0, b"\2abcd\4efgh"),
        "rgb": made_png(2, 2, 8, 2, b"\0abcdef\3ghijkl"),
        "rgba": made_png(1, 2, 8, 6, b"\1abcd\2efgh"),
        "palette": made_png(5, 1, 2, 3, b"\0\x1b\x40", b"rgbRGBxyz"),
        "one_bit": made_png(9, 2, 1, 0, b"\0\xa5\x80\0\x5a\0"),
        "interlaced": made_png(4, 4, 8, 0, bytes(40), interlaced=1),
        "long_filter": made_png(3, 2, 8, 0, b"\7abc\0def"),
        "short": made_png(200, 200, 8, 2, b"\0abc"),
    }
    for name, content in pieces.items():
        seeds.add("png", name, b"\x10\x25" + content)
        seeds.add("label_image", name, content)
    for i, path in enumerate(sorted((ROOT / "tests/golden/pictures/files").iterdir())):
        content, choice = path.read_bytes(), bytes([16 * i % 256, 37 * i % 256])
        cut = content[: len(content) // 2]
        if path.suffix == ".jpg":
            seeds.add("jpeg", path.name, choice + content[3:])
            seeds.add("jpeg", path.name + ".cut", choice + cut[3:])
            continue
        for form in (b"\0", b"\1"):
            seeds.add("png", f"{path.name}.{form[0]}", choice + form + content)
            seeds.add("png", f"{path.name}.cut.{form[0]}", choice + form + cut)
            seeds.add("label_image", f"{path.name}.{form[0]}", form + content)
            seeds.add("label_image", f"{path.name}.cut.{form[0]}", form + cut)


def webp_seeds(seeds):
    for i, path in enumerate(sorted((ROOT / "tests/golden/turned/files").glob("*.webp"))):
        content, choice = path.read_bytes(), bytes([16 * i % 256, 37 * i % 256])
        for name, file in ((path.name, content), (path.name + ".cut", content[:len(content) // 2])):
            seeds.add("webp", name, choice + file[4:8] + file[12:])


def npy(descr, shape, data, order="False"):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(members, method, **more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, **more) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def tokens_seeds(seeds):
    """The first byte chooses the reader, the second context and vocabulary."""
    def llmc(magic, version, tokens, kind):
        return struct.pack("<3i", magic, version, len(tokens)).ljust(1024, b"\0") + struct.pack(
            f"<{len(tokens)}{kind}", *tokens)

    numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    seeds.add("tokens", "text", b"\0\x03hello, world: a text")
    seeds.add("tokens", "text_held_back", b"\x04\x02" + bytes(range(64)))
    seeds.add("tokens", "uint16", b"\x01\x02" + struct.pack("<12H", *numbers))
    seeds.add("tokens", "uint32", b"\x02\x02" + struct.pack("<12I", *numbers))
    seeds.add("tokens", "wide", b"\x01\x02" + struct.pack("<12I", *numbers))
    seeds.add("tokens", "llmc", b"\x01\x02" + llmc(20240520, 1, numbers, "H"))
    seeds.add("tokens", "llama3", b"\x01\x02" + llmc(20240801, 7, numbers, "I"))
    seeds.add("tokens", "llmc_cut", b"\x01\x02" + llmc(20240520, 1, numbers, "H")[:-3])
    rows = {"train.tokens": ("U8", [3, 4], bytes(numbers)),
            "train.targets": ("I32", [3, 4], struct.pack("<12i", *numbers[:-1], -100)),
            "test.tokens": ("I64", [1, 4], struct.pack("<4q", *numbers[:4]))}
    header, data = {}, b""
    for name, (kind, shape, content) in rows.items():
        header[name] = {"dtype": kind, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    seeds.add("tokens", "rows", b"\x03\0" + safetensors(header, data))


def npz_seeds(seeds):
    """The first byte: 0 for a whole file; 1 and which are deflated, for members with lengths."""
    arrays = {
        "train.labels": npy("<i8", (3,), struct.pack("<3q", 2, 0, 1)),
        "test.labels": npy("|u1", (2,), b"\1\1"),
        "train.images": npy("|u1", (3, 2, 2, 3), bytes(range(36))),
        "test.images": npy("|u1", (2, 2, 2, 3), bytes(24)),
    }
    files = {name + ".npy": content for name, content in arrays.items()}
    stored = zipped(files, zipfile.ZIP_STORED)
    packed = zipped(files, zipfile.ZIP_DEFLATED)
    seeds.add("npz", "stored", b"\0" + stored)
    seeds.add("npz", "packed", b"\0" + packed)
    seeds.add("npz", "text", b"\0" + zipped({"notes.txt": b"hello"}, zipfile.ZIP_STORED))
    seeds.add("npz", "damaged", b"\0" + stored.replace(bytes(range(36)), bytes(range(1, 37))))
    seeds.add("npz", "cut", b"\0" + packed[:-30])
    seeds.add("npz", "none", b"\0" + zipped({}, zipfile.ZIP_STORED))
    # The 64-bit end of a file, which numpy writes where a file is large.
    end = stored.rindex(b"PK\5\6")
    start = struct.unpack_from("<I", stored, end + 16)[0]
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 4, 4, end - start, start)
    place = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    last = stored[end:end + 8] + b"\xff" * 12 + b"\0\0"
    seeds.add("npz", "wide", b"\0" + stored[:end] + wide + place + last)

    def members(images, labels=arrays["train.labels"], choice=1):
        inputs = [labels, arrays["test.labels"], images]
        return bytes([choice]) + b"".join(
            struct.pack("<H", len(i)) + i for i in inputs) + b"\0\0" + arrays["test.images"]

    seeds.add("npz", "members", members(arrays["train.images"]))
    seeds.add("npz", "members_packed", members(arrays["train.images"], choice=31))
    floats = struct.pack("<12f", *range(11), float("inf"))
    seeds.add("npz", "floats", members(npy("<f4", (3, 2, 2), floats)))
    seeds.add("npz", "fortran", members(npy("|u1", (3, 2, 2, 3), bytes(36), "True")))
    seeds.add("npz", "huge", members(npy("|u1", (2**40, 2**40), b"")))
    seeds.add("npz", "objects", members(npy("|O", (3,), b"")))
    seeds.add("npz", "label", members(arrays["train.images"],
                                      npy("<i2", (3,), struct.pack("<3h", 0, -1, 1))))


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


def truth_seeds(seeds):
    """The first byte chooses what the names are of, and how detections are answered."""
    for name, text in {"two": "a\nb\n", "signs": "a  1\nb -1\n\n", "windows": "a\r\nb\r\n",
                       "missing": "a\nnot_there\n", "blank": " \n\t\n", "torn": "a\nb",
                       "path": "../a\n/etc/a\n", "bom": "\ufeffa\n", "zero": "a\0b\n"}.items():
        seeds.add("names", name, b"\2" + text.encode())
    for name, files in {"pairs": ["1.png", "1.png", "2.jpg", "2.png"],
                        "unpaired": ["1.png", "2.png", "1.JPEG", "1.png"],
                        "twice": ["1.png", "1.png", "1.png", "1.png", "1.jpg", "1.jpg"],
                        "hidden": [".png", "x.", "a.png.png", "a.png"]}.items():
        seeds.add("names", "camvid_" + name, "\0" + "\n".join(files))
    ten = [f"class {i}" for i in range(10)]
    for name, classes in {"ten": ten, "nine": ten[:9], "twice": ten[:9] + ten[:1],
                          "empty": ten[:5] + [""] + ten[6:]}.items():
        seeds.add("names", "classes_" + name, "\1" + "\n".join(classes))
    header = "image,label,score,xmin,ymin,xmax,ymax\n"
    for name, text in {
            "right": header + "a,cat,0.9,1,2,8,6\nb,cat,0.8,0,0,5,5\n",
            "again": header + "a,cat,0.9,1,2,8,6\n" * 3,
            "infinite": header + "a,cat,nan,inf,-inf,8,6\n",
            "unknown": header + "c,cat,0.9,1,2,8,6\n",
            "order": "ymax,xmax,ymin,xmin,score,label,image\n6,8,2,1,0.5,dog,b\n",
            "more": "x," + header + "1,a,cat,1e400,1,2,8,6\n",
            "quoted": header + '"a","c ""a"", t",0.5,1,2,8,6',
            "column": "image,label,score\na,cat,0.9\n", "none": header, "void": ""}.items():
        seeds.add("detections", name, b"\0" + text.encode())
        seeds.add("detections", name + ".table", b"\1" + text.encode())


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
    webp_seeds(seeds)
    npz_seeds(seeds)
    tokens_seeds(seeds)
    annotation_seeds(seeds)
    truth_seeds(seeds)
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
