"""Run folders as tables: what a run left behind, whole or cut off at any moment.

Nothing here fails because of a file that is missing, empty or torn: a table may be empty, and
Run.notes says what was wrong. Only a folder that holds no run is an error (Unreadable).
"""
import dataclasses
import math
import os

import pandas

from ada_train import run_files, tables
from ada_train.columns import TABLES

# Columns that the report reads, by file.
COLUMNS = {
    "steps": "step epoch loss accuracy lr scale overflow skipped grad_norm",
    "evaluation": "step epoch split images loss top1 top5",
    "scales": "step layer scale_in alpha scale_out limit",
    "underflow": "step layer tensor format scale numel zeros_before zeros_after underflow "
                 "underflow_pct_nonzero overflow inf nan",
    "blocks": "step layer tensor format lost_pct_nonzero scale_log2_min scale_log2_max "
              "scale_log2_mean scale_log2_std sqnr_db sqnr_mean_db sqnr_worst_db norm_over_noise",
    "histograms": "step layer tensor scale exponent count",
    "probes": "step layer tensor format scale lost_pct mse sqnr_db cosine norm_over_noise",
    "what_if": "step layer tensor scenario underflow_pct_nonzero overflow underflow_unsure_pct",
    "what_if_blocks": "step layer tensor scenario numel zeros saturated lost_pct_nonzero sqnr_db",
    "accumulators": "step layer tensor accumulator swallowed_pct sqnr_db bias max_rel",
    "what_if_accumulators": "step layer tensor scenario accumulator swallowed_pct sqnr_db bias "
                            "max_rel",
    "events": "step epoch event layer tensor value message",
    "classes": "step split class count iou accuracy ap_07 ap",
    "confusion": "step split class prediction count",
    "losses": "step locations classes terms",
    "timing": "step seconds images_per_second data forward backward update log tokens",
}
# What makes a file.
MADE_BY = {
    "steps": "every run writes it, a row a step",
    "evaluation": "evaluate.every_epochs makes it",
    "scales": "log.every makes it",
    "underflow": "log.every makes it, log.statistics chooses the tensors",
    "blocks": "operands in block-scaled formats make it",
    "histograms": "log.histogram_every makes it",
    "probes": "log.probe_every makes it",
    "what_if": "log.what_if makes it, together with log.histogram_every",
    "what_if_blocks": "log.what_if with block-scaled formats makes it",
    "accumulators": "precision.accumulate makes it",
    "what_if_accumulators": "log.what_if with accumulate makes it",
    "events": "every run writes it",
    "classes": "evaluations of segmentation and detection write it",
    "confusion": "evaluations of segmentation write it",
    "losses": "detection writes it, a row a step",
    "timing": "log.every makes it",
}


MOST_STEP = 1e12  # as src/telemetry/csv_reader.h has it
LARGEST = 3.5e38
INFINITE = {"loss", "grad_norm", "scale", "scale_in", "alpha", "scale_out", "mse", "sqnr_db",
            "sqnr_mean_db", "sqnr_worst_db", "norm_over_noise"}
SIGNED = {"loss", "bias", "sqnr_db", "sqnr_mean_db", "sqnr_worst_db", "cosine", "scale_log2_min",
          "scale_log2_max", "scale_log2_mean"}


class Unreadable(Exception):
    """A folder that holds no run, or a file that the system refuses to read."""


