"""What the runs' networks are for, and what they are judged by: of segmentation and detection what
classes.csv says of all classes together, of language the loss."""
import math

import numpy

from ada_train.run_files import field, number

LANGUAGE = "language"
ALL = "all"  # the row of all classes
# For segmentation and detection the column by which the best is chosen, its name, the second.
METRICS = {"segmentation": ("iou", "mIoU", "IoU", ("accuracy", "accuracy")),
           "detection": ("ap_07", "VOC07 mAP", "VOC07 AP", ("ap", "area AP"))}


def task(run):
    """What the network is for, as its configuration or its rows say."""
    named = run.config.get("task", "")
    if named in METRICS or named == LANGUAGE:
        return named
    for name, (column, *_) in METRICS.items():
        if run.classes[column].notna().any():
            return name
    if number(run.summary, "tokens_per_second") is not None or run.timing["tokens"].notna().any():
        return LANGUAGE
    return "classification"


def is_language(run):
    return task(run.each[0]) == LANGUAGE


def languages(runs):
    """(whether some run is a language model, whether all are)."""
    found = [is_language(run) for run in runs]
    return any(found), all(found)


def tokens_are_bytes(run):
    """Whether bits per byte say something of a language run."""
    first = run.each[0]
    evaluated = field(first.summary, "evaluation")
    rows = evaluated.values() if isinstance(evaluated, dict) else []
    return first.config.get("data.tokens") == "bytes" or any(
        isinstance(row, dict) and "bits_per_byte" in row for row in rows)


def perplexity(loss):
    """Of a loss in nats a token."""
    with numpy.errstate(over="ignore"):
        return float(numpy.exp(loss))


def bits(loss):
    """A loss in bits instead of nats: where tokens are bytes, bits per byte."""
    return loss / math.log(2)


def evaluations(run):
    """The rows of evaluation.csv of the split that the run is judged by: test, if it was evaluated,
    else the first one."""
    rows = run.evaluation
    there = list(dict.fromkeys(rows["split"]))
    split = "test" if "test" in there or not there else there[0]
    return rows[(rows["split"] == split).to_numpy()]


def last_evaluation(run):
    """The last of them; None."""
    rows = evaluations(run)
    return rows.iloc[-1] if len(rows) else None


def best_evaluation(run):
    """The best of them: of language the one with the smallest loss, else with the largest top-1.
    None."""
    rows = evaluations(run)
    column = rows["loss"] if is_language(run) else -rows["top1"]
    if not column.notna().any():
        return None
    return rows.loc[column.idxmin()]


def others(runs):
    """Whether some run is of another task than classification."""
    return any(task(member) in METRICS for run in runs for member in run.each)


def split_of(run):
    """The split that the run is judged by: test, if it was evaluated."""
    there = list(dict.fromkeys(run.classes["split"]))
    return "test" if "test" in there or not there else there[0]


def judged(run):
    """The rows of that split."""
    return run.classes[(run.classes["split"] == split_of(run)).to_numpy()]


def of_all(run):
    """Those of all classes together."""
    rows = judged(run)
    return rows[(rows["class"] == ALL).to_numpy()]


def last_value(run):
    """(metric's name, value, split, step) of the last evaluation; None where there is none."""
    found = METRICS.get(task(run))
    rows = of_all(run)
    if found is None or not len(rows):
        return None
    row = rows.iloc[-1]
    return found[1], row[found[0]], row["split"], int(row["step"])


def best_value(run):
    """(value, step) of the best evaluation; None."""
    found = METRICS.get(task(run))
    rows = of_all(run)
    if found is None or not rows[found[0]].notna().any():
        return None
    row = rows.loc[rows[found[0]].idxmax()]
    return row[found[0]], int(row["step"])
