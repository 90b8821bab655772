"""Runs of other tasks than classification: what classes.csv says of all classes together."""
ALL = "all"  # the row of all classes
# For segmentation and detection the column by which the best is chosen, its name, the second.
METRICS = {"segmentation": ("iou", "mIoU", "IoU", ("accuracy", "accuracy")),
           "detection": ("ap_07", "VOC07 mAP", "VOC07 AP", ("ap", "area AP"))}


def task(run):
    """What the network is for, as its configuration or its rows say."""
    named = run.config.get("task", "")
    if named in METRICS:
        return named
    for name, (column, *_) in METRICS.items():
        if run.classes[column].notna().any():
            return name
    return "classification"


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
