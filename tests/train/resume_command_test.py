"""The command that a stopped run names goes on with it when it is typed as it stands; closed
terminals, copies of runs made of links, and names of any bytes. ADA_BINARY names the program."""
import fcntl
import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import termios
import unittest

BINARY = os.path.realpath(os.environ.get("ADA_BINARY", "build/ada-train"))
RUN = """
data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 1, classes: 4, train: 64,
       test: 16}, batch_size: 16, workers: 0}
model: {zoo: mlp, hidden: [4]}
precision: {format: fp8_e4m3}
scaling: {policy: fixed, scale: 1.0e-6}
train: {epochs: 1000000}
log: {every: 1, alert_underflow_pct: 1}
device: {kind: cpu, threads: 1}
"""


class ResumeCommand(unittest.TestCase):
    def test_whatever_the_folder_is_called(self):
        for name in ("-dash", "--set", "two words", "it's"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "run.yaml").write_text(RUN)
                run = subprocess.Popen([BINARY, "train", "run.yaml", f"--output={name}",
                                        "--no-progress"], cwd=folder, stderr=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL, text=True)
                with run:
                    said = ""
                    for line in run.stderr:
                        said += line
                        if line.startswith("step 1:"):  # it trains
                            run.send_signal(signal.SIGINT)
                            break
                    said += run.stderr.read()
                self.assertEqual(run.returncode, 130, said)
                step, command = re.search(r"after step (\d+), go on with: (.*)", said).groups()
                done = subprocess.run(["sh", "-c", f"{command} --set train.max_steps={int(step) + 1}"],
                                      cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_terminal_that_is_closed(self):
        """The system sends SIGHUP, and whatever the run then prints is an error (EIO)."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "run.yaml").write_text(RUN)
            ours, theirs = pty.openpty()
            run = subprocess.Popen(
                [BINARY, "train", "run.yaml", "--output", "run"], cwd=folder, stdin=theirs,
                stdout=theirs, stderr=theirs, start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.close(theirs)
            said = b""
            while b"step 1:" not in said:
                said += os.read(ours, 65536)
            os.close(ours)
            self.assertEqual(run.wait(), 129)
            rows = pathlib.Path(folder, "run/steps.csv").read_text().count("\n") - 1
            self.assertTrue(pathlib.Path(folder, f"run/checkpoints/step-{rows:08d}.json").exists())

    def ada(self, folder, *arguments):
        done = subprocess.run([BINARY, *arguments], cwd=folder, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_copy_made_of_links_leaves_the_run_as_it_is(self):
        for link in (os.link, os.symlink):
            with self.subTest(link.__name__), tempfile.TemporaryDirectory() as folder:
                top = pathlib.Path(folder)
                (top / "run.yaml").write_text(RUN)
                short = ("--set", "train.max_steps=4", "log.histogram_every=1", "checkpoint.every_steps=2")
                self.ada(top, "train", "run.yaml", "--output", "run", "--quiet", *short)
                for path in [*(top / "run").rglob("*")]:
                    if path.is_file() and path.name != ".lock":
                        copy = top / "copy" / path.relative_to(top / "run")
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        link(path, copy)
                for path in (top / "copy/checkpoints").glob("step-00000004.*"):
                    path.unlink()  # it goes on from step 2, so that logs are cut
                before = {path: path.read_bytes() for path in (top / "run").rglob("*") if path.is_file()}
                self.ada(top, "train", "--resume", "copy", "--quiet", "--set", "train.max_steps=6")
                self.assertEqual(before, {path: path.read_bytes() for path in (top / "run").rglob("*")
                                          if path.is_file()})
                self.assertEqual((top / "copy/steps.csv").read_text().count("\n"), 7)

    def test_the_name_of_a_file_may_be_any_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            name = os.fsencode(folder) + b"/m\xfcller.yaml"
            pathlib.Path(os.fsdecode(name)).write_text(RUN)
            self.ada(folder, "train", name, "--set", "train.max_steps=2", "--quiet")
            self.ada(folder, "train", "--resume", "runs/m\\xfcller", "--set", "train.max_steps=3", "--quiet")
            rows = pathlib.Path(folder, "runs/m\\xfcller/steps.csv").read_text()
            self.assertEqual(rows.count("\n"), 4)


if __name__ == "__main__":
    unittest.main()
