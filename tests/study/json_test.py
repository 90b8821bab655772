"""`--json` of every command that has it, on tiny runs: one object whose members are those of
configs/JSON.md, equal to what the command says as text or CSV; errors stay on stderr. `compare` of
more than two runs. ADA_BINARY names the program."""
import csv
import io
import json
import pathlib
import re
import unittest

from tests.program_case import SharedFolderCase

PAGE = pathlib.Path(__file__).resolve().parents[2] / "configs/JSON.md"
CONFIG = """
name: r
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 2, classes: 5, train: 256,
       test: 20}, batch_size: 16, workers: 0}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 6, kernel: 3}
    - {name: relu1, kind: relu}
    - {name: fc1, kind: linear, features: 16}
    - {name: fc2, kind: linear, features: classes}
precision: {format: fp8_e5m2}
scaling: {policy: fixed, scale: 8}
optimizer: {lr: 0.02, momentum: 0.9}
train: {epochs: 1}
log: {every: 4, histogram_every: 4, dump_every: 8, statistics: [y, w, dx, dy, dw]}
device: {kind: cpu, threads: 1}
"""


def members(command):
    """The names in backticks at the beginning of a command's row of the page: those of its object."""
    row = re.search(rf"^\| [^|\n]*`{command}`[^|\n]*\| (.*) \|$", PAGE.read_text("utf-8"), re.M)
    text = re.sub(r"\([^()]*\)", "", row.group(1))
    # What follows a colon are members of members.
    heads = [part.split(":")[0] for part in re.split(r"[;.]", text)]
    return {name for head in heads for name in re.findall(r"`([a-z_]+)`", head)}


