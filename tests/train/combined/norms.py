"""Norms and attention in float64, with bounds of what fp32 may be off (kinds.py says how a layer is called)."""

import math

import numpy as np

from kinds import Layer
from storing import Unsure

OFF = 2e-6  # relative error of a norm's terms
MOST = float(np.finfo(np.float32).max)


def _span(x, axes):
    return np.broadcast_to(np.max(np.abs(x), axis=axes, keepdims=True), x.shape)


class BatchNorm(Layer):
    decides = False  # unless scaling.batch_norm is true

    def setup(self):
        self.shape = c = self.shapes[0]
        self.params = {"weight": np.ones(c[0]), "bias": np.zeros(c[0])}
        self.axes = (0, 2, 3)
        self.batches = {}  # mean and unbiased variance of each part of a batch, with their errors

    def forward(self, xs):
        x = xs[0]
        gamma, beta = (self.params[k].reshape(1, -1, 1, 1) for k in ("weight", "bias"))
        mean, var = x.mean(self.axes, keepdims=True), x.var(self.axes, keepdims=True)
        n = x.size // x.shape[1]
        span = np.max(np.abs(x), axis=self.axes)
        for name, value, off in (
            ("running_mean", mean.reshape(-1), span * 1e-6),
            ("running_var", var.reshape(-1) * (n / (n - 1) if n > 1 else 1), span**2 * 2e-6),
        ):
            values, errors = self.batches.setdefault(name, ([], []))
            values.append(value)
            errors.append(off)
        self.inverse = 1 / np.sqrt(var + self.key("eps", 1e-5))
        self.x_hat, self.factor = (x - mean) * self.inverse, gamma * self.inverse
        self.x_hat_error = self.inverse * _span(x, self.axes) * 1e-6  # x - mean is off by the roundings of both
        value = gamma * self.x_hat + beta
        error = OFF * (np.abs(gamma) * np.abs(self.x_hat) + np.abs(beta)) + np.abs(gamma) * self.x_hat_error
        return value, np.where(np.isfinite(error), error, 0)

    def backward(self, dy):
        a, b = dy.mean(self.axes, keepdims=True), (dy * self.x_hat).mean(self.axes, keepdims=True)
        value = self.factor * (dy - a - self.x_hat * b)
        terms = (
            np.abs(dy)
            + np.abs(dy).mean(self.axes, keepdims=True)
            + np.abs(self.x_hat) * np.abs(dy * self.x_hat).mean(self.axes, keepdims=True)
        )
        off = {"weight": np.abs(dy) * self.x_hat_error, "bias": 0.0}
        for name, part in (("weight", dy * self.x_hat), ("bias", dy)):
            self.grads[name] = part.sum(self.axes), (np.abs(part) * 4e-6 + off[name]).sum(self.axes)
        b_off = (np.abs(dy) * self.x_hat_error).mean(self.axes, keepdims=True)
        terms = terms * 6e-6 + self.x_hat_error * np.abs(b) + np.abs(self.x_hat) * b_off
        return [(value, np.abs(self.factor) * terms)]


class LayerNorm(Layer):
    """layer_norm and rms_norm: over the channels of each pixel."""

    def setup(self):
        self.shape = c = self.shapes[0]
        self.center = self.keys["kind"] != "rms_norm"
        self.params = {"weight": np.ones(c[0])}
        if self.center and self.key("bias", True):
            self.params["bias"] = np.zeros(c[0])
        self.count = c[0]  # values that are normalized together

    def over(self, of, a):
        """np.mean or np.max of what is normalized together, in a shape that meets a's."""
        return of(a, axis=1, keepdims=True)

    def mean(self, a):
        return self.over(np.mean, a)

    def forward(self, xs):
        x = xs[0]
        gamma = self.params["weight"].reshape(1, -1, 1, 1)
        beta = self.params.get("bias", np.zeros(x.shape[1])).reshape(1, -1, 1, 1)
        mean = self.mean(x) if self.center else 0.0
        square = self.mean((x - mean) ** 2)
        self.inverse = 1 / np.sqrt(square + self.key("eps", 1e-6 if self.keys["kind"] == "layer_norm" else 1e-5))
        self.x_hat = (x - mean) * self.inverse
        value = gamma * self.x_hat + beta
        error = OFF * (np.abs(gamma * self.x_hat) + np.abs(beta))
        span = np.broadcast_to(self.over(np.max, np.abs(x)), x.shape)
        self.x_hat_error = self.inverse * span * 1e-6 * self.center  # x - mean is off by the roundings of both
        error = error + np.abs(gamma) * self.x_hat_error
        return value, np.where(np.isfinite(error), error, 0)

    def backward(self, dy):
        gamma = self.params["weight"].reshape(1, -1, 1, 1)
        g = dy * gamma
        if np.isfinite(g).all() and self.mean(np.abs(g * np.maximum(np.abs(self.x_hat), 1))).max() > MOST / self.count:
            raise Unsure("sums of a norm beyond fp32")
        a = self.mean(g) if self.center else 0.0
        b = self.mean(g * self.x_hat)
        value = self.inverse * (g - a - self.x_hat * b)
        terms = np.abs(g) + self.mean(np.abs(g)) * self.center + np.abs(self.x_hat) * self.mean(np.abs(g * self.x_hat))
        for name, part in (("weight", dy * self.x_hat), ("bias", dy)):
            if name in self.params:
                off = np.abs(dy) * self.x_hat_error if name == "weight" else 0.0
                self.grads[name] = part.sum((0, 2, 3)), (np.abs(part) * 4e-6 + off).sum((0, 2, 3))
        b_off = self.mean(np.abs(g) * self.x_hat_error)
        terms = terms * 6e-6 + self.x_hat_error * np.abs(b) + np.abs(self.x_hat) * b_off
        return [(value, self.inverse * terms)]


