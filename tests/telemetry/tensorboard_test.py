#!/usr/bin/python3
"""Runs the program with log.tensorboard and compares what TensorBoard's own reader finds in the
event files with the run's CSVs; then again after a resume from an earlier checkpoint.

usage: python3 -m unittest -v tests/telemetry/tensorboard_test.py
ADA_BINARY                the program (default: build/ada-train)
ADA_TENSORBOARD_PYTHON    a virtual environment that has the package tensorboard; without it the
                          running interpreter is tried; without that, ADA_SLOW=1 installs the package
                          from PyPI into a temporary environment, else the tests are skipped.
"""
import collections
import csv
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY", str(ROOT / "build" / "ada-train"))
VARIABLE = "ADA_TENSORBOARD_PYTHON"
SLOW = os.environ.get("ADA_SLOW") == "1"

CONFIG = """
name: small
seed: 3
device: {kind: cpu, threads: 2}
data:
  dataset: synthetic
  synthetic: {height: 8, width: 8, channels: 3, classes: 10, train: 60, test: 30}
  batch_size: 20
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: join, kind: add, inputs: [conv2, relu1]}
    - {name: fc, kind: linear, features: 10}
precision: {format: fp16}
scaling: {policy: adaptive, init_scale: 0.001}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9}
train: {epochs: 9, max_steps: 8}
log: {every: 2, statistics: [y, dx, dy, dw], histogram_every: 2, tensorboard: true}
checkpoint: {every_steps: 3, keep: 9}
"""

# Run by the Python that has tensorboard: the folder's scalars and histograms as JSON.
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})
events.Reload()
tags = events.Tags()
json.dump({
    "scalars": {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {
        tag: [[e.step, e.histogram_value.num, e.histogram_value.min, e.histogram_value.max,
               list(e.histogram_value.bucket_limit), list(e.histogram_value.bucket)]
              for e in events.Histograms(tag)] for tag in tags["histograms"]},
}, sys.stdout)
"""


def interpreter_of(environment):
    """The interpreter of a virtual environment's folder (or the interpreter itself)."""
    path = pathlib.Path(environment)
    return str(path / "bin" / "python" if path.is_dir() else path)


def found_reader():
    """An interpreter that should have tensorboard, or None."""
    if os.environ.get(VARIABLE):
        return interpreter_of(os.environ[VARIABLE])
    return sys.executable if importlib.util.find_spec("tensorboard") else None


def installed_reader(folder):
    """An interpreter in a new environment in `folder`, with tensorboard from PyPI."""
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:  # Debian: package python3-venv
        raise unittest.SkipTest(f"no virtual environment could be made: {error}") from error
    python = interpreter_of(folder)
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "tensorboard"],
                         capture_output=True, text=True, check=False)
    if pip.returncode != 0:
        raise unittest.SkipTest("tensorboard could not be installed from PyPI: "
                                + (pip.stderr.strip().splitlines() or ["no reason given"])[-1])
    return python


