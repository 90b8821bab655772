"""The page's sections in their order: what each shows, how it is read, and which file it needs."""
import dataclasses
import html

from ada_train.report import (layers, pictures_compared, pictures_layers, pictures_study,
                              pictures_training, pictures_values, style)
from ada_train.report.load import MADE_BY
from ada_train.run_files import number

EVENTS_SHOWN = 12   # of each kind in the tables
CELL = 110          # characters of a configuration's value
MOST_COLUMNS = 6    # of a table of runs or keys


@dataclasses.dataclass
class Section:
    anchor: str
    title: str
    how: str                     # how to read it
    pictures: list = dataclasses.field(default_factory=list)
    tables: list = dataclasses.field(default_factory=list)  # (summary or "", header, rows)
    extra: str = ""              # more HTML


def _number(value, text="", missing="–"):
    if value is None:
        return missing
    return text.format(value) if text else style.digits(value, 4)


def _result_row(run):
    summary = run.summary
    evaluations = run.evaluation
    rows = evaluations[(evaluations["split"] == "test").to_numpy()]
    rows = rows if len(rows) else evaluations
    cells = [run.label, f"{int(run.steps['step'].max()):,}" if len(run.steps) else "0",
             f"{int((run.steps['skipped'].fillna(0) != 0).sum()):,}",
             _number(number(summary, "train", "loss"))]
    accuracy = number(summary, "train", "accuracy")
    cells.append(_number(None if accuracy is None else 100 * accuracy, "{:.2f}"))
    if len(rows):
        last = rows.iloc[-1]
        best = rows.loc[rows["top1"].idxmax()] if rows["top1"].notna().any() else last
        cells += [str(last["split"]), style.digits(last['loss'], 4), f"{100 * last['top1']:.2f}",
                  f"{100 * last['top5']:.2f}",
                  f"{100 * best['top1']:.2f} (step {int(best['step']):,})"]
    else:
        cells += ["–"] * 5
    rate, seconds = number(summary, "images_per_second"), number(summary, "seconds")
    return cells + [_number(rate, "{:,.0f}"), _number(seconds, "{:,.1f}")]


def _format(run):
    """The run's format, with the roles that have another."""
    main = run.fact("format", "precision.format")
    roles = [f"{role.replace('_', ' ')} {run.config[key]}"
             for role in ("activations", "weights", "gradients", "weight_gradients")
             for key in [f"precision.{role}"] if run.config.get(key, main) != main]
    return ", ".join([str(main)] + roles)


def overview(runs, tensor):
    what = [[run.label, run.status, run.fact("model", "model.zoo") or "layers",
             run.fact("dataset", "data.dataset"), _format(run),
             run.fact("policy", "scaling.policy"), run.config.get("optimizer.kind", ""),
             run.config.get("seed", ""), run.folder] for run in runs]
    worst = []
    for run in runs:
        if dead := layers.no_gradient_text(run):
            worst.append(f"<li><b>{html.escape(run.label)}</b>: <b>no gradient</b>: "
                         f"{html.escape(dead)}</li>")
        rows = layers.per_layer(layers.of_tensor(run.underflow, tensor), "underflow_pct_nonzero")
        if rows and rows[0][1] > 0:
            layer, mean, most, step = rows[0]
            worst.append(f"<li><b>{html.escape(run.label)}</b>: <code>{html.escape(layer)}</code> "
                         f"loses most: {style.percent(mean)} of its non-zero {tensor} on average, "
                         f"{style.percent(most)} at step {step:,}</li>")
    notes = [f"<li><b>{html.escape(run.label)}</b>: {html.escape(note)}</li>"
             for run in runs for note in run.notes]
    extra = f"<ul>{''.join(worst)}</ul>" if worst else ""
    if notes:
        extra += f"<p>While reading:</p><ul class=\"notes\">{''.join(notes)}</ul>"
    return Section("runs", "Runs", "What the runs are, and what came out.", tables=[
        ("", ["run", "status", "model", "data", "format", "policy", "optimizer", "seed", "folder"],
         what),
        ("", ["run", "steps", "skipped", "train loss", "train top-1 (%)", "evaluated on", "loss",
              "top-1 (%)", "top-5 (%)", "best top-1 (%)", "images/s", "time (s)"],
         [_result_row(run) for run in runs])], extra=extra)


