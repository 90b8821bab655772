"""tools/bench/bench.py --device cuda from start to end: the GPU and the programs are made up."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A step of so many seconds, from what --set says; 100 steps more in each row of timing.csv.
ADA = """#!/usr/bin/python3
import pathlib, sys
words = sys.argv[1:]
if "--version" in words:
    sys.exit(print("ada-train 0.0"))
values = " ".join(words[words.index("--set") + 1:])
assert "device.kind=cuda" in values, values
if "--dry-run" in words:
    print("fc linear 10 7850 0.016 fp16 -\\ntotal 7850 0.016")
    sys.exit()
seconds = 0.5 if "every: 1}" in values else 0.125 if "adaptive" in values else 0.1
folder = pathlib.Path(words[words.index("--output") + 1])
folder.mkdir(exist_ok=True)
(folder / "timing.csv").write_text(
    f"step,seconds\\n1,9\\n101,{100 * seconds}\\n201,{100 * seconds}\\n")
"""
# Answers as torch_worker.py does on a GPU: the mean step, which takes 0.2 s.
TORCH = """#!/usr/bin/python3
import json, sys
assert json.loads(sys.argv[-1])["device"] == "cuda", sys.argv
print(json.dumps({"torch": "0.0", "import_mib": 5.0, "parameters": 7850,
                  "forward_flop": 15680}), flush=True)
for line in sys.stdin:
    print(json.dumps({"seconds": [0.2], "peak_mib": 7.0}), flush=True)
"""
NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA Test, 1.2'\n"


class BenchDeviceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def bench(self, *words):
        environment = {**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin"}
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "bench" / "bench.py", "--device", "cuda",
             "--program", self.script("ada", ADA), "--python", self.script("torch", TORCH),
             "--models", "mlp", "--batch", "32", "--rounds", "2", "--ada-steps", "201", *words],
            capture_output=True, text=True, check=False, env=environment)

    def test_without_a_gpu_it_says_so(self):
        self.script("nvidia-smi", "#!/bin/sh\necho 'no driver'\nexit 9\n")
        done = self.bench()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "bench.py: --device cuda: nvidia-smi finds no GPU on this "
                                      "machine; nothing was measured\n")
        self.assertEqual(done.stdout, "")

    def test_comparison(self):
        self.script("nvidia-smi", NVIDIA_SMI)
        done = self.bench("--modes", "ada-fp16,ada-fp16-tuned,ada-bf16,torch-fp16,"
                          "torch-fp16-graphed")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NVIDIA Test, driver 1.2; ada-train 0.0, PyTorch 0.0, channels_last; median "
                      "of 2 rounds", done.stdout)
        self.assertIn("| ada-train fp16, adaptive | 256 | 256, 256 | 1.60 | 1.60 |", done.stdout)
        self.assertIn("| ada-train fp16, adaptive, autotune | 256 |", done.stdout)
        self.assertIn("| ada-train bf16 | 320 | 320, 320 | 2.00 | 2.00 |", done.stdout)
        self.assertIn("| PyTorch fp16 autocast, CUDA graph | 160 | 160, 160 | 1.00 | 1.00 |",
                      done.stdout)

    def test_costs(self):
        self.script("nvidia-smi", NVIDIA_SMI)
        done = self.bench("--policy-cost")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| none, nothing counted | 320 | +0.0 | +0.0, +0.0 |", done.stdout)
        self.assertIn("| none, statistics every 100 steps | 320 | base |  |", done.stdout)
        self.assertIn("| none, statistics every step | 64.0 | +400.0 |", done.stdout)
        self.assertIn("| adaptive, exact_range | 256 | +25.0 | +25.0, +25.0 |", done.stdout)


if __name__ == "__main__":
    unittest.main()
