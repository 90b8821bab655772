"""Real processes under mpirun: what they compute, and how they end. Skipped, visibly, where the build
has no MPI (tools/build.sh --mpi)."""
import csv
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

from tests.program_case import ProgramCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import summed_parts  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", "build/ada-train")
# Containers: root, fewer cores than processes, no ptrace between processes.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
          "--mca", "btl_vader_single_copy_mechanism", "none"]

CONFIG = """
name: run
seed: 7
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 12, width: 12, channels: 3, classes: 5, train: 240, test: 20}
  batch_size: 12
  augment: {pad: 1, random_crop: true, horizontal_flip: true}
model:
  classes: 5
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: join, kind: add, inputs: [conv2, relu1]}
    - {name: fc, kind: linear, features: 5}
precision: {format: fp16}
scaling: {policy: adaptive}
optimizer: {kind: sgd, lr: 0.005, momentum: 0.9}
train: {epochs: 2}
log: {every: 1}
checkpoint: {every_steps: 5}
"""


WORDS = """
name: run
seed: 7
device: {{kind: cpu, threads: 1}}
task: language
data: {{dataset: text, path: {path}, context: 12, batch_size: 6, validation: 0.2}}
model: {{zoo: gpt2, layers: 2, heads: 2, width: 16, dropout: 0.1}}
precision: {{format: fp16}}
scaling: {{policy: adaptive, init_scale: 0.01}}
optimizer: {{kind: adamw, lr: 0.003}}
train: {{max_steps: 8}}
log: {{every: 1}}
"""


def versions():
    return subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout


def has_mpi():
    return "\nmpi " in versions() and shutil.which("mpirun") is not None


