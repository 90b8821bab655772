"""The counts of ada_train.counting against ada-train's: its `inspect` and `convert` over values of
every kind, and the rows of a run for the very tensors that it rounded."""
import csv
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import safetensors_file  # noqa: E402
from ada_train import counting, formats, run_files  # noqa: E402
from python_package_test import SMALL  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

BINARY = os.environ.get("ADA_BINARY")
OTHERS = ["{exponent: 4, mantissa: 0, has_inf: false}", "{exponent: 8, mantissa: 22}",
          "{exponent: 1, mantissa: 4, has_inf: false}", "{exponent: 5, mantissa: 2, bias: 130}",
          "{exponent: 4, mantissa: 3, saturate: true}"]


def values():
    """Any bits at all, magnitudes around the formats' ranges, each format's thresholds, zeros."""
    rng = numpy.random.default_rng(1)
    bits = rng.integers(0, 2 ** 32, 30000, dtype=numpy.uint64).astype(numpy.uint32)
    spread = rng.standard_normal(30000) * 2.0 ** rng.integers(-30, 12, 30000)
    edges = []
    for name in list(formats.NAMED) + OTHERS:
        form = formats.find(name)
        edges += [form.underflow, form.smallest_normal, form.smallest_subnormal, form.largest,
                  min(form.overflow, 3e38)]
    edges = numpy.float32(edges).view(numpy.uint32)
    edges = numpy.concatenate([edges, edges - 1, edges + 1]).view(numpy.float32)
    signed = numpy.concatenate([edges, -edges])
    return {"bits": bits.view(numpy.float32), "spread": spread.astype(numpy.float32),
            "edges": signed[numpy.isfinite(signed)], "zeros": numpy.float32([0, -0.0, 0])}


