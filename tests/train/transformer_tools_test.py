"""What looks into a run knows transformers: names of parameters that are not LAYER.weight (a ViT's
in_proj_weight, class_token), tied weights, tokens as pixels of a column, decisions within attention."""
import csv
import os
import pathlib
import struct
import subprocess
import sys
import unittest

from tests.program_case import ProgramCase, rows_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY")
sys.path.insert(0, str(ROOT / "tests/tools"))
import safetensors_file  # noqa: E402

REST = """precision: {format: fp16}
optimizer: {kind: adamw, lr: 1.0e-3}
device: {kind: cpu, threads: 1}
"""
VIT = """data: {dataset: synthetic, batch_size: 4, synthetic: {height: 8, width: 8, train: 8, test: 4}}
model: {zoo: vit, layers: 1, heads: 1, width: 4, patch: 4}
""" + REST
GPT = """task: language
data: {dataset: text, path: text.txt, context: 8, batch_size: 4, validation: 0.2}
model: {zoo: gpt2, layers: 1, heads: 2, width: 8}
""" + REST
ATTENTION = "encoder.layers.encoder_layer_0.self_attention"


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
class TransformerToolsTest(ProgramCase):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text("a quick brown fox; " * 40)
        (self.folder / "vit.yaml").write_text(VIT)
        (self.folder / "gpt.yaml").write_text(GPT)

    def ask(self, *words, expect=0):
        done = subprocess.run([os.path.realpath(BINARY), *map(str, words)], capture_output=True,
                              text=True, errors="replace", cwd=self.folder, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def train(self, net, steps, *settings):
        self.ask("train", f"{net}.yaml", "--quiet", "--overwrite", "--output", "run", "--set",
                 f"train.max_steps={steps}", "log.every=1", *settings)

    def test_patches_that_leave_rows_out_are_refused(self):
        told = self.ask("train", "vit.yaml", "--dry-run", "--set", "model.patch=3", expect=2)
        self.assertIn("model.patch: 3 does not divide images of 8x8 pixels", told)

    def test_vit_is_dumped_and_probed(self):
        self.train("vit", 2, "log.dump_every=2", "log.probe_every=1", "log.histogram_every=1",
                   "log.what_if=[{format: nvfp4}]", "log.statistics=[w, dw]")
        dump = safetensors_file.read(self.folder / "run/dump/step-00000002.safetensors")
        self.assertEqual(dump[f"{ATTENTION}.in_proj.w"][0], [12, 4])
        probed = {(row["layer"], row["tensor"]) for row in rows_of(self.folder / "run/probes.csv")}
        self.assertIn((f"{ATTENTION}.in_proj", "w"), probed)
        self.assertIn((f"{ATTENTION}.in_proj", "dw"), probed)
        judged = {row["layer"] for row in rows_of(self.folder / "run/what_if_blocks.csv")}
        self.assertIn(f"{ATTENTION}.in_proj", judged)

    def test_vit_updates_have_rows_of_layers(self):
        self.train("vit", 1, "precision.masters=bf16", "precision.optimizer_state=bf16",
                   "log.statistics=[update]")
        found = {(row["layer"], row["tensor"]) for row in rows_of(self.folder / "run/underflow.csv")}
        for layer in ("class_token", "encoder.pos_embedding", f"{ATTENTION}.in_proj"):
            self.assertIn((layer, "update"), found)
            self.assertIn((layer, "master"), found)
        self.assertNotIn("encoder", {layer for layer, _ in found})

    def test_a_dump_of_a_text_is_read(self):
        self.train("gpt", 1, "log.dump_every=1", "scaling={policy: fixed, scale: 64}")
        dump = self.folder / "run/dump/step-00000001.safetensors"
        tensors = safetensors_file.read(dump)
        self.assertEqual(tensors["lm_head.w"], tensors["transformer.wte.w"])  # the tied weight
        shown = self.ask("inspect", dump, "--csv", "scales")
        self.assertIn("lm_head,", shown)
        self.assertIn("transformer.h.0.attn.c_attn,", shown)
        self.assertIn("attention decides for its dv, ds, dq and dk", shown)
        counts = list(csv.DictReader(self.ask("inspect", dump, "--csv", "counts").splitlines()))
        carried = {row["tensor"]: float(row["scale"]) for row in counts}
        for tensor in ("dq", "dk", "dv"):
            self.assertEqual(carried[f"transformer.h.0.attn.{tensor}"], 64)
        judged = list(csv.DictReader(self.ask("what-if", "--dump", dump, "--format", "mxfp4",
                                              "--csv").splitlines()))
        self.assertEqual(sum(row["layer"] == "lm_head" for row in judged), 6)
        self.assertNotIn("transformer.wte", {row["layer"] for row in judged})

    def test_scales_of_blocks_are_no_tensors_of_layers(self):
        self.train("gpt", 1, "log.dump_every=1", "precision.operands=nvfp4")
        dump = self.folder / "run/dump/step-00000001.safetensors"
        names = set(safetensors_file.read(dump))
        self.assertIn("lm_head.forward.w.scales", names)
        counts = self.ask("inspect", dump, "--csv", "counts")
        self.assertNotIn(".scales,", counts)
        self.assertIn("lm_head.forward.w.scales,",
                      self.ask("inspect", dump, "--csv", "counts", "--tensors", "*.scales"))

    def test_generate_with_a_configuration_of_ones_own(self):
        self.train("gpt", 1)
        words = ("generate", "run", "--prompt", "a", "--tokens", "3", "--temperature", "0")
        self.assertEqual(self.ask(*words, "--config", "gpt.yaml"), self.ask(*words))

    def test_a_tied_weight_in_a_file_of_weights(self):
        self.train("gpt", 1)
        checkpoint = next((self.folder / "run/checkpoints").glob("step-*.safetensors"))
        weights = {name: tensor for name, tensor in safetensors_file.read(checkpoint).items()
                   if not name.startswith("optimizer.")}
        wanted, = [line for line in self.ask("evaluate", "run").splitlines()
                   if line.startswith("validation,")]
        embedding = weights.pop("transformer.wte.weight")
        other = (embedding[0], struct.pack("<f", 1) + embedding[1][4:])
        for name, tensors in {
                "other_name": {"lm_head.weight": embedding},
                "both": {"transformer.wte.weight": embedding, "lm_head.weight": embedding}}.items():
            with self.subTest(name):
                safetensors_file.write(self.folder / f"{name}.safetensors", {**weights, **tensors})
                said = self.ask("evaluate", "--config", "gpt.yaml", "--checkpoint",
                                f"{name}.safetensors")
                self.assertIn(wanted, said)
                self.assertNotIn("not used", said)
        safetensors_file.write(self.folder / "differ.safetensors",
                               {**weights, "transformer.wte.weight": embedding,
                                "lm_head.weight": other})
        said = self.ask("evaluate", "--config", "gpt.yaml", "--checkpoint", "differ.safetensors",
                        expect=3)
        self.assertIn("transformer.wte.weight and lm_head.weight differ", said)

    def test_outputs_of_a_text_are_those_of_validation(self):
        self.train("gpt", 1)
        self.ask("evaluate", "run", "--outputs", "outputs.safetensors")
        shape, _ = safetensors_file.read(self.folder / "outputs.safetensors")["outputs"]
        self.assertEqual(shape[1:], [8, 256])
        self.assertGreater(shape[0], 0)

    def test_an_entry_of_scaling_layers_reaches_the_decisions_of_an_attention(self):
        for pattern, reached in (("*.attn", True), ("*.attn.ds", False)):
            self.train("gpt", 1, "scaling={policy: adaptive, init_scale: 64, layers: "
                       f"[{{match: '{pattern}', method: fixed, scale: 4}}]}}")
            scales = {row["layer"]: row["limit"] for row in rows_of(self.folder / "run/scales.csv")}
            decisions = [scales[f"transformer.h.0.attn.{name}"] for name in ("dv", "dq", "dk")]
            self.assertEqual(len(set(decisions)), 1)
            self.assertEqual(decisions[0] == scales["transformer.h.0.attn.ds"], reached)

    def test_attention_has_lines_in_watch_and_compare(self):
        self.train("gpt", 2, "precision.gradients=fp8_e5m2")
        watched = [line.split() for line in self.ask("watch", "run", "--once").splitlines()
                   if line.startswith("transformer.h.0.attn.d")]
        self.assertGreaterEqual({line[0].rsplit(".", 1)[1] for line in watched},
                                {"dv", "ds", "dq", "dk"})
        for line in watched:
            if not line[0].endswith((".c_attn", ".c_proj")):
                self.assertNotEqual(line[2], "-")
        self.ask("train", "gpt.yaml", "--quiet", "--output", "other", "--set", "train.max_steps=2",
                 "log.every=1", "precision.gradients=fp16")
        self.assertIn("transformer.h.0.attn.dk", self.ask("compare", "run", "other", "--all"))


if __name__ == "__main__":
    unittest.main()
