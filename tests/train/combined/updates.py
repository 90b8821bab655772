"""The update of the weights (torch.optim's formulas), compared with the checkpoints before and after it, and its
rows."""

import fnmatch
import math

import numpy as np

from exact import single
from formats import Format, Tally
from more_rules import MoreRules
from states import StateTally, States

OFF = 1e-6  # relative error of a few operations in fp32


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


class Updates(MoreRules):
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
        lr = rate(self.config, beside.step)
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

    def one(self, beside, name, g, off, lr, after, tallies):
        w = beside.masters[name]
        lr_factor, decay_factor = self.factors(name, w.shape)
        self.keys = keys = self.config["optimizer"]
        if keys["kind"] == "muon" and w.ndim == 1:
            self.keys, lr = keys["others"], lr * keys["others"]["lr"] / keys["lr"]
        kind = self.keys["kind"]
        decay = self.keys.get("weight_decay", {"adamw": 0.01, "muon": 0.1}.get(kind, 0)) * decay_factor
        lr = lr * lr_factor
        rule = self.adam if kind in ("adam", "adamw") else getattr(self, kind)
        before, w = w, joined(w, self.rest.get(name, 0 * w)) if self.compensation == "remainder" else w
        step, error, states = rule(name, w, g, off, lr, decay, after)
        form = self.master_format
        new, spread = w - step, error + np.where(step == 0, 0, np.abs(w - step) * 6e-8)
        got = after[name]
        low, high = form.round(new - spread), form.round(new + spread)
        if self.master_rounding == "stochastic":
            low, high = form.neighbors(new - spread)[0], form.neighbors(new + spread)[1]
        if self.compensation != "none":
            low, high = self.compensated(beside, name, w, -step, error, (new - spread, new + spread), after)
        fits = (got >= low) & (got <= high) | np.isnan(low) | np.isnan(high) | np.isinf(got)
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
        self.rows(beside, name, len(parts) > 1, before, step, error, got, new, spread, states, after, tallies)

    def compensated(self, beside, name, w, step, error, ends, after):
        """Least and greatest master where precision.masters.compensation keeps the rest, which is compared as well."""
        form, key = self.master_format, f"optimizer.{name}." + ("kahan_comp" if self.compensation == "kahan" else "remainder")
        self.rest_before = rest = self.rest.get(name, np.zeros(w.shape))
        self.rest[name] = after[key]
        if self.compensation == "kahan":
            sums = [form.round(single(rest + step + side * error)) for side in (-1, 1)]
            low, high = (form.round(single(w + s)) for s in sums)
            kept = [form.round(single(s + form.round(single(w - after[name])))) for s in sums]
        else:
            whole = joined(after[name], after[key])
            kept, low = (after[key],) * 2, np.where((whole >= ends[0]) & (whole <= ends[1]), half_up(whole), np.inf)
            high = low
        with np.errstate(invalid="ignore"):
            fits = (after[key] >= kept[0]) & (after[key] <= kept[1]) | ~np.isfinite(kept[0] + kept[1])
        if not fits.all():
            beside.differ(f"checkpoint {key}", after[key][~fits][:3], f"expected {kept[0][~fits][:3]} .. {kept[1][~fits][:3]}")
        return low, high

    def sgd(self, name, w, g, off, lr, decay, after):
        keys = self.keys
        momentum, gathers = keys.get("momentum", 0.0), keys.get("velocity", "gradients") == "gradients"
        total = g + decay * w
        off = off + OFF * (np.abs(g) + np.abs(decay * w)) * (decay != 0)
        if momentum == 0:
            return lr * total, lr * off + OFF * np.abs(lr * total), {}
        key = f"optimizer.{name}.{'momentum' if gathers else 'velocity'}"
        before = self.state.get(key)
        factor = 1.0 if gathers else -lr
        fresh = factor * total * (1.0 if before is None or not gathers else 1 - keys.get("dampening", 0.0))
        v = fresh if before is None else momentum * before + fresh
        v_off = np.abs(factor) * off + OFF * (np.abs(fresh) + (0 if before is None else np.abs(momentum * before)))
        self.state[key] = after[key]
        if gathers:
            used = total + momentum * v if keys.get("nesterov", False) else v
            used_off = off + v_off if keys.get("nesterov", False) else v_off
            return lr * used, lr * used_off + OFF * lr * (np.abs(used) + np.abs(total)), {key: (v, v_off)}
        used = momentum * v + fresh if keys.get("nesterov", False) else v
        return -used, v_off * 2 + OFF * (np.abs(used) + np.abs(fresh)), {key: (v, v_off)}

    def adam(self, name, w, g, off, lr, decay, after):
        keys = self.keys
        b1, b2, eps = keys.get("beta1", 0.9), keys.get("beta2", 0.999), keys.get("epsilon", 1e-8)
        coupled = keys["kind"] == "adam"
        total = g + decay * w if coupled else g
        off = off + OFF * np.abs(total)
        m_key, v_key = f"optimizer.{name}.exp_avg", f"optimizer.{name}.exp_avg_sq"
        m0, v0 = (self.state.get(k, np.zeros(w.shape)) for k in (m_key, v_key))
        m, v = b1 * m0 + (1 - b1) * total, b2 * v0 + (1 - b2) * total**2
        m_off = (1 - b1) * off + 2 * OFF * (np.abs(b1 * m0) + np.abs((1 - b1) * total))
        m_off, v_off = m_off + 1e-44, 1e-44 + (1 - b2) * (2 * np.abs(total) * off + off**2) + 4 * OFF * (np.abs(v) + (1 - b2) * total**2)
        v_off = np.where(np.isinf(v), 0.0, v_off)  # what left the state's format divides to zero
        self.state[m_key], self.state[v_key] = after[m_key], after[v_key]
        root = lambda x: np.sqrt(np.maximum(x, 0) / (1 - b2**self.count)) + eps
        top = m / (1 - b1**self.count)
        step = lr * top / root(v)
        least, most = np.abs(lr * (np.abs(top) - m_off / (1 - b1**self.count))) / root(v + v_off), (
            lr * (np.abs(top) + m_off / (1 - b1**self.count)) / root(v - v_off)
        )
        error = np.maximum(most - np.abs(step), np.abs(np.abs(step) - least)) + 1e-5 * np.abs(step)
        if not coupled:
            step, error = step + lr * decay * w, error + (1.8e-7 * np.abs(w) if decay else 0)
        return step, error, {m_key: (m, m_off), v_key: (v, v_off)}

    def rows(self, beside, name, several, w, step, error, got, new, spread, states, after, tallies):
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
                tally.move(step, error, w, got, rest_moved)
        if not form.is_fp32:
            for tally in into("master", lambda: Tally(form, 1.0)):
                tally.add(new, spread, got)
        several = sum(not self.states.form(key.rsplit(".", 1)[1]).is_fp32 for key in states)
        for key, (value, off) in states.items():
            stored = after[key]
            try:
                state_form, low, high, _ = self.states.kept(key, value, off, after)
            except ValueError as wrong:  # a scale
                beside.differ("checkpoint", wrong)
                continue
            if state_form.is_fp32:
                continue
            fits = (stored >= low) & (stored <= high) | ~np.isfinite(value + off) | np.isnan(low) | np.isnan(high)
            if not fits.all():
                at = tuple(int(i) for i in np.argwhere(~fits)[0])
                beside.differ(
                    f"checkpoint {key}{list(at)}", f"stored {stored[at]!r}", f"expected {low[at]!r} .. {high[at]!r}"
                )
            for label in ["state"] + ([f"state.{key.rsplit('.', 1)[1]}"] if several > 1 else []):
                tally = tallies.get((layer, label))
                if tally is None:
                    tally = tallies[layer, label] = StateTally(state_form, 1.0)
                    tally.row_scale = 1.0
                one, tally.form = tally.form, state_form  # of states in two formats the row has the first one's name
                (tally.add_scaled if self.states.scaled(state_form) else tally.add)(value, off, stored)
                tally.form = one


class Moved(Tally):
    """A row `update`: changes, and whether the weight, with what a compensation keeps of it, is what it was."""

    def move(self, step, error, before, after, rest_moved):
        stayed = (before == after) & ~np.asarray(rest_moved)
        low, high = np.abs(step) - error, np.abs(step) + error
        zero, maybe = high == 0, low <= 0
        everything = np.ones(step.shape)
        self._add("numel", everything, everything)
        self._add("zeros_before", zero, maybe)
        self._add("zeros_after", stayed, stayed)
        self._add("underflow", stayed & ~maybe, stayed & ~zero)
        self._add("below", zero, maybe)
        small = (np.abs(after) > 0) & (np.abs(after) < self.form.smallest_normal * (1 - 1e-9))
        self._add("subnormal", small, small)
        self._extremes(-step, error)


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
