"""tools/report.py on the files of a run with random damage: no exception but Unreadable, no picture
that takes longer than a picture should. With ADA_SLOW=1 many more of them. ADA_SEED: where to
begin; a failure names its seed."""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_language_test import make_language_run  # noqa: E402  (beside this file)
from report_test import PACKAGES, PYTHON, TOOLS, make_run  # noqa: E402

SLOW = bool(os.environ.get("ADA_SLOW"))
SECONDS = 45 if SLOW else 6
# What a field or a piece of a file is replaced by.
NUMBERS = ["", "0", "-1", "-0.0", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "1e9", "1e18",
           "9223372036854775807", "99999999999999999999", "0x10", "1_0", "one", "NaN", "1e", "280",
           "-281"]
WORDS = ["$\\undefined{x}$", "$", "$$", "\\$x$", "_hidden", "", "nan", "a\nb", "\x1b[2J", "\u202e",
         "{exponent: 99, mantissa: 99}", "{exponent: 4, mantissa: -3}", "<script>", "%s{}", "dx",
         "x" * 5000, "\"", ",", "\x00", "ä▁🙂"]
BYTES = [b'"', b",", b"\n", b"\r", b"\x00", b"\xff", b"\xc3", b"$", b"-", b"e", b"9"]


def field(text):
    return f'"{text}"' if any(c in text for c in ',"\n') else text


def mutated(text, rng):
    """A file's bytes with one to three faults."""
    for _ in range(rng.randint(1, 3)):
        lines = text.split(b"\n")
        kind = rng.randrange(9)
        if kind <= 3 and len(lines) > 2:  # a field, or a column
            columns = lines[0].count(b",") + 1
            at, word = rng.randrange(columns), field(rng.choice(NUMBERS + WORDS)).encode()
            some = range(1, len(lines) - 1) if kind == 0 else [rng.randrange(1, len(lines) - 1)]
            for i in some:
                fields = lines[i].split(b",")
                if at < len(fields):
                    fields[at] = word
                    lines[i] = b",".join(fields)
            text = b"\n".join(lines)
        elif kind == 4:
            lines[rng.randrange(len(lines))] = rng.choice(lines)
            text = b"\n".join(lines)
        elif kind == 5:
            rng.shuffle(lines)
            text = b"\n".join(lines) if rng.random() < 0.2 else text[:rng.randrange(len(text) + 1)]
        elif kind == 6:
            text = rng.choice(BYTES) * rng.randint(1, 3) + text
        else:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(BYTES) + text[at + rng.randint(0, 1):]
    return text


def hammer(folder, seed, seconds):
    """Reads and draws mutated runs, in the tool's Python, for so long; prints how many."""
    import time
    import warnings
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(TOOLS / "python"))
    import ada_train
    from ada_train.columns import TABLES
    from ada_train.report import live, load, page, sections, selection, style
    style.DPI = 20
    beside = make_run(folder.parent / "beside", scale=2.0)
    good = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rng = random.Random(seed + done)
        touched = rng.sample(sorted(good), rng.randint(1, len(good)))
        for name, text in good.items():
            (folder / name).write_bytes(mutated(text, rng) if name in touched else text)
        try:
            start = time.monotonic()
            for table in TABLES:
                getattr(ada_train.read(folder), table)
            folders = [str(folder)] + [str(beside)] * rng.randint(0, 2)
            rng.shuffle(folders)
            tensor = rng.choice(["dx", "dx", "dw", "ds", "y", "p"])
            chosen = selection.read(folders, rng.choice(["each", "mean"]), tensor, rng.randint(1, 3))
            with style.look():
                parts = sections.all_sections(chosen, tensor)
                live.content("t", chosen, parts, tensor)
                if rng.random() < 0.1:
                    page.page("t", chosen.drawn, parts, None)
            if time.monotonic() - start > 30:
                raise RuntimeError("took more than 30 s")
        except load.Unreadable:
            pass
        except Exception:
            print(f"seed {seed + done}: {', '.join(touched)}", file=sys.stderr)
            raise
        done += 1
    print(done)


