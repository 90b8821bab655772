"""`ada-train what-if --dump`: every operand of a layer beside the same tensor cut and turned by NumPy,
written as a matrix and converted by `ada-train convert`.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/what_if_dump_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped.
"""
import csv
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden/blocks"))
import cases  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
FORMATS = ["mxfp8_e4m3", "mxfp4", "nvfp4", "fp8_block128", "{element: fp4_e2m1, rule: ceil}",
           "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}"]


def program(folder, *arguments):
    return subprocess.run([BINARY, *arguments], cwd=folder, capture_output=True, text=True)


def tensor(random, *shape):
    """Values of many sizes, some of them zero."""
    values = random.normal(size=shape) * np.exp2(random.integers(-12, 3, shape))
    return np.where(random.random(shape) < 0.1, 0, values).astype(np.float32)


def pixels_first(values, linear):
    """x or dy as [images and pixels, channels]."""
    if linear:
        return values.reshape(len(values), -1)
    return np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])


def matrices(layer, operand, square):
    """The operand as matrices whose rows have the blocks, one for each group and tap."""
    product, which = operand.split(".")
    groups, values = layer["groups"], layer[which]
    if which == "w":
        taps = values.reshape(values.shape[0], values.shape[1], -1)
        parts = [tap for group in np.split(taps, groups) for tap in np.moveaxis(group, 2, 0)]
        down = product == ("forward" if layer.get("transposed") else "dx")
    else:
        parts = np.split(pixels_first(values, layer["linear"]), groups, 1)
        down = product == "dw"
    # Square tiles lie in the same plane for each product: the other way round they are the same.
    return [part.T if down and not square else part for part in parts]


class WhatIfDump(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(1)
        self.layers = {
            "conv": {"x": tensor(random, 3, 10, 5, 4), "w": tensor(random, 8, 5, 3, 3),
                     "dy": tensor(random, 3, 8, 5, 4), "groups": 2, "linear": False},
            "depth": {"x": tensor(random, 2, 6, 7, 7), "w": tensor(random, 6, 1, 3, 3),
                      "dy": tensor(random, 2, 6, 7, 7), "groups": 6, "linear": False},
            "up": {"x": tensor(random, 2, 8, 3, 4), "w": tensor(random, 8, 5, 3, 2),
                   "dy": tensor(random, 2, 10, 7, 8), "groups": 2, "linear": False,
                   "transposed": True},
            "fc": {"x": tensor(random, 37, 3, 4, 5), "w": tensor(random, 50, 60),
                   "dy": tensor(random, 37, 50), "groups": 1, "linear": True},
        }
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tensors = {f"{name}.{which}": ("F32", layer[which])
                   for name, layer in self.layers.items() for which in ("x", "w", "dy")}
        cases.save(self.folder / "dump.safetensors", tensors, {"kind:up": "conv_transpose2d"})

    def rows(self, *formats):
        arguments = [part for form in formats for part in ("--format", form)]
        done = program(self.folder, "what-if", "--dump", "dump.safetensors", "--csv", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return list(csv.DictReader(io.StringIO(done.stdout)))

    def converted(self, parts, form):
        """All parts as `form` keeps them, under one scale of the tensor."""
        width = max(part.shape[1] for part in parts)
        # Matrices of one operand share the tensor's scale, so that they are one tensor here, whose
        # rows of blocks do not meet: those of a tile are filled up with zeros.
        filled = []
        for part in parts:
            rows = -len(part) % 16 if "[16" in form else 0
            filled.append(np.pad(part, ((0, rows), (0, width - part.shape[1]))))
        cases.save(self.folder / "in.safetensors", {"t": ("F32", np.concatenate(filled))})
        done = program(self.folder, "convert", "in.safetensors", "out.safetensors", "--format", form)
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.concatenate(filled), cases.load(self.folder / "out.safetensors")["t"][1]

    def test_counts_are_numpys(self):
        rows = self.rows(*FORMATS)
        self.assertEqual(len(rows), len(self.layers) * len(FORMATS) * 6)
        for row in rows:
            layer, form = self.layers[row["layer"]], row["format"]
            with self.subTest(layer=row["layer"], operand=row["tensor"], format=form):
                parts = matrices(layer, row["tensor"], "[16, 16]" in form)
                before, after = self.converted(parts, form)
                x = before.astype(float)
                noise = np.sum((x - after) ** 2)
                self.assertEqual(int(row["numel"]), layer[row["tensor"][-2:].strip(".")].size)
                self.assertEqual(int(row["lost"]), int(np.sum((before != 0) & (after == 0))))
                self.assertEqual(int(row["lost"]), sum(int(row["lost_" + cause]) for cause in (
                    "beside_largest", "scale_rounding", "scale_floor", "tensor_scale")))
                self.assertAlmostEqual(float(row["sqnr_db"]),
                                       10 * np.log10(np.sum(x ** 2) / noise), places=5)

    def test_plain_formats_and_tables(self):
        for row in self.rows("fp8_e5m2", "bf16"):
            self.assertEqual(row["blocks"], "0")
            self.assertNotEqual(row["sqnr_db"], "")
        done = program(self.folder, "what-if", "--dump", "dump.safetensors", "--format", "nvfp4",
                       "--format", FORMATS[-1], "--table")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"conv +dw\.dy +nvfp4")
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)

    def test_refusals(self):
        empty = self.folder / "none.safetensors"
        cases.save(empty, {"a": ("F32", np.zeros(3, np.float32))})
        torn = self.folder / "torn.safetensors"
        cases.save(torn, {"a.w": ("F32", np.zeros((4, 3), np.float32)),
                          "a.x": ("F32", np.zeros((2, 5), np.float32))})
        table = [
            (["--dump", "dump.safetensors"], 2, "expected --format FORMAT"),
            (["--dump", "dump.safetensors", "--format", "nvfp4", "--scale", "2"], 2, "leave out --scale"),
            (["--dump", "dump.safetensors", "--format", "nvfp4", "runs/a"], 2, "leave out RUN_DIR"),
            (["--dump", "none.safetensors", "--format", "nvfp4"], 3, "has no weights NAME.w"),
            (["--dump", "torn.safetensors", "--format", "nvfp4"], 3, "different numbers of input channels"),
            (["--dump", "nothing.safetensors", "--format", "nvfp4"], 3, "nothing.safetensors"),
            (["runs/a", "--format", "nvfp4"], 3, "runs/a"),
            (["runs/a", "--format", "fp16", "--format", "bf16"], 2, "several are for dumps"),
        ]
        for arguments, code, message in table:
            with self.subTest(arguments=arguments):
                done = program(self.folder, "what-if", *arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