def _group_table(drawn, tensor):
    """Header and rows: means and deviations over the seeds of each configuration."""
    rows = []
    for run in drawn:
        ends = [row for row in map(pictures_training.last_evaluation, run.each) if row is not None]
        lost = [means[0] for means in (_lost_mean(member, tensor) for member in run.each) if means]
        accuracy = [number(member.summary, "train", "accuracy") for member in run.each]
        rows.append([
            run.label, str(len(run.each)),
            " ".join(member.config.get("seed", "–") for member in run.each),
            style.mean_and_spread([number(m.summary, "train", "loss") for m in run.each], 4),
            style.mean_and_spread([None if a is None else 100 * a for a in accuracy], 2),
            style.mean_and_spread([row["loss"] for row in ends], 4),
            style.mean_and_spread([100 * row["top1"] for row in ends], 2),
            style.mean_and_spread(lost, 3)])
    return ["configuration", "runs", "seeds", "train loss", "train top-1 (%)", "loss", "top-1 (%)",
            f"{tensor} lost (%)"], rows


def _lost_mean(run, tensor):
    """[the mean share that the layers lose]; empty where nothing is known."""
    rows = layers.per_layer(layers.of_tensor(run.underflow, tensor), "underflow_pct_nonzero")
    return [sum(row[1] for row in rows) / len(rows)] if rows else []


def _differences(runs, keys):
    """The table of keys that differ: a column a run, or, of many runs, a row a run; with many keys
    too, a row for each value with the runs that have it."""
    def value(run, key):
        return style.shorten(run.config.get(key, "–"), CELL)
    if len(runs) <= MOST_COLUMNS:
        return ["key"] + [run.label for run in runs], [
            [key] + [value(run, key) for run in runs] for key in keys]
    if len(keys) <= MOST_COLUMNS:
        return ["run"] + keys, [[run.label] + [value(run, key) for key in keys] for run in runs]
    rows = []
    for key in keys:
        who = {}
        for run in runs:
            who.setdefault(value(run, key), []).append(run.label)
        rows += [[key, text, "; ".join(labels)] for text, labels in who.items()]
    return ["key", "value", "runs"], rows


def configurations(runs):
    keys = list(dict.fromkeys(k for run in runs for k in run.config))
    differ = [key for key in keys if key not in ("name", "output")
              and len({run.config.get(key) for run in runs}) > 1]
    header, rows = _differences(runs, differ)
    how = "Keys whose values differ; –: the run's policy, model or data set has no such key."
    unread = [run.label for run in runs if not run.config]
    if unread:
        how = ("Not compared: config.yaml is missing or cannot be read in " + ", ".join(unread)
               + ". " + how)
    if len(runs) == 1:
        how = "One run: there is nothing to compare with. Give several folders to see differences."
    elif not differ and not unread:
        how = "The configurations are equal (apart from name and output)."
    tables = [("", header, rows)] if differ else []
    texts = "".join(f"<details><summary>config.yaml of {html.escape(run.label)}</summary>"
                    f"<pre>{html.escape(run.config_text)}</pre></details>" for run in runs
                    if run.config_text)
    return Section("config", "Configuration", how, tables=tables, extra=texts)


def _events_tables(runs):
    tables = []
    for run in runs:
        rows = []
        for kind, count in style.most_first(run.events["event"]):
            some = run.events[(run.events["event"] == kind).to_numpy()].head(EVENTS_SHOWN)
            rows += [[f"{r['event']}", f"{int(r['step']):,}", r["layer"], r["tensor"], r["value"],
                      r["message"]] for _, r in some.iterrows()]
            if count > EVENTS_SHOWN:
                rows.append([kind, "…", "", "", "", f"{count - EVENTS_SHOWN:,} more"])
        if rows:
            tables.append((f"{run.label}: {style.counted(len(run.events), 'event')}",
                           ["event", "step", "layer", "tensor", "value", "message"], rows))
    return tables


def _limit_words(runs):
    seen = {w for run in runs for w in run.scales["limit"].unique()}
    known = pictures_layers.LIMITS.items()
    rows = [[word, meaning] for word, (_, meaning) in known if word in seen]
    return [("", ["limit", "what decided"], rows)] if rows else []


def _absent(runs, file):
    """What a run lacks, and how to get it."""
    without = [run.label for run in runs if not len(run.tables[file])]
    if not without or file == "events":
        return ""
    who = "" if len(without) == len(runs) else f" for {html.escape(', '.join(without))}"
    return f"<p class=\"absent\">No rows of {file}.csv{who}: {MADE_BY[file]}.</p>"


def _with(section, runs, file, draw, *arguments):
    """Fills a section from the runs that have rows in its file. All keep their panel: runs are the
    same from picture to picture."""
    if any(len(run.tables[file]) for run in runs):
        section.pictures = draw(runs, *arguments)
        if not section.pictures:
            section.extra += (f"<p class=\"absent\">{file}.csv has no rows of {arguments[0]}: "
                              "log.statistics chooses the tensors.</p>")
    section.extra += _absent(runs, file)
    return section


