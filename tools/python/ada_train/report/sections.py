"""The page's sections in their order: what each shows, how it is read, and which file it needs."""
from ada_train.report import (advice, heads, layers, overview, pictures_classes, pictures_compared,
                              pictures_layers, pictures_operands, pictures_runs, pictures_study,
                              pictures_training, pictures_values, predictions, style, tasks, verdict)
from ada_train.report.load import MADE_BY
from ada_train.report.names import Colored, escaped
from ada_train.report.page import Section

EVENTS_SHOWN = 12   # of each kind in the tables


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


def _sums_tables(runs):
    """Each run's sums, the worst first: means over the logged steps."""
    tables = []
    for run in runs:
        frame = run.tables["accumulators"]
        if not len(frame):
            continue
        means = frame.groupby(["layer", "tensor", "accumulator"], sort=False)[
            ["swallowed_pct", "sqnr_db", "bias", "max_rel"]].mean().reset_index()
        rows = [[r["layer"], r["tensor"], r["accumulator"], f"{r['swallowed_pct']:.3g}",
                 f"{r['sqnr_db']:.1f}", f"{r['bias']:.2g}", f"{r['max_rel']:.2g}"]
                for _, r in means.sort_values("sqnr_db").iterrows()]
        tables.append((run.label, ["layer", "product", "accumulator", "swallowed %", "SQNR dB",
                                   "bias", "largest error"], rows))
    return tables


# Files whose rows a section shows beside those of its own.
ALSO = {"what_if": ("what_if_blocks", "what_if_accumulators")}


def _limit_words(runs):
    seen = {w for run in runs for w in run.scales["limit"].unique()}
    known = pictures_layers.LIMITS.items()
    rows = [[Colored(word, color), meaning] for word, (color, meaning) in known if word in seen]
    return [("", ["limit", "what decided"], rows)] if rows else []


def _absent(runs, file):
    """What a run lacks, and how to get it."""
    without = [run.label for run in runs
               if not any(len(run.tables[name]) for name in (file, *ALSO.get(file, ())))]
    if not without or file == "events":
        return ""
    who = "" if len(without) == len(runs) else f" for {escaped(', '.join(without))}"
    return f"<p class=\"absent\">No rows of {file}.csv{who}: {MADE_BY[file]}.</p>"


def _scales(*given):
    return pictures_layers.scales(*given) + pictures_compared.scale_spread(*given)


def _underflow(*given):
    first, *rest = pictures_layers.underflow(*given) or [None]
    return [first] + pictures_compared.underflow_difference(*given) + rest if first else []


def _what_if(runs, tensor, order):
    return (pictures_study.what_if(runs, tensor, order) + pictures_operands.judged(runs, order)
            + pictures_operands.judged_sums(runs, order))


# What underflow is of a tensor, and what it is where nothing is left.
LOST = {"update": ("was to change a weight, which is what it was after rounding to the format "
                   "of the masters", "no weight of the layer moved")}
LOST_OF_OTHERS = ("was not zero in fp32 and is zero after rounding",
                  "every value was zero, no gradient")


