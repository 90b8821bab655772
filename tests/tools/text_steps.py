"""Recorded training steps of transformers (tests/golden/README.md) beside this program's: the
configuration of a recorded case, its run, and what differs by more than the recording's tolerances.

usage: text_steps.py BINARY FOLDER [NET [CASE]]     prints a line a case; exit 1 where one differs
NumPy only.
"""
import csv
import json
import math
import pathlib
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import network_step

NETWORKS = ("gpt2", "llama", "vit")
CASES = ("fp32", "fp16_fixed1024", "fp16_adaptive", "bf16")
# How far a second implementation with fp32 sums is from the recordings, by case in this order, and
# five times it is allowed. None: not compared; 0: equal.
TIMES = 5
LOSS = ((8e-8, 5e-5, 5e-5, 9e-5), (6e-8, 7e-5, 3e-4, 1e-3), (1e-7, 3e-4, 3e-4, 2e-3),
        (1e-7, 3e-4, 3e-4, 2e-3))
NORM = ((1e-7, 9e-5, 4e-4, 1e-3),) + ((1e-6, 1e-2, 2e-2, 6e-3),) * 3
GRADIENT = (3e-6, None, 4e-3, None)
UNBOUND = 4e-2
ROW = (0, 1e-3, 5e-3, 2e-3)  # of a row's numel
WEIGHTS = (2e-5, 4e-2, 5e-2, 7e-2)


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


class Recording:
    """One case of one network."""

    def __init__(self, folder, net, case):
        self.folder, self.net, self.case = pathlib.Path(folder) / net, net, case
        self.files = self.folder / case
        self.column = CASES.index(case)
        self.model = json.loads((self.folder / "model.json").read_text())
        self.facts = json.loads((self.files / "case.json").read_text())
        self.start = network_step.Tensors(self.folder / "init.safetensors")

    def tolerance(self, table, step=None):
        row = table if step is None else table[step - 1]
        return None if row[self.column] is None else TIMES * row[self.column]

    def write_data(self, path):
        data = network_step.Tensors(self.folder / "data.safetensors")
        x, y = data["x"], data["y"].astype(numpy.int32)
        self.batch = x.shape[1]
        x, y = x.reshape(-1, *x.shape[2:]), y.reshape(-1, *y.shape[2:])
        vit = self.net == "vit"
        if vit:
            x = numpy.ascontiguousarray(x.transpose(0, 2, 3, 1))
        names = ("images", "labels") if vit else ("tokens", "targets")
        network_step.write_arrays(path, {
            f"{split}.{name}": numpy.ascontiguousarray(a[:end]) for split, end in
            (("train", len(x)), ("test", self.batch)) for name, a in zip(names, (x, y))})

    def model_keys(self):
        m = self.model
        keys = {"zoo": self.net, "eps": m["eps"],
                **{key: m[key] for key in ("layers", "heads", "width", "hidden", "head_dim")},
                "init": {"weights": str((self.folder / "init.safetensors").resolve()),
                         "require_all": True}}
        if self.net == "vit":
            keys.update(patch=m["patch"], classes=m["classes"])
        else:
            keys.update(context=m["context"], vocabulary=m["vocab"], tied=m["tied"])
        if self.net == "llama":
            keys.update(kv_heads=m["kv_heads"],
                        rope={"pairing": m["rope"], "base": m["rope_base"]})
        else:
            keys["approximate"] = "tanh" if m["mlp"] == "gelu_tanh" else "none"
        return keys

    def scaling(self):
        s = self.facts["scaling"]
        if s["policy"] == "adaptive":
            return {"policy": "adaptive", "method": "approx_range", "fan": "exact",
                    "init_scale": s["S0"], "underflow_target": s["n"], "u_min": s["u_min"],
                    "scale_upper_bound": s["SB"], "accum_upper_bound": s["AB"],
                    "power_of_two": True, "attention": True}
        scale = s.get("S0", s.get("scale", 1))
        return {"policy": "none"} if scale == 1 else {"policy": "fixed", "scale": scale}

    def configuration(self, data):
        """The four steps as recorded."""
        o = self.model["optimizer"]
        schedule = {"kind": "cosine", "unit": "steps", "by": "step", "min_lr": o["min_lr"],
                    "length": o["length"] - o["warmup"]}
        if o["warmup"]:  # nanoGPT's: the first rate is lr / (steps + 1)
            schedule["warmup"] = {"kind": "linear", "steps": o["warmup"], "counts": False,
                                  "lr": o["lr"] / (o["warmup"] + 1)}
        config = {
            "seed": 1, "device": {"kind": "cpu"},
            "task": "classification" if self.net == "vit" else "language",
            "data": {"dataset": "tensors", "path": str(data), "batch_size": self.batch,
                     "evaluate_batch_size": self.batch, "shuffle": False},
            "model": self.model_keys(), "precision": {"format": self.facts["format"]},
            "scaling": self.scaling(),
            "optimizer": {"kind": "adamw", "lr": o["lr"], "beta1": o["betas"][0],
                          "beta2": o["betas"][1], "epsilon": o["eps"],
                          "weight_decay": o["weight_decay"], "no_decay": o["no_decay"]},
            "schedule": schedule,
            "train": {"epochs": 1, "accumulate": self.model["accumulate"], "clip_norm": o["clip"]},
            "evaluate": {"every_epochs": 0},
            "log": {"every": 1, "statistics": ["y", "w", "dx", "dw", "dy"]}}
        if self.net == "vit":
            config["data"]["normalize"] = {"mean": [0.4914, 0.4822, 0.4465],
                                           "std": [0.2023, 0.1994, 0.2010]}
        return config

    @staticmethod
    def gradients_alone(config):
        """The first step with a rule whose state is the gradient, before clipping."""
        first = json.loads(json.dumps(config))
        first["optimizer"] = {"kind": "sgd", "lr": 1e-30, "momentum": 0.9}
        first.pop("schedule")
        first["train"].update(clip_norm=0, max_steps=1)
        first["log"].update(dump_every=1, dump=["lm_head", "heads.head"])
        return first