def alive(name):
    """Processes whose command line holds `name`, by id."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if entry.name.isdigit() and name.encode() in words and b"ada-train" in words[0]:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z":
                    found.append(int(entry.name))
        except OSError:
            pass
    return sorted(found)


@unittest.skipUnless(has_mpi(), "the build has no MPI: tools/build.sh --mpi")
class Mpirun(ProgramCase):
    def setUp(self):
        super().setUp()
        (self.folder / "run.yaml").write_text(CONFIG)

    def command(self, ranks, *arguments, output="run"):
        start = [] if ranks == 0 else [*MPIRUN, "-n", str(ranks)]
        return [*start, BINARY, "train", str(self.folder / "run.yaml"), "--output",
                str(self.folder / output), *arguments]

    def run_it(self, ranks, *arguments, output="run", code=0):
        done = subprocess.run(self.command(ranks, *arguments, output=output), capture_output=True,
                              text=True, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def bytes_of(self, output):
        folder = self.folder / output
        files = sorted(f for f in folder.glob("*.csv") if f.name != "timing.csv")
        self.assertGreater(len(files), 3)
        newest = sorted((folder / "checkpoints").glob("step-*.safetensors"))[-1]
        return {f.name: f.read_bytes() for f in [*files, newest]}

    def rows(self, output, file="steps.csv"):
        with open(self.folder / output / file, newline="") as stream:
            return list(csv.DictReader(stream))

    def logged_steps(self):
        return len(self.rows("run")) if (self.folder / "run/steps.csv").exists() else 0

    def test_gpus_of_their_own_or_none(self):
        # One GPU less than processes, wherever this runs: none at all, or by what they may see.
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        text = self.run_it(2, "--device", "cuda", code=4)
        self.assertRegex(text, r"device\.kind: cuda: rank [01] of 2 \(host ")
        self.assertEqual(text.count("device.kind: cuda: "), 1, text)
        text = self.run_it(2, "--device", "auto", "--set", "train.max_steps=1")
        self.assertRegex(text, r"device auto, and rank [01] of 2 \(host ")

    def test_ranks_compute_what_one_computes(self):
        self.run_it(0, output="alone")
        self.run_it(1, output="one")
        self.assertEqual(self.bytes_of("alone"), self.bytes_of("one"))
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                text = self.run_it(ranks, output=f"n{ranks}")
                self.assertIn(f"{ranks} processes on 1 host", text)
                self.assertEqual(len(re.findall("finished.*: 2 epochs", text)), 1, text)
                mine, theirs = self.rows("alone"), self.rows(f"n{ranks}")
                self.assertEqual(len(mine), len(theirs))
                self.assertAlmostEqual(float(theirs[0]["loss"]) / float(mine[0]["loss"]), 1,
                                       delta=1e-6)
                alphas = [[r["alpha"] for r in self.rows(run, "scales.csv") if r["step"] == "1"]
                          for run in ("alone", f"n{ranks}")]
                self.assertEqual(*alphas)
        self.run_it(3, output="again")
        self.assertEqual(self.bytes_of("n3"), self.bytes_of("again"))

    def test_a_language_model_computes_what_one_process_computes(self):
        (self.folder / "run.yaml").write_text(WORDS.format(path=self.folder / "text.txt"))
        (self.folder / "text.txt").write_bytes(b"the cat sat on the mat. a dog lay in the fog. " * 40)
        self.run_it(0, output="alone")
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                self.run_it(ranks, output=f"n{ranks}")
                mine, theirs = self.rows("alone"), self.rows(f"n{ranks}")
                self.assertEqual(len(mine), len(theirs))
                self.assertAlmostEqual(float(theirs[0]["loss"]) / float(mine[0]["loss"]), 1,
                                       delta=1e-6)
                first = [[(r["layer"], r["alpha"], r["scale_out"])
                          for r in self.rows(run, "scales.csv") if r["step"] == "1"]
                         for run in ("alone", f"n{ranks}")]
                self.assertEqual(*first)
                self.assertTrue(any(layer.endswith(".ds") for layer, *_ in first[0]))
        self.run_it(3, output="again")
        self.assertEqual(self.bytes_of("n3"), self.bytes_of("again"))

    def test_versions_and_other_commands_speak_once(self):
        done = subprocess.run([*MPIRUN, "-n", "3", BINARY, "--version"], capture_output=True,
                              text=True, timeout=60)
        self.assertRegex(done.stdout, r"processes 3 processes on 1 host: .* \(ranks 0-2\)")
        self.assertEqual(done.stdout.count("ada-train "), 1)
        done = subprocess.run([*MPIRUN, "-n", "3", BINARY, "formats"], capture_output=True,
                              text=True, timeout=60)
        alone = subprocess.run([BINARY, "formats"], capture_output=True, text=True)
        self.assertEqual(done.stdout.split(), alone.stdout.split())  # of a terminal's width

    def test_errors_are_told_once_with_their_codes(self):
        text = self.run_it(3, "--set", "optimizer.lr=fast", code=2)
        self.assertEqual(text.count("optimizer.lr"), 1, text)
        text = self.run_it(2, "--set", "parallel.ranks=3", code=2)
        self.assertEqual(text.count("2 processes were started"), 1, text)
        # Only one rank has other options, then a file that is not there.
        launcher, program = MPIRUN, self.command(0)
        for other, message in (([*program, "--lr", "0.06"],
                                r"the configuration of rank 1 of 2 \(host [^)]*\) is not that of "
                                r"rank 0:\s+optimizer.lr: 0.005 -> 0.06"),
                               ([program[0], "train", "/nowhere.yaml"],
                                r"rank 1 of 2 \(host [^)]*\): /nowhere.yaml")):
            done = subprocess.run([*launcher, "-n", "1", *program, ":", "-n", "1", *other],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(re.findall(message, done.stderr)), 1, done.stderr)

    def test_resume_with_as_many_gives_the_same_bytes(self):
        self.run_it(2, output="whole")
        self.run_it(2, "--set", "train.max_steps=12")
        text = self.run_it(3, "--resume", code=2)
        self.assertIn("the run had 2 processes", text)
        self.run_it(2, "--resume")
        whole, resumed = self.bytes_of("whole"), self.bytes_of("run")
        for files in (whole, resumed):  # the run has evaluated at its first end as well
            del files["evaluation.csv"]
        self.assertEqual(whole, resumed)

    def start(self, ranks, *arguments):
        process = subprocess.Popen(self.command(ranks, *arguments), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)

        def end():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        self.addCleanup(end)
        return process

    def wait_for(self, what, seconds=120):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = what()
            if got:
                return got
            time.sleep(0.02)
        self.fail("waited in vain")

    def test_operands_with_histories_and_a_switch_of_precision(self):
        """Scales of whole tensors, kept in checkpoints: a run that stopped in front of its switch,
        at it or after it has the bytes of one that never stopped; one process has the same scales."""
        keys = ("--set", "precision={format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2,"
                " tensor_scaling: {kind: delayed, history: 3}}, schedule: [{from_step: 8, recipe: "
                "te_nvfp4}]}", "log.statistics=[operands]", "scaling={policy: fixed, scale: 256}")
        self.run_it(2, *keys)
        want = self.bytes_of("run")
        self.assertIn("blocks.csv", want)
        for steps in (5, 7, 8, 11):
            with self.subTest(steps=steps):
                output = f"cut{steps}"
                self.run_it(2, *keys, f"train.max_steps={steps}", output=output)
                self.run_it(2, *keys, "train.max_steps=0", "--resume", output=output)
                got = self.bytes_of(output)
                del got["evaluation.csv"]  # it has a row more, of the earlier end
                self.assertEqual(got, {n: b for n, b in want.items() if n != "evaluation.csv"})
        self.run_it(0, *keys, output="alone")
        scales = [{(r["layer"], r["tensor"]): float(r["scale"])
                   for r in self.rows(run, "underflow.csv") if r["step"] == "7"}
                  for run in ("run", "alone")]
        self.assertEqual(set(scales[0]), set(scales[1]))
        for key, scale in scales[0].items():
            self.assertAlmostEqual(scale / scales[1][key], 1, delta=0.05, msg=key)
        events = [(r["step"], r["event"]) for r in self.rows("run", "events.csv")]
        self.assertEqual(events.count(("8", "precision")), 1)

    def test_sums_of_a_ring(self):
        """Beside NumPy's model of a reduce-scatter: piece k of all gradients goes from process k + 1
        around to k, which adds its part last; counts of what travels are exact."""
        batch, parts = summed_parts.Batch(self.folder), summed_parts.PARTS
        launcher = [*MPIRUN, "-n", str(parts)]
        single = batch.of_parts()
        flat = [part.reshape(-1) for part in single]  # as they lie in memory
        piece = -(-flat[0].size // (16 * parts)) * 16
        for keys, travels, kept in (
                (["parallel.reduction=ring"], "fp32", "fp32"),
                (["parallel.gradients=bf16", "parallel.reduction=ring"], "bf16", "bf16"),
                (["parallel.reduction={order: ring, format: bf16}"], "fp32", "bf16"),
                (["parallel.gradients=bf16", "parallel.reduction={order: ring, format: fp32}"],
                 "bf16", "fp32"),
                (["parallel.reduction={order: ranks, format: bf16}"], "fp32", "bf16")):
            with self.subTest(keys=keys):
                counted = []

                def rounds(values, form, counts=counted):
                    near = summed_parts.rounded(values, form)
                    if form != "fp32":
                        counts.append((values.size, ((values != 0) & (near == 0)).sum()))
                    return near
                sent = [rounds(part, travels) for part in flat]
                total = np.zeros_like(flat[0])
                for first in range(0, total.size, piece):
                    at = slice(first, first + piece)
                    start = first // piece + 1 if "ring" in keys[-1] else 0
                    kept_sum = np.zeros_like(total[at])
                    for k in range(parts):
                        kept_sum = kept_sum + sent[(start + k) % parts][at]
                        if travels == "fp32" or 0 < k < parts - 1:
                            kept_sum = rounds(kept_sum, kept)
                    total[at] = kept_sum
                total = rounds(total, travels)
                for more in ([], ["parallel.bucket_mb=0.001"]):
                    batch.run("run", *keys, *more, launcher=launcher)
                    np.testing.assert_array_equal(batch.gradients("run").reshape(-1), total)
                    rows = batch.counts("run", "sent")
                    if not counted:
                        self.assertEqual(rows, [])
                        continue
                    self.assertEqual(int(rows[0]["numel"]), sum(n for n, _ in counted))
                    self.assertEqual(int(rows[0]["underflow"]), sum(n for _, n in counted))

    def test_accumulated_gradients_of_processes(self):
        """Each process adds up its own micro-batches; their sums are added in the order of ranks."""
        batch = summed_parts.Batch(self.folder)
        single = batch.of_parts()
        # Rows of a micro-batch are dealt out, so each process has half of each pair of parts.
        batch.run("two", "train.accumulate=2", "precision.accumulated_gradients=bf16",
                  launcher=[*MPIRUN, "-n", "2"])
        sums = [summed_parts.rounded(summed_parts.rounded(single[r], "bf16") + single[2 + r], "bf16")
                for r in range(2)]
        np.testing.assert_array_equal(batch.gradients("two"), sums[0] + sums[1])
        (row,) = batch.counts("two", "accumulated")
        self.assertEqual(int(row["numel"]), 4 * single[0].size)

    def test_a_killed_rank_ends_all_and_the_run_goes_on_to_the_same_bytes(self):
        moments = int(os.environ.get("ADA_MPI_KILLS", "3"))
        epochs, steps = ["--epochs", "20"], 400
        self.run_it(3, *epochs, output="whole")
        self.assertEqual(len(self.rows("whole")), steps)
        draw = random.Random(1)
        for kill in range(moments):
            with self.subTest(kill=kill):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                process = self.start(3, *epochs)
                name = str(self.folder / "run")
                ids = self.wait_for(lambda: (a := alive(name)) and len(a) == 3 and a)
                # Steps, not seconds: a fast machine has most of the run still before it as well.
                after = draw.randrange(steps // 2)
                self.wait_for(lambda: self.logged_steps() > after)
                os.kill(draw.choice(ids), signal.SIGKILL)
                started = time.monotonic()
                process.wait(timeout=60)
                self.assertLess(time.monotonic() - started, 20)
                self.assertNotEqual(process.returncode, 0)
                self.wait_for(lambda: not alive(name), 20)
                self.assertLess(self.logged_steps(), steps)
                self.run_it(3, *epochs, "--resume")
                self.assertEqual(self.bytes_of("whole"), self.bytes_of("run"))

    def test_a_stopped_rank_is_reported_after_the_timeout(self):
        process = self.start(3, "--epochs", "100000", "--set", "parallel.timeout_seconds=3")
        name = str(self.folder / "run")
        ids = self.wait_for(lambda: (a := alive(name)) and len(a) == 3 and a)
        self.wait_for(lambda: (self.folder / "run/checkpoints").exists())
        stopped = ids[2]
        rank = int(dict(word.split("=", 1) for word in pathlib.Path(f"/proc/{stopped}/environ")
                        .read_text().split("\0") if "=" in word)["OMPI_COMM_WORLD_RANK"])
        os.kill(stopped, signal.SIGSTOP)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4, out)
        self.assertRegex(out, rf"rank {rank} \(host [^)]*\) took no part in the run for \d+ seconds")
        self.assertEqual(len(re.findall("took no part", out)), 1, out)
        self.wait_for(lambda: not alive(name), 20)

    def test_a_signal_ends_all_with_a_checkpoint(self):
        process = self.start(2, "--epochs", "100000")
        name = str(self.folder / "run")
        ids = self.wait_for(lambda: (a := alive(name)) and len(a) == 2 and a)
        self.wait_for(lambda: (self.folder / "run/checkpoints").exists())
        os.kill(ids[1], signal.SIGTERM)  # one is enough: they agree after the step
        out, _ = process.communicate(timeout=60)
        self.assertIn("stopped by signal 15; after step", out)
        step = int(re.search(r"after step (\d+)", out).group(1))
        self.assertTrue((self.folder / f"run/checkpoints/step-{step:08}.json").exists())


def load_tests(loader, standard, _pattern):
    return standard


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
