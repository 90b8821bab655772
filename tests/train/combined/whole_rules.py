"""Update rules that look at a parameter as a whole: Adafactor and Muon as torch.optim has them, Lamb as
pytorch-optimizer, StableAdamW as torch-optimi (value_rules.py says how a rule is called).

Norms and means are sums of squares in double: they are as exact as what they are of.
"""

import numpy as np

from formats import Format
from exact import single
from value_rules import OFF, TINY, ValueRules, ratio, squares

EPSILON = float(np.finfo(np.float32).eps)


def norm(x):
    return float(np.sqrt(np.sum(np.square(x))))


def ends_of(norm_of, x, off):
    """A norm of x, which may be off by so much, and how far it may be off itself."""
    value = norm_of(np.abs(x))
    return value, max(norm_of(np.abs(x) + off) - value, value - norm_of(np.maximum(np.abs(x) - off, 0))) + OFF * value


class WholeRules(ValueRules):
    def lamb(self, name, w, g, off, lr, decay, after):
        """The step is as long as the weights (at most 10), times the rate."""
        self.shrink(w, lr * decay)
        m, v = self.averages(name, g, off)
        eps = self.keys.get("epsilon", 1e-6)
        x, x_off = ratio(*m, *v, eps)
        length, length_off = ends_of(norm, x, x_off)
        weights, weights_off = ends_of(norm, self.base, self.base_off)
        weights, weights_off = min(weights, 10.0), weights_off * (weights - weights_off < 10)
        c1, _ = self.corrections()
        trust, trust_off = 1.0, 0.0
        if weights > 0 and length > 0:
            trust = weights / (length + eps)
            trust_off = (weights + weights_off) / (max(length - length_off, 0.0) + eps) - trust
        rate, rate_off = lr / c1 * trust, lr / c1 * trust_off
        error = (rate + rate_off) * x_off + (rate_off + OFF * rate) * np.abs(x)
        return rate * x, error, self.kept(name, after, exp_avg=m, exp_avg_sq=v)

    def stable_adamw(self, name, w, g, off, lr, decay, after):
        """Adam whose rate is divided by the root mean square of gradient / root, where that is above 1."""
        shares = [self.keys.get(key, default) for key, default in (("beta1", 0.9), ("beta2", 0.99))]
        b1, b2 = ((share**self.count - share) / (share**self.count - 1) for share in shares)
        m = self.average(name, "exp_avg", b1, g, off)
        v = self.average_of_squares(name, "exp_avg_sq", b2, g, off)
        eps = self.keys.get("epsilon", 1e-6)
        x, x_off = ratio(*m, *v, eps)
        mean = lambda top, square: float(np.sqrt(np.mean(top**2 / np.maximum(square, eps**2))))
        size = mean(g, v[0])
        high, low = mean(np.abs(g) + off, v[0] - v[1]), mean(np.maximum(np.abs(g) - off, 0), v[0] + v[1])
        rate, least, most = (lr / max(1.0, s) for s in (size, high, low))
        rate_off = max(most - rate, rate - least) + OFF * rate
        self.shrink(w, rate * decay)
        self.base_off = self.base_off + rate_off * decay * np.abs(w)
        error = (rate + rate_off) * x_off + rate_off * np.abs(x)
        return rate * x, error, self.kept(name, after, exp_avg=m, exp_avg_sq=v)

    def adafactor(self, name, w, g, off, lr, decay, after):
        """Divides by the root of an estimate of the mean square, of matrices (the last two axes) the product of averages of
        rows and columns; the rate goes with the root mean square of the weights."""
        rate = max(1e-3, norm(w) / w.size**0.5) * min(lr, self.count**-0.5)
        self.shrink(w, lr * decay)
        share = self.count ** self.keys.get("beta2_decay", -0.8)
        square, square_off = squares(g, off)

        def averaged(state, axis):
            x, x_off = (a.mean(axis, keepdims=True) if axis else a for a in (square, square_off))
            last = (1 - share) * self.before(name, state, x)
            return last + share * x, share * x_off + 2 * OFF * (last + share * x) + TINY

        if w.ndim == 1:
            found = {"variance": averaged("variance", None)}
            value, spread = found["variance"]
            least, most = value - spread, value + spread
        else:
            found = {"row_var": averaged("row_var", -1), "col_var": averaged("col_var", -2)}
            ends = [[value + side * spread for value, spread in found.values()] for side in (-1, 0, 1)]
            means = [np.maximum(rows.mean(-2, keepdims=True), EPSILON) for rows, _ in ends]
            least, value, most = (
                np.maximum(rows, 0) * np.maximum(columns, 0) / mean * (1 + side * OFF)
                for (rows, columns), mean, side in zip(ends, means[::-1], (-1, 0, 1))
            )
        low, middle, high = (np.sqrt(np.maximum(x, EPSILON**2)) for x in (least, value, most))
        x = g / middle
        x_off = np.maximum((np.abs(g) + off) / low - np.abs(x), np.abs(x) - np.maximum(np.abs(g) - off, 0) / high)
        x_off = x_off + OFF * np.abs(x)
        length, length_off = ends_of(norm, x, x_off)
        most_length = w.size**0.5 * self.keys.get("d", 1)
        factors = [rate / max(1.0, n / most_length) for n in (length, length - length_off, length + length_off)]
        factor_off = max(factors) - min(factors) + OFF * rate
        error = (factors[0] + factor_off) * x_off + factor_off * np.abs(x)
        return factors[0] * x, error, self.kept(name, after, **found)

    def muon(self, name, w, g, off, lr, decay, after):
        """A momentum made orthogonal by Newton-Schulz; small singular values make much of what is not known."""
        share = self.keys.get("momentum", 0.95)
        m, m_off = self.average(name, "momentum_buffer", share, g, off)
        m_off = m_off + 2 * OFF * np.abs(share * g)
        x, x_off = (share * m + (1 - share) * g, m_off + off) if self.keys.get("nesterov", True) else (m, m_off)
        x, x_off = (a.reshape(len(a), -1) for a in (x, x_off))
        rows, columns = x.shape
        x, x_off = (x, x_off) if rows <= columns else (x.T, x_off.T)
        given, given_off = x, x_off
        length = max(norm(x), self.keys.get("epsilon", 1e-7))
        x, steps = x / length, self.keys.get("ns_steps", 5)
        a, b, c = self.keys.get("ns_coefficients", (3.4445, -4.775, 2.0315))
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        near = 2 * abs(a) ** steps * (norm(x_off) / length + 2e-6)
        if self.keys.get("ns_format", "bf16") == "bf16":
            x, near = self.in_bf16(given, given_off, (a, b, c), steps)
        adjust = {"original": max(1.0, rows / columns) ** 0.5, "match_rms_adamw": 0.2 * max(rows, columns) ** 0.5}
        lr_of = lr * adjust.get(self.keys.get("adjust_lr", "original"), (rows / columns) ** 0.5)
        x, near = (part if rows <= columns else part.T for part in (x, near + np.zeros(x.shape)))
        step, near = lr_of * x.reshape(w.shape), near.reshape(w.shape)
        self.shrink(w, lr * decay)
        states = self.kept(name, after, momentum_buffer=(m, m_off))
        return step, lr_of * near + 1e-6 * np.abs(step) + np.zeros(w.shape), states

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
        length = float(stored(norm(x), 1e-6 * norm(x)))
        length = max(length, float(form.round(self.keys.get("epsilon", 1e-7))))
        x = stored(x / length, 2e-7 * np.abs(x / length))
        for _ in range(steps):
            gram = stored(*times(x, x.T))
            square, error = times(gram, gram)
            mixed = stored(b * gram + c * square, abs(c) * error + 1e-6 * (np.abs(b * gram) + np.abs(c * square)))
            product, error = times(mixed, x)
            x = stored(a * x + product, error + 1e-6 * (np.abs(a * x) + np.abs(product)))
        return x, np.full(x.shape, 0.0 if self.known else 4.0)  # no singular value comes near 2
