"""A run beside the reference: batch by batch, each op is computed in float64 from what the program stored, rounded, and compared.

What the dump has replaces what was computed, once it has been found equal (or within what fp32 may be off), so that the next op
starts from the very bits. Of a batch in parts (train.accumulate) a dump has the last part alone: earlier ones have to be known to
the last bit, else the run is given up there (Unsure).
"""
import math

import numpy as np

import kinds
import norms
import rules
from exact import single
from formats import TINY, Format, Tally, stored_ends
from network import Network, Precision, entries
from policies import policy_of
from updates import Updates

ONE_SCALE = ("none", "fixed", "dynamic", "logmax", "histogram")


class Unsure(Exception):
    """A value of an earlier part is not known to the last bit."""


class Beside:
    def __init__(self, run, arrays, weights):
        self.run, self.config = run, run.config
        x = arrays["train.images"].astype(np.float64)
        self.images, self.labels = self.normalized(x).transpose(0, 3, 1, 2), arrays["train.labels"]
        self.network = Network(self.config, self.images.shape[1:])
        self.policy = policy_of(self.config, self.network)
        self.updates = Updates(self.config)
        self.weights = weights
        self.scaling = self.config.get("scaling", {"policy": "none"})
        self.histories, self.differences = {}, []
        self.running = {}
        self.states = {}  # a layer's decision: passes, cached factor, dgrad of the last pass
        self.compared = self.exact = 0

    def normalized(self, x):
        n = self.config["data"].get("normalize", "none")
        if not isinstance(n, dict):
            return x
        mean, std = (np.asarray(n[k], np.float32).astype(np.float64) for k in ("mean", "std"))
        return (x - mean) / std

    def differ(self, what, *more):
        self.differences.append(f"step {self.step}: {what}: " + ", ".join(str(m) for m in more))

    # Comparing and storing.

    def keep(self, name, tensor, value, error, form, scale=1.0, own=None, round_it=True):
        """What is stored of (value, error): counted into the row of (name, tensor) and compared with the dump's tensor."""
        value, error = np.asarray(value, np.float64), np.broadcast_to(error, np.shape(value))
        value = np.where((error == 0) & np.isfinite(value), single(value), value)
        factor = self.own_scale(name, tensor, form, scale) if own else None
        low, high = stored_ends(value, error, form, factor, self.stochastic) if round_it else (value - error, value + error)
        stored = self.settle(f"{name}.{tensor}", low, high, error)
        if round_it:
            tally = self.tallies.get((name, tensor))
            if tally is None:
                tally = self.tallies[name, tensor] = Tally(form, scale)
                tally.row_scale = scale * (1.0 if factor is None else factor)
                if factor is not None:
                    tally.row_scale = single(scale * factor)
            tally.scale, tally.row_scale = scale, tally.row_scale if factor is not None else scale
            tally.add(value, error, stored, factor)
            if own:
                self.remember(name, tensor, value, error)
        return stored

    spreads = False  # an op that adds up what is not finite: which values become NaN depends on the way of computing

    def spreading(self, layer, *arrays):
        self.spreads = layer.mixes and not all(np.isfinite(a).all() for a in arrays)

    def remember(self, name, tensor, value, error):
        """The largest magnitude of the step, and how far it may be off, for the tensor's own scale."""
        a = np.abs(value)
        most, off = (float(a.max()), float((a + error).max() - a.max())) if np.isfinite(a).all() else (math.inf, 0.0)
        self.amax[name, tensor] = max(self.amax.get((name, tensor), (0.0, 0.0)), (most, off))

    def settle(self, name, low, high, error):
        if self.spreads:
            tensor = name.rsplit(".", 1)
            self.loose.add(tuple(tensor))
            if self.dump is None and not self.twins:
                raise Unsure(name)
            got = self.whole_dump.get(name)
            return low if got is None else got.reshape(low.shape)
        if name == "input.y":
            name = f"{self.network.reads_images[0].name}.x"
        if self.dump is not None and name in self.dump:
            got = self.dump[name].reshape(low.shape)
            fits = ((got >= low) & (got <= high)) | (np.isnan(got) & np.isnan(low)) | (got == low)
            self.compared += got.size
            self.exact += int(np.sum(error == 0))
            if not fits.all():
                at = tuple(int(i) for i in np.argwhere(~fits)[0])
                self.differ(f"{name}{list(at)}", f"{int(np.sum(~fits))} of {fits.size} values", f"stored {got[at]!r}",
                            f"expected {low[at]!r} .. {high[at]!r}")
            return got
        if np.any((low != high) & ~(np.isnan(low) & np.isnan(high))):
            if self.dump is None:  # an equal part's values are these
                got = self.whole_dump[name].reshape(low.shape) if self.twins and name in self.whole_dump else np.nan
                if not (np.isnan(low) & np.isnan(high) | (got >= low) & (got <= high)).all():
                    raise Unsure(name)
                return got
            return (low + high) / 2
        return low

    def own_scale(self, name, tensor, form, scale=1.0):
        """s of delayed scaling: (largest / amax) / 2^margin, of a history of earlier steps; None in fp32, which rounds nothing."""
        if form.is_fp32:
            return None
        keys = self.precision.own_scales
        s, amax, off = self.next_scale(name, tensor, form)
        row = self.row_of.get((name, tensor))
        if off and amax and row is not None:  # of a largest magnitude that is not known to the last bit
            written = float(row["scale"]) / scale
            if abs(written - s) <= (1.5 * off / amax + 1e-6) * s or keys.get("power_of_two", False) and written in (s / 2, s * 2):
                s = self.scales[name, tensor] = written
        return s

    def next_scale(self, name, tensor, form):
        """The tensor's scale by its history, (s, amax, how far amax may be off); kept where amax is 0, and as a power of two where
        largest / amax is beyond fp32."""
        keys = self.precision.own_scales
        seen = self.histories.get((name, tensor), [])[-keys.get("history", 1024):]
        s = self.scales.get((name, tensor), 1.0)
        amax, off = (seen[-1] if keys.get("amax", "max") == "most_recent" else max(seen)) if seen else (0.0, 0.0)
        if amax > 0:
            margin = keys.get("margin", 0)
            quotient = float(single(form.largest / amax))
            if not keys.get("power_of_two", False):
                s = float(single(quotient / 2.0 ** margin))
                s = s if math.isfinite(s) else float(np.finfo(np.float32).max)
            elif math.isfinite(quotient):
                s = 2.0 ** (math.frexp(quotient)[1] - 1 - int(margin))
        self.scales[name, tensor] = s
        return s, amax, off

    # One step.

    def check(self):
        """Compares every step; returns the list of what differs."""
        self.steps = self.run.csv("steps.csv")
        self.scale_rows = self.run.csv("scales.csv")
        self.rows = self.run.csv("underflow.csv")
        self.scales, self.masters, self.step = {}, None, 0
        for glob in Precision(self.config, 10 ** 6, self.network).without_effect():
            if f"'{glob}'" not in self.run.said:
                self.differ("precision.layers", f"'{glob}' changes nothing, and no word of it")
        for row in self.steps:
            self.one_step(row)
            if self.differences:
                break
        return self.differences

    def one_step(self, row):
        self.step = int(row["step"])
        self.precision = Precision(self.config, self.step, self.network)
        self.stochastic = self.precision.keys.get("rounding") == "stochastic"
        self.tallies, self.amax, self.decided, self.loose, self.broken = {}, {}, {}, set(), set()
        self.not_finite = set()
        if self.masters is None:
            form = self.updates.master_format
            self.masters = {name: form.round(single(w)) for name, w in self.weights.items() if ".running_" not in name}
        parts = self.config["train"].get("accumulate", 1)
        size = self.config["data"]["batch_size"]
        per_epoch = len(self.images) // size
        first = (self.step - 1) % per_epoch * size
        whole_dump = self.whole_dump = self.run.dump(self.step)
        self.written = {(r["layer"], r["limit"] == "branch"): r for r in self.scale_rows if int(r["step"]) == self.step}
        self.row_of = {(r["layer"], r["tensor"]): r for r in self.rows if int(r["step"]) == self.step}
        split = lambda a: a[first:first + size].reshape(parts, size // parts, *a.shape[1:])
        self.twins = all((a == a[:1]).all() for a in (split(self.images), split(self.labels)))
        self.load_weights(whole_dump)
        self.sums, self.grad_rows = {}, {}
        self.loss_scale = self.policy.start_scale()
        near = 1e-3 if self.scaling["policy"] == "logmax" else 0.0
        if abs(float(row["scale"]) - self.loss_scale) > near * self.loss_scale:
            self.differ("steps.csv scale", row["scale"], f"expected {self.loss_scale!r}")
        self.loss_scale = float(row["scale"])
        loss, right = 0.0, 0
        for part in range(parts):
            self.dump = whole_dump if part == parts - 1 else None
            some = slice(first + part * size // parts, first + (part + 1) * size // parts)
            logits = self.forward(self.images[some])
            part_loss, part_right, gradient, error = self.loss(logits, self.labels[some], size)
            loss, right = loss + part_loss, right + part_right
            self.backward(gradient, error)
        self.dump = whole_dump
        self.close(row, loss, right, size)

    def load_weights(self, dump):
        self.dump = dump
        own = self.precision.own_scales is not None
        for node in self.network.nodes:
            for name in node.layer.params:
                node.layer.params[name] = self.masters[f"{node.name}.{name}"]
            if node.layer.weighted:
                w = node.layer.params["weight"]
                form = self.precision.form("weights", node.name, own)
                node.layer.copy = self.keep(node.name, "w", w, 0.0, form, own=own)

    def forward(self, images):
        own = self.precision.own_scales is not None
        form = self.precision.form("activations", "input", own)
        ys = {"input": self.keep("input", "y", images, 0.0, form, own=own)}
        for node in self.network.nodes:
            xs = [ys[i] for i in node.inputs]
            form = self.precision.form("activations", node.name, own)
            self.spreading(node.layer, *xs, *([node.layer.copy] if node.layer.weighted else []))
            if node.kind == "attention":
                p, error = node.layer.forward_p(xs[0])
                low, high = self.tally(node.name, "p", p, error, form, 1.0, own)
                value, error = node.layer.forward((low + high) / 2, (high - low) / 2)
            else:
                value, error = node.layer.forward(xs)
            ys[node.name] = self.keep(node.name, "y", value, error, form, own=own, round_it=not node.layer.moves)
            node.finite = not self.spreads
            self.spreads = False
        return ys[self.network.nodes[-1].name]

    def tally(self, name, tensor, value, error, form, scale, own):
        """Counts of a tensor that no dump has; returns the ends of what is stored."""
        factor = self.own_scale(name, tensor, form, scale) if own else None
        low, high = stored_ends(value, error, form, factor, self.stochastic)
        tally = self.tallies.setdefault((name, tensor), Tally(form, scale))
        tally.scale, tally.row_scale = scale, scale if factor is None else single(scale * factor)
        tally.add(value, error, (low + high) / 2, factor)
        unsure = low != high
        for column in ("zeros_after", "underflow", "subnormal"):
            least, most = tally.found[column]
            tally.found[column] = least - int(unsure.sum()), most + int(unsure.sum())
        if own:
            self.remember(name, tensor, value, error)
        return low, high

    def loss(self, logits, labels, size):
        z = logits.reshape(len(logits), -1)
        classes = z.shape[1]
        with np.errstate(invalid="ignore", over="ignore"):
            top = z.max(1, keepdims=True)
            log_sum = np.log(np.exp(z - top).sum(1, keepdims=True)) + top
            p = np.exp(z - log_sum)
        smooth = self.config["train"].get("label_smoothing", 0.0)
        target = np.full(z.shape, smooth / classes)
        target[np.arange(len(z)), labels] += 1 - smooth
        with np.errstate(invalid="ignore"):
            loss = float((target * (log_sum - z)).sum() / size)
            gradient = (p - target) / size * self.loss_scale
        error = (1e-37 + p * (2e-6 + 2e-7 * np.abs(z - log_sum)) + 1.2e-7 * target + 1e-7 * np.abs(p - target)) / size * self.loss_scale
        right = int(np.sum(np.argmax(z, 1) == labels))
        return loss, right, gradient.reshape(logits.shape), np.where(np.isfinite(error), error, 0).reshape(logits.shape)

    # Backwards.

    def own_gradients(self):
        return self.precision.own_scales is not None and self.scaling["policy"] in ONE_SCALE

    def gradient_form(self, name, reader=None):
        """The format of a gradient by what `name` gives, of the layer that reads it (None: of their sum)."""
        root = self.network.root(name)
        return self.precision.form("gradients", root, self.own_gradients(), reader)

    def backward(self, gradient, error):
        last = self.network.nodes[-1].name
        own = self.own_gradients()
        dlogits = self.keep("loss", "dx", gradient, error, self.gradient_form(last), self.loss_scale, own)
        self.arriving = {last: [(len(self.network.nodes), dlogits, self.loss_scale)]}
        for index in range(len(self.network.nodes) - 1, -1, -1):
            node = self.network.nodes[index]
            if node.name not in self.arriving:
                continue
            dy, scale = self.meet(node, sorted(self.arriving[node.name], key=lambda a: a[0]))
            self.one_layer(index, node, dy, scale)

    def one_layer(self, index, node, dy, scale):
        layer = node.layer
        self.spreading(layer, dy, *([] if node.finite else [np.nan]))
        if self.spreads:
            self.not_finite.add(node.name)
        goes_on = [i != "input" and bool(self.network.by_name[i].trained_before or self.network.by_name[i].layer.params)
                   for i in node.inputs]
        found = self.attention(node, dy, scale) if node.kind == "attention" else layer.backward(dy)
        for name, (value, off) in layer.grads.items():
            key = f"{node.name}.{name}"
            with np.errstate(over="ignore", invalid="ignore"):
                part = value / scale
                power = math.frexp(scale)[0] == 0.5
                part_error = off / scale + (0 if power else np.abs(part) * 1.2e-7)
                part_error = part_error + TINY * ((np.abs(part) < 2.0 ** -120) & (single(part) != part))
                if layer.weighted and name == "weight":
                    part, part_error = self.part_of_dw(node, key, part, part_error)
                total, error = self.sums.get(key, (0.0, 0.0))
                both = total + part
                rounds = 0 if isinstance(total, float) else np.where(single(both) == both, 0, np.abs(both) * 1.2e-7)
                self.sums[key] = both, error + part_error + rounds
        if not any(goes_on) or node.kind == "attention":
            for i, value in zip(node.inputs, found):
                if node.kind == "attention" and goes_on[0]:
                    self.arriving.setdefault(i, []).append((index, *value))
            self.spreads = False
            return
        alpha, out = self.alpha(node, layer, dy, scale, found)
        for number, (i, (value, off)) in enumerate(zip(node.inputs, found)):
            if not goes_on[number]:
                continue
            tensor = "dx2" if number == 1 and node.kind == "multiply" else "dx"
            with np.errstate(over="ignore", invalid="ignore"):
                value, off = value * alpha, off * alpha
            if layer.rounds_dx:
                value = self.keep(node.name, tensor, value, off, self.gradient_form(i, node), out, self.own_gradients())
                if not np.isfinite(value).all():
                    self.broken.add(node.name)
            elif number == 0 and len(node.inputs) == 1:
                value = self.settle(f"{node.name}.dx", value - off, value + off, off)
            self.arriving.setdefault(i, []).append((index, value, out))
        self.spreads = False

    def part_of_dw(self, node, key, part, error):
        """What a part of the batch adds to dw: in a format of its own dw is rounded (and counted) after each part."""
        form = self.precision.form("weight_gradients", node.name)
        if form.is_fp32:
            return part, error
        kept, _ = self.sums.pop(key, (0.0, 0.0))
        before = kept + part
        error = error + np.where(single(before) == before, 0, np.abs(before) * 1.2e-7)
        self.twins, twins = False, self.twins  # equal parts leave other sums
        stored = self.keep(node.name, "dw", before, error, form)
        self.twins = twins
        return stored, np.zeros(stored.shape)

    def meet(self, node, branches):
        """The gradients that an output gets, at one scale, added and rounded once."""
        if len(branches) == 1:
            dy, scale = branches[0][1:]
            self.settle(f"{node.name}.dy", dy, dy, np.zeros(dy.shape))
            return dy, scale
        form = self.gradient_form(node.name)
        target, total = self.common_scale(node, [(float(np.abs(g).max()), s) for _, g, s in branches], form,
                                          lambda at: self.branch_sum(branches, at))
        return self.keep(node.name, "dy", total, 0.0, form, target, self.own_gradients()), target

    def branch_sum(self, branches, target):
        total = 0.0
        for _, g, s in branches:
            total = single(total + single(g * single(target / s)))
        return total

    # Decisions.

    def keys_of(self, name):
        return {**{k: v for k, v in self.scaling.items() if k != "layers"}, **entries(self.scaling.get("layers", []), name)}

    def alpha(self, node, layer, dy, scale, found):
        """alpha and S_out of a layer, after its row of scales.csv has been compared."""
        decides = layer.decides or (isinstance(layer, norms.BatchNorm) and self.scaling["policy"] == "adaptive"
                                    and self.scaling.get("batch_norm", False))
        if not decides:
            return 1.0, scale
        operand = None
        if isinstance(layer, kinds.Product):
            operand = lambda keys: rules.of_weight(layer, dy, keys.get("fan", "exact"))
        elif isinstance(layer, norms.BatchNorm):
            operand = lambda keys: rules.of_factors(layer.factor.reshape(-1), dy)
        return self.decide(node.name, scale, dy, operand, found[0], self.gradient_form(node.inputs[0], node))

    def decide(self, name, scale, dy, operand, dgrad, form, near=rules.NEAR):
        self.decided[name, False] = True
        written = self.written.get((name, False)) if self.dump is not None else None
        policy = self.scaling["policy"]
        if policy in ONE_SCALE:
            return self.compare_decision(name, written, scale, [(None, None, None, 1.0, "none")])
        if policy == "layerwise_dynamic":
            alpha = self.policy.layer(name) / scale
            return self.compare_decision(name, written, scale, [(alpha, None, None, alpha, "state")])
        keys = self.keys_of(name)
        method = keys.get("method", "approx_range")
        state = self.states.setdefault(name, {"passes": 0, "cached": None, "last": None})
        u_min, u_max = keys.get("u_min", form.smallest), form.largest
        seen_operand = operand(keys) if operand else None
        if not np.isfinite(dy).all() or (seen_operand and not math.isfinite(seen_operand.mean_square)):
            return self.compare_decision(name, written, scale, [(1.0, None, 1.0, 1.0, "nonfinite")], only=("alpha", "limit"))
        fresh = state["passes"] % keys.get("update_interval", 1) == 0 or state["cached"] is None or method == "fixed"
        seen = method != "exact_range" or state["last"] is not None  # its first pass has nothing to look at
        state["passes"] += seen
        if not fresh:
            options = [(value, "stale") for value, _ in state["cached"]]
        elif method == "exact_range":
            options = rules.exact_range(keys, state["last"], scale, u_min, u_max)
            if options is None:  # the last dgrad is little but what fp32 left of a difference
                options = [(float(written["unbound"]) if written else math.nan, written["limit"] if written else "")]
                if written is None:
                    raise Unsure(f"exponents of {name}")
        else:
            options = [rules.unbound(method, keys, dy, seen_operand, u_min, u_max)]
            value, word = options[0]
            if method not in ("fixed",) and word != "one":
                options += [(value * (1 + near), word), (value * (1 - near), word)]
        if method == "exact_range" and np.isfinite(dgrad[0]).all():
            state["last"] = (dgrad[0], np.broadcast_to(dgrad[1], dgrad[0].shape), scale)
        if fresh and seen:
            state["cached"] = options
        choices = []
        for value, word in options:
            bound, pow2, alpha, limit = rules.pipeline(method, keys, value, word, scale)
            choices.append((value, bound, pow2, alpha, limit))
        return self.compare_decision(name, written, scale, choices, near)

    def compare_decision(self, name, written, scale, choices, near=rules.NEAR, only=("unbound", "bound", "pow2", "alpha", "limit")):
        columns = ("unbound", "bound", "pow2", "alpha", "limit")
        if written is None:
            if self.dump is not None:
                self.differ(f"scales.csv {name}", "no row")
            elif len({c[3] for c in choices}) > 1:
                twin = [c for c in choices if self.twins and float(self.written[name, False]["alpha"]) == c[3]]
                if not twin:
                    raise Unsure(f"alpha of {name}")
                choices = twin
            return choices[0][3], float(single(scale * choices[0][3]))
        if float(written["scale_in"]) != scale:
            self.differ(f"scales.csv {name} scale_in", written["scale_in"], f"expected {scale!r}")

        def same(column, value):
            text = written[column]
            if column == "limit" or value is None or text == "":
                return text == ("" if value is None else value)
            return abs(float(text) - value) <= 1e-6 * abs(value) if column in ("alpha", "pow2") else abs(float(text) - value) <= 1.5 * near * abs(value)

        if not any(all(same(c, v) for c, v in zip(columns, choice) if c in only) for choice in choices):
            self.differ(f"scales.csv {name}", {c: written[c] for c in columns}, f"expected {dict(zip(columns, choices[0]))}",
                        f"{len(choices)} choices", f"S {scale!r}")
        alpha, out = float(written["alpha"]), float(written["scale_out"])
        if out != single(scale * alpha):
            self.differ(f"scales.csv {name} scale_out", written["scale_out"], f"expected {scale * alpha!r}")
        return alpha, out

    def attention(self, node, dy, scale):
        """dv, ds, dq, dk, each with an alpha, brought to one scale in the layout of q, k and v."""
        layer = node.layer
        form_own = self.precision.form("gradients", node.name, self.own_gradients())
        p, v = layer.p, layer.v
        t, g = layer.tokens, layer.heads // layer.kv
        on = self.scaling.get("attention", True)
        (dv, dv_off), (ds, ds_off) = layer.gradients(dy)
        top = lambda a: float(np.max(np.abs(a)))
        least = lambda a: rules.magnitudes(a)[0]
        square = lambda a: float(np.mean(a ** 2))
        operands = {
            "dv": (square(p), least(p), top(p), t * g),
            "ds": (square(p) * square(v), least(p) * (least(v) or 0.0), top(p) * top(v), layer.width),
            "dq": (layer.c ** 2 * square(layer.k), layer.c * (least(layer.k) or 0), layer.c * top(layer.k), t),
            "dk": (layer.c ** 2 * square(layer.q), layer.c * (least(layer.q) or 0), layer.c * top(layer.q), t * g)}
        stored = {}

        def one(part, value, off, s_in, seen, seen_off):
            operand = lambda keys: rules.Operand(*operands[part], None)
            if on or self.scaling["policy"] != "adaptive":
                near = 2e-3 + float(np.max(seen_off[seen != 0] / np.abs(seen[seen != 0]), initial=0.0))
                alpha, out = self.decide(f"{node.name}.{part}", s_in, seen, operand, (value, off), form_own, near)
            else:
                self.decided[f"{node.name}.{part}", False] = True
                written = self.written.get((f"{node.name}.{part}", False)) if self.dump is not None else None
                alpha, out = self.compare_decision(f"{node.name}.{part}", written, s_in, [(None, None, None, 1.0, "none")])
            low, high = self.tally(node.name, part, value * alpha, off * alpha, form_own, out, self.own_gradients())
            stored[part] = (low + high) / 2, (high - low) / 2, out
            return stored[part]

        one("dv", dv, dv_off, scale, dy, np.zeros(dy.shape))
        kept, kept_off, s_out = one("ds", ds, ds_off, scale, dy, np.zeros(dy.shape))
        (dq, dq_off), (dk, dk_off) = layer.of_scores(kept, kept_off)
        one("dq", dq, dq_off, s_out, kept, kept_off)
        one("dk", dk, dk_off, s_out, kept, kept_off)
        if not all(np.isfinite(a).all() for a in (
                dy, ds_off, dq_off, dk_off, *(a for part in stored.values() for a in part[:2]))):  # NaN meets what is masked, or does not
            self.loose |= {(node.name, part) for part in operands}
        names = ("dq", "dk", "dv")
        before = self.network.by_name[node.inputs[0]]
        form = self.gradient_form(before.name)
        target, _ = self.common_scale(before, [(top(stored[k][0]), stored[k][2]) for k in names], form)
        whole, off = (np.concatenate([layer.join(stored[k][i] * (target / stored[k][2])) for k in names], 1) for i in (0, 1))
        whole, off = (a.reshape(len(a), *before.layer.shape) for a in (whole, off))
        if (node.name, "ds") in self.loose:
            self.loose.add((before.name, "dy"))
            if self.dump is None and not self.twins:
                raise Unsure(before.name)
            return [(self.whole_dump[f"{before.name}.dy"].reshape(whole.shape), target)]
        return [(self.keep(before.name, "dy", whole, off, form, target, self.own_gradients()), target)]

    def common_scale(self, node, branches, form, add=None):
        """The scale at which branches [(largest magnitude, S)] meet, and their sum; that of the row where one is not finite."""
        written = self.written.get((node.name, True))
        self.decided[node.name, True] = True
        largest = max(m / s for m, s in branches)
        target = self.fitting_scale(branches, largest, form)
        total = add(target) if add else None
        if math.isfinite(largest) and add:
            while np.max(np.abs(total)) >= form.largest > largest * target:  # where no branch did
                target /= 2
                total = add(target)
        if self.dump is not None:
            if written is None:
                self.differ(f"scales.csv {node.name}", "no row of limit branch")
            elif float(written["scale_out"]) != target:
                if math.isfinite(largest):
                    self.differ(f"scales.csv {node.name} scale_out", written["scale_out"], f"expected {target!r} (branch)")
                target = float(written["scale_out"])
                total = add(target) if add else None
        return target, total

    @staticmethod
    def fitting_scale(branches, largest, form):
        """The largest of the branches' scales under which nothing reaches the format's end; equal scales need no factor."""
        scales = {s for _, s in branches}
        if len(scales) == 1 or not math.isfinite(largest):
            return max(scales)
        fitting = [s for s in scales if largest * s < form.largest]
        if fitting:
            return max(fitting)
        smallest = min(scales)
        for halvings in range(1, 5):
            if largest * smallest / 2 ** halvings < form.largest:
                return smallest / 2 ** halvings
        return 2.0 ** (math.frexp(form.largest / largest)[1] - 1)

    # The end of a step.

    def close(self, row, loss, right, size):
        wrong = lambda text, value, off: not (abs(float(text) - value) <= off or (math.isnan(value) and text == "nan") or
                                              float(text) == value)
        if wrong(row["loss"], loss, 2e-5 * abs(loss) + 2e-6):
            self.differ("steps.csv loss", row["loss"], f"expected {loss!r}")
        if wrong(row["accuracy"], right / size, 1e-8) and math.isfinite(loss):
            self.differ("steps.csv accuracy", row["accuracy"], f"expected {right / size}")
        gradients = self.weight_gradients()
        finite = all(np.isfinite(g).all() for g, _ in gradients.values())
        self.policy.end(self, finite, gradients)
        skipped = not finite
        if (row["overflow"], row["skipped"]) != (str(int(not finite)), str(int(skipped))):
            self.differ("steps.csv overflow, skipped", row["overflow"], row["skipped"], f"expected {int(not finite)}")
        after = self.run.checkpoint(self.step)
        self.updates.apply(self, row, gradients, skipped, after)
        self.running_statistics(after)
        self.compare_rows()
        for key, amax in self.amax.items():
            history = self.histories.setdefault(key, [])
            if math.isfinite(amax[0]):
                history.append(amax)
            self.next_scale(*key, self.tallies[key].form)
        self.masters = {name: after[name] for name in self.masters}

    def weight_gradients(self):
        """dw as it is stored, and the vectors' gradients: (value, error) by parameter."""
        found = {}
        for node in self.network.nodes:
            for name in node.layer.grads:
                value, error = self.sums.get(f"{node.name}.{name}", (None, None))
                if value is None:
                    continue
                if node.layer.weighted and name == "weight" and self.precision.form("weight_gradients", node.name).is_fp32:
                    form = self.precision.form("weight_gradients", node.name)
                    self.spreads = node.name in self.not_finite
                    stored = self.keep(node.name, "dw", value, error, form)
                    self.spreads = False
                    found[f"{node.name}.{name}"] = stored, np.zeros(stored.shape)
                else:
                    found[f"{node.name}.{name}"] = value, error
        return found

    def running_statistics(self, after):
        """Batch norms' running averages, after each part of the batch: average = (1 - momentum) average + momentum batch's."""
        for node in self.network.nodes:
            if not isinstance(node.layer, norms.BatchNorm):
                continue
            m = node.layer.key("momentum", 0.1)
            for name, (values, off) in node.layer.batches.items():
                key = f"{node.name}.{name}"
                average, error = self.running.get(key, self.weights[key]), 0.0
                for value, one in zip(values, off):
                    average, error = (1 - m) * average + m * value, (1 - m) * error + m * one + 1e-6 * np.abs(average)
                got = after[key]
                if np.isfinite(average).all() and not (np.abs(got - average) <= error + 1e-6 * np.abs(average)).all():
                    self.differ(f"checkpoint {key}", got.tolist(), f"expected {average.tolist()}")
                self.running[key] = got
            node.layer.batches = {}

    def compare_rows(self):
        written = self.row_of
        for key, tally in self.tallies.items():
            if key in self.loose:
                continue
            if key not in written:
                self.differ(f"underflow.csv {key[0]},{key[1]}", "no row")
                continue
            for column, got, low, high in tally.differs(written[key]):
                self.differ(f"underflow.csv {key[0]},{key[1]} {column}", f"written {got}", f"expected {low} .. {high}")
        for key in written:
            if key not in self.tallies and key not in self.loose and key[1].split(".")[0] not in ("update", "master", "state", "forward", "dx.dy"):
                self.differ(f"underflow.csv {key[0]},{key[1]}", "a row that is not expected")
        for name in self.written:
            if name not in self.decided:
                self.differ(f"scales.csv {name[0]}", "a row that is not expected")
