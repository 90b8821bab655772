"""tools/sweep.sh with what a crash or a hand left in its folder, and with paths and values that a
shell or Slurm could take for something else."""
import json
import os
import re
import subprocess
import sys
import pathlib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sweep_case import TOOL, SweepCase  # noqa: E402  (beside this file)

NASTY = ["$(touch executed)", "it's a `touch executed` \"quote\"", "-dash #hash *",
         "~ ä▁ 100%A {x,y}&; touch executed"]


def sbatch_words(line):
    """The words of a #SBATCH line as sbatch reads them: quotes, backslashes, blanks, comments."""
    words, word, quote, escaped = [], None, "", False
    for letter in line + " ":
        if escaped:
            word, escaped = (word or "") + letter, False
        elif letter == "\\":
            escaped = True
        elif quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "'\"":
            word, quote = word or "", letter
        elif letter == "#":
            return words + ([word] if word else [])
        elif letter.isspace():
            words, word = words + ([word] if word is not None else []), None
        else:
            word = (word or "") + letter
    return words


class SweepDamageTest(SweepCase):
    def test_a_table_that_nobody_gets(self):
        """Exit codes are ada-train's: 6 where standard output takes nothing, 141 where its reader is gone."""
        for option in ("", "--dry-run"):
            for stdout, code in ((">/dev/full", 6), (">&-", 6)):
                with self.subTest((option, stdout)):
                    words = " ".join(self.command("--vary", "seed=1,2", *option.split()))
                    result = subprocess.run(["bash", "-c", f"{words} {stdout}"], cwd=self.folder, text=True,
                                            env=self.environment, capture_output=True, check=False)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertIn("standard output cannot be written", result.stderr)
                    self.assertNotIn("Traceback", result.stderr)
        result = subprocess.run(["bash", "-c", f"set -o pipefail; {TOOL} --table out | true"], cwd=self.folder,
                                env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, "Traceback" in result.stderr), (141, False), result.stderr)

    def test_a_summary_that_is_none(self):
        self.sweep("--vary", "seed=1,2")
        whole = (self.out / "seed=1" / "summary.json").read_text(encoding="utf-8")
        damaged = ["[]", "", "7", "null", whole[:100], "[" * 100000, '{"status": ["finished"]}',
                   '{"status": "finished"}', "\xff\x00", whole.replace("{", "[").replace("}", "]"),
                   re.sub(r": [^,{}\[\]]+", ': "x"', whole), re.sub(r": \d[^,{}]*", ": 1e999", whole),
                   re.sub(r": \d[^,{}]*", ": -1" + "0" * 400, whole), whole.replace("128.0", "null"),
                   whole.replace('{"dx"', '[{"dx"').replace('}, "fc"', '}], "fc"')]
        for text in damaged:
            with self.subTest(text[:40]):
                (self.out / "seed=1" / "summary.json").write_text(text, encoding="utf-8")
                result = subprocess.run([TOOL, "--table", "out"], cwd=self.folder,
                                        env=self.environment, capture_output=True, text=True,
                                        check=False)
                self.assertEqual((result.returncode, "Traceback" in result.stderr), (0, False),
                                 result.stderr)
                self.assertEqual(self.table()[1]["test_loss"], "3")
        (self.out / "seed=1" / "summary.json").write_text("[]", encoding="utf-8")
        self.calls()
        result = self.sweep("--vary", "seed=1,2")  # what is not known to be finished goes on
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual([call["name"] for call in self.calls()], ["seed=1"])
        self.assertEqual(self.table()[0]["status"], "finished")

    def test_other_files_of_a_run(self):
        self.sweep("--vary", "seed=1")
        run = self.out / "seed=1"
        for name, text in [("evaluation.csv", '"step,split\n1,'), ("evaluation.csv", "a,b\n1\n"),
                           ("evaluation.csv", "z" * (2 << 20)), ("config.yaml", "\x00\xff: ["),
                           ("../sweep_logs/seed=1.state", "finished zero"),
                           ("../sweep_logs/seed=1.state", "\xff" * 9)]:
            with self.subTest(name):
                (run / name).write_bytes(text.encode("latin-1"))
                result = subprocess.run(self.command("--vary", "seed=1"), cwd=self.folder,
                                        env=self.environment, capture_output=True, text=True,
                                        check=False)
                self.assertNotIn("Traceback", result.stderr)

    def test_a_damaged_list_of_runs(self):
        self.sweep("--vary", "seed=1")
        for text in ["[]", "{", '{"keys": [], "runs": [1]}', '{"keys": 1, "runs": []}', "[" * 100000,
                     '{"keys": [], "runs": [{"name": "../x", "options": ["a"], "values": {}}]}',
                     '{"keys": [], "runs": [{"name": "x", "options": "a", "values": {}}]}']:
            with self.subTest(text[:40]):
                (self.out / "sweep.json").write_text(text, encoding="utf-8")
                result = subprocess.run([TOOL, "--table", "out"], cwd=self.folder,
                                        env=self.environment, capture_output=True, text=True,
                                        check=False)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn("is out the folder of a sweep?", result.stderr)
                self.assertNotIn("Traceback", result.stderr)


    def test_a_file_in_the_place_of_a_folder(self):
        self.out.mkdir()
        (self.out / "seed=2").write_text("a file", encoding="utf-8")
        self.sweep("--vary", "seed=1", "--set", "mode=good")  # which makes the list of runs
        for options in (("--vary", "seed=1,2,3"), ("--vary", "seed=2,3")):
            with self.subTest(options):
                result = self.sweep(*options, expect=1)
                self.assertNotIn("Traceback", result.stderr)
                self.assertIn("seed=2: failed, exit code 2: ada-train: output folder out/seed=2: "
                              "File exists", result.stderr)
                self.assertEqual(self.column("status")["seed=2"], "failed")
                self.assertEqual(self.column("status")["seed=3"], "finished")
        (self.out / "sweep_logs" / "seed=2.state").unlink()
        for name in ("seed=2", "seed=3"):  # a loop of links, too, is no folder
            with self.subTest(name):
                if name == "seed=3":
                    (self.out / name).rename(self.out / "moved")
                    (self.out / name).symlink_to(name)
                result = subprocess.run([TOOL, "--table", "out/"], cwd=self.folder,
                                        env=self.environment, capture_output=True, text=True,
                                        check=False)
                self.assertEqual((result.returncode, "Traceback" in result.stderr), (0, False),
                                 result.stderr)
                self.assertEqual(self.column("status")[name], "failed")

    def test_a_folder_that_vanished(self):
        self.sweep("--vary", "seed=1,2")
        (self.out / "seed=2").rename(self.folder / "moved")
        subprocess.run([TOOL, "--table", "out"], cwd=self.folder, env=self.environment,
                       capture_output=True, check=True)
        self.assertEqual(self.column("status"), {"seed=1": "finished", "seed=2": "pending"})
        self.calls()
        self.sweep("--vary", "seed=1,2")
        self.assertEqual([call["name"] for call in self.calls()], ["seed=2"])

    def test_no_place_for_the_sweep(self):
        self.write("out", "a file")
        result = self.sweep("--vary", "seed=1", expect=2)
        self.assertIn("out: no place for the folders of runs; choose another --out", result.stderr)


