"""Safetensors and digests of block-scaled conversions, for make.py and the test that reads cases.csv.

Needs NumPy.
"""
import hashlib
import json

import numpy as np

F32 = np.float32
KINDS = {"F32": F32, "F64": np.float64, "U8": np.uint8, "BF16": np.uint16}
# exponent bits, mantissa bits, bias, the first code that is inf or NaN
FORMATS = {"fp8_e4m3": (4, 3, 7, 127), "fp8_e5m2": (5, 2, 15, 124), "fp6_e2m3": (2, 3, 1, 32),
           "fp6_e3m2": (3, 2, 3, 32), "fp4_e2m1": (2, 1, 1, 8)}


def load(path):
    """A safetensors file as {name: (dtype, array)}; BF16 as its codes."""
    with open(path, "rb") as file:
        raw = file.read()
    length = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            data = np.frombuffer(raw[begin:end], KINDS[entry["dtype"]])
            tensors[name] = (entry["dtype"], data.reshape(entry["shape"]))
    return tensors


def save(path, tensors, metadata=None):
    """Writes {name: (dtype, array)}."""
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, data) in tensors.items():
        raw = np.ascontiguousarray(data).tobytes()
        header[name] = {"dtype": dtype, "shape": list(data.shape),
                        "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


def decode(fmt, codes):
    """Codes as fp32 numbers."""
    codes = np.asarray(codes, np.int64)
    if fmt == "e8m0":
        return np.where(codes == 255, np.nan, np.ldexp(1.0, codes - 127)).astype(F32)
    exponent_bits, mantissa_bits, bias, special = FORMATS[fmt]
    magnitude = codes % (1 << (exponent_bits + mantissa_bits))
    field, mantissa = magnitude >> mantissa_bits, magnitude % (1 << mantissa_bits)
    value = np.where(field == 0, np.ldexp(mantissa.astype(float), 1 - bias - mantissa_bits),
                     np.ldexp(1.0 + mantissa / (1 << mantissa_bits), field - bias))
    value = np.where(magnitude >= special, np.nan, value)
    if fmt == "fp8_e5m2":
        value = np.where(magnitude == special, np.inf, value)
    negative = codes >> (exponent_bits + mantissa_bits) & 1
    return np.where(negative, -value, value).astype(F32)


def same(a, b):
    """Equal bit for bit, any NaN as any NaN."""
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


def canonical(values, signless):
    """One NaN for all; +0 for -0 where `signless`."""
    values = np.where(np.isnan(values), F32(np.nan), values).astype(F32)
    return np.where(values == 0, F32(0), values) if signless else values


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def digests(fmt, values, scales, codes, signless):
    """Digests of decoded values, of stored scales (as numbers), and of element codes as the numbers
    that they stand for, without those of values that decode to NaN; "" where there is none."""
    values = canonical(values, signless)
    if scales is None:
        return [digest(values), "", ""]
    elements = np.where(np.isnan(values), F32(0), canonical(decode(fmt, codes), signless))
    return [digest(values), digest(canonical(scales, False)), digest(elements)]
