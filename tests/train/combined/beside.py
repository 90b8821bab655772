"""A run beside the reference: batch by batch, each op is computed in float64 from what the program stored, rounded,
and compared.

What the dump has replaces what was computed, once it has been found equal (or within what fp32 may be off), so that
the next op starts from the very bits. Of a batch in parts (train.accumulate) a dump has the last part alone: earlier
ones have to be known to the last bit, else the run is given up there (Unsure).
"""

import math

import numpy as np

import products
from averages import Averages
from decisions import Decisions
from exact import single
from formats import TINY, Format, middle
from heads import Heads
from histograms import Histograms
from network import Network, Precision
from policies import policy_of
from random_words import RandomWords
from storing import Storing, Unsure
from taking import Taking
from updates import Joined, Updates

MORE = ("blocks", "accumulators", "histograms", "what_if", "what_if_blocks", "what_if_accumulators")


class Beside(Storing, Taking, Decisions, Heads, Histograms, Averages):
    def __init__(self, run, arrays, weights):
        self.run, self.config = run, run.config
        if "train.tokens" in arrays:  # of sequences: one number a position, and what follows it
            self.images, self.labels = arrays["train.tokens"][:, None, :, None], arrays["train.targets"]
        elif "trainannot" in arrays:  # of pixels: a class each, 255 where it has none
            self.images = self.normalized(arrays["train"].astype(np.float64) / 255).transpose(0, 3, 1, 2)
            labels = arrays["trainannot"].astype(int)
            self.labels = np.where(labels == 255, -1, labels).reshape(len(labels), -1)
        else:
            x = arrays["train.images"].astype(np.float64)
            self.images, self.labels = self.normalized(x).transpose(0, 3, 1, 2), arrays["train.labels"][:, None]
        self.network = Network(self.config, self.images.shape[1:])
        self.policy = policy_of(self.config, self.network)
        self.updates = Updates(self.config)
        self.weights = weights
        self.scaling = self.config.get("scaling", {"policy": "none"})
        self.histories, self.differences = {}, []
        self.operand_formats = {}  # of operands with delayed scales: format and keys
        self.running, self.averages, self.updated, self.averaged = {}, {}, 0, 0
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

    def check(self):
        """Compares every step; returns the list of what differs."""
        self.steps = self.run.csv("steps.csv")
        self.scale_rows = self.run.csv("scales.csv")
        self.rows, self.events = self.run.csv("underflow.csv"), self.run.csv("events.csv")
        self.more_rows = {name: self.run.csv(f"{name}.csv") for name in MORE}
        self.scales, self.masters, self.step = {}, None, 0
        for glob in Precision(self.config, 10**6, self.network).without_effect():
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
        self.not_finite, self.blocks, self.sums_rows, self.used = set(), {}, {}, {}
        self.judged, self.judged_sums = {}, {}
        if self.masters is None:
            form = self.updates.master_format
            trained = lambda name: self.network.by_name[self.network.of_parameter[name][0]].layer.trained
            self.masters = {
                name: form.round(single(w)) if trained(name) else single(w)
                for name, w in self.weights.items()
                if ".running_" not in name
            }
        parts = self.config["train"].get("accumulate", 1)
        size = self.config["data"]["batch_size"]
        per_epoch = len(self.images) // size
        first = (self.step - 1) % per_epoch * size
        whole_dump = self.whole_dump = self.run.dump(self.step)
        self.written = {(r["layer"], r["limit"] == "branch"): r for r in self.scale_rows if int(r["step"]) == self.step}
        self.row_of = {(r["layer"], r["tensor"]): r for r in self.rows if int(r["step"]) == self.step}
        split = lambda a: a[first : first + size].reshape(parts, size // parts, *a.shape[1:])
        self.twins = all((a == a[:1]).all() for a in (split(self.images), split(self.labels)))
        self.twins = self.twins and not any(node.layer.drops for node in self.network.nodes)
        self.load_weights(whole_dump)
        self.sums, self.grad_rows = {}, {}
        self.loss_scale = self.policy.start_scale()
        near = self.policy.near
        if abs(float(row["scale"]) - self.loss_scale) > near * self.loss_scale:
            self.differ("steps.csv scale", row["scale"], f"expected {self.loss_scale!r}")
        self.loss_scale = float(single(float(row["scale"])))
        loss, right = 0.0, 0
        counted = int(np.sum(self.labels[first : first + size] >= 0))  # positions with a target
        for part in range(parts):
            self.part, self.dump = part, whole_dump if part == parts - 1 else None
            some = slice(first + part * size // parts, first + (part + 1) * size // parts)
            logits = self.forward(self.images[some])
            part_loss, part_right, gradient, error = self.loss(logits, self.labels[some], counted)
            loss, right = loss + part_loss, right + part_right
            self.backward(gradient, error)
            if self.dump is None and (self.broken or self.not_finite):
                raise Unsure("a part of the batch that no dump holds is not finite")
        self.dump = whole_dump
        self.close(row, loss, right, counted)

    def load_weights(self, dump):
        self.dump = dump
        own = self.precision.own_scales is not None
        for node in self.network.nodes:
            for name in node.layer.params:
                node.layer.params[name] = self.masters[node.parameter(name)]
            if node.copied:
                w = node.layer.params["weight"]
                form = self.precision.form("weights", node.name, own)
                node.layer.copy = self.keep(node.name, "w", w, 0.0, form, own=own)
            elif node.owner is not node:
                node.layer.copy = node.owner.layer.copy

    def forward(self, images):
        own = self.precision.own_scales is not None
        form = self.precision.form("activations", "input", own)
        ys = {"input": images if self.network.language else self.keep("input", "y", images, 0.0, form, own=own)}
        number = (self.step - 1) * self.config["train"].get("accumulate", 1) + self.part
        for node in self.network.nodes:
            xs = [ys[i] for i in node.inputs]
            node.layer.words = RandomWords(self.config["seed"], node.name, number)
            form = self.precision.form("activations", node.name, own)
            self.spreading(node.layer, *xs, *([node.layer.copy] if node.layer.decides and node.layer.weighted else []))
            if isinstance(node.layer, products.Product):
                node.took, node.scales = {}, {}
                node.layer.accumulated = lambda *product, node=node: self.accumulated(node, *product)
                node.layer.operand = lambda name, stored, node=node: self.operand(node, name, stored, 1.0)
            if node.kind == "attention":
                node.codes = {}
                node.layer.sums = lambda *product, node=node: self.head_sums(node, *product)
                taken = lambda *part, node=node: self.head_operand(node, *part, 1.0)
                p, error = node.layer.forward_p(xs, taken)
                low, high = p - error, p + error
                self.used[node.name, "p"] = None, Format("fp32")
                if node.layer.key("probabilities") != "fp32":
                    low, high = self.tally(node.name, "p", p, error, form, 1.0, own)
                value, error = node.layer.forward((low + high) / 2, (high - low) / 2, taken)
            else:
                value, error = node.layer.forward(xs)
            ys[node.name] = self.keep(node.name, "y", value, error, form, own=own, round_it=not node.layer.moves)
            node.finite = not self.spreads
            self.spreads = False
        return ys[self.network.nodes[-1].name]

    def loss(self, logits, labels, size):
        """Loss, how many are right, the logits' gradient and its error: of the labels [n, positions], of which negative
        ones are left out; size: how many the whole batch has."""
        positions = labels.shape[1]
        z = logits.reshape(len(logits), -1, positions).transpose(0, 2, 1).reshape(labels.size, -1)
        classes, seen, labels = z.shape[1], (labels >= 0).reshape(-1, 1), np.maximum(labels, 0).reshape(-1)
        size = max(size, 1)
        with np.errstate(invalid="ignore", over="ignore"):
            top = z.max(1, keepdims=True)
            log_sum = np.log(np.exp(z - top).sum(1, keepdims=True)) + top
            p = np.exp(z - log_sum)
        smooth = self.config["train"].get("label_smoothing", 0.0)
        target = np.full(z.shape, smooth / classes)
        target[np.arange(len(z)), labels] += 1 - smooth
        counts = np.asarray(self.config["train"].get("class_weights", np.ones(classes)))[labels].reshape(-1, 1)
        with np.errstate(invalid="ignore"):
            loss = float(np.where((target > 0) & seen, counts * target * (log_sum - z), 0).sum() / size)
            gradient = np.where(seen, counts * (p - target) / size * self.loss_scale, 0.0)
        error = counts * (
            (1e-37 + p * (2e-6 + 2e-7 * np.abs(z - log_sum)) + 1.2e-7 * target + 1e-7 * np.abs(p - target))
            / size
            * self.loss_scale
        )
        right = int(np.sum((np.argmax(z, 1) == labels) & seen[:, 0]))
        error = np.where(np.isfinite(error) & seen, error, 0)
        back = lambda a: a.reshape(len(logits), positions, classes).transpose(0, 2, 1).reshape(logits.shape)
        return loss, right, back(gradient), back(error)

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
        goes_on = [
            i != "input" and bool(self.network.by_name[i].trained_before or self.network.by_name[i].layer.trained)
            for i in node.inputs
        ]
        if isinstance(layer, products.Product):
            layer.needs_dx = any(goes_on)
            layer.operand = lambda name, stored: self.operand(node, name, stored, scale if name.endswith("dy") else 1.0)
        found = self.attention(node, dy, scale) if node.kind == "attention" else layer.backward(dy)
        for name, (value, off) in layer.grads.items():
            owner = node.owner if name == "weight" else node
            key = owner.parameter(name)
            with np.errstate(over="ignore", invalid="ignore"):
                if np.any(np.isfinite(value) & (np.abs(value) + off >= 2.0**126)):
                    raise Unsure(f"sums of {key} beyond fp32")
                part = value / scale
                power = math.frexp(scale)[0] == 0.5
                part_error = off / scale + (0 if power else np.abs(part) * 1.2e-7)
                part_error = part_error + TINY * ((np.abs(part) < 2.0**-120) & (single(part) != part))
                if owner is not node:  # it is added to what the owner gives
                    node.owner.layer.shared = part, part_error
                    continue
                if node.tied is not None and name == "weight":
                    value, off = node.layer.shared
                    error = np.abs(part + value) * 1.2e-7 * (single(part + value) != part + value)
                    before = self.sums.get(key, (0.0, 0.0))[0] + value  # earlier parts, to which that is added first
                    error = error + np.abs(before) * 1.2e-7 * (single(before) != before)
                    part, part_error = part + value, part_error + off + error
                self.add_part(node, name, key, part, part_error)
        if not any(goes_on) or node.kind == "attention":
            for i, value in zip(node.inputs, found):
                if node.kind == "attention" and any(goes_on):
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
                hidden = np.isnan(value).any()  # by a format without NaN; inf that saturates is a number
                value = self.keep(node.name, tensor, value, off, self.gradient_form(i, node), out, self.own_gradients())
                if hidden or not np.isfinite(value).all():
                    self.broken.add(node.name)
            elif number == 0 and len(node.inputs) == 1:
                value = self.settle(f"{node.name}.dx", value - off, value + off, off)
            self.arriving.setdefault(i, []).append((index, value, out))
        self.spreads = False

    def add_part(self, node, name, key, part, error):
        """Adds what a part of the batch gives to the sum, which precision.accumulated_gradients may round."""
        sums = self.precision.accumulated_gradients
        if sums is not None and node.name in self.not_finite:
            self.loose |= {(node.name, "dw"), (node.name, "accumulated")}
        if node.layer.weighted and name == "weight":
            if sums is None:
                part, error = self.part_of_dw(node, key, part, error)
            else:
                form = self.precision.form("weight_gradients", node.name)
                low, high = self.tally(node.name, "dw", part, error, form, 1.0, False)
                part, error = middle(low, high)
        part_error = np.broadcast_to(error, np.shape(part))
        total, before = self.sums.get(key, (0.0, 0.0))
        both = total + part
        rounds = 0 if isinstance(total, float) else np.where(single(both) == both, 0, np.abs(both) * 1.2e-7)
        error = np.where(np.isfinite(both), before + error + rounds, 0.0)
        if sums is not None:
            low, high = sums.round(both - error), sums.round(both + error)
            if key in self.sums and np.any(low != high):
                self.loose.add((node.name, "accumulated"))
            tally = self.tallies.setdefault((node.name, "accumulated"), Joined(sums, 1.0))
            tally.row_scale = 1.0
            tally.join(part, part_error, np.broadcast_to(total, np.shape(part)), low, high)
            both, error = middle(low, high)
        self.sums[key] = both, error

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

    def close(self, row, loss, right, size):
        wrong = lambda text, value, off: not (
            abs(float(text) - value) <= off or (math.isnan(value) and text == "nan") or float(text) == value
        )
        if wrong(row["loss"], loss, 2e-5 * abs(loss) + 2e-6):
            self.differ("steps.csv loss", row["loss"], f"expected {loss!r}")
        if wrong(row["accuracy"], right / size, 1e-8) and math.isfinite(loss):
            self.differ("steps.csv accuracy", row["accuracy"], f"expected {right / size}")
        gradients = self.weight_gradients()
        finite = all(np.isfinite(g).all() for g, _ in gradients.values())
        if self.scaling["policy"] == "layerwise_dynamic":  # which looks at every gradient, before it is rounded
            finite = finite and not self.broken & self.policy.keys.keys()
        self.policy.end(self, finite, gradients)
        repair = self.scaling.get("on_overflow")
        skipped = not finite and repair is None
        if not finite and repair is not None:
            gradients = self.repaired(gradients, repair)
        if (row["overflow"], row["skipped"]) != (str(int(not finite)), str(int(skipped))):
            self.differ("steps.csv overflow, skipped", row["overflow"], row["skipped"], f"expected {int(not finite)}")
        after = self.run.checkpoint(self.step)
        self.updates.apply(self, row, gradients, skipped, after)
        self.updates.end(self, finite, skipped)
        self.running_statistics(after)
        self.average(after, skipped)
        self.compare_rows()
        for key, amax in self.amax.items():
            history = self.histories.setdefault(key, [])
            if math.isfinite(amax[0]):
                history.append(amax)
            self.next_scale(*key, *self.operand_formats.get(key, (self.tallies[key].form,) if key in self.tallies else ()))
        self.masters = {name: after[name] for name in self.masters}

    def repaired(self, gradients, keys):
        """What scaling.on_overflow puts in the place of NaN and inf, values that carry S."""
        keys = {} if isinstance(keys, str) else keys
        nan, most = (single(keys.get(k, d) / self.loss_scale) for k, d in (("nan", 0.0), ("inf", 1e5)))
        return {
            name: (np.nan_to_num(g, nan=nan, posinf=most, neginf=-most), np.where(np.isfinite(g), off, 0.0))
            for name, (g, off) in gradients.items()
        }

    def weight_gradients(self):
        """dw as it is stored, and the vectors' gradients: (value, error) by parameter."""
        found = {}
        for node in self.network.nodes:
            for name in node.layer.grads:
                value, error = self.sums.get(node.parameter(name), (None, None))
                if value is None:
                    continue
                if self.precision.accumulated_gradients is not None:
                    if node.layer.weighted and name == "weight":
                        self.spreads = node.name in self.not_finite
                        value, error = self.settle(f"{node.name}.dw", value - error, value + error, error), 0.0
                        self.spreads = False
                    found[node.parameter(name)] = value, error + np.zeros(np.shape(value))
                elif (
                    node.layer.weighted
                    and name == "weight"
                    and self.precision.form("weight_gradients", node.name).is_fp32
                ):
                    form = self.precision.form("weight_gradients", node.name)
                    self.spreads = node.name in self.not_finite
                    stored = self.keep(node.name, "dw", value, error, form)
                    self.spreads = False
                    found[node.parameter(name)] = stored, np.zeros(stored.shape)
                else:
                    found[node.parameter(name)] = value, error
        return found

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
            if (
                key not in self.tallies
                and key not in self.loose
                and key[1].split(".")[0] not in ("update", "master", "state", "ns", "orthogonality")
            ):
                self.differ(f"underflow.csv {key[0]},{key[1]}", "a row that is not expected")
        for name, counted in (("blocks", self.blocks), ("accumulators", self.sums_rows)):
            self.compare_more(name, counted)
        self.compare_histograms()
        for name in self.written:
            if name not in self.decided:
                self.differ(f"scales.csv {name[0]}", "a row that is not expected")

    def compare_more(self, name, counted):
        """blocks.csv or accumulators.csv of the step."""
        rows = {(r["layer"], r["tensor"]): r for r in self.more_rows[name] if int(r["step"]) == self.step}
        for key in (rows.keys() ^ counted.keys()) - self.loose:
            self.differ(f"{name}.csv {key[0]},{key[1]}", "one row too many, or none")
        for key in (rows.keys() & counted.keys()) - self.loose:
            for column, got, value in counted[key].differs(rows[key]):
                self.differ(f"{name}.csv {key[0]},{key[1]} {column}", f"written {got}", f"expected {value}")
