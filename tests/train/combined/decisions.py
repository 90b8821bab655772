"""Scales on the way back: what each layer decides, and where branches meet, beside the rows of scales.csv."""

import math

import numpy as np

import norms
import products
import rules
from exact import single
from formats import Format
from network import entries
from storing import Unsure

ONE_SCALE = ("none", "fixed", "dynamic", "logmax", "histogram")


def shown(text):
    """What a number of nine digits may stand for: itself, or the fp32 nearest to it."""
    return sorted({float(text), float(np.float32(text))})


class Decisions:
    """The part of Beside that knows S and alpha."""

    def keys_of(self, name):
        within = [name] + [
            n.name for n in self.network.nodes if n.kind == "attention" and name.rsplit(".", 1)[0] == n.name
        ]
        return {
            **{k: v for k, v in self.scaling.items() if k != "layers"},
            **entries(self.scaling.get("layers", []), *within),
        }

    def alpha(self, node, layer, dy, scale, found):
        """alpha and S_out of a layer, after its row of scales.csv has been compared."""
        decides = layer.decides or (
            isinstance(layer, norms.BatchNorm)
            and self.scaling["policy"] == "adaptive"
            and self.scaling.get("batch_norm", False)
        )
        if not decides:
            return 1.0, scale
        operand = None
        if isinstance(layer, products.Product):
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
        if "total_scale" in keys:
            alpha = keys["total_scale"] / scale
            return self.compare_decision(name, written, scale, [(alpha, None, None, alpha, "state")])
        method = keys.get("method", "approx_range")
        if near > 0.1 and method not in ("fixed", "exact_range"):  # of a difference that may be zero
            row = self.written.get((name, False))
            if row is None or self.dump is None and not self.twins:
                raise Unsure(f"alpha of {name}")
            near = 1.0
        state = self.states.setdefault(name, {"passes": 0, "cached": None, "last": None, "new": False})
        u_min, u_max = keys.get("u_min", form.smallest), form.largest
        every = keys.get("update_interval", 1)
        if method == "exact_range":
            options = self.by_exponents(name, written, keys, state, every, scale, u_min, u_max)
            if (state["last"] is None or state["passes"] % every == 0) and np.isfinite(dgrad[0]).all():
                state["last"] = (dgrad[0], np.broadcast_to(dgrad[1], dgrad[0].shape), scale)
                state["new"] = True
        elif method == "fixed":
            options = [rules.unbound(method, keys, dy, None, u_min, u_max)]
        elif state["passes"] % every != 0:
            options, near = [(value, "stale") for value, _ in state["cached"]], state["near"]
        else:
            seen = operand(keys) if operand else None
            if not np.isfinite(dy).all() or (seen and not math.isfinite(seen.mean_square)):
                return self.compare_decision(
                    name, written, scale, [(1.0, None, 1.0, 1.0, "nonfinite")], only=("alpha", "limit")
                )
            value, words = rules.unbound(method, keys, dy, seen, u_min, u_max)
            ends = (1, 1 + near, 1 - near) if words != "one" else (1,)
            options = [(value * end, word) for word in words.split(" or ") for end in ends]
            state["cached"], state["near"] = options, near
        state["passes"] += 1
        choices = []
        if near == 1.0:
            word = {"SB": "target", "AB": "target"}.get(row["limit"], row["limit"])
            options = [(value, word) for value in shown(row["unbound"])]
            state["cached"], state["near"] = options, rules.NEAR
        for value, word in options:
            bound, pow2, alpha, limit = rules.pipeline(method, keys, value, word, scale)
            choices.append((value, bound, pow2, alpha, limit))
        return self.compare_decision(name, written, scale, choices, near)

    def by_exponents(self, name, written, keys, state, every, scale, u_min, u_max):
        """exact_range: what the exponents of the last pass that was looked at allow."""
        if state["last"] is None:
            return [(1.0, "one")]
        if every > 1 and not state["new"]:
            return [(value, "stale") for value, _ in state["cached"]]
        options = rules.exact_range(keys, state["last"], scale, u_min, u_max)
        if options is None:  # the last dgrad is little but what fp32 left of a difference
            if written is None:
                raise Unsure(f"exponents of {name}")
            options = [(value, written["limit"]) for value in shown(written["unbound"])]
        state["cached"], state["new"] = options, False
        return options

    def compare_decision(
        self, name, written, scale, choices, near=rules.NEAR, only=("unbound", "bound", "pow2", "alpha", "limit")
    ):
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
            power = column in ("alpha", "pow2") and math.frexp(value)[0] == 0.5
            return abs(float(text) - value) <= (1e-6 if power else 1.5 * near) * abs(value)

        if not any(all(same(c, v) for c, v in zip(columns, choice) if c in only) for choice in choices):
            self.differ(
                f"scales.csv {name}",
                {c: written[c] for c in columns},
                f"expected {dict(zip(columns, choices[0]))}",
                f"{len(choices)} choices",
                f"S {scale!r}",
            )
        alpha, out = float(written["alpha"]), float(written["scale_out"])
        if out != single(scale * alpha):
            self.differ(f"scales.csv {name} scale_out", written["scale_out"], f"expected {scale * alpha!r}")
        return alpha, out

    def meet(self, node, branches):
        """The gradients that an output gets, at one scale, added and rounded once."""
        if len(branches) == 1:
            dy, scale = branches[0][1:]
            self.settle(f"{node.name}.dy", dy, dy, np.zeros(dy.shape))
            return dy, scale
        form = self.gradient_form(node.name)
        target, total = self.common_scale(
            node, [(float(np.abs(g).max()), s) for _, g, s in branches], form, lambda at: self.branch_sum(branches, at)
        )
        return self.keep(node.name, "dy", total, 0.0, form, target, self.own_gradients()), target

    def branch_sum(self, branches, target):
        total = 0.0
        for _, g, s in branches:
            total = single(total + single(g * single(target / s)))
        return total

    def common_scale(self, node, branches, form, add=None):
        """The scale at which branches [(largest magnitude, S)] meet, and their sum; that of the row where one is not
        finite."""
        written = self.written.get((node.name, True))
        self.decided[node.name, True] = True
        if self.own_gradients() and not form.is_fp32:  # whose scale keeps any sum in range
            form = Format("fp32")
        largest = float(np.max([m / s for m, s in branches]))
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
                    self.differ(
                        f"scales.csv {node.name} scale_out", written["scale_out"], f"expected {target!r} (branch)"
                    )
                target = float(written["scale_out"])
                total = add(target) if add else None
        return target, total

    @staticmethod
    def fitting_scale(branches, largest, form):
        """The largest of the branches' scales under which nothing reaches the format's end; equal scales need no
        factor."""
        scales = {s for _, s in branches}
        if len(scales) == 1 or not math.isfinite(largest):
            return min(scales)
        fitting = [s for s in scales if largest * s < form.largest]
        if fitting:
            return max(fitting)
        smallest = min(scales)
        for halvings in range(1, 5):
            if largest * smallest / 2**halvings < form.largest:
                return smallest / 2**halvings
        return 2.0 ** (math.frexp(form.largest / largest)[1] - 1)

    def own_gradients(self):
        return self.precision.own_scales is not None and self.scaling["policy"] in ONE_SCALE

    def gradient_form(self, name, reader=None):
        """The format of a gradient by what `name` gives, of the layer that reads it (None: of their sum)."""
        root = self.network.root(name)
        return self.precision.form("gradients", root, self.own_gradients(), reader)
