"""ada_train.native.BlockFormat: operands through libada_scaling are those that `ada-train convert`
writes, value for value, and figures count them. Needs libada_scaling and NumPy; skipped without."""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "golden" / "blocks"))
from ada_train import native  # noqa: E402

try:
    import numpy as np
    import cases
    native.library()
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
FORMATS = ["mxfp8_e5m2", "mxfp4", "nvfp4", "fp8_block128",
           "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3, rule: four_over_six}"]


def quantized(form, values, **place):
    """The operand as the library gives it, and its figures."""
    decoded = np.empty_like(values)
    figures = form.quantize(values.ctypes.data, decoded.ctypes.data, values.shape, **place)
    return decoded, figures


class BlocksTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        random = np.random.default_rng(2)
        self.x = (random.normal(size=(33, 40)) * np.exp2(random.integers(-20, 3, (33, 40)))
                  ).astype(np.float32)
        self.w = random.normal(size=(24, 20, 3, 3)).astype(np.float32)

    def converted(self, form, values, axis):
        cases.save(self.folder / "in.safetensors", {"t": ("F32", values)})
        subprocess.run([BINARY, "convert", "in.safetensors", "out.safetensors", "--format", form,
                        "--axis", str(axis)], check=True, cwd=self.folder)
        return cases.load(self.folder / "out.safetensors")["t"][1]

    def test_operands_are_what_convert_writes(self):
        for text in FORMATS:
            form = native.BlockFormat(text)
            for values, weight in ((self.x, False), (self.w, True)):
                for along in (True, False):
                    with self.subTest(format=text, weight=weight, along=along):
                        got, figures = quantized(form, values, weight=weight, linear=not weight,
                                                 along=along)
                        # A tile of four over six sums its errors along the rows of one plane.
                        square = "[" in text
                        want = self.converted(text, values, 1 if along or square else 0)
                        self.assertTrue(np.array_equal(got, want))
                        lost = sum(getattr(figures, "lost_" + cause) for cause in (
                            "beside_largest", "scale_rounding", "scale_floor", "tensor_scale"))
                        self.assertEqual(lost, int(np.sum((want == 0) & (values != 0))))
                        self.assertEqual(figures.numel, values.size)
                        noise = np.sum((values.astype(float) - want) ** 2)
                        self.assertAlmostEqual(figures.sqnr_db, 10 * math.log10(
                            np.sum(values.astype(float) ** 2) / noise), places=6)

    def test_what_is_refused(self):
        for text in ("mxfp9", "{element: fp16}", "{a", "{element: fp4_e2m1, element: fp4_e2m1}"):
            with self.subTest(text), self.assertRaises(ValueError):
                native.BlockFormat(text)
        with self.assertRaisesRegex(ValueError, "two axes or more"):
            quantized(native.BlockFormat("mxfp4"), np.zeros(3, np.float32), weight=False,
                      linear=True, along=True)

    def test_axes_that_make_no_sense(self):
        form = native.BlockFormat("mxfp4")
        table = [((), "two axes or more"), ((4,), "two axes or more"), ((4, -4), "an axis of -4"),
                 ((-2, -2), "an axis of -2"), ((0, 4), "an axis of 0"),
                 ((1 << 40, 1 << 40), "2\\^40 values at most"), ((1 << 62, 4), "at most"),
                 ((2,) * 17, "16 at most")]
        value = np.zeros(16, np.float32)
        for dims, message in table:
            with self.subTest(dims=dims), self.assertRaisesRegex(ValueError, message):
                form.quantize(value.ctypes.data, value.ctypes.data, dims, weight=False, linear=True,
                              along=True)
        for groups in (0, -1, 3):
            with self.subTest(groups=groups), self.assertRaisesRegex(ValueError, "groups divide"):
                form.quantize(value.ctypes.data, value.ctypes.data, (2, 4, 2), weight=False,
                              linear=False, along=True, groups=groups)
        for rank in (-1, 1 << 30):
            place = native.Operand(0, 1, 1, 0, 1, rank, (native.c_int64 * 2)(4, 4))
            with self.subTest(rank=rank):
                self.assertEqual(1, native.library().ada_operand_quantize(
                    form._handle, native.byref(place), value.ctypes.data, value.ctypes.data, None))
                self.assertIn("two axes or more", native.error())

    def test_names(self):
        self.assertEqual(native.BlockFormat("{element: fp4_e2m1}").name, "mxfp4")
        self.assertEqual(native.BlockFormat("nvfp4").name, "nvfp4")


if __name__ == "__main__":
    unittest.main()
