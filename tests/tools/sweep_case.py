"""A folder for a test of tools/sweep.sh, with fake_ada_train.py as the program."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
TOOL = TESTS.parents[1] / "tools" / "sweep.sh"
FAKE = TESTS / "fake_ada_train.py"


class SweepCase(unittest.TestCase):
    """A folder of its own, and the tool in it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ada-sweep-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"
        self.environment = {**os.environ, "ADA_TRAIN": str(FAKE),
                            "FAKE_CALLS": str(self.folder / "calls")}
        self.write("base.yaml", "lr: 0.1\nmode: good\n")

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def command(self, *options):
        return [str(TOOL), "--config", "base.yaml", "--out", "out", *options]

    def sweep(self, *options, expect=0):
        result = subprocess.run(self.command(*options), cwd=self.folder, env=self.environment,
                                capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(result.returncode, expect, result.stderr)
        return result

    def calls(self):
        """The runs that were started since the last call, sorted by name."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(map(json.loads, lines), key=lambda call: call["name"])

    def table(self, name="sweep.csv"):
        with open(self.out / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def column(self, key):
        return {row["run"]: row[key] for row in self.table()}
