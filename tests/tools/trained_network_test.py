"""tools/to_torch.py and tools/to_onnx.py: a module that ada-train trained is the same in PyTorch and
in onnxruntime. Needs torch, and onnx with onnxruntime for the second; where this Python has none,
the one that ADA_BENCH_PYTHON names runs the commands."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import network_step  # noqa: E402
import torch_commands  # noqa: E402

BINARY = os.environ.get("ADA_BINARY")
MODULES = '''
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """Every kind of layer that an image can go through."""

    def __init__(self, classes=5):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.groups, self.layer, self.lrn = nn.GroupNorm(2, 8), nn.LayerNorm(8), \\
            nn.LocalResponseNorm(3)
        self.b = nn.Conv2d(8, 8, 3, 2, 1, groups=4, bias=False)
        self.gate, self.squeeze = nn.Linear(8, 8), nn.Linear(24, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.length = nn.Parameter(torch.full((8,), 20.0))
        self.idle, self.drop, self.fc = nn.Linear(2, 2), nn.Dropout(0.2), nn.Linear(8 * 4, classes)
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))

    def forward(self, x):
        x = F.gelu(self.norm(self.a(x - self.mean)))
        y = self.layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = x + 0.5 * F.silu(self.groups(y))
        x = F.max_pool2d(F.hardswish(x), 3, 2, 1, ceil_mode=True)
        x = self.length.view(1, -1, 1, 1) * F.normalize(self.lrn(x))
        x = F.interpolate(self.b(x), scale_factor=2)
        x = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        x = F.adaptive_avg_pool2d(x, (3, 2))
        x = F.hardsigmoid(x) * F.leaky_relu(x) * x.tanh()
        gate = torch.sigmoid(self.gate(x.mean((2, 3))))[:, :, None, None]
        x = self.scale * (x * gate)
        x = torch.cat([x, F.relu6(x[:, 2:6]), F.hardtanh(x), F.gelu(x[:, :4], approximate="tanh")], 1)
        x = F.relu(self.squeeze(x.mean((2, 3))))
        x = F.adaptive_avg_pool2d(F.interpolate(x[:, :, None, None], scale_factor=2), 2)
        return self.fc(self.drop(x.flatten(1)))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.place, self.kind = (nn.Conv2d(c, d, 3, 2, 1) for c, d in
                                         ((3, 8), (8, 16), (8, 24)))

    def forward(self, x):
        x = F.relu(self.a(x))
        return tuple(head(x).permute(0, 2, 3, 1).reshape(len(x), -1, values)
                     for head, values in ((self.place, 4), (self.kind, 6)))


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.slope, self.one = nn.Conv2d(3, 8, 3, 1, 1), nn.PReLU(8), nn.PReLU()
        self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1, groups=2)
        self.odd = nn.ConvTranspose2d(8, 2, (2, 4), 2, (0, 1), bias=False)
        self.out = nn.Conv2d(24, 5, 1)

    def forward(self, x):
        x = self.slope(F.max_pool2d(self.a(x), 2))
        return self.out(torch.cat([
            F.elu(self.up(x), 0.5), self.one(self.odd(x)), F.softplus(F.pixel_shuffle(x, 2), 2, 1),
            *(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)
              for corners in (False, True))], 1))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 1, 1), \\
            nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.b(self.b(self.a(x))).mean((2, 3)))
'''
COMPARE = '''
import sys


def main():
    """NAME KIND WEIGHTS...: the largest difference of outputs, relative, and of what kind."""
    import importlib
    import numpy
    import torch
    from safetensors.torch import load_file
    sys.path.insert(0, ".")
    name, onnx, *files = sys.argv[1:]
    module = getattr(importlib.import_module("nets"), name)()
    for file in files:
        state = load_file(file) if file.endswith(".safetensors") else torch.load(file)
        module.load_state_dict(state, strict=True)
        torch.manual_seed(1)
        images = torch.randn(4, 3, 20, 20)
        with torch.no_grad():
            outputs = module.eval()(images)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        print(sum(float(o.abs().sum()) for o in outputs))
    if onnx != "-":
        import onnxruntime
        made = onnxruntime.InferenceSession(onnx).run(None, {"images": images.numpy()})
        assert len(made) == len(outputs)
        print(max(float(numpy.abs(a - b.numpy()).max() / numpy.abs(b.numpy()).max())
                  for a, b in zip(made, outputs)))
'''
RUN = """
model: {{file: {net}/net.yaml}}
data: {{dataset: synthetic, batch_size: 8,
  synthetic: {{height: 20, width: 20, channels: 3, classes: 5, train: 32, test: 8}}}}
