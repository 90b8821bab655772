"""Every example of every `--help`, and the commands of the READMEs, run as they stand on small
stand-ins for the files that they name. ADA_BINARY names the program."""
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import png_file  # noqa: E402

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
# Commands that a machine without data sets, or without people, cannot run: why.
SKIPPED = {
    r"score (voc|segmentation)": "data sets of boxes and label images",
    r"^watch \S+$": "as often as the run is looked at",  # beside --once
    r"models \| policies": "names several commands",
    r"--help|help train \|": "not a command of its own",
    r"--serve": "runs until Ctrl-C",
    r"trained\.safetensors|mine\.yaml --outputs": "a network of one's own",
    r"evaluate runs/cells|segnet_camvid|ssd300_bccd": "a SegNet, an SSD",
    r"^generate |jargon|token": "a language model",
    r"step-00000100|mxfp|nvfp4": "a dump of step 100",
    r"--config FILE": "a file of one's own",
    r"sampler\.safetensors": "predictions of two programs",
    r"^fetch ": "a network, or a package of Debian's",
    r"^(from-torch|to-torch|to-onnx) ": "torch, and networks of other packages",
}
# The same of the tools' page.
NOT_HERE = {
    r"torch|load_state_dict": "torch, and networks of other packages",
    r"photos\.yaml|step\.yaml|run\.yaml|ssd\.yaml|to_onnx|vgg": "a network that torch has made",
    r"runs/segnet": "a SegNet",
    r"--serve": "runs until Ctrl-C",
    r"^ctest|test_number": "the folder of a build",
}
CONFIG = """
name: {name}
data: {{dataset: synthetic, synthetic: {{height: 12, width: 12, channels: 3, classes: 4, train: 160,
       test: 32}}, batch_size: 16, workers: 0}}
model:
  layers:
    - {{name: conv1, kind: conv2d, channels: 6, kernel: 3}}
    - {{name: relu1, kind: relu}}
    - {{name: fc, kind: linear, features: classes}}
precision: {{format: fp16}}
scaling: {{policy: adaptive}}
train: {{epochs: 2}}
log: {{every: 2}}
device: {{kind: cpu, threads: 1}}
"""
NAMES = ("fashion_quickstart", "fashion_deep_fp8", "resnet20_cifar", "resnet20_cifar_quick", "lenet_fashion")


def commands_of(block):
    """The commands of a block of text: what follows `$`, or all its lines where there is none."""
    block = block.replace("\\\n", " ")
    lines = block.splitlines()
    shell = [line[2:] for line in lines if line.startswith("$ ")]
    return [re.split(r"\s{2,}#\s", line)[0].strip() for line in shell or lines]


def has_module(name):
    return subprocess.run(["/usr/bin/python3", "-c", f"import {name}"], capture_output=True,
                          check=False).returncode == 0


def is_there(line):
    """Whether the program that a line begins with is there, and what it imports."""
    if line.startswith("python3 -c"):
        return all(has_module(name) for name in re.findall(r"import (\w+)", line))
    if line.startswith("tools/report.py"):
        return has_module("pandas") and has_module("matplotlib") and has_module("plotly")
    return line.startswith("tools/") or shutil.which(line.split()[0]) is not None


def png(side):
    """A picture of side x side, 8 bits RGB."""
    pixels = b"".join(bytes((x * 3 + y) % 256 for x in range(3 * side)) for y in range(side))
    return png_file.png(side, side, pixels, png_file.RGB)


