"""Files of safetensors: as maps from names to (shape, bytes), or (shape, bytes, type) where they are not
fp32; as numbers; and as NumPy's arrays."""
import json
import pathlib
import struct

# Of an element: as NumPy names it, and as `struct` does.
TYPES = {"F64": ("<f8", "d"), "F32": ("<f4", "f"), "F16": ("<f2", "e"), "I64": ("<i8", "q"),
         "I32": ("<i4", "i"), "I16": ("<i2", "h"), "U16": ("<u2", "H"), "I8": ("i1", "b"),
         "U8": ("u1", "B")}


def write(path, tensors, metadata=None):
    """metadata: texts beside the tensors."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values, *kind) in tensors.items():
        header[name] = {"dtype": kind[0] if kind else "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_arrays(path, arrays, metadata=None):
    """The widest elements come first, so that all are aligned."""
    names = {numpy_name.lstrip("<"): name for name, (numpy_name, _) in TYPES.items()}
    write(path, {name: (array.shape, array.tobytes(), names[array.dtype.str[1:]]) for name, array in
                 sorted(arrays.items(), key=lambda item: -item[1].itemsize)}, metadata)


def _header(data):
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), end


def _entries(path):
    """(name, shape, type, bytes) of each tensor."""
    data = pathlib.Path(path).read_bytes()
    header, end = _header(data)
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            yield name, entry["shape"], entry["dtype"], data[end + first:end + last]


def read(path):
    return {name: (shape, data) for name, shape, _, data in _entries(path)}


def numbers(path):
    """Maps from names to (shape, numbers)."""
    def unpacked(data, code):
        return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    return {name: (shape, unpacked(data, TYPES[kind][1]))
            for name, shape, kind, data in _entries(path)}


def arrays(path):
    import numpy
    return {name: numpy.frombuffer(data, TYPES[kind][0]).reshape(shape)
            for name, shape, kind, data in _entries(path)}


def metadata(path):
    """The texts that a file carries beside its tensors."""
    return _header(pathlib.Path(path).read_bytes())[0].get("__metadata__", {})
