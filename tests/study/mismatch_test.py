"""`ada-train mismatch` beside NumPy: files of logits and of tokens' log-probabilities, a network
under two precisions, its layers; what is refused. With torch (ADA_BENCH_PYTHON) beside logits of
PyTorch in fp16 and bf16. ADA_BINARY names the program."""
import csv
import io
import json
import math
import os
import pathlib
import struct
import subprocess
import unittest

import numpy as np

from tests.program_case import BINARY, ProgramCase, SMALL_NETWORK

TORCH = os.environ.get("ADA_BENCH_PYTHON", "/opt/torch/bin/python")
CONFIG = SMALL_NETWORK.replace("test: 20", "test: 60") + """seed: 5
precision: {format: fp32}
train: {epochs: 1}
device: {kind: cpu}
"""
TORCH_LOGITS = """
import json, struct, sys, torch
torch.manual_seed(1)
torch.set_num_threads(2)
net = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 64), torch.nn.GELU(),
                          torch.nn.Linear(64, 50))
tokens = torch.randint(0, 50, (12, 20))
for name in ("float16", "bfloat16"):
    with torch.no_grad():
        logits = net.to(getattr(torch, name))(tokens).float()
    data = logits.numpy().tobytes()
    head = json.dumps({"logits": {"dtype": "F32", "shape": list(logits.shape),
                                  "data_offsets": [0, len(data)]}}).encode()
    open(f"{sys.argv[1]}/{name}.safetensors", "wb").write(
        struct.pack("<Q", len(head)) + head + data)
both = []
for name in ("float16", "bfloat16"):
    raw = open(f"{sys.argv[1]}/{name}.safetensors", "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    both.append(torch.frombuffer(bytearray(raw[8 + size:]), dtype=torch.float32)
                .reshape(12, 20, 50).double().log_softmax(-1))
p, q = both
kl = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)
print(json.dumps({"kl_mean": kl.mean().item(),
                  "agreement": (p.argmax(-1) == q.argmax(-1)).double().mean().item()}))
"""

# A network without biases, whose products PyTorch rounds where ada-train does, and its logits.
TORCH_NETWORK = """
import json, sys, torch
torch.manual_seed(1)
torch.set_num_threads(1)
def make():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(16 * 36, 10, bias=False))
if __name__ == "__main__":
    from safetensors.torch import load_file, save_file
    net = make()
    net.load_state_dict(load_file(sys.argv[1] + "/net/net.safetensors"))
    images = torch.randn(48, 3, 8, 8)
    labels = torch.arange(48) % 10
    arrays = {"images": images.permute(0, 2, 3, 1).contiguous(), "labels": labels}
    save_file({f"{split}.{name}": x.clone() for split in ("train", "test")
               for name, x in arrays.items()}, sys.argv[1] + "/batch.safetensors")
    with torch.no_grad():
        p, q = (torch.log_softmax(net.to(t)(images.to(t)).double(), -1)
                for t in (torch.float32, getattr(torch, sys.argv[2])))
    print(json.dumps(torch.nn.functional.kl_div(q, p, reduction="none", log_target=True)
                     .sum(-1).mean().item()))
"""


def write(path, **tensors):
    """A safetensors file of arrays."""
    head, data = {}, b""
    names = {"float32": "F32", "int64": "I64", "int32": "I32"}
    for name, array in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        raw = np.ascontiguousarray(array).tobytes()
        head[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape),
                      "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def log_softmax(logits):
    logits = logits.astype(np.float64)
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def standard_error(values):
    """Of the mean over all positions, [samples, positions]: samples are independent."""
    return values.mean(1).std(ddof=1) / math.sqrt(len(values))


