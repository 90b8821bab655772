"""tools/from_torch.py: what it writes of small modules, and what it refuses. Needs torch; where this
Python has none, the one that ADA_BENCH_PYTHON names runs the command."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = os.environ.get("ADA_BENCH_PYTHON", sys.executable)
MODULES = '''
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding="same")
        self.gate = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.5))
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.conv(x))
        gate = torch.sigmoid(self.gate(y.mean([2, 3]))).view(-1, 4, 1, 1)
        return x + self.scale * (y * gate)


class Net(nn.Module):
    def __init__(self, classes=5, flat=True):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 2, stride=2)
        self.block = Block()
        self.drop = nn.Dropout(0.25)
        self.fc = nn.Linear(4 * 4 * 4, classes)
        self.idle = nn.Linear(2, 2)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        x = self.block(x)
        return self.fc(self.drop(x.reshape(x.shape[0], -1)))


class Detached(Net):
    def forward(self, x):
        with torch.no_grad():
            x = self.stem(x)
        return self.fc(x.flatten(1))


class Training(Net):
    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x) if self.training else torch.sigmoid(x)
        return self.fc(x.flatten(1))


class Sliced(Net):
    def forward(self, x):
        return self.fc(self.stem(x[:, :3]).flatten(1))


class Shared(Net):
    def forward(self, x):
        return self.fc(self.block(self.block(self.stem(x))).flatten(1))


class Softmax(Net):
    def __init__(self):
        super().__init__()
        self.out = nn.Softmax(1)

    def forward(self, x):
        return self.out(super().forward(x))


class Two(Net):
    def forward(self, x):
        y = super().forward(x)
        return (y, y * y) if self.training else y


def number():
    return 3
'''
NET = """\
model:
  classes: 6
  layers:
    - {name: stem, kind: conv2d, channels: 4, kernel: 2, stride: 2}
    - {name: gelu, kind: gelu}
    - {name: block.conv, kind: conv2d, channels: 4, kernel: 3, padding: 1}
    - {name: block.act, kind: relu}
    - {name: block.pool, kind: global_avg_pool}
    - {name: block.gate, kind: linear, features: 4}
    - {name: block.sigmoid, kind: sigmoid}
    - {name: block.multiply, kind: multiply, inputs: [block.act, block.sigmoid]}
    - {name: block.scale, kind: channel_scale, value: 0.5}
    - {name: block.add, kind: add, inputs: [gelu, block.scale]}
    - {name: drop, kind: dropout, rate: 0.25}
    - {name: fc, kind: linear, features: classes}
"""


def has_torch():
    try:
        return subprocess.run([TORCH, "-c", "import torch, yaml, safetensors"], check=False,
                              capture_output=True).returncode == 0
    except OSError:
        return False


@unittest.skipUnless(has_torch(), "torch, safetensors or PyYAML are missing (ADA_BENCH_PYTHON)")
class FromTorch(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "nets.py").write_text(MODULES)

    def convert(self, name, *more, size="3x8x8"):
        return subprocess.run(
            [TORCH, str(ROOT / "tools/from_torch.py"), f"nets:{name}", "--input", size, "--output",
             "net", *more], cwd=self.folder, capture_output=True, text=True, check=False)

    def test_a_module_of_ones_own(self):
        done = self.convert("Net", "--arg", "classes=6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out 2 tensors that the output does not need: idle.weight", done.stderr)
        lines = (self.folder / "net/net.yaml").read_text().splitlines(keepends=True)
        self.assertIn("init: {weights: net/net.safetensors, require_all: true}", lines[3])
        self.assertEqual("".join(lines[1:3] + lines[4:]), NET)
        self.assertTrue((self.folder / "net/net.safetensors").exists())

    def test_what_cannot_be_expressed_names_module_and_operation(self):
        for name, code, words in (
                ("Sliced", 3, "nets:Sliced: (the module itself): _operator.getitem"),
                ("Shared", 3, "block.conv: Conv2d: is called twice"),
                ("Softmax", 3, "out: Softmax: ada-train's loss takes logits"),
                ("Detached", 3, "stem.weight: gradient: another one reaches it in PyTorch"),
                ("Training", 3, "computes something else in evaluation"),
                ("Two", 3, "output: 2 of them in training (0, 1); --no-aux keeps the first"),
                ("number", 2, "nets:number gives int; expected a torch.nn.Module"),
                ("absent", 2, "nets:absent: module 'nets' has no attribute 'absent'")):
            with self.subTest(name):
                done = self.convert(name)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse((self.folder / "net").exists())

    def test_other_outputs_are_left_out_when_asked(self):
        done = self.convert("Two", "--no-aux", "--no-weights")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder / "net")), ["net.yaml"])

    def test_wrong_sizes(self):
        done = self.convert("Net", size="3x9x80")
        self.assertEqual(done.returncode, 3)
        self.assertIn("fails for this size of image", done.stderr)
        self.assertEqual(self.convert("Net", size="3x8").returncode, 2)

    @unittest.skipIf(os.environ.get("ADA_BINARY") is None, "ADA_BINARY names no program")
    def test_shapes_are_those_of_the_dry_run(self):
        done = self.convert("Net", "--check", os.path.realpath(os.environ["ADA_BINARY"]))
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
