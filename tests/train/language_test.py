"""Language models: what runs, evaluate and generate say of tokens, beside softmax and cross-entropy
worked out here from the logits; accumulation, resuming, and what is refused."""
import csv
import io
import json
import math
import os
import shutil
import subprocess
import unittest

from tests.program_case import ProgramCase
from tests.tools.safetensors_file import arrays, write_arrays

try:
    import numpy
except ImportError:
    numpy = None

BINARY = os.environ.get("ADA_BINARY")
VOCABULARY, CONTEXT = 11, 6

# What comes next depends on the present token alone.
NETWORK = """
seed: 3
device: {kind: cpu, threads: 1}
task: language
model:
  layers:
    - {name: wte, kind: embedding, vocabulary: %d, features: 8}
    - {name: gelu, kind: gelu}
    - {name: head, kind: linear, features: classes}
optimizer: {kind: adamw, lr: 0.01, no_decay: [vectors]}
output: run
"""
ROWS = NETWORK % VOCABULARY + """
data: {dataset: tensors, path: rows.safetensors, batch_size: 4, evaluate_batch_size: 3,
       shuffle: false}
train: {epochs: 2}
log: {every: 1}
"""
TEXT = NETWORK % 256 + """
data: {dataset: text, path: text.txt, context: 8, batch_size: 4, validation: 0.2}
train: {max_steps: 30}
checkpoint: {every_steps: 5, keep: 9, best: true}
log: {every: 5}
"""


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def cross_entropies(logits, targets):
    """Of each token with a target, in the order of the array; and whether it is the likeliest."""
    logits, targets = logits.reshape(-1, logits.shape[-1]).astype("f8"), targets.reshape(-1)
    counted = targets >= 0
    logits, targets = logits[counted], targets[counted]
    highest = logits.max(axis=1, keepdims=True)
    sums = numpy.log(numpy.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    return sums - logits[numpy.arange(len(targets)), targets], logits.argmax(axis=1) == targets


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
@unittest.skipIf(numpy is None, "numpy is missing")
class LanguageTest(ProgramCase):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(1)
        self.tokens = random.integers(0, VOCABULARY, (12, CONTEXT)).astype("uint8")
        self.targets = random.integers(0, VOCABULARY, (12, CONTEXT)).astype("int32")
        # Unevenly: the first half of a batch of four has few targets, the second most.
        self.targets[::4, 1:] = self.targets[1::4, 2:] = -100
        self.arrays = {"train.tokens": self.tokens, "train.targets": self.targets,
                       "test.tokens": self.tokens[:5], "test.targets": self.targets[:5]}
        write_arrays(self.folder / "rows.safetensors", self.arrays)
        words = b"the cat sat on the mat. a dog lay in the fog. "
        (self.folder / "text.txt").write_bytes(words * 30)

    def ada(self, *arguments, config=None, code=0):
        if config is not None:
            (self.folder / "net.yaml").write_text(config)
        done = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done

    def train(self, config, *more):
        return self.ada("train", "net.yaml", "--no-progress", *more, config=config)

    def steps(self, run="run"):
        return rows((self.folder / run / "steps.csv").read_text())

    def test_losses_are_means_over_the_counted_targets(self):
        self.ada("evaluate", "--config", "net.yaml", "--outputs", "start.safetensors", config=ROWS)
        start = arrays(self.folder / "start.safetensors")["outputs"]
        self.assertEqual(start.shape, (5, CONTEXT, VOCABULARY))
        self.train(ROWS)
        losses, hits = cross_entropies(start[:4], self.targets[:4])
        first = self.steps()[0]
        self.assertAlmostEqual(float(first["loss"]), losses.mean(), delta=1e-6)
        self.assertAlmostEqual(float(first["accuracy"]), hits.mean(), delta=1e-9)
        out = self.ada("evaluate", "run", "--outputs", "end.safetensors").stdout.decode()
        losses, hits = cross_entropies(
            arrays(self.folder / "end.safetensors")["outputs"], self.targets[:5])
        (row,) = rows(out)
        self.assertEqual((row["split"], row["images"]), ("test", "5"))
        self.assertAlmostEqual(float(row["loss"]), losses.mean(), delta=1e-6)
        self.assertAlmostEqual(float(row["top1"]), hits.mean(), delta=1e-9)
        self.assertAlmostEqual(float(row["perplexity"]), math.exp(losses.mean()), delta=1e-5)
        self.assertEqual(row["bits_per_byte"], "")
        (row,) = rows((self.folder / "run/evaluation.csv").read_text())[-1:]
        self.assertAlmostEqual(float(row["loss"]), losses.mean(), delta=1e-6)

    def test_parts_of_a_batch_share_one_mean(self):
        self.train(ROWS)
        whole = self.steps()
        self.train(ROWS, "--set", "train.accumulate=2", "output=parts")
        for one, other in zip(whole, self.steps("parts")):
            for column in ("loss", "accuracy", "grad_norm"):
                self.assertAlmostEqual(float(one[column]), float(other[column]),
                                       delta=2e-5 * max(1, float(one[column])), msg=column)

    def test_a_batch_without_targets_has_no_nan(self):
        self.targets[:4] = -100
        write_arrays(self.folder / "rows.safetensors", self.arrays)
        self.train(ROWS)
        first = self.steps()[0]
        self.assertEqual((first["loss"], first["accuracy"], first["grad_norm"]),
                         ("0.0", "0.0", "0.0"))
        events = rows((self.folder / "run/events.csv").read_text())
        self.assertEqual([(e["step"], e["layer"]) for e in events if e["event"] == "no_targets"],
                         [("1", "loss"), ("4", "loss")])
        self.assertIn("no token of the batch has a target (all are -100): its loss and its "
                      "gradients are given as 0", (self.folder / "run/events.csv").read_text())
        self.targets[:] = -100
        write_arrays(self.folder / "rows.safetensors", self.arrays)
        said = self.ada("evaluate", "run", code=3).stderr.decode()
        self.assertIn("rows.safetensors: no token of the sequences that are evaluated has a target",
                      said)

    def test_tensors_of_one_axis_are_spared_the_decay(self):
        # Without targets, which only the last batch has, AdamW does nothing but decay.
        targets = numpy.full_like(self.targets, -100)
        targets[-1, 0] = 1
        write_arrays(self.folder / "rows.safetensors", {**self.arrays, "train.targets": targets})
        config = ROWS.replace("optimizer:", "  init: {parameters: [{match: '*', scheme: constant, "
                              "value: 0.5}]}\noptimizer:")
        self.assertNotEqual(config, ROWS)
        self.train(config, "--set", "optimizer.weight_decay=0.5", "train.max_steps=2",
                   "evaluate.every_epochs=0", "data.limit={test: 0}",
                   "checkpoint.every_steps=1", "checkpoint.keep=3")
        after = self.folder / "run/checkpoints/step-00000001.safetensors"
        decayed = numpy.float32(0.5 * (1 - 0.01 * 0.5))
        for name in ("wte.weight", "head.weight"):
            self.assertTrue(numpy.allclose(arrays(after)[name], decayed, rtol=1e-7), name)
        self.assertTrue((arrays(after)["head.bias"] == 0.5).all())

    def test_a_text_is_learned_and_its_words_are_said(self):
        said = self.train(TEXT, "--set", "optimizer.lr=0.05").stdout.decode()
        self.assertRegex(said, r"30 steps \(0 skipped\) in [0-9:]+, [0-9]+ tokens/s")
        self.assertRegex(said, r"validation loss [0-9.]+, [0-9.]+ bits per byte, perplexity [0-9.]+"
                               r", accuracy [0-9.]+ %")
        (row,) = rows(self.ada("evaluate", "run").stdout.decode())
        loss = float(row["loss"])
        self.assertEqual(row["split"], "validation")
        self.assertLess(loss, 4)  # ln 256 = 5.5
        self.assertAlmostEqual(float(row["bits_per_byte"]), loss / math.log(2), delta=1e-6)
        summary = json.loads((self.folder / "run/summary.json").read_text())
        self.assertAlmostEqual(summary["evaluation"]["validation"]["bits_per_byte"],
                               loss / math.log(2), delta=1e-6)
        self.assertAlmostEqual(summary["tokens_per_second"], 8 * summary["images_per_second"],
                               delta=1e-6 * summary["tokens_per_second"])
        for line in rows((self.folder / "run/timing.csv").read_text()):
            self.assertAlmostEqual(float(line["tokens"]) / float(line["images_per_second"]), 8,
                                   delta=1e-6)

    def test_a_run_that_goes_on_has_the_bytes_of_one_that_never_stopped(self):
        self.train(TEXT)
        self.train(TEXT, "--set", "output=other", "train.max_steps=15")
        self.ada("train", "--resume", "other", "--no-progress", "--set", "train.max_steps=30")
        for name in ("steps.csv", "underflow.csv", "checkpoints/step-00000030.safetensors"):
            self.assertEqual((self.folder / "run" / name).read_bytes(),
                             (self.folder / "other" / name).read_bytes(), name)
        text = (self.folder / "text.txt").read_bytes()
        (self.folder / "text.txt").write_bytes(text.replace(b"cat", b"cow", 1))
        said = self.ada("train", "--resume", "other", "--no-progress", "--set",
                        "train.max_steps=31").stderr.decode()
        self.assertIn("the data set is no longer what the checkpoint was made with", said)

    def test_threads_and_workers_change_no_byte(self):
        self.train(TEXT)
        self.train(TEXT, "--set", "output=other", "device.threads=2", "data.workers=2")
        for name in ("steps.csv", "underflow.csv", "checkpoints/step-00000030.safetensors"):
            self.assertEqual((self.folder / "run" / name).read_bytes(),
                             (self.folder / "other" / name).read_bytes(), name)

    def test_the_smallest_loss_is_the_best(self):
        self.train(TEXT, "--set", "train={epochs: 3}", "checkpoint.every_steps=0")
        losses = [(float(row["loss"]), row["step"])
                  for row in rows((self.folder / "run/evaluation.csv").read_text())]
        self.assertGreaterEqual(len(losses), 3)
        best = json.loads((self.folder / "run/checkpoints/best.json").read_text())
        self.assertEqual(str(best["step"]), min(losses)[1])
        (row,) = rows(self.ada("evaluate", "run", "--best").stdout.decode())
        self.assertAlmostEqual(float(row["loss"]), min(losses)[0], delta=1e-6)

    def test_generate_takes_the_likeliest_token_of_the_logits(self):
        self.train(ROWS)
        (self.folder / "rows.safetensors").rename(self.folder / "moved.safetensors")
        told = self.ada("generate", "run", "--prompt-tokens", "3,4", "--tokens", "9",
                        "--temperature", "0").stdout.decode()
        tokens = [int(word) for word in told.split()]
        self.assertEqual(tokens[:2], [3, 4])
        self.assertEqual(len(tokens), 11)
        (self.folder / "moved.safetensors").rename(self.folder / "rows.safetensors")
        # The token after each one, from the logits of an evaluation of just this text.
        padded = numpy.array(tokens + [0], "uint8").reshape(2, CONTEXT)
        write_arrays(self.folder / "rows.safetensors", {
            **self.arrays, "test.tokens": padded, "test.targets": padded.astype("int32")})
        self.ada("evaluate", "run", "--outputs", "said.safetensors")
        likeliest = arrays(self.folder / "said.safetensors")["outputs"].argmax(axis=2)
        self.assertEqual(list(likeliest.reshape(-1)[1:10]), tokens[2:])

    def test_generate_draws_by_the_seed(self):
        self.train(TEXT)

        def text(*more, tokens=40):
            return self.ada("generate", "run", "--prompt", "the dög ", "--tokens", str(tokens),
                            *more).stdout.decode(errors="surrogateescape")

        first = text()
        self.assertTrue(first.startswith("the dög "), first)
        self.assertEqual(first, text("--seed", "1"))
        self.assertNotEqual(first, text("--seed", "2"))
        self.assertEqual(text("--temperature", "0"), text("--temperature", "0", "--seed", "2"))
        self.assertEqual(text(tokens=0).rstrip("\n"), "the dög ")
        # The bytes that were drawn, whether they are UTF-8 or not: one each, and a line end.
        self.assertEqual(len(os.fsencode(first)), len("the dög ".encode()) + 40 + 1)

    def test_what_generate_refuses(self):
        self.train(ROWS)
        for arguments, words in (
                (("--prompt", "a"), "--prompt: the model's tokens are numbers"),
                ((), "--prompt-tokens is missing"),
                (("--prompt-tokens", "11"), "11 is no token of the model; expected 0 to 10"),
                (("--prompt-tokens", "1,,x"), "--prompt-tokens: '1,,x'; expected whole numbers"),
                (("--prompt-tokens", "1,,2"), "at character 3 there stands ,"),
                (("--prompt-tokens", "1, ,2"), "at character 4 there stands ,"),
                (("--prompt-tokens", ",2"), "at character 1 there stands ,"),
                (("--prompt-tokens", "1,"), "at character 3 it ends"),
                (("--prompt-tokens", "1, "), "at character 4 it ends"),
                (("--prompt-tokens", "1 2x"), "at character 4 there stands x"),
                (("--prompt-tokens", "1", "--tokens", "-1"),
                 "--tokens -1: expected a whole number from 0 to 1e9"),
                (("--prompt-tokens", "1", "--tokens", "1.5"),
                 "--tokens 1.5: expected a whole number from 0 to 1e9"),
                (("--prompt-tokens", "1", "--seed", "-1"),
                 "--seed -1: expected a whole number from 0 to 2^53"),
                (("--prompt-tokens", "1", "--temperature", "-1"),
                 "--temperature -1: expected a number from 0 to 1e6")):
            with self.subTest(arguments=arguments):
                said = self.ada("generate", "run", *arguments, code=2).stderr.decode()
                self.assertIn(words, said)
        said = self.ada("predict", "cat.jpg", "--checkpoint", "run", code=2).stderr.decode()
        self.assertIn("is a language model; `ada-train generate` goes on with a text", said)
        # --set takes all that follows it, and gives back what is no KEY=VALUE.
        said = self.ada("predict", "--checkpoint", "run", "--set", "device.threads=1", "cat.jpg",
                        "dog.jpg", code=2).stderr.decode()
        self.assertIn("is a language model; `ada-train generate` goes on with a text", said)
        said = self.ada("generate", code=2).stderr.decode()
        self.assertIn("RUN is missing", said)

    def test_a_check_of_a_text_counts_sequences(self):
        done = self.ada("datasets", "--check", "net.yaml", config=TEXT)
        self.assertRegex(done.stdout.decode(), r"\(sequences\) +\d+ +\d+")
        self.assertNotIn("images", done.stdout.decode())

    def test_what_is_refused(self):
        said = self.ada("train", "net.yaml", "--set", "data.vocabulary=9", code=3,
                        config=ROWS).stderr.decode()
        self.assertRegex(said, r"rows.safetensors: tensor train.tokens: element \[\d+, \d+\] is "
                               r"(9|10); expected 0 to 8, the vocabulary")
        said = self.ada("evaluate", "--config", "net.yaml", "--per-class", code=2).stderr.decode()
        self.assertIn("--per-class: is for images, and the task is language", said)
        said = self.ada("evaluate", "--config", "net.yaml", "--set", "data.validation=0", code=2,
                        config=TEXT).stderr.decode()
        self.assertIn("there is nothing to evaluate", said)
        said = self.ada("train", "net.yaml", "--set", "data.context=2000", code=3).stderr.decode()
        self.assertIn("text.txt: split train has 1104 tokens, too few for one window of 2000", said)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        said = self.ada("train", "net.yaml", "--dry-run").stdout.decode()
        self.assertIn("137 training, 34 validation and 0 test sequences of 8 tokens", said)
        self.assertIn("steps     34 an epoch, 30 in all", said)

    def test_keys_that_are_probably_not_meant_are_warnings(self):
        config = TEXT.replace("    - {name: head, kind: linear, features: classes}",
                              """    - {name: qkv, kind: linear, features: 24}
    - {name: attn, kind: attention, heads: 2, inputs: [qkv]}
    - {name: head, kind: linear, features: classes, weight_of: wte, bias: false}
precision: {format: bf16, operands: {x: mxfp8_e4m3, tensor_scaling: current},
            layers: [{match: head, weights: fp16}]}""").replace("batch_size: 4,", "batch_size: 4, "
                                                               "limit: {test: 5},")
        warnings = [
            "precision.layers[].match: 'head': the weight of head is that of wte, whose format it "
            "keeps",
            "precision.operands.tensor_scaling has no effect: no operand has a plain format",
            "model.layers[].causal: attn sees the tokens that it is to predict (task: language); "
            "causal: true hides them",
            "data.limit.test has no effect: the data have no test split"]
        said = self.ada("train", "net.yaml", "--dry-run", config=config).stdout.decode()
        for line in warnings:
            self.assertIn(line, said)
        said = self.ada("train", "net.yaml", "--set", "train.max_steps=1").stderr.decode()
        for line in warnings:
            self.assertIn(line, said)
        quiet = config
        for there, then in (("heads: 2,", "heads: 2, causal: true,"), ("limit: {test: 5},", ""),
                            ("x: mxfp8_e4m3", "x: mxfp8_e4m3, w: fp8_e4m3"),
                            ("{match: head, weights: fp16}",
                             "{match: wte, format: fp16}, {match: head, weights: fp16}")):
            quiet = quiet.replace(there, then)
        said = self.ada("train", "net.yaml", "--dry-run", config=quiet).stdout.decode()
        self.assertNotIn("warning", said)

    def test_other_text_is_told_on_resume(self):
        self.train(TEXT)
        text = self.folder / "text.txt"
        text.write_bytes(text.read_bytes() + b"more of it. " * 20)
        said = self.ada("train", "net.yaml", "--resume", "--set",
                        "train.max_steps=32").stderr.decode()
        self.assertRegex(said, r"split train has \d+ samples, and had 137")
        self.assertNotIn("image", said)


if __name__ == "__main__":
    unittest.main()
