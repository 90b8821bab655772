"""`ada-train choose` on a tiny network: arms of formats, recipes, policies and files, the table, the
verdict, choose.csv, JSON and page; resumption; what is refused. ADA_BINARY names the program."""
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from tests.program_case import BINARY, ProgramCase, SMALL_NETWORK

CONFIG = SMALL_NETWORK + """seed: 5
precision: {format: fp16}
scaling: {policy: fixed, scale: 64}
train: {epochs: 2}
evaluate: {every_epochs: 0}
device: {kind: cpu}
"""
FP4 = "precision: {gradients: fp4_e2m1}\n"


def kill_child(parent, words, started):
    """Kills the child of the process whose command line has these words, once the file is there."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for child in children:
            try:
                line = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().decode()
            except OSError:
                continue
            if words in line and started.is_file():
                os.kill(int(child), signal.SIGKILL)
                return True
        time.sleep(0.02)
    return False


class Choose(ProgramCase):
    config = CONFIG

    def choose(self, formats, *more, code=0):
        return self.words_of("choose", "r.yaml", "--formats", formats, "--seeds", "1", "--out",
                             "c", *more, code=code)

    def rows(self):
        return self.rows_of("c/choose.csv")

    def losses(self, run):
        return [float(row["loss"]) for row in self.rows_of(f"c/{run}/steps.csv")]

    def test_a_choice(self):
        (self.folder / "coarse.yaml").write_text(FP4, encoding="utf-8")
        text = self.choose("bf16,fp16+dynamic,te_mxfp8,coarse.yaml", "--html")
        with self.subTest("the table names every arm, and the verdict is one of them"):
            for arm in ("fp32", "bf16", "fp16+dynamic", "te_mxfp8", "coarse"):
                self.assertRegex(text, rf"(?m)^  {re.escape(arm)} ")
            verdict = " ".join(text.split("\n\n")[-1].split())
            self.assertRegex(verdict, r"^(Take (bf16|fp16\+dynamic|te_mxfp8|coarse)|Keep fp32): ")
            self.assertRegex(verdict, r"Sure: (well|fairly|little); surer with --seeds 3")
        rows = self.rows()
        with self.subTest("a row for each training, and two twins of the baseline"):
            self.assertEqual([(row["arm"], row["twin"]) for row in rows],
                             [("fp32", "0"), ("bf16", "0"), ("fp16+dynamic", "0"),
                              ("te_mxfp8", "0"), ("coarse", "0"), ("fp32", "1"), ("fp32", "2")])
            self.assertEqual({row["status"] for row in rows}, {"finished"})
            self.assertEqual({row["steps"] for row in rows}, {"32"})
            self.assertEqual({row["seed"] for row in rows}, {"5"})
        with self.subTest("loss minus the baseline's, over the last ten steps"):
            base = self.losses("fp32-seed5")
            for row in rows:
                losses = self.losses(row["run"])
                minus = sum(a - b for a, b in zip(losses[-10:], base[-10:])) / 10
                self.assertAlmostEqual(float(row["loss_minus_baseline"]), minus, places=7)
                self.assertAlmostEqual(float(row["loss"]), sum(losses[-10:]) / 10, places=6)
        with self.subTest("all arms start alike, and twins do not"):
            self.assertAlmostEqual(self.losses("bf16-seed5")[0], base[0], delta=0.02)
            first = [self.losses(f"fp32-seed5-twin{twin}")[0] for twin in (1, 2)]
            self.assertNotEqual(first[0], base[0])
            self.assertNotEqual(first[0], first[1])
            self.assertAlmostEqual(first[0], base[0], delta=0.01)
        with self.subTest("bits of operands"):
            bits = {row["arm"]: float(row["operand_bits"]) for row in rows}
            self.assertEqual(bits["fp32"], 32)
            self.assertEqual(bits["bf16"], 16)
            self.assertEqual(bits["fp16+dynamic"], 16)
            self.assertAlmostEqual(bits["te_mxfp8"], 8.25)
        with self.subTest("policies and keys of an arm"):
            config = (self.folder / "c/configs/fp16+dynamic-seed5.yaml").read_text("utf-8")
            self.assertRegex(config, r"policy: dynamic")
            config = (self.folder / "c/configs/coarse-seed5.yaml").read_text("utf-8")
            self.assertRegex(config, r"gradients: fp4_e2m1")
            self.assertRegex(config, r"format: fp16")
            self.assertRegex(config, r"scale: 64")
        with self.subTest("the page"):
            page = (self.folder / "c/choose.html").read_text("utf-8")
            self.assertIn("<polyline", page)
            self.assertNotIn("http", page)
            self.assertIn("te_mxfp8", page)
        with self.subTest("a second time nothing is trained, and the answer is the same"):
            before = (self.folder / "c/bf16-seed5/summary.json").stat().st_mtime_ns
            self.assertEqual(
                self.choose("bf16,fp16+dynamic,te_mxfp8,coarse.yaml"), text)
            self.assertEqual((self.folder / "c/bf16-seed5/summary.json").stat().st_mtime_ns, before)
        with self.subTest("JSON says the same"):
            found = json.loads(self.choose("bf16,fp16+dynamic,te_mxfp8,coarse.yaml", "--json"))
            self.assertEqual((found["command"], found["version"]), ("choose", 1))
            self.assertEqual([arm["arm"] for arm in found["arms"]],
                             ["fp32", "bf16", "fp16+dynamic", "te_mxfp8", "coarse"])
            self.assertIn(found["verdict"]["arm"], verdict)
            twins = [float(row["loss_minus_baseline"]) for row in rows if row["twin"] != "0"]
            self.assertAlmostEqual(found["noise"], math.sqrt(sum(t * t for t in twins) / 2), 7)
            for arm, row in zip(found["arms"], rows):
                self.assertAlmostEqual(arm["loss_minus_baseline"],
                                       float(row["loss_minus_baseline"]), places=7)
        with self.subTest("another arm is trained beside those that are there"):
            self.assertIn("fp8_e5m2", self.choose("bf16,fp8_e5m2+adaptive", "--json"))
            self.assertTrue((self.folder / "c/fp8_e5m2+adaptive-seed5").is_dir())
        with self.subTest("another question in the same folder is refused"):
            error = self.choose("bf16", "--set", "optimizer.lr=0.5", code=2)
            self.assertIn("another question", error)
            self.assertIn("optimizer.lr", error)

    def test_an_arm_that_does_not_train_is_said(self):
        (self.folder / "wild.yaml").write_text(
            "precision: {format: fp8_e4m3}\nscaling: {policy: fixed, scale: 1.0e+30}\n"
            "train: {stop_after_skips: 5}\n", encoding="utf-8")
        text = self.choose("wild.yaml", "--json")
        found = json.loads(text)
        self.assertFalse(found["arms"][1]["trains"])
        self.assertEqual(found["arms"][1]["trouble"], "ended after step 5, with all steps skipped")
        self.assertIsNone(found["arms"][1]["loss_minus_baseline"])
        self.assertEqual(found["verdict"]["arm"], "fp32")
        self.assertIn("does not train", found["verdict"]["sentence"])

    def test_a_training_that_is_killed_is_no_result(self):
        """Nothing is known of its arm; the same command goes on."""
        (self.folder / "r.yaml").write_text(CONFIG.replace("epochs: 2", "epochs: 100"),
                                            encoding="utf-8")
        command = [BINARY, "choose", "r.yaml", "--formats", "bf16", "--seeds", "1", "--out", "c",
                   "--jobs", "1", "--json"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertTrue(kill_child(process.pid, "configs/bf16-seed5.yaml",
                                       self.folder / "c/bf16-seed5/steps.csv"))
            said, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 137, errors)
        self.assertIn("bf16-seed5 ended with exit code 137", errors)
        found = json.loads(said)
        arm, verdict = found["arms"][1], found["verdict"]
        self.assertFalse(arm["trains"])
        self.assertIn("was ended by signal 9", arm["trouble"])
        self.assertNotIn("does not train", said)
        self.assertIn("bf16 (16 bits) is not known: was ended by signal 9", verdict["sentence"])
        self.assertEqual([verdict["sure"], verdict["surer_with"]],
                         ["little", "the same command, which goes on"])

    def test_states_of_the_optimizer(self):
        arms = ["bf16+te_fp8", "fp16+dynamic+torchao_8bit", "te_mxfp8+te_fp16"]
        found = json.loads(self.choose(",".join(arms), "--set", "optimizer={kind: adam, lr: 0.01}",
                                       "--json"))
        self.assertEqual([arm["arm"] for arm in found["arms"]], ["fp32", *arms])
        for arm, state, policy in (("bf16+te_fp8", "te_fp8", "none"),
                                   ("fp16+dynamic+torchao_8bit", "torchao_8bit", "dynamic"),
                                   ("te_mxfp8+te_fp16", "te_fp16", "none")):
            config = (self.folder / f"c/configs/{arm}-seed5.yaml").read_text("utf-8")
            self.assertRegex(config, f"optimizer_state:\\s+\\{{?(format: )?{state}")
            self.assertRegex(config, f"policy: {policy}")
        self.assertNotIn("optimizer_state", (self.folder / "c/configs/fp32-seed5.yaml").read_text())
        for arm, message in (("bf16+te_fp9", "did you mean te_fp8"),
                             ("bf16+te_fp8+te_fp16", "te_fp8 and te_fp16 exclude each other"),
                             ("bf16+", "nothing follows")):
            self.assertIn(message, self.choose(arm, code=2))

    def test_seeds_have_a_deviation(self):
        found = json.loads(self.words_of("choose", "r.yaml", "--formats", "bf16", "--seeds", "3",
                                         "--out", "c", "--steps", "12", "--json"))
        self.assertEqual(found["seeds"], [5, 6, 7])
        self.assertEqual((found["steps"], found["configured_steps"]), (12, 32))
        arm = found["arms"][1]
        minus = arm["loss_minus_baseline_by_seed"]
        mean = sum(minus) / 3
        self.assertAlmostEqual(arm["loss_minus_baseline"], mean)
        self.assertAlmostEqual(arm["deviation"],
                               math.sqrt(sum((x - mean) ** 2 for x in minus) / 2))
        self.assertEqual(len(found["twins_minus_original"]), 3)
        self.assertIn("--steps", found["verdict"]["surer_with"])

    def test_it_goes_on_after_a_signal(self):
        for number in (signal.SIGINT, signal.SIGUSR1):
            with self.subTest(number):
                self.goes_on_after(number)

    def goes_on_after(self, number):
        out = f"c{int(number)}"
        (self.folder / "r.yaml").write_text(CONFIG.replace("epochs: 2", "epochs: 400"),
                                            encoding="utf-8")
        command = [BINARY, "choose", "r.yaml", "--formats", "bf16", "--seeds", "1", "--out", out,
                   "--jobs", "1"]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            started = self.folder / out / "fp32-seed5/steps.csv"
            end = time.monotonic() + 60
            while not started.is_file() and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(number)
            said, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + number, errors)
        self.assertEqual(said, "")
        self.assertIn("the same command goes on", errors)
        self.assertTrue(list((self.folder / out / "fp32-seed5/checkpoints").glob("*.safetensors")))

    def test_what_is_refused(self):
        for formats, words in (("bf61", "did you mean bf16?"), ("fp16+dynamik", "dynamic"),
                               ("bf16,bf16", "named twice"), ("fp32", "beside the baseline"),
                               ("missing.yaml", "missing.yaml")):
            with self.subTest(formats=formats):
                self.assertIn(words, self.choose(formats, code=2))
        for option, value in (("--budget", "none"), ("--seeds", "0"), ("--steps", "100")):
            with self.subTest(option=option):
                self.assertIn(option, self.choose("bf16", option, value, code=2))
        self.assertIn("choose itself sets it",
                      self.choose("bf16", "--set", "output=x", code=2))
        self.assertFalse((self.folder / "c").exists())

    def test_a_run_keeps_its_folder(self):
        self.run_program("train", "r.yaml", "--output", "c", "--quiet", "--set", "train.epochs=1")
        before = sorted(self.folder.rglob("*"))
        for place in ("c", "c/checkpoints", "c/dump/a"):
            with self.subTest(place):
                done = self.run_program("choose", "r.yaml", "--formats", "bf16", "--out", place,
                                        code=2)
                self.assertIn(f"--out {place}: belongs to the run in ", done.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)


if __name__ == "__main__":
    unittest.main()
