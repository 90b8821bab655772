#!/usr/bin/python3
"""The tables of a sweep: OUT/sweep.csv, one row a run in the order of the plan, and
OUT/sweep_summary.csv, one row for each combination of values without `seed`: mean and sample
standard deviation over its finished runs.

usage: table.py OUT [NAME]    NAME: also a line on that run on stdout
Numbers come from summary.json and evaluation.csv of each run. Both files are replaced as a whole.
"""
import contextlib
import csv
import fcntl
import io
import math
import os
import pathlib
import statistics
import sys

import plan as plans

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from ada_train import run_files  # noqa: E402
from ada_train.run_files import number  # noqa: E402

# What the pictures of a split are judged by, and its name in a table: one of them has a number.
SHARES = (("test_miou", "mIoU"), ("test_map_07", "mAP (2007)"), ("test_top1", "top-1"))
LOGS = "sweep_logs"  # of the sweep: NAME.log, NAME.state ("finished 0")
SEED = "seed"
NUMBERS = ("steps", "skipped", "train_loss", "train_accuracy", "test_loss", "test_top1",
           "test_top5", "best_step", "best_loss", "best_top1", "best_top5", "dx_lost_pct",
           "layer_lost_pct", "worst_lost_pct", "worst_layer", "last_scale",
           "images_per_second", "seconds", "update_lost_pct", "master_lost_pct", "state_lost_pct",
           "sent_lost_pct", "not_finite_since", "split", "test_miou", "best_miou", "test_map_07",
           "best_map_07", "lost_pct", "lost_most_pct", "lost_tensor", "counted")
AVERAGED = ("train_loss", "train_accuracy", "test_loss", "test_top1", "test_top5", "best_top1",
            "test_miou", "best_miou", "test_map_07", "best_map_07", "dx_lost_pct", "layer_lost_pct",
            "worst_lost_pct", "skipped", "update_lost_pct", "master_lost_pct", "state_lost_pct",
            "sent_lost_pct", "lost_pct")


def text_of(value):
    """As in the logs of a run: integers in full, other numbers with nine digits, None empty."""
    if isinstance(value, float):
        return format(value, ".9g")
    return "" if value is None else str(value)


def underflow(layers):
    """What was lost at the roundings of dx, in percent of the values that were not zero: of all
    logged steps together; the mean over the layers; the layer that lost most."""
    rows = {name: run_files.field(layer, "dx") for name, layer in layers.items()}
    counts = [[number(row, key) for key in ("numel", "zeros_before", "underflow")]
              for row in rows.values() if row is not None]
    counts = [count for count in counts if None not in count]
    if not counts:
        return {}
    nonzero = sum(numel - zeros for numel, zeros, _ in counts)
    means = {name: number(row, "underflow_pct_nonzero_mean") for name, row in rows.items()}
    means = {name: mean for name, mean in means.items() if mean is not None}
    worst = max(means, key=means.get, default=None)
    return {"dx_lost_pct": 100 * sum(lost for *_, lost in counts) / nonzero if nonzero else None,
            "layer_lost_pct": statistics.fmean(means.values()) if means else None,
            "worst_lost_pct": means.get(worst), "worst_layer": worst}


def lost_most(summary):
    """The tensor that lost most on the mean, its mean and its largest share in percent, and of what
    that is said, as the run's own summary has it; 0 of no tensor where none lost a value."""
    counted = run_files.field(summary, "counted")
    coverage = run_files.text(counted, "coverage") if isinstance(counted, dict) else ""
    if not coverage:  # nothing was counted, or a run of an earlier version
        return {}
    most = run_files.field(counted, "lost_most")
    names = [run_files.text(most, key) for key in ("layer", "tensor")] if most else []
    return {"counted": coverage, "lost_tensor": ".".join(names) or None,
            "lost_pct": number(most, "pct_mean") if most else 0.0,
            "lost_most_pct": number(most, "pct_max") if most else 0.0}


def kept(layers):
    """What was lost of changes of weights, of masters and optimizer state where they are kept, and
    of gradients between processes, in percent of what was not zero."""
    result = {}
    for tensor in ("update", "master", "state", "sent"):
        counts = [[number(layer.get(tensor) or {}, key) for key in
                   ("numel", "zeros_before", "underflow")]
                  for layer in layers.values() if isinstance(layer, dict)]
        counts = [count for count in counts if None not in count]
        nonzero = sum(numel - zeros for numel, zeros, _ in counts)
        if nonzero:
            result[f"{tensor}_lost_pct"] = 100 * sum(lost for *_, lost in counts) / nonzero
    return result


def judged(summary):
    """(split, its last evaluation) by which a run is judged: test, else the first one, as language
    models have `validation` alone."""
    splits = run_files.field(summary, "evaluation")
    if not isinstance(splits, dict) or not splits:
        return None, None
    split = "test" if "test" in splits else next(iter(splits))
    return split, splits[split]


def best_top5(folder, split, step):
    """top5 of that split's evaluation after `step`; the summary names only top1 and loss of the
    best."""
    try:
        for row in run_files.rows(folder / "evaluation.csv"):
            if row["split"] == split and row["step"] == str(step):
                return number({"top5": float(row["top5"])}, "top5")
    except (OSError, ValueError, KeyError):
        pass
    return None


