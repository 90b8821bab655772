"""Columns of steps.csv and evaluation.csv as a picture draws them: without outliers, which are marked
at the edge and named."""
import numpy

from ada_train.report import robust, style

# Panels in their order: what outliers are of, the column of steps.csv, that of evaluation.csv.
PANELS = [("loss", "loss", "loss"), ("accuracy", "accuracy", "top1"), ("learning rate", "lr", ""),
          ("scale", "scale", "")]


def finite(run, column):
    """A column of steps.csv with holes in place of what is not finite, and of outliers."""
    values = run.steps[column].replace([numpy.inf, -numpy.inf], numpy.nan)
    return values.mask(robust.outliers(values))


def judged(run, split, column, beside):
    """The rows of a split's evaluations, and which of them are outliers beside a column of steps.
    """
    rows = run.evaluation[(run.evaluation["split"] == split).to_numpy()]
    return rows, robust.outliers(rows[column], run.steps[beside])


def value_words(column):
    """A value of a column under the pointer and in sentences."""
    return {"accuracy": lambda value: style.digits(100 * value, 4) + " %",
            "scale": style.power}.get(column, lambda value: style.digits(value, 4))


def mark_outliers(ax, number, run, what, column, evaluated):
    """Marks what a panel of PANELS does not draw. Returns it."""
    found = []
    for member in run.each:
        values = member.steps[column]
        logs = numpy.log2(values.where(values > 0)) if column == "scale" else values
        far = robust.outliers(logs, powers=column == "scale")
        parts = [(member.steps[far], column)]
        for split in ("test", "validation") if evaluated else ():
            rows, far = judged(member, split, evaluated, column)
            parts.append((rows[far], evaluated))
        for rows, name in parts:
            if not len(rows):
                continue
            shown = numpy.log2(rows[name]) if column == "scale" else rows[name]
            robust.mark(ax, rows["step"], shown * (100 if column == "accuracy" else 1),
                        style.color(number))
            found += [robust.Outlier(member.label, what, step, value_words(column)(value))
                      for step, value in zip(rows["step"], rows[name])]
    return found