@unittest.skipUnless(PACKAGES, "python3-pandas, python3-matplotlib or python3-yaml is missing")
class ReportMutationTest(unittest.TestCase):
    def test_damaged_files_are_read_or_refused(self):
        with tempfile.TemporaryDirectory(prefix="ada-report-") as scratch:
            seed = int(os.environ.get("ADA_SEED", "1"))
            runs = [make_run(pathlib.Path(scratch, "images", "run")),
                    make_language_run(pathlib.Path(scratch, "language", "run"), drop=())]
            for folder in runs:
                result = subprocess.run([PYTHON, __file__, str(folder), str(seed), str(SECONDS)],
                                        capture_output=True, text=True, errors="replace", check=False)
                self.assertEqual(result.returncode, 0, f"{folder}: {result.stderr[-4000:]}")
                print(f"[report] {result.stdout.strip()} damaged runs of {folder.parent.name} from "
                      f"seed {seed} on")

    def page_of(self, **changed):
        """The page of a run with these files changed (name without ending -> text to text)."""
        with tempfile.TemporaryDirectory(prefix="ada-report-") as scratch:
            folder = make_run(pathlib.Path(scratch, "run"))
            for name, change in changed.items():
                path = next(folder.glob(name + ".*"))
                path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
            page = pathlib.Path(scratch, "page.html")
            result = subprocess.run([str(TOOLS / "report.py"), str(folder), "-o", str(page),
                                     "--title", "$\\undefined{x}$", "--static"], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertNotIn("Traceback", result.stderr)
            return page.read_text(encoding="utf-8")

    def test_names_are_no_formulas(self):
        def renamed(text):
            return text.replace("fc", "$\\undefined{x}$").replace("bn1", "_$")
        names = ["underflow", "scales", "histograms", "probes", "what_if", "events"]
        page = self.page_of(config=lambda text: text.replace("name: a", "name: $\\frac{$"),
                            summary=lambda text: text.replace('"name": "a"', '"name": "$x^$"'),
                            **{name: renamed for name in names})
        self.assertIn("$\\undefined{x}$", page)
        self.assertIn("$x^$", page)

    def test_steps_without_end_and_values_below_zero(self):
        page = self.page_of(steps=lambda text: text.replace("\n12,", "\ninf,"),
                            underflow=lambda text: text.replace("34.5", "-34.5"),
                            histograms=lambda text: text.replace(",40\n", ",-40\n"),
                            evaluation=lambda text: text.replace("30,", "1e300,"))
        self.assertIn("steps.csv: 1 rows without a step that can be are left out", page)
        self.assertIn("evaluation.csv: 1 rows without", page)

    def test_more_kinds_than_a_picture_can_show(self):
        rows = "".join(f"{i},1,kind{i},,,,\n" for i in range(3000))
        scales = "".join(f"1,1,fc,p,1,,,,1,1,limit{i}\n" for i in range(3000))
        what_if = "".join(f"1,1,fc,dx,s{i},fp16,1,1,0,0,0\n" for i in range(3000))
        self.page_of(events=lambda text: text + rows, scales=lambda text: text + scales,
                     what_if=lambda text: text + what_if)

    def test_summaries_and_configurations_that_are_none(self):
        for text in ["[]", "{", '{"train": [1], "status": 3, "name": {}}', "[" * 100000,
                     '{"train": {"loss": 1e999, "accuracy": "x"}, "seconds": -1' + "0" * 400 + "}"]:
            self.page_of(summary=lambda _, text=text: text)
        bomb = "a0: &a0 [x, x]\n" + "".join(
            f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
        self.assertTrue("line 7 has an alias" in self.page_of(config=lambda text: text + bomb))
        self.assertTrue("a line of more than 1 MiB" in self.page_of(
            timing=lambda text: text + "9" * (3 << 20) + "\n"))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        hammer(pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    else:
        unittest.main()
