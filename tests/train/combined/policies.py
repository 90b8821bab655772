"""The policies that decide S from step to step, as src/scaling/README.md has them: start_scale(), then end() after
each step."""

import math

import numpy as np

from exact import single
from network import entries
from storing import Unsure

GRADUAL = {  # preset: start, floor, ceiling, growth only where the scale stays finite
    "pytorch": (65536.0, 0.0, math.inf, True),
    "tensorflow": (2.0**15, 1.0, math.inf, True),
    "keras": (2.0**15, 0.0, math.inf, False),
    "apex": (65536.0, 0.0, 2.0**24, False),
    "jmp": (2.0**15, 1.0, math.inf, True),
    "paddle": (65536.0, 0.0, math.inf, False),
    "apex_hysteresis": (65536.0, 0.0, math.inf, True),
    "megatron": (2.0**32, 1.0, math.inf, False),
}


class Constant:
    near = 0.0  # relative error of the scale

    def __init__(self, scale):
        self.scale = float(scale)

    def start_scale(self):
        return self.scale

    def layer(self, name):
        raise KeyError(name)

    def end(self, beside, finite, gradients):
        pass


class Dynamic(Constant):
    def __init__(self, keys):
        start, self.floor, self.ceiling, self.stays_finite = GRADUAL[keys.get("preset", "pytorch")]
        super().__init__(keys.get("init_scale", start))
        if keys.get("preset") == "apex":
            self.scale = min(self.scale, keys.get("max_scale", self.ceiling))
        self.floor = keys.get("min_scale", self.floor)
        self.ceiling = keys.get("max_scale", self.ceiling)
        self.growth, self.backoff = keys.get("growth_factor", 2.0), keys.get("backoff_factor", 0.5)
        self.interval, self.clean = keys.get("growth_interval", 2000), 0

    def end(self, beside, finite, gradients):
        if not finite:
            self.scale, self.clean = max(self.scale * self.backoff, self.floor), 0
            return
        self.clean += 1
        if self.clean >= self.interval:
            self.clean, grown = 0, single(self.scale * self.growth)
            if math.isfinite(grown) or not self.stays_finite:
                self.scale = min(float(grown), self.ceiling)


class Hysteresis(Dynamic):
    """apex_hysteresis and megatron: the scale falls at the overflow that uses the count up."""

    def __init__(self, keys):
        self.refills = keys["preset"] == "apex_hysteresis"  # at each clean step, not at a growth
        super().__init__({"growth_interval": 2000 if self.refills else 1000, **keys})
        self.most = self.left = keys.get("hysteresis", 2)

    def end(self, beside, finite, gradients):
        self.left -= not finite
        if finite or self.left <= 0:
            super().end(beside, finite, gradients)
        else:
            self.clean = 0
        if finite and (self.refills or self.clean == 0):
            self.left = self.most


class Windows(Constant):
    """mindformers: a list of windows, through which growths go up; the third fall in a row leaves it for 1."""

    def __init__(self, keys):
        super().__init__(keys.get("init_scale", 65536.0))
        self.factor, least, top = keys.get("growth_factor", 2), keys.get("min_window", 20), keys.get("max_window", 1000)
        self.list = [top]
        while top > least:
            top = top // 200 * 100 if top > 100 else top / 2 if top == 100 else top - least / 2
            self.list.insert(0, int(top))
        first = keys.get("growth_interval", least)
        self.at = self.list.index(first) if first in self.list else 0
        self.window, self.since, self.ups, self.downs = self.list[self.at], 0, 0, 0

    def end(self, beside, finite, gradients):
        self.since += 1
        grows = finite and self.since >= self.window
        if not finite:
            self.scale, self.since = max(float(single(self.scale * single(1 / self.factor))), 1.0), 0
            self.downs = (self.downs + 1) % 4
        elif grows:
            self.scale, self.since = float(single(self.scale * self.factor)), 0
            self.ups, self.downs = (self.ups + 1) % 4, 0
        if self.ups == 3 and self.at != len(self.list) - 1:
            self.at, self.ups = self.at + 1, 0
            self.window = self.list[self.at]
        if not finite and self.downs == 3 and self.at not in (-1, 0):
            self.window, self.at, self.ups, self.downs = 1, -1, 0, 0


class Logarithmic(Constant):
    """guided_diffusion: S = 2^g, g + growth at each clean step, g - 1 and no update after an overflow."""

    near = 1e-6

    def __init__(self, keys):
        self.g, self.growth = keys.get("init_lg_scale", 20.0), keys.get("lg_growth", 1e-3)
        super().__init__(2.0**self.g)

    def end(self, beside, finite, gradients):
        self.g += self.growth if finite else -1
        self.scale = 2.0**self.g


