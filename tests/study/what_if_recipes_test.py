"""`ada-train what-if RUN`: what each recipe would lose of the operands of a bf16 training, beside what
`matmul` counts of the same tensors, and what trainings under the recipes count in their first step.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/study/what_if_recipes_test.py
(from the root). Needs Debian's python3-numpy; without it it is skipped.
"""
import csv
import io
import json
import pathlib
import sys
import unittest

from tests.program_case import SharedFolderCase

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden/blocks"))
import cases  # noqa: E402

CONFIG = """
name: r
seed: 5
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 3, classes: 5, train: 256,
       test: 20}, batch_size: 32, workers: 0}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 32, kernel: 3}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 16, kernel: 1}
    - {name: fc1, kind: linear, features: 48}
    - {name: relu2, kind: relu}
    - {name: fc2, kind: linear, features: classes}
precision: {format: bf16}
scaling: {policy: none}
optimizer: {lr: 0.02}
train: {epochs: 1}
evaluate: {every_epochs: 0}
device: {kind: cpu}
log: {every: 1, histogram_every: 0, statistics: [operands]}
"""
LAYERS = ["conv1", "conv2", "fc1", "fc2"]
PARTS = {"forward.x": ("forward", "x"), "forward.w": ("forward", "w"), "dx.dy": ("dx", "dy"),
         "dx.w": ("dx", "w"), "dw.x": ("dw", "x"), "dw.dy": ("dw", "dy")}