class Comparison:
    """Runs a recorded case; `problems` are lines, `worst` the largest part of a tolerance used, by
    what was compared."""

    def __init__(self, binary, recording, folder):
        self.r, self.folder = recording, pathlib.Path(folder)
        self.problems, self.worst = [], {}
        data = self.folder / "data.safetensors"
        recording.write_data(data)
        config = recording.configuration(data)
        self.run = self.train(binary, config, "run")
        self.steps()
        self.decisions()
        self.counts()
        self.weights()
        if (recording.files / "step1.safetensors").exists():
            self.gradients(self.train(binary, recording.gradients_alone(config), "first"))

    def train(self, binary, config, name):
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(config, indent=1))
        network_step.call(binary, ["train", path, "--output", name, "--no-progress",
                                   "--overwrite"], self.folder)
        return self.folder / name

    def see(self, what, error, allowed, where):
        if allowed is None:
            return
        share = error / allowed if allowed > 0 else (0 if error == 0 else math.inf)
        self.worst[what] = max(self.worst.get(what, 0), share)
        if share > 1:
            self.problems.append(f"{what}: {where}: off by {error:.3g}, allowed {allowed:.3g}")

    def equal(self, what, ours, theirs, where):
        self.worst.setdefault(what, 0)
        if ours != theirs:
            self.worst[what] = math.inf
            self.problems.append(f"{what}: {where}: {ours}, recorded {theirs}")

    def steps(self):
        recorded, ours = rows(self.r.files / "steps.csv"), rows(self.run / "steps.csv")
        self.equal("steps", len(ours), len(recorded), "steps.csv")
        for a, b in zip(ours, recorded):
            step = int(b["step"])
            for column, table in (("loss", LOSS), ("grad_norm", NORM)):
                error = abs(float(a[column]) / float(b[column]) - 1)
                self.see(f"{column} {min(step, 2)}", error, self.r.tolerance(table, step),
                         f"step {step}")
            self.see("lr", abs(float(a["lr"]) / float(b["lr"]) - 1), 1e-6, f"step {step}")
            if self.r.case == "fp32":
                self.see("accuracy", abs(float(a["accuracy"]) - float(b["accuracy"])), 1e-8,
                         f"step {step}")
            self.equal("skipped", a["skipped"], b["skipped"], f"step {step}")

    def decisions(self):
        def by_place(table):
            return {(r["step"], r["layer"], r["limit"] == "branch"): r for r in table}
        recorded = by_place(rows(self.r.files / "scales.csv"))
        ours = by_place(rows(self.run / "scales.csv"))
        # Under policies with one scale the rows of a program's log say nothing.
        if self.r.facts["scaling"]["policy"] != "adaptive":
            recorded = {k: v for k, v in recorded.items() if k in ours}
        for place, b in recorded.items():
            where = f"step {place[0]} {place[1]}"
            a = ours.get(place)
            if a is None:
                self.equal("decisions", "no row", b["limit"], where)
                continue
            columns = ("scale_out",) if place[2] else ("scale_in", "pow2", "alpha", "scale_out")
            numbers = [float(a[c]) == float(b[c]) for c in columns if b[c] != ""]
            self.equal("decisions", (all(numbers), a["limit"]), (True, b["limit"]),
                       f"{where} ({[a[c] for c in columns]} {[b[c] for c in columns]})")
            if not place[2] and b["unbound"] != "":
                error = abs(float(a["unbound"]) / float(b["unbound"]) - 1)
                self.see("unbound", error, TIMES * UNBOUND, where)
        if self.r.facts["scaling"]["policy"] == "adaptive":
            extra = [place for place in ours if place not in recorded]
            self.equal("decisions", extra, [], "more rows")

    @staticmethod
    def place(row):
        """Parameters' gradients are rows of their layers in the log."""
        layer, tensor = row["layer"], row["tensor"]
        if tensor in ("dw", "w"):
            layer = layer.removesuffix("_weight").removesuffix(".weight")
        return row["step"], layer, tensor

    def counts(self):
        recorded = {self.place(r): r for r in rows(self.r.files / "underflow.csv")}
        ours = {self.place(r): r for r in rows(self.run / "underflow.csv")}
        lost = [0, 0]
        for place, b in recorded.items():
            a = ours.get(place)
            if a is None:  # a bias, a norm's factors or the images, which have no row
                if place[2] != "dw" and place[1] != "input":
                    self.equal("rows", "no row", "a row", " ".join(place))
                continue
            where = " ".join(place)
            for column in ("numel", "overflow"):
                self.equal("rows", int(a[column]), int(b[column]), f"{where} {column}")
            self.equal("scales of rows", float(a["scale"]), float(b["scale"]), where)
            # Where p is nearly 1 its gradient is what cancellation leaves.
            if place[2] != "ds":
                for column in ("zeros_before", "underflow"):
                    error = abs(int(a[column]) - int(b[column])) / int(b["numel"])
                    self.see("zeros and underflow", error, self.r.tolerance(ROW),
                             f"{where} {column}")
                lost[0] += int(a["underflow"])
                lost[1] += int(b["underflow"])
            largest = float(b["max_abs"])
            if self.r.model["accumulate"] > 1:  # each part has a per-tensor scale
                continue
            self.see("largest", abs(float(a["max_abs"]) - largest) / (largest or 1), 0.1, where)
        allowed = {"fp32": 0, "bf16": 0, "fp16_fixed1024": 10,
                   "fp16_adaptive": TIMES * 3e-2 * lost[1]}[self.r.case]
        self.see("underflow in all", abs(lost[0] - lost[1]), allowed, f"{lost[0]}, {lost[1]}")
        extra = sorted({p[1:] for p in ours} - {p[1:] for p in recorded})
        self.equal("rows", extra, [], "more rows")

    def parts(self, names):
        """What of each tensor is compared: without the keys' bias, which has no true gradient."""
        for name in names:
            count = self.r.start[name].shape[0]
            keep = numpy.ones(count, bool)
            if name.endswith(("c_attn.bias", "in_proj_bias")):
                queries = self.r.model["heads"] * self.r.model["head_dim"]
                keep[queries:queries + (count - queries) // 2] = False
            yield name, keep

    def weights(self):
        if not (self.r.files / "final.safetensors").exists():
            return
        recorded = network_step.Tensors(self.r.files / "final.safetensors")
        step = len(rows(self.r.files / "steps.csv"))
        ours = network_step.Tensors(self.run / f"checkpoints/step-{step:08}.safetensors")
        apart = moved = 0
        for name, keep in self.parts(recorded.entries):
            start = self.r.start[name].astype(numpy.float64)
            theirs = (recorded[name] - start)[keep]
            self.equal("shapes", list(ours[name].shape), list(recorded[name].shape), name)
            apart += numpy.square((ours[name] - start)[keep] - theirs).sum()
            moved += numpy.square(theirs).sum()
        self.see("change of weights", math.sqrt(apart / moved), self.r.tolerance(WEIGHTS), "all")

    def gradients(self, run):
        recorded = network_step.Tensors(self.r.files / "step1.safetensors")
        ours = network_step.Tensors(run / "checkpoints/step-00000001.safetensors")
        names = [name for name in recorded.entries if name != "logits"]
        for name, keep in self.parts(names):
            a, b = ours[f"optimizer.{name}.momentum"][keep], recorded[name][keep]
            self.see("gradients", float(abs(a - b).max() / abs(b).max()),
                     self.r.tolerance(GRADIENT), name)
        dump = network_step.Tensors(run / "dump/step-00000001.safetensors")
        last = "heads.head.y" if self.r.net == "vit" else "lm_head.y"
        logits = recorded["logits"]
        ours = numpy.moveaxis(dump[last].astype(numpy.float32), 1, -1)  # of [n, classes, tokens, 1]
        error = abs(ours.reshape(logits.shape) - logits).max()
        self.see("logits", float(error / abs(logits).max()), self.r.tolerance(GRADIENT), "all")


def compare(binary, folder, net, case):
    with tempfile.TemporaryDirectory() as work:
        return Comparison(binary, Recording(folder, net, case), work)


def main():
    binary, folder, *chosen = sys.argv[1:]
    different = False
    for net in chosen[:1] or NETWORKS:
        for case in chosen[1:] or CASES:
            if not (pathlib.Path(folder) / net / case).is_dir():
                continue
            try:
                found = compare(pathlib.Path(binary).resolve(), folder, net, case)
            except RuntimeError as error:
                print(f"{net} {case}: {error}")
                different = True
                continue
            used = ", ".join(f"{what} {share:.2g}" for what, share in found.worst.items() if share)
            print(f"{net} {case}: {len(found.problems)} differences; of the tolerances used: {used}")
            for problem in found.problems[:40]:
                print("  " + problem)
            different = different or bool(found.problems)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
