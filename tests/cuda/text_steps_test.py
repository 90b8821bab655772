"""Recorded training steps of a GPT-2, a Llama and a ViT (tests/golden/text) on the CUDA backend's
kernels, within the CPU's tolerances; and whole runs on them: the same bytes again, in parts, and
without whatever of the backend can be done without."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("ADA_BINARY", ROOT / "build" / "ada-train")).resolve().parent
PROGRAM = BUILD / "train_on_kernels"
sys.path[:0] = [str(ROOT / "tests/tools"), str(ROOT / "tests/train")]
import attention_runs_test as runs
try:
    import text_steps
except ImportError:
    text_steps = None


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not built")
class TextStepsOnKernels(unittest.TestCase):
    @unittest.skipIf(text_steps is None, "numpy is missing")
    def test_recorded_steps(self):
        self.compare_steps()

    @unittest.skipIf(text_steps is None, "numpy is missing")
    def test_recorded_steps_with_attention_in_products(self):
        with unittest.mock.patch.dict(os.environ, ADA_CUDA_ATTENTION="0"):
            self.compare_steps()

    def compare_steps(self):
        golden = ROOT / "tests/golden/text"
        compared = 0
        for net in text_steps.NETWORKS:
            for case in text_steps.CASES:
                if not (golden / net / case).is_dir():
                    continue
                compared += 1
                with self.subTest(net=net, case=case):
                    found = text_steps.compare(PROGRAM, golden, net, case)
                    self.assertEqual(found.problems, [])
                    for what in ("loss 1", "grad_norm 1", "decisions", "rows"):
                        self.assertIn(what, found.worst)
        self.assertGreaterEqual(compared, 6)

    def test_whole_runs(self):
        for way, precision in runs.WAYS.items():
            for zoo, more in (("gpt2", ""), ("llama", ", kv_heads: 2")):
                with self.subTest(way=way, zoo=zoo), tempfile.TemporaryDirectory() as folder:
                    self.folder = pathlib.Path(folder)
                    (self.folder / "text.txt").write_bytes(
                        b"the cat sat on the mat. a dog lay in the fog. " * 40)
                    (self.folder / "a.yaml").write_text(
                        runs.CONFIG % (zoo, more, runs.STEPS) + precision)
                    whole = self.train("whole")
                    for tensor in ("p", "ds", "dq", "dk", "dv"):
                        self.assertRegex(whole["underflow.csv"].decode(),
                                         rf"(?m)^\d+,\d+,[^,]*attn,{tensor},")
                    self.assertEqual(self.differing(whole, self.train("again")), [])
                    self.train("parts", "--set", "train.max_steps=5")
                    self.assertEqual(self.differing(whole, self.train("parts")), [])
                    for switch in ("GRAPHS", "SIDE_STREAM", "PLAIN", "LAST_BLOCK", "ROUND"):
                        plain = self.train(switch, **{f"ADA_CUDA_{switch}": "0"})
                        self.assertEqual(self.differing(whole, plain), [], switch)
                    products = self.train("products", ADA_CUDA_ATTENTION="0")
                    for switch, value in (("FUSED", "0"), ("SCORES", "150")):
                        other = self.train(switch, **{f"ADA_CUDA_{switch}": value})
                        self.assertEqual(self.differing(products, other), [], switch)

    def train(self, run, *more, **environment):
        done = subprocess.run([PROGRAM, "train", "a.yaml", "--output", run, *more],
                              cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        files = {path.name: path.read_bytes() for path in (self.folder / run).glob("*.csv")
                 if path.name not in ("timing.csv", "evaluation.csv")}
        newest = max((self.folder / run / "checkpoints").glob("*.safetensors"))
        files[newest.name] = newest.read_bytes()
        self.assertGreaterEqual(len(files), 5)
        return files

    @staticmethod
    def differing(one, other):
        return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


if __name__ == "__main__":
    unittest.main()
