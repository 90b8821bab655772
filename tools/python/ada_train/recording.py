"""The folder of a run that another program trains, written as ada-train writes its own: CSV files
whose rows are whole whenever they are flushed, steps.csv last, and summary.json at the end. Holds
the folder's lock, so that `ada-train watch` knows that the run goes on."""
import contextlib
import errno
import fcntl
import json
import math
import os
import pathlib
import struct
import warnings
import weakref

from ada_train import coverage, csv_writer
from ada_train.columns import TABLES
from ada_train.coverage import TensorTotals

MARK = "# Recorded by ada_train.torch"  # the beginning of config.yaml
ALWAYS = ["scales", "underflow", "events", "evaluation", "timing"]
OWN = [name + ".csv" for name in TABLES] + ["config.yaml", "summary.json", "log.txt"]


class FolderInUse(OSError):
    """The folder holds another run, or another process writes there."""


def _is_recorded(folder):
    try:
        return (folder / "config.yaml").read_text(encoding="utf-8").startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False


def _has_no_step(folder):
    """A recording that ended before its first step: no configuration, and files without a row."""
    others = ("config.yaml", "log.txt", "checkpoints", "dump")
    if not (folder / "steps.csv").exists() or any((folder / name).exists() for name in others):
        return False
    headers = {folder / (name + ".csv"): csv_writer.header(name) for name in TABLES}
    return all(path.read_bytes() == header.encode() for path, header in headers.items()
               if path.exists())


_held = weakref.WeakSet()  # open lock files: a process that is forked off holds no run
os.register_at_fork(after_in_child=lambda: [file.close() for file in list(_held)])


