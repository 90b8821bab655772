"""Tests of the program, each in a folder of its own."""
import csv
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
# A convolution and two linear layers on made-up images.
SMALL_NETWORK = """
name: r
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 2, classes: 5, train: 256,
       test: 20}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 6, kernel: 3}
    - {name: relu1, kind: relu}
    - {name: fc1, kind: linear, features: 16}
    - {name: relu2, kind: relu}
    - {name: fc2, kind: linear, features: classes}
optimizer: {lr: 0.02, momentum: 0.9}
"""


def rows_of(path):
    """The rows of a CSV file as maps; lines that begin with # are none."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def run_in(folder, arguments, code, **variables):
    """The program's stdout and stderr, which are UTF-8, after it ended with this exit code."""
    done = subprocess.run([BINARY, *arguments], cwd=folder, capture_output=True, encoding="utf-8",
                          check=False, env={**os.environ, **variables})
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}, expected {code}\n"
                             f"{done.stdout}{done.stderr}")
    return done


class ProgramCase(unittest.TestCase):
    """The program runs in self.folder, which holds nothing but r.yaml when a test begins, and is gone
    after it."""
    config = None  # the text of r.yaml; None: there is none

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        if self.config is not None:
            self.put("r.yaml", self.config)

    def put(self, name, data):
        """Writes a file of the folder, text or bytes."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def run_program(self, *arguments, code=0):
        return run_in(self.folder, arguments, code)

    def words_of(self, *arguments, code=0):
        """What it says: stdout, or stderr where it fails."""
        done = self.run_program(*arguments, code=code)
        return done.stdout if code == 0 else done.stderr

    def rows_of(self, path):
        """The rows of a CSV file of the folder, as maps."""
        return rows_of(self.folder / path)


class SharedFolderCase(unittest.TestCase):
    """The program runs in cls.folder, one for all tests of the class."""
    config = None  # the text of r.yaml; None: there is none

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        if cls.config is not None:
            (cls.folder / "r.yaml").write_text(cls.config, encoding="utf-8")

    @classmethod
    def run_program(cls, *arguments, code=0):
        return run_in(cls.folder, arguments, code)

    @classmethod
    def words_of(cls, *arguments, code=0):
        """What it says: stdout, or stderr where it fails."""
        done = cls.run_program(*arguments, code=code)
        return done.stdout if code == 0 else done.stderr
