"""Recorded training steps of a GPT-2, a Llama and a ViT (tests/golden/text): losses, gradients, scales,
counts and weights. ADA_GOLDEN_TEXT_STEPS: a folder of such recordings (several: separated by colons), whose
cases are compared as well."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY")
sys.path.insert(0, str(ROOT / "tests/tools"))
try:
    import text_steps
except ImportError:
    text_steps = None


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
@unittest.skipIf(text_steps is None, "numpy is missing")
class TextSteps(unittest.TestCase):
    def compare(self, net):
        others = os.environ.get("ADA_GOLDEN_TEXT_STEPS", "")
        compared = 0
        for folder in [ROOT / "tests/golden/text", *filter(None, others.split(":"))]:
            for case in text_steps.CASES:
                if not (pathlib.Path(folder) / net / case).is_dir():
                    continue
                compared += 1
                with self.subTest(folder=str(folder), case=case):
                    found = text_steps.compare(os.path.realpath(BINARY), folder, net, case)
                    self.assertEqual(found.problems, [])
                    for what in ("loss 1", "grad_norm 1", "decisions", "rows"):
                        self.assertIn(what, found.worst)
        self.assertGreaterEqual(compared, 2)

    def test_gpt2(self):
        self.compare("gpt2")

    def test_llama(self):
        self.compare("llama")

    def test_vit(self):
        self.compare("vit")

    def test_a_tied_weight_may_be_in_the_file_twice(self):
        """With equal values; with others, or as an unknown tensor, it is an error."""
        import numpy
        import network_step
        with tempfile.TemporaryDirectory() as folder:
            recording = text_steps.Recording(ROOT / "tests/golden/text", "gpt2", "fp32")
            data = pathlib.Path(folder) / "data.safetensors"
            recording.write_data(data)
            config = recording.configuration(data)
            config["train"]["max_steps"] = 1
            weights = {name: recording.start[name] for name in recording.start.entries}
            embedding = weights["transformer.wte.weight"]
            config["model"]["init"]["weights"] = "twice.safetensors"
            losses = []

            def train(tensors):
                network_step.write_arrays(f"{folder}/twice.safetensors", tensors)
                pathlib.Path(folder, "step.yaml").write_text(text_steps.json.dumps(config))
                network_step.call(os.path.realpath(BINARY), [
                    "train", "step.yaml", "--output", "run", "--overwrite", "--no-progress"], folder)
                losses.append(text_steps.rows(f"{folder}/run/steps.csv")[0]["loss"])

            train(weights)
            train({**weights, "lm_head.weight": embedding})
            alone = {**weights, "lm_head.weight": embedding}
            alone.pop("transformer.wte.weight")
            train(alone)
            self.assertEqual(len(set(losses)), 1)
            with self.assertRaisesRegex(RuntimeError, "exit 3.*\n.*transformer.wte.weight and "
                                        "lm_head.weight differ"):
                train({**weights, "lm_head.weight": embedding + numpy.float32(1)})


if __name__ == "__main__":
    unittest.main()
