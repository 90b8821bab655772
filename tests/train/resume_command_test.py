"""The command that a stopped run names goes on with it when it is typed as it stands. ADA_BINARY
names the program."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
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


if __name__ == "__main__":
    unittest.main()