def run(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


@unittest.skipUnless(numpy, "python3-numpy is missing")
@unittest.skipUnless(BINARY, "ADA_BINARY is not set")
class CountingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.values = values()
        safetensors_file.write(cls.folder / "values.safetensors", {
            name: (x.shape, x.tobytes()) for name, x in cls.values.items()})
        cls.enterClassContext(numpy.errstate(invalid="ignore"))

    def check(self, m, of_numpy):
        for name in list(formats.NAMED) + OTHERS:
            form = formats.find(name)
            if not form.signed:
                continue
            grid, source = counting.Grid(form), self.folder / "values.safetensors"
            text = run("inspect", source, "--format", name, "--csv", "counts")
            target = self.folder / "rounded.safetensors"
            target.unlink(missing_ok=True)
            run("convert", source, target, "--format", name)
            rounded = safetensors_file.read(target)
            for theirs in csv.DictReader(io.StringIO(text)):
                x = self.values[theirs["tensor"]]
                with self.subTest(format=name, tensor=theirs["tensor"]):
                    ours = counting.count(grid, of_numpy(x), m).row(1.0)
                    self.of_finite(x, ours)
                    self.check_counts(ours, theirs)
                    zeros_after = ours["zeros_after"]
                    ours = numpy.asarray(counting.round_to(grid, of_numpy(x), m))
                    wanted = numpy.frombuffer(rounded[theirs["tensor"]][1], numpy.float32)
                    nan = numpy.isnan(wanted)
                    self.assertEqual(zeros_after, int((wanted == 0).sum()))
                    self.assertTrue((numpy.isnan(ours) == nan).all())
                    self.assertTrue((ours.view(numpy.uint32)[~nan]
                                     == wanted.view(numpy.uint32)[~nan]).all())

    def of_finite(self, x, row):
        """A run's rows say NaN or inf as the largest magnitude where there is one; `inspect` says
        the largest number."""
        sizes = numpy.abs(x[numpy.isfinite(x) & (x != 0)]).astype(numpy.float64)
        if sizes.size == x.size:
            return
        row["max_abs"] = sizes.max() if sizes.size else 0.0
        if sizes.size:
            row["range_log2"] = numpy.log2(sizes.max() / sizes.min())

    def check_counts(self, ours, theirs):
        for column in ("numel", "underflow", "subnormal", "overflow", "inf", "nan"):
            self.assertEqual(ours[column], int(theirs[column]), column)
        self.assertEqual(ours["zeros_before"], int(theirs["zeros"]))
        for column in ("underflow_pct_nonzero", "min_abs", "max_abs", "mean", "std", "l2",
                       "range_log2"):
            wanted = float(theirs[column] or "nan")
            if wanted != wanted or ours[column] != ours[column]:
                self.assertEqual(wanted != wanted, ours[column] != ours[column], column)
            elif abs(wanted) != float("inf"):
                self.assertAlmostEqual(ours[column] / (wanted or 1), 1 if wanted else 0, 7, column)

    def test_numpy(self):
        self.check(numpy, lambda x: x)

    @unittest.skipUnless(torch, "torch is missing (ADA_BENCH_PYTHON may name a Python that has it)")
    def test_torch(self):
        self.check(torch, lambda x: torch.from_numpy(x.copy()))

    def test_a_tensor_in_pieces(self):
        grid = counting.Grid(formats.find("fp16"))
        x = self.values["spread"]
        whole, bins = counting.count(grid, x, numpy), counting.bins(x, 6.0, numpy)
        chunk, counting.CHUNK = counting.CHUNK, 1000
        try:
            parts, more = counting.count(grid, x, numpy), counting.bins(x, 6.0, numpy)
        finally:
            counting.CHUNK = chunk
        for column, value in whole.row(6.0).items():
            if value == value:
                self.assertAlmostEqual(parts.row(6.0)[column], value, 7, column)
        self.assertEqual(list(bins.rows()), list(more.rows()))
        exact = numpy.floor(numpy.log2(abs(x.astype(float)) / 6.0))
        self.assertEqual(sum(n for e, n in bins.rows() if e == "-20"), int((exact == -20).sum()))

    def test_the_rows_of_a_run(self):
        """Weights as a checkpoint has them, which the next step rounds; in fp32, where nothing is
        rounded, every tensor of a dump."""
        for form in ("fp16", "fp32"):
            folder = self.folder / form
            config = self.folder / f"{form}.yaml"
            config.write_text(SMALL + "checkpoint: {every_steps: 1, keep: 5}\n")
            run("--config", config, "--output", folder, "--set", f"precision.format={form}",
                "--set", "train.max_steps=3", "--set", "log.dump_every=1", "--set",
                "log.histogram_every=1", "--set", "log.probe_every=0", "--set", "log.what_if=[]")
            rows = {(r["step"], r["layer"], r["tensor"]): r
                    for r in run_files.rows(folder / "underflow.csv")}
            bins = {}
            for r in run_files.rows(folder / "histograms.csv"):
                bins.setdefault((r["step"], r["layer"], r["tensor"]), []).append(
                    (r["exponent"], int(r["count"])))
            seen = 0
            for key, theirs in rows.items():
                x = self.tensor(folder, form, *key)
                if x is None:
                    continue
                grid, scale = counting.Grid(formats.find(form)), float(theirs["scale"])
                theirs["zeros"] = theirs["zeros_before"]
                with self.subTest(format=form, tensor=key):
                    self.check_counts(counting.count(grid, x, numpy).row(scale), theirs)
                    self.assertEqual(list(counting.bins(x, scale, numpy).rows()), bins[key])
                seen += 1
            self.assertGreater(seen, 3 if form == "fp16" else 20)

    @staticmethod
    def tensor(folder, form, step, layer, tensor):
        """The values before the rounding of a row, where a file has them."""
        if form == "fp32":
            path, name = folder / "dump" / f"step-{step:0>8}.safetensors", f"{layer}.{tensor}"
        elif tensor == "w":
            path = folder / "checkpoints" / f"step-{int(step) - 1:08d}.safetensors"
            name = f"{layer}.weight"
        else:
            return None
        if not path.exists() or name not in safetensors_file.read(path):
            return None
        return numpy.frombuffer(safetensors_file.read(path)[name][1], numpy.float32)


if __name__ == "__main__":
    unittest.main()
