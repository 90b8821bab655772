"""Operands beside the run: what a product takes of a stored tensor, with the rows of underflow.csv and blocks.csv."""

import math

import numpy as np

import products
from accumulators import Accumulated
from blocks import Counts
from exact import single
from formats import Tally, stored_ends
from operands import PAIRS, Operand, row_scales, transform
from ordered import of_convolution, of_linear
from storing import Unsure


class BlockTally(Tally):
    """A row of underflow.csv of an operand in blocks: values that decode to zero, and those that saturate."""

    def add_block(self, value, decoded, seen):
        everything = np.ones(value.shape)
        gone = decoded == 0
        exactly = lambda name, what: self._add(name, what, what)
        exactly("numel", everything)
        exactly("zeros_before", value == 0)
        exactly("zeros_after", gone)
        exactly("underflow", gone & (value != 0) & ~np.isnan(value))
        exactly("below", gone)
        exactly("inf", np.isinf(value))
        exactly("nan", np.isnan(value))
        self.found["overflow"] = (self.found.get("overflow", (0, 0))[0] + seen["saturated"],) * 2
        self.seen.append((value, np.zeros(value.shape), self.scale))
        self._extremes(value / self.scale, np.zeros(value.shape))


class Taking:
    """The part of Beside that knows what products take."""

    def count_blocks(self, key, form, scale, value, decoded, seen):
        """Adds an operand in blocks to its rows of underflow.csv and blocks.csv; returns both."""
        tally = self.tallies.setdefault(key, BlockTally(form, scale))
        tally.scale = tally.row_scale = scale
        counts = self.blocks.setdefault(key, Counts(form))
        before = counts.n.get("saturated", 0)
        counts.add(seen, scale)
        tally.add_block(value, decoded, {"saturated": counts.n["saturated"] - before})
        return tally, counts

    def operand(self, node, name, stored, scale):
        """The operand that a product takes of a stored tensor, counted as a rounding of its own."""
        self.judge_operand(node, name, stored, scale)
        operand = self.precision.operand(node.name, name)
        node.scales.pop(name, None)
        rule = self.precision.hadamard(node.name, name.split(".")[0])
        if rule is not None:
            operand = operand or Operand({"format": "fp32"}, {}, {"kind": "none"})
            over, over_back = node.layer.transformed(name, stored)
            stored = over_back(transform(over, *rule))
            stored = self.after_transform(node, name, stored)
        node.layer.spread[name] = None
        if operand is None:
            return stored
        if operand.as_forward:
            source = "forward." + name.split(".")[1]
            taken, tally, counts = node.took.get(source, (stored, None, None))
            node.layer.spread[name] = node.layer.spread.get(source)
            node.scales[name] = node.scales[source]
            if tally is not None and not (name.endswith(".w") and self.part > 0):
                self.tallies[node.name, name] = tally
                if counts is not None:
                    self.blocks[node.name, name] = counts
            return taken
        counts = None
        once = name.endswith(".w") and self.part > 0  # a step's parts take the same copies of weights
        logged = "operands" in self.config["log"]["statistics"] and not once
        key = node.name, name
        square = operand.block and operand.form.tile[0] > 1  # the same tiles, whatever the sum is over
        whole = {"x": "forward.x", "w": "forward.w", "dy": "dx.dy"}[name.split(".")[1]]
        lines, back = node.layer.lines(whole if square else name, stored)
        if operand.block and operand.form.tensor_scale:
            node.layer.scaled.add(name.split(".")[0])
        if operand.block:
            decoded, seen = operand.form.quantize(lines)
            taken = back(decoded)
            node.scales[name] = 1.0, None
            if operand.form.tensor_scale:
                part = float(single(float(np.max(np.abs(stored))) * single(1 / operand.form.tensor_top)))
                power = 2.0 ** (math.frexp(part)[1] - 1) if part else 1.0  # it stays in the values
                node.scales[name] = power / part if part else 1.0, back(seen["coded"]) * power
            if logged:
                tally, counts = self.count_blocks(key, operand.form, scale, stored, taken, seen)
        else:
            factor = self.operand_factor(operand, key, lines, back)
            low, high = stored_ends(stored, 0.0, operand.form, factor, operand.stochastic)
            taken = (low + high) / 2 if operand.stochastic else low
            node.layer.spread[name] = np.nan_to_num((high - low) / 2) if operand.stochastic else None
            node.scales[name] = 1.0 if factor is None else factor, operand.form
            if logged:
                tally = self.tallies.setdefault(key, Tally(operand.form, scale))
                tally.scale = tally.row_scale = scale
                if factor is not None and np.ndim(factor) == 0:
                    tally.row_scale = float(single(scale * factor))
                if operand.stochastic:
                    tally.add_between(stored, np.zeros(stored.shape), low, high, factor)
                else:
                    tally.add(stored, np.zeros(stored.shape), taken, factor)
        node.took[name] = taken, self.tallies.get(key), counts
        if not np.isfinite(taken).all():
            self.spreads = True
            self.not_finite.add(node.name)
        return taken

    def accumulated(self, node, product, a, b):
        """(value, error) of a product under precision.accumulate; None: sums in fp32."""
        self.judge_sums(node, product, a, b)
        rule = self.precision.accumulator(node.name, product)
        if rule is None:
            return None
        return self.sums_by(node, product, a, b, rule, self.sums_rows.setdefault((node.name, product), Accumulated()))

    def sums_by(self, node, product, a, b, rule, row):
        """(value, error) of a product by a rule, counted into the row; None where its operands are not finite."""
        layer, names = node.layer, PAIRS[product]
        (a, scale_a, low_a), (b, scale_b, low_b) = (
            self.codes(node, f"{product}.{name}", value) for name, value in zip(names, (a, b))
        )
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            self.loose.add((node.name, product))
            return None
        order = of_linear if isinstance(layer, products.Linear) else of_convolution
        pairs, back = order(layer, product, a, b)
        if product == "dw":
            low_a, low_b = (low_a, low_b) if layer.transposed and order is of_convolution else (low_b, low_a)
        if np.ndim(scale_a) or np.ndim(scale_b):
            spread = [np.broadcast_to(s, c.shape).astype(np.float64) for s, c in ((scale_a, a), (scale_b, b))]
            scales, _ = order(layer, product, *spread)
            taps = 1 if product == "dw" or order is of_linear else math.prod(layer.kernel)
            made = [rule.by_rows(*pair, *of, taps, low_a, low_b, row) for pair, of in zip(pairs, scales)]
            return back([value for value, _ in made]), back([error for _, error in made])
        made = []
        for x, w in pairs:
            result, count, cut = rule.sums(x, w, low_a, low_b)
            row.add(result, x @ w.T, np.abs(x) @ np.abs(w).T, count, cut)
            made.append(result)
        value = back(made)
        if scale_a * scale_b > 2.0**126:
            raise Unsure("scales of codes beyond fp32")
        with np.errstate(over="ignore", invalid="ignore"):
            value = value / (scale_a * scale_b)
        exactly = all(math.frexp(s)[0] == 0.5 for s in (scale_a, scale_b))
        return value, np.zeros(value.shape) if exactly else np.abs(np.nan_to_num(value, posinf=0, neginf=0)) * 5e-7

    def codes(self, node, name, taken):
        """An operand as it is added: values times the scale of the tensor, that scale, and the least exponent."""
        if name in node.scales:
            scale, form = node.scales[name]
            if isinstance(form, np.ndarray):
                return form, scale, -126
            if form is None:
                return taken, scale, -126
            return form.round(single(taken * scale)), scale, form.lowest
        tensor = name.split(".")[1]
        at = {"w": (node.owner.name, "w"), "x": (self.network.root(node.inputs[0]), "y")}
        own, form = self.used[at[tensor] if tensor in at else self.dy_from(node)]
        return (taken, 1.0, form.lowest) if own is None else (form.round(single(taken * own)), own, form.lowest)

    def dy_from(self, node):
        """Layer and tensor of which a layer's dy is stored: a sum of branches, or what one reader gave."""
        readers = node.readers
        if len(readers) > 1 or readers and readers[0].kind == "attention":
            return node.name, "dy"
        if not readers:
            return "loss", "dx"
        reader = readers[0]
        if reader.layer.rounds_dx:
            second = reader.kind == "multiply" and reader.inputs[1] == node.name
            return reader.name, "dx2" if second else "dx"
        return self.dy_from(reader)

    def after_transform(self, node, name, stored):
        """Where bf16 is stored, as all modes but to nearest are not, what the transform gives is rounded to bf16."""
        role = {"x": "activations", "w": "weights", "dy": "gradients"}[name.split(".")[1]]
        of = node.name
        if role == "activations":
            of = self.network.root(node.inputs[0])
        at = {"weights": (node.owner.name, "w"), "activations": (of, "y")}
        own, form = self.used[at[role] if role in at else self.dy_from(node)]
        plain = form.name == "bf16" and form.mode == "nearest" and not form.keeps_inf
        return form.round(stored) if plain and own is None else stored

    def operand_factor(self, operand, key, lines, back):
        """The scale of an operand in a plain format: None, a number, or an array of the scales of its rows."""
        keys, form = operand.scaling, operand.form
        if not operand.scaled:
            return None
        kind = keys["kind"]
        if kind == "static":
            return float(single(self.power(keys.get("values", {}).get(key[1].split(".")[1], 1), keys)))
        if kind == "row":
            s = row_scales(np.max(np.abs(lines), axis=2, keepdims=True), form.largest, keys)
        elif kind == "current":
            s = row_scales(np.max(np.abs(lines)), form.largest, keys)
        if kind in ("row", "current"):
            if np.isinf(s).any():
                raise Unsure("a scale beyond fp32")
            return back(np.broadcast_to(s, lines.shape)) if kind == "row" else float(s)
        s, _, _ = self.next_scale(*key, form, keys)
        most = float(np.max(np.abs(lines)))
        self.amax[key] = max(self.amax.get(key, (0.0, 0.0)), (most if math.isfinite(most) else math.inf, 0.0))
        self.operand_formats[key] = form, keys
        return s

    @staticmethod
    def power(s, keys):
        return 2.0 ** (math.frexp(s)[1] - 1) if keys.get("power_of_two") else s
