"""What a network of tokens has beside layers of images: embeddings and positions (kinds.py says how a layer is called)."""

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
