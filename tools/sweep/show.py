#!/usr/bin/python3
"""The table of a sweep for a terminal of 80 columns: a line for each combination of values without
`seed`, means and deviations over its finished runs; where no seed varies, a line a run.

usage: show.py OUT
"""
import os
import signal
import statistics
import sys

import plan as plans
import table

WIDTH, GAP = 80, 2
SHORT = 6  # letters of a value that never gives way
# title, column, factor, digits after the point
NUMBERS = (("train loss", "train_loss", 1, 4),
           ("lost %", "lost_pct", 1, 3), ("skipped", "skipped", 1, 0))
# These are shown for sweeps in which some run counts them.
KEPT = (("changes lost %", "update_lost_pct", 1, 2), ("state lost %", "state_lost_pct", 1, 2),
        ("sent lost %", "sent_lost_pct", 1, 2))
NOT_FINITE = ("not finite from", "not_finite_since")  # the first such step of a group's runs


def numbers_of(rows):
    splits = {row.get("split") for row in rows} - {None}
    # What has no test split is a language model, which is judged by its loss.
    others = splits - {"test"}
    results = ()
    if "test" in splits or not others:
        column, name = next((share for share in table.SHARES
                             if any(row.get(share[0]) is not None for row in rows)),
                            table.SHARES[-1])
        results = ((f"test {name} %", column, 100, 2),)
    if others:
        title = f"{min(others)} loss" if len(splits) == 1 else "last loss"
        results += ((title, "test_loss", 1, 4),)
    return results + NUMBERS + tuple(kept for kept in KEPT
                           if any(row.get(kept[1]) is not None for row in rows))


def number(sample, factor, digits):
    """'76.45 ± 0.35' of the values of some runs; '-' where one has none."""
    if not sample or None in sample:
        return "-"
    mean = f"{factor * statistics.fmean(sample):.{digits}f}"
    if len(sample) == 1 or not digits:
        return mean
    return f"{mean} ± {factor * statistics.stdev(sample):.{digits}f}"


def lines_of(keys, rows):
    """The table's fields, titles first."""
    keys = [key for key in keys if key != table.SEED]
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key, "") for key in keys), []).append(row)
    names, numbers = plans.labels(keys), numbers_of(rows)
    marked = any(row.get(NOT_FINITE[1]) is not None for row in rows)
    titles = [title for title, *_ in numbers] + [NOT_FINITE[0]] * marked
    yield [names[key] for key in keys] + ["runs"] + titles
    for values, group in groups.items():
        finished = [row for row in group if row["status"] == "finished"]
        count = str(len(group)) if len(finished) == len(group) else f"{len(finished)} of {len(group)}"
        fields = [number([row.get(name) for row in finished], factor, digits)
                  for _, name, factor, digits in numbers]
        if marked:
            since = [row[NOT_FINITE[1]] for row in group if row.get(NOT_FINITE[1]) is not None]
            fields.append(f"step {min(since)}" if since else "-")
        yield [*values, count] + fields


def width_of(lines):
    return sum(GAP + max(map(len, column)) for column in zip(*lines))


def abbreviate(lines, column):
    """Puts (1), (2) ... in place of the values of a column; lines that say what they stand for."""
    values = list(dict.fromkeys(line[column] for line in lines[1:]))
    for line in lines[1:]:
        line[column] = f"({values.index(line[column]) + 1})"
    for i, value in enumerate(values, 1):
        yield f"{' ' * GAP}{lines[0][column]} ({i}): {value}"


def shown(keys, rows):
    """The table's lines, of at most WIDTH columns where long values give way to numbers."""
    lines = [[table.run_files.visible(field) for field in line] for line in lines_of(keys, rows)]
    words, legend = lines[0].index("runs"), []
    longest = [max(len(line[i]) for line in lines[1:]) for i in range(words)]
    for column in sorted(range(words), key=lambda i: -longest[i]):
        if width_of(lines) > WIDTH and longest[column] > SHORT:
            legend += abbreviate(lines, column)
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        fields = [field.ljust(width) if i < words else field.rjust(width)
                  for i, (field, width) in enumerate(zip(line, widths))]
        yield "".join(" " * GAP + field for field in fields).rstrip()
    yield from legend
    for counted in sorted({row["counted"] for row in rows if row.get("counted")}):
        yield f"{' ' * GAP}lost: the mean of the tensor that lost most, of {counted}"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    plan = plans.load(sys.argv[1])
    rows = [table.row_of(sys.argv[1], run) for run in plan["runs"]]
    try:
        sys.stdout.reconfigure(errors="replace")  # letters that the terminal's encoding lacks
        print(*shown(plan["keys"], rows), sep="\n", flush=True)
    except (OSError, AttributeError) as error:  # closed before the start it is None
        os._exit(tell(error))  # Python would write what is left once more
    return 0


def tell(error):
    """The exit code of a table that cannot be written, as ada-train's: nobody reads it, or there is no room."""
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    reason = error.strerror if isinstance(error, OSError) else "it is closed"
    print(f"sweep.sh: standard output cannot be written: {reason}", file=sys.stderr, flush=True)
    return 6


if __name__ == "__main__":
    sys.exit(main())
