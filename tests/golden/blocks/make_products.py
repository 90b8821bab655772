"""Takes products.safetensors from a recording of products of linear layers (matmul.safetensors).

usage: python3 make_products.py MATMUL.safetensors

Kept are the inputs x, w, dy of each case that a configuration has, and what the program made of
them: y, dx, dw. Cases: mx0 to mx4 torchao 0.18.0, mx_mm; nv0 Transformer Engine d0067d0, qgemm of
NVFP4QuantizerRef; f8_0 the operands of BlockwiseQuantizerReference, multiplied in float64.
"""

import json
import struct
import sys
from pathlib import Path

CASES = ("mx0", "mx1", "mx2", "mx3", "mx4", "nv0", "f8_0")
TENSORS = ("in_x", "in_w", "in_dy", "y", "dx", "dw")


def main():
    data = Path(sys.argv[1]).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    kept, body = {}, b""
    for case in CASES:
        for tensor in TENSORS:
            entry = header.get(f"{case}/{tensor}")
            if entry is None:
                continue  # inputs that another case has
            begin, end = entry["data_offsets"]
            values = data[8 + length + begin : 8 + length + end]
            kept[f"{case}/{tensor}"] = {**entry, "data_offsets": [len(body), len(body) + len(values)]}
            body += values
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    out = Path(__file__).with_name("products.safetensors")
    out.write_bytes(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    main()
