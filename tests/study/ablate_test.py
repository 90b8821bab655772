"""`ada-train ablate` on a tiny network: the arms, what they add to the loss beside their own
steps.csv, the table, ablate.csv, JSON and page; resumption; what is refused. With ADA_SLOW=1 on a
small GPT with a planted harmful ingredient and a planted useless one. ADA_BINARY names the program."""
import json
import math
import os
import pathlib
import re
import unittest

from tests.program_case import ProgramCase, SMALL_NETWORK

CONFIG = SMALL_NETWORK + """seed: 5
precision: {recipe: nvfp4_pretraining}
train: {epochs: 1}
evaluate: {every_epochs: 0}
device: {kind: cpu}
"""
# Every ingredient of the recipe (arXiv 2509.25149): products, their operands, what softens them.
ROUNDINGS = ["forward", "dx", "dw", "forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"]
REMEDIES = ["stochastic", "hadamard", "squares", "tensor_scale", "spared.first", "spared.last"]
GPT = """
name: gpt
task: language
data: {{dataset: text, path: [{text}], context: 32, batch_size: 8, validation: 0.1}}
model: {{zoo: gpt2, layers: 2, heads: 2, width: 64}}
precision:
  format: bf16
  operands:
    forward: {{x: bf16, w: mxfp8_e4m3}}
    dw: {{x: bf16, dy: fp8_e4m3}}
optimizer: {{kind: adamw, lr: 2.0e-3, beta2: 0.99}}
train: {{max_steps: 40, clip_norm: 1.0}}
evaluate: {{every_epochs: 0}}
device: {{kind: cpu}}
"""

# Two trained steps each: what is taken apart beyond recipes.
ATTENTION = """
name: r
seed: 5
task: language
data: {dataset: text, path: text.txt, context: 16, batch_size: 4, validation: 0.2}
model: {zoo: gpt2, layers: 1, heads: 2, width: 16}
precision:
  format: bf16
  operands: {attention: {q: fp8_e4m3, ds: {format: fp8_e5m2, rounding: stochastic}}}
  accumulated_gradients: bf16
optimizer: {lr: 0.02}
train: {max_steps: 2, accumulate: 2}
evaluate: {every_epochs: 0}
device: {kind: cpu}
"""


