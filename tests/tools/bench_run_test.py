"""tools/bench/bench.py from start to end, with the real ada-train and a PyTorch that is made up."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import ada_runs  # noqa: E402
import models  # noqa: E402
import png_file  # noqa: E402

ADA = os.environ.get("ADA_BINARY", ROOT / "build" / "ada-train")
# 8 x 8 pixels; as a label image of class 0.
BLACK = png_file.png(8, 8, bytes(64))
# Answers as torch_worker.py does; every step takes 2 ms.
TORCH = """#!/usr/bin/python3
import json, sys
print(json.dumps({{"torch": "0.0", "import_mib": 5.0, "parameters": {parameters},
                  "forward_flop": {flop}, "layers": {layers}}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"seconds": [0.002] * int(line), "peak_mib": 7.0}}), flush=True)
"""
PEAK = "#!/bin/sh\necho '{\"fma\": 100.0, \"copy\": 10.0}'\n"


class BenchRunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def script(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def bench(self, *words, parameters=235146, flop=469504, layers=None):
        torch = self.script("torch", TORCH.format(parameters=parameters, flop=flop,
                                                  layers=layers or {}))
        peak = self.script("peak", PEAK)
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "bench" / "bench.py", "--program", ADA, "--python",
             torch, "--peak", peak, "--models", "mlp", "--ada-steps", "12", "--batch", "32",
             "--rounds", "1", "--threads", "1", *words], capture_output=True, text=True,
            check=False)

    def test_comparison(self):
        done = self.bench("--modes", "ada-fp16,ada-bf16,ada-fp32,torch-fp32,torch-counted")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| MLP")]
        self.assertEqual(len(rows), 5)
        self.assertIn("| PyTorch fp32 | 16,000 | 16,000, 16,000 | 1.00 | 1.00 | 16.1 | 16 % |  "
                      "| 7 (import torch: 5) |", rows[3])
        for row in rows[:3]:
            memory = int(re.search(r"\| (\d+) \|$", row).group(1))
            self.assertTrue(20 < memory < 2000, row)

    def test_scaling(self):
        done = self.bench("--scaling", "--threads", "2", "--modes", "ada-fp32,torch-fp32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| PyTorch fp32 | 16,000 | 16,000 | 1.00 |", done.stdout)

    def test_another_network_is_refused(self):
        done = self.bench("--modes", "torch-fp32", parameters=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ada-train has 235146 parameters", done.stderr)

    def gpt(self):
        """What PyTorch would say of its version of gpt2_jargon."""
        ada = ada_runs.AdaTrain(ADA, self.folder.name)
        network = ada.network(models.MODELS["gpt2_jargon"], 2)
        return {"parameters": 842496, "flop": 243269632, "layers": network.layers}

    def test_tokens_per_second(self):
        done = self.bench("--models", "gpt2_jargon", "--batch", "2", "--ada-steps", "3", "--modes",
                          "ada-fp16,torch-fp32", **self.gpt())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| mode | tokens/s |", done.stdout)
        self.assertIn("| PyTorch fp32 | 128,000 | 128,000, 128,000 | 1.00 | 1.00 | 730 |",
                      done.stdout)

    def test_layers_of_other_names_are_refused(self):
        gpt = self.gpt()
        gpt["layers"]["wte"] = gpt["layers"].pop("transformer.wte")
        done = self.bench("--models", "gpt2_jargon", "--modes", "torch-fp32", **gpt)
        self.assertEqual(done.returncode, 1)
        self.assertIn("layer transformer.wte: ada-train has 32768 parameters, PyTorch 0",
                      done.stderr)

    def test_log_cost(self):
        done = self.bench("--log-cost", "--config", "configs/mlp_mnist_fashion.yaml",
                          "--ada-steps", "13")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| y, w, dx, dy, dw | statistics every step |", done.stdout)

    def test_networks(self):
        """Every model of the table, and the parameters that PyTorch's version of it has."""
        for name in ("train", "trainannot", "test", "testannot"):
            folder = pathlib.Path(self.folder.name, "camvid", name)
            folder.mkdir(parents=True)
            for i in range(8):
                (folder / f"{i}.png").write_bytes(BLACK)
        self.enterContext(unittest.mock.patch.dict(os.environ, ADA_DATA=self.folder.name))
        ada = ada_runs.AdaTrain(ADA, self.folder.name)
        found = {name: ada.network(model, 8).parameters for name, model in models.MODELS.items()}
        self.assertEqual(found, {"resnet20": 269722, "resnet56": 853018, "vgg16": 14724042,
                                 "fashion": 224826, "lenet": 61706, "mlp": 235146,
                                 "mlp512": 669706,
                                 "resnet50": 25557032, "resnet18": 11689512, "mobilenet_v2": 3504872,
                                 "segnet_basic": 356811, "gpt2_jargon": 842496, "gpt2_jargon_tanh": 842496,
                                 "vit_cifar": 811146})


if __name__ == "__main__":
    unittest.main()
