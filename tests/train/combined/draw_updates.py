"""Random updates: rules, what they keep of masters and states, and what follows an overflow."""

RARE = ("nadam", "radam", "adafactor", "schedule_free", "adopt", "ademamix", "lamb", "stable_adamw")


class DrawUpdates:
    def overflows(self, config):
        """What follows an overflow; by chance one of a scale that starts too high and falls far, while the rate moves."""
        train, falls = config["train"], config["scaling"]["policy"] in ("none", "fixed", "dynamic", "logmax")
        if falls and self.chance(0.5):
            keys = {"init_scale": self.one(2.0**24, 2.0**30, 2.0**36), "backoff_factor": self.one(2.0**-12, 2.0**-6)}
            config["scaling"] = {"policy": "dynamic", "preset": "pytorch", **keys}
            config["schedule"] = {"kind": "step", "unit": "steps", "every": 1, "gamma": 0.5}
            train["max_steps"] = max(train["max_steps"], 4)
        if "on_overflow" not in config["scaling"]:
            self.maybe(train, "on_overflow", 0.4, "retry")
            if "on_overflow" in train:
                self.maybe(train, "max_retries", 0.6, 1, 1, 2)
        if "on_overflow" not in train:
            self.maybe(train, "schedule_on_skip", 0.6, "hold")

    def rare_updates(self, config):
        optimizer, precision = config["optimizer"], config["precision"]
        if optimizer["kind"] == "muon":
            if self.chance(0.5):
                optimizer["others"] = self.rare_rule()
            rule = optimizer["others"]
            self.maybe(optimizer, "match", 0.4, ["*.weight"], [config["model"]["layers"][0]["name"] + "*"])
            self.maybe(optimizer, "ns_coefficients", 0.2, [2, -1.5, 0.5])
        else:
            if self.chance(0.35):
                kept = {key: value for key, value in optimizer.items() if key in ("no_decay", "groups")}
                optimizer = config["optimizer"] = self.rare_rule() | kept
            rule = optimizer
        if rule["kind"] in ("adam", "adamw"):
            self.maybe(rule, "amsgrad", 0.4, True)
        elif rule["kind"] == "rmsprop":
            self.maybe(rule, "centered", 0.4, True)
        elif rule["kind"] == "radam" and self.chance(0.6):
            config["train"]["max_steps"] = self.whole(6, 7)  # the fifth is the last that does not divide
        if optimizer["kind"] == "adafactor":
            precision.pop("optimizer_state", None)

    def rare_rule(self):
        kind = self.one(*RARE)
        keys = {"kind": kind, "lr": self.one(2.0**-4, 0.02, 2.0**-9, 1e-3)}
        if kind == "adafactor":
            self.maybe(keys, "beta2_decay", 0.4, -0.5, -2)
            self.maybe(keys, "d", 0.4, 0.5, 4)
        else:
            self.maybe(keys, "beta1", 0.4, 0.5)
            self.maybe(keys, "beta2", 0.0 if kind == "radam" else 0.4, 0.75)
            self.maybe(keys, "epsilon", 0.4, 1e-3)
        if kind == "ademamix":
            self.maybe(keys, "beta3", 0.5, 0.5)
            self.maybe(keys, "mix", 0.4, 0, 2)
        if kind == "nadam":
            self.maybe(keys, "momentum_decay", 0.5, 0, 8)
        self.maybe(keys, "weight_decay", 0.5, 0, 0.125, 1e-4)
        if kind in ("nadam", "radam") and self.chance(0.4):
            keys.update(decoupled_weight_decay=True, weight_decay=0.125)
        return keys

    def optimizer(self):
        kind = self.one("sgd", "sgd", "sgd", "adam", "adamw", *(("rmsprop", "adagrad", "adamax", "lion") * self.chance(0.5)))
        keys = {"kind": kind, "lr": self.one(2.0**-4, 0.5, 0.02, 2.0**-9, 1e-3)}
        if kind == "sgd":
            if self.chance(0.5):
                keys["momentum"] = self.one(0.5, 0.9)
                self.maybe(keys, "nesterov", 0.3, True)
                if "nesterov" not in keys:
                    self.maybe(keys, *self.one(("dampening", 0.4, 0.25), ("velocity", 0.6, "steps")))
        elif kind in ("rmsprop", "adagrad"):
            self.maybe(keys, *(("alpha", 0.5, 0.75) if kind == "rmsprop" else ("lr_decay", 0.5, 0.5)))
            self.maybe(keys, *(("momentum", 0.5, 0.5) if kind == "rmsprop" else ("epsilon", 0.5, 1e-3)))
        else:
            self.maybe(keys, "beta1", 0.4, 0.5)
            self.maybe(keys, "beta2", 0.4, 0.75)
            if kind != "lion":
                self.maybe(keys, "epsilon", 0.4, 1e-3)
        self.maybe(keys, "weight_decay", 0.3, 0.125, 1e-4)
        self.maybe(keys, "no_decay", 0.2, ["*.bias"], ["vectors"])
        if self.chance(0.2):
            keys["groups"] = [{"match": "*.bias", "lr_factor": self.one(2, 0, 0.5), "decay_factor": self.one(0, 1)}]
        return keys

    def few_bits(self):
        return self.one("fp16", "bf16", "fp8_e5m2", {"exponent": 5, "mantissa": 4}, {"exponent": 6, "mantissa": 7})

    def state_layout(self):
        """precision.optimizer_state: formats, some by the state, with scales or rounded by chance."""
        if self.chance(0.15):
            return self.one("te_fp16", "te_fp8")
        keys = {"format": self.few_bits()}
        if self.chance(0.4):
            self.maybe(keys, "exp_avg", 0.5, self.few_bits(), "fp8_e4m3")
            self.maybe(keys, "exp_avg_sq", 0.5, self.few_bits(), "fp32")
            self.maybe(keys, "momentum", 0.5, self.few_bits())
        if self.chance(0.3):
            keys["scaling"] = self.one("tensor", "block")
            if keys["scaling"] == "block":
                self.maybe(keys, "block", 0.7, 16, 32)
        else:
            self.maybe(keys, "rounding", 0.2, "stochastic")
        return keys

    def muon(self):
        keys = {"kind": "muon", "lr": self.one(0.02, 2.0**-4), "ns_format": "fp32"}
        keys["others"] = {"kind": self.one("adamw", "sgd", "lion"), "lr": self.one(2.0**-9, 1e-3)}
        self.maybe(keys, "momentum", 0.4, 0.5, 0)
        self.maybe(keys, "nesterov", 0.4, False)
        self.maybe(keys, "weight_decay", 0.4, 0, 0.125)
        self.maybe(keys, "adjust_lr", 0.5, "match_rms_adamw", "spectral_unclamped")
        self.maybe(keys, "ns_steps", 0.5, 1, 3)
        return keys

    def compensated(self):
        if self.chance(0.5):
            return {"format": "bf16", "compensation": "remainder"}
        return {"format": self.few_bits(), "compensation": "kahan", "arithmetic": "fp32"}

    def mapped_states(self):
        if self.chance(0.2):  # which leave tensors of fewer than 4096 values in fp32
            return self.one("torchao_8bit", "torchao_4bit", "torchao_fp8", "bitsandbytes_8bit")
        keys = {"format": self.one("fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp4_e2m1"), "map": "dynamic"}
        keys["scaling"] = self.one("tensor", "block")
        if keys["scaling"] == "block":
            self.maybe(keys, "block", 0.7, 16, 32)
        self.maybe(keys, "exp_avg_sq", 0.3, "fp32", "fp16", "bf16")
        return keys
