"""The update of the weights (torch.optim's formulas), compared with the checkpoints before and after it, and its
rows."""

import fnmatch
import math

import numpy as np

from exact import single
from formats import Format, Tally
from states import StateTally, States
from value_rules import HALF
from whole_rules import WholeRules

DECAYS = {"adamw": 0.01, "stable_adamw": 0.01, "muon": 0.1}  # weight_decay where none is given
DENOMINATORS = {  # the average that an update divides by, where that is compared with what it divides
    **{kind: "exp_avg_sq" for kind in ("adam", "adamw", "nadam", "radam", "adopt", "ademamix", "lamb", "stable_adamw")},
    "adamax": "exp_inf",
}
OUTCOMES = ("skip", "retry", "sanitize")  # events of an attempt whose gradients are not finite


def rate(config, step):
    """The learning rate of a step, 1 to ...: a schedule of unit steps."""
    lr = config["optimizer"]["lr"]
    keys = config.get("schedule", {"kind": "constant"})
    before = step - 1
    if keys["kind"] == "multistep":
        return lr * keys.get("gamma", 0.1) ** sum(before >= m for m in keys["milestones"])
    if keys["kind"] == "step":
        return lr * keys.get("gamma", 0.1) ** math.floor(before / keys["every"])
    if keys["kind"] in ("cosine", "linear", "poly"):
        share, low = min(before / keys["length"], 1.0), keys.get("min_lr", 0.0)
        if keys["kind"] == "cosine":
            return low + (lr - low) * (1 + math.cos(math.pi * share)) / 2
        return low + (lr - low) * (1 - share) ** keys.get("power", 1)
    return lr


