"""Names of tensors, layers and files that hold what a terminal obeys: visible on a terminal and in
every text for people; byte for byte in CSV that goes into a pipe."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import on_terminal  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
NAME = "evil\x1b]0;title\x07\x9b2J\u202e"
TABLE = ("step,epoch,layer,tensor,format,scale,numel,zeros_before,zeros_after,underflow,"
         "underflow_pct_nonzero,underflow_pct_numel,below_min_pct,subnormal,overflow,inf,nan,"
         "min_abs,max_abs,mean,std,l1,l2,range_log2,mse,sqnr_db\n")
CONFIG = """name: r
data: {dataset: synthetic}
model: {zoo: lenet}
optimizer: {lr: 0.1}
"""


def tensor_file(path):
    values = struct.pack("<4f", 1e-9, 1, 2, 3)
    header = json.dumps({name: {"dtype": "F32", "shape": [2, 2], "data_offsets": [16 * i, 16 * i + 16]}
                         for i, name in enumerate([NAME + ".dy", NAME, "line\nbreak"])}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + 3 * values)


def made_run(folder):
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "steps.csv").write_text(
        "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n1,1,2,0.5,0.1,1,0,0,1\n")
    (folder / "underflow.csv").write_text(
        TABLE + f"1,1,{NAME},dx,fp16,1,100,0,9,9,9,9,9,0,0,0,0,1e-9,1,0,1,1,1,30,,\n",
        encoding="utf-8")
    (folder / "histograms.csv").write_text(
        "step,epoch,layer,tensor,scale,exponent,count\n"
        f"1,1,{NAME},dx,1,-30,9\n1,1,{NAME},dx,1,0,91\n", encoding="utf-8")
    (folder / "scales.csv").write_text(
        "step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit\n"
        f"1,1,{NAME},adaptive,1,,,1,1,1,{NAME}\n", encoding="utf-8")
    (folder / "events.csv").write_text(
        f"step,epoch,event,layer,tensor,value,message\n1,1,skip,{NAME},dx,inf,{NAME}\n",
        encoding="utf-8")
    (folder / "evaluation.csv").write_text(
        f"step,epoch,split,images,loss,top1,top5\n1,1,{NAME},10,1,0.5,1\n", encoding="utf-8")
    return folder


class TerminalTextTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ada-terminal-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        tensor_file(self.folder / "t.safetensors")
        made_run(self.folder / "run")

    def piped(self, *arguments, expect=0):
        result = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True,
                                check=False)
        self.assertEqual(result.returncode, expect, result.stderr)
        return result.stdout.decode(), result.stderr.decode()

    def on_terminal(self, *arguments):
        return on_terminal.run_on_terminal(
            [BINARY, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
            env={**os.environ, "TERM": "dumb"})[1]

    def check_harmless(self, text):
        bad = [c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160
               or c == "\u202e"]
        self.assertEqual(bad, [], repr(text))

    def test_text_for_people(self):
        for arguments in (["inspect", "t.safetensors"], ["inspect", "t.safetensors", "--all"],
                          ["recommend", "run"],
                          ["compare", "run", "run"], ["watch", "run", "--once"],
                          ["what-if", "run", "--scale", "1"],
                          ["convert", "\x1b[31m.safetensors", "x", "--format", "fp16"], ["--config", "\x1b[31m.yaml"]):
            with self.subTest(arguments):
                result = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True,
                                        check=False)
                said = result.stderr.decode()
                self.check_harmless(said if arguments[0] == "what-if"
                                    else result.stdout.decode() + said)
                shown = self.on_terminal(*arguments)
                self.check_harmless(shown)
                self.assertIn("\\x1b", shown)
        shown, _ = self.piped("inspect", "t.safetensors", "--all")
        self.assertIn("evil\\x1b]0;title\\x07\\x9b2J\\u202e  F32", shown)
        self.assertIn("line\\x0abreak  F32", shown)

    def test_lists_fit_a_terminal_and_have_a_line_each_in_a_pipe(self):
        for what, first in (("policies", "none"), ("datasets", "cifar10 "), ("formats", "fp32: "),
                            ("accumulators", "volta_f32: "),
                            ("models", "mlp ")):
            with self.subTest(what):
                shown = self.on_terminal(what).splitlines()
                self.assertLessEqual(max(map(len, shown)), 80)
                self.assertTrue(shown[0].startswith(first))
                lines = self.piped(what)[0].splitlines()
                names = [line for line in shown if not line.startswith(" ")]
                if what == "policies":
                    self.assertIn("dynamic, preset pytorch", shown)
                    self.assertEqual(shown[-3:], [
                        "20 presets of dynamic, 6 methods of adaptive and 6 more",
                        "for one: --set scaling.policy=dynamic scaling.preset=NAME",
                        "to see one move: ada-train replay --preset NAME"])
                    self.assertEqual(len(lines), 20 + 6 + 6)
                else:
                    self.assertEqual(len(lines), len(names))

    def test_tables_on_a_terminal_csv_in_a_pipe(self):
        for arguments, title in ((["what-if", "run", "--scale", "1"], "step,epoch,layer"),
                                 (["replay", "--preset", "keras"], "attempt,step,overflow")):
            with self.subTest(arguments):
                shown = self.on_terminal(*arguments)
                self.assertNotIn(title, shown)
                self.assertEqual(shown, self.piped(*arguments, "--table")[0])
                piped, _ = self.piped(*arguments)
                self.assertTrue(piped.startswith(title))
                self.assertIn(title, self.on_terminal(*arguments, "--csv"))

    def test_a_trace_from_standard_input(self):
        result = subprocess.run([BINARY, "replay", "-", "--preset", "nnabla"], input=b"False\nTrue\n",
                                capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.decode().splitlines()[1:], ["1,1,0,8,0,8,", "2,2,1,8,1,4,"])

    def test_text_for_programs(self):
        for arguments in (["inspect", "t.safetensors", "--csv", "counts"], ["what-if", "run", "--scale", "1"]):
            with self.subTest(arguments):
                out, _ = self.piped(*arguments)
                self.assertIn(NAME, out)
                self.check_harmless(self.on_terminal(*arguments))


if __name__ == "__main__":
    unittest.main()
