"""Many runs: short names for the runs of a sweep, and runs that differ in their seed alone as one,
with the mean of what they logged."""
import csv
import os

import pandas

from ada_train import run_files
from ada_train.report.load import COLUMNS, Run

NOT_COMPARED = {"name", "output", "seed"}
FROM = 4  # runs from which on those that differ in their seed alone are drawn as one


def expand(folders):
    """Folders of runs; a sweep's folder stands for its runs, in the order of its table."""
    found = []
    for folder in folders:
        table = os.path.join(folder, "sweep.csv")
        if os.path.isfile(os.path.join(folder, "config.yaml")) or not os.path.isfile(table):
            found.append(folder)
            continue
        try:
            names = [row["run"] for row in run_files.rows(table) if row.get("run")]
        except (run_files.BadFile, csv.Error):
            names = []
        there = [os.path.join(folder, name) for name in names]
        started = [path for path in there if os.path.isfile(os.path.join(path, "config.yaml"))]
        found += started or [folder]
    return list(dict.fromkeys(found))


def _parts(names):
    """The parts KEY=VALUE of names that a sweep made; None where one is no such name."""
    split = [[part.split("=", 1) for part in name.split("__")] for name in names]
    keys = [[part[0] for part in parts] for parts in split]
    if any(len(part) < 2 for parts in split for part in parts) or any(k != keys[0] for k in keys):
        return None
    return split


def _is_number(text):
    try:
        float(text)
        return True
    except ValueError:
        return False


def _short(parts, differing):
    words = [f"{key}={value}" if _is_number(value) else value
             for i, (key, value) in enumerate(parts) if i in differing]
    return ", ".join(words)


def shorten_labels(runs, group_seeds=False):
    """Of a sweep's names what differs between the runs; others stay as they are."""
    names = [run.name for run in runs]
    split = _parts(names) if len(runs) > 1 else None
    if split is None:
        return
    differing = {i for i in range(len(split[0])) if len({parts[i][1] for parts in split}) > 1
                 and not (group_seeds and split[0][i][0] == "seed")}
    short = [_short(parts, differing) for parts in split]
    if all(short) and (group_seeds or len(set(short)) == len(short)):
        for run, label in zip(runs, short):
            run.label = label


def _merged(runs):
    """One run with the rows of all, in the order of their steps."""
    merged = Run("", config=runs[0].config, summary={}, members=runs)
    for name in COLUMNS:
        tables = [run.tables[name] for run in runs if len(run.tables[name])]
        if not tables:
            merged.tables[name] = runs[0].tables[name]
            continue
        table = pandas.concat(tables, ignore_index=True)
        for column in tables[0].columns:
            if tables[0][column].dtype.name == "category":
                table[column] = table[column].astype("category")
        merged.tables[name] = table.sort_values("step", kind="stable", ignore_index=True)
    return merged


def title(runs):
    """The names of some runs, or how many there are and where."""
    if len(runs) < FROM:
        return ", ".join(run.label for run in runs)
    places = {os.path.dirname(os.path.abspath(run.folder)) for run in runs}
    where = f" of {os.path.basename(places.pop())}" if len(places) == 1 else ""
    return f"{len(runs)} runs{where}"


def together(runs, how):
    """The runs in lists, of which each is drawn as one: those that differ in their seed alone. how:
    `each`, `mean`, or `auto`: mean from FROM runs on."""
    if how == "each" or (how == "auto" and len(runs) < FROM):
        return [[run] for run in runs]
    groups = {}
    for i, run in enumerate(runs):
        key = tuple(sorted((k, v) for k, v in run.config.items() if k not in NOT_COMPARED))
        groups.setdefault(key or i, []).append(run)
    return list(groups.values())


def label_groups(groups):
    """A label for each list of `together`."""
    if all(len(group) == 1 for group in groups):
        return [group[0].label for group in groups]
    copies = [Run(group[0].folder, name=group[0].name, label=group[0].label) for group in groups]
    shorten_labels(copies, True)
    return [group[0].label if len(group) == 1 else f"{copy.label} ({len(group)} seeds)"
            for group, copy in zip(groups, copies)]


def as_one(group, label):
    """The run that stands for a list of `together`."""
    if len(group) == 1:
        return group[0]
    merged = _merged(group)
    merged.label = label
    return merged


def by_seed(runs, how):
    """The runs as they are drawn: a run for each list of `together`."""
    groups = together(runs, how)
    return [as_one(group, label) for group, label in zip(groups, label_groups(groups))]
