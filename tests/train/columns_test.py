"""Every `--help` fits the 80 columns of a terminal, and so do the lists (policies, formats ...) and the
end of a run where they are shown on one. ADA_BINARY names the program."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import on_terminal  # noqa: E402

BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
COLUMNS = 80
RUN = """
name: a_run_with_a_name_that_says_what_it_is_for
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 2, classes: 3, train: 64,
       test: 16}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: encoder.layers.encoder_layer_11.self_attention.out_proj, kind: conv2d, channels: 4,
       kernel: 3}
    - {name: decoder.blocks.the_last_of_all_blocks.feed_forward.linear, kind: linear,
       features: classes}
precision: {format: fp8_e4m3}
scaling: {policy: adaptive, init_scale: 1e-6}
train: {epochs: 2}
log: {every: 1, statistics: [y, w, dx, dw, dy]}
device: {kind: cpu, threads: 1}
"""


def wide(text):
    return [line for line in text.splitlines() if len(line) > COLUMNS]


# These give their words to a script, whose help --help shows.
HAND_ON = {"fetch", "report", "sweep", "from-torch", "to-torch", "to-onnx"}


class Columns(unittest.TestCase):
    def commands(self):
        text = self.told("help")
        found = re.findall(r"^  ([a-z][a-z-]+)  ", text, re.MULTILINE)
        self.assertGreater(len(found), 20)
        return found

    def told(self, *words):
        return subprocess.run([BINARY, *words], capture_output=True, text=True, check=True).stdout

    def test_every_help(self):
        self.assertEqual(wide(self.told("--help")), [])
        self.assertEqual(wide(self.told("help")), [])
        for command in self.commands():
            with self.subTest(command=command):
                text = self.told("help", command)
                self.assertEqual(wide(text), [])
                if command not in HAND_ON:
                    self.assertEqual(text, self.told(command, "--help"))
                # What goes on after a backslash is a line for a shell.
                for line in re.findall(r"^.* \\\n.*$", text, re.MULTILINE):
                    self.assertRegex(line, r"^ +\S.* \\\n      \S")

    def test_a_sentence_fills_its_lines(self):
        lines = self.told("help").splitlines()
        self.assertIn("without a command the options are those of train.", " ".join(lines))
        for line, following in zip(lines, lines[1:]):
            if re.match("[a-z`]", following) and line and not line.endswith((".", ":")):
                self.assertGreater(len(line) + 1 + len(following.split()[0]), COLUMNS, following)

    def test_no_word_of_a_help_is_lost(self):
        text = " ".join(self.told("inspect", "--help").split())
        for words in ("a safetensors file, from any framework; layers: NAME.dy with NAME.w (2 "
                      "dimensions: linear, more: convolution) or without (a cast)",
                      "any key of policy adaptive", "not a line a tensor Excludes: --csv"):
            self.assertIn(words.split(" Excludes")[0], text)

    def test_lists_on_a_terminal(self):
        for command in ("policies", "formats", "accumulators", "models", "datasets", "configs"):
            with self.subTest(command=command):
                code, text = on_terminal.run_on_terminal([BINARY, command])
                self.assertEqual(code, 0)
                self.assertGreater(len(text.splitlines()), 5)
                self.assertEqual(wide(text), [])

    def test_the_end_of_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.yaml").write_text(RUN)
            told = subprocess.run([BINARY, "train", "a.yaml", "--output", "r"], cwd=folder,
                                  capture_output=True, text=True, check=True).stdout
        self.assertIn("\n  encoder.layers.encoder_layer_11.self_attention.out_proj\n", told)
        self.assertEqual(wide(told), [])


if __name__ == "__main__":
    unittest.main()
