"""Update rules beside SGD and Adam: RMSprop, Adagrad, Adamax and Muon as torch.optim has them, Lion as lion-pytorch.

Each takes what Updates.adam takes and gives (step, error, states), the states as (value, error) by their key.
"""

import numpy as np

from exact import single
from formats import Format

OFF = 1e-6  # relative error of a few operations in fp32
TINY = 1e-44
HALF = 0.71e-45  # half of fp32's smallest number: torch multiplies by the rate first, which may leave subnormals


def ratio(top, top_off, square, square_off, eps):
    """top / (sqrt(square) + eps), and how far it may be off."""
    root = lambda x: np.sqrt(np.maximum(x, 0)) + eps
    square_off = np.where(np.isinf(square), 0.0, square_off)  # what left the state's format divides to zero
    value = top / root(square)
    least = np.maximum(np.abs(top) - top_off, 0) / root(square + square_off)
    most = (np.abs(top) + top_off) / root(square - square_off)
    return value, np.maximum(most - np.abs(value), np.abs(value) - least) + 1e-5 * np.abs(value)


def squares(total, off):
    """total^2 and how far it may be off."""
    return total**2, 2 * np.abs(total) * off + off**2 + 4 * OFF * total**2 + TINY


class MoreRules:
    """The part of Updates that knows these."""

    def before(self, name, state, w):
        return self.state.get(f"optimizer.{name}.{state}", np.zeros(w.shape))

    def coupled(self, w, g, off, decay):
        total = g + decay * w
        return total, off + OFF * (np.abs(g) + np.abs(decay * w)) * (decay != 0)

    def kept(self, name, after, **states):
        """The states by their keys; the next step reads what the checkpoint holds."""
        found = {f"optimizer.{name}.{state}": pair for state, pair in states.items()}
        self.state.update({key: after[key] for key in found})
        return found

    def rmsprop(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        share, momentum = self.keys.get("alpha", 0.99), self.keys.get("momentum", 0.0)
        square, square_off = squares(total, off)
        s = share * self.before(name, "square_avg", w) + (1 - share) * square
        s_off = (1 - share) * square_off + 4 * OFF * s + TINY
        step, error = ratio(total, off + HALF / np.maximum(lr, 1e-30), s, s_off, self.keys.get("epsilon", 1e-8))
        if momentum == 0:
            return lr * step, lr * error, self.kept(name, after, square_avg=(s, s_off))
        last = momentum * self.before(name, "momentum_buffer", w)
        step, error = last + step, error + OFF * (np.abs(last) + np.abs(step))
        states = self.kept(name, after, square_avg=(s, s_off), momentum_buffer=(step, error))
        return lr * step, lr * error + OFF * np.abs(lr * step), states

    def adagrad(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        square, square_off = squares(total, off)
        s = self.before(name, "sum", w) + square
        s_off = square_off + OFF * s
        lr = lr / (1 + (self.count - 1) * self.keys.get("lr_decay", 0.0))
        step, error = ratio(total, off + HALF / np.maximum(lr, 1e-30), s, s_off, self.keys.get("epsilon", 1e-10))
        return lr * step, lr * error, self.kept(name, after, sum=(s, s_off))

    def adamax(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        b1, b2 = self.keys.get("beta1", 0.9), self.keys.get("beta2", 0.999)
        last = b1 * self.before(name, "exp_avg", w)
        m = last + (1 - b1) * total
        m_off = (1 - b1) * off + 2 * OFF * (np.abs(last) + np.abs((1 - b1) * total)) + TINY
        u = np.maximum(b2 * self.before(name, "exp_inf", w), np.abs(total) + self.keys.get("epsilon", 1e-8))
        u_off = np.where(np.isinf(u), 0.0, off + OFF * u)
        least = np.maximum(u - u_off, self.keys.get("epsilon", 1e-8) * (1 - OFF))
        step = lr / (1 - b1**self.count) * m / u
        error = lr / (1 - b1**self.count) * (np.abs(m) + m_off) / least - np.abs(step) + 1e-5 * np.abs(step)
        return step, error, self.kept(name, after, exp_avg=(m, m_off), exp_inf=(u, u_off))

    def lion(self, name, w, g, off, lr, decay, after):
        b1, b2 = self.keys.get("beta1", 0.9), self.keys.get("beta2", 0.99)
        last = self.before(name, "exp_avg", w)
        at, at_off = b1 * last + (1 - b1) * g, (1 - b1) * off + 2 * OFF * (np.abs(b1 * last) + np.abs((1 - b1) * g))
        m = b2 * last + (1 - b2) * g
        m_off = (1 - b2) * off + 2 * OFF * (np.abs(b2 * last) + np.abs((1 - b2) * g)) + TINY
        sure = np.abs(at) > at_off + TINY
        step = lr * np.where(sure, np.sign(at), 0.0)
        error = lr * (2e-7 + np.where(sure | (at_off == 0) & (at == 0), 0.0, 1.0))
        if decay:
            step, error = step + lr * decay * w, error + 1.8e-7 * np.abs(w)
        return step, error, self.kept(name, after, exp_avg=(m, m_off))

    def muon(self, name, w, g, off, lr, decay, after):
        """A momentum made orthogonal by Newton-Schulz; small singular values make much of what is not known."""
        share = self.keys.get("momentum", 0.95)
        last = share * self.before(name, "momentum_buffer", w)
        m, m_off = last + (1 - share) * g, (1 - share) * off + 2 * OFF * (np.abs(last) + np.abs(g)) + TINY
        x, x_off = (share * m + (1 - share) * g, m_off + off) if self.keys.get("nesterov", True) else (m, m_off)
        x, x_off = (a.reshape(len(a), -1) for a in (x, x_off))
        rows, columns = x.shape
        x, x_off = (x, x_off) if rows <= columns else (x.T, x_off.T)
        given, given_off = x, x_off
        norm = max(np.sqrt(np.sum(x**2)), self.keys.get("epsilon", 1e-7))
        x, steps = x / norm, self.keys.get("ns_steps", 5)
        a, b, c = self.keys.get("ns_coefficients", (3.4445, -4.775, 2.0315))
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        near = 2 * abs(a) ** steps * (np.sqrt(np.sum(x_off**2)) / norm + 2e-6)
        if self.keys.get("ns_format", "bf16") == "bf16":
            x, near = self.in_bf16(given, given_off, (a, b, c), steps)
        adjust = {"original": max(1.0, rows / columns) ** 0.5, "match_rms_adamw": 0.2 * max(rows, columns) ** 0.5}
        lr_of = lr * adjust.get(self.keys.get("adjust_lr", "original"), (rows / columns) ** 0.5)
        x, near = (part if rows <= columns else part.T for part in (x, near + np.zeros(x.shape)))
        step, near = lr_of * x.reshape(w.shape), near.reshape(w.shape)
        step, error = step + lr * decay * w, lr_of * near + 1e-6 * np.abs(step) + 1.8e-7 * np.abs(w)
        return step, error + np.zeros(w.shape), self.kept(name, after, momentum_buffer=(m, m_off))

    def in_bf16(self, x, off, coefficients, steps):
        """(X, how far it may be off) of the iteration whose matrices are bf16, the first one and the norm too: each is
        known where no end of what fp32's sums may be off leaves it to another number; else X is anything."""
        form, a, (b, c) = Format("bf16"), coefficients[0], coefficients[1:]
        self.known = True

        def stored(value, error):
            low, high = form.round(value - error), form.round(value + error)
            self.known = self.known and bool((low == high).all())
            return form.round(single(value))

        def times(p, q):
            return p @ q, np.abs(p) @ np.abs(q) * 1e-6

        x = stored(x, off)
        norm = float(stored(np.sqrt(np.sum(x**2)), 1e-6 * np.sqrt(np.sum(x**2))))
        norm = max(norm, float(form.round(self.keys.get("epsilon", 1e-7))))
        x = stored(x / norm, 2e-7 * np.abs(x / norm))
        for _ in range(steps):
            gram = stored(*times(x, x.T))
            square, error = times(gram, gram)
            mixed = stored(b * gram + c * square, abs(c) * error + 1e-6 * (np.abs(b * gram) + np.abs(c * square)))
            product, error = times(mixed, x)
            x = stored(a * x + product, error + 1e-6 * (np.abs(a * x) + np.abs(product)))
        return x, np.full(x.shape, 0.0 if self.known else 4.0)  # no singular value comes near 2
