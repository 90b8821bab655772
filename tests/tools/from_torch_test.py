"""tools/from_torch.py: what it writes of small modules, and what it refuses. Needs torch; where this
Python has none, the one that ADA_BENCH_PYTHON names runs the command."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import network_step  # noqa: E402
import torch_commands  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("ADA_BINARY")
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


class Flipped(Net):
    def forward(self, x):
        return self.fc(self.stem(x.flip(3)).flatten(1))


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


def words(**given):
    assert given == {"a": None, "b": True, "c": False, "d": True, "e": "none"}, given
    return Net()
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


def logits_of(name, folder, size):
    """In evaluation, from ada-train and from PyTorch, of images drawn by torch."""
    commands = [["torch_logits", name, "net", size, "images.safetensors", "theirs.safetensors"]]
    shutil.copy(HERE / "torch_logits.py", folder)
    done = torch_commands.run_all(commands, folder)
    if done[0][0] != 0:
        raise RuntimeError(done[0][2])
    with open(os.path.join(folder, "step.yaml"), "w", encoding="utf-8") as file:
        file.write(network_step.configuration("net/net.yaml", "net/net.safetensors",
                                              "images.safetensors", 4))
    ours = network_step.outputs(os.path.realpath(BINARY), folder, "step.yaml")
    return ours, network_step.Tensors(os.path.join(folder, "theirs.safetensors"))["logits"]


@unittest.skipUnless(torch_commands.has("torch", "yaml", "safetensors"),
                     "torch, safetensors or PyYAML are missing (ADA_BENCH_PYTHON)")
class FromTorch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "nets.py").write_text(MODULES)
        shutil.copy(HERE / "from_torch_modules.py", self.folder)

    def convert(self, *names, size="3x8x8", module="nets"):
        return torch_commands.from_torch(names, self.folder, size, module)

    def net(self, name):
        return (self.folder / name.split()[0] / "net.yaml").read_text()

    def test_a_module_of_ones_own(self):
        code, _, told = self.convert("Net --arg classes=6")["Net --arg classes=6"]
        self.assertEqual(code, 0, told)
        self.assertIn("left out 2 tensors that the output does not need: idle.weight", told)
        lines = self.net("Net").splitlines(keepends=True)
        self.assertIn("init: {weights: Net/net.safetensors, require_all: true}", lines[3])
        self.assertEqual("".join(lines[1:3] + lines[4:]), NET)
        self.assertTrue((self.folder / "Net/net.safetensors").exists())

    def test_what_cannot_be_expressed_names_module_and_operation(self):
        wanted = {
            "Flipped": (3, "nets:Flipped: stem: Conv2d: of a tensor of shape [3, 3, 8, 8] whose "
                          "elements lie otherwise"),
            "Shared": (3, "block.conv: Conv2d: is called twice"),
            "Softmax": (3, "out: Softmax: ada-train's loss takes logits"),
            "Detached": (3, "stem.weight: gradient: another one reaches it in PyTorch"),
            "Training": (3, "computes something else in evaluation"),
            "Two": (3, "output: 2 of them in training (0 [3, 5], 1 [3, 5]); --no-aux keeps the "
                       "first"),
            "number": (2, "nets:number gives int; expected a torch.nn.Module"),
            "absent": (2, "nets:absent: module 'nets' has no attribute 'absent'")}
        for name, (code, _, told) in self.convert(*wanted).items():
            with self.subTest(name):
                self.assertEqual(code, wanted[name][0], told)
                self.assertIn(wanted[name][1], told)
                self.assertFalse((self.folder / name).exists())

    def test_other_outputs_are_left_out_when_asked(self):
        code, _, told = self.convert("Two --no-aux --no-weights")["Two --no-aux --no-weights"]
        self.assertEqual(code, 0, told)
        self.assertEqual(sorted(os.listdir(self.folder / "Two")), ["net.yaml"])

    def test_wrong_sizes(self):
        code, _, told = self.convert("Net", size="3x9x80")["Net"]
        self.assertEqual(code, 3)
        self.assertIn("fc: forward: fails for this size of image: ", told)
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", told)
        self.assertIn("(nets.py:", told)
        self.assertEqual(self.convert("Net", size="3x8")["Net"][0], 2)

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    def test_shapes_are_those_of_the_dry_run(self):
        words = "Net --check " + os.path.realpath(BINARY)
        code, _, told = self.convert(words)[words]
        self.assertEqual(code, 0, told)

    def modules(self, *names):
        return self.convert(*names, size="3x32x32", module="from_torch_modules")

    @staticmethod
    def check():
        return f" --check {os.path.realpath(BINARY)}" if BINARY else ""

    def test_what_people_write_comes_over(self):
        kinds = {  # kinds of layers in order, where they say something
            "Subclass": "conv2d batch_norm relu global_avg_pool linear",
            "Functional": "conv2d batch_norm relu global_avg_pool linear",
            "Decided": "conv2d relu relu global_avg_pool linear",
            "Constants": "affine conv2d affine conv2d affine add global_avg_pool linear",
            "Split": "conv2d slice sigmoid slice multiply tanh concat global_avg_pool linear",
            "Frozen": "conv2d affine relu global_avg_pool linear",
            "FrozenNorm": "conv2d affine relu global_avg_pool linear",
            "ByHand": "conv2d conv2d global_avg_pool max_pool add linear",
            "ByKeyword": "conv2d relu sigmoid multiply add global_avg_pool linear",
            "Repeated" + self.check(): None,
            **{f"ByMatrix --arg how={how}": "conv2d conv2d relu global_avg_pool linear"
               for how in ("addmm", "mm", "linear", "einsum", "turned", "bmm")},
            "Dropped": "conv2d conv2d stochastic_depth stochastic_depth dropout add "
                       "global_avg_pool linear",
            "Tokens": None,
            "Padded": "conv2d relu max_pool shortcut slice conv2d global_avg_pool linear",
            "Twice --untie": "conv2d conv2d relu conv2d relu global_avg_pool linear",
            "Segmenter": "conv2d relu max_pool conv2d upsample concat conv2d",
            "bilinear": "conv2d relu max_pool conv2d upsample concat conv2d",
            "bilinear --arg align=True": "conv2d relu max_pool conv2d upsample concat conv2d",
            "transposed": "conv2d relu max_pool conv2d conv_transpose2d concat conv2d",
            "Decoder": "conv2d prelu conv_transpose2d pixel_shuffle softplus upsample "
                       "conv_transpose2d prelu concat elu conv_transpose2d",
            "by --arg scale=3": None, "by --arg scale=4": None,
            "Detector": None, "Outputs --no-aux": None}
        for name, (code, out, told) in self.modules(*kinds).items():
            with self.subTest(name):
                self.assertEqual(code, 0, told)
                lines = self.net(name).splitlines()
                found = [line.split("kind: ")[1].split(",")[0].rstrip("}") for line in lines
                         if "kind: " in line]
                if kinds[name]:
                    self.assertEqual(" ".join(found), kinds[name])
                if name in ("Segmenter", "bilinear", "transposed"):
                    self.assertIn("3 classes, task: segmentation", out)
                    self.assertIn("{name: out, kind: conv2d, channels: classes, kernel: 1}",
                                  self.net(name))
                if name == "Decoder":
                    self.assertIn("{name: out, kind: conv_transpose2d, channels: classes, kernel: "
                                  "1}", self.net(name))
                    self.assertIn("{name: slope, kind: prelu, per_channel: true}", self.net(name))
                if name == "Detector":
                    self.assertIn("5 classes, task: detection", out)
                    self.assertIn("outputs: [concat, concat_2]", self.net(name))

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    def test_check_asks_dry_run_for_the_task_of_the_outputs(self):
        check = self.check()
        for task, name in (("segmentation", "Segmenter"), ("detection", "Detector"),
                           ("detection", "Detector --arg swapped=True")):
            with self.subTest(name):
                (code, out, told), = self.modules(name + check).values()
                self.assertEqual(code, 0, told)
                self.assertIn(f"task: {task}", out)
        (code, _, told), = self.convert("Detector" + check, size="3x32x48",
                                        module="from_torch_modules").values()
        self.assertEqual(code, 3)
        self.assertIn("--check: task: detection takes square images, and the network takes 32x48",
                      told)

    def test_arguments_in_pythons_words(self):
        arguments = "words --arg a=None --arg b=True --arg c=False --arg d=true --arg e=none"
        (code, _, told), = self.convert(arguments).values()
        self.assertEqual(code, 0, told)

    def test_help_fits_the_terminal(self):
        for tool in ("from_torch.py", "to_torch.py", "to_onnx.py"):
            done = subprocess.run([sys.executable, HERE.parents[1] / "tools" / tool, "--help"],
                                  env={**os.environ, "COLUMNS": "80"}, capture_output=True,
                                  text=True, check=True)
            self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])
            self.assertIn("examples:\n  tools/" + tool, done.stdout)

    def test_what_does_not_come_over_says_where_and_what_would(self):
        place = "(from_torch_modules.py:"
        wanted = {
            "GatedHalf": "glu: no layer for it; a, b = x.chunk(2, dim) and a * torch.sigmoid(b)",
            "Twice": "b: Conv2d: is called twice, the first time as b; layers cannot share weights; "
                     "--untie makes a layer of each call",
            "Enlarged": "interpolate: mode bilinear, from 32x32 to 48x48 by 1.5; nearest and "
                        "bilinear come over, by one whole number",
            "SlopeOfTokens": "slope: PReLU: of a slope for each channel, which are not on axis 1",
            "Outputs": "2 of them in training (out [3, 10], aux [3, 8, 32, 32])",
            "ByValue": "bool: makes a number of what the network computed: forward depends on",
            "Standardized": "conv2d: its weight is computed",
            "PartOfAWeight": "conv2d: its weight is a part of b.weight",
            "Grouped": "einsum: by a matrix of its own for each of several parts",
            "Absolute": "matmul: its weight is computed",
            "Written": "setitem: writes into a part of a tensor; torch.cat",
            "PartInPlace": "relu: changes a part of a tensor in place",
            "Attention": "matmul: of two computed tensors; only attention over a sequence",
            "OneSided": "conv2d: zeros on the left 0, right 1, top 0, bottom 1; a layer has as many",
            "Scalar": "mul: by a parameter of shape []; only by one number a channel: give it the "
                      "shape [8, 1, 1]",
            "Pixels": "add: a constant of shape [32] that differs between pixels",
            "NoGradient": "a.weight: gradient: another one reaches it in PyTorch (detach, no_grad",
            "Compiled": "head: torch.compile hides what it calls",
            "Frozen --no-weights": "--no-weights: the constants of add differ between channels"}
        for name, (code, _, told) in self.modules(*wanted).items():
            with self.subTest(name):
                self.assertEqual(code, 3, told)
                self.assertIn(wanted[name], told)
                if name not in ("Outputs", "NoGradient", "Compiled", "Frozen --no-weights"):
                    self.assertIn(place, told)

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    def test_logits_are_those_of_pytorch(self):
        for name in ("Constants", "Split", "Frozen", "ByMatrix", "Tokens", "Padded", "Read",
                     "Repeated"):
            with self.subTest(name):
                folder = self.folder / f"logits_{name}"
                folder.mkdir()
                shutil.copy(HERE / "from_torch_modules.py", folder)
                ours, theirs = logits_of(f"from_torch_modules:{name}", folder, "3x32x32")
                self.assertLessEqual(abs(ours - theirs).max(), 1e-5 * abs(theirs).max())

    @unittest.skipUnless(torch_commands.has("timm"), "timm is missing (ADA_BENCH_PYTHON)")
    def test_networks_of_timm(self):
        names = ("regnety_002", "mobilenetv3_small_050", "convnext_atto", "ghostnet_050")
        commands = [["from_torch", "timm:create_model", "--arg", f"model_name={name}", "--arg",
                     "num_classes=10", "--input", "64", "--output", name] for name in names]
        for name, (code, _, told) in zip(names, torch_commands.run_all(commands, self.folder)):
            with self.subTest(name):
                self.assertEqual(code, 0, told)


if __name__ == "__main__":
    unittest.main()