def half_up(master):
    """An fp32 master's bf16 weight: half away from zero."""
    bits = master.astype(np.float32).view(np.uint32)
    return ((bits + (bits & 0x8000)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def joined(weight, low):
    """The fp32 master of a bf16 weight and its 16 low bits, a signed number: if negative, the weight was rounded up."""
    bits = weight.astype(np.float32).view(np.int32).astype(np.int64) + low.astype(np.int64)
    return (bits & 0xFFFFFFFF).astype(np.uint32).view(np.float32).astype(np.float64)


class Updates(WholeRules):
    def __init__(self, config):
        self.config = config
        precision = config.get("precision", {})

        def of(key):
            value = precision.get(key, "fp32")
            saturate = precision.get("overflow", "default") == "saturate"
            if isinstance(value, dict) and "format" in value:
                return Format(value["format"], saturate), value.get("rounding", "nearest")
            return Format(value, saturate), "nearest"

        self.master_format, self.master_rounding = of("masters")
        masters = precision.get("masters", {})
        self.compensation = masters.get("compensation", "none") if isinstance(masters, dict) else "none"
        self.rest = {}  # what rounding took of each master
        saturate = precision.get("overflow", "default") == "saturate"
        self.states = States(precision.get("optimizer_state", "fp32"), saturate)
        self.keys = config["optimizer"]
        self.state, self.count = {}, 0
        self.advanced = self.retries = 0  # steps of the schedule; attempts of the present update that failed

    def factors(self, name, shape):
        lr, decay, keys = 1.0, 1.0, self.config["optimizer"]
        for group in keys.get("groups", []):
            if fnmatch.fnmatchcase(name, group["match"]):
                lr, decay = group.get("lr_factor", lr), group.get("decay_factor", decay)
        for glob in keys.get("no_decay", []):
            if fnmatch.fnmatchcase(name, glob) or (glob == "vectors" and len(shape) == 1):
                decay = 0.0
        return lr, decay

    def apply(self, beside, row, gradients, skipped, after):
        """Compares the weights and states that a step left with those that the rule gives, and its rows."""
        held = self.config["train"].get("schedule_on_skip", "advance") == "hold"
        lr = rate(self.config, 1 + (self.count if held else self.advanced))
        if abs(float(row["lr"]) - lr) > 1e-6 * lr:
            beside.differ("steps.csv lr", row["lr"], f"expected {lr!r}")
        total = math.sqrt(sum(float(np.sum(g**2)) for g, _ in gradients.values())) if not skipped else math.nan
        if skipped:
            for name, before in beside.masters.items():
                if not np.array_equal(before, after[name]):
                    beside.differ(f"checkpoint {name}", "a skipped step changed it")
            return
        off = math.sqrt(sum(float(np.sum(off**2)) for _, off in gradients.values()))
        if abs(float(row["grad_norm"]) - total) > 2e-5 * total + off:
            beside.differ("steps.csv grad_norm", row["grad_norm"], f"expected {total!r}")
        clip = self.config["train"].get("clip_norm", 0)
        factor = min(1.0, clip / total) if clip and total > 0 else 1.0
        unsure = 3e-6 + off / total if clip and total > 0 and clip < total + off else 0.0
        self.count += 1
        tallies = {}
        for name, (g, error) in gradients.items():
            self.one(
                beside, name, g * factor, error * factor + np.abs(g) * factor * unsure, lr, after, tallies
            )
        for (layer, tensor), tally in tallies.items():
            beside.tallies[layer, tensor] = tally

    def end(self, beside, finite, skipped):
        """Whether the attempt is made again, which moves no schedule; its row of events.csv."""
        train = self.config["train"]
        retried = skipped and train.get("on_overflow") == "retry" and self.retries < train.get("max_retries", 100)
        self.retries = self.retries + 1 if retried else 0
        self.advanced += not retried
        found = [r["event"] for r in beside.events if int(r["step"]) == beside.step and r["event"] in OUTCOMES]
        expected = [] if finite else ["retry" if retried else "skip" if skipped else "sanitize"]
        if found != expected:
            beside.differ("events.csv", found, f"expected {expected}")

    def one(self, beside, name, g, off, lr, after, tallies):
        w = beside.masters[name]
        lr_factor, decay_factor = self.factors(name, w.shape)
        self.keys = keys = self.config["optimizer"]
        matched = any(fnmatch.fnmatchcase(name, glob) for glob in keys.get("match", ["*"]))
        if keys["kind"] == "muon" and (w.ndim == 1 or not matched):
            self.keys, lr = keys["others"], lr * keys["others"]["lr"] / keys["lr"]
        kind = self.keys["kind"]
        decay = self.keys.get("weight_decay", DECAYS.get(kind, 0)) * decay_factor
        before, w = w, joined(w, self.rest.get(name, 0 * w)) if self.compensation == "remainder" else w
        self.base, self.base_off = w, np.zeros(w.shape)
        step, error, states = getattr(self, kind)(name, w, g, off, lr * lr_factor, decay, after)
        error = error + 2 * HALF * (step != 0)  # a step that is subnormal
        form = self.master_format
        new = self.base - step
        spread = error + self.base_off + np.where(step == 0, 0, np.abs(new) * 6e-8)
        got = after[name]
        low, high = form.round(new - spread), form.round(new + spread)
        if self.master_rounding == "stochastic":
            low, high = form.neighbors(new - spread)[0], form.neighbors(new + spread)[1]
        if self.compensation != "none":
            low, high = self.compensated(beside, name, -step, error, (new - spread, new + spread), after)
        fits = (got >= low) & (got <= high) | np.isnan(low) | np.isnan(high)
        if not fits.all():
            at = tuple(int(i) for i in np.argwhere(~fits)[0])
            beside.differ(
                f"checkpoint {name}{list(at)}",
                f"{int(np.sum(~fits))} of {fits.size}",
                f"stored {got[at]!r}",
                f"expected {low[at]!r} .. {high[at]!r}",
                f"before {w[at]!r}",
            )
        layer_of = beside.network.of_parameter
        parts = [n for n in beside.masters if layer_of[n][0] == layer_of[name][0]]
        change, error = self.base - w - step, error + self.base_off
        self.rows(beside, name, len(parts) > 1, before, change, error, got, new, spread, states, after, tallies)

    def compensated(self, beside, name, step, error, ends, after):
        """Least and greatest master where precision.masters.compensation keeps the rest, which is compared as well."""
        form, key = self.master_format, f"optimizer.{name}." + ("kahan_comp" if self.compensation == "kahan" else "remainder")
        self.rest_before = rest = self.rest.get(name, np.zeros(step.shape))
        self.rest[name] = after[key]
        if self.compensation == "kahan":
            sums = [form.round(single(rest + step + side * error)) for side in (-1, 1)]
            bases = self.base - self.base_off, self.base + self.base_off
            low, high = (form.round(single(base + s)) for base, s in zip(bases, sums))
            kept = [form.round(single(s + form.round(single(base - after[name])))) for base, s in zip(bases, sums)]
        else:
            whole = joined(after[name], after[key])
            kept, low = (after[key],) * 2, np.where((whole >= ends[0]) & (whole <= ends[1]), half_up(whole), np.inf)
            high = low
        with np.errstate(invalid="ignore"):
            fits = (after[key] >= kept[0]) & (after[key] <= kept[1]) | ~np.isfinite(kept[0] + kept[1])
        if not fits.all():
            beside.differ(f"checkpoint {key}", after[key][~fits][:3], f"expected {kept[0][~fits][:3]} .. {kept[1][~fits][:3]}")
        return low, high

    def rows(self, beside, name, several, w, change, error, got, new, spread, states, after, tallies):
        """Rows update, master and state of the layer, and of this part of it."""
        layer, part = beside.network.of_parameter[name]
        form = self.master_format
        logged = "update" in self.config["log"].get("statistics", [])

        def into(tensor, make):
            for label in [tensor] + ([f"{tensor}.{part}"] if several else []):
                tally = tallies.get((layer, label))
                if tally is None:
                    tally = tallies[layer, label] = make()
                    tally.row_scale = 1.0
                yield tally

        if not form.is_fp32 or logged:
            rest_moved = self.rest_before != self.rest[name] if self.compensation != "none" else False
            for tally in into("update", lambda: Moved(form, 1.0)):
                tally.move(change, error, w, got, rest_moved)
        if not form.is_fp32:
            for tally in into("master", lambda: Tally(form, 1.0)):
                tally.add(new, spread, got)
        kept = [key for key in states if not self.states.form(key.rsplit(".", 1)[1]).is_fp32]
        of_pairs = DENOMINATORS.get(self.keys["kind"])
        if self.keys.get("amsgrad", False):
            of_pairs = "max_exp_avg_sq"
        for key, (value, off) in states.items():
            stored, state = after[key], key.rsplit(".", 1)[1]
            try:
                state_form, low, high, _ = self.states.kept(key, value, off, after)
            except ValueError as wrong:  # a scale
                beside.differ("checkpoint", wrong)
                continue
            fits = (stored >= low) & (stored <= high) | ~np.isfinite(value + off) | np.isnan(low) | np.isnan(high)
            if not fits.all():
                at = tuple(int(i) for i in np.argwhere(~fits)[0])
                beside.differ(
                    f"checkpoint {key}{list(at)}", f"stored {stored[at]!r}", f"expected {low[at]!r} .. {high[at]!r}"
                )
            if state_form.is_fp32:
                continue
            for label in ["state"] + ([f"state.{state}"] if len(kept) > 1 else []):
                tally = tallies.get((layer, label))
                if tally is None:
                    tally = tallies[layer, label] = StateTally(state_form, 1.0)
                    tally.row_scale = 1.0
                one, tally.form = tally.form, state_form  # of states in two formats the row has the first one's name
                (tally.add_scaled if self.states.scaled(state_form) else tally.add)(value, off, stored)
                tally.form = one
                if state == of_pairs:
                    tally.add_pairs(after[key.rsplit(".", 1)[0] + ".exp_avg"], stored)


class Moved(Tally):
    """A row `update`: changes, and whether the weight, with what a compensation keeps of it, is what it was."""

    def move(self, change, error, before, after, rest_moved):
        stayed = (before == after) & ~np.asarray(rest_moved)
        low, high = np.abs(change) - error, np.abs(change) + error
        zero, maybe = high == 0, low <= 0
        everything = np.ones(change.shape)
        self._add("numel", everything, everything)
        self._add("zeros_before", zero, maybe)
        self._add("zeros_after", stayed, stayed)
        self._add("underflow", stayed & ~maybe, stayed & ~zero)
        self._add("below", zero, maybe)
        small = (np.abs(after) > 0) & (np.abs(after) < self.form.smallest_normal * (1 - 1e-9))
        self._add("subnormal", small, small)
        self._extremes(change, error)


class Joined(Tally):
    """A row `accumulated`: what parts of a batch add, and whether the sum is what it was."""

    def join(self, part, error, before, low, high):
        stays, may = (before == low) & (before == high), (before >= low) & (before <= high)
        zero, perhaps = (part == 0) & (error == 0), np.abs(part) <= error
        everything = np.ones(part.shape)
        self._add("numel", everything, everything)
        self._add("zeros_before", zero, perhaps)
        self._add("zeros_after", stays, may)
        self._add("underflow", stays & ~perhaps & np.isfinite(part), may & ~zero & np.isfinite(part))
        self._add("below", 0, np.ones(part.shape))
