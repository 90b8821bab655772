"""histograms.csv and what_if*.csv beside the values themselves: how many have each exponent, and what another format,
scale or accumulator would lose of them.

A histogram knows exponents alone: what a scenario says is held to lie as near to the true count as its columns
`underflow_unsure_pct` and `overflow_unsure` say.
"""

import copy

import numpy as np

from accumulators import Accumulated, Rule
from blocks import BlockFormat, Counts, is_block
from formats import Format, both_ends, named, parsed

ZERO = -400  # below all exponents
GRADIENTS = ("dx", "dx2", "dy", "dq", "dk", "dv", "ds")


def exponents(magnitudes):
    return np.where(magnitudes > 0, np.frexp(np.where(magnitudes > 0, magnitudes, 1.0))[1] - 1, ZERO)


def ends_of(seen):
    """Least and greatest value without S, of finite ones, where S is no power of two with what its division loses."""
    for value, error, scale in seen:
        near = 0.0 if np.frexp(scale)[0] == 0.5 else 2e-7
        low, high = (end.ravel()[np.isfinite(value).ravel()] / scale for end in both_ends(value, error))
        yield low - near * np.abs(low), high + near * np.abs(high)


def of_exponents(seen, rows):
    """What differs in the rows of a tensor: exponent, written, least and greatest count."""
    low_of, high_of = np.zeros(1000, int), np.zeros(1001, int)
    for low, high in ends_of(seen):
        inside = (low <= 0) & (high >= 0)
        first = exponents(np.where(inside, 0.0, np.minimum(np.abs(low), np.abs(high)))) - ZERO
        last = exponents(np.maximum(np.abs(low), np.abs(high))) - ZERO
        np.add.at(low_of, first[first == last], 1)
        np.add.at(high_of, first, 1)
        np.add.at(high_of, last + 1, -1)
    high_of = np.cumsum(high_of)
    written = {ZERO if r["exponent"] == "zero" else r["exponent"]: int(r["count"]) for r in rows}
    whole = lambda what: sum(int(what(value).sum()) for value, _, _ in seen)
    counts = [(word, whole(what)) for word, what in (("inf", np.isinf), ("nan", np.isnan))]
    wrong = [(word, written.get(word), count, count) for word, count in counts if written.get(word) != count]
    for at in range(1000):
        got = written.get(at + ZERO, written.get(str(at + ZERO), 0))
        if not low_of[at] <= got <= high_of[at]:
            wrong.append((at + ZERO, got, low_of[at], high_of[at]))
    return wrong


class Scenario:
    def __init__(self, keys):
        self.keys, self.form, self.name = keys, keys.get("format"), keys["name"]
        self.rule = Rule(keys["accumulate"]) if "accumulate" in keys else None
        self.block = BlockFormat(self.form) if is_block(self.form) else None
        self.plain = self.block is None and self.rule is None

    def format(self, own):
        """The format as a tensor is judged by it: it saturates, and rounds, as the tensor's own does."""
        if self.form is None:
            return own
        made = copy.copy(own)
        as_given = Format(self.form, own.saturate and named_nan(own), own.mode, own.keeps_inf)
        made.__dict__.update(as_given.__dict__)
        return made

    def scale(self, tensor, own, total):
        """S of the tensor by the page; None: a gradient with a scale of its own under another S."""
        if "scale" in self.keys:
            return float(self.keys["scale"])
        if "scaling" not in self.keys or tensor not in GRADIENTS:
            return total
        return None if own else float(self.keys["scaling"]["scale"])

    def differs(self, tensor, tally, row):
        """Columns of the row that cannot be right."""
        form, wrong = self.format(tally.form), []
        if not form.same_numbers(parsed(row["format"])):
            wrong.append(("format", row["format"], form.name))
        want, k = self.scale(tensor, tally.row_scale != tally.scale, tally.row_scale), float(row["scale"])
        if want is not None and abs(k - want) > 2e-7 * want:
            wrong.append(("scale", row["scale"], want))
        lost, over, nonzero = np.zeros(2), np.zeros(2), np.zeros(2)
        for low, high in ends_of(tally.seen):
            zero, inside = (low == 0) & (high == 0), (low <= 0) & (high >= 0)
            first, last = form.round(low * k), form.round(high * k)
            gone, maybe = (first == 0) & (last == 0), (first <= 0) & (last >= 0)
            lost += int((gone & ~inside).sum()), int((maybe & ~zero).sum())
            nonzero += int((~inside).sum()), int((~zero).sum())
            beyond = [form.overflows(end * k) | (np.abs(end * k) >= 2.0**128) for end in (low, high)]
            over += int((beyond[0] & beyond[1] & ~inside).sum()), int((beyond[0] | beyond[1]).sum())
        if nonzero[0] == nonzero[1] > 0:
            share, unsure = (float(row[c]) / 100 * nonzero[0] for c in ("underflow_pct_nonzero", "underflow_unsure_pct"))
            if not lost[0] - unsure - 1e-4 <= share <= lost[1] + unsure + 1e-4:
                wrong.append(("underflow_pct_nonzero", row["underflow_pct_nonzero"], *lost, nonzero[0]))
        count, unsure = float(row["overflow"]), float(row["overflow_unsure"])
        if not over[0] - unsure - 1e-4 <= count <= over[1] + unsure + 1e-4:
            wrong.append(("overflow", row["overflow"], *over))
        return wrong


