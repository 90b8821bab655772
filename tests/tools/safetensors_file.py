"""Files of safetensors, as maps from names to (shape, bytes), or (shape, bytes, type) where they are not
fp32."""
import json
import struct


def write(path, tensors):
    header, data = {}, b""
    for name, (shape, values, *kind) in tensors.items():
        header[name] = {"dtype": kind[0] if kind else "F32", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _header(data):
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), end


def read(path):
    data = path.read_bytes()
    header, end = _header(data)
    return {name: (entry["shape"], data[end + entry["data_offsets"][0]:
                                        end + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def metadata(path):
    """The texts that a file carries beside its tensors."""
    return _header(path.read_bytes())[0].get("__metadata__", {})