@dataclasses.dataclass
class Run:
    folder: str
    name: str = ""       # its own
    label: str = ""      # unique among the runs of a report
    summary: dict = None  # of summary.json; empty while the run goes on
    config: dict = None   # dotted key -> text
    config_text: str = ""
    tables: dict = dataclasses.field(default_factory=dict)
    notes: list = dataclasses.field(default_factory=list)
    members: list = dataclasses.field(default_factory=list)  # of runs that are drawn as one

    @property
    def each(self):
        """The runs that it stands for: itself, or its members."""
        return self.members or [self]

    def __getattr__(self, name):
        """run.steps and so on: the table of a file."""
        try:
            return self.__dict__["tables"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def status(self):
        return (run_files.text(self.summary, "status")
                or "no summary.json: still running, or killed")

    def fact(self, name, *keys):
        """A fact of summary.json, or else the first of the configuration's keys that is set."""
        value = run_files.text(self.summary, name)
        for key in keys:
            value = value if value not in (None, "") else self.config.get(key)
        return "" if value is None else value


def _sensible(column, name):
    """Numbers that can be: none below zero or infinite where that says nothing, none beyond what
    fp32 holds, of which axes and sums have no end."""
    column = column.astype("float64")
    column = column.mask(column > LARGEST, math.inf).mask(column < -LARGEST, -math.inf)
    column = column if name in INFINITE else column.where(column.abs() != math.inf)
    return column if name in SIGNED else column.where(column >= 0)


def read_table(folder, name, notes):
    """The rows of <folder>/<name>.csv with the columns of COLUMNS, all of them, in numbers and
    categories. No rows where the file is missing or empty."""
    kinds = {column: TABLES[name][column] for column in COLUMNS[name].split()}
    path = os.path.join(folder, name + ".csv")
    frame = tables.raw(path, kinds, notes) if os.path.isfile(path) else pandas.DataFrame()
    for column, kind in kinds.items():
        text = kind == "text"
        if column not in frame.columns:
            frame[column] = pandas.Series("" if text else math.nan, index=frame.index,
                                          dtype="category" if text else "float64")
        elif not text:
            frame[column] = _sensible(pandas.to_numeric(frame[column], errors="coerce"),
                                      column)
    steps = frame["step"].between(0, MOST_STEP)
    if not steps.all():
        notes.append(f"{name}.csv: {int((~steps).sum())} rows without a step that can be are left "
                     "out")
    return frame[steps].reset_index(drop=True)


def empty_table(name):
    """No rows, with the columns of COLUMNS."""
    return read_table("", name, [])


def flatten(value, key=""):
    """A nested configuration as dotted keys; lists in one line."""
    if isinstance(value, dict) and value:
        flat = {}
        for name, inner in value.items():
            flat.update(flatten(inner, f"{key}.{name}" if key else str(name)))
        return flat
    return {key: one_line(value)}


def one_line(value):
    """YAML's flow style of a value whose leaves are text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {one_line(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(one_line(v) for v in value) + "]"
    return "" if value is None else str(value)


def _read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def refuse_aliases(text):
    """ada-train writes none, and a few lines of them could stand for more than memory holds."""
    import yaml
    for event in yaml.parse(text, yaml.BaseLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"line {event.start_mark.line + 1} has an alias (*name)")


def load_plain(text):
    """YAML without aliases; leaves are text."""
    import yaml
    refuse_aliases(text)
    return yaml.load(text, yaml.BaseLoader)


def _read_config(run):
    import yaml
    run.config_text = _read_text(os.path.join(run.folder, "config.yaml"))
    run.config = {}
    if not run.config_text:
        run.notes.append("config.yaml is missing")
    else:
        try:
            value = load_plain(run.config_text)
            run.config = flatten(value) if isinstance(value, dict) else {}
        except (yaml.YAMLError, RecursionError) as error:
            run.notes.append("config.yaml cannot be read: " + " ".join(str(error).split()))


def _read_summary(run):
    run.summary, problem = run_files.read_summary(run.folder)
    if problem:
        run.notes.append(problem)


def check_folder(folder):
    """Throws Unreadable where `folder` holds no run."""
    if not os.path.isdir(folder):
        raise Unreadable(f"{folder}: no such folder; expected the folder of a run, such as "
                         "runs/fashion_quickstart")
    known = ["config.yaml"] + [name + ".csv" for name in COLUMNS]
    if not any(os.path.isfile(os.path.join(folder, name)) for name in known):
        raise Unreadable(f"{folder}: holds no run (neither config.yaml nor steps.csv); expected "
                         "the folder that ada-train's --output named")


def read_head(folder):
    """What the run in `folder` is, without its tables. Throws Unreadable."""
    check_folder(folder)
    run = Run(os.path.normpath(folder))
    try:
        _read_config(run)
        _read_summary(run)
    except OSError as error:
        raise Unreadable(f"{error.filename or folder}: {error.strerror}") from error
    return run


def read_tables(run, names=tuple(COLUMNS)):
    """Reads the tables of these names; the others are there without rows. Throws Unreadable."""
    try:
        for name in COLUMNS:
            run.tables[name] = (read_table(run.folder, name, run.notes) if name in names
                                else empty_table(name))
    except OSError as error:
        raise Unreadable(f"{error.filename or run.folder}: {error.strerror}") from error


def read_run(folder):
    """The run in `folder`. Throws Unreadable."""
    run = read_head(folder)
    read_tables(run)
    return run


def label_runs(runs):
    """Gives each run a label of its own."""
    names = [str(run.fact("name", "name")) or os.path.basename(run.folder) for run in runs]
    for run, name in zip(runs, names):
        run.name = name
        run.label = name if names.count(name) == 1 else f"{name} ({run.folder})"


def read_runs(folders):
    """All runs, each with a label of its own."""
    runs = [read_run(folder) for folder in folders]
    label_runs(runs)
    return runs
