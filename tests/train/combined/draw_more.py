"""What a network has besides, drawn from its seed by a generator of its own: histograms, scenarios, compensations, maps."""

import numpy as np

from draw_operands import DrawOperands
from operands import plain

NO_CODES = ("row", "fp32'", "modelopt", "four_over_six", "fp8_block128", "torchao", "tensor_scale", "nvfp4", "fp8_e4m3'")


class DrawMore(DrawOperands):
    def more(self, config):
        own, self.g = self.g, np.random.default_rng([self.seed, 1])
        kinds = {layer["kind"] for layer in config["model"]["layers"]}
        if "max_pool" in kinds and kinds & {"l2_normalize", "layer_norm", "rms_norm"} and self.chance(0.5):
            config["precision"] = {"preset": self.one("autocast", "autocast_cpu"), "format": self.one("fp16", "bf16")}
        method = config["scaling"].get("method", "element_wise_range")
        if "batch_norm" in kinds and method != "element_wise_range" and self.chance(0.3):
            config["scaling"].pop("scale", None)
            config["scaling"].update(method="abs_range", batch_norm=True)
        if "conv_transpose2d" in kinds and config["scaling"]["policy"] == "adaptive" and self.chance(0.3):
            config["scaling"].pop("scale", None)
            config["scaling"].update(method="element_wise_range", power_of_two=False)
        precision, log = config["precision"], config["log"]
        if self.chance(0.08):
            config["optimizer"] = self.muon()
        if self.chance(0.15):
            precision["masters"] = self.compensated()
        if self.chance(0.12):
            precision["optimizer_state"] = self.mapped_states()
        if "exact_range" in str(config["scaling"]) and not {"preset", "schedule"} & precision.keys() and self.chance(0.4):
            # The exponents of the last pass, then judged by another format.
            precision["gradients"] = self.one("bf16", "fp32")
            change = {"from_step": self.whole(2, 3), "gradients": self.one("fp16", "fp8_e5m2", "fp8_e4m3")}
            precision["schedule"] = [change]
        sums = "accumulate" in precision or config["train"].get("accumulate", 1) > 1
        operands = precision.get("operands", "none")
        if not sums and "attention" not in kinds and not plain(operands) and self.chance(0.3):
            operands[self.one("x", "w", "dy")] = {"format": self.format(), "rounding": "stochastic"}
        if self.chance(0.3):
            log["histogram_every"] = 1
            scenarios = [self.scenario(precision) for _ in range(self.whole(0, 3))]
            log["what_if"] = [{"name": f"s{i}", **keys} for i, keys in enumerate(scenarios)]
        if config["train"].get("accumulate", 1) == 1 and self.chance(0.15):
            log["probe_every"] = self.one(1, 2)
        self.g = np.random.default_rng([self.seed, 2])
        self.meeting(config, kinds)
        self.g = own

    def meeting(self, config, kinds):
        """Accumulators and scenarios where attention is; Newton-Schulz in bf16."""
        precision, log = config["precision"], config["log"]
        if "attention" in kinds:
            if self.chance(0.6):
                self.accumulates(precision, wanted=True)
            if "preset" not in precision and self.chance(0.4):
                log["histogram_every"] = 1
                made = [self.scenario(precision, self.one("block", "sums")) for _ in range(self.whole(1, 2))]
                log["what_if"] = log.get("what_if", []) + [{"name": f"a{i}", **keys} for i, keys in enumerate(made)]
        if self.chance(0.05):
            config["optimizer"] = self.muon()
        if config["optimizer"]["kind"] == "muon" and self.chance(0.6):
            config["optimizer"]["ns_format"] = "bf16"

    def later(self, config):
        """What is drawn when all else is, by a generator of its own."""
        own, self.g = self.g, np.random.default_rng([self.seed, 4])
        self.rare_updates(config)
        heads = any(layer["kind"] == "attention" for layer in config["model"]["layers"])
        if not heads or "accumulate" not in config["train"] or self.chance(0.2):  # parts that drop are not equal
            self.dropping(config["model"]["layers"])
        self.pairs(config)
        self.overflows(config)
        self.zeros(config["precision"])
        self.g = own

    def zeros(self, keys):
        """Of formats without inf some have no -0, whose code is that of NaN."""
        for value in keys if isinstance(keys, list) else keys.values():
            if isinstance(value, (dict, list)):
                self.zeros(value)
        if isinstance(keys, dict) and keys.get("has_inf") is False and keys.get("has_nan", True):
            self.maybe(keys, "negative_zero", 0.4, False)

    def pairs(self, config):
        """Keys that seldom meet by themselves."""
        precision = config["precision"]
        if any(layer["kind"] == "conv_transpose2d" for layer in config["model"]["layers"]) and self.chance(0.35):
            config["scaling"] = {"policy": "adaptive", "method": "element_wise_range", "power_of_two": False}
        if "preset" not in precision and self.chance(0.06):
            # Values that leave fp32 by a scale of their own.
            precision.update(tensor_scaling={"kind": "delayed", "history": self.whole(1, 2)}, activations="bf16")
        if "hadamard" in str(precision.get("operands")) and self.chance(0.4):
            precision.update(format="bf16", overflow="saturate")

    def scenario(self, precision, kind=None):
        """An entry of log.what_if."""
        kind = kind or self.one("format", "format", "scale", "both", "policy", "block", "sums")
        if kind == "block" and "hadamard" not in str(precision):
            return {"format": self.block_format()}
        if kind == "sums" and not any(word in str(precision) for word in NO_CODES):
            return {"accumulate": self.accumulator()}
        if kind == "policy":
            return {"scaling": {"policy": "fixed", "scale": self.one(8, 1024, 0.5)}}
        keys = {} if kind == "scale" else {"format": self.format()}
        if kind in ("scale", "both"):
            keys["scale"] = self.one(2.0**-4, 1, 16, 2.0**12, 2.0**24)
        return keys