def tensors(path, **shapes):
    """Writes fp32 tensors of these shapes as a safetensors file."""
    header, values = {}, b""
    for name, shape in shapes.items():
        numel = math.prod(shape)
        made = struct.pack(f"<{numel}f", *(math.sin(1 + k) for k in range(numel)))
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(values), len(values) + len(made)]}
        values += made
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = folder = pathlib.Path(cls.temporary.name)
        (folder / "bin").mkdir()
        (folder / "bin/ada-train").symlink_to(BINARY)
        (folder / "build").symlink_to(folder / "bin")
        (folder / "tools").symlink_to(ROOT / "tools")
        (folder / "configs").mkdir()
        for name in NAMES:
            (folder / f"configs/{name}.yaml").write_text(CONFIG.format(name=name), encoding="utf-8")
        fixed = CONFIG.format(name="lenet_fashion").replace("policy: adaptive",
                                                             "policy: fixed, scale: 1024")
        (folder / "configs/lenet_fashion.yaml").write_text(fixed, encoding="utf-8")
        for name in ("mine", "a"):
            (folder / f"{name}.yaml").write_text(CONFIG.format(name=name), encoding="utf-8")
        (folder / "overflows.csv").write_text("overflow\n" + "0\n0\n1\n" * 20, encoding="utf-8")
        for name in ("photo.jpg", "cat.jpg", "dog.png"):
            (folder / name).write_bytes(png(320))
        (folder / "photos").mkdir()
        (folder / "photos/one.jpg").write_bytes(png(20))
        cls.stage("train", "configs/fashion_quickstart.yaml", "--quiet", "--set", "log.dump_every=9",
                  "--set", "train.epochs=4")
        made = folder / "runs/fashion_quickstart"
        for name in ("none", "adaptive", "seed1", "seed2", "resnet20_cifar", "photos", "mine", "a",
                     "b"):
            shutil.copytree(made, folder / "runs" / name)
        tensors(folder / "layer.safetensors", x=[8, 16], w=[4, 16], dy=[8, 4])
        tensors(folder / "steps.safetensors", p=[64, 64], **{f"g.{step}": [64, 64] for step in (1, 2)})
        shutil.copy(made / "dump/step-00000001.safetensors", folder / "gradients.safetensors")
        shutil.copy(made / "checkpoints/best.safetensors", folder / "weights.safetensors")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def stage(cls, *arguments):
        subprocess.run([BINARY, *arguments], cwd=cls.folder, check=True, capture_output=True)

    def commands(self):
        """The names of the program's commands, as its help lists them."""
        text = subprocess.run([BINARY, "help"], capture_output=True, text=True, check=True).stdout
        return [name for name in re.findall(r"^  ([a-z][a-z-]+)  ", text, re.MULTILINE)]

    def run_line(self, line):
        """Runs what follows `ada-train`; a run that is there already is deleted first."""
        if any(re.search(pattern, line) for pattern in SKIPPED):
            return
        if line.startswith("report ") and not is_there("tools/report.py"):
            return
        if line.startswith("train ") and "--resume" not in line and "--dry-run" not in line:
            line += " --overwrite"
        line = line.replace("| less", "| cat")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", "ada-train " + line],
                              cwd=self.folder,
                              env={**os.environ, "PATH": path, "ADA_PYTHON": "/usr/bin/python3"},
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, f"ada-train {line}\n{done.stderr[-2000:]}")

    def test_examples_of_every_help(self):
        seen = 0
        commands = self.commands()
        self.assertIn("blame", commands)
        for command in commands:
            text = subprocess.run([BINARY, "help", command], capture_output=True, text=True,
                                  check=True).stdout
            examples = re.findall(r"^  ada-train (.*)$", text.replace(" \\\n      ", " "),
                                  re.MULTILINE)
            self.assertGreaterEqual(len(examples), 2, command)
            for line in examples:
                with self.subTest(line=line):
                    self.run_line(line)
                    seen += 1
        self.assertGreater(seen, 30)

    def run_of_the_tree(self, line):
        """Runs a line that begins with tools/, from a folder like the tree's root."""
        path = "/usr/bin:" + os.environ["PATH"]  # of the Python that has_module asks
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=self.folder, text=True,
                              env={**os.environ, "ADA_TRAIN": BINARY, "PATH": path},
                              capture_output=True, timeout=250, check=False)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stderr[-2000:]}")

    def test_commands_of_the_readme_and_of_the_pages_on_configurations(self):
        text = "".join(page.read_text(encoding="utf-8")
                       for page in (ROOT / "README.md", *sorted(ROOT.glob("configs/*.md"))))
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
        lines = [re.split(r"\s{2,}#|\s#\s", line)[0].strip() for line in lines
                 if line.removeprefix("$ ").startswith(("build/ada-train ", "tools/report.py",
                                                        "tools/sweep.sh"))]
        self.assertGreater(len(lines), 40)
        for line in lines:
            with self.subTest(line=line):
                if line.startswith("build/"):
                    self.run_line(line.removeprefix("build/ada-train "))
                elif is_there(line):
                    self.run_of_the_tree(line)

    def test_commands_of_the_tools_page(self):
        """What needs torch, networks or data sets is passed over."""
        shutil.copytree(self.folder / "runs/none", self.folder / "runs/fixed", dirs_exist_ok=True)
        text = (ROOT / "tools/README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line for language, block in blocks if not language for line in commands_of(block)]
        self.assertGreater(len(lines), 15)
        ran = []
        for line in lines:
            if any(re.search(pattern, line) for pattern in NOT_HERE) or not is_there(line):
                continue
            with self.subTest(line=line):
                self.run_of_the_tree(line)
                ran.append(line.split()[0])
        self.assertIn("tools/sweep.sh", ran)
        self.assertIn("awk", ran)
        if is_there("tools/report.py"):
            self.assertEqual(ran.count("tools/report.py"), 2)
            self.assertIn("What to do", (self.folder / "report.html").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