optimizer: {{kind: sgd, lr: 0.01, momentum: 0.9}}
train: {{max_steps: 3, ema: {{decay: 0.5}}}}
checkpoint: {{best: false}}
"""
ZOO = RUN.replace("file: {net}/net.yaml", "zoo: mlp, hidden: [8]")


@unittest.skipUnless(BINARY, "ADA_BINARY names no program")
@unittest.skipUnless(torch_commands.has("torch", "yaml", "safetensors"),
                     "torch, safetensors or PyYAML are missing (ADA_BENCH_PYTHON)")
class Trained(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "nets.py").write_text(MODULES)
        (self.folder / "compare.py").write_text(COMPARE)
        (self.folder / "run.yaml").write_text(RUN.format(net="Net"))

    def tools(self, *commands):
        done = torch_commands.run_all([c.split() for c in commands], self.folder)
        for command, (code, _, told) in zip(commands, done):
            self.assertEqual(code, 0, f"{command}: {told}")
        return [out for _, out, _ in done]

    def train(self, config="run.yaml"):
        network_step.call(os.path.realpath(BINARY),
                          ["train", config, "--output", "run", "--no-progress"], self.folder)

    def compare(self, *words):
        sys_path = str(self.folder)
        code, out, told = torch_commands.run_all([["compare", *words]], sys_path)[0]
        self.assertEqual(code, 0, told)
        return [float(line) for line in out.split()]

    def test_a_trained_module_goes_back(self):
        self.tools("from_torch nets:Net --input 3x20x20 --output Net")
        self.train()
        out = self.tools("to_torch run --net Net --output a.safetensors",
                         "to_torch run --net Net --output a.pt",
                         "to_torch run --average --net Net --output b.safetensors")
        self.assertIn("of run/checkpoints/step-00000003.safetensors", out[0])
        first, again, average = self.compare("Net", "-", "a.safetensors", "a.pt", "b.safetensors")
        self.assertEqual(first, again)
        self.assertNotEqual(first, average)

    @unittest.skipUnless(torch_commands.has("onnx", "onnxruntime"),
                         "onnx or onnxruntime are missing (ADA_BENCH_PYTHON)")
    def test_onnxruntime_gives_what_pytorch_gives(self):
        self.tools("from_torch nets:Net --input 3x20x20 --output Net")
        self.train()
        self.tools("to_torch run --net Net --output a.safetensors", "to_onnx run --output a.onnx")
        self.assertLess(self.compare("Net", "a.onnx", "a.safetensors")[-1], 1e-5)

    @unittest.skipUnless(torch_commands.has("onnx", "onnxruntime"),
                         "onnx or onnxruntime are missing (ADA_BENCH_PYTHON)")
    def test_segmenters_and_detectors_as_onnx(self):
        """Of first weights, under the name of a run's checkpoint."""
        self.tools("from_torch nets:Net --input 3x20x20 --output Net")
        self.train()
        state = (self.folder / "run/checkpoints/step-00000003.json").read_text()
        for name in ("Segmenter", "Detector"):
            with self.subTest(name):
                self.tools(f"from_torch nets:{name} --input 3x20x20 --output {name}")
                shutil.copy(self.folder / name / "net.safetensors", self.folder / "c.safetensors")
                (self.folder / "c.json").write_text(state)
                self.tools(f"to_torch c.safetensors --net {name} --output d.safetensors",
                           f"to_onnx c.safetensors --model {name}/net.yaml --output d.onnx")
                self.assertLess(self.compare(name, "d.onnx", "d.safetensors")[-1], 1e-5)

    def refused(self, command):
        code, _, told = torch_commands.run_all([command.split()], self.folder)[0]
        return code, told

    def test_what_does_not_fit_is_said(self):
        self.tools("from_torch nets:Net --input 3x20x20 --output Net",
                   "from_torch nets:Shared --untie --input 3x20x20 --output Shared")
        (self.folder / "run.yaml").write_text(RUN.format(net="Shared"))
        self.train()
        for command, code, words in (
                ("to_torch run --net Net -o a.safetensors", 3, "the checkpoint has no "),
                ("to_torch run --net Shared -o a.safetensors", 3,
                 "b.weight: b.weight and b_2.weight, which shared it, were trained apart"),
                ("to_torch run --best --net Shared -o a.safetensors", 3, "no best.safetensors"),
                ("to_torch nowhere -o a.safetensors", 3, "nowhere: no such file or folder"),
                ("to_torch run -o run/checkpoints/step-00000003.safetensors", 2, "is what is read"),
                ("to_torch run -o run/checkpoints/a.safetensors", 2, "belongs to the run in "),
                ("to_torch run --net Shared -o Shared/torch.safetensors", 2, "is what is read"),
                ("to_onnx run -o run/steps.csv", 2, "belongs to the run in "),
                ("from_torch nets:Shared --untie --input 3x20x20 --output run/checkpoints", 2,
                 "belongs to the run in "),
                ("to_torch run -o a.txt", 2, "expected *.safetensors, *.pt or *.pth"),
                ("to_torch run --net Net/net.yaml -o a.pt", 3, "torch.safetensors")):
            with self.subTest(command):
                found, told = self.refused(command)
                self.assertEqual(found, code, told)
                self.assertIn(words, told)
        self.assertEqual([p.name for p in self.folder.glob("a.*")], [])
        network_step.call(os.path.realpath(BINARY), ["evaluate", "run"], self.folder)

    def test_names_of_a_network_of_the_zoo_are_pytorchs(self):
        (self.folder / "zoo.yaml").write_text(ZOO.format(net=""))
        self.train("zoo.yaml")
        out = self.tools("to_torch run --output a.safetensors")
        self.assertIn("a.safetensors: 4 tensors", out[0])
        found = network_step.Tensors(self.folder / "a.safetensors")
        self.assertEqual(sorted(found.entries), ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"])
        self.assertEqual(found["fc1.weight"].shape, (8, 1200))


if __name__ == "__main__":
    unittest.main()
