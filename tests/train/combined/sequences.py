"""What transformers have beside layers of images: embeddings, class tokens, positions, learned and rotary (kinds.py
says how a layer is called)."""

import numpy as np

from exact import lowest_bit, single, sum_error
from kinds import Layer


class Embedding(Layer):
    """Rows of the fp32 master for tokens [n, 1, positions, 1]: they are rounded as y. Its copy is another layer's."""

    weighted = True

    def setup(self):
        self.shape = (self.keys["features"], self.shapes[0][1], 1)
        self.params["weight"] = np.zeros((self.keys["vocabulary"], self.keys["features"]))

    def forward(self, xs):
        self.tokens = xs[0][:, 0, :, 0].astype(int)
        y = self.params["weight"][self.tokens].transpose(0, 2, 1)[..., None]
        return y, np.zeros(y.shape)

    def backward(self, dy):
        rows, tokens = dy[..., 0].transpose(0, 2, 1).reshape(-1, dy.shape[1]), self.tokens.reshape(-1)
        value, magnitude = (np.zeros(self.params["weight"].shape) for _ in range(2))
        np.add.at(value, tokens, rows)
        np.add.at(magnitude, tokens, np.abs(rows))
        self.grads["weight"] = value, sum_error(magnitude, len(tokens), lowest_bit(rows, None))
        return [(np.zeros((len(dy), 1, *dy.shape[2:])), 0.0)]


class Position(Layer):
    """Row t of the fp32 master is added to position t; dy is handed on."""

    rounds_dx = False

    def setup(self):
        self.shape = self.shapes[0]
        self.params["weight"] = np.zeros((self.keys["context"], self.shape[0]))

    def forward(self, xs):
        with np.errstate(invalid="ignore"):
            y = single(xs[0] + self.params["weight"][: self.shape[1]].T[..., None])
        return y, np.zeros(y.shape)

    def backward(self, dy):
        value, error = np.zeros(self.params["weight"].shape), np.zeros(self.params["weight"].shape)
        value[: self.shape[1]] = dy.sum(0)[..., 0].T
        of = sum_error(np.abs(dy).sum(0)[..., 0].T, len(dy), lowest_bit(dy, (0, 3)).T)
        error[: self.shape[1]] = of
        self.grads["weight"] = value, error
        return [(dy, np.zeros(dy.shape))]


class ClassToken(Layer):
    """A trained vector in front of the positions [n, channels, positions, 1]; dy of the others is handed on."""

    rounds_dx, mixes = False, False

    def setup(self):
        c, h, w = self.shapes[0]
        self.shape = (c, h * w + 1, 1)
        self.params[""] = np.zeros((1, 1, c))

    def forward(self, xs):
        n, c = xs[0].shape[:2]
        token = np.broadcast_to(self.params[""].reshape(1, c, 1), (n, c, 1))
        y = np.concatenate([token, xs[0].reshape(n, c, -1)], 2)[..., None]
        return y, np.zeros(y.shape)

    def backward(self, dy):
        first = dy[:, :, 0, 0]
        error = sum_error(np.abs(first).sum(0), len(dy), lowest_bit(first, 0))
        self.grads[""] = first.sum(0).reshape(1, 1, -1), np.reshape(error, (1, 1, -1))
        dx = dy[:, :, 1:].reshape(len(dy), *self.shapes[0])
        return [(dx, np.zeros(dx.shape))]


class Rope(Layer):
    """Pairs of a head's values turned by their position's angles, each product rounded to fp32; dx turns them back."""

    mixes = False

    def setup(self):
        self.shape = c, tokens, _ = self.shapes[0]
        width = c // self.keys["heads"]
        rotary = self.key("rotary", width)
        half = rotary // 2
        pair = np.arange(half)
        first, second = (2 * pair, 2 * pair + 1) if self.key("pairing", "half") == "interleaved" else (pair, pair + half)
        heads = np.arange(self.keys["heads"])[:, None] * width
        self.first, self.second = (heads + first).reshape(-1), (heads + second).reshape(-1)
        turn = self.key("base", 10000.0) ** (-2.0 * pair / rotary)
        angle = np.tile(turn, self.keys["heads"])[:, None, None] * np.arange(tokens)[:, None]
        self.cos, self.sin = single(np.cos(angle)), single(np.sin(angle))

    def turned(self, x, sin):
        y = x.copy()
        a, b = x[:, self.first], x[:, self.second]
        with np.errstate(invalid="ignore"):
            y[:, self.first] = single(single(a * self.cos) - single(b * sin))
            y[:, self.second] = single(single(b * self.cos) + single(a * sin))
        return y, np.zeros(y.shape)

    def forward(self, xs):
        return self.turned(xs[0], self.sin)

    def backward(self, dy):
        return [self.turned(dy, -self.sin)]
