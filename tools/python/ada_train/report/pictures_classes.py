"""Pictures of segmentation and detection: the metric of all classes over steps, that of each class,
and which classes are taken for which."""
import numpy
from matplotlib import colormaps, colors

from ada_train.report import layers, pointer, style, tasks
from ada_train.report.style import Picture

MOST_CLASSES = 60  # rows of a picture
SHARES = colors.PowerNorm(0.5, 0, 100)  # of a row's pixels: small ones are seen too


def _metric_of(runs):
    """(column, name of the mean, name of a class's value) of the first run that has a task."""
    for run in runs:
        if found := tasks.METRICS.get(tasks.task(run.each[0])):
            return found[:3]
    return None


def _mean_sentence(runs, name):
    parts = []
    for run in runs:
        ends = [end for end in map(tasks.last_value, run.each) if end is not None]
        if not ends:
            parts.append(f"{run.label}: not evaluated yet")
            continue
        if ends[0][0] != name:
            parts.append(f"{run.label}: another task ({ends[0][0]} {ends[0][1]:.4f})")
            continue
        text = style.mean_and_spread([end[1] for end in ends], 4)
        best = tasks.best_value(run.each[0])
        more = "" if len(run.each) > 1 or best is None else (
            f", the best {best[0]:.4f} at step {best[1]:,}")
        parts.append(f"{run.label}: {name} {text} ({ends[0][2]}, step {ends[0][3]:,}){more}")
    return style.sentences(parts)


def _metric(runs, last, column, name):
    figure, ax = style.subplots(1, 1, (style.WIDTH, 3.4))
    for number, run in enumerate(runs):
        for i, member in enumerate(run.each):
            rows = tasks.of_all(member)
            if len(rows):
                ax.plot(rows["step"], rows[column], color=style.color(number), marker="o", ms=4,
                        ls=style.line(number), lw=1.5, clip_on=False, zorder=3,
                        label=run.label if i == 0 else None)
    pointer.lines(ax, [(run.label, rows["step"], rows[column]) for run in runs
                       for rows in map(tasks.of_all, run.each)])
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"{name} (share)")
    ax.set_title(name)
    style.step_axis(ax, last)
    handles = ax.get_legend_handles_labels()
    if handles[0]:
        style.legend_above(figure, *handles)
    return Picture("metric", figure, _mean_sentence(runs, name), f"{name} over steps")


def class_names(runs):
    """The classes of all runs in the order of their files, and the row of all of them last."""
    names = []
    for run in runs:
        names = layers.merge(names, list(dict.fromkeys(run.classes["class"])))
    own = [name for name in names if name != tasks.ALL][:MOST_CLASSES]
    return own + [tasks.ALL]


def _since_the_one_before(data, table):
    """A cell reaches from the evaluation before to its own."""
    logged = numpy.unique(table["step"].to_numpy())
    if len(logged):
        ends = list(logged[data.per_column - 1::data.per_column])
        if len(ends) < data.values.shape[1]:
            ends.append(logged[-1])
        data.edges = numpy.array([0.0] + ends)
    return data


def _class_sentence(runs, names, grids, what):
    parts = []
    for run, data in zip(runs, grids):
        ends = data.values[:-1, -1]  # without the row of all
        if not numpy.isfinite(ends).any():
            continue
        low, high = int(numpy.nanargmin(ends)), int(numpy.nanargmax(ends))
        parts.append(f"{run.label}: {what} at the end from {style.digits(ends[low], 3)} % "
                     f"({names[low]}) to {style.digits(ends[high], 3)} % ({names[high]})")
    return style.sentences(parts) if parts else "Nothing to judge yet."


def _by_class(runs, last, column, what):
    names = class_names(runs)
    tables = [tasks.judged(run) for run in runs]
    grids = [_since_the_one_before(
        layers.grid(t, layers.codes(t["class"], names), names, 100 * t[column]), t) for t in tables]
    figure, axes = style.panels(len(runs), style.layers_height(len(names)))
    norm = colors.Normalize(0, 100)
    for number, (run, ax, data) in enumerate(zip(runs, axes, grids)):
        mesh = style.heat(ax, data.edges, data.values, colormaps["viridis"], norm)
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        if number % style.PER_ROW == 0:
            ax.set_ylabel("class")
        style.step_axis(ax, last)
        style.panel_title(ax, run.label, len(runs))
        pointer.cells(ax, data.edges, names, data.values, style.percent,
                      pointer.until(data.edges))
    style.color_bar(figure, mesh, axes, f"{what} (%)")
    sentence = _class_sentence(runs, names, grids, what) + layers.thinned(grids)
    return Picture("classes", figure, sentence, f"{what} by class and step")


