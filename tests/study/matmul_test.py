"""`ada-train matmul` beside recordings of torchao (float8, int8, MX, NVFP4) and beside NumPy.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/matmul_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped, and so are the tests whose
recordings are not there.
"""
import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

from tests.program_case import ProgramCase, rows_of
from tests.tools.safetensors_file import arrays, write_arrays

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY", str(ROOT / "build" / "ada-train"))
SHARED = pathlib.Path(os.environ.get("ADA_SHARED", ROOT.parent / "shared"))
RECORDED = SHARED / "golden" / "practice" / "recipes"
# The axis of each operand along which its matmul sums.
AXIS = {"forward.x": 1, "forward.w": 1, "dx.dy": 1, "dx.w": 0, "dw.x": 0, "dw.dy": 0}


def run(*arguments, code=0):
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def floats(tensor):
    """F32 of a recorded tensor, whose U16 are bf16."""
    if tensor.dtype != np.uint16:
        return tensor
    return (tensor.astype(np.uint32) << 16).view(np.float32)


def bf16_bits(tensor):
    return (tensor.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def spread(scales, shape):
    """Scales repeated over the values that share them."""
    for axis, (have, want) in enumerate(zip(scales.shape, shape)):
        if have != want:
            scales = np.repeat(scales, -(-want // have), axis)
    return scales[tuple(slice(n) for n in shape)]


def decoded_e4m3(codes):
    e, m = (codes >> 3) & 15, codes & 7
    values = np.where(e == 0, m * 2.0**-9, (1 + m / 8) * 2.0 ** (e.astype(int) - 7.0))
    return (values * np.where(codes & 128, -1, 1)).astype(np.float32)


def near_scales(scale):
    """Largest magnitudes, and the scales about `scale` that fp8_block128 stores for them."""
    at = (np.float32(448) * np.float32(scale)).view(np.int32)
    for step in range(-12, 13):
        amax = np.int32(at + step).view(np.float32)
        yield amax, np.float32(1) / (np.float32(448) / amax)


class MatmulCase(ProgramCase):
    def save(self, **tensors):
        path = self.folder / "in.safetensors"
        write_arrays(path, tensors)
        return path

    def outputs(self, path, *arguments):
        out = self.folder / "out.safetensors"
        done = run("matmul", path, "-o", out, "--operands", "--csv", *arguments)
        return arrays(out), list(csv.DictReader(io.StringIO(done.stdout)))


@unittest.skipUnless(RECORDED.exists(), "the recordings are not there")
class Recorded(MatmulCase):
    @classmethod
    def setUpClass(cls):
        cls.inputs = arrays(RECORDED / "inputs.safetensors")
        cls.sets = {row["set"]: row for row in rows_of(RECORDED / "inputs.csv")}

    def input_of(self, name, as_bf16):
        tensors = {k: self.inputs[f"{name}.{k}"] for k in ("x", "w", "dy")}
        if as_bf16:
            tensors = {k: bf16_bits(v) for k, v in tensors.items()}
        return self.save(**tensors)

    def check_case(self, row, recorded, arguments, as_bf16, tolerance=8, relative=0):
        """Scales and codes are equal, results as near as two sums of fp32 are."""
        path = self.input_of(row["set"], as_bf16)
        extra = ["--x-format", "bf16"] if as_bf16 else []
        out, _ = self.outputs(path, *arguments, *extra)
        for operand, axis in AXIS.items():
            how = row[operand.replace(".", "_")]
            if how == "none":
                self.assertNotIn(operand + ".codes", out)
                continue
            parts = how.split()
            case, source = row["case"], operand
            if len(parts) > 2 and parts[2][0] == "@":
                case = parts[2][1:]
                parts = next(r for r in self.cases if r["case"] == case)[operand.replace(".", "_")].split()
            if len(parts) > 2:
                source = parts[2][1:]
            codes, scale = recorded[f"{case}.{source}.codes"], recorded[f"{case}.{source}.scale"]
            where = f"{row['case']} {operand} {row['recipe']} {row['set']}"
            ours = out[operand + ".scale"]
            shape = codes.shape
            if scale.shape == (1,):
                scale, ours = scale.reshape(1, 1), ours.reshape(1, 1)
            same = spread(ours, shape) == spread(scale, shape)
            if scale.dtype == np.float32:
                same |= np.isnan(spread(ours, shape)) & np.isnan(spread(scale, shape))
            self.assertTrue(same.all(), f"{where}: {(~same).sum()} scales differ")
            broken = np.isnan(out[operand]) & ~np.isfinite(spread(scale.astype(np.float32), shape))
            if scale.dtype == np.uint8 and "block32" in how:
                broken = spread(scale, shape) == 255
            nan = ((out[operand + ".codes"].view(np.uint8) & 0x7F) == 0x7F) & ((codes.view(np.uint8) & 0x7F) == 0x7F)
            equal = (out[operand + ".codes"] == codes) | nan | broken
            self.assertTrue(equal.all(), f"{where}: {(~equal).sum()} codes differ")
        pairs = {"y": ("forward.x", "forward.w"), "dx": ("dx.dy", "dx.w"), "dw": ("dw.dy", "dw.x")}
        for name, (a, b) in pairs.items():
            a, b = out[a].astype(np.float64), out[b].astype(np.float64)
            a, b = (a, b.T) if name == "y" else (a, b) if name == "dx" else (a.T, b)
            with np.errstate(all="ignore"):
                exact, mass = a @ b, np.abs(a) @ np.abs(b)
            theirs = recorded[f"{row['case']}.{name}"]
            half = 2.0**-8 if theirs.dtype == np.uint16 else 0
            theirs = floats(theirs)
            finite = np.isfinite(exact) & np.isfinite(theirs)
            if "nonfinite" not in row["set"]:
                self.assertTrue(finite.all())
            bound = tolerance * 2.0**-24 * mass + (half + relative) * np.abs(exact) + 1e-44
            for what, values in (("ours", out[name]), ("recorded", theirs)):
                worst = (np.abs(values - exact) / bound)[finite]
                limit = 1.05 if what == "recorded" else 1
                self.assertLessEqual(worst.max(initial=0), limit, f"{row['case']} {name} {what}")

    def options_of(self, row):
        """The command line of a recorded case of cases.csv."""
        recipe = {"tensorwise": "torchao_fp8_tensorwise", "rowwise": "torchao_fp8_rowwise",
                  "rowwise_with_gw_hp": "torchao_fp8_rowwise_gw_hp",
                  "int8_mixed_precision": "torchao_int8"}[row["recipe"]]
        arguments = ["--recipe", recipe]
        scaling = "precision.operands.tensor_scaling."
        for option in row["options"].split():
            key, value = option.split("=")
            if key == "round_scales_to_power_of_2":
                arguments += ["--set", scaling + "power_of_two=" + ("true" if value == "1" else "false")]
            elif key == "grad_weight":
                arguments += ["--set", "precision.operands.dw=none"]
        if row["recipe"] != "int8_mixed_precision":
            arguments += ["--set", scaling + "reference=true"]
        return arguments

    def test_float8_and_int8(self):
        recorded = arrays(RECORDED / "cases.safetensors")
        self.cases = rows_of(RECORDED / "cases.csv")
        for row in self.cases:
            with self.subTest(row["case"]):
                relative = 0
                if "emulate=0" in row["options"]:
                    relative = 2.0**-8
                elif row["recipe"] == "int8_mixed_precision" and row["y_dtype"] == "bf16":
                    relative = 2.0**-7
                self.check_case(row, recorded, self.options_of(row),
                                self.sets[row["set"]]["dtype"] == "bf16", relative=relative)

    def test_exact_powers_of_two(self):
        """Without `reference` a scale is the power of two at or below the quotient."""
        recorded = arrays(RECORDED / "cases.safetensors")
        for row in rows_of(RECORDED / "cases.csv"):
            if row["recipe"] != "rowwise" or row["set"] != "edge" or "=0" in row["options"]:
                continue
            out, _ = self.outputs(self.input_of("edge", False), "--recipe", "torchao_fp8_rowwise")
            x = np.abs(self.inputs["edge.x"]).max(1, keepdims=True)
            exact = np.exp2(np.floor(np.log2(448.0 / x.astype(np.float64))))
            self.assertTrue((out["forward.x.scale"] == exact).all())
            theirs = recorded[f"{row['case']}.forward.x.scale"]
            self.assertTrue(set((theirs / exact).ravel()) <= {1.0, 2.0})

    def test_mx(self):
        recorded = arrays(RECORDED / "mx.safetensors")
        self.cases = rows_of(RECORDED / "mx.csv")
        for row in self.cases:
            with self.subTest(row["case"]):
                options = dict(o.split("=") for o in row["options"].split() if "=" in o)
                rule = options.get("scale", "rceil")
                arguments = []
                for tensor in ("x", "w", "dy"):
                    element = options.get(tensor, "fp8_e4m3")
                    arguments += ["--set", f"precision.operands.{tensor}={{element: {element}, rule: {rule}}}"]
                if row["dw_x"] == "none":
                    arguments += ["--set", "precision.operands.dw=none"]
                self.check_case(row, recorded, arguments, self.sets[row["set"]]["dtype"] == "bf16")

    def test_mx_recipe(self):
        recorded = arrays(RECORDED / "mx.safetensors")
        row = next(r for r in rows_of(RECORDED / "mx.csv") if r["recipe"] == "mxfp8_emulated_rceil")
        self.check_case(row, recorded, ["--recipe", "torchao_mxfp8"], False)

    def test_nvfp4(self):
        recorded = arrays(RECORDED / "nvfp4.safetensors")
        for row in rows_of(RECORDED / "nvfp4.csv"):
            with self.subTest(row["case"]):
                self.check_case(row, recorded, ["--recipe", "torchao_nvfp4"], True, relative=2.0**-22)
                out, _ = self.outputs(self.input_of(row["set"], True), "--recipe", "torchao_nvfp4", "--x-format", "bf16")
                for operand in AXIS:
                    amax = recorded[f"{row['case']}.{operand}.amax"]
                    self.assertEqual(out[operand + ".amax"].ravel()[0], amax[0], operand)


class Accumulated(MatmulCase):
    """Sums as tensor cores make them, equal to the bit to recorded ones (tests/golden/accumulators;
    ADA_GOLDEN_ACCUMULATORS: another folder of that layout)."""

    FOLDER = pathlib.Path(os.environ.get("ADA_GOLDEN_ACCUMULATORS", ROOT / "tests/golden/accumulators"))

    def table(self, name):
        with open(self.FOLDER / name, encoding="utf-8") as file:
            return list(csv.DictReader(line for line in file if not line.startswith("#")))

    def test_recorded_sums(self):
        results = arrays(self.FOLDER / "results.safetensors")
        models = {row["model"]: row for row in self.table("models.csv")}
        formats = {"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}
        out, met = self.folder / "sums.safetensors", 0
        for one in self.table("sets.csv"):
            for name in set(one["models"].split()) & set(models):
                rule = {key: models[name][key] for key in ("group", "fraction_bits", "rounding",
                                                           "promote", "accumulator")}
                if rule["accumulator"] == "e8m13":
                    rule["accumulator"] = "{exponent: 8, mantissa: 13}"
                text = ", ".join(f"{key}: {value}" for key, value in rule.items())
                with self.subTest(set=one["set"], model=name):
                    run("matmul", self.FOLDER / "operands.safetensors", "--x", one["set"] + ".a",
                        "--w", one["set"] + ".b",
                        "--x-format", formats.get(one["format_a"], one["format_a"]),
                        "--w-format", formats.get(one["format_b"], one["format_b"]),
                        "--set", f"precision.accumulate={{{text}}}", "-o", out)
                    got, wanted = arrays(out)["y"], results[f"{one['set']}.{name}"]
                    self.assertTrue(((got == wanted) | ((got != got) & (wanted != wanted))).all())
                    met += 1
        self.assertGreater(met, 100)

    def test_recorded_sums_of_scaled_blocks(self):
        """Codes under scales that are no powers of two. A tile takes its scale from its largest value: a row of
        its own, whose products nobody reads, brings the recorded product of scales about."""
        operands, results = arrays(self.FOLDER / "operands.safetensors"), arrays(self.FOLDER / "results.safetensors")
        tile = "{element: fp8_e4m3, block: [128, 128], scale: fp32}"
        keys = [f"precision.operands.{x}={tile}" for x in "xw"] + ["precision.accumulate=hopper_fp8_promote128"]
        met = 0
        for one in self.table("sets.csv"):
            name = f"{one['set']}.hopper_fp8_promote128.scaled"
            if name not in results:
                continue
            a, b = (decoded_e4m3(operands[f"{one['set']}.{x}"]) for x in "ab")
            scale_a, scale_b = (operands[f"{one['set']}.scale_{x}"] for x in "ab")
            for row in range(len(a)):
                x, w = np.zeros((2, a.shape[1]), np.float32), np.zeros((len(b) + 1, a.shape[1]), np.float32)
                for block in range(scale_a.shape[1]):
                    wanted = np.float32(scale_a[row, block] * scale_b[block])
                    left, right = next((p, q) for p in near_scales(scale_a[row, block])
                                       for q in near_scales(scale_b[block]) if np.float32(p[1] * q[1]) == wanted)
                    part = slice(128 * block, 128 * (block + 1))
                    x[0, part], w[:-1, part] = a[row, part] * left[1], b[:, part] * right[1]
                    x[1, 128 * block], w[-1, 128 * block] = left[0], right[0]
                out, _ = self.outputs(self.save(x=x, w=w), "--set", *keys)
                np.testing.assert_array_equal(out["y"][0, :-1], results[name][row], err_msg=name)
                met += len(b)
        self.assertGreaterEqual(met, 18)

    def test_what_was_swallowed(self):
        write_arrays(self.folder / "a.safetensors", {
            "x": np.array([[1024, 0.0625, 0.0625, 0]], np.float32), "w": np.ones((1, 4), np.float32)})
        text = run("matmul", self.folder / "a.safetensors", "--csv", "--set", "precision.format=bf16",
                   "precision.accumulate=hopper_fp8").stdout
        (row,) = [row for row in csv.DictReader(io.StringIO(text)) if row["tensor"] == "y"]
        self.assertEqual((row["accumulator"], row["products"], row["swallowed"]),
                         ("hopper_fp8", "3", "2"))


class Command(MatmulCase):
    def layer(self, m=12, k=20, n=9, dy=True):
        g = np.random.default_rng(3)
        tensors = {"x": g.standard_normal((m, k), dtype=np.float32),
                   "w": g.standard_normal((n, k), dtype=np.float32) / 4}
        if dy:
            tensors["dy"] = g.standard_normal((m, n), dtype=np.float32) * np.float32(1e-3)
        return tensors

    def test_unrounded(self):
        t = self.layer()
        out, rows = self.outputs(self.save(**t))
        exact = {"y": t["x"] @ t["w"].T.astype(np.float64), "dx": t["dy"] @ t["w"].astype(np.float64),
                 "dw": t["dy"].T @ t["x"].astype(np.float64)}
        for name, values in exact.items():
            np.testing.assert_allclose(out[name], values, rtol=0, atol=2e-6 * np.abs(values).max())
        self.assertEqual([r["tensor"] for r in rows], ["x", "w", "y", "dy", "w", "dx", "dy", "x", "dw"])
        self.assertEqual({r["lost"] for r in rows}, {"0"})
        self.assertFalse(any(name.endswith(".codes") for name in out))

    def test_figures(self):
        t = self.layer()
        out, rows = self.outputs(self.save(**t), "--set", "precision.operands.w=fp8_e5m2")
        y = next(r for r in rows if r["tensor"] == "y")
        x, w = (out["forward." + k].astype(np.float64) for k in "xw")
        sums, stored = x @ w.T, t["x"].astype(np.float64) @ t["w"].T.astype(np.float64)
        decibel = lambda signal, noise: 10 * np.log10((signal**2).sum() / (noise**2).sum())  # noqa: E731
        self.assertAlmostEqual(float(y["operands_sqnr_db"]), decibel(stored, sums - stored), 4)
        self.assertAlmostEqual(float(y["sums_sqnr_db"]), decibel(sums, out["y"] - sums), 2)
        self.assertAlmostEqual(float(y["sqnr_db"]), decibel(stored, out["y"] - stored), 4)
        error, mass = out["y"] - sums, np.abs(x) @ np.abs(w).T
        self.assertAlmostEqual(float(y["max_rel"]) / (np.abs(error) / mass).max(), 1, 3)
        self.assertAlmostEqual(float(y["bias"]) / (error.sum() / np.abs(sums).sum()), 1, 2)

    def test_y_alone_and_leading_axes(self):
        t = self.layer(dy=False)
        t["x"] = t["x"].reshape(3, 4, 20)
        out, rows = self.outputs(self.save(**t), "--set", "precision.operands=mxfp4")
        self.assertEqual(out["y"].shape, (3, 4, 9))
        self.assertEqual(out["forward.x.scale"].shape, (3, 4, 1))
        self.assertEqual(len(rows), 3)
        self.assertNotIn("dx", out)

    def test_names_views_and_layers(self):
        t = self.layer()
        path = self.save(**{"a.weight": t["w"], "in": t["x"], "grad": t["dy"]})
        names = ("--x", "in", "--w", "a.weight", "--dy", "grad")
        report = json.loads(run("matmul", path, *names, "--json", "--layer", "a", "--set",
                                "precision.layers=[{match: a, operands: fp8_e4m3}]").stdout)
        self.assertEqual([r["format"] for r in report["rows"][:3]], ["fp8_e4m3", "fp8_e4m3", "fp32"])
        table = run("matmul", path, *names).stdout
        self.assertIn("forward", table)

    def test_stochastic_codes(self):
        """Codes are those of the values that were multiplied."""
        t = self.layer(16, 32, 32)
        for format, element in (("{format: nvfp4, rounding: stochastic}", None),
                                ("{format: fp8_e4m3, rounding: stochastic}", None)):
            out, _ = self.outputs(self.save(**t), "--stochastic", "--set", f"precision.operands.dy={format}")
            again, _ = self.outputs(self.save(**t), "--set", f"precision.operands.dy={format}")
            self.assertTrue((out["dx.dy"] != again["dx.dy"]).any())
            codes, values = out["dx.dy.codes"], out["dx.dy"]
            if "nvfp4" in format:
                table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
                scale = spread(out["dx.dy.scale"], values.shape).astype(int)
                e, m = scale >> 3, scale & 7
                scale = np.where(e == 0, m * 2.0**-9, (1 + m / 8) * 2.0 ** (e - 7))
                decoded = table[codes & 7] * np.where(codes & 8, -1, 1) * scale * out["dx.dy.amax"] / 2688
            else:
                decoded = decoded_e4m3(codes)
            np.testing.assert_allclose(values, decoded, rtol=3e-7)

    def test_rows_and_static_scales(self):
        t = self.layer()
        keys = [f"precision.operands.{tensor}=fp8_e4m3" for tensor in ("x", "w", "dy")]
        out, _ = self.outputs(self.save(**t), "--set", *keys, "precision.operands.tensor_scaling=row")
        np.testing.assert_array_equal(out["forward.x.scale"], np.float32(448) / np.abs(t["x"]).max(1, keepdims=True))
        np.testing.assert_array_equal(out["dw.x.scale"], np.float32(448) / np.abs(t["x"]).max(0, keepdims=True))
        np.testing.assert_array_equal(out["dx.w.scale"], np.float32(448) / np.abs(t["w"]).max(0, keepdims=True))
        out, _ = self.outputs(self.save(**t), "--recipe", "modded_nanogpt_head")
        for operand, scale in (("forward.x", 2), ("dx.w", 512), ("dw.dy", 524288)):
            self.assertEqual(out[operand + ".scale"].tolist(), [scale])

    def turned(self, values, axis, size, signs):
        """Sylvester's matrix times signed groups of `size` along an axis, over sqrt(size); a rest stays."""
        matrix = np.array([[(-1) ** bin(i & j).count("1") for j in range(size)] for i in range(size)])
        values = np.moveaxis(values, axis, -1)
        whole = values.shape[-1] // size * size
        groups = values[..., :whole].reshape(*values.shape[:-1], -1, size) * signs
        result = values.copy()
        result[..., :whole] = ((groups @ matrix).astype(np.float32) * np.float32(1 / np.sqrt(size))).reshape(
            *values.shape[:-1], whole)
        return np.ascontiguousarray(np.moveaxis(result, -1, axis))

    def test_hadamard(self):
        """Operands are those of values that NumPy turned: whole numbers, whose sums are exact."""
        g = np.random.default_rng(11)
        t = {name: g.integers(-8, 9, shape).astype(np.float32)
             for name, shape in (("x", (96, 160)), ("w", (80, 160)), ("dy", (96, 80)))}
        blocks = [f"precision.operands.{name}=mxfp8_e4m3" for name in t]
        for size in (16, 32, 64, 128):
            signs = np.where(np.arange(size) % 3 == 1, -1, 1)
            listed = "[" + ", ".join(map(str, signs)) + "]"
            keys = "precision.operands.hadamard={products: [forward, dx, dw], size: %d, signs: %s}"
            out, _ = self.outputs(self.save(**t), "--set", *blocks, keys % (size, listed))
            drawn, _ = self.outputs(self.save(**t), "--set", *blocks, keys % (size, "random"))
            for product, pair in (("forward", "xw"), ("dx", ("dy", "w")), ("dw", ("dy", "x"))):
                by_hand = dict(t)
                for name in pair:
                    by_hand[name] = self.turned(t[name], AXIS[f"{product}.{name}"], size, signs)
                plain, _ = self.outputs(self.save(**by_hand), "--set", *blocks)
                for name in pair:
                    operand = f"{product}.{name}"
                    np.testing.assert_array_equal(out[operand], plain[operand], err_msg=f"{size} {operand}")
                    if t[name].shape[AXIS[operand]] >= size:
                        self.assertTrue((out[operand] != drawn[operand]).any(), f"{size} {operand}")

    def hifloat8(self, x):
        size = np.abs(x).astype(np.float64)
        e = np.floor(np.log2(np.maximum(size, 1e-300)))
        bits = np.select([abs(e) <= 3, abs(e) <= 7, abs(e) <= 15], [3, 2, 1], 0)
        step = np.exp2(np.maximum(e, -22) - bits)
        rounded = np.floor(size / step + 0.5) * step
        return np.copysign(np.where(size >= 40960, np.inf, rounded), x)

    def test_tables_and_modes(self):
        """Formats of tables, and fp8 in every mode, as NumPy rounds by their rules."""
        g = np.random.default_rng(5)
        x = (g.standard_normal((64, 48)) * np.exp2(g.integers(-26, 17, (64, 48)))).astype(np.float32)
        path = self.save(x=x, w=x[:8].copy())
        out, _ = self.outputs(path, "--set", "precision.operands.x=hifloat8")
        np.testing.assert_array_equal(out["forward.x"], self.hifloat8(x))
        self.assertEqual(out["forward.x.codes"].dtype, np.uint8)
        # binary8p4se: bias 8, from 2^-10 on, at most 224, then inf; fp8_e4m3: bias 7, at most 448, NaN.
        for name, lowest, largest, end in (("binary8p4se", -7, 224, np.inf), ("fp8_e4m3", -6, 448, np.nan)):
            size = np.abs(x).astype(np.float64)
            step = np.exp2(np.maximum(np.floor(np.log2(size)), lowest) - 3)
            place = size / step
            up = {"nearest_even": np.rint(place), "nearest_away": np.floor(place + 0.5),
                  "toward_zero": np.floor(place),
                  "toward_positive": np.where(x > 0, np.ceil(place), np.floor(place)),
                  "toward_negative": np.where(x < 0, np.ceil(place), np.floor(place)),
                  "toward_odd": np.where((place != np.floor(place)) & (np.floor(place) % 2 == 0),
                                         np.ceil(place), np.floor(place))}
            for mode, places in up.items():
                for overflow in ("none", "saturate", "saturate_finite"):
                    want = places * step
                    beyond = want > largest
                    shortens = (mode == "toward_zero") | (x > 0 if mode == "toward_negative" else
                                                          x < 0 if mode == "toward_positive" else False)
                    cut = shortens | (overflow != "none")
                    want = np.copysign(np.where(beyond, np.where(cut, largest, end), want), x)
                    out, rows = self.outputs(path, "--set", "precision.operands.x={format: %s, rounding: %s, "
                                             "overflow: %s}" % (name, mode, overflow))
                    np.testing.assert_array_equal(out["forward.x"], want, err_msg=f"{name} {mode} {overflow}")
                    row = next(r for r in rows if r["tensor"] == "x")
                    self.assertEqual(int(row["lost"]), int(((want == 0) & (x != 0)).sum()))

    def test_hifloat4(self):
        """Operands are what `convert` gives along the sum; its parts are those of the operand."""
        t = self.layer(40, 100, 9)
        keys = [f"precision.operands.{name}=hifloat4" for name in t]
        out, rows = self.outputs(self.save(**t), "--set", *keys)
        self.assertEqual({row["format"] for row in rows if row["scale_log2_min"]}, {"hifloat4"})
        for operand, axis in AXIS.items():
            source, target = self.folder / "one.safetensors", self.folder / "kept.safetensors"
            write_arrays(source, {"x": t[operand.split(".")[1]]})
            run("convert", source, target, "--format", "hifloat4", "--axis", axis, "--save-scales")
            kept = arrays(target)
            np.testing.assert_array_equal(out[operand], kept["x"], err_msg=operand)
            for part in ("scale", "e8", "e16", "codes"):
                np.testing.assert_array_equal(out[f"{operand}.{part}"], kept[f"x.{part}"])
            row = next(r for r in rows if f"{r['matmul']}.{r['tensor']}" == operand)
            lost = (kept["x"] == 0) & (t[operand.split(".")[1]] != 0)
            self.assertEqual(int(row["lost"]), int(lost.sum()))
        again, _ = self.outputs(self.save(**t), "--set", *keys, "precision.accumulate=fma_fp32")
        np.testing.assert_array_equal(again["forward.x"], out["forward.x"])

    def test_as_forward(self):
        t = self.layer(32, 64, 32)
        keys = ("precision.operands.x=mxfp4", "precision.operands.w=mxfp4", "precision.operands.dy=mxfp8_e5m2",
                "precision.operands.dx.w=as_forward", "precision.operands.dw.x=as_forward")
        out, _ = self.outputs(self.save(**t), "--set", *keys)
        np.testing.assert_array_equal(out["dw.x"], out["forward.x"])
        np.testing.assert_array_equal(out["dx.w"], out["forward.w"])
        np.testing.assert_array_equal(out["dw.x.scale"], out["forward.x.scale"])
        apart, _ = self.outputs(self.save(**t), "--set", *keys[:3])
        self.assertTrue((apart["dw.x"] != out["dw.x"]).any())

    def test_refusals(self):
        t = self.layer()
        cases = (
            ({**t, "w": t["w"][:, :5].copy()}, (), 3, "different numbers of inputs"),
            ({**t, "x": bf16_bits(t["x"])}, (), 3, "--x-format fp16 or bf16"),
            (t, ("--dy", "none"), 3, "has no tensor"),
            (t, ("--operands",), 2, "-o OUT"),
            (t, ("--csv", "--json"), 2, "one of them"),
            (t, ("--recipe", "te_mxfp"), 2, "did you mean"),
            (t, ("--set", "precision.operands.tensor_scaling.power_of_two=true"), 2, "tensor_scaling.kind"),
            (t, ("--set", "precision.operands.x=as_forward"), 2, "dx.w"),
            (t, ("--set", "data.path=x"), 2, "data"),
            (t, ("--set", "precision.operands.x=binary8p8se"), 2, "binaryKpPse"),
            (t, ("--set", "precision.operands.x={format: fp16, random_bits: 4}"), 2, "stochastic_a"),
            (t, ("--set", "precision.operands.x={format: mxfp4, rounding: toward_zero}"), 2, "elements of blocks"),
            (t, ("--set", "precision.operands.x=hifloat8", "precision.accumulate=hopper_fp8"), 2, "exponents"),
            (t, ("--set", "precision.operands.x=mxfp4", "precision.operands.dw.x=as_forward",
                 "precision.operands.hadamard.products=[forward]"), 2, "as_forward"),
        )
        for tensors, arguments, code, words in cases:
            with self.subTest(words):
                self.assertIn(words, run("matmul", self.save(**tensors), *arguments, code=code).stderr)


if __name__ == "__main__":
    unittest.main()
