"""Attention beside the run: its gradients, each with an alpha, what its six products take, and accumulators' sums."""

import itertools
import math

import numpy as np

import rules
from accumulators import Accumulated
from blocks import Counts
from exact import single
from formats import Format, Tally, middle, stored_ends
from storing import Unsure

ALONG_LAST = ("s.q", "s.k", "y.p", "dp.dy", "dp.v", "dq.ds")  # others: along keys or queries, the axis before


class Heads:
    """The part of Beside that knows attention."""

    def attention(self, node, dy, scale):
        """dv, ds, dq, dk, each with an alpha; brought to one scale in the layout of q, k and v where one layer has
        them."""
        layer = node.layer
        form_own = self.precision.form("gradients", node.name, self.own_gradients())
        apart = dict(zip(("dq", "dk", "dv"), node.inputs)) if len(node.inputs) == 3 else {}
        p, v = layer.p, layer.v
        t, g = layer.tokens, layer.heads // layer.kv
        on = self.scaling.get("attention", True)
        taken = lambda name, value, error, by: self.head_operand(node, name, value, error, by)
        (dv, dv_off), (ds, ds_off) = layer.gradients(dy, lambda *part: taken(*part, scale))
        top = lambda a: float(np.max(np.abs(a)))
        least = lambda a: rules.magnitudes(a)[0]
        square = lambda a: float(np.mean(a**2))
        operands = {
            "dv": (square(p), least(p), top(p), t * g),
            "ds": (square(p) * square(v), (least(p) or 0.0) * (least(v) or 0.0), top(p) * top(v), layer.width),
            "dq": (layer.c**2 * square(layer.k), layer.c * (least(layer.k) or 0), layer.c * top(layer.k), t),
            "dk": (layer.c**2 * square(layer.q), layer.c * (least(layer.q) or 0), layer.c * top(layer.q), t * g),
        }
        stored = {}
        unsure = np.nan_to_num(square(np.abs(p) + layer.p_error) / max(square(p), 1e-300) - 1)  # of p's mean square
        unsure = max(unsure, 0.0)  # where all of p is dropped

        def one(part, value, off, s_in, seen, seen_off):
            if part == "ds" and layer.key("score_gradients") == "fp32":
                self.used[node.name, part] = None, Format("fp32")
                return value, off, s_in
            operand = lambda keys: rules.Operand(*operands[part], None)
            if on or self.scaling["policy"] != "adaptive":
                share = np.nan_to_num(seen_off / np.abs(seen), nan=0.0, posinf=1.0)
                near = 2e-3 + float(np.max(share, initial=0.0))
                if part in ("dv", "ds"):
                    extremes = self.keys_of(f"{node.name}.{part}").get("method") in ("abs_range", "element_wise_range")
                    near += float(np.max(np.nan_to_num(layer.p_error / p), initial=0.0)) if extremes else unsure
                alpha, out = self.decide(f"{node.name}.{part}", s_in, seen, operand, (value, off), form_own, near)
            else:
                self.decided[f"{node.name}.{part}", False] = True
                written = self.written.get((f"{node.name}.{part}", False)) if self.dump is not None else None
                alpha, out = self.compare_decision(
                    f"{node.name}.{part}", written, s_in, [(None, None, None, 1.0, "none")]
                )
            low, high = self.tally(node.name, part, value * alpha, off * alpha, form_own, out, self.own_gradients())
            gone = ~np.isfinite(low) & ((low == high) | np.isnan(low) & np.isnan(high))
            if gone.any() or np.isnan(value).any():  # which a format without NaN hides
                self.broken.add(f"{node.name}.{part}")
            stored[part] = (low + high) / 2, (high - low) / 2, out
            return stored[part]

        one("dv", dv, dv_off, scale, dy, np.zeros(dy.shape))
        kept, kept_off, s_out = one("ds", ds, ds_off, scale, dy, np.zeros(dy.shape))
        (dq, dq_off), (dk, dk_off) = layer.of_scores(kept, kept_off, lambda *part: taken(*part, s_out))
        one("dq", dq, dq_off, s_out, kept, kept_off)
        one("dk", dk, dk_off, s_out, kept, kept_off)
        if not all(
            np.isfinite(a).all()
            for a in (dy, ds_off, dq_off, dk_off, *(a for part in stored.values() for a in part[:2]))
        ):  # NaN meets what is masked, or does not
            self.loose |= {(node.name, part) for part in operands}
        names = ("dq", "dk", "dv")
        if apart:
            return [self.given(node, part, apart[part], *stored[part]) for part in names]
        before = self.network.by_name[node.inputs[0]]
        form = self.gradient_form(before.name)
        target, _ = self.common_scale(before, [(top(stored[k][0]), stored[k][2]) for k in names], form)
        whole, off = (
            np.concatenate([layer.join(single(stored[k][i] * single(target / stored[k][2]))) for k in names], 1)
            for i in (0, 1)
        )
        whole, off = (a.reshape(len(a), *before.layer.shape) for a in (whole, off))
        if (node.name, "ds") in self.loose:
            self.loose.add((before.name, "dy"))
            if self.dump is None and not self.twins:
                raise Unsure(before.name)
            own = self.own_scale(before.name, "dy", form, target) if self.own_gradients() else None
            self.used[before.name, "dy"] = own, form
            return [(self.whole_dump[f"{before.name}.dy"].reshape(whole.shape), target)]
        return [(self.keep(before.name, "dy", whole, off, form, target, self.own_gradients()), target)]

    def given(self, node, part, to, value, off, scale):
        """(dy, S) of the layer `to`, which gave queries, keys or values to this attention alone."""
        value, off = (node.layer.join(a).reshape(len(a), *self.network.by_name[to].layer.shape) for a in (value, off))
        form = self.precision.form("gradients", node.name, self.own_gradients())
        own = self.scales[node.name, part] if self.own_gradients() and not form.is_fp32 else None
        self.used[to, "dy"] = own, form
        if (node.name, "ds") in self.loose or (node.name, part) in self.loose:
            self.loose.add((to, "dy"))
            if self.dump is None and not self.twins:
                raise Unsure(to)
            return self.whole_dump[f"{to}.dy"].reshape(value.shape), scale
        return self.settle(f"{to}.dy", value - off, value + off, off), scale

    def head_operand(self, node, name, value, error, scale):
        """(value, error) of the operand that a product of attention takes: [images, heads, rows, columns]."""
        operand = self.precision.head_operand(node.name, name.split(".")[1])
        gradient = name.endswith(("dy", "ds"))
        scale, key = scale if gradient else 1.0, (node.name, name)
        turned = name not in ALONG_LAST
        lines = np.swapaxes(value, 2, 3) if turned else value
        flat = lines.reshape(-1, *lines.shape[2:])
        self.judge_head(key, flat, error, scale)
        if operand is None:
            own, form = self.used[self.head_tensor(node, name)]
            self.head_codes(node, name, value - error, value + error, own, form)
            return value, error

        def back(x):
            x = np.broadcast_to(x, flat.shape).reshape(lines.shape)
            return np.swapaxes(x, 2, 3) if turned else x

        logged = "operands" in self.config["log"]["statistics"]
        if operand.block:
            if np.any(error):
                raise Unsure(name)
            decoded, seen = operand.form.quantize(flat)
            if logged:
                self.count_blocks(key, operand.form, scale, value, back(decoded), seen)
            node.codes[name] = back(decoded), back(decoded), 1.0, -126, None
            if operand.form.tensor_scale:
                part = float(single(float(np.max(np.abs(value))) * single(1 / operand.form.tensor_top)))
                power = 2.0 ** (math.frexp(part)[1] - 1) if part else 1.0  # it stays in the values
                coded = back(seen["coded"]) * power
                node.codes[name] = coded, coded, power / part if part else 1.0, -126, None
            return back(decoded), error
        factor = self.operand_factor(operand, key, flat, back)
        low, high = stored_ends(value, error, operand.form, factor)
        self.head_codes(node, name, low, high, factor, operand.form)
        if logged:
            tally = self.tallies.setdefault(key, Tally(operand.form, scale))
            tally.scale = tally.row_scale = scale
            if factor is not None and np.ndim(factor) == 0:
                tally.row_scale = float(single(scale * factor))
            tally.add_between(value, error, low, high, factor)
        if not np.isfinite(low + high).all():
            self.loose.add(key)
        return middle(low, high)

    def judge_head(self, key, flat, error, scale):
        """Blocks of an operand of attention, by each scenario in blocks."""
        for scenario in self.scenarios():
            if scenario.block is None:
                continue
            if np.any(error):
                self.loose.add(key)
            counts = self.judged.setdefault((*key, scenario.name), Counts(scenario.block))
            counts.add(scenario.block.quantize(flat)[1], scale)

    def head_tensor(self, node, name):
        """Layer and tensor of which an operand is stored."""
        tensor = name.split(".")[1]
        if tensor in ("p", "ds"):
            return node.name, tensor
        if tensor == "dy":
            return self.dy_from(node)
        return self.network.root(node.inputs["qkv".index(tensor) if len(node.inputs) == 3 else 0]), "y"

    def head_codes(self, node, name, low, high, factor, form):
        """Keeps an operand as an accumulator adds it: values times its scale, between two ends."""
        by = 1.0 if factor is None else factor
        codes = [end if factor is None else form.round(single(end * by)) for end in (low, high)]
        node.codes[name] = *codes, by, form.lowest, form

    def head_sums(self, node, product, first, second):
        """(value, error) of a product of attention by its accumulator, None: fp32; scenarios judge it before."""
        for scenario in self.scenarios():
            if scenario.rule is not None:
                row = self.judged_sums.setdefault((node.name, product, scenario.name), Accumulated())
                self.heads_by(node, product, (first, second), scenario.rule, row)
        rule = self.precision.accumulator(node.name, product)
        if rule is None:
            return None
        row = self.sums_rows.setdefault((node.name, product), Accumulated())
        made = self.heads_by(node, product, (first, second), rule, row)
        self.spreads |= made is None and product == "forward"
        return made

    def heads_by(self, node, product, names, rule, row):
        """The sums of all heads, counted into the row; None where operands are not finite."""

        def lines(name, a):
            a = np.swapaxes(a, 2, 3) if name not in ALONG_LAST else a
            return a if a.shape[1] == node.layer.heads else node.layer.many(a)

        (low, high, scale_a, least_a, form), (b, _, scale_b, least_b, _) = (node.codes[name] for name in names)
        low, high, b = lines(names[0], low), lines(names[0], high), lines(names[1], b)
        if not all(np.isfinite(x).all() for x in (low, high, b)):
            given = ("y",) if product == "forward" else ("dv", "ds", "dq", "dk")
            self.loose |= {(node.name, tensor) for tensor in (product, *given)}
            return None
        by_rows, made = np.ndim(scale_a) or np.ndim(scale_b), []
        if by_rows:
            scale_a, scale_b = (
                lines(name, np.broadcast_to(s, node.codes[name][0].shape)) for name, s in zip(names, (scale_a, scale_b))
            )
        row.of_either(low, high)
        for at in np.ndindex(low.shape[:2]):
            if by_rows:
                if (low[at] != high[at]).any():
                    raise Unsure(names[0])
                of = (scale_a[at], scale_b[at])
                made.append(rule.by_rows(low[at], b[at], *of, 1, least_a, least_b, row))
                continue
            result, count, cut = rule.sums(low[at], b[at], least_a, least_b)
            row.add(result, low[at] @ b[at].T, np.abs(low[at]) @ np.abs(b[at]).T, count, cut)
            made.append(self.between(rule, low[at], high[at], b[at], (least_a, least_b), form, result))
        value, error = (np.stack(part).reshape(*low.shape[:2], *part[0].shape) for part in zip(*made))
        if by_rows:
            return value, error
        if scale_a * scale_b > 2.0**126:
            raise Unsure("scales of codes beyond fp32")
        with np.errstate(over="ignore", invalid="ignore"):
            value, error = value / (scale_a * scale_b), error / (scale_a * scale_b)
        if not all(math.frexp(s)[0] == 0.5 for s in (scale_a, scale_b)):
            error = error + np.abs(np.nan_to_num(value, posinf=0, neginf=0)) * 5e-7
        return value, error

    @staticmethod
    def between(rule, low, high, b, least, form, result):
        """(middle, how far) of sums of which some codes are one of two neighbors: all that they may be, or a bound."""
        ends = [result.copy(), result.copy()]
        for row in np.flatnonzero((low != high).any(1)):
            unsure = np.flatnonzero(low[row] != high[row])
            steps = form is not None and not form.is_fp32 and len(unsure) <= 5
            if not steps or any(form.neighbors((low[row, i] + high[row, i]) / 2) != (low[row, i], high[row, i]) for i in unsure):
                most, half = np.maximum(np.abs(low[row]), np.abs(high[row])), (high[row] - low[row]) / 2
                off = half @ np.abs(b).T + rule.off(most[None], np.abs(b), *least)[0]
                if not np.isfinite(off).all():
                    raise Unsure("codes of a sum")
                exact = (low[row] + half) @ b.T
                ends[0][row], ends[1][row] = exact - off, exact + off
                continue
            for chosen in itertools.product((0, 1), repeat=len(unsure)):
                a = low[row].copy()
                a[unsure] = np.where(chosen, high[row, unsure], low[row, unsure])
                found = rule.sums(a[None], b, *least)[0][0]
                ends[0][row], ends[1][row] = np.minimum(ends[0][row], found), np.maximum(ends[1][row], found)
        return middle(*ends)