class GroupNorm(LayerNorm):
    """group_norm: over the channels of a group and all pixels of an image."""

    def setup(self):
        super().setup()
        self.count = int(np.prod(self.shape)) // self.keys["groups"]

    def over(self, of, a):
        groups = a.reshape(len(a), self.keys["groups"], -1)
        return np.broadcast_to(of(groups, axis=2, keepdims=True), groups.shape).reshape(a.shape)


class L2(Layer):
    """l2_normalize: a pixel's channels over their length plus eps, times a factor by channel."""

    def setup(self):
        self.shape = self.shapes[0]
        self.params = {"weight": np.full(self.shape[0], float(self.key("value", 20)))}

    def forward(self, xs):
        self.x = x = xs[0]
        self.eps = self.key("eps", 1e-5)
        self.length = np.sqrt((x**2).sum(1, keepdims=True))
        self.gamma = self.params["weight"].reshape(1, -1, 1, 1)
        value = self.gamma * x / (self.length + self.eps)
        self.off = np.where(self.length > 2.0**125, 1.0, OFF)  # of a length whose inverse is subnormal
        return value, np.abs(value) * self.off

    def backward(self, dy):
        g, n = dy * self.gamma, self.length + self.eps
        along = (g * self.x).sum(1, keepdims=True)
        length = np.where(self.length == 0, 1, self.length)
        value = g / n - self.x * along / (n**2 * length)
        terms = np.abs(g) / n + np.abs(self.x) * np.abs(g * self.x).sum(1, keepdims=True) / (n**2 * length)
        part = dy * self.x / n
        self.grads["weight"] = part.sum((0, 2, 3)), (np.abs(part) * 2 * self.off).sum((0, 2, 3))
        return [(value, terms * 3 * self.off)]


