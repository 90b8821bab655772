"""The wheel of tools/python: pip builds it, it runs in an environment that has nothing else, gives
the bytes of the program that CMake built, and leaves nothing when it is removed. Takes PyPI and
minutes; ADA_WHEEL names one that is built already."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ADA_BINARY", str(ROOT / "build/ada-train"))
SMALL = """{name: small, output: run, data: {dataset: synthetic, batch_size: 16,
  synthetic: {height: 8, width: 8, channels: 3, classes: 4, train: 64, test: 32}},
  model: {layers: [{name: conv, kind: conv2d, channels: 16, kernel: 3}, {name: bn, kind: batch_norm},
    {name: relu, kind: relu}, {name: fc, kind: linear, features: 4}]},
  precision: {format: fp16}, scaling: {policy: adaptive}, train: {epochs: 2}, log: {every: 1}}"""
FILES = ("steps.csv", "scales.csv", "underflow.csv")


def said(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          **options)
    if done.returncode:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if "__pycache__" not in path.parts}


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.environ.get("ADA_SLOW"):
            raise unittest.SkipTest("tools/test.sh --install runs it")
        scratch = tempfile.TemporaryDirectory(prefix="ada wheel ")  # with a space
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.python = cls.folder / "venv/bin/python"
        venv.create(cls.folder / "venv", with_pip=True)
        cls.wheel = os.environ.get("ADA_WHEEL")
        if not cls.wheel:
            said(cls.python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir",
                 cls.folder / "made", ROOT / "tools/python")
            cls.wheel, = (cls.folder / "made").iterdir()
        cls.before = files_below(cls.folder / "venv")
        said(cls.python, "-m", "pip", "install", "--quiet", cls.wheel)

    def command(self, *words):
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("ADA_TRAIN", "ADA_SCALING_LIBRARY", "PYTHONPATH")}
        return said(*words, cwd=self.folder, env=environment)

    def test_1_is_a_manylinux_wheel_for_any_python_3(self):
        self.assertRegex(pathlib.Path(self.wheel).name, r"-py3-none-manylinux_2_\d+_x86_64\.whl$")

    def test_2_the_program_says_that_it_came_as_a_wheel_and_knows_its_configurations(self):
        program = self.folder / "venv/bin/ada-train"
        self.assertIn("installed as a wheel\n", self.command(program, "--version"))
        self.assertIn("fashion_quickstart.yaml", self.command(program, "configs"))

    def test_3_a_run_has_the_bytes_of_the_build_and_python_reads_it(self):
        (self.folder / "small.yaml").write_text(SMALL)
        self.command(self.folder / "venv/bin/ada-train", "--config", "small.yaml", "--quiet")
        self.command(PROGRAM, "--config", "small.yaml", "--quiet", "--output", "built")
        for name in FILES:
            self.assertEqual((self.folder / "run" / name).read_bytes(),
                             (self.folder / "built" / name).read_bytes(), name)
        code = ("import ada_train; from ada_train import native; native.library(); "
                "run = ada_train.run('small.yaml', output='python', train={'epochs': 1}); "
                "print(len(run.steps), native.places()[0].is_file())")
        self.assertEqual(self.command(self.python, "-c", code), "4 True\n")

    def test_4_nothing_is_left_when_it_is_removed(self):
        said(self.python, "-m", "pip", "uninstall", "--quiet", "--yes", "ada-train")
        left = files_below(self.folder / "venv") - self.before
        # The packages that it needs stay, as pip leaves them.
        self.assertEqual([path for path in left if re.search("ada[-_](train|scaling)", path)], [])


if __name__ == "__main__":
    unittest.main()
