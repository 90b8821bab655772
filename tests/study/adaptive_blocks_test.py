"""`tensor_scaling: adaptive` beside NumPy: the power of two of NVFP4's tensor scale, and its values.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/adaptive_blocks_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped.
"""
import pathlib
import subprocess
import sys
import unittest

from tests.program_case import BINARY, ProgramCase
from tests.tools.safetensors_file import arrays, write_arrays

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from matmul_test import run  # noqa: E402

F = np.float32
E4M3 = np.array([m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0**(e - 7)
                 for e in range(16) for m in range(8)][:127])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(grid, x):
    """Of magnitudes, ties to the even code, saturating."""
    x = np.abs(np.asarray(x, np.float64))
    above = np.searchsorted(grid, x).clip(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    up = (x - low > high - x) | ((x - low == high - x) & (above % 2 == 0))
    return np.where(up, high, low).astype(F)


def stored_scale(block, amax):
    """By rule te: e4m3(a * (S * fp32(1 / 6)))."""
    encode = F(2688) / F(amax)
    return nearest(E4M3, F(np.abs(block).max()) * (encode * (F(1) / F(6))))


def quantized(block, amax):
    """Element, times scale, times the tensor's."""
    stored, decode = stored_scale(block, amax), F(1) / (F(2688) / F(amax))
    with np.errstate(all="ignore"):
        encode = np.minimum(F(1) / (stored * decode), np.finfo(F).max)
        return np.copysign(nearest(E2M1, block * encode), block) * (stored * F(amax) * (F(1) / F(2688)))


def power_of(blocks, target, limit):
    """k as configs/blocks.md defines it, by trying every power on every block."""
    amax = max(np.abs(block).max() for block in blocks)
    nonzero = sum(np.count_nonzero(block) for block in blocks)
    most = 60
    lost_from = np.zeros(most + 1)
    for block in blocks:
        if not block.any():
            continue
        normal = next(k for k in range(200) if stored_scale(block, np.ldexp(amax, -k)) >= 2.0**-5)
        kept = (block != 0) & (quantized(block, np.ldexp(amax, -normal)) != 0)
        needs = np.zeros(block.shape, int)
        for k in range(normal):
            lost = kept & (quantized(block, np.ldexp(amax, -k)) == 0)
            needs[lost] = k + 1
        for need in needs[needs > 0]:
            lost_from[:need] += 1
    magnitudes = np.concatenate([np.abs(block).ravel() for block in blocks])
    want = next(k for k in range(most) if lost_from[k] <= target * nonzero)
    allowed = max(k for k in range(most)
                  if (np.ldexp(magnitudes.astype(np.float64), k) > amax).sum() <= limit * nonzero)
    return min(want, allowed)


class AdaptiveBlocks(ProgramCase):
    def outputs(self, tensors, scaling):
        given, out = self.folder / "in.safetensors", self.folder / "out.safetensors"
        write_arrays(given, tensors)
        run("matmul", given, "-o", out, "--operands", "--set",
            "precision={format: fp32, operands: {x: nvfp4, w: {format: {element: fp4_e2m1, scale: fp8_e4m3, "
            "block: [16, 16]}}, dy: nvfp4, tensor_scaling: " + scaling + "}}")
        return arrays(out)

    def test_power_and_values(self):
        draw = np.random.default_rng(60)
        seen = set()
        for spread in (0, 16, 24, 32):
            for target, limit in ((1e-3, 1e-3), (0.02, 0.3), (1e-6, 1)):
                def tensor(rows, columns, spread=spread):
                    blocks = draw.integers(-spread, 1, (rows, -(-columns // 16))).repeat(16, 1)[:, :columns]
                    values = np.ldexp(draw.standard_normal((rows, columns)), blocks - 3).astype(F)
                    values[draw.random((rows, columns)) < 0.05] = 0
                    return values
                x, w, dy = tensor(40, 50), tensor(24, 50), tensor(40, 24)
                out = self.outputs({"x": x, "w": w, "dy": dy}, "{kind: adaptive, underflow_target: "
                                   f"{target}, saturation_limit: {limit}}}")
                for name, values in (("forward.x", x), ("dx.dy", dy), ("dw.x", x.T), ("dw.dy", dy.T),
                                     ("forward.w", w)):
                    side = 16 if name == "forward.w" else 1
                    places = [(slice(r, r + side), slice(c, c + 16))
                              for r in range(0, values.shape[0], side) for c in range(0, values.shape[1], 16)]
                    k = power_of([values[at] for at in places], target, limit)
                    amax = np.ldexp(np.abs(values).max(), -k).astype(F)
                    self.assertEqual(out[name + ".amax"].ravel()[0], amax, f"{name} {spread} {target} {limit}")
                    got = out[name].T if name.startswith("dw") else out[name]
                    for at in places:
                        np.testing.assert_allclose(got[at], quantized(values[at], amax), rtol=3e-7)
                    seen.add(k)
        self.assertGreater(len(seen), 5)  # amax is kept, and enlarged by many powers

    def test_kept(self):
        """Zeros, one magnitude, and a NaN leave the scale of the largest magnitude."""
        w = np.ones((16, 16), F)
        for x in (np.zeros((16, 16), F), np.full((16, 16), 3, F)):
            out = self.outputs({"x": x, "w": w}, "adaptive")
            self.assertEqual(out["forward.x.amax"].ravel()[0], x.max())

    def test_refused(self):
        given = self.folder / "in.safetensors"
        write_arrays(given, {"x": np.ones((4, 16), F), "w": np.ones((4, 16), F)})
        for fmt, word in (("fp8_e4m3", "got fp8_e4m3"), ("mxfp4", "got mxfp4")):
            done = subprocess.run([BINARY, "matmul", given, "--set", "precision.operands={x: " + fmt +
                                   ", tensor_scaling: adaptive}"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("kind adaptive is for block formats", done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