class Mismatch(ProgramCase):
    def mismatch(self, *arguments, code=0, command="mismatch"):
        return self.words_of(command, *arguments, code=code)

    def figures(self, *arguments):
        rows = csv.DictReader(io.StringIO(self.mismatch(*arguments, "--csv")))
        return {(row["scope"], row["name"], row["figure"]): row for row in rows}

    def check(self, row, value, error=None, places=9):
        self.assertAlmostEqual(float(row["value"]), value, places=places)
        if error is not None:
            self.assertAlmostEqual(float(row["error"]), error, places=places)

    def test_logits_of_two_files(self):
        random = np.random.default_rng(3)
        a = random.normal(size=(40, 6, 30)).astype(np.float32)
        b = (a + 0.05 * random.normal(size=a.shape)).astype(np.float32)
        twin = (a + 0.001 * random.normal(size=a.shape)).astype(np.float32)
        tokens = random.integers(0, 30, size=(40, 6))
        tokens[3, 2] = -100
        write(self.folder / "a.safetensors", logits=a, tokens=tokens)
        write(self.folder / "b.safetensors", logprobs=log_softmax(b).astype(np.float32))
        write(self.folder / "twin.safetensors", outputs=twin)
        found = self.figures("a.safetensors", "b.safetensors", "--twin", "twin.safetensors")
        p, q = log_softmax(a), log_softmax(log_softmax(b).astype(np.float32))
        kl = (np.exp(p) * (p - q)).sum(-1)
        self.check(found["all", "", "kl_mean"], kl.mean(), standard_error(kl))
        self.check(found["all", "", "kl_p99"],
                   np.percentile(kl, 99, method="inverted_cdf"))
        self.check(found["all", "", "kl_max"], kl.max())
        agree = (p.argmax(-1) == q.argmax(-1)).astype(float)
        self.check(found["all", "", "agreement"], agree.mean(), standard_error(agree))
        of_twin = log_softmax(twin)
        self.assertAlmostEqual(float(found["all", "", "kl_mean"]["floor"]),
                               (np.exp(p) * (p - of_twin)).sum(-1).mean(), places=9)
        with self.subTest("differences are of the tokens; -100 has none"):
            known = tokens >= 0
            at = np.where(known, tokens, 0)[..., None]
            d = (np.take_along_axis(q, at, -1) - np.take_along_axis(p, at, -1))[..., 0]
            self.check(found["all", "", "difference_mean"], d[known].mean())
            self.check(found["all", "", "difference_abs_mean"], np.abs(d[known]).mean())
        with self.subTest("by position"):
            for t in range(6):
                self.check(found["position", str(t), "kl_mean"], kl[:, t].mean(),
                           kl[:, t].std(ddof=1) / math.sqrt(40))
        with self.subTest("the error of the percentile is that of resampled samples"):
            drawn = [np.percentile(kl[random.integers(0, 40, 40)], 99, method="inverted_cdf")
                     for _ in range(2000)]
            error = float(found["all", "", "kl_p99"]["error"])
            self.assertLess(abs(math.log(error / np.std(drawn))), math.log(1.5))
        with self.subTest("JSON has the same rows, and the table says them"):
            page = json.loads(self.mismatch("a.safetensors", "b.safetensors", "--json"))
            self.assertEqual(page["command"], "mismatch")
            self.assertAlmostEqual(page["rows"][0]["value"], kl.mean(), places=9)
            self.assertIn("kl_mean", self.mismatch("a.safetensors", "b.safetensors", "--table"))

    def test_log_probabilities_of_tokens(self):
        random = np.random.default_rng(4)
        a = (-3 * random.random((30, 8))).astype(np.float32)
        b = (a + 0.02 * random.normal(size=a.shape)).astype(np.float32)
        write(self.folder / "a.safetensors", token_logprobs=a)
        write(self.folder / "b.safetensors", token_logprobs=b)
        found = self.figures("a.safetensors", "b.safetensors")
        d = b.astype(np.float64) - a
        kl = np.exp(d) - 1 - d
        self.check(found["all", "", "kl_mean"], kl.mean(), standard_error(kl))
        self.check(found["all", "", "difference_mean"], d.mean(), standard_error(d))
        self.assertNotIn(("all", "", "agreement"), found)

    def test_a_network(self):
        (self.folder / "r.yaml").write_text(CONFIG, encoding="utf-8")
        self.mismatch("r.yaml", command="train")
        sides = ("fp16", "fp8_e4m3")
        found = self.figures("runs/r", "--precision", sides[0], "--precision", sides[1],
                             "--picture", "p.svg", "--samples", "60")
        outputs = []
        for side in sides:
            self.mismatch("runs/r", "--set", f"precision.format={side}", "--outputs",
                          f"{side}.safetensors", command="evaluate")
            outputs.append(f"{side}.safetensors")
        with self.subTest("predictions are those of evaluate"):
            files = self.figures(*outputs)
            for figure in ("kl_mean", "kl_p99", "kl_max", "agreement"):
                self.check(found["all", "", figure], float(files["all", "", figure]["value"]))
        with self.subTest("equal precision: half a unit of e4m3 is seen, one of fp32 is not"):
            self.assertGreater(float(found["all", "", "kl_mean"]["floor"]), 0)
            fp32 = self.figures("runs/r", "--precision", "fp32", "--precision", "fp32",
                                "--no-layers")
            self.assertLess(float(fp32["all", "", "kl_mean"]["floor"]), 1e-10)
        with self.subTest("layers: the first inherits from the input alone, e4m3 adds 2^-5 or so"):
            layers = [name for scope, name, figure in found
                      if scope == "layer" and figure == "apart"]
            self.assertEqual(layers, ["conv1", "fc1", "fc2"])
            for layer in layers:
                self.assertTrue(2**-7 < float(found["layer", layer, "adds_b"]["value"]) < 2**-3)
                self.assertLess(float(found["layer", layer, "adds_a"]["value"]), 2**-9)
            self.assertGreater(float(found["layer", "fc2", "inherits_b"]["value"]), 0)
        self.assertIn("<svg", (self.folder / "p.svg").read_text("utf-8"))
        with self.subTest("the same precision twice is no mismatch"):
            same = self.figures("runs/r", "--precision", "bf16", "--precision", "bf16",
                                "--no-layers")
            self.assertEqual(float(same["all", "", "kl_max"]["value"]), 0)

    def test_files_of_keys(self):
        """Sides in files are what the same words of `evaluate` are; of a file precision alone counts."""
        (self.folder / "r.yaml").write_text(CONFIG, encoding="utf-8")
        self.mismatch("r.yaml", command="train")
        files = {"a": "precision: {format: fp16, operands: {x: fp8_e4m3}}",
                 "b": "precision: {format: bf16, layers: [{match: fc1, activations: fp8_e4m3}]}",
                 "whole": CONFIG.replace("{format: fp32}", "{format: fp16, operands: {x: fp8_e4m3}}")
                          .replace("features: 16", "features: 99")}
        for name, text in files.items():
            (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        found = self.figures("runs/r", "--precision", "a.yaml", "--precision", "b.yaml",
                             "--samples", "60", "--no-layers")
        for name in ("a", "b"):
            self.mismatch("runs/r", "--set", files[name].replace(": ", "=", 1), "--outputs",
                          f"{name}.safetensors", command="evaluate")
        wanted = self.figures("a.safetensors", "b.safetensors")
        for figure in ("kl_mean", "kl_p99", "kl_max", "agreement"):
            self.check(found["all", "", figure], float(wanted["all", "", figure]["value"]))
        self.assertGreater(float(found["all", "", "kl_mean"]["value"]), 0)
        whole = self.run_program("mismatch", "runs/r", "--precision", "whole.yaml", "--precision",
                                 "a.yaml", "--csv", "--no-layers")
        self.assertIn("whole.yaml: name and what else is beside precision counts for nothing",
                      whole.stderr)
        self.assertIn("\nall,,kl_max,0,", whole.stdout.replace("0.0,", "0,"))
        for text, words in (("precision: {formt: fp16}", "x.yaml:1:13: precision.formt: unknown key"),
                            ("precision: {format: fp16", "x.yaml:1:12: this '{' is never closed"),
                            ("optimizer: {lr: 1}", "x.yaml: has no key of precision"),
                            ("format: fp16", "x.yaml: has no key of precision"),
                            ("", "is empty"), ("- a", "expected keys and values; got a list")):
            with self.subTest(text=text):
                (self.folder / "x.yaml").write_text(text, encoding="utf-8")
                self.assertIn(words, self.mismatch("runs/r", "--precision", "x.yaml", "--precision",
                                                   "bf16", code=2))
        self.assertIn("r.yaml: is a configuration", self.mismatch(
            "r.yaml", "--precision", "bf16", "--precision", "fp16", code=2))
        (self.folder / "x.yaml").write_text("precision: {layers: [{match: fc9, format: fp16}]}")
        told = subprocess.run([BINARY, "mismatch", "runs/r", "--precision", "x.yaml", "--precision",
                               "bf16", "--no-layers"], cwd=self.folder, capture_output=True,
                              text=True, check=True)
        self.assertIn("x.yaml:1:13: precision.layers[].match: 'fc9' matches no layer", told.stderr)

    def test_what_is_refused(self):
        a = np.zeros((4, 3), np.float32)
        write(self.folder / "a.safetensors", logits=a)
        write(self.folder / "b.safetensors", logits=a[:3])
        write(self.folder / "c.safetensors", other=a)
        bad = a.copy()
        bad[2, 1] = np.nan
        write(self.folder / "d.safetensors", logits=bad)
        for arguments, words, code in (
                (("a.safetensors", "b.safetensors"), "expected the same shape", 3),
                (("a.safetensors", "c.safetensors"), "no tensor logits", 3),
                (("a.safetensors", "d.safetensors"), "sample 2, position 0 is not finite", 3),
                (("a.safetensors",), "expected A.safetensors B.safetensors", 2),
                (("a.safetensors", "--precision", "bf16"), "expected two", 2),
                (("--precision", "bf61", "--precision", "bf16", "-c", "r.yaml"),
                 "did you mean bf16?", 2)):
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.mismatch(*arguments, code=code))

    @unittest.skipUnless(pathlib.Path(TORCH).exists(), "needs torch, in ADA_BENCH_PYTHON")
    def test_logits_of_pytorch(self):
        done = subprocess.run([TORCH, "-c", TORCH_LOGITS, str(self.folder)], capture_output=True,
                              text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "2"})
        self.assertEqual(done.returncode, 0, done.stderr)
        theirs = json.loads(done.stdout)
        found = self.figures("float16.safetensors", "bfloat16.safetensors")
        self.check(found["all", "", "kl_mean"], theirs["kl_mean"], places=10)
        self.check(found["all", "", "agreement"], theirs["agreement"])

    @unittest.skipUnless(pathlib.Path(TORCH).exists(), "needs torch, in ADA_BENCH_PYTHON")
    def test_a_network_from_pytorch(self):
        """Its logits in fp16 and bf16 lie as far from fp32 as PyTorch's own."""
        (self.folder / "mine.py").write_text(TORCH_NETWORK, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "ADA_PYTHON": TORCH,
                       "OMP_NUM_THREADS": "1"}
        made = subprocess.run([BINARY, "from-torch", "mine:make", "--input", "3x8x8", "--output",
                               "net"], cwd=self.folder, env=environment, capture_output=True,
                              text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.folder / "r.yaml").write_text(
            "data: {dataset: tensors, path: batch.safetensors, batch_size: 16, normalize: none}\n"
            "model: {file: net/net.yaml}\nscaling: {policy: none}\ndevice: {kind: cpu}\n",
            encoding="utf-8")
        for theirs, ours in (("float16", "fp16"), ("bfloat16", "bf16")):
            done = subprocess.run([TORCH, "mine.py", str(self.folder), theirs], cwd=self.folder,
                                  env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(self.mismatch("--config", "r.yaml", "--precision", "fp32",
                                             "--precision", ours, "--json"))
            kl = next(row["value"] for row in found["rows"]
                      if (row["scope"], row["figure"]) == ("all", "kl_mean"))
            self.assertAlmostEqual(kl / float(done.stdout), 1, delta=0.05)


if __name__ == "__main__":
    unittest.main()