# Anchor, title, how it is read, file, what draws it and what of (tensor, order, last) it takes.
PARTS = [
    ("training", "Training",
     "Lines are running means over a fortieth of the run, faint lines the single steps, points the "
     "evaluations (● test, ■ validation). Ticks below the scale: skipped steps; dots on it: scale "
     "changes.", "steps", pictures_training.training, ("last", "rest")),
    ("classes", "Classes",
     "What the network is judged by, on the test images where they were evaluated. "
     "First the mean of all classes, then each class; a cell reaches from the evaluation "
     "before to its own. Hatched or gray: nothing to judge.", "classes", pictures_classes.classes,
     ("last",)),
    ("confusion", "Confusion", "What the pixels of each class were taken for at the last "
     "evaluation; on the diagonal they are right.", "confusion",
     pictures_classes.confusion, ()),
    ("scale", "Scale by layer",
     "The factor that each layer's {tensor} carries, in powers of two; hatched or gray where none was "
     "logged. The first layers compute no dx. Below it the same as points: a layer's mean over the "
     "run, thick its standard deviation, thin its smallest and largest scale.",
     "underflow", _scales, ("tensor", "order", "last")),
    ("underflow", "Underflow by layer",
     "How much of each layer's {tensor} {lost}. Pale is good; black: {dead}; hatched or gray: no value was "
     "logged. With several runs the second picture shows how much more, or less, each loses than "
     "the first.",
     "underflow", _underflow, ("tensor", "order", "last")),
    ("heads", "Underflow in the heads",
     "The same of all gradients at the network's end, which come from the losses alone: of SSD's "
     "convolutions that give locations and scores, of casts, and of the losses (dx: locations, or "
     "the logits; dx2: scores); of other networks the last layers.", "underflow", heads.heads,
     ("order", "last")),
    ("limits", "Which limit decided", "Why each layer's factor alpha is what it is.", "scales",
     pictures_layers.limits, ("order", "last")),
    ("histograms", "Histograms by exponent",
     "Where the magnitudes of {tensor} lie at the last logged step with values, and the range of the "
     "format at the scale carried: what lies left of the first line vanishes, between the first two "
     "it loses bits, right of the last it overflows. A tail more than 40 powers of two below the "
     "line is cut off.", "histograms", pictures_values.histograms,
     ("tensor", "order", "last")),
    ("probes", "Probe errors",
     "Gradients of probe steps beside the same gradients in fp32, from the same weights and batch. "
     "10 dB more: a tenth of the error's energy; at 0 dB the error is as large as the gradient.",
     "probes", pictures_study.probes, ("tensor", "order", "last")),
    ("operands", "Operands in blocks",
     "What the products of convolutions and linear layers multiply, rounded to block-scaled formats: "
     "the signal beside the noise of each operand, as the mean over the logged steps, and the scales "
     "of its blocks: their mean, thick one standard deviation, thin the smallest to the largest.",
     "blocks", pictures_operands.operands, ("order",)),
    ("sums", "Sums of products",
     "What accumulators (precision.accumulate) lose beside sums in fp32, as means over the logged "
     "steps: products that alignment cuts to zero, signal beside noise, the error's pull (below 0: "
     "to zero) and the largest error over the magnitudes that were added.", "accumulators",
     pictures_operands.sums, ("order",)),
    ("what_if", "What if",
     "Mean underflow under other formats, scales and policies, judged from the histograms of the "
     "same steps; first column: the run itself. Block-scaled formats are judged on operands: their "
     "scenarios stand in a picture of their own.", "what_if", _what_if,
     ("tensor", "order")),
    ("events", "Events",
     f"What happened, from events.csv; the first {EVENTS_SHOWN} of each kind are listed.", "events",
     pictures_training.events, ("last",)),
    ("timing", "Time", "Seconds of all logged intervals by phase, and the speed of training.",
     "timing", pictures_training.timing, ("last",)),
]
NO_PICTURES = ("<p class=\"absent\">No pictures: <code>ada-train evaluate RUN_DIR --predictions "
               "RUN_DIR/predictions</code> makes them; --predictions FOLDER names others.</p>")


def _wanted(runs):
    """The parts that these runs have: those of their tasks, and of operands in blocks."""
    others = tasks.others(runs)
    pixels = any(len(run.tables["confusion"]) for run in runs)
    blocks = any(len(run.tables["blocks"]) for run in runs)
    hidden = {"classes": not others, "heads": not others, "confusion": not (others and pixels),
              "operands": not blocks,
              "sums": not any(len(run.tables["accumulators"]) for run in runs)}
    return [part for part in PARTS if not hidden.get(part[0])]


