"""Runs of ada-train as the benchmarks need them: its real training loop for some steps, and what
its timing.csv says of them."""
import dataclasses
import os
import pathlib
import subprocess
import sys

import flops
import machine
import models
from turns import end, words_of

sys.path.insert(0, str(machine.ROOT / "tools" / "python"))
from ada_train import run_files  # noqa: E402

# The same optimizer everywhere but for transformers, as PyTorch's side has it; no evaluation, no
# checkpoints.
SGD = "optimizer={kind: sgd, lr: 0.01, momentum: 0.9, weight_decay: 1e-4}"
LOOP = ("evaluate.every_epochs=0", "checkpoint={every_epochs: 0}", "train.epochs=1000000")


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run left: rows of timing.csv as numbers, the most memory it had (VmHWM), and the
    processor seconds of all its threads."""
    rows: list
    peak_mib: float
    cpu: float

    def samples_per_second(self, batch):
        """Of all steps but the first, whose interval holds the warm-up."""
        seconds = sum(row["seconds"] for row in self.rows[1:])
        return (self.rows[-1]["step"] - self.rows[0]["step"]) * batch / seconds


class AdaTrain:
    """The program, started afresh for each measurement; folders of runs go to `scratch`."""

    def __init__(self, program, scratch, device="cpu"):
        self.program, self.scratch = pathlib.Path(program).resolve(), scratch
        self.device = f"device.kind={device}"
        self.version = words_of(self.program, "--version", cwd=machine.ROOT).splitlines()[0]

    def network(self, model, batch):
        """The model's flops.Network, from --dry-run."""
        return flops.parse(words_of(
            self.program, "--config", model.config, "--dry-run", "--set",
            *machine.data_options(model.config), self.device, *model.network,
            f"data.batch_size={batch}", cwd=machine.ROOT))

    def start(self, config, values, threads, name="run", core=None):
        """Starts a run with --set `values`; bound to a core where one is given. `name` tells apart
        runs that go on at the same time."""
        optimizer = () if models.keeps_optimizer(config) else (SGD,)
        command = [self.program, "--config", config, "--output", self.folder(name), "--overwrite",
                   "--no-progress", "--quiet", "--threads", threads, "--set", self.device,
                   *machine.data_options(config), *optimizer, *LOOP, *values]
        bind = None if core is None else lambda: os.sched_setaffinity(0, {core})
        return name, subprocess.Popen([str(part) for part in command], cwd=machine.ROOT,
                                      preexec_fn=bind, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True)

    def finish(self, started, least=2):
        """Waits for a run and returns its Run, of at `least` so many rows."""
        name, process = started
        message = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            end(f"ada-train ended with {process.returncode}:\n{message}")
        rows = [{key: float(value) for key, value in row.items() if value}
                for row in run_files.rows(self.folder(name) / "timing.csv")]
        if len(rows) < least:
            end("too few logged steps; raise --ada-steps or lower --log-every")
        return Run(rows, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)

    def run(self, config, values, threads):
        return self.finish(self.start(config, values, threads))

    def folder(self, name):
        """Of a run."""
        return pathlib.Path(self.scratch, name)