def numbers(folder, summary):
    """The columns NUMBERS of a run that has a summary."""
    row = {name: number(summary, name) for name in
           ("steps", "skipped", "last_scale", "images_per_second", "seconds")}
    row.update({f"train_{name}": number(summary, "train", name) for name in ("loss", "accuracy")})
    row["split"], test = judged(summary)
    row.update({f"test_{name}": number(test, name) for name in ("loss", "top1", "top5")})
    row.update({f"best_{name}": number(test, "best", name) for name in ("step", "loss", "top1")})
    for name in ("miou", "map_07"):  # of segmentation, of detection
        row[f"test_{name}"], row[f"best_{name}"] = number(test, name), number(test, "best", name)
    row["best_top5"] = best_top5(folder, row["split"], row["best_step"])
    row["not_finite_since"] = number(summary, "not_finite", "since")
    layers = run_files.field(summary, "layers")
    layers = layers if isinstance(layers, dict) else {}
    return {**row, **underflow(layers), **kept(layers), **lost_most(summary)}


def read_state(path):
    """(state, exit code) that the last start of a run left; both None where there is none."""
    try:
        state, code = path.read_text(encoding="utf-8").split()
        return state, int(code)
    except (OSError, ValueError):
        return None, None


def row_of(out, run):
    """A row of sweep.csv: what became of the run, and its numbers where there are any."""
    folder, state = pathlib.Path(out, run["name"]), pathlib.Path(out, LOGS, run["name"] + ".state")
    left, code = read_state(state)
    try:
        summary, _ = run_files.read_summary(folder)
        status = left if code else run_files.text(summary, "status")
        status = status or ("unfinished" if os.path.lexists(folder) else "pending")
    except OSError:  # what lies there is no folder, or none that can be read
        summary, status = {}, left if code else "failed"
    row = {"run": run["name"], **run["values"], "status": status, "exit_code": code}
    if status != "refused":  # its numbers would be another configuration's
        row.update(numbers(folder, summary) if summary else {})
    return row


def averages(keys, rows):
    """Rows of sweep_summary.csv. A metric that one of the finished runs lacks (a loss that is not
    finite) has no mean; a single run has no deviation."""
    keys = [key for key in keys if key != SEED]
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    for values, group in groups.items():
        finished = [row for row in group if row["status"] == "finished"]
        result = {**dict(zip(keys, values)), "runs": len(group), "n": len(finished)}
        for name in AVERAGED:
            sample = [row.get(name) for row in finished]
            if sample and all(isinstance(x, (int, float)) and math.isfinite(x) for x in sample):
                result[name + "_mean"] = statistics.fmean(sample)
                if len(sample) > 1:
                    result[name + "_std"] = statistics.stdev(sample)
        yield result


def write(path, columns, rows):
    """A whole CSV file, or the old one as it was."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows([text_of(row.get(column)) for column in columns] for row in rows)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        print(f"sweep.sh: {path} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(6)


def write_tables(out, keys, rows):
    write(pathlib.Path(out, "sweep.csv"), ["run", *keys, "status", "exit_code", *NUMBERS], rows)
    columns = [key for key in keys if key != SEED] + ["runs", "n"]
    columns += [name + end for name in AVERAGED for end in ("_mean", "_std")]
    write(pathlib.Path(out, "sweep_summary.csv"), columns, averages(keys, rows))


@contextlib.contextmanager
def alone(out):
    """One writer after the other, so that no older table replaces a newer one."""
    folder = pathlib.Path(out, LOGS)
    try:
        folder.mkdir(exist_ok=True)
        file = open(folder / ".table.lock", "w", encoding="utf-8")
    except OSError as error:
        print(f"sweep.sh: {folder} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(6)
    with file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def told(row):
    """The result of a run in a few words."""
    words = ["stopped early"] if row["status"] == "stopped" else []
    if row.get("not_finite_since") is not None:
        words.append(f"not finite from step {row['not_finite_since']} on")
    if row.get("split") not in (None, "test") and row.get("test_loss") is not None:
        words.append(f"{row['split']} loss {row['test_loss']:.4f}")
    else:
        words += [f"test {name} {100 * row[column]:.2f} %" for column, name in SHARES
                  if row.get(column) is not None][:1]
    if row.get("lost_tensor"):
        words.append(f"{row['lost_tensor']} lost {row['lost_pct']:.3g} %")
    elif row.get("counted"):
        words.append(f"no value lost of {row['counted']}")
    for name, what in (("update", "changes"), ("state", "state"), ("sent", "sent")):
        if row.get(f"{name}_lost_pct"):
            words.append(f"{what} lost {row[f'{name}_lost_pct']:.3g} %")
    if row.get("seconds") is not None:
        words.append(f"{row['seconds']:.0f} s")
    return ", ".join(words)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    out, *name = sys.argv[1:]
    plan = plans.load(out)
    keys = plan["keys"]
    with alone(out):
        rows = [row_of(out, run) for run in plan["runs"]]
        write_tables(out, keys, rows)
    if name:
        print(next((told(row) for row in rows if row["run"] == name[0]), ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
