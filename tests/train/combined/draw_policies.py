"""What the newer networks' policies have besides, drawn from their seed by a generator of its own: scales of single
layers, repaired gradients, and more presets of dynamic scaling."""

import numpy as np


class DrawPolicies:
    def more(self, config):
        super().more(config)
        own, self.g = self.g, np.random.default_rng([self.seed, 3])
        scaling = config["scaling"]
        names = [layer["name"] for layer in config["model"]["layers"]]
        if scaling["policy"] == "adaptive" and self.chance(0.3):
            entry = {"match": self.one(*names, "*"), "total_scale": self.one(1, 64, 3, 2.0**12)}
            scaling.setdefault("layers", []).insert(self.whole(0, len(scaling.get("layers", []))), entry)
        if scaling["policy"] in ("none", "fixed") and self.chance(0.5):
            scaling["on_overflow"] = {"action": "sanitize"}
            self.maybe(scaling["on_overflow"], "nan", 0.5, 1, -0.25)
            self.maybe(scaling["on_overflow"], "inf", 0.5, 4, 2.0**20)
            if scaling["on_overflow"] == {"action": "sanitize"} and self.chance(0.5):
                scaling["on_overflow"] = "sanitize"
        if scaling["policy"] == "dynamic" and self.chance(0.5):
            presets = ("guided_diffusion", "apex_hysteresis", "megatron", "mindformers", "mindformers")
            keys = {"policy": "dynamic", "preset": self.one(*presets)}
            if keys["preset"] == "guided_diffusion":
                self.maybe(keys, "init_lg_scale", 0.6, 6, 12.5)
                self.maybe(keys, "lg_growth", 0.5, 1, 0.25)
            elif keys["preset"] == "mindformers":
                keys.update(min_window=1, max_window=self.whole(2, 5), init_scale=self.one(8, 2.0**15, 2.0**30))
                self.maybe(keys, "growth_interval", 0.5, 1, 2)
                self.maybe(keys, "growth_factor", 0.4, 3, 8)
            else:
                self.maybe(keys, "init_scale", 0.7, 256, 2.0**15, 2.0**30)
                self.maybe(keys, "growth_interval", 0.7, 1, 2)
                self.maybe(keys, "hysteresis", 0.6, 1, 3)
            config["scaling"] = keys
        if scaling["policy"] in ("none", "fixed", "logmax") and self.chance(0.3):
            keys = {"policy": "histogram", "update_period": self.whole(1, 2), "init_scale": self.one(8, 1024, 2.0**17)}
            self.maybe(keys, "bin_edge", 0.6, 1, 2.0**-10)
            self.maybe(keys, "threshold", 0.5, 0, 0.01, 0.2)
            self.maybe(keys, "max_scale", 0.2, 4096)
            config["scaling"] = keys
        self.g = own
