"""The Python tools as commands of the program: report, sweep, from-torch, to-torch, to-onnx; what they
say without Python, or without the tools. ADA_BINARY names the program."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
COMMANDS = {"report": "report.py", "sweep": "sweep.sh", "from-torch": "from_torch.py",
            "to-torch": "to_torch.py", "to-onnx": "to_onnx.py"}
CONFIG = """
name: r
data: {dataset: synthetic, synthetic: {height: 4, width: 4, channels: 1, classes: 2, train: 32,
       test: 4}, batch_size: 16, workers: 0}
model: {layers: [{name: fc, kind: linear, features: classes}]}
train: {epochs: 1}
log: {every: 1}
device: {kind: cpu, threads: 1}
"""


class ScriptCommands(unittest.TestCase):
    def run_program(self, *arguments, program=BINARY, code=0, **environment):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_help_is_the_tools(self):
        for command, file in COMMANDS.items():
            with self.subTest(command=command):
                self.assertIn(file, self.run_program(command, "--help", ADA_PYTHON=sys.executable))
                self.assertIn(command, self.run_program("help"))

    def test_a_sweep(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "r.yaml"
            config.write_text(CONFIG, encoding="utf-8")
            text = self.run_program("sweep", "--config", str(config), "--out", folder + "/s",
                                    "--vary", "seed=1,2")
            self.assertIn("seed=2", text)
            self.assertTrue((pathlib.Path(folder) / "s/sweep.csv").is_file())

    def test_exit_codes_are_the_tools(self):
        self.run_program("sweep", "--nonsense", code=2)
        self.run_program("report", "/nowhere", "-o", "/tmp/nowhere.html", "--static", code=3,
                         ADA_PYTHON="/usr/bin/python3")

    def test_without_python(self):
        text = self.run_program("report", "x", code=4, ADA_PYTHON="/nowhere/python")
        self.assertIn("needs Python 3", text)
        self.assertIn("apt-get install python3", text)

    def test_without_the_tools(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(BINARY, folder)
            self.assertIn("report.py", self.run_program("report", "x", program=alone, code=2))


if __name__ == "__main__":
    unittest.main()
