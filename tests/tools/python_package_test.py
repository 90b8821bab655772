"""tools/python: the columns are those of the page, frames have types whatever a file holds, the
pictures are figures that leave matplotlib as it was."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools" / "python"
sys.path.insert(0, str(PACKAGE))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import ada_train  # noqa: E402
from ada_train import columns, csv_writer, no_gradient, recording  # noqa: E402
from page_columns import documented  # noqa: E402
from report_test import PACKAGES, make_run  # noqa: E402

BINARY = os.environ.get("ADA_BINARY")
SMALL = """
data: {dataset: synthetic, batch_size: 16,
  synthetic: {height: 8, width: 8, channels: 1, classes: 4, train: 64, test: 16}}
model:
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3}
    - {name: bn, kind: batch_norm}
    - {name: fc, kind: linear, features: 4}
precision: {format: fp8_e5m2}
scaling: {policy: adaptive}
train: {epochs: 2}
log: {every: 1, statistics: [y, w, dx, dy, dw], histogram_every: 2, probe_every: 2,
  what_if: [{format: fp16}]}
"""


def small_run(folder):
    config = folder / "small.yaml"
    config.write_text(SMALL)
    subprocess.run([BINARY, "--config", str(config), "--output", str(folder / "run")], check=True,
                   capture_output=True)
    return folder / "run"


def counts(lost):
    """The columns of a row of underflow.csv of which `lost` of 100 values underflow."""
    row = dict.fromkeys(columns.TABLES["underflow"], 0)
    for name in ("step", "epoch", "layer", "tensor", "format"):
        del row[name]
    return {**row, "scale": 8.0, "numel": 100, "zeros_after": lost, "underflow": lost,
            "underflow_pct_nonzero": float(lost), "max_abs": 1.0}


class ColumnsTest(unittest.TestCase):
    def test_those_of_the_page(self):
        listed = {file: list(table.items()) for file, table in documented().items()}
        ours = {file: [(name, kind.rstrip("?")) for name, kind in table.items()]
                for file, table in columns.TABLES.items()}
        self.assertEqual(ours, listed)

    def test_importing_it_imports_no_other_package(self):
        code = (f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); import ada_train\n"
                "from ada_train import run_files, columns, formats, csv_writer, recording\n"
                "print([p for p in ('pandas', 'numpy', 'matplotlib', 'torch') if p in sys.modules])")
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                               check=True).stdout
        self.assertEqual(found, "[]\n")


class WriterTest(unittest.TestCase):
    def test_fields(self):
        nan, inf = float("nan"), float("inf")
        for value, kind, text in [
                (65536.0, "scale", "65536.0"), (1e5, "scale", "1e+05"), (nan, "scale", ""),
                (2.0 ** -20, "scale", "9.5367431640625e-07"), (0.1, "scale", "0.1"),
                (1 / 3, "number", "0.333333333"), (nan, "number", "nan"), (-inf, "number", "-inf"),
                (nan, "number?", ""), (3, "number", "3.0"), (1e-9, "number", "1e-09"),
                (True, "flag", "1"), (7, "integer", "7"), ('a,"b"', "text", '"a,""b"""')]:
            self.assertEqual(csv_writer.field(value, kind), text, (value, kind))

    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_same_text_as_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            run, rewritten = small_run(pathlib.Path(folder)), pathlib.Path(folder) / "again"
            rewritten.mkdir()
            parse = {"integer": int, "flag": lambda t: t == "1", "text": str}
            for name, kinds in columns.TABLES.items():
                if name in ("classes", "confusion", "losses", "blocks",  # of others' tasks, formats
                            "what_if_blocks", "accumulators", "what_if_accumulators"):
                    self.assertFalse((run / f"{name}.csv").exists())
                    continue
                file = csv_writer.CsvFile(rewritten, name)
                for row in ada_train.run_files.rows(run / f"{name}.csv"):
                    file.add({c: parse.get(k, lambda t: float(t or "nan"))(row[c])
                              for c, k in kinds.items()})
                file.close()
                with self.subTest(name):
                    written = (rewritten / f"{name}.csv").read_text()
                    self.assertEqual(written, (run / f"{name}.csv").read_text())
                    self.assertTrue(name == "events" or written.count("\n") > 1)


class RecordingTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "run"

    def test_a_folder_of_others_is_never_touched(self):
        self.folder.mkdir()
        (self.folder / "steps.csv").write_text("mine")
        for overwrite in (False, True):
            with self.assertRaisesRegex(recording.FolderInUse, "choose another folder"):
                recording.RunFolder(self.folder, overwrite)
        self.assertEqual((self.folder / "steps.csv").read_text(), "mine")

    def test_a_recording_without_a_step_can_be_overwritten(self):
        recording.RunFolder(self.folder).close({"name": "a"})
        (self.folder / "summary.json").unlink()
        recording.RunFolder(self.folder, overwrite=True).close({"name": "b"})
        with open(self.folder / "steps.csv", "a", encoding="utf-8") as file:
            file.write("1,1,2.5,0.0,0.1,1.0,0,0,1.0\n")
        with self.assertRaisesRegex(recording.FolderInUse, "no recording wrote"):
            recording.RunFolder(self.folder, overwrite=True)
        (self.folder / "steps.csv").unlink()  # what is left is no recording's
        with self.assertRaisesRegex(recording.FolderInUse, "no recording wrote"):
            recording.RunFolder(self.folder, overwrite=True)

    def test_other_processes_keep_no_lock(self):
        """A process that was forked off, as a data loader's workers are, with all that is open; and
        one that has the file itself."""
        for forked in (True, False):
            first, (ended, end) = recording.RunFolder(self.folder, overwrite=True), os.pipe()
            child = os.fork() if forked else 0
            if forked and child == 0:  # lives on until the parent says so
                os.close(end)
                os.read(ended, 1)
                os._exit(0)
            copy = None if forked else os.dup(first._held.fileno())
            first.close({"name": "a"})
            recording.RunFolder(self.folder, overwrite=True).close({"name": "b"})
            os.close(end)
            os.close(ended)
            if forked:
                self.assertEqual(os.waitpid(child, 0)[1], 0)
            else:
                os.close(copy)

    def test_a_process_that_was_forked_off_does_not_hold_the_run(self):
        """Not where the first one dies, either."""
        code = ("import os, sys, time\nsys.path.insert(0, sys.argv[1])\n"
                "from ada_train import recording\nmade = recording.RunFolder(sys.argv[2])\n"
                "if os.fork() == 0:\n    os.close(1)\n    os.read(0, 1)\nos._exit(0)\n")
        with subprocess.Popen([sys.executable, "-c", code, str(PACKAGE), str(self.folder)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
            first.stdout.read()  # both have come to their ends of it
            first.wait()
            recording.RunFolder(self.folder, overwrite=True).close({"name": "b"})

    def test_the_best_evaluation_without_top1_is_that_of_the_smallest_loss(self):
        made = recording.RunFolder(self.folder)
        for step, loss in enumerate((5.0, 3.0, 4.0), 1):
            made.add("evaluation", step=step, epoch=step, images=10, split="validation",
                     loss=loss)
        made.close({"name": "a"})
        summary, _ = ada_train.run_files.read_summary(self.folder)
        self.assertEqual(summary["evaluation"]["validation"]["best"]["loss"], 3.0)

    def test_a_recorded_run_is_deleted_only_when_asked(self):
        first = recording.RunFolder(self.folder)
        with self.assertRaisesRegex(recording.FolderInUse, "another process|recorded run|holds"):
            recording.RunFolder(self.folder, overwrite=True)  # it goes on
        first.write_config(recording.MARK + "\n")
        first.add("steps", step=1, epoch=1, loss=float("inf"), scale=8.0, lr=0.1, overflow=True,
                  skipped=True)
        first.close({"name": "a"})
        summary, _ = ada_train.run_files.read_summary(self.folder)
        self.assertEqual((summary["skipped"], summary["last_scale"], summary["train"]["loss"]),
                         (1, 8.0, None))
        with self.assertRaisesRegex(recording.FolderInUse, "overwrite=True"):
            recording.RunFolder(self.folder)
        recording.RunFolder(self.folder, overwrite=True).close({"name": "b"})
        self.assertFalse((self.folder / "config.yaml").exists())

    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_program_reads_it_and_never_trains_it(self):
        made = recording.RunFolder(self.folder)
        made.write_config(
            recording.MARK + "\nname: a\ndata: {dataset: external}\nmodel:\n  layers:\n"
            "    - {name: norm, kind: external}\n    - {name: fc, kind: linear, features: 4}\n")
        for step in (1, 2):
            made.add("steps", step=step, epoch=1, loss=1.0, lr=0.1, scale=8.0, overflow=False,
                     skipped=False, grad_norm=1.0)
            made.add("underflow", step=step, epoch=1, layer="norm", tensor="dx", format="fp16",
                     **counts(step))
        made.flush()

        def run(*arguments):
            return subprocess.run([BINARY, *arguments], capture_output=True, text=True, check=False)
        place = str(self.folder)
        self.assertRegex(run("watch", place, "--once").stdout, "running(.|\n)*norm +8 +2")
        made.close({"name": "a", "status": "finished"})
        self.assertRegex(run("watch", place, "--once").stdout, "finished(.|\n)*norm +8 +2")
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        for way in ("--resume", "--overwrite", "--dry-run"):
            result = run("--config", place + "/config.yaml", "--output", place, way)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("config.yaml:3:17: data.dataset: external: another program trained this "
                          "run", result.stderr)
        images = run("--config", place + "/config.yaml", "--set",
                     "data={dataset: synthetic, batch_size: 4}", "--dry-run")
        self.assertEqual(images.returncode, 2)
        self.assertIn("kind external: a layer of another program", images.stderr)
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_where_a_gradient_died(self):
        def row(layer, tensor, before, after):
            return {"layer": layer, "tensor": tensor, "numel": 10, "zeros_before": before,
                    "zeros_after": after}
        rows = [row("fc", "y", 0, 10), row("loss", "dx", 0, 2), row("fc", "dx", 0, 10),
                row("bn", "dx", 10, 10), row("conv", "dw", 10, 10)]
        found = no_gradient.layers_without_gradient(rows)
        self.assertEqual([(layer, tensor, last["layer"]) for layer, tensor, last in found],
                         [("fc", "dx", "fc"), ("bn", "dx", "fc"), ("conv", "dw", "fc")])
        branch = [row("loss", "dx", 0, 2), row("head", "dw", 10, 10), row("fc", "dx", 0, 2)]
        self.assertEqual(no_gradient.layers_without_gradient(branch),
                         [("head", "dw", no_gradient.BRANCH)])


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class FramesTest(unittest.TestCase):
    def setUp(self):
        self.folder = make_run(pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())) / "run", scale=8.0)

    def test_types(self):
        run = ada_train.read(self.folder)
        self.assertEqual({kind.name for kind in run.steps.dtypes}, {"int64", "float64", "bool"})
        for name, table in columns.TABLES.items():
            frame = getattr(run, name)
            self.assertEqual(list(frame.columns), list(table))
            for column, kind in table.items():
                wanted = {"integer": "int64", "flag": "bool"}.get(kind, "float64")
                if kind != "text" and len(frame):
                    self.assertEqual(frame[column].dtype.name, wanted, (name, column))
        self.assertEqual(run.events.value.tolist(), ["inf", "32768"])
        self.assertEqual(run.histograms.exponent[0], "zero")
        self.assertEqual(run.steps.skipped.sum(), 1)
        self.assertEqual(run.config["scaling"], {"policy": "none", "init_scale": 1})
        self.assertEqual((run.summary["train"]["loss"], run.status), (0.5, "finished"))
        self.assertEqual(run.notes, [])

    def test_what_is_not_finite_and_what_is_empty(self):
        head = ",".join(columns.TABLES["probes"])
        (self.folder / "probes.csv").write_text(
            f"{head}\n1,1,a,dx,fp16,0.1,10,0,0,,0.0,inf,\n2,1,nan,dx,fp16,8.0,10,9,9,100.0,nan,"
            "-inf,0.5\n")
        probes = ada_train.read(self.folder).probes
        self.assertEqual(probes.sqnr_db.tolist(), [float("inf"), float("-inf")])
        self.assertEqual(probes.isna().sum()[["lost_pct", "mse", "cosine"]].tolist(), [1, 1, 1])
        self.assertEqual(probes.layer.tolist(), ["a", "nan"])
        self.assertEqual((probes.scale[0], probes.nonzero.dtype.name), (0.1, "int64"))

    def test_damage_is_told_and_left_out(self):
        path = self.folder / "steps.csv"
        path.write_text("step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n"
                        "1,1,2.0,0.5,0.1,8.0,0,0,1.0\n2,1,oops,0.5,0.1,8.0,7,0,1.0\n3,,2.0,0.5,")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = ada_train.read(self.folder)
            steps = run.steps
        self.assertEqual(len(caught), len(run.notes))
        told = " | ".join(run.notes)
        for part in ("last line is cut off", "column loss are no numbers",
                     "column overflow are neither 0 nor 1"):
            self.assertIn(part, told)
        self.assertEqual(steps.step.tolist(), [1, 2])
        self.assertEqual(steps.loss.isna().tolist(), [False, True])
        self.assertEqual(steps.overflow.isna().tolist(), [False, True])

    def test_layers_whose_names_are_numbers(self):
        """They stay the words of the file, for the report's tables too, whatever pandas guesses."""
        from ada_train import tables
        path, notes = self.folder / "words.csv", []
        path.write_text("layer,x\n01,1\n1,2\n,3\n", encoding="utf-8")
        for words in (str, "category"):
            frame = tables.raw(str(path), {"layer": "text", "x": "number"}, notes, words)
            self.assertEqual(frame.layer.tolist(), ["01", "1", ""])
        self.assertEqual(notes, [])

    def test_a_file_that_is_missing_and_a_folder_without_run(self):
        (self.folder / "what_if.csv").unlink()
        self.assertEqual(len(ada_train.read(self.folder).what_if), 0)
        with self.assertRaisesRegex(Exception, "holds no run"):
            ada_train.read(self.folder.parent)
        with self.assertRaisesRegex(AttributeError, "its tables are steps"):
            ada_train.read(self.folder).stepps

    def test_pictures(self):
        code = (f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\n"
                "import ada_train, matplotlib\nbefore = dict(matplotlib.rcParams)\n"
                f"run = ada_train.read({str(self.folder)!r})\n"
                "for name in ada_train.pictures.__all__:\n"
                "    draw = getattr(ada_train.pictures, name)\n"
                "    if name in ('metric', 'classes', 'confusion',\n"
                "                'operand_sqnr', 'operand_scales',\n"
                "                'what_if_operands', 'sums', 'what_if_sums'):  # of other settings\n"
                "        try:\n            draw(run)\n            assert False\n"
                "        except ValueError as error:\n            print(error)\n"
                "        continue\n"
                "    draw(run, run.folder).savefig(f'{run.folder}/{name}.png', dpi=50)\n"
                "assert dict(matplotlib.rcParams) == before\n"
                "assert 'matplotlib.pyplot' not in sys.modules\n"
                "try:\n    ada_train.pictures.probe_error(run, tensor='w')\n"
                "except ValueError as error:\n    print(error)\n")
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("log.statistics chooses the tensors", result.stdout)
        self.assertIn("classes.csv has no rows: evaluations of segmentation", result.stdout)


if __name__ == "__main__":
    unittest.main()
