"""tools/hammer.sh notices what it is there for: on a stand-in for ada-train that is right, and on
ones that are wrong in one way."""
import os
import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "hammer.sh"
# Ten steps, a row each; FAULT chooses what is wrong with it.
PROGRAM = """#!/usr/bin/python3
import errno, os, pathlib, signal, sys, time
fault = os.environ.get("FAULT", "")
run = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
checkpoint = run / "checkpoints/step.json"
def end(number, frame):
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_text("{}")
    sys.exit(128 + number)
try:
    run.mkdir(exist_ok=True)
    checkpoint.unlink(missing_ok=True)
    if checkpoint.parent.exists():
        checkpoint.parent.rmdir()
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1,
                  signal.SIGUSR2):
        if fault != "deaf" or asked in (signal.SIGTERM, signal.SIGINT):
            signal.signal(asked, end)
    rows = run / "steps.csv"
    text = rows.read_text() if rows.exists() else ""
    done = text.count("\\n")
    rows.write_text("".join(line + "\\n" for line in text.split("\\n")[:done]))  # whole rows
    if fault == "forgets" and 0 < done < 10:
        done += 1
    for step in range(done, 10):
        time.sleep(0.02)
        with open(rows, "a") as file:
            file.write(f"{step}{'x' * 2000}\\n")
    (run / "summary.json").write_text('{"seconds": %f}' % time.time())
except OSError as error:
    sys.exit(70 if fault == "falls" else 6)
"""


class HammerTest(unittest.TestCase):
    def hammer(self, *options, fault=""):
        with tempfile.TemporaryDirectory(prefix="ada-hammer-test-") as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text(PROGRAM)
            program.chmod(0o755)
            result = subprocess.run(
                [TOOL, "--data", "synthetic", "--each", "0", "--only", "^$", "--kills", "0",
                 "--signals", "0", "--limits", "0", "--disks", "0", *options],
                capture_output=True, text=True, check=False,
                env={**os.environ, "ADA_BINARY": str(program), "FAULT": fault})
            rows = {line[:28].strip(): line[28:].split(maxsplit=2)
                    for line in result.stdout.splitlines()[1:]}
            return result, rows

    def test_a_program_that_is_right(self):
        result, rows = self.hammer("--kills", "4", "--limits", "3", "--disks", "3", "--signals", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(int(rows["kill -9"][0]), 4)
        self.assertEqual([rows["ulimit -n"][0], rows["ulimit -v"][0]], ["3", "3"])
        for name in ("SIGHUP", "SIGTERM", "SIGXCPU"):  # SIGINT ends a Python that starts with 1
            self.assertEqual(rows[name][:2], ["1", "0"])
        if "no disk was filled" not in result.stderr:
            self.assertEqual(rows["full disk"][:2], ["3", "0"])

    def test_a_resume_that_loses_a_row(self):
        result, rows = self.hammer("--kills", "8", fault="forgets")
        self.assertEqual(result.returncode, 1)
        self.assertNotEqual(rows["kill -9"][1], "0")
        self.assertIn("steps.csv", result.stderr)

    def test_signals_that_lose_a_run(self):
        result, rows = self.hammer("--signals", "24", fault="deaf")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ended with -1", result.stderr)
        self.assertEqual(rows["SIGTERM"][1], "0")

    def test_an_exit_code_that_is_none_of_a_full_disk(self):
        result, rows = self.hammer("--disks", "6", fault="falls")
        if "no disk was filled" in result.stderr:
            self.skipTest("a tmpfs cannot be mounted here")
        self.assertEqual(result.returncode, 1)
        self.assertIn("full disk: size=", result.stderr)
        self.assertIn("ended with 70", result.stderr)

    def test_wrong_options(self):
        for options in (["--data", "voc,none"], ["--kills", "-1"], ["--disks", "x"]):
            self.assertEqual(self.hammer(*options)[0].returncode, 2, options)


if __name__ == "__main__":
    unittest.main()
