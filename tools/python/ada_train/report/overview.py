"""The page's first sections: the runs with their results, as tables, and how their configurations
differ."""
import html

from ada_train.report import layers, style, tasks
from ada_train.report.names import RunName, escaped
from ada_train.report.page import LONG, Section
from ada_train.run_files import number, text

CELL = 110          # characters of a configuration's value
MOST_COLUMNS = 6    # of a table of runs or keys
TOP5 = "top-5 (%)"  # left out where no run has more than five classes
PERPLEXITY, BITS, BEST_LOSS, TOKENS = "perplexity", "bits per byte", "best loss", "tokens/s"


def _number(value, text="", missing="–"):
    if value is None:
        return missing
    return text.format(value) if text else style.digits(value, 4)


def _top5_tells(run):
    """Whether some class may be missing among the five likeliest."""
    classes = run.config.get("model.classes", "")
    return not (classes.isdecimal() and int(classes) <= 5)


def _result_row(run):
    summary, last, language = run.summary, tasks.last_evaluation(run), tasks.is_language(run)
    cells = [RunName(run.label), f"{int(run.steps['step'].max()):,}" if len(run.steps) else "0",
             f"{int((run.steps['skipped'].fillna(0) != 0).sum()):,}",
             _number(number(summary, "train", "loss"))]
    accuracy = number(summary, "train", "accuracy")
    cells.append(_number(None if accuracy is None else 100 * accuracy, "{:.2f}"))
    if last is not None and tasks.last_value(run):
        name, value, split, _ = tasks.last_value(run)
        best = tasks.best_value(run)
        cells += [split, style.digits(last["loss"], 4), "–", "–", f"{100 * value:.2f} ({name})", "–",
                  "–" if best is None else f"{100 * best[0]:.2f} (step {best[1]:,})", "–"]
    elif last is not None:
        best = tasks.best_evaluation(run)
        best = last if best is None else best
        step = f"(step {int(best['step']):,})"
        cells += [str(last["split"]), style.digits(last["loss"], 4), *_of_tokens(run, last["loss"]),
                  f"{100 * last['top1']:.2f}",
                  f"{100 * last['top5']:.2f}" if _top5_tells(run) else "–",
                  "–" if language else f"{100 * best['top1']:.2f} {step}",
                  f"{style.digits(best['loss'], 4)} {step}" if language else "–"]
    else:
        cells += ["–"] * 8
    rate, seconds = number(summary, "images_per_second"), number(summary, "seconds")
    tokens = number(summary, "tokens_per_second")
    return cells + [_number(None if language else rate, "{:,.0f}"), _number(tokens, "{:,.0f}"),
                    _number(seconds, "{:,.1f}")]


def _of_tokens(run, loss):
    """Perplexity and bits per byte, where they say something of a run."""
    if not tasks.is_language(run):
        return ["–", "–"]
    return [style.digits(tasks.perplexity(loss), 4),
            style.digits(tasks.bits(loss), 4) if tasks.tokens_are_bytes(run) else "–"]


def _accuracy_names(runs):
    """What training's accuracy and the one of evaluations are called in tables of these runs."""
    some, every = tasks.languages(runs)
    if tasks.others(runs):
        return "train right (%)" if some else "train top-1 (%)", "metric (%)"
    if some:
        return "train accuracy (%)", "next-token accuracy (%)" if every else "accuracy (%)"
    return "train top-1 (%)", "top-1 (%)"


def _result_table(runs):
    """Header and rows: what came out. Columns of tasks that no run has are left out."""
    some, every = tasks.languages(runs)
    train, metric = _accuracy_names(runs)
    header = ["run", "steps", "skipped", "train loss", train, "evaluated on", "loss", PERPLEXITY,
              BITS, metric, TOP5, f"best {metric}", BEST_LOSS, "images/s", TOKENS, "time (s)"]
    rows = [_result_row(run) for run in runs]
    without = {"images/s", f"best {metric}"} if every else set() if some else {
        PERPLEXITY, BITS, BEST_LOSS, TOKENS}
    without |= {name for name in (TOP5, BITS) if all(row[header.index(name)] == "–" for row in rows)}
    kept = [i for i, name in enumerate(header) if name not in without]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def format_words(run):
    """The run's format, with the roles that have another."""
    main = run.fact("format", "precision.format")
    roles = [f"{role.replace('_', ' ')} {run.config[key]}"
             for role in ("activations", "weights", "gradients", "weight_gradients")
             for key in [f"precision.{role}"] if run.config.get(key, main) != main]
    recipe = run.config.get("precision.recipe", "none")
    return ", ".join([str(main)] + roles + [recipe][:recipe != "none"])


def _list(items, kind=""):
    """A list of lines in HTML; a long one is folded."""
    if not items:
        return ""
    text = f"<ul{kind}>{''.join(items)}</ul>"
    if len(items) > LONG:
        text = f"<details><summary>{len(items)} lines</summary>{text}</details>"
    return text


