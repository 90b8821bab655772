#!/usr/bin/env python3
"""select_cases.py FOLDER: from a set of recorded operations of transformers (FOLDER has ops.csv,
ops.safetensors, rounded.csv and rounded.safetensors, as gen_text_ops.py writes them: PyTorch in
float64, and NumPy with the rounding points of src/README.md) writes the cases that single ops of a
backend can run, as [images, positions, channels] in fp32, beside this file. NumPy only."""
import csv
import json
import os
import struct
import sys

import numpy as np

OPS = ("attention", "rope", "rms_norm", "layer_norm", "embedding", "softmax", "join")


def load(path):
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F64": "<f8", "I64": "<i8"}
    return {
        name: np.frombuffer(raw[8 + size :][slice(*e["data_offsets"])], kinds[e["dtype"]]).reshape(
            e["shape"]
        )
        for name, e in json.loads(raw[8 : 8 + size]).items()
        if name != "__metadata__"
    }


def save(path, tensors):
    head, blobs, at = {}, [], 0
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        kind = {"float32": "F32", "int32": "I32"}[str(array.dtype)]
        head[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[at, at + len(blob)])
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def sequence(op, name, array, heads_second):
    """The tensor as [images, positions, channels], and its heads."""
    if op == "attention" and name != "p":
        if array.ndim == 3:
            return array, 0
        if heads_second:
            array = array.transpose(0, 2, 1, 3)
        return array.reshape(*array.shape[:2], -1), array.shape[2]
    if op == "rope":
        return array.reshape(*array.shape[:2], -1), array.shape[2]
    if op in ("rms_norm", "layer_norm", "softmax", "join") and array.ndim == 2:
        return array[None], 0
    return array, 0


def main():
    folder, out = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
    if len(sys.argv) > 2:
        out = sys.argv[2]
    keys = "causal scale pairing rotary base start eps S format probabilities score_gradients".split()
    rules = "policy n SB AB u_min".split()
    for part in ("ops", "rounded"):
        tensors, kept, rows = load(f"{folder}/{part}.safetensors"), {}, []
        with open(f"{folder}/{part}.csv", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        for row in table:
            case, op, p = row["case"], row["op"], json.loads(row["parameters"])
            if op not in OPS:
                continue
            heads = {}
            for full, array in tensors.items():
                if full.rsplit(".", 1)[0] != case:
                    continue
                name = full.rsplit(".", 1)[1]
                array, heads[name] = sequence(op, name, array, part == "ops")
                kept[full] = array.astype("int32" if array.dtype.kind == "i" else "float32")
            line = dict(case=case, op=op, heads=heads.get("q", heads.get("x", 0)), kv_heads=heads.get("k", 0))
            line.update({k: p.get(k, "") for k in keys})
            line.update({k: p.get("scaling", {}).get(k, "") for k in rules})
            line["S"] = " ".join(map(str, p["S"])) if isinstance(p.get("S"), list) else p.get("S", "")
            line["S_out"] = " ".join(f"{k}:{v!r}" for k, v in p.get("S_out", {}).items())
            line["counts"] = " ".join(k + ":" + "/".join(map(str, v)) for k, v in p.get("counts", {}).items())
            line["decisions"] = " ".join("/".join(map(str, d)) for d in p.get("decisions", []))
            rows.append({k: "" if v is None else v for k, v in line.items()})
        with open(f"{out}/{part}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        save(f"{out}/{part}.safetensors", kept)


if __name__ == "__main__":
    main()
