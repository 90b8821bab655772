"""Block-scaled conversions by `ada-train convert`, beside those of torchao, Transformer Engine,
gfloat and modelopt: decoded values, scales and codes, bit for bit (tests/golden/blocks).

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/block_golden_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped.
"""
import csv
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

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden/blocks"
sys.path.insert(0, str(GOLDEN))
import cases  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
RECORDED = 1013  # cases of the recordings that a format of ours reproduces


def kind_of(form):
    """The format of the scales and that of the elements of a YAML map."""
    scale = next((kind for kind in ("fp8_e4m3", "fp32") if f"scale: {kind}" in form), "e8m0")
    return scale, form.split("element: ")[1].split(",")[0].rstrip("}")


class BlockGolden(unittest.TestCase):
    def convert(self, form, axis):
        """All inputs as `form` keeps them, blocks along `axis`: {name: (dtype, array)}."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.safetensors"
            subprocess.run([BINARY, "convert", GOLDEN / "inputs.safetensors", out, "--format", form,
                            "--axis", str(axis), "--save-scales"], check=True)
            return cases.load(out)

    def digests(self, form, axis, name, signless, converted):
        """As they stand in cases.csv."""
        scale_kind, element = kind_of(form)
        parts = [converted[name + ending][1] for ending in ("", ".scale", ".codes")]
        values, scales, codes = (part.T if axis == 0 else part for part in parts)
        if scale_kind != "fp32":
            scales = cases.decode(scale_kind, scales)
        return cases.digests(element, values, scales, codes, signless)

    def test_every_recorded_conversion(self):
        with open(GOLDEN / "cases.csv") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        self.assertEqual(len(rows), RECORDED)
        groups = {}
        for row in rows:
            groups.setdefault((row["format"], int(row["axis"])), []).append(row)
        for (form, axis), group in groups.items():
            converted = self.convert(form, axis)
            for row in group:
                got = self.digests(form, axis, row["input"], int(row["signless"]), converted)
                want = [row["values"], row["scales"], row["codes"]]
                with self.subTest(row["system"], options=row["options"], form=form, axis=axis,
                                  input=row["input"]):
                    # Where no codes were recorded only values are judged.
                    self.assertEqual(got if want[1] else got[:1], want if want[1] else want[:1])


if __name__ == "__main__":
    unittest.main()
