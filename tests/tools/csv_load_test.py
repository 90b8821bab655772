"""A run's CSVs in pandas, DuckDB, R and awk, without options: the same rows and columns in each,
and the same numbers. After a SIGKILL at any moment too."""
import csv
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from page_columns import documented  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", "")
FILES = ["evaluation", "events", "histograms", "probes", "scales", "steps", "timing", "underflow",
         "what_if"]
CONFIG = """
data: {dataset: synthetic, batch_size: 16, limit: {test: 32}}
model: {zoo: mlp, hidden: [16]}
precision: {format: fp16}
scaling: {policy: dynamic, init_scale: 1.0e+12, growth_interval: 5}
optimizer: {kind: sgd, lr: 0.05}
train: {epochs: 100000, max_steps: %d}
log:
  every: 5
  statistics: [y, w, dx, dy, dw]
  histogram_every: 10
  probe_every: 10
  what_if: [{scale: 128}, {format: {exponent: 4, mantissa: 3, bias: 9}}]
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLS = [0.02, 0.1, 0.3, 0.7]  # seconds after the first rows


def first_python(module):
    """A Python that has `module`, or None."""
    for python in [os.environ.get("ADA_BENCH_PYTHON"), "/usr/bin/python3", sys.executable]:
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True,
                                     check=False).returncode == 0:
            return python
    return None


def output(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          check=True).stdout


def shapes(text):
    """{file: (rows, columns)} from lines "path rows columns"."""
    rows = [line.split() for line in text.splitlines() if line]
    return {pathlib.Path(path).stem: (int(count), int(width)) for path, count, width in rows}


def in_pandas(python, paths):
    return shapes(output(python, "-c", "import sys, pandas\nfor p in sys.argv[1:]:\n"
                         "    print(p, *pandas.read_csv(p).shape)", *paths))


def in_duckdb(python, paths):
    return shapes(output(python, "-c", "import sys, duckdb\nfor p in sys.argv[1:]:\n"
                         "    print(p, *duckdb.sql(f\"from '{p}'\").shape)", *paths))


def in_r(paths):
    return shapes(output("Rscript", "-e", "options(warn = 2)\nfor (p in commandArgs(TRUE))"
                         " cat(p, dim(read.csv(p)), '\\n')", *paths))


def in_awk(path):
    """Rows, and the set of their numbers of fields."""
    text = output("awk", "-F,", "NR == 1 {next} {width[NF] = 1} "
                  "END {print NR - 1; for (w in width) print w}", path)
    rows, *widths = [int(line) for line in text.split()]
    return rows, set(widths)


def expected(path):
    """Rows and columns by a reader that knows RFC 4180; every row must be as long as the header."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, strict=True))
    if any(len(row) != len(rows[0]) for row in rows):
        raise AssertionError(f"{path}: a row differs from the header in length")
    return len(rows) - 1, len(rows[0])


class ReportColumnsTest(unittest.TestCase):
    def test_the_report_draws_columns_that_there_are(self):
        sys.path.insert(0, str(ROOT / "tools" / "python"))
        self.addCleanup(sys.path.remove, str(ROOT / "tools" / "python"))
        try:
            from ada_train.columns import TABLES
            from ada_train.report import load
        except ImportError as error:
            self.skipTest(str(error))
        self.assertEqual(set(load.COLUMNS), set(documented()))
        for file, columns in load.COLUMNS.items():
            for column in columns.split():
                kind = documented()[file][column]
                self.assertEqual(TABLES[file][column].rstrip("?"), kind, f"{file}.csv: {column}")