def named_nan(form):
    """Whether a format saturates because the run says so, not because it has no NaN."""
    return form.has_nan


class Histograms:
    """The part of Beside that knows histograms and scenarios."""

    def scenarios(self):
        return [Scenario(keys) for keys in self.config["log"].get("what_if", [])]

    def judge_operand(self, node, name, stored, scale):
        """Blocks of a stored operand, by each scenario in blocks."""
        for number, scenario in enumerate(self.scenarios()):
            if scenario.block is None or name.endswith(".w") and self.part > 0:
                continue
            whole = {"x": "forward.x", "w": "forward.w", "dy": "dx.dy"}[name.split(".")[1]]
            lines, _ = node.layer.lines(whole if scenario.block.tile[0] > 1 else name, stored)
            key = node.name, name, scenario.name
            self.judged.setdefault(key, Counts(scenario.block)).add(scenario.block.quantize(lines)[1], scale)

    def judge_sums(self, node, product, a, b):
        """Sums of a product, by each scenario with an accumulator."""
        for scenario in self.scenarios():
            if scenario.rule is not None:
                row = self.judged_sums.setdefault((node.name, product, scenario.name), Accumulated())
                self.sums_by(node, product, a, b, scenario.rule, row)

    def compare_histograms(self):
        of = lambda name: [r for r in self.more_rows[name] if int(r["step"]) == self.step]
        rows = {}
        for row in of("histograms"):
            rows.setdefault((row["layer"], row["tensor"]), []).append(row)
        for key, some in rows.items():
            tally = self.tallies.get(key)
            if key in self.loose or tally is None:
                continue
            for wrong in of_exponents(tally.seen, some):
                self.differ(f"histograms.csv {key[0]},{key[1]}", "exponent {}: {}, expected {} .. {}".format(*wrong))
        judged = {(r["layer"], r["tensor"], r["scenario"]): r for r in of("what_if")}
        for scenario in self.scenarios():
            for key in (k for k in rows if scenario.plain and "." not in k[1]):  # operands have none
                row = judged.pop((*key, scenario.name), None)
                if row is None:
                    self.differ(f"what_if.csv {key[0]},{key[1]}", f"no row of {scenario.name}")
                elif key in self.tallies and key not in self.loose and not self.stochastic:
                    for wrong in scenario.differs(key[1], self.tallies[key], row):
                        self.differ(f"what_if.csv {key[0]},{key[1]} {scenario.name}", wrong)
        for name, counted in (("what_if_blocks", self.judged), ("what_if_accumulators", self.judged_sums)):
            found = {(r["layer"], r["tensor"], r["scenario"]): r for r in of(name)}
            for key in found.keys() ^ counted.keys():
                if key[:2] not in self.loose:
                    self.differ(f"{name}.csv {key}", "one row too many, or none")
            for key in found.keys() & counted.keys():
                if key[:2] not in self.loose:
                    for wrong in counted[key].differs(found[key]):
                        self.differ(f"{name}.csv {key}", wrong)