def classes(runs, last):
    found = _metric_of(runs)
    if found is None:
        return []
    column, name, what = found
    return [_metric(runs, last, column, name), _by_class(runs, last, column, what)]


def _last_by_class(run):
    """The rows of the last evaluation, by class."""
    rows = tasks.judged(run)
    return (rows[(rows["step"] == rows["step"].max()).to_numpy()].drop_duplicates("class")
            .set_index("class"))


def class_table(runs):
    """Header and rows: each class at the last evaluation of each run."""
    found = _metric_of(runs)
    column, _, what = found
    second, second_name = tasks.METRICS[tasks.task(runs[0].each[0])][3] if len(runs) == 1 else (
        None, None)
    header = ["class"] + ([what + " (%)", second_name + " (%)"] if second else
                          [f"{run.label}: {what} (%)" for run in runs])
    def cell(run, name, of):
        values = [frame[of].get(name, numpy.nan) for frame in map(_last_by_class, run.each)]
        values = [100 * value for value in values if numpy.isfinite(value)]
        return style.mean_and_spread(values, 2) if values else "–"
    rows = []
    for name in class_names(runs):
        rows.append([name] + ([cell(runs[0], name, column), cell(runs[0], name, second)] if second
                              else [cell(run, name, column) for run in runs]))
    return header, rows


def _confusion_matrix(run, names):
    """Shares of each class's pixels by what they were taken for, in percent."""
    table = run.confusion[(run.confusion["split"] == tasks.split_of(run)).to_numpy()]
    table = table[(table["step"] == table["step"].max()).to_numpy()]
    matrix = numpy.zeros((len(names), len(names)))
    truth, taken = layers.codes(table["class"], names), layers.codes(table["prediction"], names)
    known = (truth >= 0) & (taken >= 0)
    numpy.add.at(matrix, (truth[known], taken[known]), table["count"].fillna(0).to_numpy()[known])
    sums = matrix.sum(axis=1, keepdims=True)
    return numpy.where(sums > 0, 100 * matrix / numpy.where(sums > 0, sums, 1), numpy.nan)


def _confused(run, names, matrix):
    """The pair of classes that is mistaken most."""
    if not numpy.isfinite(matrix).any():
        return f"{run.label}: no pixels were counted"
    wrong = matrix.copy()
    numpy.fill_diagonal(wrong, numpy.nan)
    if not numpy.nan_to_num(wrong).any():
        return f"{run.label}: nothing is mistaken"
    row, column = numpy.unravel_index(numpy.nanargmax(wrong), wrong.shape)
    return (f"{run.label}: {names[row]} is taken for {names[column]} most, in "
            f"{style.percent(wrong[row, column])} of its pixels")


def confusion(runs):
    names = []
    for run in runs:
        names = layers.merge(names, list(dict.fromkeys(run.confusion["class"])))
    names = names[:MOST_CLASSES]
    if not names:
        return []
    matrices = [_confusion_matrix(run, names) for run in runs]
    figure, axes = style.panels(len(runs), 1.4 + min(9.0, max(1.8, 0.24 * len(names))))
    edges = numpy.arange(len(names) + 1) - 0.5
    for number, (run, ax, matrix) in enumerate(zip(runs, axes, matrices)):
        mesh = style.heat(ax, edges, matrix, colormaps["magma_r"], SHARES)
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        if number % style.PER_ROW == 0:
            ax.set_ylabel("class of the pixels")
        ax.set_xticks(range(len(names)), [style.label(name, 20) for name in names], rotation=60,
                      ha="right", fontsize=8)
        ax.set_xlabel("taken for")
        pointer.cells(ax, edges, names, matrix, style.percent, pointer.named(names))
        style.panel_title(ax, run.label, len(runs))
    style.color_bar(figure, mesh, axes, "share of its pixels (%)",
                    ticks=[0, 1, 5, 10, 25, 50, 75, 100])
    sentence = style.sentences([_confused(run, names, m) for run, m in zip(runs, matrices)])
    return [Picture("confusion", figure, sentence, "which classes are taken for which")]
