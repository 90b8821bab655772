"""Random layers, one after the other, each of a shape that it can have; and the draws that all others are made of."""

import numpy as np

FUNCTIONS = ("sigmoid", "tanh", "silu", "hardsigmoid", "hardswish")
KINDS = (
    "conv2d",
    "conv2d",
    "conv_transpose2d",
    "batch_norm",
    "batch_norm",
    "relu",
    "relu",
    "function",
    "clamp",
    "leaky_relu",
    "max_pool",
    "avg_pool",
    "residual",
    "residual",
    "concat",
    "gate",
    "scale",
    "slice",
    "pixel_shuffle",
    "upsample",
    "layer_norm",
    "rms_norm",
    "l2_normalize",
    "adaptive_avg_pool",
    "linear",
    "attention",
    "attention",
    "pooled_norm",
)


class DrawLayers:
    def __init__(self, seed):
        self.g = np.random.default_rng(seed)
        self.seed = seed

    def chance(self, p):
        return bool(self.g.random() < p)

    def one(self, *choices):
        return choices[int(self.g.integers(len(choices)))]

    def whole(self, low, high):
        """low to high, both possible."""
        return int(self.g.integers(low, high + 1))

    def maybe(self, keys, name, p, *choices):
        if self.chance(p):
            keys[name] = self.one(*choices)

    def named(self, layers, kind, prefixes=("", "a.", "b1."), **keys):
        """Adds a layer; its name."""
        name = self.one(*prefixes) + kind[:4].replace("_", "") + str(len(layers) + 1)
        layers.append({"name": name, "kind": kind, **keys})
        return name

    def network(self, shape, classes):
        """Layers of an image's classifier."""
        self.begin(shape)
        self.convolution()
        while not self.layers:
            self.convolution()
        for _ in range(self.whole(1, 7)):
            self.layer(self.one(*KINDS))
        keys = {"features": "classes"}
        self.maybe(keys, "bias", 0.3, False)
        if self.chance(0.5) and max(self.shapes[self.before][1:]) > 1:
            self.put("global_avg_pool", (self.shapes[self.before][0], 1, 1))
        self.put("linear", (classes, 1, 1), **keys)
        return self.layers

    def begin(self, shape):
        self.layers, self.shapes, self.before = [], {"input": shape}, "input"

    def put(self, kind, gives, **keys):
        """Adds a layer that gives this shape; its name."""
        name = self.named(self.layers, kind, ("", "", "a.", "b1."), **keys)
        self.shapes[name], self.before = gives, name
        return name

    def convolution(self, channels=None, kind="conv2d"):
        """Adds one where it fits (None: it does not); channels: of the input's size, with so many."""
        c, h, w = self.shapes[self.before]
        keys = {"channels": channels or self.one(2, 4, 6), "kernel": self.whole(1, min(3, h, w))}
        self.maybe(keys, "bias", 0.5, False)
        self.maybe(keys, "groups", 0.3, *[n for n in (1, 2) if c % n == 0 and keys["channels"] % n == 0])
        if channels:
            keys["kernel"], keys["padding"] = self.one((1, 0), (3, 1)) if min(h, w) >= 1 else (1, 0)
        else:
            self.maybe(keys, "padding", 0.4, 1)
            self.maybe(keys, "stride", 0.7 if kind == "conv_transpose2d" else 0.4, 2, [1, 2])
            self.maybe(keys, "dilation", 0.15, 2)
            if kind == "conv_transpose2d" and keys.get("stride") == 2:
                self.maybe(keys, "output_padding", 0.3, 1)
        out = self.size_of(kind, keys, h, w)
        if min(out) < 1 or max(out) > 12:
            return None
        return self.put(kind, (keys["channels"], *out), **keys)

    def layer(self, kind):
        """Adds a layer, or the few of a pattern, where it fits."""
        c, h, w = self.shapes[self.before]
        put, start = self.put, self.before
        if kind in ("conv2d", "conv_transpose2d"):
            self.convolution(kind=kind)
        elif kind == "batch_norm":
            keys = {}
            self.maybe(keys, "eps", 0.3, 1e-3, 0.25)
            self.maybe(keys, "momentum", 0.3, 0.25, 0.9)
            put(kind, (c, h, w), **keys)
        elif kind in ("relu", "scale", "rms_norm", "layer_norm", "l2_normalize"):
            if kind in ("rms_norm", "layer_norm", "l2_normalize") and c < 2:
                return
            put(kind, (c, h, w))
        elif kind == "function":
            put(self.one(*FUNCTIONS), (c, h, w))
        elif kind == "clamp":
            if self.chance(0.5):
                put("relu6", (c, h, w))
            else:
                put("hardtanh", (c, h, w), **({"min": -2, "max": 0.5} if self.chance(0.5) else {}))
        elif kind == "leaky_relu":
            put(kind, (c, h, w), **({"slope": self.one(0.25, 0.1)} if self.chance(0.7) else {}))
        elif kind in ("max_pool", "avg_pool"):
            keys = {"kernel": self.whole(1, min(3, h, w))}
            self.maybe(keys, "stride", 0.6, 1, 2)
            if keys["kernel"] > 1:
                self.maybe(keys, "padding", 0.3, 1)
            self.maybe(keys, "ceil_mode", 0.3, True)
            if kind == "avg_pool":
                self.maybe(keys, "count_include_pad", 0.4, False)
            out = self.size_of(kind, keys, h, w)
            if min(out) >= 1:
                put(kind, (c, *out), **keys)
        elif kind == "residual":
            if self.convolution(channels=c) is None:
                return
            if self.chance(0.4):
                put("relu", (c, h, w))
            put("add", (c, h, w), inputs=[start, self.before] if self.chance(0.5) else [self.before, start])
        elif kind == "concat" and c <= 6:
            if self.convolution(channels=2) is not None:
                put("concat", (c + 2, h, w), inputs=[start, self.before])
        elif kind == "gate":
            if self.chance(0.5):
                put("global_avg_pool", (c, 1, 1))
            put(self.one("sigmoid", "hardsigmoid"), (c, *self.shapes[self.before][1:]))
            put("multiply", (c, h, w), inputs=[start, self.before])
        elif kind == "slice" and c >= 2:
            put(kind, (c - 1, h, w), channels=c - 1, first=self.whole(0, 1))
        elif kind == "pixel_shuffle" and c % 4 == 0:
            put(kind, (c // 4, h * 2, w * 2), scale=2)
        elif kind == "upsample" and max(h, w) <= 5:
            put(kind, (c, h * 2, w * 2), scale=2)
        elif kind == "adaptive_avg_pool":
            n = self.whole(1, min(h, w))
            put(kind, (c, n, n), size=n)
        elif kind == "pooled_norm" and c >= 2 and min(h, w) >= 2:
            put(self.one("l2_normalize", "layer_norm", "rms_norm"), (c, h, w))
            if self.chance(0.5):
                put("relu", (c, h, w))
            put("max_pool", (c, h - 1, w - 1), kernel=2, stride=1)
        elif kind == "linear":
            put(kind, (8, 1, 1), features=8)
            if self.chance(0.6):
                put("relu", (8, 1, 1))
        elif kind == "attention" and 2 <= h * w <= 12:
            heads, kv = self.one((2, 2), (2, 1), (1, 1))
            wide = self.one(2, 4)
            put("conv2d", ((heads + 2 * kv) * wide, h, w), channels=(heads + 2 * kv) * wide, kernel=1)
            keys = {"heads": heads}
            if kv != heads:
                keys["kv_heads"] = kv
            self.maybe(keys, "causal", 0.5, True)
            put("attention", (heads * wide, h * w, 1), **keys)
            put("select", (heads * wide, 1, 1), position=self.whole(0, h * w - 1))

    def dropping(self, layers):
        """Puts layers that drop values or images between others, and has attention drop probabilities."""
        for index in range(len(layers) - 1, 0, -1):
            if layers[index]["kind"] == "attention":
                self.maybe(layers[index], "dropout", 0.15, 0.5, 0.25)
            if "inputs" not in layers[index] and self.chance(0.04):
                keys = {"name": f"drop{index}", "kind": self.one("dropout", "dropout", "stochastic_depth")}
                self.maybe(keys, "rate", 0.6, 0.25, 0.1, 0.75, 0)
                if keys["kind"] == "stochastic_depth":
                    self.maybe(keys, "mode", 0.4, "batch")
                layers.insert(index, keys)

    def size_of(self, kind, keys, h, w):
        found = []
        for i, n in enumerate((h, w)):
            at = lambda name, default: (
                keys.get(name, default)[i] if isinstance(keys.get(name, default), list) else keys.get(name, default)
            )
            k, p = at("kernel", 1), at("padding", 0)
            s, d = at("stride", k if kind.endswith("pool") else 1), at("dilation", 1)
            if kind == "conv_transpose2d":
                found.append((n - 1) * s - 2 * p + d * (k - 1) + 1 + at("output_padding", 0))
                continue
            rest = n + 2 * p - d * (k - 1) - 1
            if rest < 0:
                return [0]
            count = rest // s + 1
            if keys.get("ceil_mode") and rest % s and count * s < n + p:
                count += 1
            found.append(count)
        return found
