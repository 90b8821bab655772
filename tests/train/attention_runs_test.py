"""Whole runs of a small GPT-2 and a Llama by every way to scale and to round that attention's gradients
know: unbroken, in parts, killed, with 2 threads and observed (which computes without fusion), the same
bytes each time; and what --dry-run says of attention's decisions."""
import re
import signal
import subprocess
import time
import unittest

from tests.program_case import BINARY, ProgramCase

STEPS = 12

CONFIG = """
seed: 3
device: {kind: cpu, threads: 1}
task: language
data: {dataset: text, path: text.txt, context: 10, batch_size: 6, validation: 0.2}
model: {zoo: %s, layers: 2, heads: 4, width: 16, hidden: 24, dropout: 0.1%s}
optimizer: {kind: adamw, lr: 0.003, no_decay: [vectors]}
train: {max_steps: %d, accumulate: 2}
evaluate: {every_epochs: 0}
checkpoint: {every_steps: 3}
log: {every: 1, statistics: [y, w, dx, dw, dy]}
"""
FP16 = "precision: {format: fp16}\n"
WAYS = {
    "approx_range": FP16 + "scaling: {policy: adaptive, init_scale: 0.01}\n",
    "exact_range": FP16 + "scaling: {policy: adaptive, method: exact_range, init_scale: 0.01}\n",
    "layerwise": FP16 + "scaling: {policy: layerwise_dynamic, init_scale: 64, "
                        "growth_interval: 2}\n",
    "delayed": "precision: {format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: delayed}\n",
    "stochastic": "precision: {format: bf16, rounding: stochastic}\n"
                  "scaling: {policy: dynamic, init_scale: 1024}\n",
}


class AttentionRuns(ProgramCase):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_bytes(b"the cat sat on the mat. a dog lay in the fog. " * 40)

    def write(self, way, zoo="gpt2"):
        more = ", kv_heads: 2" if zoo == "llama" else ""
        (self.folder / "a.yaml").write_text(CONFIG % (zoo, more, STEPS) + WAYS[way])

    def command(self, run, *more):
        return [BINARY, "train", "a.yaml", "--output", run, "--no-progress", *more]

    def train(self, run, *more):
        self.call(self.command(run, *more))

    def call(self, command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def bytes_of(self, run):
        files = [path for path in (self.folder / run).glob("*.csv")
                 if path.name not in ("timing.csv", "evaluation.csv")]
        files.append(self.folder / f"{run}/checkpoints/step-{STEPS:08}.safetensors")
        return {path.name: path.read_bytes() for path in files}

    def same(self, run, other):
        mine, theirs = self.bytes_of(run), self.bytes_of(other)
        self.assertGreaterEqual(len(mine), 5)
        self.assertEqual(sorted(mine), sorted(theirs))
        self.assertEqual([name for name, text in mine.items() if theirs[name] != text], [])

    def test_the_same_bytes_in_parts_with_two_threads_and_observed(self):
        for way in WAYS:
            for zoo in ("gpt2", "llama"):
                with self.subTest(way=way, zoo=zoo):
                    self.write(way, zoo)
                    for run in ("whole", "parts", "threads", "seen", "kept"):
                        subprocess.run(["rm", "-rf", run], cwd=self.folder, check=True)
                    self.train("whole")
                    rows = (self.folder / "whole/underflow.csv").read_text()
                    for tensor in ("p", "ds", "dq", "dk", "dv"):
                        self.assertRegex(rows, rf"(?m)^\d+,\d+,[^,]*attn,{tensor},")
                    self.train("parts", "--set", "train.max_steps=5")
                    self.call([BINARY, "train", "--resume", "parts", "--no-progress", "--set",
                               f"train.max_steps={STEPS}"])
                    self.same("whole", "parts")
                    self.train("threads", "--threads", "2")
                    self.same("whole", "threads")
                    self.train("seen", "--set", "log.dump_every=1", "log.dump=[loss]")
                    self.same("whole", "seen")
                    self.train("kept", "--set", "model.keep_probabilities=true")
                    self.same("whole", "kept")

    def test_killed_at_any_step_it_goes_on_to_the_same_bytes(self):
        for number, way in enumerate(WAYS):
            with self.subTest(way=way):
                self.write(way)
                subprocess.run(["rm", "-rf", "whole", "killed"], cwd=self.folder, check=True)
                self.train("whole")
                with subprocess.Popen(self.command("killed"), cwd=self.folder,
                                      stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as process:
                    steps = self.folder / "killed/steps.csv"
                    while process.poll() is None:
                        if steps.exists() and steps.read_bytes().count(b"\n") > 2 + number:
                            process.send_signal(signal.SIGKILL)
                            process.wait()
                        time.sleep(0.001)
                self.call([BINARY, "train", "--resume", "killed", "--no-progress"])
                self.same("whole", "killed")

    def test_dry_run_says_who_decides_of_the_gradients_within_attention(self):
        self.write("exact_range")
        told = self.call([BINARY, "train", "a.yaml", "--dry-run"])
        head = re.search(r"(?m)^layer .*$", told)[0].split()
        self.assertEqual(head[5:], ["p", "y", "w", "dy", "dx", "dv", "ds", "dq", "dk", "dw",
                                    "policy"])
        rows = re.findall(r"(?m)^\S+\.attn +attention .*$", told)
        self.assertEqual(len(rows), 2, told)
        for row in rows:
            self.assertTrue(row.endswith("  adaptive: exact_range (dv, ds, dq, dk)"), row)
            self.assertGreaterEqual(row.count("fp16"), 6, row)
        told = self.call([BINARY, "train", "a.yaml", "--dry-run", "--set",
                          "scaling.layers=[{match: '*.ds', method: fixed, scale: 8}]"])
        self.assertIn("adaptive: exact_range (dv, dq, dk), adaptive: fixed 8 (ds)", told)
        told = self.call([BINARY, "train", "a.yaml", "--dry-run", "--set",
                          "scaling.attention=false"])
        self.assertNotIn("(dv", told)

    def memory(self, *values):
        """MiB of network and optimizer, as --dry-run tells."""
        told = self.call([BINARY, "train", "a.yaml", "--dry-run", "--set", *values])
        number, unit = re.search(r"network and optimizer ([\d.]+) (\w+)", told).groups()
        return float(number) * {"MiB": 1, "GiB": 1024}[unit]

    def test_memory_of_a_long_context_grows_as_the_tokens_unless_probabilities_are_kept(self):
        self.write("approx_range")
        (self.folder / "text.txt").write_bytes(b"the cat sat on the mat. " * 4000)
        sizes = ["model.heads=8", "model.width=128", "model.head_dim=16"]
        short = self.memory(*sizes, "data.context=512", "data.batch_size=8")
        long = self.memory(*sizes, "data.context=2048", "data.batch_size=2")
        self.assertLess(long, 1.25 * short)
        kept = self.memory(*sizes, "data.context=2048", "data.batch_size=2",
                           "model.keep_probabilities=true")
        layers, images, heads = 2, 1, 8  # images of a part
        self.assertAlmostEqual(kept - long, layers * images * heads * 2048**2 * 4 / 2**20,
                               delta=0.01 * kept)


if __name__ == "__main__":
    unittest.main()