class Json(SharedFolderCase):
    config = CONFIG

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, more in (("a", []), ("b", ["--set", "optimizer.lr=0.04"]),
                           ("c", ["--format", "fp16"])):
            cls.words_of("train", "r.yaml", "--quiet", "--output", name, "--name", name, *more)

    def json_of(self, *arguments, name=None):
        found = json.loads(self.words_of(*arguments, "--json"))
        name = name or arguments[0]
        self.assertEqual(list(found)[:2], ["command", "version"])
        self.assertEqual((found["command"], found["version"]), (name, 1))
        return found

    def test_members_are_those_of_the_page(self):
        for command, arguments in (
                ("advise", ("advise", "a")), ("recommend", ("recommend", "a")),
                ("compare", ("compare", "a", "b")), ("blame", ("blame", "a", "--steps", "2")),
                ("assign", ("assign", "r.yaml", "--formats", "bf16", "--steps", "2")),
                ("inspect", ("inspect", "a/checkpoints/step-00000016.safetensors")),
                ("formats", ("formats",)), ("recipes", ("recipes",)), ("models", ("models",)),
                ("datasets", ("datasets",)), ("policies", ("policies",)),
                ("train --dry-run", ("train", "r.yaml", "--dry-run"))):
            with self.subTest(command=command):
                found = self.json_of(*arguments, name=command)
                self.assertEqual(set(found) - {"command", "version"}, members(command))
        found = self.json_of("what-if", "a", "--scale", "64")
        self.assertLessEqual({"run", "scenario", "rows", "ended"}, set(found))

    def test_advice_is_that_of_the_text(self):
        text = self.words_of("advise", "a")
        found = self.json_of("advise", "a")
        self.assertEqual(found["keep"], text.startswith("#"))
        for advice in found["advice"]:
            self.assertIn(advice["reason"], text)
            self.assertIn(f"(sure: {advice['sure']})", text)
        self.words_of("advise", "a", "--yaml", "advice.yaml")
        self.assertEqual(found["yaml"], (self.folder / "advice.yaml").read_text("utf-8"))
        self.assertEqual(self.json_of("recommend", "a")["advice"], found["advice"])
        self.assertEqual(found["lost"], self.json_of("recommend", "a")["lost"])

    def test_lost_is_what_the_file_has(self):
        lost = self.json_of("advise", "a")["lost"]
        means = {}
        with open(self.folder / "a/underflow.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                zeros, numel = int(row["zeros_before"]), int(row["numel"])
                if numel > zeros:
                    share = (int(row["underflow"]) + int(row["overflow"])) / (numel - zeros)
                    means.setdefault(f"{row['layer']}.{row['tensor']}", []).append(100 * share)
        means = {name: sum(values) / len(values) for name, values in means.items()}
        worst = max(means, key=means.get)
        self.assertEqual(lost["most"]["tensor"], worst)
        self.assertAlmostEqual(lost["most"]["mean_pct"], means[worst], places=6)
        self.assertEqual(lost["logged_steps"], 5)
        self.assertEqual(lost["steps"], 16)

    def test_rows_are_those_of_the_csv(self):
        for arguments in (("what-if", "a", "--scale", "64"), ("blame", "a", "--steps", "2")):
            with self.subTest(command=arguments[0]):
                rows = list(csv.DictReader(io.StringIO(self.words_of(*arguments, "--csv"))))
                found = self.json_of(*arguments)["rows"]
                self.assertEqual(len(found), len(rows))
                for mine, row in zip(found, rows):
                    self.assertEqual(set(mine), set(row))
                    for name, value in mine.items():
                        if isinstance(value, float):
                            self.assertAlmostEqual(value, float(row[name]), delta=abs(value) * 1e-8)
                        elif value is not None:
                            self.assertEqual(str(value).lower(), row[name].lower())
        file = "a/checkpoints/step-00000016.safetensors"
        rows = list(csv.DictReader(io.StringIO(self.words_of("inspect", file, "--csv", "counts"))))
        found = self.json_of("inspect", file)["tensors"]
        self.assertEqual([row["tensor"] for row in rows], [row["tensor"] for row in found])
        self.assertEqual([int(row["underflow"]) for row in rows],
                         [row["underflow"] for row in found])

    def test_blocks(self):
        file = "a/checkpoints/step-00000016.safetensors"
        found = self.json_of("inspect", file, "--format", "mxfp8_e4m3")
        self.assertTrue(all("sqnr_db" in row for row in found["tensors"]))
        dump = next((self.folder / "a/dump").glob("*.safetensors"))
        found = self.json_of("what-if", "--dump", str(dump), "--format", "nvfp4")
        self.assertEqual({row["layer"] for row in found["rows"]}, {"conv1", "fc1", "fc2"})

    def test_compare_of_three(self):
        text = self.words_of("compare", "a", "b", "c")
        for words in ("A  a  (fp8_e5m2, fixed)", "C  c  (fp16, fixed)",
                      "optimizer.lr: 0.02 (A C), 0.04 (B)",
                      "precision.format: fp8_e5m2 (A B), fp16 (C)", "B parts from A at step 1"):
            self.assertIn(words, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        found = self.json_of("compare", "a", "b", "c")
        self.assertEqual([run["name"] for run in found["runs"]], ["a", "b", "c"])
        self.assertEqual([run["parts_from_first_at_step"] for run in found["runs"]], [None, 1, 1])
        keys = {key["key"]: key["values"] for key in found["configuration"]}
        self.assertEqual(keys["precision.format"], ["fp8_e5m2", "fp8_e5m2", "fp16"])
        self.assertEqual(len(found["layers"][0]["runs"]), 3)
        for run in found["runs"]:
            self.assertEqual(run["evaluation"].keys(), {"test"})

    def test_numbers_of_runs(self):
        for runs in (["a"], ["a"] * 25):
            self.assertIn("expected 2 to 24", self.words_of("compare", *runs, code=2))
        self.assertEqual(len(self.json_of("compare", *["a"] * 24)["runs"]), 24)

    def test_formats_are_numbers(self):
        entries = {entry["name"]: entry for entry in self.json_of("formats")["entries"]}
        self.assertEqual(entries["fp16"]["largest"], 65504)
        self.assertEqual(entries["nvfp4"]["block"], 16)
        self.assertIn("te_mxfp8",
                      [entry["name"] for entry in self.json_of("recipes")["entries"]])

    def test_errors_go_to_stderr(self):
        for arguments, code in ((("advise", "missing"), 3), (("compare", "a", "nowhere"), 3),
                                (("blame", "a", "--csv"), 2), (("train", "r.yaml"), 2),
                                (("inspect", "a/config.yaml"), 3)):
            with self.subTest(arguments=arguments):
                done = self.run_program(*arguments, "--json", code=code)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr)

    def test_assign_takes_threads(self):
        arguments = ("assign", "r.yaml", "--formats", "bf16", "--steps", "2")
        self.assertEqual(self.json_of(*arguments, "--threads", "2"), self.json_of(*arguments))


if __name__ == "__main__":
    unittest.main()