@unittest.skipUnless(BINARY, "ADA_BINARY is not set")
class CsvLoadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.runs = [cls.folder / "whole"]
        subprocess.run(cls.command("whole", 60), capture_output=True, check=True)
        for i, seconds in enumerate(KILLS):
            cls.runs.append(cls.killed(f"killed{i}", seconds))

    @classmethod
    def command(cls, name, steps):
        config = cls.folder / f"{name}.yaml"
        config.write_text(CONFIG % steps)
        return [BINARY, "--config", str(config), "--output", str(cls.folder / name), "--quiet"]

    @classmethod
    def killed(cls, name, seconds):
        """The folder of a run that was killed so long after its first rows."""
        steps = cls.folder / name / "steps.csv"
        with subprocess.Popen(cls.command(name, 0), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not (steps.exists() and steps.stat().st_size > 200):
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise AssertionError(f"{name} wrote no rows")
                time.sleep(0.002)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        return cls.folder / name

    def paths(self, header_only=True):
        """All CSVs of all runs, run by run; without those that hold no row if asked."""
        for run in self.runs:
            found = [run / f"{name}.csv" for name in FILES if (run / f"{name}.csv").exists()]
            yield [p for p in found if header_only or expected(p)[0] > 0]

    def same(self, load, header_only=True):
        for paths in self.paths(header_only):
            with self.subTest(paths[0].parent.name):
                self.assertEqual(load(paths), {path.stem: expected(path) for path in paths})

    def test_the_runs(self):
        whole = {name: expected(self.runs[0] / f"{name}.csv")[0] for name in FILES}
        self.assertEqual(whole["steps"], 60)
        self.assertEqual(whole["scales"], 13)  # step 1 and the multiples of 5, one layer with a dx
        for name, rows in whole.items():
            self.assertGreater(rows, 0, name)
        for run in self.runs[1:]:
            self.assertFalse((run / "summary.json").exists())
            self.assertGreater(expected(run / "steps.csv")[0], 0)

    def test_killed_files_end_with_whole_rows(self):
        for paths in self.paths():
            for path in paths:
                self.assertTrue(path.read_bytes().endswith(b"\n"), path)

    def test_a_column_looks_the_same_in_each_row(self):
        """Readers guess a column's type from its first rows: integers are integers throughout,
        real numbers never look like them, and a tensor's histogram begins with a word."""
        for paths in self.paths():
            for path in paths:
                with open(path, newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                for name in rows[0] if rows else []:
                    kind = documented()[path.stem][name]
                    if kind == "text":
                        continue
                    whole = kind in {"integer", "flag"}
                    for text in {row[name] for row in rows} - {"", "inf", "-inf", "nan"}:
                        float(text)
                        self.assertEqual(text.lstrip("-").isdigit(), whole,
                                         f"{path}: {name} is {text}")
                if path.stem == "histograms" and rows:
                    self.assertEqual([row["exponent"] for row in rows[:3]], ["zero", "inf", "nan"])

    def test_pandas(self):
        python = first_python("pandas")
        if python is None:
            self.skipTest("no Python with pandas")
        self.same(lambda paths: in_pandas(python, paths))

    def test_duckdb(self):
        python = first_python("duckdb")
        if python is None:
            self.skipTest("no Python with duckdb (ADA_BENCH_PYTHON may name one)")
        # DuckDB takes the header of a file without rows for a row unless told otherwise.
        self.same(lambda paths: in_duckdb(python, paths), header_only=False)

    def test_duckdb_over_several_runs_of_which_one_has_no_events(self):
        python = first_python("duckdb")
        if python is None:
            self.skipTest("no Python with duckdb (ADA_BENCH_PYTHON may name one)")
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        events = (self.runs[0] / "events.csv").read_text()
        for name, text in (("a", events.splitlines()[0] + "\n"), ("b", events), ("c", events)):
            (folder / name).mkdir()
            (folder / name / "events.csv").write_text(text)
        told = output(python, "-c", "import sys, duckdb\n"
                      "t = duckdb.sql(f\"from read_csv('{sys.argv[1]}/*/events.csv', header = true)\")\n"
                      "print(*t.shape, *t.types[:2], *t.columns)", folder)
        rows, width = expected(self.runs[0] / "events.csv")
        self.assertGreater(rows, 0)
        self.assertEqual(told.split(), [str(2 * rows), str(width), "BIGINT", "BIGINT",
                                        *documented()["events"]])

    def test_r(self):
        if shutil.which("Rscript") is None:
            self.skipTest("R is not installed")
        self.same(in_r)

    def test_awk(self):
        for paths in self.paths():
            for path in paths:
                rows, columns = expected(path)
                found, widths = in_awk(path)
                self.assertEqual(found, rows, path)
                if '"' not in path.read_text():  # texts with commas are quoted: messages, maps
                    self.assertLessEqual(widths, {columns}, path)

    def test_same_numbers(self):
        path = self.runs[0] / "steps.csv"
        with open(path, newline="", encoding="utf-8") as file:
            total = sum(float(row["loss"]) for row in csv.DictReader(file))
        found = {"awk": output("awk", "-F,", "NR > 1 {s += $3} END {printf \"%.9g\", s}", path)}
        if first_python("pandas"):
            found["pandas"] = output(first_python("pandas"), "-c", "import sys, pandas\n"
                                     "print(pandas.read_csv(sys.argv[1]).loss.sum())", path)
        if first_python("duckdb"):
            found["duckdb"] = output(first_python("duckdb"), "-c", "import sys, duckdb\n"
                                     "print(duckdb.sql(f\"select sum(loss) from '{sys.argv[1]}'\")"
                                     ".fetchall()[0][0])", path)
        if shutil.which("Rscript"):
            found["R"] = output("Rscript", "-e", "cat(format(sum(read.csv(commandArgs(TRUE))$loss),"
                                " digits = 15))", path)
        for tool, text in found.items():
            self.assertAlmostEqual(float(text) / total, 1, places=7, msg=tool)


if __name__ == "__main__":
    unittest.main()
