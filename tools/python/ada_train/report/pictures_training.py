"""Pictures of the whole run: loss, accuracy, learning rate, the scale, skipped steps, events, time.
All runs share the axes; a run has one colour throughout the page."""
import math

import numpy
import pandas
from matplotlib.ticker import MaxNLocator

from ada_train.report import layers, pointer, robust, series, style, tasks
from ada_train.report.style import Picture

POINTS = 1500  # of a line; longer ones are thinned
BEHIND, BEHIND_POINTS = 300, 200  # lines of runs that are not drawn by themselves, and their points
DIVERGED = 20  # times the median: a loss that would hide all others
PHASES = [("data", "waiting for data"), ("forward", "forward"), ("backward", "backward"),
          ("update", "weight update"), ("log", "logs")]
PHASE_COLORS = ["#E69F00", "#56B4E9", "#0072B2", "#009E73", "#CC79A7", "#bbbbbb"]


def _smooth(values):
    """A running mean over a fortieth of the run; holes stay holes."""
    width = max(1, len(values) // 40)
    return values.rolling(width, min_periods=1).mean() if width > 1 else values


def _thin(x, y):
    every = max(1, len(x) // POINTS)
    return x[::every], y[::every]


def _width(number):
    """Runs that lie on each other stay visible: later ones are thinner."""
    return max(1.0, 2.4 - 0.5 * number)


def _band(ax, run, number, column, factor):
    """The mean of several runs, step by step, with their standard deviation."""
    each = pandas.concat([_smooth(series.finite(member, column)).set_axis(member.steps["step"])
                          .groupby(level=0).last() for member in run.members], axis=1) * factor
    mean, spread = each.mean(axis=1), each.std(axis=1).fillna(0)
    x, (mean, low, high) = each.index, (mean, mean - spread, mean + spread)
    if ax.get_yscale() == "log":
        low = low.where(low > 0, mean)
    low, high = low.clip(lower=each.min(axis=1)), high.clip(upper=each.max(axis=1))
    color, every = style.color(number), max(1, len(x) // POINTS)
    ax.fill_between(x[::every], low[::every], high[::every], color=color, alpha=0.18, lw=0)
    ax.plot(*_thin(x, mean), color=color, lw=1.6, ls=style.line(number), label=run.label)


def _lines(ax, run, number, column, factor=1.0):
    if run.members:
        _band(ax, run, number, column, factor)
        return
    table = run.steps
    values = series.finite(run, column) * factor
    color = style.color(number)
    if len(values) >= 80:
        ax.plot(*_thin(table["step"], values), color=color, lw=0.6, alpha=0.25)[0].faint = True
    line, = ax.plot(*_thin(table["step"], _smooth(values)), color=color, lw=_width(number),
                    ls=style.line(number), label=run.label)
    line.raw = _thin(table["step"], values)


def _evaluations(ax, run, number, column, beside, factor=1.0):
    for split, marker in (("test", "o"), ("validation", "s")):
        rows, far = series.judged(run, split, column, beside)
        rows = rows[~far]
        if len(rows):  # an empty line outside the clip box would upset the layout
            ax.plot(rows["step"], rows[column] * factor, ls="none", marker=marker, ms=5,
                    color=style.color(number), mec="white", mew=0.7, zorder=3, clip_on=False)


def _is_set(column):
    return column.fillna(0).to_numpy() != 0


def _skip_marks(ax, runs):
    """A row of ticks under the scale for each run that skipped steps."""
    low, high = ax.get_ylim()
    row = 0
    for number, run in ((n, member) for n, run in enumerate(runs) for member in run.each):
        skipped = run.steps["step"][_is_set(run.steps["skipped"])]
        if not len(skipped):
            continue
        row += 1
        height = numpy.full(len(skipped), low - (high - low) * 0.05 * row)
        ax.plot(*_thin(skipped, height), ls="none", marker="|", ms=7, color=style.color(number))
    if row:
        ax.set_ylim(low - (high - low) * 0.05 * (row + 1), high)


def _scale_lines(ax, runs):
    for number, run in ((n, member) for n, run in enumerate(runs) for member in run.each):
        scale = run.steps["scale"].where(run.steps["scale"] > 0)
        if not scale.notna().any():
            continue
        logs = numpy.log2(scale)
        far = robust.outliers(logs, powers=True)
        logs = logs.where(~far, logs.mask(far).ffill()).to_numpy()
        steps = run.steps["step"].to_numpy()
        # Changes only, drawn as the stairs that they are.
        changed = numpy.append(True, numpy.diff(logs) != 0)
        changed[-1] = True
        ax.step(steps[changed], logs[changed], where="post", color=style.color(number),
                lw=_width(number), ls=style.line(number))
        moves = run.events[(run.events["event"] == "scale_change").to_numpy()]
        at = numpy.searchsorted(steps, moves["step"].to_numpy())
        at = at[at < len(steps)]
        if len(at) <= 200:
            ax.plot(steps[at], logs[at], ls="none", marker=".", ms=5, color=style.color(number))
    low, high = ax.get_ylim()
    if high - low < 2:
        ax.set_ylim((low + high) / 2 - 1, (low + high) / 2 + 1)
    style.powers_axis(ax.yaxis)
    _skip_marks(ax, runs)


def _loss_axis(ax, runs):
    """A logarithmic axis where some run's loss left all others far behind."""
    loss = numpy.concatenate([_smooth(series.finite(member, "loss")).to_numpy() for run in runs
                              for member in run.each])
    loss = loss[numpy.isfinite(loss) & (loss > 0)]
    if len(loss) and loss.max() > DIVERGED * numpy.median(loss):
        ax.set_yscale("log")
        return True
    return False


def _rate_axis(ax, runs):
    """A logarithmic axis where the learning rates of the runs lie far apart; else from 0 on."""
    ends = [series.finite(run.each[0], "lr").max() for run in runs]
    ends = [end for end in ends if end > 0]
    if ends and max(ends) > DIVERGED * min(ends):
        ax.set_yscale("log")
        ax.set_ylim(bottom=max(ax.get_ylim()[0], min(ends) / 1000))
        return True
    ax.set_ylim(bottom=0)
    return False


def _metric(run):
    """(name, percent, split, step) of what the last evaluation judges by; None."""
    if found := tasks.last_value(run):
        return found[0], 100 * found[1], *found[2:]
    row = tasks.last_evaluation(run)
    return None if row is None else ("top-1", 100 * row["top1"], row["split"], int(row["step"]))


def _tokens_words(run, row):
    """What a language model's evaluation says, and which one had the smallest loss."""
    loss, best = row["loss"], tasks.best_evaluation(run)
    text = f"loss {style.digits(loss, 4)}, perplexity {style.digits(tasks.perplexity(loss), 4)}"
    if tasks.tokens_are_bytes(run):
        text += f", {style.digits(tasks.bits(loss), 4)} bits per byte"
    text += (f", next-token accuracy {100 * row['top1']:.2f} % ({row['split']}, "
             f"step {int(row['step']):,})")
    if best is not None and best["step"] != row["step"]:
        text += f", best loss {style.digits(best['loss'], 4)} at step {int(best['step']):,}"
    return text


def _tokens_group(run):
    """The same of several seeds, as means."""
    ends = [row for row in map(tasks.last_evaluation, run.members) if row is not None]
    losses = [row["loss"] for row in ends]
    text = (f"loss {style.mean_and_spread(losses, 4)}, perplexity "
            f"{style.mean_and_spread(map(tasks.perplexity, losses), 2)}")
    if tasks.tokens_are_bytes(run):
        text += f", {style.mean_and_spread(map(tasks.bits, losses), 4)} bits per byte"
    right = style.mean_and_spread([100 * row["top1"] for row in ends], 2)
    return f"{text}, next-token accuracy {right}"


def _group_sentence(run):
    ends = [end for end in map(_metric, run.members) if end is not None]
    name = ends[0][0] if ends else "top-1"
    result = (_tokens_group(run) if tasks.is_language(run) else
              f"{name} " + style.mean_and_spread([end[1] for end in ends], 2))
    text = f"{run.label}: {result}"
    skipped = sum(int(_is_set(member.steps["skipped"]).sum()) for member in run.members)
    return f"{text} %, {style.counted(skipped, 'step')} skipped in all"


def _final_sentence(runs):
    parts = []
    for run in runs:
        if run.members:
            parts.append(_group_sentence(run))
            continue
        text = f"{run.label}: "
        row = tasks.last_evaluation(run)
        if row is not None and tasks.is_language(run):
            text += _tokens_words(run, row)
        elif end := _metric(run):
            text += f"{end[0]} {end[1]:.2f} % ({end[2]}, step {end[3]:,})"
        else:
            text += "not evaluated yet"
        skipped = int(_is_set(run.steps["skipped"]).sum())
        parts.append(text + f", {style.counted(skipped, 'step')} skipped")
    return style.sentences(parts)


def _behind(axes, rest):
    """The runs that have no color of their own, as pale lines behind the others."""
    members = [member for run in rest for member in run.each]
    for run in members[::-(-len(members) // BEHIND) or 1]:
        every = max(1, len(run.steps) // BEHIND_POINTS)
        scale = numpy.log2(run.steps["scale"].where(run.steps["scale"] > 0))
        for ax, values in ((axes[0][0], _smooth(series.finite(run, "loss"))),
                           (axes[0][1], 100 * _smooth(series.finite(run, "accuracy"))),
                           (axes[1][0], series.finite(run, "lr")),
                           (axes[1][1], scale.mask(robust.outliers(scale, powers=True)))):
            ax.plot(run.steps["step"][::every], values[::every], color="#bbbbbb", lw=0.5, alpha=0.6,
                    zorder=0.8)


def _loss_unit(runs):
    if tasks.languages(runs)[1]:
        return "cross-entropy (nats a token)"
    return "loss (nats)" if tasks.others(runs) else "cross-entropy (nats)"


def _accuracy_unit(runs):
    some, every = tasks.languages(runs)
    if every:
        return "next token right (% of tokens)"
    return "right (% of what the loss is of)" if some or tasks.others(runs) else "top-1 (% of images)"


def _tokens_axis(ax, runs):
    """The loss once more, at the right, where all runs are language models: in bits per byte, or,
    where tokens are no bytes, as perplexity."""
    if not tasks.languages(runs)[1]:
        return
    if all(map(tasks.tokens_are_bytes, runs)):
        ax.secondary_yaxis("right", functions=(tasks.bits, lambda value: value * math.log(2))
                           ).set_ylabel("bits per byte")
        return
    right = ax.secondary_yaxis("right")
    right.set_ylabel("perplexity")
    right.yaxis.set_major_formatter(lambda loss, _: style.digits(tasks.perplexity(loss), 3))


def training(runs, last, rest=()):
    """`rest`: runs that are drawn behind the others."""
    figure, axes = style.subplots(2, 2, (style.WIDTH, 6.3))
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    logarithmic = _loss_axis(axes[0][0], [*runs, *rest])
    _behind(axes, rest)
    for number, run in enumerate(runs):
        _lines(axes[0][0], run, number, "loss")
        _evaluations(axes[0][0], run, number, "loss", "loss")
        _lines(axes[0][1], run, number, "accuracy", 100)
        _evaluations(axes[0][1], run, number, "top1", "accuracy", 100)
        first = run.each[0]
        axes[1][0].plot(*_thin(first.steps["step"], series.finite(first, "lr")),
                        color=style.color(number),
                        ls=style.line(number), lw=_width(number))
    _scale_lines(axes[1][1], runs)
    titles = [("Loss", _loss_unit(runs)), ("Accuracy", _accuracy_unit(runs)),
              (f"Learning rate{' (logarithmic)' if _rate_axis(axes[1][0], runs) else ''}",
               "learning rate (per update)"),
              ("Scale of the logit gradient", "scale (factor)")]
    outliers = []
    for ax, (title, unit), panel in zip(axes.flat, titles, series.PANELS):
        ax.set_title(title)
        ax.set_ylabel(unit)
        style.step_axis(ax, last)
        for number, run in enumerate(runs):
            outliers += series.mark_outliers(ax, number, run, *panel)
        pointer.lines(ax, [(run.label, run.steps["step"], run.steps[panel[1]]) for run in runs],
                      series.value_words(panel[1]))
    if logarithmic:
        axes[0][0].set_title("Loss (logarithmic)")
    _tokens_axis(axes[0][0], runs)
    style.legend_above(figure, *axes[0][0].get_legend_handles_labels())
    sentence = _final_sentence(runs)
    if rest:
        sentence += f"\nPale, behind them: the other {len(rest)}."
    sentence += robust.sentence(outliers)
    return [Picture("training", figure, sentence, "loss, accuracy, learning rate and "
                    "scale over steps")]


def events(runs, last):
    kinds = list(dict.fromkeys(k for run in runs for k in run.events["event"]))
    kinds = kinds[:style.MOST_WORDS]
    if not kinds:
        return []
    figure, ax = style.subplots(1, 1, (style.WIDTH, 1.1 + 0.34 * len(kinds)))
    shift = 0.6 / max(1, len(runs))
    for number, run in enumerate(runs):
        at = layers.codes(run.events["event"], kinds).astype(float)
        at[at < 0] = numpy.nan
        ax.plot(run.events["step"], at + shift * (number - (len(runs) - 1) / 2), ls="none",
                marker="|", ms=max(3.0, min(9.0, 60 / len(runs))), color=style.color(number),
                label=run.label)
    ax.set_yticks(range(len(kinds)), [style.label(kind, 30) for kind in kinds])
    ax.set_ylim(len(kinds) - 0.4, -0.6)
    ax.set_ylabel("event")
    ax.set_title("Events")
    style.step_axis(ax, last)
    style.legend_above(figure, *ax.get_legend_handles_labels())
    _name_events(ax, runs, kinds, shift)
    parts = []
    for run in runs:
        counts = style.most_first(run.events["event"])[:style.MOST_WORDS]
        words = ", ".join(f"{n} × {k}" for k, n in counts) or "none"
        parts.append(f"{run.label}: {words}")
    return [Picture("events", figure, style.sentences(parts), "events over steps")]


def _name_events(ax, runs, kinds, shift):
    """The ticks of each kind and run under the pointer, as their count and steps."""
    for i, kind in enumerate(kinds):
        for number, run in enumerate(runs):
            steps = run.events["step"][(run.events["event"] == kind).to_numpy()]
            if len(steps):
                at = i + shift * (number - (len(runs) - 1) / 2)
                pointer.area(ax, ax.get_xlim(), (at - shift / 2, at + shift / 2), (
                    f"{kind}, {run.label}: {len(steps):,}, from step {int(steps.min()):,} to "
                    f"{int(steps.max()):,}"))


def _phase_seconds(run):
    count = len(run.each)  # of several runs the mean
    sums = [float(run.timing[name].sum()) / count for name, _ in PHASES]
    return sums + [max(0.0, float(run.timing["seconds"].sum()) / count - sum(sums))]


def _time_sentence(runs):
    parts = []
    for run in runs:
        seconds = _phase_seconds(run)
        total = sum(seconds)
        if total > 0:
            words = [w for _, w in PHASES] + ["evaluation, checkpoints and the rest"]
            most = max(range(len(seconds)), key=lambda i: seconds[i])
            parts.append(f"{run.label}: {style.digits(total, 3)} s, of which {words[most]} takes "
                         f"{100 * seconds[most] / total:.0f} % and logs "
                         f"{style.percent(100 * seconds[4] / total)}")
    return style.sentences(parts)


def _cut_bars(ax, runs, totals):
    """The axis of times as wide as the runs that are no outliers; names those that are."""
    _, high = robust.ends(totals)
    ax.set_xlim(0, 1.05 * high if high > 0 else None)
    longer = [f"{run.label}: {style.digits(total, 4)} s" for run, total in zip(runs, totals)
              if total > high > 0]
    return f"\nBars that reach the edge go on beyond it: {'; '.join(longer)}." if longer else ""


def _speed_of(runs):
    """The column of timing.csv that says how fast all of these runs are, and its unit."""
    some, every = tasks.languages(runs)
    if every:
        return "tokens", "tokens/s"
    return "images_per_second", "images or sequences/s" if some else "images/s"


def timing(runs, last):
    labels = [style.wrapped(run.label, 30) for run in runs]
    lines = max(text.count("\n") + 1 for text in labels)
    height = max(2.6, 1.5 + max(0.35, 0.05 + 0.14 * lines) * len(runs))
    figure, (bars, speed) = style.subplots(1, 2, (style.WIDTH, height))
    figure.get_layout_engine().set(w_pad=0.08)
    left = numpy.zeros(len(runs))
    names = [w for _, w in PHASES] + ["evaluation, checkpoints, rest"]
    table = numpy.array([_phase_seconds(run) for run in runs])
    for i, name in enumerate(names):
        bars.barh(range(len(runs)), table[:, i], left=left, color=PHASE_COLORS[i], label=name,
                  height=0.62)
        left += table[:, i]
        for row, seconds in enumerate(table[:, i]):
            pointer.area(bars, (left[row] - seconds, left[row]), (row - 0.31, row + 0.31),
                         f"{runs[row].label}, {name}: {style.digits(seconds, 3)} s")
    bars.set_yticks(range(len(runs)), labels)
    longer = _cut_bars(bars, runs, left)
    bars.set_ylim(len(runs) - 0.5, -0.5)
    bars.grid(axis="y", visible=False)
    bars.set_xlabel("time (s, of all logged intervals)")
    bars.set_title("Where the time went")
    column, unit = _speed_of(runs)
    means = [run.timing.groupby("step")[column].mean() for run in runs]
    far = [robust.outliers(mean) for mean in means]
    for number, mean in enumerate(means):
        mean = mean.mask(far[number])
        line, = speed.plot(*_thin(mean.index, mean), color=style.color(number),
                           ls=style.line(number), lw=1.3)
        line.raw = line.get_data()
    speed.set_ylim(bottom=0)
    speed.yaxis.set_major_locator(MaxNLocator(5))
    speed.set_ylabel(f"training speed\n({unit})")
    speed.set_title("Speed")
    style.step_axis(speed, last)
    outliers = []
    for number, (run, mean) in enumerate(zip(runs, means)):
        some = mean[far[number]]
        robust.mark(speed, some.index, some, style.color(number))
        outliers += [robust.Outlier(run.label, unit, step, style.digits(value, 4))
                     for step, value in some.items()]
    pointer.lines(speed, [(run.label, mean.index, mean) for run, mean in zip(runs, means)],
                  lambda value: f"{style.digits(value, 4)} {unit}")
    style.legend_above(figure, *bars.get_legend_handles_labels())
    sentence = _time_sentence(runs) + longer + robust.sentence(outliers)
    return [Picture("timing", figure, sentence, "time by phase, speed of training")]
