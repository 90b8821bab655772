"""`ada-train advise` on tiny networks with one fault each: the fault is what the first line mends,
no cause has two lines, and a training with the advice does what the first one did not. ADA_BINARY
names the program."""
import csv
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import unittest

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
CONFIG = """
name: r
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 3, classes: 4, train: 512,
       test: 32}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: flat, kind: flatten}
    - {name: f1, kind: linear, features: 32}
    - {name: r1, kind: relu}
    - {name: f2, kind: linear, features: 32}
    - {name: r2, kind: relu}
    - {name: out, kind: linear, features: classes}
precision: {format: fp16}
device: {kind: cpu, threads: 1}
evaluate: {every_epochs: 0}
train: {max_steps: 60, epochs: 9}
log: {every: 5}
"""


def write_images(path, unit):
    """A file of gray images whose class is the brighter quarter, in multiples of `unit`."""
    random.seed(1)
    header, data = {}, b""
    for split, count in (("train", 512), ("test", 32)):
        labels = [i % 4 for i in range(count)]
        values = [unit * ((1 if i // 16 == label else 0.1) + 0.3 * random.random())
                  for label in labels for i in range(64)]
        for name, kind, shape, part in (
                ("images", "F32", [count, 8, 8, 1], struct.pack(f"<{len(values)}f", *values)),
                ("labels", "I64", [count], struct.pack(f"<{count}q", *labels))):
            header[f"{split}.{name}"] = {"dtype": kind, "shape": shape,
                                         "data_offsets": [len(data), len(data) + len(part)]}
            data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Advise(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "r.yaml").write_text(CONFIG, encoding="utf-8")

    def run_program(self, *arguments, code=0):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def train(self, *sets, name="r", code=0, more=()):
        given = ("--set", *sets) if sets else ()
        return self.run_program("train", "r.yaml", "--output", name, "--quiet", "--overwrite", *more,
                                *given, code=code)

    def last_loss(self, name):
        with open(self.folder / name / "steps.csv", encoding="utf-8", newline="") as file:
            return float(list(csv.DictReader(file))[-1]["loss"])

    def advice(self, name="r"):
        lines = self.run_program("advise", name, "--yaml", "a.yaml").stdout.splitlines()
        self.assertLessEqual(len(lines), 5)
        return lines

    def prove(self, *sets):
        """What advise says of the run, and the last loss of a run with it."""
        self.train(*sets)
        lines = self.advice()
        self.mend()
        return lines, self.last_loss("better")

    def mend(self):
        """The same run with the advice: `better`."""
        self.run_program("train", "r/config.yaml", "--with", "a.yaml", "--output", "better",
                         "--quiet", "--overwrite")

    def test_a_rate_that_is_too_large(self):
        for optimizer in ("{lr: 3000}", "{lr: 30}", "{lr: 1}", "{kind: adam, lr: 100}"):
            with self.subTest(optimizer):
                lines, loss = self.prove(f"optimizer={optimizer}")
                self.assertEqual(len(lines), 1, lines)
                self.assertTrue(lines[0].startswith("optimizer: {lr: "), lines)
                self.assertIn("are too large", lines[0])
                self.assertLess(loss, 0.5)

    def test_a_loss_that_rises_without_an_infinite_number_is_the_rate_too(self):
        lines, loss = self.prove("precision.format=fp32", "optimizer.lr=4")
        self.assertTrue(lines[0].startswith("optimizer: {lr: 0.1}"), lines)
        self.assertLess(loss, 0.5)

    def test_state_in_few_bits_is_no_matter_of_the_rate(self):
        for state in ("fp8_e4m3", "fp16"):
            with self.subTest(state):
                lines, loss = self.prove("optimizer={kind: adam, lr: 0.001}",
                                         f"precision.optimizer_state={state}")
                self.assertEqual([line.split("  #")[0] for line in lines],
                                 ["precision: {optimizer_state: fp32}"])
                self.assertLess(loss, 0.5)

    def test_a_scale_that_fell_to_zero_is_no_cause(self):
        lines, loss = self.prove("optimizer.lr=30", "train.max_steps=400", "train.epochs=99",
                                 "scaling={policy: dynamic, min_scale: 0, backoff_factor: 0.01}")
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("optimizer: {lr: 0.1}"), lines)
        self.assertLess(loss, 0.5)

    def test_a_scale_that_is_too_large_is_written_briefly(self):
        lines, loss = self.prove("scaling={policy: fixed, scale: 1e30}")
        self.assertRegex(lines[0], r"^scaling: {policy: dynamic, init_scale: \d+}  # .*S = 1e\+30 ")
        self.assertLess(loss, 0.5)

    def test_a_layers_own_entry_is_overruled_by_one_that_comes_after_it(self):
        # Values from 1e-3 to 1e9 in one gradient: no scale holds them in so few bits.
        self.train("precision.layers=[{match: f1, gradients: {exponent: 2, mantissa: 1}}]",
                   "scaling={policy: adaptive, method: exact_range}", "log.histogram_every=0")
        lines = self.advice()
        self.assertTrue(lines[0].startswith("precision: {layers: [{match: f1, gradients: "), lines)
        self.assertIn(", {match: f1, gradients: bf16}]}", lines[0])
        self.assertEqual(len(lines), 1, lines)
        self.mend()
        after = self.advice("better")
        self.assertTrue(after[0].startswith("# nothing to change"), after)

    def test_one_cause_has_one_line(self):
        self.train("precision.layers=[{match: f1, gradients: fp8_e4m3}]")
        lines = self.advice()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^scaling: {policy: fixed, scale: \d+}  # f2.dx lost 100 %")
        self.mend()
        # What it still loses no smaller scale is said to mend.
        self.assertNotIn("policy: fixed", self.advice("better")[0])

    def test_gradients_of_weights_are_changed_by_their_own_key(self):
        for histograms in ("10", "0"):
            with self.subTest(histograms):
                self.train("precision.weight_gradients=fp8_e4m3", "log.statistics=[dx, dw]",
                           f"log.histogram_every={histograms}")
                lines = self.advice()
                changed = [line for line in lines if line.startswith("precision")]
                self.assertEqual(len(changed), 1, lines)
                self.assertTrue(changed[0].startswith("precision: {weight_gradients: "), lines)

    def test_images_that_vanish_are_the_first_culprit(self):
        write_images(self.folder / "small.safetensors", 1e-9)
        data = ("data={dataset: tensors, path: small.safetensors, batch_size: 16, workers: 0}",
                "log.statistics=[y, dx, dw]")
        for normalize in ("none", "standard"):
            with self.subTest(normalize):
                lines, loss = self.prove(*data, f"data.normalize={normalize}")
                self.assertEqual(len(lines), 1, lines)
                self.assertTrue(lines[0].startswith("data: {normalize: {mean: ["), lines)
                self.assertLess(loss, 0.5)
                self.assertIn("input.y (fp16) 100 %", self.run_program("recommend", "r").stdout)

    def test_counts_speak_where_there_are_no_histograms(self):
        lines, loss = self.prove("precision.gradients=fp8_e4m3", "log.histogram_every=0")
        self.assertTrue(lines[0].startswith("scaling: {policy: dynamic, init_scale: "), lines)
        self.assertIn("there are no histograms", lines[0])
        self.assertLess(loss, 0.5)
        self.train("log.every=0", "log.histogram_every=0")
        self.assertIn("was not logged", self.advice()[0])

    def test_a_dynamic_scale_that_starts_too_low_starts_higher(self):
        self.train("scaling={policy: dynamic, init_scale: 1, growth_interval: 100000}",
                   "precision.gradients=fp8_e4m3", "log.histogram_every=0")
        lines = self.advice()
        self.assertRegex(lines[0], r"^scaling: \{policy: dynamic, init_scale: \d+\}")
        self.assertIn("no gradient overflows", lines[0])

    def test_an_operand_in_which_a_gradient_dies_is_left_as_it_is_stored(self):
        self.train("precision={format: bf16, operands: fp8_e4m3}",
                   "scaling={policy: fixed, scale: 1e-4}", "log.statistics=[y, dx, dw, operands]")
        lines = self.advice()
        self.assertRegex(lines[0], r"^precision: \{layers: \[\{match: \w+, operands: ")
        self.assertIn("died at", lines[0])
        layer = re.search(r"match: (\w+),", lines[0]).group(1)
        self.mend()
        with open(self.folder / "better/underflow.csv", encoding="utf-8", newline="") as file:
            operands = {row["layer"] for row in csv.DictReader(file) if row["tensor"] == "dw.dy"}
        self.assertNotIn(layer, operands)
        self.assertTrue(operands)

    def test_an_operand_that_has_no_room_is_left_as_it_is_stored(self):
        write_images(self.folder / "large.safetensors", 1000)
        lines, _ = self.prove(
            "data={dataset: tensors, path: large.safetensors, batch_size: 16, workers: 0, "
            "normalize: none}", "precision={format: bf16, operands: fp8_e4m3}",
            "scaling={policy: fixed, scale: 1024}", "optimizer.lr=1e-7")
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("precision: {layers: [{match: f1, operands: "), lines)
        self.assertIn("first tensor f1.forward.x (largest magnitude 1", lines[0])
        self.assertIn("more than the operand's format has", lines[0])
        self.assertIn("first tensor f2.forward.x", self.advice("better")[0])

    def test_logmax_chooses_its_start_by_itself(self):
        self.train("precision.gradients=fp8_e4m3", "scaling={policy: logmax, log_max: -9}",
                   "log.histogram_every=5")
        for line in self.advice():
            self.assertNotRegex(line, r"^scaling: \{init_scale")
        self.mend()

    def test_gradients_among_noise(self):
        self.train("precision={format: bf16, operands: nvfp4}",
                   "log.statistics=[dx, dw, operands]")
        self.assertIn("nothing to change", self.advice()[0])
        path = self.folder / "r/blocks.csv"
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if row["layer"] != "f1" and row["tensor"] == "dw.dy":
                row["norm_over_noise"] = "1.5" if row["layer"] == "f2" else "1.25"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        lines = self.advice()
        self.assertRegex(lines[0], r"^precision: \{layers: .*match: f2,.*match: out,")
        self.assertIn("out.dw.dy: its norm is 1.25 times that of its errors", lines[0])
        self.assertNotIn("match: f1", lines[0])
        self.mend()

    def test_nothing_to_change_is_a_file_that_changes_nothing(self):
        self.train("precision.format=fp32")
        lines = self.advice()
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("# nothing to change: the loss"), lines)
        self.assertEqual((self.folder / "a.yaml").read_text(encoding="utf-8"), lines[0] + "\n")
        self.train("precision.format=fp32", name="same", more=("--with", "a.yaml"))
        self.assertEqual((self.folder / "same/steps.csv").read_bytes(),
                         (self.folder / "r/steps.csv").read_bytes())

    def test_a_file_of_changes_is_named_with_its_lines(self):
        for text, message in (
                ("scaling:\n  policy: fixt\n", "a.yaml:2:3: scaling.policy: expected one of"),
                ("optimizer:\n  lr: fast\n", "a.yaml:2:3: optimizer.lr: expected a number"),
                ("seed: 1\nscailing: {policy: none}\n", "a.yaml:2:12: scailing"),
                ("seed: 1\nseed: 2\n", "a.yaml:2:1: seed: duplicate key"),
                ("- 1\n", "a.yaml:1:1: expected keys and values"),
                ("", "a.yaml: is empty")):
            with self.subTest(text):
                (self.folder / "a.yaml").write_text(text, encoding="utf-8")
                done = self.train(more=("--with", "a.yaml"), code=2)
                self.assertIn(message, done.stderr)
                self.assertNotIn("--set", done.stderr)

    def test_recommend_says_where_no_gradient_arrived(self):
        # Weights of zero: each layer's gradient is zero, but for the loss, which has no histogram.
        self.train("model.init={scheme: constant, value: 0}", "optimizer.lr=1e-9",
                   "precision={format: fp16, gradients: fp8_e4m3}", "log.statistics=[dx]",
                   "scaling={policy: fixed, scale: 1e-30}")
        said = self.run_program("recommend", "r").stdout
        self.assertNotIn("()", said)
        self.assertTrue(math.isfinite(self.last_loss("r")))

    def test_recommend_writes_the_operands_that_it_names(self):
        asked = "log.what_if=[{format: mxfp8_e4m3}, {format: mxfp8_e5m2}]"
        told = r"narrow enough and no more: precision: \{operands: (mxfp8_e[45]m[23])\}"
        self.train("precision.format=bf16", "log.statistics=[dx, operands]",
                   "log.histogram_every=5", asked)
        said = self.run_program("recommend", "r", "--yaml", "a.yaml").stdout
        self.assertRegex(said, told)
        best = re.search(told, said)[1]
        written = (self.folder / "a.yaml").read_text(encoding="utf-8")
        self.assertIn(f"  operands: {best}\n", written)
        self.train("log.statistics=[operands]", name="better", more=("--with", "a.yaml"))
        with open(self.folder / "better/blocks.csv", encoding="utf-8", newline="") as file:
            self.assertEqual({row["format"] for row in csv.DictReader(file)}, {best})
        # A format that was seen with some operands alone is not written for the others.
        self.train("precision={format: bf16, recipe: deepseek_v3}", "log.statistics=[dx, operands]",
                   "log.histogram_every=5")
        said = self.run_program("recommend", "r", "--yaml", "a.yaml").stdout
        self.assertIn("Block-scaled operands", said)
        self.assertNotIn("narrow enough", said)
        self.assertNotIn("operands", (self.folder / "a.yaml").read_text(encoding="utf-8"))
        # Its word replaces all that a recipe has given.
        self.train("precision={format: bf16, recipe: te_nvfp4}", "log.statistics=[dx, operands]",
                   "log.histogram_every=5", asked)
        self.assertRegex(self.run_program("recommend", "r", "--yaml", "a.yaml").stdout, told)
        self.mend()
        for run, has in (("r", True), ("better", False)):
            config = (self.folder / run / "config.yaml").read_text(encoding="utf-8")
            self.assertEqual("hadamard" in config, has, config)
        # What a run has already is no change.
        self.train("precision.format=bf16", f"precision.operands={best}",
                   "log.statistics=[dx, operands]", "log.histogram_every=5")
        self.run_program("recommend", "r", "--yaml", "a.yaml")
        self.assertNotIn("operands", (self.folder / "a.yaml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
