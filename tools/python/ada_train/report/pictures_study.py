"""Pictures of judgements: probe steps beside fp32, and what other choices would have lost."""
import numpy
from matplotlib import colors

from ada_train.report import layers, pointer, style
from ada_train.report.names import RunName
from ada_train.report.pictures_layers import heat_maps, lost_bar, lost_norm, lost_words, shown
from ada_train.report.pictures_operands import noise_sentence
from ada_train.report.style import Picture


def _probe_sentence(runs, tables, tensor):
    parts = []
    for run, table in zip(runs, tables):
        good = table[numpy.isfinite(table["sqnr_db"]).to_numpy()]
        if not len(good):
            parts.append(f"{run.label}: no probe of {tensor} with an error")
            continue
        means = good.groupby("layer", observed=True)["sqnr_db"].mean()
        lost = layers.per_layer(table, "lost_pct")
        text = f"{run.label}: {means.idxmin()} is worst with {means.min():.1f} dB on average"
        if lost:
            text += f", {lost[0][0]} truly loses most, {style.percent(lost[0][1])}"
        noise = noise_sentence(run.probes)
        parts.append(text + (f"; {noise}" if noise else ""))
    return style.sentences(parts)


def probes(runs, tensor, order, last):
    tables = [layers.of_tensor(run.probes, tensor) for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    rows = [layers.codes(t["layer"], names) for t in tables]
    errors = [layers.grid(t, r, names, t["sqnr_db"].clip(-20, 100)) for t, r in zip(tables, rows)]
    norm = colors.Normalize(0, 60)
    figure, axes, mesh = heat_maps(runs, names, errors, last, "viridis", norm,
                                   lambda value: f"{value:.1f} dB")
    style.color_bar(figure, mesh, axes, f"SQNR of {tensor} (dB)", extend="both")
    pictures = [Picture("probe_error", figure, _probe_sentence(runs, tables, tensor)
                        + layers.thinned(errors), "SQNR by layer and step")]
    lost = [layers.grid(t, r, names, t["lost_pct"]) for t, r in zip(tables, rows)]
    top = max([0.0] + [numpy.nanmax(g.values) for g in lost if numpy.isfinite(g.values).any()])
    norm = lost_norm(top)
    figure, axes, mesh = heat_maps(runs, names, lost, last, "magma_r", norm, lost_words)
    lost_bar(figure, mesh, axes, norm,
             f"truly lost\n(% of non-zero {layers.values_of(names, tensor)})")
    sentence = ("Zero in the run though not in fp32, here or because of what came before: where "
                "this is darker than the underflow above, operands had already vanished upstream.")
    return pictures + [Picture("probe_lost", figure, sentence, "values lost beside fp32")]


def probe_table(runs, order):
    """Rows of the last probe of each run."""
    rows = []
    for run in runs:
        table = run.probes[run.probes["step"] == run.probes["step"].max()]
        at = layers.codes(table["layer"], order)
        for i in numpy.argsort(at, kind="stable"):
            r = table.iloc[i]
            rows.append([RunName(run.label), int(r["step"]), r["layer"], r["tensor"],
                         f"{r['lost_pct']:.4g}", f"{r['mse']:.4g}", f"{r['sqnr_db']:.2f}",
                         f"{r['cosine']:.6g}"])
    return ["run", "step", "layer", "tensor", "lost (%)", "mse", "SQNR (dB)", "cosine"], rows


def _scenario_means(table, names, scenarios):
    """Layers x scenarios: mean underflow, and whether anything overflows."""
    rows, columns = layers.codes(table["layer"], names), layers.codes(table["scenario"], scenarios)
    known = (rows >= 0) & (columns >= 0)
    table, cell = table[known], (rows * len(scenarios) + columns)[known]
    size = len(names) * len(scenarios)
    value = table["underflow_pct_nonzero"].to_numpy()
    has = ~numpy.isnan(value)
    count = numpy.bincount(cell[has], minlength=size)
    mean = numpy.full(size, numpy.nan)
    numpy.divide(numpy.bincount(cell[has], weights=value[has], minlength=size), count, out=mean,
                 where=count > 0)
    over = numpy.bincount(cell, weights=table["overflow"].fillna(0), minlength=size)
    shape = (len(names), len(scenarios))
    return mean.reshape(shape), over.reshape(shape)


def _as_run(run, tensor, table, names):
    """What the run itself lost in the steps that the scenarios judge."""
    rows = layers.of_tensor(run.underflow, tensor)
    rows = rows[rows["step"].isin(table["step"].unique()).to_numpy()].assign(scenario="as run")
    return _scenario_means(rows, names, ["as run"])


def _write_cells(ax, mean, over, norm):
    for (row, column), value in numpy.ndenumerate(mean):
        if numpy.isnan(value):
            continue
        text = "<0.001" if 0 < value < 0.001 else style.digits(value, 2)
        if over[row, column] > 0:
            text += " ▲"
        ax.text(column + 0.5, row, text, ha="center", va="center", fontsize=7,
                color="white" if norm(value) > 0.55 else "#222222")


def _what_if_sentence(runs, results, scenarios):
    parts = []
    for run, (mean, over) in zip(runs, results):
        known = [(numpy.nanmean(mean[:, i]), name, over[:, i].sum())
                 for i, name in enumerate(scenarios) if numpy.isfinite(mean[:, i]).any()]
        if len(known) < 2:
            continue
        value, name, overflows = min(known)
        text = f"{run.label}: on the mean of all layers least is lost under “{name}”: "
        text += style.percent(float(value))
        parts.append(text + (f", where {overflows:,.0f} values would overflow" if overflows else
                             ", and nothing would overflow"))
    return style.sentences(parts) if parts else "No scenario to compare."


def what_if(runs, tensor, order):
    tables = [layers.of_tensor(run.what_if, tensor) for run in runs]
    names = shown(order, tables)
    if not names:
        return []
    others = list(dict.fromkeys(s for t in tables for s in t["scenario"]))[:style.MOST_WORDS]
    scenarios = ["as run"] + others
    results = []
    for run, table in zip(runs, tables):
        own, judged = _as_run(run, tensor, table, names), _scenario_means(table, names, others)
        results.append([numpy.hstack(pair) for pair in zip(own, judged)])
    figure, axes = style.panels(len(runs), style.layers_height(len(names)) + 0.6)
    top = max([0.0] + [numpy.nanmax(m) for m, _ in results if numpy.isfinite(m).any()])
    norm = lost_norm(top)
    for number, (run, ax, (mean, over)) in enumerate(zip(runs, axes, results)):
        mesh = style.heat(ax, numpy.arange(len(scenarios) + 1), mean, "magma_r", norm)
        if len(names) <= style.TEXT_CELLS and len(scenarios) * min(len(runs), style.PER_ROW) <= 24:
            _write_cells(ax, mean, over, norm)
        style.layer_axis(ax, names, number % style.PER_ROW == 0)
        ax.set_xticks(numpy.arange(len(scenarios)) + 0.5,
                      [style.label(s, 28) for s in scenarios], rotation=35, ha="right")
        ax.set_xlabel("scenario")
        pointer.cells(ax, numpy.arange(len(scenarios) + 1), names, mean, lost_words,
                      pointer.named(scenarios))
        style.panel_title(ax, run.label, len(runs))
    lost_bar(figure, mesh, axes, norm,
             f"mean underflow\n(% of non-zero {layers.values_of(names, tensor)})")
    unsure = max([0.0] + [float(t["underflow_unsure_pct"].max()) for t in tables if len(t)])
    sentence = _what_if_sentence(runs, results, scenarios) + " ▲: values would overflow."
    if unsure > 0:
        sentence += (" The bin in which a threshold lies holds up to "
                     f"{style.percent(unsure)} of a tensor: so far off may a number be.")
    return [Picture("what_if", figure, sentence, "underflow by layer and scenario")]
