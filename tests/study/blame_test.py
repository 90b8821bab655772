"""`ada-train blame` on tiny networks: one layer put in fp8_e4m3 by hand is the one that is named,
and where every layer has the same format none is, whatever the masters have; kinds of tensors; runs
that do not train. ADA_BINARY names the program; ADA_SLOW=1 asks twenty networks of each kind
instead of two."""
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from tests.program_case import BINARY, ProgramCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import on_terminal  # noqa: E402
import small_sets  # noqa: E402

NETWORKS = 20 if os.environ.get("ADA_SLOW") else 2
LAYERS = ("conv1", "conv2", "fc1", "fc2")
CONFIG = """
name: r
seed: {seed}
data: {{dataset: synthetic, synthetic: {{height: 8, width: 8, channels: 2, classes: 5, train: 256,
       test: 20}}, batch_size: 16, workers: 0}}
model:
  layers:
    - {{name: conv1, kind: conv2d, channels: 6, kernel: 3}}{norm1}
    - {{name: relu1, kind: relu}}
    - {{name: conv2, kind: conv2d, channels: 8, kernel: 3}}{norm2}
    - {{name: relu2, kind: relu}}
    - {{name: fc1, kind: linear, features: 16}}
    - {{name: relu3, kind: relu}}
    - {{name: fc2, kind: linear, features: classes}}
precision: {precision}
scaling: {{policy: fixed, scale: {scale}}}
optimizer: {{lr: {lr}, momentum: 0.9}}
train: {{epochs: 2}}
{more}
log: {{every: 0}}
evaluate: {{every_epochs: 0}}
device: {{kind: cpu, threads: 1}}
"""