class Recipes(SharedFolderCase):
    config = CONFIG

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train("r", "log.dump_every=1", 'log.dump=["*"]', "train.max_steps=2")
        cls.all = [line.split(":")[0] for line in cls.words_of("recipes").splitlines()]
        cls.rows = list(csv.DictReader(io.StringIO(cls.words_of("what-if", "r", "--csv"))))

    @classmethod
    def train(cls, name, *keys):
        cls.words_of("train", "r.yaml", "--output", name, "--no-progress", "--set", *keys)

    def test_every_recipe_and_layer(self):
        self.assertEqual({row["recipe"] for row in self.rows}, set(self.all))
        for recipe in self.all:
            layers = {row["layer"] for row in self.rows if row["recipe"] == recipe}
            spared = recipe == "nvfp4_pretraining"
            self.assertEqual(layers, set(LAYERS[1:-1] if spared else LAYERS), recipe)
        self.assertFalse([row for row in self.rows if row["layer"] == "conv1" and
                          row["tensor"].startswith("dx.")])

    def test_linear_layers_beside_matmul(self):
        """Scales of tensors and rows, blocks and transforms, of layers as `matmul` rounds them."""
        dump = cases.load(self.folder / "r/dump/step-00000002.safetensors")
        for layer in ("conv2", "fc1", "fc2"):
            tensors = {}
            for which in ("x", "w", "dy"):
                values = dump[f"{layer}.{which}"][1]
                if layer == "conv2" and which == "w":
                    values = values.reshape(len(values), -1)
                elif layer == "conv2":  # its pixels are rows, its channels columns
                    values = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
                else:
                    values = values.reshape(len(values), -1)
                codes = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16)
                tensors[which] = ("BF16", codes.astype(np.uint16))
            cases.save(self.folder / "layer.safetensors", tensors)
            for recipe in self.all:
                if recipe == "nvfp4_pretraining" and layer == "fc2" or recipe == "mxfp4_hadamard":
                    continue  # spared; signs are drawn by the layer's name
                # A scale from earlier steps is that of the tensor once it has settled.
                same = "te_fp8_current" if recipe == "te_fp8_delayed" else recipe
                told = csv.DictReader(io.StringIO(self.words_of(
                    "matmul", "layer.safetensors", "--recipe", same, "--csv")))
                told = {(row["matmul"], row["tensor"]): row for row in told}
                mine = [row for row in self.rows
                        if (row["recipe"], row["layer"]) == (recipe, layer)]
                self.assertTrue(mine)
                for row in mine:
                    other = told[PARTS[row["tensor"]]]
                    with self.subTest(layer=layer, recipe=recipe, operand=row["tensor"]):
                        for name in ("format", "numel", "zeros", "lost", "saturated", "blocks",
                                     "lost_beside_largest", "lost_scale_rounding"):
                            self.assertEqual(row[name], other[name], name)
                        self.assertAlmostEqual(float(row["sqnr_db"]), float(other["sqnr_db"]),
                                               delta=0.02)

    def test_the_first_step_of_a_training_under_the_recipe(self):
        """There the weights are the same, and so is what the first layer takes."""
        self.train("one", "log.dump_every=1", 'log.dump=["*"]', "train.max_steps=1")
        rows = {(row["recipe"], row["layer"], row["tensor"]): row for row in csv.DictReader(
            io.StringIO(self.words_of("what-if", "one", "--csv")))}
        checked = 0
        for recipe in self.all:
            self.train(recipe, f"precision.recipe={recipe}", "train.max_steps=1")
            with open(self.folder / recipe / "underflow.csv", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    tensor = row["tensor"]
                    if tensor != "forward.w" and (row["layer"], tensor) != ("conv1", "forward.x"):
                        continue
                    told = rows[recipe, row["layer"], tensor]
                    # A scale from earlier steps is 1 in the first one.
                    if recipe != "te_fp8_delayed":
                        self.assertEqual((told["lost"], told["saturated"]),
                                         (row["underflow"], row["overflow"]), (recipe, row))
                    checked += 1
        self.assertGreaterEqual(checked, 5 * (len(self.all) - 2))

    def test_json_and_text(self):
        found = json.loads(self.words_of("what-if", "r", "--json"))
        self.assertEqual(set(found), {"command", "version", "run", "dump", "layers", "not_judged",
                                      "recipes", "rows", "verdict"})
        self.assertEqual(found["layers"], LAYERS)
        self.assertEqual(len(found["rows"]), len(self.rows))
        for mine, row in zip(found["rows"], self.rows):
            self.assertEqual((mine["recipe"], mine["layer"], mine["tensor"], str(mine["lost"])),
                             (row["recipe"], row["layer"], row["tensor"], row["lost"]))
        for recipe in found["recipes"]:
            rows = [row for row in self.rows if row["recipe"] == recipe["recipe"]]
            self.assertAlmostEqual(recipe["lost_pct"], max(
                float(row["lost_pct_nonzero"] or 0) for row in rows), places=6)
        serving = [recipe for recipe in found["recipes"] if not recipe["failing"]]
        self.assertEqual(found["verdict"]["recipe"], serving[0]["recipe"])
        text = self.words_of("what-if", "r", "--table", "--recipe", "te_nvfp4", "--recipe", "te_mxfp8")
        self.assertIn("worst operand of each layer", text)
        self.assertIn("te_mxfp8 (8.25 bits) is the narrowest that serves all operands",
                      " ".join(text.split()))
        self.assertNotIn("deepseek_v3", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_operands_that_held_no_numbers_are_said(self):
        """No recipe serves what was inf or NaN before it came."""
        self.train("n", "log.dump_every=4", 'log.dump=["*"]', "train.max_steps=4", "optimizer.lr=1e30")
        verdict = json.loads(self.words_of("what-if", "n", "--json"))["verdict"]
        self.assertRegex(verdict["sentence"],
                         r"not judged, since they held inf or NaN: \d+ operands? \(")

    def test_what_is_missing_is_said(self):
        self.train("none", "train.max_steps=1")
        self.assertIn("log.dump_every", self.words_of("what-if", "none", code=3))
        self.train("some", "train.max_steps=1", "log.dump_every=1", 'log.dump=["fc*"]')
        found = json.loads(self.words_of("what-if", "some", "--json"))
        self.assertEqual((found["layers"], found["not_judged"]), (["fc1", "fc2"],
                                                                  ["conv1", "conv2"]))
        self.assertIn("did you mean te_mxfp8",
                      self.words_of("what-if", "r", "--recipe", "te_mxfp", code=2))
        self.assertIn("leave out --scale",
                      self.words_of("what-if", "r", "--recipe", "te_mxfp8", "--scale", "2", code=2))
        self.assertIn("leave out --dump", self.words_of(
            "what-if", "--dump", "r/dump/step-00000002.safetensors", "--recipe", "te_mxfp8", code=2))


if __name__ == "__main__":
    unittest.main()