def _set_lock(file, kind):
    """Other systems than Linux have no such locks: there watch cannot tell a run that goes on from
    one that died."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        whole = struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, whole)


def _lock(folder):
    """The open lock file."""
    file = open(folder / ".lock", "a+b")
    try:
        _set_lock(file, fcntl.F_WRLCK)
    except OSError as error:
        file.close()
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise FolderInUse(f"{folder}: another process writes a run there") from None
        raise
    _held.add(file)
    return file


def _unlock(file):
    """A copy of the file that another process holds keeps no lock either."""
    if not file.closed:
        _set_lock(file, fcntl.F_UNLCK)
        file.close()


def _atomically(path, text):
    beside = path.with_name(f".ada-{os.getpid()}.tmp")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def _null(value):
    """JSON has no NaN and no inf."""
    if isinstance(value, dict):
        return {key: _null(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


_open = weakref.WeakValueDictionary()  # path -> RunFolder of this process


class RunFolder:
    """`ended`: what ends the recording, where another one of this process takes the folder."""

    def __init__(self, folder, overwrite=False, histograms=True, blocks=False):
        self.path, self.ended = pathlib.Path(folder), None
        self._take(overwrite)
        self.path.mkdir(parents=True, exist_ok=True)
        self._held, self._files = _lock(self.path), {}
        try:
            self._clear(overwrite)
            names = (["histograms"] if histograms else []) + (["blocks"] if blocks else [])
            for name in names + ALWAYS + ["steps"]:
                self._files[name] = csv_writer.CsvFile(self.path, name)
        except BaseException:
            self.abandon()
            raise
        self.totals = Totals()
        _open[self.path.resolve()] = self

    def _take(self, overwrite):
        """From a recording of this process that goes on, as in a notebook's cell that is run again.
        """
        other = _open.get(self.path.resolve())
        if other is None or other._held.closed:
            return
        if not overwrite or other.ended is None:
            raise FolderInUse(f"{self.path}: holds a recording of this process that goes on; "
                              "close() it, or overwrite=True ends and deletes it")
        warnings.warn(f"{self.path}: ends the recording of this process that goes on there",
                      stacklevel=5)
        other.ended()

    def _clear(self, overwrite):
        there = [name for name in [*OWN, "checkpoints", "dump"] if (self.path / name).exists()]
        if not there:
            return
        if not _is_recorded(self.path) and not _has_no_step(self.path):
            raise FolderInUse(f"{self.path}: holds files that no recording wrote ({there[0]}); "
                              "choose another folder")
        if not overwrite:
            raise FolderInUse(f"{self.path}: holds a recorded run; overwrite=True deletes it, or "
                              "choose another folder")
        for path in [*(self.path / name for name in OWN), *self.path.glob("dump/step-*.safetensors")]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # none, or with files of others
            (self.path / "dump").rmdir()

    def add(self, table, **row):
        row = {name: row.get(name, "" if kind == "text" else math.nan)
               for name, kind in TABLES[table].items()}
        self._files[table].add(row)
        self.totals.add(table, row)

    def flush(self):
        for file in self._files.values():
            file.flush()

    def log(self, text):
        """Adds to log.txt."""
        if text:
            with open(self.path / "log.txt", "a", encoding="utf-8") as file:
                file.write(text)

    def write_config(self, text):
        _atomically(self.path / "config.yaml", text)

    def close(self, facts, rounded=()):
        """Writes summary.json: what the totals know, and `facts`; rounded: words of
        `log.statistics` whose tensors were rounded."""
        for file in self._files.values():
            file.close()
        text = json.dumps(_null(self.totals.summary(facts, rounded)), indent=2)
        _atomically(self.path / "summary.json", text + "\n")
        _unlock(self._held)

    def abandon(self):
        """The folder is let go as it is: nothing was recorded."""
        for file in self._files.values():
            file.close()
        _unlock(self._held)


def _is_better(row, best):
    """By top1; of rows without it, as those of language models, by the loss."""
    if math.isnan(row["top1"]) or math.isnan(best["top1"]):
        return row["loss"] < best["loss"]
    return row["top1"] > best["top1"]


class Totals:
    """What summary.json says, from the rows."""

    def __init__(self):
        self.step, self.skipped, self.evaluations, self.layers = None, 0, {}, {}
        self.tensors = {}  # (layer, tensor) -> TensorTotals
        self._epoch = []

    def add(self, table, row):
        if table == "steps":
            if self.step is not None and row["epoch"] != self.step["epoch"]:
                self._epoch = []
            self.step = row
            self.skipped += bool(row["skipped"])
            if math.isfinite(row["loss"]):
                self._epoch.append((row["loss"], row["accuracy"]))
        elif table == "evaluation":
            best = self.evaluations.get(row["split"], {}).get("best", row)
            better = row if _is_better(row, best) else best
            self.evaluations[row["split"]] = {"last": row, "best": better}
        elif table == "underflow":
            self._tensor(row)
        elif table == "blocks":
            self._blocks(row)
        elif table == "scales":
            self._scale(row)

    def _tensor(self, row):
        key = row["layer"], row["tensor"]
        self.tensors.setdefault(key, TensorTotals()).add(row)
        self.layers.setdefault(key[0], {})[key[1]] = self.tensors[key]

    def _blocks(self, row):
        """Operands in blocks that have no rows of underflow.csv."""
        if row["tensor"] not in self.layers.get(row["layer"], {}):
            self.tensors.setdefault((row["layer"], row["tensor"]), TensorTotals()).add({
                **row, "scale": 1.0, "zeros_before": row["zeros"], "underflow": row["lost"],
                "overflow": row["saturated"], "underflow_pct_nonzero": row["lost_pct_nonzero"]})

    def _scale(self, row):
        s = self.layers.setdefault(row["layer"], {}).setdefault(
            "alpha", {"rows": 0, "limits": {}})
        s["rows"] += 1
        s.update(last_scale_in=row["scale_in"], last_scale_out=row["scale_out"],
                 last_alpha=row["alpha"], last_limit=row["limit"])
        s["limits"][row["limit"]] = s["limits"].get(row["limit"], 0) + 1

    def counted(self, rounded):
        """`counted` of the summary; rounded: the words whose tensors were rounded."""
        return coverage.counted(self.tensors, self.step["step"] if self.step else 0, rounded)

    def summary(self, facts, rounded=()):
        step = self.step or {"step": 0, "epoch": 0, "scale": 1.0}
        mean = [sum(column) / len(column) for column in zip(*self._epoch)] or [math.nan, math.nan]
        layers = {layer: {name: part.summary() if isinstance(part, TensorTotals) else part
                          for name, part in parts.items()} for layer, parts in self.layers.items()}
        evaluations = {}
        for split, rows in self.evaluations.items():
            last, best = rows["last"], rows["best"]
            evaluations[split] = {name: last[name] for name in
                                  ("step", "epoch", "images", "loss", "top1", "top5")}
            evaluations[split]["best"] = {n: best[n] for n in ("step", "epoch", "top1", "loss")}
        return {**facts, "epochs": step["epoch"], "steps": step["step"], "skipped": self.skipped,
                "last_scale": step["scale"],
                "train": {"epoch": step["epoch"], "loss": mean[0], "accuracy": mean[1]},
                "counted": self.counted(rounded), "evaluation": evaluations, "layers": layers}
