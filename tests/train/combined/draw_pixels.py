"""Random networks that give a class to each pixel: pictures and label images in files, and the layers that segmenters
and detectors have beside those of draw_layers.py."""

import numpy as np

from draw_layers import KINDS
from draw_policies import DrawPolicies
from draws import Draw

MORE = (
    "gelu",
    "softplus",
    "elu",
    "prelu",
    "channel_scale",
    "affine",
    "softmax",
    "group_norm",
    "lrn",
    "shortcut",
    "bilinear",
    "unpool",
    "unpool",
)
WITHIN = tuple(kind for kind in KINDS if kind not in ("linear", "attention"))


class DrawPixels(DrawPolicies, Draw):
    def network(self, shape, classes):
        """Layers whose last one gives [rows, columns, classes] of the image."""
        self.begin(shape)
        self.convolution()
        for _ in range(self.whole(1, 6)):
            self.layer(self.one(*WITHIN, *MORE, *MORE))
        c, h, w = self.shapes[self.before]
        _, rows, columns = shape
        if rows % h == 0 and columns % w == 0 and rows // h == columns // w and self.chance(0.7):
            if rows > h:
                self.enlarged(rows // h)
        elif (h, w) != (rows, columns):
            self.put("adaptive_avg_pool", (c, rows, columns), size=[rows, columns])
        kernel, padding = self.one((1, 0), (3, 1))
        keys = {"bias": False} if self.chance(0.3) else {}
        self.put("conv2d", (classes, rows, columns), channels="classes", kernel=kernel, padding=padding, **keys)
        if self.chance(0.3):
            self.put("scale", (classes, rows, columns))
        return self.layers

    def enlarged(self, factor):
        c, h, w = self.shapes[self.before]
        keys = {"scale": factor} if factor != 2 else {}
        if self.chance(0.5):
            keys["mode"] = "bilinear"
            self.maybe(keys, "align_corners", 0.4, True)
        self.put("upsample", (c, h * factor, w * factor), **keys)

    def layer(self, kind):
        if kind not in MORE:
            return super().layer(kind)
        c, h, w = self.shapes[self.before]
        keys, gives = {}, (c, h, w)
        if kind == "gelu":
            self.maybe(keys, "approximate", 0.5, "tanh")
        elif kind == "softplus":
            self.maybe(keys, "beta", 0.4, 2, 0.5)
            self.maybe(keys, "threshold", 0.4, 1)
        elif kind == "elu":
            self.maybe(keys, "alpha", 0.5, 0.5)
        elif kind == "prelu":
            self.maybe(keys, "per_channel", 0.5, True)
        elif kind == "affine":
            self.maybe(keys, "factor", 0.7, 0.5, 3, 0.1)
            self.maybe(keys, "offset", 0.7, 0.25, -1)
        elif kind == "group_norm":
            if h * w * c < 4:
                return None
            keys["groups"] = self.one(*[n for n in (1, 2) if c % n == 0 and h * w * c // n > 1])
            self.maybe(keys, "eps", 0.3, 1e-3, 0.25)
        elif kind == "lrn":
            self.maybe(keys, "size", 0.6, 2, 3)
            self.maybe(keys, "alpha", 0.6, 1, 0.125)
            self.maybe(keys, "beta", 0.3, 0.5)
            self.maybe(keys, "k", 0.3, 2)
        elif kind == "shortcut":
            stride, more = self.one(1, 2), self.one(0, 2)
            keys, gives = {"channels": c + more, "stride": stride}, (c + more, -(-h // stride), -(-w // stride))
        elif kind == "bilinear":
            return self.enlarged(2) if max(h, w) <= 5 else None
        elif kind == "unpool":
            return self.unpooled()
        return self.put(kind, gives, **keys)

    def unpooled(self):
        """A pool, some layers of its size, and the unpooling to where it found its values."""
        c, h, w = self.shapes[self.before]
        if min(h, w) < 2:
            return
        keys = {"kernel": 2}
        self.maybe(keys, "ceil_mode", 0.4, True)
        out = self.size_of("max_pool", keys, h, w)
        pool = self.put("max_pool", (c, *out), **keys)
        if self.chance(0.6):
            self.convolution(channels=c)
        if self.chance(0.4):
            self.put("relu", (c, *out))
        self.put("max_unpool", (c, h, w), pool=pool)

    def shape(self, classes):
        return (3, self.whole(2, 6), self.whole(2, 6))

    def config(self):
        config, shape = super().config()
        config["task"] = "segmentation"
        own = np.random.default_rng([self.seed, 2])
        low = [float(own.choice([0.0, 0.5, 0.25])) for _ in range(3)]
        config["data"] = {
            "dataset": "camvid",
            "path": "pictures",
            "batch_size": config["data"]["batch_size"],
            "shuffle": False,
            "class_names": [f"c{i}" for i in range(config["model"]["classes"])],
            "normalize": {"mean": low, "std": [float(own.choice([1.0, 0.5, 0.25, 2.0**-6])) for _ in range(3)]},
        }
        config["train"].pop("label_smoothing", None)
        if own.random() < 0.4:
            config["train"]["class_weights"] = [float(own.choice([0.0, 0.5, 1.0, 3.0])) for _ in config["data"]["class_names"]]
            config["train"]["class_weights"][0] = 1.0
        return config, shape

    def arrays(self, config, shape):
        """Pictures whose bytes are 0 or 255, and labels of pixels, 255 of those without one."""
        count, classes = self.samples(config), config["model"]["classes"]
        x = (255 * self.g.integers(0, 2, (count, *shape[1:], 3))).astype(np.uint8)
        labels = self.g.integers(0, classes, (count, *shape[1:]))
        labels = np.where(self.g.random(labels.shape) < self.one(0.0, 0.3), 255, labels)
        labels[:, 0, 0] = np.arange(count) % classes
        x, labels = self.equal_parts(config, x, labels)
        return {"train": x, "trainannot": labels.astype(np.uint8), "test": x[:1], "testannot": labels[:1].astype(np.uint8)}
