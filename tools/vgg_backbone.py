#!/usr/bin/env python3
"""Writes the weights of a VGG-16 under the names of the zoo's ssd300, ssd512 and segnet.

FILE is a safetensors file with the state dict of torchvision's vgg16 or vgg16_bn, or with the
weights of this zoo's vgg16 (a checkpoint's too). conv6 and conv7 of SSD are made of torchvision's
first two linear layers, of which every fourth output and input and every third row and column stay.
What stands before a batch norm has no bias here: its running mean takes it. For
  model: {zoo: ssd300, init: {weights: OUTPUT}}
  model: {zoo: segnet, init: {weights: OUTPUT, ignore_unknown: true}}

Exit status: 0; 1 numpy is missing; 2 command line; 3 FILE cannot be read or is no VGG-16; 6 cannot
write.
"""
import argparse
import json
import os
import struct
import sys

try:
    import numpy
except ImportError:
    sys.exit("vgg_backbone.py: numpy is missing (python3-numpy)")

STAGES = (2, 2, 3, 3, 3)
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
NORM = ("weight", "bias", "running_mean", "running_var")


class NoVgg(Exception):
    pass


def read(path):
    """All tensors of a safetensors file that are floats, as fp32."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        end = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:end])
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            if entry["dtype"] not in TYPES:
                continue
            begin, past = (end + offset for offset in entry["data_offsets"])
            values = numpy.frombuffer(data[begin:past], TYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"]).astype(numpy.float32)
        return tensors
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoVgg(f"no safetensors file ({error})") from error


def write(path, tensors):
    header, end = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).tobytes())
    os.replace(path + ".part", path)


def places(tensors):
    """For each convolution its index ("4_3"), the file's name of it, and that of its batch norm."""
    if "features.0.weight" in tensors:
        normed = numpy.ndim(tensors.get("features.1.weight", 0)) == 1
        number = 0
        for stage, convolutions in enumerate(STAGES, 1):
            for i in range(1, convolutions + 1):
                yield f"{stage}_{i}", f"features.{number}", f"features.{number + 1}" if normed else None
                number += 3 if normed else 2
            number += 1
        return
    normed = "stage1.bn1.weight" in tensors
    for stage, convolutions in enumerate(STAGES, 1):
        for i in range(1, convolutions + 1):
            yield f"{stage}_{i}", f"stage{stage}.conv{i}", f"stage{stage}.bn{i}" if normed else None


def taken(tensors, name, dims):
    """A tensor of the file; a last dim of None is any."""
    if name not in tensors:
        raise NoVgg(f"no tensor {name}; this is neither torchvision's vgg16 or vgg16_bn nor the zoo's")
    found = tensors[name].shape
    if len(found) != len(dims) or any(d not in (None, f) for d, f in zip(dims, found)):
        raise NoVgg(f"tensor {name}: expected shape {list(dims)}, found {list(found)}; "
                    "this is no VGG-16")
    return tensors[name]


def converted(tensors):
    result, before = {}, None
    for index, conv, norm in places(tensors):
        channels = 64 * 2 ** min(int(index[0]) - 1, 3)
        weight = taken(tensors, conv + ".weight", (channels, before, 3, 3))
        before = channels
        result[f"conv{index}.weight"] = weight
        bias = tensors.get(conv + ".bias")
        if norm is None:
            result[f"conv{index}.bias"] = taken(tensors, conv + ".bias", (channels,))
            continue
        for part in NORM:
            values = taken(tensors, f"{norm}.{part}", (channels,))
            if part == "running_mean" and bias is not None:
                values = values - bias
            result[f"bn{index}.{part}"] = values
    if "classifier.0.weight" in tensors:
        first = taken(tensors, "classifier.0.weight", (4096, 512 * 7 * 7)).reshape(4096, 512, 7, 7)
        second = taken(tensors, "classifier.3.weight", (4096, 4096)).reshape(4096, 4096, 1, 1)
        result["conv6.weight"] = first[::4, :, ::3, ::3]
        result["conv6.bias"] = taken(tensors, "classifier.0.bias", (4096,))[::4]
        result["conv7.weight"] = second[::4, ::4]
        result["conv7.bias"] = taken(tensors, "classifier.3.bias", (4096,))[::4]
    return result


def main():
    parser = argparse.ArgumentParser(prog="vgg_backbone.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="weights of a VGG-16, safetensors")
    parser.add_argument("-o", "--output", required=True, metavar="OUTPUT",
                        help="where the renamed weights go, safetensors")
    options = parser.parse_args()
    try:
        result = converted(read(options.file))
    except (OSError, NoVgg) as error:
        text = error.strerror if isinstance(error, OSError) else error
        print(f"vgg_backbone.py: {options.file}: {text}", file=sys.stderr)
        return 3
    try:
        write(options.output, result)
    except OSError as error:
        print(f"vgg_backbone.py: {options.output}: {error.strerror}", file=sys.stderr)
        return 6
    print(f"{options.output}: {len(result)} tensors, " +
          ("with" if "conv6.weight" in result else "without") + " conv6 and conv7")
    return 0


if __name__ == "__main__":
    sys.exit(main())