class Blame(ProgramCase):
    def train(self, seed, form, layer=None, entry="format: fp8_e4m3", **changes):
        layers = f"{{match: {layer}, {entry}}}" if layer else ""
        self.train_in(seed, f"{{format: {form}, layers: [{layers}]}}", **changes)

    def train_in(self, seed, precision, norms=False, scale=64, lr=0.02, more=""):
        norm = [f"\n    - {{name: bn{i}, kind: batch_norm}}" if norms else "" for i in (1, 2)]
        (self.folder / "r.yaml").write_text(
            CONFIG.format(seed=seed, precision=precision, scale=scale, lr=lr, norm1=norm[0],
                          norm2=norm[1], more=more), encoding="utf-8")
        self.words_of("train", "r.yaml", "--output", "r", "--quiet", "--overwrite")

    def blame(self, *more):
        text = self.words_of("blame", "r", "--csv", *more)
        self.assertTrue(text.startswith("rank,layer,tensor,effect,noise,significant\n"), text)
        return list(csv.DictReader(io.StringIO(text)))

    def named(self, *more, column="layer"):
        return [row[column] for row in self.blame(*more) if row["significant"] == "true"]

    def test_the_layer_in_eight_bits_is_named(self):
        for number in range(NETWORKS):
            layer, form = LAYERS[number % 4], ("fp16", "fp32")[number // 4 % 2]
            self.train(number + 1, form, layer)
            for metric in ("loss", "gradient"):
                with self.subTest(number=number, metric=metric, layer=layer, format=form):
                    found = self.blame("--metric", metric)
                    named = [row["layer"] for row in found if row["significant"] == "true"]
                    self.assertEqual(found[0]["layer"], layer, found)
                    self.assertEqual(named, [layer], found)

    def test_progress_tells_how_many_forks_there_are(self):
        self.train(1, "fp16", "fc1")
        code, text = on_terminal.run_on_terminal([BINARY, "blame", "r", "--steps", "2", "--table"],
                                                 cwd=self.folder)
        self.assertEqual(code, 0, text)
        # As it was, four twins, and the layers that round: near the noise more of them.
        self.assertRegex(text, r"fork 1 of \d+: as it was")
        forks = [tuple(map(int, pair)) for pair in re.findall(r"fork (\d+) of (\d+)", text)]
        self.assertTrue(all(at <= of for at, of in forks), forks)
        self.assertEqual(*forks[-1])
        self.assertRegex(text, r"fork 2 of \d+, \d+ s left: ")

    def test_nothing_is_named_where_nothing_is(self):
        for number in range(NETWORKS):
            form = ("fp16", "bf16", "fp32")[number % 3]
            self.train(number + 1, form)
            for metric in ("loss", "gradient"):
                with self.subTest(number=number, metric=metric, format=form):
                    found = self.blame("--metric", metric)
                    self.assertEqual([row for row in found if row["significant"] == "true"], [])

    def test_nothing_is_named_where_masters_alone_have_few_bits(self):
        for number in range(NETWORKS):
            form = ("fp16", "bf16")[number % 2]
            self.train_in(number + 1, f"{{format: {form}, masters: {form}}}", number // 2 % 2 == 1)
            for metric in ("loss", "gradient"):
                with self.subTest(number=number, metric=metric, format=form):
                    self.assertEqual(self.named("--metric", metric), [])

    def test_the_kind_of_tensor_in_eight_bits_is_named(self):
        for precision, kind in (("{format: fp16, masters: fp8_e4m3}", "masters"),
                                ("{format: bf16, masters: fp8_e4m3}", "masters"),
                                ("{format: fp32, activations: fp8_e4m3}", "activations"),
                                ("{format: fp32, weights: fp8_e4m3}", "weights"),
                                ("{format: fp16, weights: fp8_e4m3}", "weights"),
                                ("{format: bf16, weights: fp8_e4m3}", "weights"),
                                ("{format: fp32, gradients: fp8_e5m2}", "gradients")):
            with self.subTest(precision=precision):
                self.train_in(1, precision)
                self.assertEqual(self.named("--by", "tensor", column="tensor"), [kind])

    def test_gradients_tell_of_layers_with_a_norm_after_their_bias(self):
        for number, layer in enumerate(LAYERS):
            with self.subTest(layer=layer):
                self.train(number + 1, "fp16", layer, norms=True)
                found = self.blame("--metric", "gradient")
                self.assertEqual([r["layer"] for r in found if r["significant"] == "true"],
                                 [layer])
                self.assertLess(float(found[0]["noise"]), 0.05)

    def test_every_task(self):
        small_sets.write_all(self.folder)
        for task in small_sets.RUNS:
            with self.subTest(task):
                self.words_of("train", f"{task}.yaml", "--output", task, "--quiet")
                for metric in ("loss", "gradient"):
                    text = self.words_of("blame", task, "--metric", metric, "--steps", "1", "--csv")
                    self.assertGreater(text.count("\n"), 2)
                self.words_of("assign", f"{task}.yaml", "--formats", "fp8_e5m2,fp16",
                              "--steps", "1")

    def test_a_layer_whose_gradients_alone_are_rounded(self):
        self.train(1, "fp32", "fc1", "gradients: fp8_e4m3")
        for metric in ("loss", "gradient"):
            self.assertEqual(self.named("--metric", metric), ["fc1"])

    def test_a_layer_whose_operands_alone_are_rounded(self):
        self.train(1, "fp32", "conv2", "operands: fp8_e4m3")
        self.assertEqual(self.named("--metric", "gradient"), ["conv2"])
        self.assertEqual(
            set(self.named("--metric", "gradient", "--by", "tensor", column="tensor")),
            {"activations", "weights", "gradients"})

    def test_what_is_no_file_of_blame_is_made_anew(self):
        self.train(1, "fp16", "fc1")
        first, path = self.blame(), self.folder / "r" / "blame.json"
        whole = path.read_text(encoding="utf-8")
        known = json.loads(whole)
        name = next(iter(known["losses"]))
        for changes in ({"of": 3}, {"losses": 3}, {"losses": [[1]]}, {"losses": {name: 1}},
                        {"troubles": {name: [2]}}, {"troubles": 2}, {"troubles": None}):
            path.write_text(json.dumps({**known, **changes}), encoding="utf-8")
            with self.subTest(changes):
                self.assertEqual(self.blame(), first)
        for text in ("", "[]", whole[:-9]):
            path.write_text(text, encoding="utf-8")
            with self.subTest(text):
                self.assertEqual(self.blame(), first)

    def test_another_checkpoint_or_other_data_are_asked_anew(self):
        small_sets.write_all(self.folder)
        self.words_of("train", "classification.yaml", "--output", "r", "--quiet")
        first = self.blame("--steps", "2")
        picture = next((self.folder / "photos/train").rglob("*.png"))
        known = picture.read_bytes()
        picture.write_bytes(small_sets.picture(2, 99))
        second = self.blame("--steps", "2")
        self.assertNotEqual(first, second)
        picture.write_bytes(known)
        self.assertEqual(self.blame("--steps", "2"), first)

    def test_a_folder_that_cannot_be_written_is_told_and_asked_all_the_same(self):
        self.train(1, "fp16", "fc1")
        first = self.blame("--steps", "2")
        (self.folder / "r/blame.json").unlink()
        (self.folder / "r/blame.json").mkdir()
        done = self.run_program("blame", "r", "--csv", "--steps", "2")
        self.assertEqual(list(csv.DictReader(io.StringIO(done.stdout))), first)
        self.assertEqual(done.stderr.count("the forks are not kept"), 1, done.stderr)

    def test_a_checkpoint_that_is_deleted_meanwhile(self):
        self.train(1, "fp16", "fc1")
        first = self.blame("--steps", "20")
        (self.folder / "r/blame.json").unlink()
        with subprocess.Popen([BINARY, "blame", "r", "--csv", "--steps", "20"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
            while not (self.folder / "r/blame.json").exists():  # the first fork is done
                self.assertIsNone(asked.poll())
            for path in (self.folder / "r/checkpoints").iterdir():
                path.unlink()
            text, said = asked.communicate()
        self.assertEqual(asked.returncode, 0, said)
        self.assertEqual(list(csv.DictReader(io.StringIO(text))), first)

    def test_a_finished_run_is_asked_with_the_rates_of_its_last_steps(self):
        precision = "{format: fp16, layers: [{match: fc1, format: fp8_e4m3}]}"
        found = []
        for rule in ("advance", "hold"):  # the same run, since no step of it is skipped
            self.train_in(1, precision, more="schedule: {kind: cosine}")
            path = self.folder / "r.yaml"
            path.write_text(path.read_text(encoding="utf-8").replace(
                "{epochs: 2}", f"{{epochs: 2, schedule_on_skip: {rule}}}"), encoding="utf-8")
            self.words_of("train", "r.yaml", "--output", "r", "--quiet", "--overwrite")
            found.append(self.blame("--steps", "3"))
        self.assertEqual(*found)
        self.assertGreater(float(found[0][0]["effect"]), 0)

    def test_a_run_that_does_not_train_is_said_to(self):
        self.train_in(1, "fp16", scale=1e9)
        for table in (self.words_of("blame", "r", "--steps", "3", "--table"),
                      self.words_of("blame", "r", "--steps", "3", "--table")):  # from blame.json
            self.assertNotIn("no format here is to blame", table)
            text = " ".join(table.split())
            self.assertIn("as it was, the run skips all 3 steps; the first tensor that is not "
                          "finite is loss.dx (largest magnitude ", text)
        self.train_in(1, "fp16", lr=3000)
        text = " ".join(self.words_of("blame", "r", "--steps", "3", "--table").split())
        self.assertIn("as it was, the run has a loss that is not finite; the first tensor", text)
        self.assertNotIn("no format here is to blame", text)
        done = self.run_program("blame", "r", "--csv", "--steps", "3")
        self.assertIn("warning: as it was, the run has a loss that is not finite", done.stderr)

    def test_blocks_tensors_a_picture_and_a_question_asked_again(self):
        self.train(1, "fp16", "fc1")
        found = self.blame("--by", "tensor", "--steps", "3")
        self.assertEqual({row["tensor"] for row in found},
                         {"activations", "weights", "gradients", "masters", "state", "accumulated"})
        self.assertEqual({row["layer"] for row in found}, {"all"})
        kept = {row["tensor"]: row for row in found}
        self.assertEqual(float(kept["masters"]["effect"]), 0)  # they are in fp32
        first = self.blame("--steps", "3", "--picture", "p.svg")
        self.assertEqual([int(row["rank"]) for row in first], list(range(1, 8)))
        effects = [float(row["effect"]) for row in first]
        self.assertEqual(effects, sorted(effects, reverse=True))
        self.assertEqual(self.blame("--steps", "3"), first)
        self.assertEqual(self.blame("--steps", "3", "--threads", "2"), first)
        self.assertIn("<title>fc1: effect", (self.folder / "p.svg").read_text(encoding="utf-8"))
        self.assertEqual(self.blame("--by", "block", "--steps", "3"),
                         first)  # without dots each layer is a block
        self.assertIn("in fp32", self.words_of("blame", "r", "--steps", "3", "--table"))


if __name__ == "__main__":
    unittest.main()
