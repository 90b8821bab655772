"""tools/bench/gpu_first.py with made-up programs: which switch owns other bits, and that failures
count."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
import gpu_first  # noqa: E402

# Other weights without the kernels for 16 bits; a loss of 1 on the CPU and of 1.01 on a GPU.
ADA = """#!/bin/bash
all=$*
while [ $# -gt 0 ]; do [ "$1" != --output ] || out=$2; shift; done
mkdir -p "$out/checkpoints"
echo "weights ${ADA_CUDA_PLAIN-1}" >"$out/checkpoints/step-00000300.safetensors"
case $all in *kind=cpu*) loss=1 ;; *) loss=1.01 ;; esac
printf 'step,loss\\n1,%s\\n' $loss >"$out/steps.csv"
printf 'step,seconds\\n1,9\\n101,1\\n201,1\\n' >"$out/timing.csv"
case $all in *ssd300*compare*) echo "an op differs"; exit 3 ;; esac
"""
TESTS = "#!/bin/sh\necho '[skipped] all: no GPU'\nexit 77\n"


class GpuFirstTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("ada-train", ADA), ("test_cuda_device", TESTS)):
            (self.folder / name).write_text(text, encoding="utf-8")
            (self.folder / name).chmod(0o755)
        self.session = gpu_first.Session(types.SimpleNamespace(build=self.folder,
                                                               out=self.folder / "out"))

    def rows(self, section):
        with contextlib.redirect_stdout(io.StringIO()):
            getattr(self.session, "section_" + section)()
        text = (self.folder / "out" / "results.tsv").read_text(encoding="utf-8")
        return {tuple(line.split("\t")[:2]): line.split("\t")[2:] for line in text.splitlines()}

    def test_which_switch_owns_other_bits(self):
        rows = self.rows("bits")
        self.assertEqual([name for (_, name), row in rows.items() if row[0] == "FAILED"], ["plain"])
        self.assertTrue(self.session.failed)

    def test_networks_beside_the_cpu(self):
        (self.folder / "camvid" / "train").mkdir(parents=True)
        with mock.patch.dict(os.environ, ADA_DATA=str(self.folder)):
            rows = self.rows("networks")
        self.assertEqual(rows["losses", "gpt2"], ["ok", "1 % apart at most"])
        self.assertEqual(rows["compare", "ssd"], ["FAILED", "exit code 3: an op differs"])

    def test_tests_without_a_gpu_and_times(self):
        self.assertEqual(self.rows("tests")["tests", "gpu"],
                         ["ok", "exit code 77: [skipped] all: no GPU"])
        self.assertEqual(self.rows("times")["times", "resnet20_cifar graphs"],
                         ["ok", "10.000 ms a step"])


if __name__ == "__main__":
    unittest.main()
