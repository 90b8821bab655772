"""tools/sweep.sh: what becomes of failing, finished, changed and interrupted runs, and the tables; on
a stand-in for ada-train, and once on the program itself."""
import csv
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sweep_case import FAKE, TOOL, SweepCase  # noqa: E402  (beside this file)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY", "")
REAL = """data: {dataset: synthetic, batch_size: 16, limit: {train: 64, test: 32}}
model: {zoo: mlp, hidden: [16]}
precision: {format: fp16}
train: {epochs: 1}
log: {every: 2}
"""
# Below a table: what its share is of, and what nobody counted.
COUNTED = ("  lost: the mean of the tensor that lost most, of dx and dw, 2 of 4 steps; not counted: y "
           "(log.statistics)\n")


class SweepTest(SweepCase):
    def test_all_runs_and_their_tables(self):
        result = self.sweep("-j", "2", "--threads", "3", "--vary", "lr=0.125,9",
                            "--vary", "seed=1,2,6", "--set", "data={a: 1, b: 2}")
        self.assertEqual(result.stdout,
                         "  lr     runs   test top-1 %       train loss           lost %  skipped"
                         "  not finite from\n"
                         "  0.125     3   62.50 ± 0.00  1.0000 ± 0.8819  100.000 ± 0.000        3"
                         "                -\n"
                         "  9         3  950.00 ± 0.00                -  100.000 ± 0.000        3"
                         "           step 2\n" + COUNTED)
        self.assertIn("6/6 finished", result.stderr)
        self.assertIn("6 finished, 0 skipped, 0 failed, 0 left", result.stderr)
        calls = self.calls()
        self.assertEqual(len(calls), 6)
        self.assertEqual(calls[1], {"name": "lr=0.125__seed=2", "resume": True, "threads": "3",
                                    "set": ["lr=0.125", "seed=2", "data={a: 1, b: 2}"]})
        rows = self.table()
        self.assertEqual([(row["lr"], row["seed"]) for row in rows],
                         [(lr, seed) for lr in ("0.125", "9") for seed in "126"])
        # loss: 8 of 80 lost; fc: 4 * 6 of 200; means of layers 10 and 2 * 6.
        self.assertEqual(rows[2], {
            "run": "lr=0.125__seed=6", "lr": "0.125", "seed": "6", "status": "finished",
            "exit_code": "0", "steps": "4", "skipped": "6", "train_loss": "2",
            "train_accuracy": "0.25", "test_loss": "7", "test_top1": "0.625", "test_top5": "1",
            "best_step": "2", "best_loss": "0.5", "best_top1": "0.75", "best_top5": "0.875",
            "dx_lost_pct": "11.4285714", "layer_lost_pct": "11", "worst_lost_pct": "12",
            "worst_layer": "fc", "last_scale": "128", "images_per_second": "10", "seconds": "2.5",
            "update_lost_pct": "", "master_lost_pct": "", "state_lost_pct": "", "sent_lost_pct": "",
            "not_finite_since": "", "split": "test", "test_miou": "", "best_miou": "",
            "test_map_07": "", "best_map_07": "", "lost_pct": "100", "lost_most_pct": "100",
            "lost_tensor": "fc.dw",
            "counted": "dx and dw, 2 of 4 steps; not counted: y (log.statistics)"})
        self.assertEqual(rows[0]["worst_layer"], "loss")
        means = self.table("sweep_summary.csv")
        self.assertEqual([(row["lr"], row["runs"], row["n"]) for row in means],
                         [("0.125", "3", "3"), ("9", "3", "3")])
        self.assertNotIn("seed", means[0])
        self.assertEqual(means[0]["test_loss_mean"], "4")
        self.assertEqual(means[0]["test_loss_std"], "2.64575131")  # sqrt((4 + 1 + 9) / 2)
        self.assertEqual(float(means[0]["train_loss_std"]),
                         float(f"{statistics.stdev([1 / 3, 2 / 3, 2]):.9g}"))
        # A training loss that is not finite is null in summary.json: no mean hides it.
        self.assertEqual(rows[3]["train_loss"], "")
        self.assertEqual((means[1]["train_loss_mean"], means[1]["train_loss_std"]), ("", ""))
        self.assertEqual((rows[2]["not_finite_since"], rows[3]["not_finite_since"]), ("", "2"))

    def test_the_table_in_the_terminal_fits_it(self):
        long = "{policy: adaptive, method: exact_range, underflow_target: 0.001}"
        text = self.sweep("--vary", f"scaling={long},{{policy: none}}", "--vary",
                          "precision.format=fp16,bf16", "--vary", "seed=1,2").stdout
        lines = text.splitlines()
        self.assertEqual(lines[0], "  scaling  format  runs  test top-1 %       train loss      "
                                   "     lost %  skipped")
        self.assertEqual([line.split()[:3] for line in lines[1:5]],
                         [["(1)", "fp16", "2"], ["(1)", "bf16", "2"],
                          ["(2)", "fp16", "2"], ["(2)", "bf16", "2"]])
        self.assertEqual(lines[5:], [f"  scaling (1): {long}", "  scaling (2): {policy: none}",
                                     COUNTED.rstrip("\n")])
        self.assertLessEqual(max(map(len, lines[:5])), 80)
        self.assertEqual(self.show_again(), text)
        text = self.sweep("--vary", "mode=good,fail", "--out", "other", expect=1).stdout
        self.assertEqual([line.split()[:4] for line in text.splitlines()[1:3]],
                         [["good", "1", "60.00", "0.3333"], ["fail", "0", "of", "1"]])

    def show_again(self):
        return subprocess.run([TOOL, "--table", "out"], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, check=True).stdout

    def test_a_varied_format_that_does_not_reach_the_gradients(self):
        vary = ("--vary", "precision.format=fp16,bf16", "--vary", "seed=1,2")
        self.assertNotIn("no effect", self.sweep(*vary).stderr)
        self.write("base.yaml", "lr: 0.1\nmode: good\nprecision.gradients: fp8_e4m3\n")
        said = ("precision.format has no effect on gradients: base.yaml sets precision.gradients "
                "for them, fp8_e4m3; vary precision.gradients, or take precision.gradients out")
        text = self.sweep(*vary, "--out", "b").stderr
        self.assertEqual(text.count(said), 2)  # before the runs, and below the table
        self.assertIn(said, self.sweep(*vary, "--dry-run").stderr)
        both = (*vary, "--vary", "precision.gradients=fp16,bf16", "--dry-run")
        self.assertNotIn("no effect", self.sweep(*both).stderr)
        text = self.sweep(*vary, "--set", "precision.gradients=bf16", "--dry-run").stderr
        self.assertIn("--set sets precision.gradients for them, bf16", text)
        self.write("base.yaml", "mode: good\nprecision.layers[1]: {match: '*', format: fp16}\n")
        text = self.sweep(*vary, "--dry-run").stderr
        self.assertIn("base.yaml sets precision.layers for them, fp16", text)
        self.write("base.yaml", "mode: good\nprecision.layers[1]: {match: fc*, format: fp16}\n")
        self.assertNotIn("no effect", self.sweep(*vary, "--dry-run").stderr)

    def told_and_shown(self, evaluation, *columns):
        """What is said of one run with this evaluation, its table, and some of its columns."""
        summary = {"evaluation": evaluation}
        code = ("import json, sys; sys.path.insert(0, 'tools/sweep'); import show, table\n"
                "row = {'status': 'finished', 'x': '1', **table.numbers(table.pathlib.Path('.'), "
                f"json.loads({json.dumps(summary)!r}))}}\n"
                "print(table.told(row)); print(*show.shown(['x'], [row]), sep='\\n')\n"
                f"print(*[row[column] for column in {columns!r}])")
        return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True,
                              text=True, check=True).stdout

    def test_pictures_are_judged_by_what_their_task_measures(self):
        for name, title in (("miou", "mIoU"), ("map_07", "mAP (2007)")):
            with self.subTest(name):
                found = self.told_and_shown(
                    {"test": {"loss": 2.5, name: 0.25, "best": {"step": 9, name: 0.5}}},
                    "split", f"test_{name}", "best_step", f"best_{name}", "test_top1")
                told, titles, numbers, columns = found.splitlines()
                self.assertEqual(told, f"test {title} 25.00 %")
                self.assertIn(f"runs  test {title} %  train loss", titles)
                self.assertEqual(numbers.split()[:3], ["1", "1", "25.00"])
                self.assertEqual(columns, "test 0.25 9 0.5 None")

    def test_language_models_are_judged_by_the_loss_of_their_validation(self):
        """Neither a table nor a line on a run is empty where there is no split `test`."""
        found = self.told_and_shown(
            {"validation": {"loss": 2.5, "top1": 0.25, "best": {"step": 9, "loss": 2.25}}},
            "split", "test_loss", "best_step", "best_loss")
        self.assertEqual(found, "validation loss 2.5000\n"
                                "  x  runs  validation loss  train loss  lost %  skipped\n"
                                "  1     1           2.5000           -       -        -\n"
                                "validation 2.5 9 2.25\n")

    def test_one_seed_has_no_deviation(self):
        self.sweep("--vary", "lr=0.1,0.2")
        self.assertEqual([(row["n"], row["test_loss_mean"], row["test_loss_std"])
                          for row in self.table("sweep_summary.csv")], [("1", "2", "")] * 2)

    def test_a_failure_stops_no_other_and_only_it_runs_again(self):
        result = self.sweep("--vary", "mode=good,fail,fine", "--vary", "seed=1", expect=1)
        self.assertIn("mode=fail__seed=1: failed, exit code 5: ada-train: stopped: out of luck",
                      result.stderr)
        self.assertEqual(self.column("status"), {"mode=good__seed=1": "finished",
                                                 "mode=fail__seed=1": "failed",
                                                 "mode=fine__seed=1": "finished"})
        self.assertEqual(self.column("exit_code")["mode=fail__seed=1"], "5")
        self.assertEqual([row["n"] for row in self.table("sweep_summary.csv")], ["1", "0", "1"])
        self.calls()
        result = self.sweep("--vary", "mode=good,fail,fine", "--vary", "seed=1,2", expect=1)
        self.assertEqual([call["name"] for call in self.calls()],
                         ["mode=fail__seed=1", "mode=fail__seed=2", "mode=fine__seed=2",
                          "mode=good__seed=2"])
        self.assertIn("2 finished, 2 skipped, 2 failed", result.stderr)

    def test_a_refused_configuration_is_a_failure(self):
        result = self.sweep("--vary", "mode=bad,good", expect=1)
        self.assertIn("mode: expected good, got 'bad'", result.stderr)
        self.assertEqual(self.column("status"), {"mode=bad": "failed", "mode=good": "finished"})

    def test_another_configuration_does_not_pass_for_finished(self):
        self.sweep("--vary", "seed=1,2")
        self.calls()
        self.write("base.yaml", "lr: 0.1\nmode: good\ndevice.threads: 7\ndata.path: /elsewhere\n")
        self.sweep("--vary", "seed=1,2", "--threads", "5")  # none of them changes a result
        self.assertEqual(self.calls(), [])
        self.write("base.yaml", "lr: 0.2\nmode: good\n")
        result = self.sweep("--vary", "seed=1,2,3", expect=1)
        self.assertIn("lr is 0.1 there, 0.2 here", result.stderr)
        self.assertIn("delete the folders in out", result.stderr)
        self.assertEqual([call["name"] for call in self.calls()], ["seed=3"])
        self.assertEqual(self.column("status"),
                         {"seed=1": "refused", "seed=2": "refused", "seed=3": "finished"})
        self.assertEqual(self.column("test_loss"), {"seed=1": "", "seed=2": "", "seed=3": "4"})
        self.write("base.yaml", "lr: 0.1\nmode: good\n")
        self.sweep("--vary", "seed=1,2")
        self.assertEqual(self.column("status"), {"seed=1": "finished", "seed=2": "finished"})

    def interrupted(self, number):
        """Starts three runs that wait, two at a time, and sends a signal; those that come by themselves twice."""
        options = ("-j", "2", "--vary", "mode=wait", "--vary", "seed=1,2,3")
        process = subprocess.Popen(self.command(*options), cwd=self.folder, env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        waiting = [self.out / f"mode=wait__seed={seed}" / "waiting" for seed in (1, 2)]
        end = time.monotonic() + 60
        while not all(path.exists() for path in waiting) and time.monotonic() < end:
            time.sleep(0.02)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: the whole foreground group
        else:
            process.send_signal(number)
        if number not in (signal.SIGINT, signal.SIGTERM):
            time.sleep(0.1)
            process.send_signal(number)
        _, text = process.communicate(timeout=60)
        return options, process.returncode, text

    def test_a_signal_lets_the_runs_write_checkpoints(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
                             (signal.SIGUSR1, 138), (signal.SIGUSR2, 140), (signal.SIGXCPU, 152)):
            with self.subTest(number):
                options, status, text = self.interrupted(number)
                self.assertEqual(status, code, text)
                self.assertIn("0 finished, 0 skipped, 0 failed, 3 left", text)
                self.assertEqual(list(self.column("status").values()),
                                 ["interrupted", "interrupted", "pending"])
                for seed in (1, 2):  # one signal each: a second one would end a run at once
                    checkpoint = self.out / f"mode=wait__seed={seed}" / "checkpoints"
                    self.assertEqual((checkpoint / "step-00000002.json").read_text(), "1")
                self.calls()
                (self.out / "mode=wait__seed=3" / "checkpoints").mkdir(parents=True)
                self.sweep(*options)
                self.assertEqual(len(self.calls()), 3)
                self.assertEqual(set(self.column("status").values()), {"finished"})
                subprocess.run(["rm", "-r", self.out], check=True)

    def test_a_closed_pipe_lets_the_runs_write_checkpoints(self):
        """As SWEEP 2>&1 | head: the next line ends the sweep, and no run goes on without it."""
        options = ("-j", "2", "--vary", "mode=good", "mode=wait", "--vary", "seed=1,2")
        process = subprocess.Popen(self.command(*options), cwd=self.folder, env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        process.stderr.readline()
        process.stderr.close()
        self.assertEqual(process.wait(60), 141)
        self.assertNotIn("finished", [self.column("status").get(f"mode=wait__seed={seed}") for seed in (1, 2)])
        self.assertEqual(subprocess.run(["flock", "-n", self.out / "sweep_logs" / ".lock", "true"],
                                        check=False).returncode, 0)

    def test_one_sweep_at_a_time(self):
        self.out.joinpath("sweep_logs").mkdir(parents=True)
        holder = subprocess.Popen(["flock", self.out / "sweep_logs" / ".lock", "sh", "-c",
                                   "echo held; read end"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()
        self.assertIn("another sweep.sh works in out", self.sweep(expect=2).stderr)
        holder.communicate(b"\n")
        self.sweep()

    def test_dry_run_lists_commands(self):
        result = self.sweep("--vary", "x={a: 1}", "--vary", "seed=1,2", "--dry-run")
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        words = subprocess.run(["bash", "-c", f"printf '%s\\n' {lines[1]}"], capture_output=True,
                               text=True, check=True).stdout.splitlines()
        self.assertEqual(words[:7], [str(FAKE), "--config", "base.yaml", "--set", "x={a: 1}",
                                     "--set", "seed=2"])
        self.assertIn("out/x=a-1__seed=2", words)
        self.assertFalse(self.out.exists())
        self.assertEqual(self.calls(), [])
        result = self.sweep("--vary", "mode=good,bad", "--dry-run", expect=1)
        self.assertIn("mode: expected good", result.stderr)

    def test_wrong_options(self):
        for options, message in ((["-j", "0"], "-j 0"), (["--vary"], "a value is missing"),
                                 (["--varry", "a=1"], "unknown option"),
                                 (["--vary", "a={1"], "is missing at the end"),
                                 (["--set", "a"], "expected KEY=VALUE")):
            with self.subTest(message):
                self.assertIn(message, self.sweep(*options, expect=2).stderr)
        self.assertFalse(self.out.exists())


@unittest.skipUnless(BINARY, "ADA_BINARY is not set")
class RealTest(SweepCase):
    def test_the_program_itself(self):
        self.environment["ADA_TRAIN"] = BINARY
        self.write("base.yaml", REAL)
        options = ("-j", "2", "--threads", "1", "--vary", "scaling={policy: none}",
                   "scaling={policy: fixed, scale: 1024}", "--vary", "seed=1,2")
        self.sweep(*options)
        rows = self.table()
        self.assertEqual([row["status"] for row in rows], ["finished"] * 4)
        self.assertEqual([row["last_scale"] for row in rows], ["1", "1", "1024", "1024"])
        for row in rows:
            with open(self.out / row["run"] / "evaluation.csv", encoding="utf-8") as file:
                last = list(csv.DictReader(file))[-1]
            self.assertEqual([float(row[f"test_{column}"]) for column in ("loss", "top1", "top5")],
                             [float(last[column]) for column in ("loss", "top1", "top5")])
            lost = nonzero = 0
            shares, steps = {}, set()
            with open(self.out / row["run"] / "underflow.csv", encoding="utf-8") as file:
                for line in csv.DictReader(file):
                    steps.add(line["step"])
                    left = int(line["numel"]) - int(line["zeros_before"])
                    if left:
                        shares.setdefault(f"{line['layer']}.{line['tensor']}", []).append(
                            100 * (int(line["underflow"]) + int(line["overflow"])) / left)
                    if line["tensor"] == "dx":
                        lost += int(line["underflow"])
                        nonzero += int(line["numel"]) - int(line["zeros_before"])
            self.assertEqual(row["dx_lost_pct"], f"{100 * lost / nonzero:.9g}")
            # The share that the table shows is that of the tensor that lost most, of all counted.
            means = {name: statistics.fmean(values) for name, values in shares.items()}
            self.assertAlmostEqual(float(row["lost_pct"]), max(means.values()))
            self.assertAlmostEqual(means[row["lost_tensor"]], max(means.values()))
            self.assertEqual(row["counted"], f"dx and dw, {len(steps)} of 4 steps; not counted: y "
                                             "and w (log.statistics)")
        again = self.sweep(*options)
        self.assertIn("0 finished, 4 skipped, 0 failed", again.stderr)
        refused = self.sweep(*options, "--set", "optimizer.lr=0.5", expect=1)
        self.assertIn("optimizer.lr is 0.1 there, 0.5 here", refused.stderr)


if __name__ == "__main__":
    unittest.main()