def _predictions(runs, folders):
    found = predictions.gallery(runs, folders)
    return Section("predictions", "Pictures with predictions",
                   "Some of the images that were evaluated, with what was found in them; of several "
                   "runs the same images side by side.", extra=found or NO_PICTURES)


def _all_runs(chosen, tensor, order):
    """Every run, where the other sections show some."""
    return Section("all_runs", "All runs", "Every run as a row, each layer as a column, from the "
                   f"input (left) to the loss: what its {tensor} loses and the scale it carries, as "
                   "means over the run. Hatched or gray: nothing was logged.",
                   pictures=pictures_runs.by_run_and_layer(chosen.all, tensor, order))


def _comes_with(tensor):
    """Which of the tensors that can be chosen brings one that cannot."""
    main = [name for name, beside in layers.BESIDE.items() if tensor in beside]
    return f", and {main[0]} brings {tensor} of layers that have it" if main else ""


def _part(part, runs, given):
    """One section. All runs keep their panel, also those without rows: the place of a run is the
    same from picture to picture."""
    anchor, title, how, file, draw, wanted = part
    beside = given["beside"] if "tensor" in wanted else ""
    section = Section(anchor, title, how.format(**given) + beside + given["note"])
    if any(len(run.tables[name]) for run in runs for name in (file, *ALSO.get(file, ()))):
        section.pictures = draw(runs, *[given[name] for name in wanted])
        if not section.pictures and "tensor" in wanted:
            section.extra = (f"<p class=\"absent\">{file}.csv has no rows of {given['tensor']}: "
                             f"log.statistics chooses the tensors{_comes_with(given['tensor'])}.</p>")
    section.extra += _absent(runs, file)
    return section


def _placed_after(parts, anchor, section):
    """The parts with one more after that of this anchor; at the end where there is none."""
    order = list(parts)
    at = order.index(anchor) + 1 if anchor in order else len(order)
    return {name: parts.get(name, section) for name in order[:at] + [section.anchor] + order[at:]}


def all_sections(chosen, tensor, folders=None, baseline=None):
    """Every section of the page, of a selection of runs (selection.py). `folders`: of pictures with
    predictions, where they are not the runs'; `baseline`: the run that others are compared with."""
    runs, drawn = chosen.runs, chosen.drawn
    order = layers.common_order(runs)
    lost, dead = LOST.get(tensor, LOST_OF_OTHERS)
    given = {"tensor": tensor, "order": order, "last": layers.last_step(runs), "lost": lost,
             "dead": dead, "rest": chosen.rest, "note": chosen.short_note(),
             "beside": layers.beside_note(order, tensor)}
    parts = {part[0]: _part(part, drawn, given) for part in _wanted(drawn)}
    parts["limits"].tables = _limit_words(runs)
    decide = set().union(*[set(run.scales["layer"].unique()) for run in drawn])
    parts["limits"].how += layers.beside_note(decide, "dx")
    parts["events"].tables = _events_tables(chosen.looked_into)
    if not parts["events"].tables:
        parts["events"].extra = "<p class=\"absent\">Nothing happened: events.csv has no rows.</p>"
    if "sums" in parts:
        parts["sums"].tables = _sums_tables(chosen.looked_into)
    if parts["probes"].pictures:
        header, rows = pictures_study.probe_table(chosen.looked_into, order)
        parts["probes"].tables = [("Last probe in numbers", header, rows)]
    if "classes" in parts and parts["classes"].pictures:
        parts["classes"].tables = [("", *pictures_classes.class_table(drawn))]
    if "classes" in parts or folders:
        parts = _placed_after(parts, "confusion" if "confusion" in parts else "classes",
                        _predictions(runs, folders))
    if chosen.rest:
        parts = _placed_after(parts, "training", _all_runs(chosen, tensor, order))
    found = advice.read(runs)
    first = [verdict.section(runs, found, baseline), advice.section(runs, found),
             overview.results(chosen, tensor),
             overview.configurations(chosen)]
    return first + list(parts.values())