def _scales(*given):
    return pictures_layers.scales(*given) + pictures_compared.scale_spread(*given)


def _underflow(*given):
    first, *rest = pictures_layers.underflow(*given) or [None]
    return [first] + pictures_compared.underflow_difference(*given) + rest if first else []


# Anchor, title, how it is read, file, what draws it and what of (tensor, order, last) it takes.
PARTS = [
    ("training", "Training",
     "Lines are running means over a fortieth of the run, faint lines the single steps, points the "
     "evaluations (● test, ■ validation). Ticks below the scale: skipped steps; dots on it: scale "
     "changes.", "steps", pictures_training.training, ("last",)),
    ("scale", "Scale by layer",
     "The factor that each layer's {tensor} carries, in powers of two; hatched where none was "
     "logged. The first layers compute no dx. Below it the same as points: a layer's mean over the "
     "run, thick its standard deviation, thin its smallest and largest scale.", "underflow", _scales,
     ("tensor", "order", "last")),
    ("underflow", "Underflow by layer",
     "How much of each layer's {tensor} was not zero in fp32 and is zero after rounding. Pale is "
     "good; black: every value was zero, no gradient; hatched: no value was logged. With several "
     "runs the second picture shows how much more, or less, each loses than the first.", "underflow", _underflow,
     ("tensor", "order", "last")),
    ("limits", "Which limit decided", "Why each layer's factor alpha is what it is.", "scales",
     pictures_layers.limits, ("order", "last")),
    ("histograms", "Histograms by exponent",
     "Where the magnitudes of {tensor} lie at the last logged step, and the range of the format at "
     "the scale carried: what lies left of the first line vanishes, between the first two it loses "
     "bits, right of the last it overflows. A tail more than 40 powers of two below the line is cut "
     "off.", "histograms", pictures_values.histograms,
     ("tensor", "order", "last")),
    ("probes", "Probe errors",
     "Gradients of probe steps beside the same gradients in fp32, from the same weights and batch. "
     "10 dB more: a tenth of the error's energy; at 0 dB the error is as large as the gradient.",
     "probes", pictures_study.probes, ("tensor", "order", "last")),
    ("what_if", "What if",
     "Mean underflow under other formats, scales and policies, judged from the histograms of the "
     "same steps; first column: the run itself.", "what_if", pictures_study.what_if,
     ("tensor", "order")),
    ("events", "Events",
     f"What happened, from events.csv; the first {EVENTS_SHOWN} of each kind are listed.", "events",
     pictures_training.events, ("last",)),
    ("timing", "Time", "Seconds of all logged intervals by phase, and the speed of training.",
     "timing", pictures_training.timing, ("last",)),
]


def _part(part, runs, given):
    """One section. All runs keep their panel, also those without rows: the place of a run is the
    same from picture to picture."""
    anchor, title, how, file, draw, wanted = part
    section = Section(anchor, title, how.format(**given))
    if any(len(run.tables[file]) for run in runs):
        section.pictures = draw(runs, *[given[name] for name in wanted])
        if not section.pictures and "tensor" in wanted:
            section.extra = (f"<p class=\"absent\">{file}.csv has no rows of {given['tensor']}: "
                             "log.statistics chooses the tensors.</p>")
    section.extra += _absent(runs, file)
    return section


def all_sections(runs, drawn, tensor):
    """Every section of the page. Its pictures are of `drawn`: the runs, those that differ in their
    seed alone as one."""
    order = layers.common_order(runs)
    given = {"tensor": tensor, "order": order, "last": layers.last_step(runs)}
    parts = {part[0]: _part(part, drawn, given) for part in PARTS}
    parts["limits"].tables = _limit_words(runs)
    parts["events"].tables = _events_tables(runs)
    if not parts["events"].tables:
        parts["events"].extra = "<p class=\"absent\">Nothing happened: events.csv has no rows.</p>"
    if parts["probes"].pictures:
        header, rows = pictures_study.probe_table(runs, order)
        parts["probes"].tables = [("Last probe in numbers", header, rows)]
    first = overview(runs, tensor)
    if any(run.members for run in drawn):
        first.tables.append(("", *_group_table(drawn, tensor)))
        first.how += (" Runs that differ in their seed alone are drawn as one, their mean; the last "
                      "table has mean ± standard deviation. --seeds each draws every run.")
    return [first, configurations(runs)] + list(parts.values())