class SweepPathsTest(SweepCase):
    def in_folder(self, out, *options, expect=0):
        result = subprocess.run([str(TOOL), "--config", "base.yaml", "--out", out, *options],
                                cwd=self.folder, env=self.environment, capture_output=True,
                                text=True, check=False, timeout=120)
        self.assertEqual(result.returncode, expect, result.stderr)
        return result

    def test_folders_and_values_are_taken_literally(self):
        for number, out in enumerate(NASTY):
            with self.subTest(out):
                value = f"x{number}: {out}\nsecond line"
                self.in_folder(out, "--set", f"text={value}")
                call, = self.calls()
                self.assertEqual((call["name"], call["set"]), ("base", [f"text={value}"]))
                self.assertTrue((self.folder / out / "base" / "summary.json").exists())
                self.assertTrue((self.folder / out / "sweep.csv").exists())
        self.assertEqual(list(self.folder.glob("**/executed")), [])

    def test_out_is_the_folder_that_ada_train_makes_of_it(self):
        self.environment.update(HOME=str(self.folder / "home"), WORD="two words", SIGNS="~/$(x)")
        for out, place in [("a${WORD}", "atwo words"), ("~/b c//", "home/b c"), ("~x", "~x"),
                           ("./${WORD}/${WORD}/", "two words/two words"), ("${SIGNS}", "~/$(x)")]:
            with self.subTest(out):
                self.in_folder(out, "--vary", "seed=1,2")
                self.assertEqual(len(self.calls()), 2)
                for name in ("sweep.csv", "seed=1/summary.json", "sweep_logs/seed=2.log"):
                    self.assertTrue((self.folder / place / name).is_file(), name)
                self.assertIn("2 skipped", self.in_folder(out, "--vary", "seed=1,2").stderr)
                subprocess.run([TOOL, "--table", out], cwd=self.folder, env=self.environment,
                               capture_output=True, check=True)
                listed = self.in_folder(out, "--vary", "seed=3", "--dry-run").stdout
                subprocess.run(["bash", "-c", listed], cwd=self.folder, env=self.environment,
                               capture_output=True, check=True)
                self.assertTrue((self.folder / place / "seed=3" / "summary.json").is_file())
                self.calls()
                self.in_folder(out, "--slurm", "job.sh", "--vary", "seed=4")
                subprocess.run(["bash", "job.sh"], cwd=self.folder, capture_output=True, check=True,
                               env={**self.environment, "HOME": "/nowhere",
                                    "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"})
                self.assertTrue((self.folder / place / "seed=4" / "summary.json").is_file())
                self.calls()

    def test_what_out_cannot_be(self):
        self.environment.update(NEST="a${WORD}", VOID="")
        self.environment.pop("HOME", None)
        for out, words in [("a${NO_SUCH}", "the environment variable 'NO_SUCH' is not set"),
                           ("a${WORD", "`${` without its `}`"), ("${VOID}", "expands to nothing"),
                           ("~/a", "`~` cannot be expanded: HOME is not set"),
                           ("${NEST}", "expected a folder without")]:
            with self.subTest(out):
                result = self.in_folder(out, "--vary", "seed=1", expect=2)
                self.assertIn(f"sweep.sh: --out {out}: ", result.stderr)
                self.assertIn(words, result.stderr)
                self.assertEqual([path.name for path in self.folder.iterdir()], ["base.yaml"])

    def test_out_that_a_run_keeps(self):
        (self.folder / "r/checkpoints").mkdir(parents=True)
        for name in ("steps.csv", "config.yaml"):
            (self.folder / "r" / name).touch()
        for out in ("r", "r/checkpoints", "r/checkpoints/a"):
            with self.subTest(out):
                result = self.in_folder(out, "--vary", "seed=1", expect=2)
                self.assertIn(f"sweep.sh: --out {out}: belongs to the run in ", result.stderr)
        self.assertEqual(list((self.folder / "r/checkpoints").iterdir()), [])

    def test_configurations_and_values_that_vary(self):
        for name in ["-x.yaml", "...yaml", "two words.yaml", "$(touch executed).yaml", "ä.yaml"]:
            self.write(name, "lr: 0.1\nmode: good\n")
        values = ["text=a $(touch executed),-1,\"c,\n`touch executed`\""]
        self.environment["FAKE_CALLS"] = str(self.folder / "calls")
        result = subprocess.run(
            [str(TOOL), "--config", "./-x.yaml", "./...yaml", "two words.yaml",
             "$(touch executed).yaml", "ä.yaml", "--vary", *values, "--out", "out"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        names = [call["name"] for call in self.calls()]
        self.assertEqual(len(set(names)), 15)
        for name in names:
            self.assertRegex(name, r"^[A-Za-z0-9][\w.+=-]*$")
        self.assertEqual(list(self.folder.glob("**/executed")), [])

    def test_the_job_file_names_them_literally(self):
        for out in NASTY:
            with self.subTest(out):
                self.in_folder(out, "--slurm", f"{out}.sh", "--vary", "seed=1,2")
                job = self.folder / f"{out}.sh"
                text = job.read_text(encoding="utf-8")
                line, = [line for line in text.splitlines() if line.startswith("#SBATCH --output")]
                log = str(self.folder / ("./" + out if out.startswith("-") else out) / "sweep_logs")
                self.assertEqual([os.path.normpath(word) for word in sbatch_words(line[7:])],
                                 ["--output=" + os.path.normpath(log).replace("%", "%%")
                                  + "/slurm-%A_%a.log"])
                task = subprocess.run(
                    ["bash", job], cwd="/", capture_output=True, text=True, check=False,
                    env={**self.environment, "SLURM_ARRAY_TASK_ID": "1",
                         "SLURM_ARRAY_JOB_ID": "7"})
                self.assertEqual(task.returncode, 0, task.stderr)
                self.assertEqual([call["name"] for call in self.calls()], ["seed=2"])
        self.assertEqual(list(self.folder.glob("**/executed")), [])

    def test_a_line_break_never_reaches_a_job_file(self):
        for out, job in [("a\ntouch executed\n", "job.sh"), ("out", "job\ntouch executed\n.sh"),
                         ("a\rb", "job.sh"), ("back\\slash", "job.sh")]:
            with self.subTest(out + job):
                result = self.in_folder(out, "--slurm", job, "--vary", "seed=1", expect=2)
                self.assertIn("choose another folder or file", result.stderr)
                self.assertEqual(list(self.folder.glob("*.sh")), [])
        self.in_folder("out", "--slurm", "job.sh", "--set", "text=a\ntouch executed\n", "--vary",
                       "seed=1", "mode=\"x\ntouch executed\"", expect=2)
        self.in_folder("out", "--slurm", "job.sh", "--set", "text=a\ntouch executed\n", "--vary",
                       "mode=good,\"x\ntouch executed\"")
        for line in (self.folder / "job.sh").read_text(encoding="utf-8").splitlines():
            self.assertFalse(line.startswith("touch"), line)

    def test_names_that_are_no_utf8(self):
        program = os.fsencode(str(TOOL))
        out = b"out-\xff"
        result = subprocess.run([program, b"--config", b"base.yaml", b"--out", out, b"--vary",
                                 b"text=\xfe,good"], cwd=self.folder, env=self.environment,
                                capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"text,", (pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/" + out))
                                 / "sweep.csv").read_bytes())
        self.assertEqual(len(self.calls()), 2)


if __name__ == "__main__":
    unittest.main()