class Attention(Layer):
    """Inputs are queries, keys and values, or one that has them side by side; the p that is multiplied is rounded.

    forward_p gives p; after `p` (the stored one) is set, forward gives y. backward is in parts, since each has an
    alpha.
    """

    decides = True
    special = True

    def setup(self):
        c, h, w = self.shapes[0]
        self.heads = self.keys["heads"]
        self.kv = self.key("kv_heads", self.heads)
        self.width = c // (self.heads + 2 * self.kv if len(self.shapes) == 1 else self.heads)
        self.tokens, self.drops = h * w, self.key("dropout", 0) > 0
        self.shape = (self.heads * self.width, self.tokens, 1)

    def split(self, xs):
        """[n, heads, tokens, width] of q, k, v."""
        x = np.concatenate([x.reshape(len(x), -1, self.tokens) for x in xs], 1)
        rows = x.transpose(0, 2, 1)
        q, k, v = np.split(rows, [self.heads * self.width, (self.heads + self.kv) * self.width], 2)
        heads = lambda a, n: a.reshape(len(x), self.tokens, n, self.width).transpose(0, 2, 1, 3)
        return heads(q, self.heads), heads(k, self.kv), heads(v, self.kv)

    def join(self, part):
        n, heads, tokens, width = part.shape
        return part.transpose(0, 1, 3, 2).reshape(n, heads * width, tokens, 1)

    def many(self, a):
        return np.repeat(a, self.heads // self.kv, 1)

    def few(self, a):
        n, h, t, w = a.shape
        return a.reshape(n, self.kv, h // self.kv, t, w).sum(2)

    def sums(self, product, first, second):
        """(value, error) of the sums of two operands by their names, [.., M, N]; None: they are fp32's."""
        return None

    def forward_p(self, xs, taken):
        """taken(name, value, error): what a product takes of a part, with its error."""
        self.q, self.k, self.v = self.split(xs)
        self.c = 1 / math.sqrt(self.width)
        q, k = (taken(name, part, np.zeros(part.shape))[0] for name, part in (("s.q", self.q), ("s.k", self.k)))
        s = self.c * q @ self.many(k).transpose(0, 1, 3, 2)
        off = self.c * np.abs(q) @ self.many(np.abs(k)).transpose(0, 1, 3, 2) * 1e-6
        made = self.sums("forward", "s.q", "s.k")
        if made is not None:
            s, off = self.c * made[0], self.c * made[1] + 1e-6 * self.c * np.abs(made[0])
        seen = np.tril(np.ones((self.tokens, self.tokens))) > 0 if self.key("causal", False) else True
        s = np.where(seen, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        self.soft = np.where(seen, e / e.sum(-1, keepdims=True), 0.0)
        self.soft_error = self.soft * (2e-6 + 2 * off.max(-1, keepdims=True)) + 1e-37 * (self.soft > 0)  # exp flushes
        self.soft_error = np.minimum(np.nan_to_num(self.soft_error, nan=1.0), 1.0)
        alone = np.broadcast_to(np.sum(seen + np.zeros(s.shape), -1, keepdims=True) == 1, s.shape)
        self.soft_error = np.where(alone, 0.0, self.soft_error)  # of one key alone p is 1
        self.factor = self.words.factors(s.size, self.key("dropout", 0)).reshape(s.shape) if self.drops else 1.0
        return self.dropped(self.soft), self.dropped(self.soft_error)

    def dropped(self, x):
        return np.where(self.factor == 0, 0.0, x * self.factor)

    def forward(self, p, p_error, taken):
        self.p, self.p_error = p, p_error
        p, p_error = taken("y.p", p, p_error)
        v = self.many(taken("y.v", self.v, np.zeros(self.v.shape))[0])
        made = self.sums("forward", "y.p", "y.v")
        if made is not None:
            return self.join(made[0]), self.join(made[1])
        return self.join(p @ v), self.join(p_error @ np.abs(v) + p @ np.abs(v) * 3e-6)

    def gradients(self, dy, taken):
        """dv before alpha, and ds before alpha, each (value, error)."""
        n = len(dy)
        given = dy.reshape(n, self.heads, self.width, self.tokens).transpose(0, 1, 3, 2)
        exactly = np.zeros(given.shape)
        pt, p_error = (a.transpose(0, 1, 3, 2) for a in taken("dv.p", self.p, self.p_error))
        d = taken("dv.dy", given, exactly)[0]
        dv = self.summed("dv.p", "dv.dy", pt, p_error, d)
        d = taken("dp.dy", given, exactly)[0]
        v = self.many(taken("dp.v", self.v, np.zeros(self.v.shape))[0])
        dp = d @ v.transpose(0, 1, 3, 2)
        size = np.abs(d) @ np.abs(v).transpose(0, 1, 3, 2)
        made = self.sums("dx", "dp.dy", "dp.v")
        if made is not None:
            dp, size = made[0], np.abs(made[0]) + made[1] / 6e-6
        dp, size = self.dropped(dp), self.dropped(size)
        ds = self.soft * (dp - (self.soft * dp).sum(-1, keepdims=True))
        terms = self.soft * (size + (self.soft * size).sum(-1, keepdims=True))
        off = (
            terms * 6e-6
            + 2.0**-149 * (terms > 0)  # a product below fp32's smallest number
            + self.soft_error * (np.abs(dp) + (self.soft * np.abs(dp)).sum(-1, keepdims=True))
            + self.soft * (self.soft_error * np.abs(dp)).sum(-1, keepdims=True)
        )
        return dv, (ds, off)

    def of_scores(self, ds, ds_error, taken):
        """dq and dk before alpha."""
        k = self.many(taken("dq.k", self.k, np.zeros(self.k.shape))[0])
        d, off = taken("dq.ds", ds, ds_error)
        made = self.sums("dx", "dq.ds", "dq.k")
        if made is None:
            dq = self.c * d @ k, self.c * (off @ np.abs(k) + np.abs(d) @ np.abs(k) * 3e-6)
        else:
            dq = self.c * made[0], self.c * made[1] + self.c * np.abs(made[0]) * 1e-6
        st, se = (a.transpose(0, 1, 3, 2) for a in taken("dk.ds", ds, ds_error))
        q = taken("dk.q", self.q, np.zeros(self.q.shape))[0]
        value, error = self.summed("dk.ds", "dk.q", st, se, q)
        return dq, (self.c * value, self.c * error)

    def summed(self, first, second, a, off, b):
        """(value, error) of a product over queries: those of a group of heads are added up in fp32."""
        made = self.sums("dx", first, second)
        if made is None:
            return self.few(a @ b), self.few(off @ np.abs(b) + np.abs(a) @ np.abs(b) * 3e-6)
        inexact = 1e-6 * (first == "dk.ds") + 3e-7 * (self.heads != self.kv)  # times c, and added up
        return self.few(made[0]), self.few(made[1] + inexact * np.abs(made[0]))
