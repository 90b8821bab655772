"""What of a run was counted, and what that lost, in the words of the program
(src/telemetry/coverage.cpp): a negative is said of what was counted alone, and names what was not.
"""
import dataclasses
import math

from ada_train.csv_writer import shortest

_ORDER = ("dx", "dy", "dw", "y", "w", "operands")
_WITHIN = {"p": "y", "dx2": "dx", "ds": "dx", "dq": "dx", "dk": "dx", "dv": "dx"}
CARRYING = ("dx", "dx2", "dy", "ds", "dq", "dk", "dv")  # S, until they are divided by it


def word_of(tensor):
    """The word of `log.statistics` under which a tensor is counted."""
    return "operands" if "." in tensor else _WITHIN.get(tensor, tensor)


@dataclasses.dataclass
class TensorTotals:
    """Of one layer's tensor over the logged steps. Shares are of its values other than zero;
    `first`: the first row that has one, as {step, format, scale, pct}."""
    rows: int = 0
    numel: int = 0
    zeros_before: int = 0
    underflow: int = 0
    overflow: int = 0
    shares: int = 0
    pct_sum: float = 0.0
    pct_max: float = 0.0
    lost_sum: float = 0.0
    lost_max: float = 0.0
    broken: bool = False  # some row had inf or NaN, before its rounding or after
    last_scale: float = 1.0
    first: dict = None

    def add(self, row):
        """A row of underflow.csv."""
        self.rows += 1
        for name in ("numel", "zeros_before", "underflow", "overflow"):
            setattr(self, name, getattr(self, name) + row[name])
        self.broken |= row["inf"] + row["nan"] + row["overflow"] > 0
        self.last_scale, pct = row["scale"], row["underflow_pct_nonzero"]
        if math.isnan(pct):
            return
        if self.first is None:
            self.first = {name: row[name] for name in ("step", "format", "scale")} | {"pct": pct}
        lost = pct + 100 * row["overflow"] / (row["numel"] - row["zeros_before"])
        self.shares += 1
        self.pct_sum, self.pct_max = self.pct_sum + pct, max(self.pct_max, pct)
        self.lost_sum, self.lost_max = self.lost_sum + lost, max(self.lost_max, lost)

    @property
    def lost_mean(self):
        return self.lost_sum / self.shares if self.shares else 0.0

    def summary(self):
        return {"rows": self.rows, "numel": self.numel, "zeros_before": self.zeros_before,
                "underflow": self.underflow, "overflow": self.overflow,
                "underflow_pct_nonzero_mean": self.pct_sum / self.shares if self.shares else 0.0,
                "underflow_pct_nonzero_max": self.pct_max, "lost_pct_mean": self.lost_mean,
                "lost_pct_max": self.lost_max, "last_scale": self.last_scale}


def _enumerated(words):
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(tensors, steps, rounded):
    """`counted` of summary.json. tensors: (layer, tensor) -> TensorTotals; rounded: the words whose
    tensors were rounded."""
    rows = {}
    for (_, tensor), totals in tensors.items():
        rows[word_of(tensor)] = max(rows.get(word_of(tensor), 0), totals.rows)
    words = sorted(rows, key=lambda word: _ORDER.index(word) if word in _ORDER else len(_ORDER))
    missing = [word for word in rounded if word not in words]
    made = {"of": words, "not": missing, "logged_steps": max(rows.values(), default=0)}
    if not words:
        return {**made, "coverage": "",
                "text": "what tensors lose was not counted (log.every, log.statistics)"}
    alike = {}
    for word in words:
        alike.setdefault(rows[word], []).append(word)
    coverage = "; ".join(f"{_enumerated(some)}, {logged} of {steps} step{'' if steps == 1 else 's'}"
                         for logged, some in alike.items())
    if missing:
        coverage += f"; not counted: {_enumerated(missing)} (log.statistics)"
    key, most = max(tensors.items(), key=lambda item: item[1].lost_mean)
    if most.lost_mean <= 0:
        broken = sum(totals.broken for totals in tensors.values())
        held = f"; {broken} tensor{'' if broken == 1 else 's'} held inf or NaN" if broken else ""
        return {**made, "coverage": coverage, "text": f"no value was lost of {coverage}{held}"}
    made["lost_most"] = {"layer": key[0], "tensor": key[1], "pct_mean": most.lost_mean,
                         "pct_max": most.lost_max}
    return {**made, "coverage": coverage,
            "text": f"{key[0]}.{key[1]} lost most, {most.lost_mean:.3f} % on the mean, "
                    f"{most.lost_max:.3f} % at most, of {coverage}"}


def lost_from_the_start(tensors):
    """The gradient that lost most in the first logged step, half or more, in words with that step;
    ("", 0): none did, or its scale has grown fourfold since."""
    known = {key: totals for key, totals in tensors.items() if totals.first is not None}
    step = min((totals.first["step"] for totals in known.values()), default=0)
    found = [(totals.first["pct"], key, totals.first) for key, totals in known.items()
             if key[1] in CARRYING and totals.first["step"] == step and totals.first["pct"] >= 50
             and totals.last_scale < 4 * totals.first["scale"]]
    if not found:
        return "", 0
    pct, (layer, tensor), first = max(found, key=lambda item: item[0])
    return (f"{layer}.{tensor} lost {pct:.3g} % of its values in step {step} ({first['format']} at "
            f"S = {shortest(first['scale'])})"), step
