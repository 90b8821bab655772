"""tools/sweep/atlas.sh on a tiny network: its parts train the arms that they name, go on where they
were, and its tables have what was trained and call the rest missing. ADA_BINARY names the program."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("ADA_BINARY", "build/ada-train"))
SCRIPT = str(ROOT / "tools/sweep/atlas.sh")
CONFIG = """
name: tiny
task: language
data: {dataset: text, path: [text.txt], context: 16, batch_size: 4, validation: 0.1}
model: {zoo: gpt2, layers: 1, heads: 2, width: 32}
precision: {format: bf16}
optimizer: {kind: adamw, lr: 2.0e-3}
train: {max_steps: 20}
device: {kind: cpu, threads: 1}
"""
# The program, which trains the tiny network in the place of those of the atlas.
STAND_IN = f"""#!/bin/bash
words=("$@")
for i in "${{!words[@]}}"; do
  case ${{words[i]}} in */configs/*.yaml) words[i]=tiny.yaml ;; esac
done
[ "$1" != choose ] || [ -z "$FAILS" ] || [[ "$*" != *"$FAILS"* ]] || exit 4
exec {BINARY} "${{words[@]}}"
"""


class Atlas(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "text.txt").write_text("the quick brown fox jumps over it. " * 200)
        (self.folder / "tiny.yaml").write_text(CONFIG)
        (self.folder / "program").write_text(STAND_IN)
        (self.folder / "program").chmod(0o755)

    def start(self, *arguments, code=0, fails=""):
        done = subprocess.run([SCRIPT, "--out", "a", *arguments], cwd=self.folder, text=True,
                              capture_output=True, check=False,
                              env={**os.environ, "ADA_TRAIN": str(self.folder / "program"),
                                   "FAILS": fails})
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        return done.stdout if code == 0 else done.stderr

    def test_parts_and_tables(self):
        parts = ["half", "fp8", "accumulators", "blocks", "fp4", "states", "muon", "switch"]
        asked = [word for part in parts for word in ("--part", f"gpt/{part}")]
        few = ("--steps", "11", "--seeds", "1")
        message = self.start(*asked, *few, code=1, fails="mxfp6_e2m3")
        self.assertIn("gpt/blocks: exit code 4; the other parts go on", message)
        table = self.start("--table")
        self.assertRegex(table, r"(?m)^Missing parts: gpt/blocks, gpt/ablate, llama/half, .*/states$")
        self.assertNotIn("te_mxfp8", table)
        self.start("--part", "gpt/blocks", *few)
        said = json.loads((self.folder / "a/gpt/half.json").read_text())
        rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:]
                for line in self.start("--table").splitlines() if line.startswith("| ")}
        for arm in said["arms"]:
            if arm["arm"] != "fp32":  # one seed tells nothing
                self.assertEqual(rows[arm["arm"]][0], f"{arm['loss_minus_baseline']:+.4f} ?")
        for arm in ("te_mxfp8", "fp8_rowwise_gw_hp_h100", "nvfp4_pretraining", "muon_bf16",
                    "bf16+torchao_8bit", "switch_forward"):
            self.assertRegex(rows[arm][0], r"^[+-]\d\.\d{4} \?")
        self.assertEqual((self.folder / "a/arms/switch_forward.yaml").read_text().split("\n")[0],
                         "precision: {format: bf16, recipe: nvfp4_pretraining, schedule: "
                         "[{from_step: 10, operands: {forward: {x: none, w: none}}}]}")

    def test_what_is_refused(self):
        for arguments, message in ((["--part", "gpt/half", "--part", "gtp/half"], "gtp/half"),
                                   (["--steps", "0"], "--steps 0"), (["--seeds"], "--seeds"),
                                   (["--out", ""], "--out DIR is missing")):
            self.assertIn(message, self.start(*arguments, code=2))


if __name__ == "__main__":
    unittest.main()
