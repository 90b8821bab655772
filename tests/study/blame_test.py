"""`ada-train blame` on tiny networks: one layer put in fp8_e4m3 by hand is the one that is named,
and where every layer has the same format none is. ADA_BINARY names the program; ADA_SLOW=1 asks
twenty networks of each kind instead of two."""
import csv
import io
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
NETWORKS = 20 if os.environ.get("ADA_SLOW") else 2
LAYERS = ("conv1", "conv2", "fc1", "fc2")
CONFIG = """
name: r
seed: {seed}
data: {{dataset: synthetic, synthetic: {{height: 8, width: 8, channels: 2, classes: 5, train: 256,
       test: 20}}, batch_size: 16, workers: 0}}
model:
  layers:
    - {{name: conv1, kind: conv2d, channels: 6, kernel: 3}}
    - {{name: relu1, kind: relu}}
    - {{name: conv2, kind: conv2d, channels: 8, kernel: 3}}
    - {{name: relu2, kind: relu}}
    - {{name: fc1, kind: linear, features: 16}}
    - {{name: relu3, kind: relu}}
    - {{name: fc2, kind: linear, features: classes}}
precision: {{format: {format}, layers: [{layers}]}}
scaling: {{policy: fixed, scale: 64}}
optimizer: {{lr: 0.02, momentum: 0.9}}
train: {{epochs: 2}}
log: {{every: 0}}
evaluate: {{every_epochs: 0}}
device: {{kind: cpu, threads: 1}}
"""


class Blame(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, *arguments):
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, seed, form, layer=None):
        layers = f"{{match: {layer}, format: fp8_e4m3}}" if layer else ""
        (self.folder / "r.yaml").write_text(
            CONFIG.format(seed=seed, format=form, layers=layers), encoding="utf-8")
        self.run_program("train", "r.yaml", "--output", "r", "--quiet", "--overwrite")

    def blame(self, *more):
        text = self.run_program("blame", "r", "--csv", *more)
        self.assertTrue(text.startswith("rank,layer,tensor,effect,noise,significant\n"), text)
        return list(csv.DictReader(io.StringIO(text)))

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

    def test_nothing_is_named_where_nothing_is(self):
        for number in range(NETWORKS):
            form = ("fp16", "bf16", "fp32")[number % 3]
            self.train(number + 1, form)
            for metric in ("loss", "gradient"):
                with self.subTest(number=number, metric=metric, format=form):
                    found = self.blame("--metric", metric)
                    self.assertEqual([row for row in found if row["significant"] == "true"], [])

    def test_blocks_tensors_a_picture_and_a_question_asked_again(self):
        self.train(1, "fp16", "fc1")
        found = self.blame("--by", "tensor", "--steps", "3")
        self.assertEqual({row["tensor"] for row in found},
                         {"activations", "weights", "gradients", "masters", "state"})
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
        self.assertIn("in fp32", self.run_program("blame", "r", "--steps", "3", "--table"))


if __name__ == "__main__":
    unittest.main()