class LogMax(Constant):
    def __init__(self, keys):
        super().__init__(1.0)
        self.keys, self.k = keys, 0
        self.m = self.m2 = self.q = 0.0

    def end(self, beside, finite, gradients):
        largest = max(float(np.max(np.abs(g))) for g, _ in gradients.values()) if finite else math.inf
        if largest == 0:
            return
        keys = self.keys
        b1, b2 = keys.get("beta1", 0.99), keys.get("beta2", 0.999)
        x = math.log2(largest) if finite else keys.get("log_max", 16)
        self.k += 1
        self.m = b1 * self.m + (1 - b1) * x
        self.m2 = b2 * self.m2 + (1 - b2) * x
        self.q = b2 * self.q + (1 - b2) * x * x
        mu = self.m / (1 - b1**self.k)
        var = self.q / (1 - b2**self.k) - (self.m2 / (1 - b2**self.k)) ** 2
        off = 4e-7 * mu**2 / (1 - b2)  # of the variance, a difference of squares over 1 - b2^k, in fp32
        self.near = 1e-3 + 3.0 * keys.get("overflow_std_dev", 3.09) * min(off**0.5, off / max(var, 1e-9) ** 0.5)
        s = 2.0 ** (keys.get("log_max", 16) - (mu + keys.get("overflow_std_dev", 3.09) * math.sqrt(max(var, 0))))
        self.scale = min(max(s, keys.get("min_scale", 1.0)), keys.get("max_scale", 2.0**14))


class Histogram(Constant):
    """By how many of the rounded dx lie above an edge, at the end of each period; what overflows counts as too high."""

    def __init__(self, keys):
        super().__init__(keys.get("init_scale", 65536.0))
        self.keys, self.attempts = keys, 0

    def end(self, beside, finite, gradients):
        self.attempts += 1
        if self.attempts < self.keys.get("update_period", 1000):
            return
        self.attempts, low, high, total = 0, 0, 0, 0
        for (name, tensor), tally in beside.tallies.items():
            if tensor in ("dx", "dx2", "dv", "ds", "dq", "dk"):
                if finite and (name, tensor) in beside.loose:
                    raise Unsure("gradients above an edge")
                parts = tally.above(self.keys.get("bin_edge", 0.125))
                low, high, total = low + parts[0], high + parts[1], total + parts[2]
        most = self.keys.get("threshold", 1e-7) * total
        if finite and total == 0:
            return
        smaller = max(self.scale / 2, self.keys.get("min_scale", 1.0))
        larger = min(self.scale * 2, self.keys.get("max_scale", 2.0**126))
        falls = not finite or low > most
        if finite and low <= most < high:  # either may be right
            falls = [float(row["scale"]) for row in beside.run.csv("steps.csv")][beside.step :][:1] == [smaller]
        self.scale = smaller if falls else larger


class Layerwise(Constant):
    """Every layer that decides has a scale of its own; the backward pass starts with that of the last one."""

    def __init__(self, keys, network):
        self.scales, self.keys, self.clean = {}, {}, {}
        self.last, self.start = None, float(keys.get("init_scale", 65536))  # where no layer decides
        for node in network.nodes:
            if not node.trained_before:  # it has no dx
                continue
            names = (
                [node.name]
                if node.layer.decides and node.kind != "attention"
                else ([f"{node.name}.{part}" for part in ("dq", "dk", "ds", "dv")] if node.kind == "attention" else [])
            )
            for name in names:
                self.keys[name] = {**keys, **entries(keys.get("layers", []), name, node.name)}
                self.scales[name] = float(self.keys[name].get("init_scale", 65536))
                self.clean[name] = 0
                self.last = name

    def start_scale(self):
        return self.scales.get(self.last, self.start)

    def layer(self, name):
        return self.scales[name]

    def end(self, beside, finite, gradients):
        broken = {
            beside.network.of_parameter[name][0] for name, (g, _) in gradients.items() if not np.isfinite(g).all()
        } | beside.broken
        if not finite and not broken & self.keys.keys():  # of a layer without a scale: all fall
            broken = set(self.keys)
        for name, keys in self.keys.items():
            if name in broken:
                self.clean[name] = 0
                self.scales[name] = max(
                    self.scales[name] * keys.get("backoff_factor", 0.5), keys.get("min_scale", 2.0**-126)
                )
            else:  # clean itself, though the step may be skipped for another's sake
                self.clean[name] += 1
                if self.clean[name] >= keys.get("growth_interval", 10000):
                    self.clean[name] = 0
                    self.scales[name] = min(
                        self.scales[name] * keys.get("growth_factor", 2), keys.get("max_scale", 2.0**126)
                    )


def policy_of(config, network):
    keys = config.get("scaling", {"policy": "none"})
    policy = keys["policy"]
    if policy == "dynamic":
        kinds = {"guided_diffusion": Logarithmic, "apex_hysteresis": Hysteresis, "megatron": Hysteresis, "mindformers": Windows}
        return kinds.get(keys.get("preset"), Dynamic)(keys)
    if policy == "logmax":
        return LogMax(keys)
    if policy == "histogram":
        return Histogram(keys)
    if policy == "layerwise_dynamic":
        return Layerwise(keys, network)
    return Constant(keys["scale"] if policy == "fixed" else keys.get("init_scale", 1))