class Ablate(ProgramCase):
    config = CONFIG

    def ablate(self, *more, code=0, config="r.yaml"):
        return self.words_of("ablate", config, "--out", "a", *more, code=code)

    def end(self, run):
        """The mean loss of the last ten steps."""
        losses = [float(row["loss"]) for row in self.rows_of(f"a/{run}/steps.csv")]
        return sum(losses[-10:]) / 10

    def config_of(self, run):
        return (self.folder / "a/configs" / (run + ".yaml")).read_text("utf-8")

    def test_attention_and_accumulated_gradients(self):
        (self.folder / "text.txt").write_text("to be, or not to be " * 60, encoding="utf-8")
        (self.folder / "attention.yaml").write_text(ATTENTION, encoding="utf-8")
        found = json.loads(self.ablate("--seeds", "1", "--json", config="attention.yaml"))
        self.assertEqual([one["ingredient"] for one in found["ingredients"]],
                         ["attention", "accumulated_gradients", "stochastic"])
        plain, alone = self.config_of("bf16-seed5"), self.config_of("only-attention-seed5")
        for words in ("fp8_e", "accumulated_gradients"):
            self.assertNotIn(words, plain)
        self.assertIn("fp8_e4m3", alone)
        self.assertNotIn("accumulated_gradients", alone)
        self.assertNotIn("fp8_e", self.config_of("no-attention-seed5"))
        self.assertIn("accumulated_gradients", self.config_of("no-attention-seed5"))
        self.assertNotIn("stochastic", self.config_of("no-remedies-seed5"))

    def test_a_recipe(self):
        found = json.loads(self.ablate("--seeds", "1", "--html", "--json"))
        self.assertEqual((found["command"], found["baseline"]), ("ablate", "bf16"))
        by_name = {one["ingredient"]: one for one in found["ingredients"]}
        with self.subTest("every ingredient of the recipe, and of which kind it is"):
            self.assertEqual(list(by_name), ROUNDINGS + REMEDIES)
            self.assertEqual({name for name, one in by_name.items() if one["kind"] == "remedy"},
                             set(REMEDIES))
        plain, recipe, bare = self.end("bf16-seed5"), self.end("recipe-seed5"), \
            self.end("no-remedies-seed5")
        with self.subTest("what each adds, alone and left out, from the runs' own losses"):
            for name, one in by_name.items():
                start = bare if name in REMEDIES else plain
                alone = self.end(f"only-{name}-seed5") - start
                left_out = recipe - self.end(f"no-{name}-seed5")
                self.assertAlmostEqual(one["alone"]["mean"], alone, places=6, msg=name)
                self.assertAlmostEqual(one["left_out"]["mean"], left_out, places=6, msg=name)
                self.assertAlmostEqual(one["beyond"]["mean"], left_out - alone, places=6, msg=name)
        with self.subTest("products in twos are the others left out"):
            both = self.end("no-dw-seed5")
            pair = next(pair for pair in found["pairs"]
                        if (pair["one"], pair["other"]) == ("forward", "dx"))
            beyond = both - self.end("only-forward-seed5") - self.end("only-dx-seed5") + plain
            self.assertAlmostEqual(pair["beyond"]["mean"], beyond, places=6)
        with self.subTest("what an arm has is what its name says"):
            self.assertNotIn("fp4", self.config_of("bf16-seed5"))
            self.assertNotIn("hadamard:", self.config_of("no-hadamard-seed5"))
            self.assertIn("hadamard:", self.config_of("only-hadamard-seed5"))
            self.assertNotIn("stochastic", self.config_of("only-hadamard-seed5"))
            self.assertNotIn("stochastic", self.config_of("no-dw.dy-seed5").split(" dw: {")[1])
            self.assertRegex(self.config_of("no-spared.last-seed5"), r"last: 0")
            self.assertRegex(self.config_of("no-spared.last-seed5"), r"first: 1")
        with self.subTest("the files"):
            page = (self.folder / "a/ablate.html").read_text("utf-8")
            self.assertIn("hadamard", page)
            self.assertNotIn("http", page)
            rows = {row["ingredient"]: row for row in self.rows_of("a/ablate.csv")}
            for name, one in by_name.items():
                self.assertAlmostEqual(float(rows[name]["alone"]), one["alone"]["mean"], places=7)
                self.assertEqual(rows[name]["says"], one["says"])
        with self.subTest("nothing is trained a second time, and the table says the same"):
            before = (self.folder / "a/recipe-seed5/summary.json").stat().st_mtime_ns
            text = self.ablate("--seeds", "1")
            self.assertEqual((self.folder / "a/recipe-seed5/summary.json").stat().st_mtime_ns,
                             before)
            for name, one in by_name.items():
                self.assertRegex(text, rf"(?m)^  {re.escape(name)} .* {one['says']}$")
            self.assertIn(" ".join(found["sentence"].split()[:6]), " ".join(text.split()))

    def test_arms_that_are_the_same_are_trained_once(self):
        (self.folder / "r.yaml").write_text(
            CONFIG.replace("recipe: nvfp4_pretraining",
                           "format: bf16, operands: {forward: {x: fp8_e4m3}}"), encoding="utf-8")
        found = json.loads(self.ablate("--seeds", "3", "--steps", "12", "--json"))
        # Its only ingredient alone is the recipe, and the recipe without it is bf16.
        self.assertEqual([arm["arm"] for arm in found["arms"]], ["bf16", "recipe"])
        one = found["ingredients"][0]
        self.assertEqual((len(found["ingredients"]), one["ingredient"]), (1, "forward.x"))
        by_seed = [self.end(f"recipe-seed{seed}") - self.end(f"bf16-seed{seed}")
                   for seed in (5, 6, 7)]
        mean = sum(by_seed) / 3
        for part in ("alone", "left_out"):
            for ours, theirs in zip(one[part]["by_seed"], by_seed):
                self.assertAlmostEqual(ours, theirs, places=6)
            self.assertAlmostEqual(
                one[part]["deviation"],
                math.sqrt(sum((x - mean) ** 2 for x in by_seed) / 2), places=6)
        self.assertEqual(one["beyond"]["mean"], 0)
        with self.subTest("the noise is that of twins, of both"):
            twins = [self.end(f"recipe-seed{4 + i}-twin{i}") - self.end(f"recipe-seed{4 + i}")
                     for i in (1, 2, 3)]
            self.assertAlmostEqual(found["recipe_noise"],
                                   math.sqrt(sum(t * t for t in twins) / 3), places=6)

    def test_policies_roles_and_pairs(self):
        (self.folder / "r.yaml").write_text(
            CONFIG.replace("precision: {recipe: nvfp4_pretraining}",
                           "precision: {format: fp16, masters: bf16}\n"
                           "scaling: {policy: fixed, scale: 64}"), encoding="utf-8")
        found = json.loads(self.ablate("--seeds", "1", "--steps", "10", "--pairs", "--json",
                                       "--parts", "gradients,masters,policy"))
        self.assertEqual([one["ingredient"] for one in found["ingredients"]],
                         ["gradients", "masters", "policy"])
        self.assertEqual([(p["one"], p["other"]) for p in found["pairs"]],
                         [("gradients", "masters")])
        self.assertIn("policy: none", self.config_of("bf16-seed5"))
        self.assertIn("policy: none", self.config_of("no-remedies-seed5"))
        only = self.config_of("only-gradients-seed5")
        self.assertIn("scale: 64", only)
        self.assertRegex(only, r"activations: bf16")
        self.assertNotIn("masters: bf16", only)

    def test_what_is_refused(self):
        for more, words in ((["--parts", "hadamart"], "expected ingredients of r.yaml: forward, "),
                            (["--parts", "dw,dw"], "named twice"),
                            (["--set", "precision={format: bf16}"], "nothing to take apart"),
                            (["--seeds", "0"], "--seeds"), (["--steps", "99"], "--steps"),
                            (["--set", "output=x"], "ablate itself sets it")):
            with self.subTest(more=more):
                self.assertIn(words, self.ablate(*more, code=2))
        self.assertFalse((self.folder / "a").exists())

    @unittest.skipUnless(os.environ.get("ADA_SLOW"), "trains a GPT ten times; ADA_SLOW=1")
    def test_planted_ingredients_of_a_gpt(self):
        """dw.dy in fp8 without a scale loses most gradients; forward.x is bf16 already."""
        text = self.folder / "text.txt"
        licenses = pathlib.Path("/usr/share/common-licenses")  # of Debian's base-files
        text.write_text("".join((licenses / name).read_text("utf-8")
                                for name in ("GPL-2", "GPL-3", "LGPL-2.1", "GFDL-1.3")), "utf-8")
        (self.folder / "gpt.yaml").write_text(GPT.format(text=text), encoding="utf-8")
        found = json.loads(self.ablate("--seeds", "1", "--parts", "forward.x,dw.dy", "--json",
                                       config="gpt.yaml"))
        useless, harmful = found["ingredients"]
        self.assertEqual(useless["says"], "free")
        self.assertEqual(useless["left_out"]["mean"], 0)
        self.assertEqual(harmful["says"], "costs", found)
        self.assertGreater(harmful["left_out"]["mean"], 10 * found["noise"])
        self.assertRegex(found["sentence"], r"it costs most: dw\.dy .*no effect is seen of forward\.x")


if __name__ == "__main__":
    unittest.main()
