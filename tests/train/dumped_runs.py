"""Trainings beside NumPy: each in a folder of its own, and the tensors that it dumps."""
import os
import pathlib
import sys
import tempfile
import unittest

from tests.program_case import rows_of as rows, run_in

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import safetensors_file  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None


@unittest.skipIf(os.environ.get("ADA_BINARY") is None, "ADA_BINARY names no program")
@unittest.skipIf(np is None, "numpy is missing")
class DumpedRuns(unittest.TestCase):
    def train(self, config, *options, code=0, isa=None):
        """A run of this configuration beside a text, text.txt: its output folder and what it said.
        isa: the instruction set, of those that the processor has."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "text.txt").write_bytes(b"the cat sat on the mat. a dog lay in the fog. " * 40)
        (folder / "run.yaml").write_text(config, encoding="utf-8")
        done = run_in(folder, ["train", "run.yaml", "--output", "out", *options], code,
                      **({"ADA_ISA": isa} if isa else {}))
        return folder / "out", done

    @staticmethod
    def ask(command, out, *options):
        """What a command says of a run; of `train`: it resumes the run."""
        words = ["train", "run.yaml", "--resume", out] if command == "train" else [command, out]
        return run_in(out.parent, [*words, *options], 0)

    @staticmethod
    def dump(out, step):
        read = safetensors_file.read(out / f"dump/step-{step:08d}.safetensors")
        return {name: np.frombuffer(values, np.float32).reshape(shape)
                for name, (shape, values) in read.items()}
