#!/usr/bin/python3
"""Takes from the recordings of ChainerCV what the tests of src/vision need.

usage: make.py RECORDINGS        (a folder with ssd/, detection/ and segmentation/)
Writes into the folders of the same names beside this one: all tables but those of losses; of decode.safetensors four cases, of
default_boxes.safetensors the small set; the rest as it is. Needs no packages.
"""
import json
import pathlib
import shutil
import struct
import sys

CASES = {"decode": ("random0.", "random1.", "overflow.", "tied_scores."), "default_boxes": ("small",)}


def tensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write(path, kept):
    header, body = {}, b""
    for name, (dtype, shape, data) in sorted(kept.items(), key=lambda item: -len(item[1][2]) % 8):
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    source, target = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).resolve().parent.parent
    for folder in ("ssd", "detection", "segmentation"):
        (target / folder).mkdir(exist_ok=True)
        for path in sorted((source / folder).iterdir()):
            if path.stem == "multibox_loss":
                continue
            prefixes = CASES.get(path.stem)
            to = target / folder / path.name
            if prefixes is None:
                shutil.copyfile(path, to)
            elif path.suffix == ".safetensors":
                write(to, {n: t for n, t in tensors(path).items() if n.startswith(prefixes)})
            else:
                lines = path.read_text().splitlines(keepends=True)
                comments = [line for line in lines if line.startswith("#")]
                rows = [line for line in lines[len(comments) + 1:]
                        if (line.split(",")[0] + ".").startswith(prefixes)]
                to.write_text("".join(comments + lines[len(comments):][:1] + rows))


if __name__ == "__main__":
    main()