def rows(folder, name):
    with open(folder / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def as_float(text):
    """The field as the 32 bits that a scalar has."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def expected_scalars(folder):
    """tag -> [(step, value)] from the CSVs, in the order of the rows."""
    tags = collections.defaultdict(list)

    def add(tag, row, column):
        if row[column] != "":
            tags[tag].append((int(row["step"]), as_float(row[column])))

    for row in rows(folder, "steps.csv"):
        for column in ("loss", "accuracy", "lr", "scale", "grad_norm"):
            add(column, row, column)
    for row in rows(folder, "evaluation.csv"):
        for column in ("loss", "top1", "top5"):
            add(f"evaluation/{row['split']}/{column}", row, column)
    for row in rows(folder, "scales.csv"):
        layer = row["layer"] + (".dy" if row["limit"] == "branch" else "")
        add(f"scale/{layer}", row, "scale_out")
        if row["limit"] != "branch":
            add(f"alpha/{layer}", row, "alpha")
    for row in rows(folder, "underflow.csv"):
        add(f"underflow_pct/{row['layer']}.{row['tensor']}", row, "underflow_pct_nonzero")
    return tags


def expected_histograms(folder):
    """tag -> step -> {exponent: count} from histograms.csv, of what is neither zero nor inf nor
    nan; not of tensors that have nothing else in a step."""
    tags = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in rows(folder, "histograms.csv"):
        if row["exponent"] not in ("zero", "inf", "nan"):
            bins = tags[f"histogram/{row['layer']}.{row['tensor']}"][int(row["step"])]
            bins[int(row["exponent"])] = int(row["count"])
    return tags


def bins_of(event):
    """A HistogramProto back as {exponent: count}; its buckets are [e, e + 1)."""
    _, _, smallest, largest, limits, counts = event
    if [smallest, largest] != [limits[0] - 1, limits[-1]]:
        raise AssertionError(f"{smallest} to {largest}, but the buckets end at {limits}")
    return {int(limit) - 1: count for limit, count in zip(limits, counts) if count}


@unittest.skipUnless(found_reader() or SLOW, "no tensorboard in this Python; set "
                     f"{VARIABLE} to a virtual environment that has it, or ADA_SLOW=1")
class TensorBoardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.reader = found_reader() or installed_reader(cls.folder / "environment")
        (cls.folder / "small.yaml").write_text(CONFIG, encoding="utf-8")

    def train(self, run, *more):
        subprocess.run([BINARY, "--config", str(self.folder / "small.yaml"), "--output", str(run),
                        "--no-progress", *more], check=True, capture_output=True, text=True)

    def read(self, run):
        reading = subprocess.run([self.reader, "-c", READER, str(run / "tensorboard")],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(reading.returncode, 0, reading.stderr)
        return json.loads(reading.stdout)

    def compare(self, run):
        """All that TensorBoard shows is what the CSVs say; returns it."""
        shown = self.read(run)
        expected = expected_scalars(run)
        self.assertEqual(set(shown["scalars"]), set(expected))
        for tag, points in expected.items():
            found = [(step, value) for step, value in shown["scalars"][tag]]
            self.assertEqual([step for step, _ in found], [step for step, _ in points], tag)
            for (_, value), (_, wanted) in zip(found, points):
                self.assertAlmostEqual(value, wanted, delta=3e-7 * abs(wanted), msg=tag)
        bins = expected_histograms(run)
        self.assertEqual(set(shown["histograms"]), set(bins))
        for tag, steps in bins.items():
            found = {event[0]: event for event in shown["histograms"][tag]}
            self.assertEqual(len(found), len(shown["histograms"][tag]), tag)
            self.assertEqual(set(found), set(steps), tag)
            for step, wanted in steps.items():
                self.assertEqual(bins_of(found[step]), wanted, f"{tag} in step {step}")
                self.assertEqual(found[step][1], sum(wanted.values()), tag)
        return shown

    def test_what_is_shown_equals_the_csvs(self):
        run = self.folder / "whole"
        self.train(run)
        shown = self.compare(run)
        self.assertEqual([step for step, _ in shown["scalars"]["loss"]], list(range(1, 9)))
        self.assertIn("underflow_pct/conv2.dx", shown["scalars"])
        self.assertIn("scale/fc", shown["scalars"])
        self.assertIn("alpha/fc", shown["scalars"])
        self.assertIn("evaluation/test/top1", shown["scalars"])
        steps = [event[0] for event in shown["histograms"]["histogram/conv2.dx"]]
        self.assertEqual(steps, [1, 2, 4, 6, 8])

    def test_a_killed_run_that_goes_on_shows_each_step_once(self):
        run = self.folder / "resumed"
        self.train(run)
        # As a kill after step 8 leaves it that lost the checkpoints after step 3.
        (run / "summary.json").unlink()
        for path in (run / "checkpoints").iterdir():
            if "step-00000003" not in path.name:
                path.unlink()
        (events,) = (run / "tensorboard").iterdir()
        os.truncate(events, events.stat().st_size - 5)
        self.train(run, "--resume", "--set", "train.max_steps=11")
        self.assertEqual(len(list((run / "tensorboard").iterdir())), 2)
        shown = self.compare(run)
        self.assertEqual([step for step, _ in shown["scalars"]["loss"]], list(range(1, 12)))

    def test_started_afresh_the_old_files_are_gone(self):
        run = self.folder / "again"
        self.train(run)
        self.train(run, "--overwrite", "--set", "train.max_steps=2")
        self.assertEqual(len(list((run / "tensorboard").iterdir())), 1)
        self.compare(run)
        self.train(run, "--overwrite", "--set", "log.tensorboard=false")
        self.assertFalse((run / "tensorboard").exists())


if __name__ == "__main__":
    unittest.main()
