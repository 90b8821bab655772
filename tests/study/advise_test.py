"""`ada-train advise` on tiny networks with one fault each: the fault is what the first line mends,
no cause has two lines, and a training with the advice does what the first one did not. ADA_BINARY
names the program."""
import csv
import json
import math
import random
import re
import struct
import unittest

from tests.program_case import ProgramCase

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

VIT = """
data: {dataset: synthetic, synthetic: {height: 16, width: 16, channels: 3, classes: 4, train: 64,
       test: 32}, batch_size: 16}
model: {zoo: vit, layers: 1, heads: 2, width: 16, patch: 4}
optimizer: {kind: adamw, lr: 1.0e-3}
precision: {format: fp8_e4m3}
train: {max_steps: 4, epochs: 9}
log: {every: 1, histogram_every: 2}
device: {threads: 1}
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


class Advise(ProgramCase):
    config = CONFIG

    def train(self, *sets, name="r", code=0, more=()):
        given = ("--set", *sets) if sets else ()
        return self.run_program("train", "r.yaml", "--output", name, "--quiet", "--overwrite", *more,
                                *given, code=code)

    def last_loss(self, name):
        return float(self.rows_of(f"{name}/steps.csv")[-1]["loss"])

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

    def test_advice_to_keep_fp32_takes_what_needs_few_bits_along(self):
        """What goes is a map whose other keys the run had, and --with merges maps."""
        for sets in (("precision.masters={format: fp8_e5m2, compensation: kahan}", "optimizer.lr=1e-5"),
                     ("precision.accumulated_gradients={format: fp8_e5m2, scaling: fp8_lm}",
                      "train.accumulate=16", "optimizer.lr=1e-5")):
            with self.subTest(sets[0]):
                self.train(*sets, "log.statistics=[update, dx]")
                said = self.run_program("advise", "r", "--yaml", "a.yaml").stdout
                self.assertRegex(said, "^precision: {(masters|accumulated_gradients): {format: fp32, ")
                self.run_program("train", "r/config.yaml", "--with", "a.yaml", "--output", "b", "--dry-run")

    def test_what_overflows_under_scales_of_its_own_is_told(self):
        """Each largest value so far is the end of fp16 there."""
        self.train("precision.tensor_scaling={kind: delayed, history: 1}", "log.histogram_every=5",
                   "log.statistics=[y, dx]")
        with open(self.folder / "r/underflow.csv", encoding="utf-8", newline="") as file:
            overflow = sum(int(row["overflow"]) for row in csv.DictReader(file))
        said = re.search(r"and (\d+) values overflow", self.run_program("advise", "r").stdout)
        self.assertEqual(int(said[1]), overflow)

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
        self.assertTrue(after[0].startswith("# keep what you have: "), after)

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
        self.assertIn("was not counted", self.advice()[0])

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
        self.train("precision={format: bf16, recipe: te_nvfp4}",
                   "log.statistics=[dx, dw, operands]")
        self.assertIn("keep what you have", self.advice()[0])
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

    def blocks(self, name):
        with open(self.folder / name / "blocks.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_operands_whose_scales_cut_off_values_get_another_rule(self):
        self.train("precision={format: bf16, operands: mxfp8_e4m3}", "log.histogram_every=5")
        worst = max(100 * int(row["saturated"]) / (int(row["numel"]) - int(row["zeros"]))
                    for row in self.blocks("r") if int(row["numel"]) > int(row["zeros"]))
        lines = self.advice()
        self.assertRegex(lines[0], r"^precision: \{operands: \{element: fp8_e4m3, .*rule: rceil\}")
        self.assertIn(f" has {worst:.3g} % of its values cut off by the scales of mxfp8_e4m3",
                      lines[0])
        self.mend()
        self.assertEqual({row["saturated"] for row in self.blocks("better")}, {"0"})
        self.assertNotIn("cut off", self.advice("better")[0])

    def test_four_bits_rounded_to_nearest_get_eight_or_a_recipe(self):
        for operands in ("nvfp4", "mxfp4", "{x: nvfp4, w: nvfp4, dy: nvfp4}"):
            with self.subTest(operands):
                self.train(f"precision={{format: bf16, operands: {operands}}}",
                           "log.histogram_every=5")
                lines = self.advice()
                self.assertRegex(lines[0], r"^precision: \{operands: \{element: fp8_e4m3, ")
                self.assertIn("nvfp4_pretraining", lines[0])
                least = min(float(row["sqnr_db"]) for row in self.blocks("r")
                            if row["sqnr_db"] and int(row["inf"]) + int(row["nan"]) == 0)
                self.assertIn(f"an SQNR of {least:.3g} dB", lines[0])
                self.mend()
                self.assertNotIn("SQNR", self.advice("better")[0])

    def test_images_that_vanish_are_found_without_counts_of_them(self):
        write_images(self.folder / "small.safetensors", 1e-9)
        self.train("data={dataset: tensors, path: small.safetensors, batch_size: 16, workers: 0, "
                   "normalize: none}", "model.init.scheme=he_normal")
        lines = self.advice()
        self.assertIn("nothing but zeros reaches the layer", lines[0])
        self.assertTrue(lines[0].startswith("precision: {activations: bf16}"), lines)
        self.assertEqual(len(lines), 1, lines)

    def test_a_scale_for_another_format_comes_with_that_format(self):
        lines, loss = self.prove("precision={format: bf16, layers: [{match: f2, gradients: "
                                 "{exponent: 2, mantissa: 1}}]}")
        self.assertEqual(sorted(line.split(":")[0] for line in lines), ["precision", "scaling"],
                         lines)
        self.assertLess(loss, 0.5)

    def test_many_skipped_steps_are_no_run_to_keep(self):
        self.train("precision.format=fp16", "optimizer.lr=0.01")
        skipped = range(10, 50)
        rows = self.rows("steps.csv")
        for step in skipped:
            rows[step - 1].update(loss="nan", overflow="1", skipped="1")
        self.write_rows("steps.csv", rows)
        self.write_rows("events.csv", [
            {"step": step, "epoch": 1, "event": "skip", "layer": "f2", "tensor": "y",
             "value": "80000", "message": "gradients are not finite"} for step in skipped])
        lines = self.advice()
        self.assertTrue(lines[0].startswith("precision: {activations: bf16}"), lines)
        self.assertIn("40 of 60 steps were skipped, most often first f2.y", lines[0])
        self.mend()

    def test_weights_that_start_as_zero_are_no_matter_of_the_rate(self):
        lines, loss = self.prove("model.init={scheme: constant, value: 0}", "optimizer.lr=0.1")
        self.assertEqual([line.split("  #")[0] for line in lines],
                         ["model: {init: {scheme: he_normal}}"])
        self.assertLess(loss, 0.5)

    def test_a_rate_is_smaller_where_a_momentum_multiplies_it(self):
        lines, loss = self.prove("optimizer={kind: sgd, lr: 30, momentum: 0.75}")
        self.assertTrue(lines[0].startswith("optimizer: {lr: 0.025}"), lines)
        self.assertLess(loss, 0.5)

    def test_keep_what_you_have_is_a_file_that_changes_nothing(self):
        self.train("precision.format=fp32")
        lines = self.advice()
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("# keep what you have: the loss"), lines)
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

    def test_layers_behind_values_that_rounding_took(self):
        """The embedding of patches has no gradient since attention's were rounded away: no rate mends
        that, the scale does."""
        self.put("vit.yaml", VIT)
        self.run_program("train", "vit.yaml", "--output", "r", "--quiet")
        lines = self.advice()
        self.assertTrue(lines[0].startswith("scaling: "), lines)
        self.assertFalse([line for line in lines if line.startswith("optimizer: ")])

    def test_a_run_without_a_step_has_no_verdict(self):
        self.train("train.max_steps=1")
        for path in (self.folder / "r").glob("*.csv"):
            path.write_text(path.read_text(encoding="utf-8").split("\n")[0] + "\n", encoding="utf-8")
        for command in ("advise", "recommend"):
            self.assertIn("r/steps.csv: holds no step yet", self.words_of(command, "r", code=3))
        (self.folder / "loop").symlink_to("loop")
        self.assertIn("loop: cannot be looked at", self.words_of("advise", "loop", code=3))

    def test_recommend_writes_the_operands_that_it_names(self):
        # mxfp8_e4m3 cuts off values, which are lost as well; rule rceil does not.
        asked = ("log.what_if=[{format: mxfp8_e4m3}, {format: {element: fp8_e4m3, rule: rceil}}, "
                 "{format: {element: fp8_e5m2, rule: rceil}}]")
        told = r"narrow enough and no more: precision: \{operands: (\{[^}]*rule: rceil\})\}"
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
        self.assertNotIn("operands:", (self.folder / "a.yaml").read_text(encoding="utf-8"))
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
        self.assertNotIn("operands:", (self.folder / "a.yaml").read_text(encoding="utf-8"))

    def break_later(self, step, layer, tensor, value):
        """Makes of the run one whose steps from this one on are skipped, first of this tensor."""
        rows = self.rows("steps.csv")
        for row in rows[step - 1:]:
            row.update(loss="nan", overflow="1", skipped="1")
        self.write_rows("steps.csv", rows)
        event = {"event": "skip", "layer": layer, "tensor": tensor, "value": value,
                 "message": "gradients are not finite"}
        self.write_rows("events.csv", [{"step": row["step"], "epoch": row["epoch"], **event}
                                       for row in rows[step - 1:]])

    def rows(self, file):
        with open(self.folder / "r" / file, encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    def write_rows(self, file, rows):
        with open(self.folder / "r" / file, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def test_gradients_lost_in_step_1_come_before_a_forward_pass_that_breaks_later(self):
        sets = ("optimizer.lr=0.03", "log.histogram_every=5", "data.batch_size=512",
                "train.epochs=99")  # each image's gradient is small
        self.train("precision={format: fp16, gradients: fp8_e4m3}", *sets)
        lost = [row for row in self.rows("underflow.csv")
                if row["step"] == "1" and row["tensor"] == "dx"]
        worst = max(lost, key=lambda row: float(row["underflow_pct_nonzero"] or 0))
        self.assertGreater(float(worst["underflow_pct_nonzero"]), 50)
        self.break_later(31, "f2", "y", "80000")
        lines = self.advice()
        self.assertRegex(lines[0], r"^scaling: \{policy: \w+, .*scale: \d+")
        self.assertIn(f"{worst['layer']}.dx lost ", lines[0])
        self.assertIn("in step 1 (fp8_e4m3 at S = 1), long before", lines[0])
        said = self.run_program("recommend", "r", "--yaml", "b.yaml").stdout
        self.assertEqual((self.folder / "a.yaml").read_bytes(),
                         (self.folder / "b.yaml").read_bytes())
        seen = self.run_program("watch", "r", "--once").stdout
        for text in ("\n".join(lines), said, seen):
            for wrong in ("does not help", "does not mend", "too large", "smaller scale"):
                self.assertNotIn(wrong, text)
        # The same break without lost gradients is not blamed on them.
        self.train("precision.format=fp16", "scaling={policy: fixed, scale: 1024}", *sets)
        self.break_later(31, "f2", "y", "80000")
        self.assertTrue(self.advice()[0].startswith("precision: "), self.advice())
        self.assertIn("does not help", self.run_program("recommend", "r").stdout)

    def test_recommend_and_advise_decide_the_same(self):
        for sets in (["scaling={policy: adaptive}", "precision.gradients=fp8_e4m3"],
                     ["scaling={policy: dynamic}"], ["scaling={policy: fixed, scale: 1e30}"],
                     ["precision={format: bf16, operands: nvfp4}"], ["optimizer.lr=30"],
                     ["precision.masters=bf16", "optimizer.lr=1e-4"]):
            with self.subTest(sets):
                self.train("log.histogram_every=5", *sets)
                lines = self.advice()
                said = self.run_program("recommend", "r", "--yaml", "b.yaml").stdout
                self.assertEqual((self.folder / "a.yaml").read_bytes(),
                                 (self.folder / "b.yaml").read_bytes())
                keep = lines[0].startswith("# keep what you have")
                self.assertEqual("Recommended: keep what you have" in said, keep)

    def test_recommend_decides_as_advise_does_where_there_are_no_histograms(self):
        for sets, why in ((["log.histogram_every=0"], "the run has no histograms; a run with "
                           "log.histogram_every"),
                          (["log.histogram_every=5", "log.statistics=[y, w]"],
                           "no histogram of a gradient; a run with dx and dy")):
            for more in (["scaling={policy: fixed, scale: 1e30}"], ["precision.masters=bf16", "optimizer.lr=1e-4"],
                         ["precision.format=bf16"], ["precision={format: fp16, gradients: fp8_e4m3}"]):
                with self.subTest(sets=sets, more=more):
                    self.train(*sets, *more)
                    lines = self.advice()
                    said = self.run_program("recommend", "r", "--yaml", "b.yaml").stdout
                    self.assertEqual((self.folder / "a.yaml").read_bytes(),
                                     (self.folder / "b.yaml").read_bytes())
                    self.assertIn(why, " ".join(said.split()))
                    keep = lines[0].startswith("# keep what you have")
                    self.assertEqual("Recommended: keep what you have" in said, keep)
                    found = json.loads(self.run_program("recommend", "r", "--json").stdout)
                    self.assertEqual((found["keep"], found["one_scale"]), (keep, None))

    def test_changes_that_are_rounded_stochastically_are_kept_in_the_mean(self):
        """Most weights stay where they are in a step, and none is lost: as in fp32, fp32 is no advice."""
        keys = "optimizer.lr=1e-4", "log.statistics=[dx, dy, dw, update]"
        for masters, lost in (("bf16", True), ("{format: bf16, rounding: stochastic}", False),
                              ("{format: bf16, compensation: kahan}", False)):
            with self.subTest(masters=masters):
                self.train(f"precision.masters={masters}", *keys)
                shares = [float(row["underflow_pct_nonzero"] or 0) for row in self.rows("underflow.csv")
                          if row["tensor"] == "update"]
                self.assertEqual(max(shares) > 50, "kahan" not in masters)
                self.assertEqual(any(line.startswith("precision: {masters") for line in self.advice()),
                                 lost)
                alerts = [row for row in self.rows("events.csv") if row["event"] == "underflow_alert"
                          and row["tensor"].startswith("update")]
                self.assertEqual(bool(alerts), lost)
                said = (self.folder / "r/log.txt").read_text("utf-8")
                self.assertEqual("stochastic: kept in the mean)" in " ".join(said.split()), "stochastic" in masters)

    def test_every_command_says_the_same_share_of_the_same_things(self):
        self.train("precision={format: bf16, recipe: te_nvfp4}", "log.histogram_every=5")
        rows, shares = self.rows("underflow.csv"), {}
        self.assertIn("dx.dy", {row["tensor"] for row in rows})  # logged without being asked for
        for row in rows:
            left = int(row["numel"]) - int(row["zeros_before"])
            if left:
                shares.setdefault(f"{row['layer']}.{row['tensor']}", []).append(
                    100 * (int(row["underflow"]) + int(row["overflow"])) / left)
        means = {name: sum(values) / len(values) for name, values in shares.items()}
        worst = max(means, key=means.get)
        steps = len({row["step"] for row in rows})
        sentence = (f"{worst} lost most, {means[worst]:.3f} % on the mean, {max(shares[worst]):.3f} "
                    f"% at most, of dx, dw and operands, {steps} of 60 steps; not counted: y and w "
                    "(log.statistics)")
        summary = json.loads((self.folder / "r/summary.json").read_text(encoding="utf-8"))
        self.assertEqual(summary["counted"]["text"], sentence)
        for command in (["advise", "r"], ["recommend", "r"], ["watch", "r", "--once"],
                        ["compare", "r", "r"]):
            said = " ".join(self.run_program(*command).stdout.split())
            if command[0] != "advise" or "keep what you have" in said:
                self.assertIn(sentence, said, command)
        log = (self.folder / "r/log.txt").read_text(encoding="utf-8")
        self.assertIn("counted: dx, dw and operands, ", log)
        # Where nobody counts operands, none is said to have kept its values.
        self.train("precision={format: bf16, recipe: te_nvfp4}", "log.statistics=[dx]")
        self.assertIn("no value was lost of dx, ", self.advice()[0])
        self.assertIn("not counted: dy, y, w and operands", self.advice()[0])

    def test_a_reason_has_the_shares_of_the_counts(self):
        for sets in (["precision={format: bf16, layers: [{match: f1, activations: fp4_e2m1}]}"],
                     ["precision.gradients=fp8_e4m3"], ["precision={format: bf16, operands: nvfp4}"]):
            with self.subTest(sets):
                self.train("log.histogram_every=5", *sets)
                shares = {}
                for row in self.rows("underflow.csv"):
                    left = int(row["numel"]) - int(row["zeros_before"])
                    if left:
                        shares.setdefault(f"{row['layer']}.{row['tensor']}", []).append(
                            100 * (int(row["underflow"]) + int(row["overflow"])) / left)
                found = re.findall(r"([\w.]+)(?: \([^)]*\))? los(?:t|es),?(?: whatever S is,)? ([\d.]+) "
                                   r"% (on the mean|at most), ([\d.]+) %", "\n".join(self.advice()))
                self.assertTrue(found, self.advice())
                for tensor, first, which, second in found:
                    mean, most = (first, second) if which == "on the mean" else (second, first)
                    self.assertAlmostEqual(float(mean), sum(shares[tensor]) / len(shares[tensor]),
                                           delta=0.006 * float(mean))
                    self.assertAlmostEqual(float(most), max(shares[tensor]),
                                           delta=0.006 * float(most))

    def test_operands_without_a_scale_get_one(self):
        lines, _ = self.prove("precision={format: bf16, operands: {dy: fp8_e5m2}}",
                              "log.histogram_every=0", "data.batch_size=64")
        self.assertRegex(lines[0], r"^precision: \{operands: .*tensor_scaling: ")
        self.assertIn("without a scale of its own", lines[0])
        with open(self.folder / "better/underflow.csv", encoding="utf-8", newline="") as file:
            lost = [float(row["underflow_pct_nonzero"] or 0) for row in csv.DictReader(file)
                    if row["tensor"].endswith(".dy")]
        self.assertLess(max(lost), 10)

    def test_sums_of_all_products_that_lose_are_mended(self):
        short = "{group: 16, fraction_bits: 4, accumulator: {exponent: 8, mantissa: 4}}"
        lines, _ = self.prove("precision={format: bf16, operands: bf16, accumulate: %s}" % short)
        self.assertRegex(lines[0], r"^precision: \{accumulate: ")
        self.assertIn("in fp32 they lose less", lines[0])
        # A sum over the 16 images of a batch is one addition, which loses little.
        self.assertIn("  accumulate: {forward: none, dx: none, dw: {group: 16",
                      (self.folder / "better/config.yaml").read_text("utf-8"))

    def test_a_layers_own_scale_is_what_is_too_large(self):
        lines, loss = self.prove("scaling={policy: adaptive, layers: [{match: f2, total_scale: "
                                 "1e30}]}")
        self.assertRegex(lines[0], r"^scaling: \{layers: \[\{match: f2, total_scale: \d+\}\]\}")
        self.assertIn("S = 1e+30 is too large, the total_scale that", lines[0])
        self.assertLess(loss, 0.5)

    def test_weights_that_vanish_are_not_blamed_on_the_images(self):
        lines, loss = self.prove("precision={format: bf16, weights: fp4_e2m1}", "log.histogram_every=5")
        self.assertRegex(lines[0], r"^precision: \{(weights|layers): .*f1\.w .*whatever S is")
        self.assertEqual(len(lines), 1, lines)
        self.assertLess(loss, 0.5)

    def test_of_formats_with_as_many_bits_the_one_with_more_sqnr_is_recommended(self):
        pair = ("mxfp8_e4m3", "{element: fp8_e4m3, rule: rceil}")
        for order in (pair, pair[::-1]):
            asked = ", ".join(f"{{format: {text}}}" for text in order)
            self.train("precision.format=bf16", "log.histogram_every=5", f"log.what_if=[{asked}]")
            least = {}
            for row in self.rows("what_if_blocks.csv"):
                if row["sqnr_db"]:
                    least[row["format"]] = min(least.get(row["format"], math.inf),
                                               float(row["sqnr_db"]))
            best = max(least, key=least.get)
            said = self.run_program("recommend", "r", "--yaml", "a.yaml").stdout
            self.assertIn(f"narrow enough and no more: precision: {{operands: {best}}}", said)
            self.train(name="better", more=("--with", "a.yaml"))
            with open(self.folder / "better/blocks.csv", encoding="utf-8", newline="") as file:
                self.assertEqual({row["format"] for row in csv.DictReader(file)}, {best})


if __name__ == "__main__":
    unittest.main()