def results(chosen, tensor):
    """What the runs are, and what came out."""
    runs, drawn = chosen.runs, chosen.all
    what = [[RunName(run.label), run.status, run.fact("model", "model.zoo") or "layers",
             run.fact("dataset", "data.dataset"), format_words(run),
             run.fact("policy", "scaling.policy"), run.config.get("optimizer.kind", ""),
             run.config.get("seed", ""), run.folder] for run in runs]
    worst = []
    for run in runs:
        bad = run.summary.get("not_finite") if isinstance(run.summary, dict) else None
        if isinstance(bad, dict):
            where = ".".join(str(bad.get(key, "")) for key in ("layer", "tensor")).strip(".")
            helps = bad.get("advice") or ("a loss scale " + (
                "helps" if bad.get("scale_helps") else "does not help"))
            worst.append(f"<li><b>{escaped(run.label)}</b>: <b>not finite</b> from step "
                         f"{html.escape(str(bad.get('since', '?')))} on, first tensor "
                         f"{escaped(where or 'unknown')} (largest magnitude "
                         f"{html.escape(str(bad.get('largest', '?')))}): {escaped(helps)}</li>")
        if dead := layers.no_gradient_text(run):
            worst.append(f"<li><b>{escaped(run.label)}</b>: <b>no gradient</b>: "
                         f"{escaped(dead)}</li>")
        counted = text(run.summary, "counted", "text")
        if counted:
            worst.append(f"<li><b>{escaped(run.label)}</b>: {escaped(counted)}</li>")
        rows = layers.per_layer(layers.of_tensor(run.underflow, tensor), "underflow_pct_nonzero")
        if rows and rows[0][1] > 0 and not (counted and tensor == "dx"):
            layer, mean, most, step = rows[0]
            worst.append(f"<li><b>{escaped(run.label)}</b>: <code>{escaped(layer)}</code> "
                         f"loses most: {style.percent(mean)} of its non-zero "
                         f"{layers.values_of([layer], tensor)} on average, "
                         f"{style.percent(most)} at step {step:,}</li>")
    notes = [f"<li><b>{escaped(run.label)}</b>: {escaped(note)}</li>"
             for run in runs for note in run.notes]
    extra = f"<p class=\"absent\">{chosen.note()}</p>" if chosen.rest else ""
    extra += _list(worst)
    if notes:
        extra += "<p>While reading:</p>" + _list(notes, ' class="notes"')
    how, grouped = "What the runs are, and what came out.", []
    if any(run.members for run in drawn):
        grouped = [("", *_group_table(drawn, tensor))]
        how += (" Runs that differ in their seed alone are drawn as one, their mean; the last table "
                "has mean ± standard deviation. --seeds each draws every run.")
    return Section("runs", "Runs", how, tables=[
        ("", ["run", "status", "model", "data", "format", "policy", "optimizer", "seed", "folder"],
         what),
        ("", *_result_table(runs)), *grouped], extra=extra)


def _group_table(drawn, tensor):
    """Header and rows: means and deviations over the seeds of each configuration."""
    rows = []
    some, _ = tasks.languages(drawn)
    for run in drawn:
        ends = [row for row in map(tasks.last_evaluation, run.each) if row is not None]
        judged = [100 * end[1] for end in map(tasks.last_value, run.each) if end is not None]
        lost = [means[0] for means in (_lost_mean(member, tensor) for member in run.each) if means]
        accuracy = [number(member.summary, "train", "accuracy") for member in run.each]
        rows.append([
            RunName(run.label), str(len(run.each)),
            " ".join(member.config.get("seed", "–") for member in run.each),
            style.mean_and_spread([number(m.summary, "train", "loss") for m in run.each], 4),
            style.mean_and_spread([None if a is None else 100 * a for a in accuracy], 2),
            style.mean_and_spread([row["loss"] for row in ends], 4),
            *(_tokens_mean(run, ends) if some else []),
            style.mean_and_spread(judged or [100 * row["top1"] for row in ends], 2),
            style.mean_and_spread(lost, 3)])
    train, metric = _accuracy_names(drawn)
    return ["configuration", "runs", "seeds", "train loss", train, "loss",
            *([PERPLEXITY, BITS] if some else []), metric, f"{tensor} lost (%)"], rows


def _tokens_mean(run, ends):
    """Perplexity and bits per byte over the seeds of a configuration."""
    if not tasks.is_language(run):
        return ["–", "–"]
    losses = [row["loss"] for row in ends]
    return [style.mean_and_spread(map(tasks.perplexity, losses), 2),
            style.mean_and_spread(map(tasks.bits, losses), 4)
            if tasks.tokens_are_bytes(run) else "–"]


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
        return ["key"] + [RunName(run.label) for run in runs], [
            [key] + [value(run, key) for run in runs] for key in keys]
    if len(keys) <= MOST_COLUMNS:
        return ["run"] + keys, [
            [RunName(run.label)] + [value(run, key) for key in keys] for run in runs]
    rows = []
    for key in keys:
        who = {}
        for run in runs:
            who.setdefault(value(run, key), []).append(run.label)
        rows += [[key, text, "; ".join(labels)] for text, labels in who.items()]
    return ["key", "value", "runs"], rows


def configurations(chosen):
    runs = chosen.runs
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
    texts = "".join(f"<details><summary>config.yaml of {escaped(run.label)}</summary>"
                    f"<pre>{html.escape(run.config_text)}</pre></details>"
                    for run in chosen.looked_into
                    if run.config_text)
    return Section("config", "Configuration", how, tables=tables, extra=texts)
