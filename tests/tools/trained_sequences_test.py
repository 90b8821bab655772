"""tools/to_onnx.py of transformers, of the zoo, in layers of one's own and from from_torch.py: onnxruntime
gives the logits of `evaluate`. Needs onnx and onnxruntime (ADA_BENCH_PYTHON), torch where it is named."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import network_step  # noqa: E402
import torch_commands  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("ADA_BINARY")
TOKENS, VOCABULARY = 12, 20
COMPARE = '''
import sys


def main():
    """FILE INPUTS LOGITS SHORTER: the largest difference of logits, relative; of SHORTER tokens too."""
    import numpy
    import onnxruntime
    from safetensors.numpy import load_file
    file, given, logits, shorter = sys.argv[1:]
    given, wanted = load_file(given), load_file(logits)["outputs"]
    if "test.tokens" in given:
        name, x = "tokens", given["test.tokens"].astype(numpy.int64)
    else:
        name, x = "images", given["test.images"].transpose(0, 3, 1, 2)
    session = onnxruntime.InferenceSession(file)

    def far(made, wanted):
        return numpy.abs(made - wanted).max() / numpy.abs(wanted).max()
    made, = session.run(None, {name: x})
    wanted = wanted.reshape(made.shape)
    print(far(made, wanted))
    if int(shorter):
        print(far(session.run(None, {name: x[:1, :int(shorter)]})[0], wanted[:1, :int(shorter)]))
'''
LANGUAGE = f"""
task: language
data: {{dataset: tensors, path: tokens.safetensors, batch_size: 4, evaluate_batch_size: 4}}
optimizer: {{kind: adamw, lr: 0.01}}
train: {{max_steps: 3}}
device: {{kind: cpu, threads: 1}}
model: {{init: {{scheme: normal, std: 0.3}}, classes: {VOCABULARY}, """
IMAGES = """
data: {dataset: tensors, path: images.safetensors, batch_size: 4, evaluate_batch_size: 4, normalize: none}
optimizer: {kind: adamw, lr: 0.01}
train: {max_steps: 3}
device: {kind: cpu, threads: 1}
model: {init: {scheme: normal, std: 0.3}, classes: 4, """
OWN = """layers: [
  {name: tokens, kind: embedding, vocabulary: 20, features: 16}, {name: q, kind: linear, features: 16},
  {name: k, kind: linear, inputs: [tokens], features: 8}, {name: v, kind: linear, inputs: [tokens], features: 8},
  {name: turned, kind: rope, inputs: [q], heads: 4}, {name: turned_k, kind: rope, inputs: [k], heads: 2, rotary: 2},
  {name: see, kind: attention, inputs: [turned, turned_k, v], heads: 4, kv_heads: 2, causal: true},
  {name: norm, kind: layer_norm, bias: false}, {name: share, kind: softmax},
  {name: sum, kind: add, inputs: [share, norm]},
  {name: first, kind: linear, features: 16}, {name: again, kind: linear, features: 16, weight_of: first},
  {name: logits, kind: linear, features: classes}]}"""
NETWORKS = {
    "gpt2": LANGUAGE + "zoo: gpt2, layers: 2, width: 16, heads: 2, dropout: 0.1}",
    "gpt2 of its own weights": LANGUAGE + "zoo: gpt2, layers: 1, width: 16, heads: 3, kv_heads: 1, head_dim: 4, "
    "hidden: 24, context: 40, tied: false, bias: false, approximate: none}",
    "llama": LANGUAGE + "zoo: llama, layers: 2, width: 16, heads: 4, kv_heads: 2}",
    "llama of other rotations": LANGUAGE + "zoo: llama, layers: 1, width: 24, heads: 3, tied: true, "
    "rope: {pairing: interleaved, base: 100, rotary: 4}}",
    "layers": LANGUAGE + OWN,
    "vit": IMAGES + "zoo: vit, layers: 2, width: 16, heads: 2}"}


@unittest.skipUnless(BINARY, "ADA_BINARY names no program")
@unittest.skipUnless(torch_commands.has("torch", "onnx", "onnxruntime", "yaml", "safetensors"),
                     "torch, onnx, onnxruntime, safetensors or PyYAML are missing (ADA_BENCH_PYTHON)")
class Sequences(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "compare.py").write_text(COMPARE)
        random = numpy.random.default_rng(0)
        tokens = random.integers(0, VOCABULARY, [8, TOKENS + 1]).astype(numpy.int32)[:, :TOKENS]
        network_step.write_arrays(self.folder / "tokens.safetensors",
                                   {"train.tokens": tokens, "test.tokens": tokens[:4]})
        network_step.write_images(self.folder / "images.safetensors",
                                  random.normal(size=[4, 3, 8, 8]).astype(numpy.float32), [0, 1, 2, 3])

    def compare(self, runs):
        """runs: name -> (data, how many tokens to try alone, 0: none)."""
        for run in runs:
            network_step.call(os.path.realpath(BINARY), ["evaluate", run, "--outputs", f"{run}.outputs",
                                                         "--no-progress"], self.folder)
        done = torch_commands.run_all(
            [["to_onnx", run, "--output", f"{run}.onnx"] for run in runs]
            + [["compare", f"{run}.onnx", given, f"{run}.outputs", str(shorter)]
               for run, (given, shorter) in runs.items()], self.folder)
        for run, written, compared in zip(runs, done, done[len(runs):]):
            with self.subTest(run):
                self.assertEqual(written[0], 0, written[2])
                self.assertEqual(compared[0], 0, compared[2])
                self.assertLess(max(map(float, compared[1].split())), 1e-5)

    def train(self, text, run):
        (self.folder / "run.yaml").write_text(text)
        network_step.call(os.path.realpath(BINARY), ["train", "run.yaml", "--output", run, "--no-progress"],
                          self.folder)

    def test_onnxruntime_gives_what_evaluate_gives(self):
        for name, text in NETWORKS.items():
            self.train(text, name)
        self.compare({name: ("images.safetensors", 0) if name == "vit" else ("tokens.safetensors", 5)
                      for name in NETWORKS})

    def test_networks_from_torch(self):
        shutil.copy(HERE / "from_torch_sequences.py", self.folder)
        names = ("head_by_head_rotated_in_part", "Rotary", "GPT", "ViT", "Pooled", "Distilled")
        images = ("ViT", "Pooled", "Distilled")
        random = numpy.random.default_rng(1)
        network_step.write_images(self.folder / "pictures", random.normal(size=[4, 3, 32, 32]).astype(numpy.float32),
                                  [0, 1, 2, 4])
        tokens = random.integers(0, 30, [4, 10]).astype(numpy.int32)
        network_step.write_arrays(self.folder / "words", {"train.tokens": tokens, "test.tokens": tokens})
        done = torch_commands.run_all([["from_torch", f"from_torch_sequences:{name}", *(
            ["--input", "32"] if name in images else ["--tokens", "10"]), "--output", name] for name in names],
            self.folder)
        for name, (code, _, told) in zip(names, done):
            self.assertEqual(code, 0, told)
            given, task, more = ("pictures", "classification", ", normalize: none") if name in images else (
                "words", "language", "")
            self.train(f"task: {task}\nmodel: {{file: {name}/net.yaml}}\n"
                       f"data: {{dataset: tensors, path: {given}, batch_size: 4, evaluate_batch_size: 4{more}}}\n"
                       "optimizer: {lr: 0.1}\ntrain: {max_steps: 2}\n", f"run of {name}")
        self.compare({f"run of {name}": ("pictures" if name in images else "words", 0) for name in names})

    def test_what_cannot_be_written_is_said_in_a_sentence(self):
        self.train(LANGUAGE + "zoo: gpt2, layers: 1, width: 8, heads: 1}", "run")
        sections = {
            "model: {zoo: resnet20, classes: 4}": "resnet20 of the zoo, whose layers the checkpoint does not hold",
            "model: {zoo: gpt2, layers: 2}": "model lacks width, heads",
            "model: {layers: 3}": "model has no list `layers`", "model: [1]": "`model` is no map",
            "model: {layers: [{name: a, kind: external}]}": "a: kind external has no node in ONNX here",
            "model: {layers: [{name: a, kind: linear}]}": "a: kind linear lacks the key 'features'",
            "model: {layers: [{name: a, kind: relu, inputs: [b]}]}": "its input b is no layer before it",
            "model: {layers: [5]}": "no network that can be written",
            "model: {layers: [{kind: relu}]}": "no network that can be written"}
        commands = []
        for i, text in enumerate(sections):
            (self.folder / f"{i}.yaml").write_text(text)
            commands.append(["to_onnx", "run", "--model", f"{i}.yaml", "--output", "a.onnx"])
        for (text, words), (code, _, told) in zip(sections.items(), torch_commands.run_all(commands, self.folder)):
            with self.subTest(text):
                self.assertEqual(code, 3, told)
                self.assertIn(words, told)
                self.assertEqual(len(told.splitlines()), 1, told)
        (code, _, told), = torch_commands.run_all([["to_onnx", "run", "--normalize", "--output", "a.onnx"]],
                                                  self.folder)
        self.assertEqual(code, 2, told)


if __name__ == "__main__":
    unittest.main()
