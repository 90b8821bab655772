"""Random networks, formats, policies and data: a configuration from a seed, with weights and images of few bits.

Everything is a small whole number times a power of two, so that sums of products are exact in fp32 in any order for
as long as
formats are narrow; what features meet is left to chance.
"""

import numpy as np

from draw_layers import DrawLayers
from draw_more import DrawMore
from draw_operands import MODES
from draw_updates import DrawUpdates

NARROW = (
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_e3m4",
    "fp8_e4m3_ieee",
    "fp8_e4m3_fnuz",
    "fp8_e5m2_fnuz",
    "fp6_e3m2",
    "fp6_e2m3",
    "fp4_e2m1",
    "fp8_e4m3_b11fnuz",
)
P3109 = ("binary8p3se", "binary8p4sf", "binary8p5se", "binary6p3sf", "binary4p2sf", "binary7p3se")
WIDE = ("fp16", "bf16", "cb16", "fp32")


class Draw(DrawLayers, DrawMore, DrawUpdates):
    # Formats.

    def format(self):
        if self.chance(0.3):
            keys = {"exponent": self.whole(2, 7), "mantissa": self.whole(1, 10)}
            self.maybe(keys, "bias", 0.2, 2 ** (keys["exponent"] - 1) - 1 + self.whole(-3, 6))
            self.maybe(keys, "saturate", 0.2, True)
            if self.chance(0.2):
                keys["has_inf"] = False
                self.maybe(keys, "has_nan", 0.3, False)
            return keys
        if self.chance(0.1):
            return self.one(*P3109)
        return self.one(*WIDE) if self.chance(0.6) else self.one(*NARROW)

    def precision(self, names):
        if self.chance(0.1):
            return {"preset": self.one("autocast", "autocast_cpu"), "format": self.one("fp16", "bf16")}
        keys = {"format": self.format()}
        self.maybe(keys, "activations", 0.3, self.format())
        self.maybe(keys, "weights", 0.3, self.format())
        self.maybe(keys, "gradients", 0.4, self.format())
        self.maybe(keys, "weight_gradients", 0.3, self.format())
        self.maybe(keys, "overflow", 0.3, "saturate", "saturate", "format", "none", "saturate_finite")
        self.maybe(keys, "rounding", 0.15, *MODES)
        self.maybe(keys, "masters", 0.3, {"format": self.few_bits()})
        self.maybe(keys, "optimizer_state", 0.3, self.state_layout())
        if "masters" in keys:
            self.maybe(keys["masters"], "rounding", 0.25, "stochastic")
        if "masters" in keys and keys["masters"] == keys.get("optimizer_state"):
            keys["masters"]["arithmetic"] = "fp32"  # updates.py rounds once
        if self.chance(0.3):
            keys["layers"] = [self.layer_formats(names) for _ in range(self.whole(1, 3))]
        if self.chance(0.25):
            scaling = {"kind": "delayed"}
            self.maybe(scaling, "history", 0.4, 1, 2)
            self.maybe(scaling, "margin", 0.3, 1, 2)
            self.maybe(scaling, "amax", 0.3, "most_recent", "max")
            self.maybe(scaling, "power_of_two", 0.5, True)
            keys["tensor_scaling"] = "delayed" if self.chance(0.2) else scaling
        if self.chance(0.35):
            keys["operands"] = self.operands()
        if self.chance(0.25):
            change = {"from_step": self.whole(2, 3)}
            for role in ("activations", "weights", "gradients", "weight_gradients"):
                self.maybe(change, role, 0.4, self.format())
            if "operands" in keys and self.chance(0.4):
                change["operands"] = "none" if self.chance(0.3) else self.operands(entry=True)
            if len(change) > 1:
                keys["schedule"] = [change]
        return keys

    def layer_formats(self, names):
        entry = {
            "match": self.one(
                "*", "input", self.one(*names), self.one(*names), self.one(*names)[:1] + "*", "*" + self.one(*names)[-1]
            )
        }
        for role in ("format", "activations", "weights", "gradients", "weight_gradients"):
            self.maybe(entry, role, 0.35, self.format())
        if self.chance(0.2):
            entry["operands"] = "none" if self.chance(0.3) else self.operands(entry=True)
        if len(entry) == 1:
            entry["format"] = self.format()
        return entry

    # Policies.

    def method_keys(self, keys):
        self.maybe(keys, "underflow_target", 0.4, 1e-4, 0.01, 0.2)
        self.maybe(keys, "scale_upper_bound", 0.4, 1, 4, 128, 4096)
        self.maybe(keys, "accum_upper_bound", 0.4, 16, 1024, 65536)
        self.maybe(keys, "power_of_two", 0.2, False)
        self.maybe(keys, "update_interval", 0.25, 2, 3)
        self.maybe(keys, "fan", 0.25, "reference", "exact")
        self.maybe(keys, "u_min", 0.15, 2.0**-12, 2.0**-20)
        self.maybe(keys, "headroom_bits", 0.3, 0, 1, 8)

    def scaling(self, names, kinds):
        policy = self.one(
            "none",
            "fixed",
            "dynamic",
            "logmax",
            *["layerwise_dynamic"] * (3 if "attention" in kinds else 1),
            *["adaptive"] * 6,
        )
        keys = {"policy": policy}
        if policy == "none":
            self.maybe(keys, "init_scale", 0.5, 8, 1024)
        elif policy == "fixed":
            keys["scale"] = self.one(0.25, 8, 1024, 2.0**20, 3)
        elif policy == "dynamic":
            keys["preset"] = self.one("pytorch", "tensorflow", "keras", "apex", "jmp", "paddle")
            self.maybe(keys, "init_scale", 0.7, 8, 256, 2.0**15, 2.0**30)
            self.maybe(keys, "growth_interval", 0.7, 1, 2)
            if keys["preset"] in ("pytorch", "paddle"):
                self.maybe(keys, "growth_factor", 0.3, 4)
                self.maybe(keys, "backoff_factor", 0.3, 0.25)
            self.maybe(keys, "max_scale", 0.2, 2.0**16, 2.0**31)
            self.maybe(keys, "min_scale", 0.2, 1, 4)
        elif policy == "logmax":
            self.maybe(keys, "log_max", 0.4, 12, 8)
            self.maybe(keys, "overflow_std_dev", 0.3, 1)
            self.maybe(keys, "beta1", 0.3, 0.5)
            self.maybe(keys, "beta2", 0.3, 0.75)
            self.maybe(keys, "max_scale", 0.2, 256)
        elif policy == "layerwise_dynamic":
            keys["init_scale"] = self.one(1, 64, 1024, 2.0**14)
            self.maybe(keys, "growth_interval", 0.6, 1, 2)
            self.maybe(keys, "growth_factor", 0.3, 4)
            self.maybe(keys, "backoff_factor", 0.3, 0.25)
            if self.chance(0.6):
                match = self.one(names[-1], "*.d[sqkv]", *names) if "attention" in kinds else self.one(*names)
                keys["layers"] = [{"match": match, "init_scale": self.one(1, 16, 4096)}]
        else:
            keys["method"] = self.one(
                "approx_range",
                "lognormal",
                "abs_range",
                "element_wise_range",
                "exact_range",
                "exact_range",
                "fixed",
                *["element_wise_range"] * 4 * ("conv_transpose2d" in kinds),
                *["abs_range"] * ("batch_norm" in kinds),
            )
            if keys["method"] == "fixed":
                keys["scale"] = self.one(1, 3, 8, 0.5)
            self.maybe(keys, "init_scale", 0.6, 8, 64, 1024, 2.0**15, 2.0**22)
            self.maybe(keys, "batch_norm", 0.5, True)
            self.maybe(keys, "attention", 0.2, False)
            self.method_keys(keys)
            if self.chance(0.3):
                entry = {"match": self.one(*names)}
                self.maybe(entry, "method", 0.6, "approx_range", "abs_range", "element_wise_range", "exact_range")
                self.method_keys(entry)
                keys["layers"] = [entry]
        return keys

    # All of it.

    def shape(self, classes):
        """Channels, rows and columns of an image."""
        return (self.whole(1, 4), self.whole(3, 7), self.whole(3, 7))

    def config(self):
        steps, classes = self.whole(2, 4), self.whole(2, 5)
        shape = self.shape(classes)
        layers = self.network(shape, classes)
        names = [layer["name"] for layer in layers]
        accumulate = self.one(1, 1, 1, 1, 2, 3)
        batch = accumulate * self.whole(1, 4)
        config = {
            "seed": self.seed,
            "device": {"kind": "cpu", "threads": 1},
            "data": {
                "dataset": "tensors",
                "path": "data.npz",
                "batch_size": batch,
                "shuffle": False,
                "layout": "hwc",
                "normalize": "none",
            },
            "model": {
                "classes": classes,
                "layers": layers,
                "init": {"weights": "init.safetensors", "require_all": True},
            },
            "precision": self.precision(names),
            "scaling": self.scaling(names, {layer["kind"] for layer in layers}),
            "optimizer": self.optimizer(),
            "train": {"max_steps": steps, "epochs": 2},
            "evaluate": {"every_epochs": 0},
            "checkpoint": {"every_steps": 1, "keep": 20, "best": False},
            "log": {
                "every": 1,
                "dump_every": 1,
                "histogram_every": 0,
                "statistics": ["y", "w", "dx", "dw", "dy", "update", "operands"],
            },
        }
        if all(layer["kind"] != "attention" for layer in layers):
            self.accumulates(config["precision"])
        if accumulate > 1:
            config["train"]["accumulate"] = accumulate
        elif all(layer["kind"] != "attention" for layer in layers):
            if "rounding" not in config["precision"]:
                self.maybe(config["precision"], "rounding", 0.15, "stochastic")
        self.maybe(config["train"], "clip_norm", 0.2, 0.5, 4)
        if self.chance(0.2):
            config["train"]["ema"] = {"decay": self.one(0.75, 0.5, 0.999)}
            self.maybe(config["train"]["ema"], "every", 0.3, 2)
            self.maybe(config["train"]["ema"], "warmup", 0.3, True)
        if "preset" not in config["precision"] and self.chance(0.5 if accumulate > 1 else 0.1):
            config["precision"]["accumulated_gradients"] = self.one("bf16", "fp16", "fp8_e5m2", {"format": "cb16"})
        self.maybe(config["train"], "label_smoothing", 0.2, 0.125)
        if self.chance(0.15):
            config["data"]["normalize"] = {
                "mean": [self.one(0.5, 0.25)] * shape[0],
                "std": [self.one(0.5, 0.25)] * shape[0],
            }
        kind = self.one("constant", "constant", "multistep", "step", "cosine", "linear", "poly")
        if kind != "constant":
            config["schedule"] = {"kind": kind, "unit": "steps"}
            if kind == "multistep":
                config["schedule"]["milestones"] = [self.whole(1, 2)]
            elif kind == "step":
                config["schedule"]["every"] = self.whole(1, 2)
            else:
                config["schedule"]["length"] = self.whole(2, 6)
                self.maybe(config["schedule"], "min_lr", 0.4, 1e-4)
            if kind in ("multistep", "step"):
                self.maybe(config["schedule"], "gamma", 0.5, 0.5)
        self.maybe(config["log"], "statistics", 0.15, ["y", "w", "dx", "dw", "dy"])
        self.more(config)
        self.later(config)
        return config, shape

    def samples(self, config):
        """How many there are: steps of one epoch, or one less."""
        steps = config["train"]["max_steps"]
        return config["data"]["batch_size"] * (steps if self.chance(0.7) else max(1, steps - 1))

    def equal_parts(self, config, *arrays):
        """By chance all parts of a batch are its first: what the dump has of the last one holds for all."""
        batch, parts = config["data"]["batch_size"], config["train"].get("accumulate", 1)
        heads = any(layer["kind"] == "attention" for layer in config["model"]["layers"])
        if parts == 1 or not self.chance(0.9 if heads else 0.6):  # sums of softmax are not exact: no other is known
            return arrays
        all_of_them = np.arange(len(arrays[0]))
        part = all_of_them // batch * batch + all_of_them % (batch // parts)
        return tuple(a[part] for a in arrays)

    def arrays(self, config, shape):
        """Images that are whole numbers times a power of two, another one for each batch where they grow."""
        batch, count = config["data"]["batch_size"], self.samples(config)
        x = self.g.integers(-4, 5, (count, shape[1], shape[2], shape[0])).astype(np.float32)
        unit = 2.0 ** self.whole(-4, 0) if self.chance(0.8) else 2.0 ** self.whole(-14, 12)
        growth = 2.0 ** self.one(0, 0, 1, 2, -2, 6)
        x *= unit * growth ** (np.arange(count) // batch)[:, None, None, None].astype(np.float32)
        labels = self.g.integers(0, config["model"]["classes"], count)
        x, labels = self.equal_parts(config, x, labels)
        if not labels.any():  # two classes at least
            labels[:] = 1
        return {
            "train.images": x.astype(np.float32),
            "train.labels": labels,
            "test.images": x[:1].astype(np.float32),
            "test.labels": labels[:1],
        }

    def weights(self, network):
        found = {}
        wild, most = self.chance(0.2), self.one(2, 2, 15)
        own = np.random.default_rng([self.seed, 5])
        uneven = own.random() < 0.25
        for node in network.nodes:
            for name, value in node.layer.params.items():
                unit = 2.0 ** (self.whole(-10, 4) if wild else self.whole(-3, -1))
                w = self.g.integers(-most, most + 1, value.shape) * (unit * 2 / most if most == 2 else unit / 8)
                if name == "weight" and value.ndim == 1:  # factors of norms
                    w = self.one(1.0, 0.5, 2.0**-6) * self.g.choice([1.0, 0.5, 2.0], value.shape)
                if uneven and w.ndim > 1:  # channels of other sizes, of the input and of the output
                    for axis in (0, 1):
                        sizes = 2.0 ** own.integers(-3, 3, w.shape[axis])
                        w = w * np.expand_dims(sizes, [i for i in range(w.ndim) if i != axis])
                found[node.parameter(name)] = w.astype(np.float32).astype(np.float64)
            if node.kind == "batch_norm":
                for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
                    found[f"{node.name}.{name}"] = np.full(node.layer.shape[0], value)
        return found
