"""Random language models: an embedding, positions, blocks of attention and of linear layers, a head that may be tied."""

import numpy as np

from draws import Draw


class DrawLanguage(Draw):
    def network(self, shape, classes):
        """Layers of a network of `shape` = (vocabulary, positions)."""
        vocabulary, positions = shape
        width, layers = self.one(4, 8), []

        put = lambda kind, **keys: self.named(layers, kind, **keys)

        def norm():
            kind = self.one("rms_norm", "rms_norm", "layer_norm", None)
            return put(kind) if kind else None

        first = put("embedding", vocabulary=vocabulary, features=width)
        if self.chance(0.6):
            put("position_embedding", context=positions + self.whole(0, 2))
        for _ in range(self.whole(0, 2)):
            before = layers[-1]["name"]
            norm()
            if self.chance(0.6):
                heads, kv = self.one((2, 2), (2, 1), (1, 1))
                wide = self.one(2, 4)
                put("linear", features=(heads + 2 * kv) * wide, **({"bias": False} if self.chance(0.5) else {}))
                keys = {"heads": heads, "causal": self.chance(0.8)}
                if kv != heads:
                    keys["kv_heads"] = kv
                put("attention", **keys)
            else:
                up = put("linear", features=self.one(4, 8))
                put(self.one("relu", "silu", "leaky_relu", "hardtanh"))
                if self.chance(0.4):
                    gate, features = layers[-1]["name"], layers[-2]["features"]
                    entry = layers[-3]["name"]
                    put("linear", features=features, inputs=[entry])
                    put("multiply", inputs=[gate, layers[-1]["name"]])
            put("linear", features=width, **({"bias": False} if self.chance(0.3) else {}))
            if self.chance(0.8):
                put("add", inputs=[before, layers[-1]["name"]])
            if self.chance(0.15):
                put("scale")
        norm()
        tied = {"weight_of": first} if self.chance(0.5) else {}
        put("linear", features="classes", **tied, **({"bias": False} if self.chance(0.7) else {}))
        return layers

    def shape(self, classes):
        return (classes, self.whole(2, 5))

    def config(self):
        config, shape = super().config()
        config["task"] = "language"
        config["data"].pop("layout")
        config["data"].pop("normalize")
        config["train"].pop("label_smoothing", None)
        for entry in config["precision"].get("layers", []):
            if entry["match"] == "input":  # there is none
                entry["match"] = "*"
        return config, (1, shape[1], 1)

    def arrays(self, config, shape):
        """Tokens, and what follows each; some targets are left out. Parts of a batch may be equal."""
        count, most = self.samples(config), config["model"]["classes"]
        tokens = self.g.integers(0, most, (count, shape[1]))
        targets = self.g.integers(0, most, (count, shape[1]))
        targets = np.where(self.g.random(targets.shape) < self.one(0.0, 0.3), -100, targets)
        targets[:, 0] = np.maximum(targets[:, 0], 0)
        tokens, targets = self.equal_parts(config, tokens, targets)
        return {
            "train.tokens": tokens.astype(np.int32),
            "train.targets": targets.astype(np.int32),
            "test.tokens": tokens[:1].astype(np.int32),
            "test.targets": targets[:1].astype(np.int32),
        }
