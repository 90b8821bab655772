"""`ada-train convert` to formats of tables (IEEE P3109, HiFloat8, UE5M3), HiFloat4, MXINT8 and FP4 E1M2,
with every rounding and overflow mode, beside recordings.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/convert_formats_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped, and so are the tests whose
recordings are not there.
"""
import pathlib
import sys
import unittest

from tests.program_case import ProgramCase, rows_of
from tests.tools.safetensors_file import arrays, write_arrays

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from matmul_test import SHARED, run  # noqa: E402

RECORDED = SHARED / "golden" / "practice" / "formats"
OVERFLOW = {"none": "none", "finite": "saturate", "propagate": "saturate_finite"}


class Convert(ProgramCase):
    def converted(self, x, *arguments, code=0):
        source, target = self.folder / "in.safetensors", self.folder / "out.safetensors"
        write_arrays(source, {"x": np.ascontiguousarray(x)})
        done = run("convert", source, target, *arguments, code=code)
        return arrays(target) if code == 0 else done.stderr

    @unittest.skipUnless(RECORDED.exists(), "the recordings are not there")
    def test_p3109(self):
        recorded = arrays(RECORDED / "cases.safetensors")
        for row in rows_of(RECORDED / "cases.csv"):
            if not row["system"].startswith("P3109") or row["rounding"].startswith("stochastic"):
                continue
            with self.subTest(row["tensor"]):
                codes = recorded[row["tensor"]]
                x = recorded[f"p3109.{row['format']}.x"][:len(codes)]
                rounding = "toward_odd" if row["rounding"] == "odd" else row["rounding"]
                out = self.converted(x, "--format", row["format"].lower(), "--rounding", rounding,
                                     "--overflow", OVERFLOW[row["saturation"]], "--save-scales")
                np.testing.assert_array_equal(out["x.codes"], codes)
                np.testing.assert_array_equal(out["x"], recorded[f"decode.p3109.{row['format']}"][codes])

    @unittest.skipUnless(RECORDED.exists(), "the recordings are not there")
    def test_others(self):
        t = arrays(RECORDED / "cases.safetensors")
        out = self.converted(t["hifloat8.x"], "--format", "hifloat8", "--save-scales")
        np.testing.assert_array_equal(out["x.codes"], t["hifloat8.codes"])
        out = self.converted(t["hifloat4.x"], "--format", "hifloat4", "--save-scales")
        np.testing.assert_array_equal(out["x"], t["hifloat4.value"])
        for part in ("scale", "e8", "e16", "codes"):
            np.testing.assert_array_equal(out["x." + part].ravel(), t["hifloat4." + part].ravel())
        for modes, name in (((), "ue5m3.nan"), (("--overflow", "saturate"), "ue5m3.saturate")):
            out = self.converted(t["ue5m3.x"], "--format", "ue5m3", "--save-scales", *modes)
            np.testing.assert_array_equal(out["x.codes"], t[name])
        x = t["float4_e1m2.x"]
        out = self.converted(x, "--format", "fp4_e1m2")
        want = t["decode.float4_e1m2"][t["float4_e1m2.codes"]]
        np.testing.assert_array_equal(out["x"][~np.isnan(x)], want[~np.isnan(x)])
        out = self.converted(t["mxint8.x"], "--format", "mxint8", "--save-scales")
        np.testing.assert_array_equal(out["x"], t["mxint8.value_even"])
        np.testing.assert_array_equal(out["x.scale"].ravel(), t["mxint8.scale"])
        np.testing.assert_array_equal(out["x.codes"], t["mxint8.codes"])
        out = self.converted(t["nvfp4_ue5m3.x"], "--format", "{element: fp4_e2m1, scale: ue5m3}",
                             "--save-scales")
        np.testing.assert_array_equal(out["x"], t["nvfp4_ue5m3.value"])
        np.testing.assert_array_equal(out["x.scale"].ravel(), t["nvfp4_ue5m3.scale"])
        np.testing.assert_array_equal(out["x.codes"], t["nvfp4_ue5m3.codes"])

    def test_modes_of_plain_formats(self):
        x = np.array([0.3, -1.6, 200, -300, 5.5, 448.1, 1e9], np.float32)
        np.testing.assert_array_equal(self.converted(x, "--format", "int8")["x"],
                                      [0, -2, 127, -127, 6, 127, 127])
        down = self.converted(x, "--format", "fp8_e4m3", "--rounding", "toward_zero")["x"]
        np.testing.assert_array_equal(down, [0.28125, -1.5, 192, -288, 5.5, 448, 448])
        kept = self.converted(x, "--format", "fp8_e5m2", "--overflow", "saturate")["x"]
        self.assertEqual(kept[-1], 57344)

    def test_stochastic_means(self):
        x = np.full(40000, 1 + 0.25 * 0.125, np.float32)
        for mode in "abc":
            out = self.converted(x, "--format", "fp8_e4m3", "--rounding", f"stochastic_{mode}")["x"]
            self.assertEqual(set(out.tolist()), {1.0, 1.125})
            self.assertAlmostEqual(out.mean(), x[0], delta=1e-3)
        again = self.converted(x, "--format", "fp8_e4m3", "--rounding", "stochastic_c")["x"]
        np.testing.assert_array_equal(out, again)
        other = self.converted(x, "--format", "fp8_e4m3", "--rounding", "stochastic_c", "--seed", 2)["x"]
        self.assertTrue((out != other).any())

    def test_blocks_of_64_run_along_an_axis(self):
        x = np.random.default_rng(1).standard_normal((70, 5)).astype(np.float32)
        down = self.converted(x, "--format", "hifloat4", "--axis", 0, "--save-scales")
        across = self.converted(x.T, "--format", "hifloat4", "--save-scales")
        np.testing.assert_array_equal(down["x"], across["x"].T)
        self.assertEqual(down["x.scale"].shape, (2, 5))
        self.assertEqual(down["x.e16"].shape, (18, 5))

    def test_refusals(self):
        x = np.zeros(4, np.float32)
        for arguments, words in (
            (("--format", "binary8p9se"), "IEEE P3109"),
            (("--format", "nvfp4", "--rounding", "toward_zero"), "no plain format"),
            (("--format", "fp16", "--rounding", "up"), "nearest_even, nearest_away"),
            (("--format", "fp16", "--overflow", "wrap"), "none, saturate, saturate_finite"),
            (("--format", "hifloat4", "--rounding", "toward_zero"), "no plain format"),
            (("--format", "fp16", "--random-bits", "4"), "stochastic_a"),
            (("--format", "hifloat8", "--axis", "0"), "no scales of blocks"),
        ):
            with self.subTest(words):
                self.assertIn(words, self.converted(x, *arguments, code=2))


if __name__ == "__main__":
    unittest.main()
