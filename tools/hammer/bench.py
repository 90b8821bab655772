"""Runs that are disturbed, beside one of the same recipe that nothing happened to."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

# What ends a run whose machine fails: configuration and output folder, data, the machine, output.
EXPECTED = {0, 2, 3, 4, 6}
# oneDNN does not look whether memory for its generated code was granted: a run whose machine refuses
# memory may end by a signal. Nothing may be lost by it.
WITHOUT_MEMORY = {-signal.SIGSEGV, -signal.SIGABRT}
LOADER = 127  # the system's loader, before the program began
HANG_SECONDS = 60


class Bench:
    """One recipe in a folder of its own: its data, its configuration, and `whole`, its run from the
    beginning to the end."""

    def __init__(self, program, recipe, folder):
        self.name = recipe.name
        self.program = program
        self.folder = folder
        self.config = folder / "hammer.yaml"
        self.whole = folder / "whole"
        folder.mkdir()
        self.config.write_text(recipe.config)
        if recipe.make_data:
            recipe.make_data(folder / "data")
        begin = time.monotonic()
        process = self.start(self.command(self.whole), f"{self.whole}.log")
        self.peak_kib = _peak_kib(process)
        status = self.wait(process)
        self.seconds = time.monotonic() - begin
        if status != 0:
            sys.exit(f"hammer.sh: the undisturbed run of {self.name} ended with {status}: "
                     + pathlib.Path(f"{self.whole}.log").read_text(errors="replace"))

    def row(self, what):
        """The name of a row of the table."""
        return what if self.name == "synthetic" else f"{what}, {self.name}"

    def command(self, run, more=()):
        return [str(self.program), "--config", str(self.config), "--output", str(run),
                "--resume", "--no-progress", *more]  # fmt: skip

    def start(self, command, log):
        with open(log, "wb") as out:
            return subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                cwd=self.folder, start_new_session=True)  # fmt: skip

    def wait(self, process):
        """The exit status (below 0: the signal), or "hang"."""
        try:
            return process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "hang"

    def run(self, run, more=(), before=(), log=None):
        """(exit status, what it said)."""
        log = log or f"{run}.log"
        status = self.wait(self.start([*before, *self.command(run, more)], log))
        return status, pathlib.Path(log).read_text(errors="replace")

    def differs_after_resume(self, run, whole=None, log=None):
        """What keeps the run, resumed to its end, from being the whole one; [] where nothing does."""
        status, text = self.run(run, log=log)
        return differences(whole or self.whole, run) if status == 0 else [
            f"{status}: {text.strip()[-300:]}"]

    def judged(self, run, status, text, expected, log=None):
        """What is wrong with a disturbed run that ended with `status`, and with its resume; None."""
        if status not in expected:
            return f"ended with {status}: {text.strip()[-300:]}"
        differ = differences(self.whole, run) if status == 0 else []
        if differ:
            return f"exit 0, but {', '.join(differ)}"
        differ = self.differs_after_resume(run, log=log)
        return f"(exit {status}): after the resume {', '.join(differ)}" if differ else None


def _peak_kib(process):
    """The most address space that the process had, as long as it could be seen."""
    peak = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            if line.startswith("VmPeak:"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.005)
    return peak


def content(run):
    """What must be equal, by file: all but times, and the log."""
    files = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_dir() or name in ("timing.csv", "log.txt", ".lock", "config.yaml"):
            continue
        data = path.read_bytes()
        if name == "summary.json":
            summary = json.loads(data)
            for key in ("seconds", "images_per_second", "host", "versions", "folder", "name"):
                summary.pop(key, None)
            data = json.dumps(summary).encode()
        elif path.suffix == ".json":  # a checkpoint's: lengths of timing.csv differ
            checkpoint = json.loads(data)
            checkpoint.get("lengths", {}).pop("timing.csv", None)
            for key in ("state_xxh3", "config"):
                checkpoint.pop(key, None)
            data = json.dumps(checkpoint).encode()
        elif "tensorboard" in name:  # its files are named and filled with times
            name, data = "tensorboard", b""
        files[name] = data
    return files


def differences(whole, run):
    if not run.is_dir():
        return ["the folder is gone"]
    a, b = content(whole), content(run)
    return [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]


def clear(run):
    shutil.rmtree(run, ignore_errors=True)
    pathlib.Path(f"{run}.log").unlink(missing_ok=True)
