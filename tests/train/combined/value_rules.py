"""Update rules that look at each value alone: SGD and torch.optim's kinds, Lion as lion-pytorch has it, ADOPT, AdEMAMix
and ScheduleFreeAdamW as pytorch-optimizer has them (configs/optimizers.md).

Each is called as rule(name, w, g, off, lr, decay, after), g known up to `off`, and gives (step, error, states), the
states as (value, error) by their key. The new weight is self.base - step: w, or what the rule makes of w first.
"""

import math

import numpy as np

from exact import single
from storing import Unsure

OFF = 1e-6  # relative error of a few operations in fp32
TINY = 1e-44
HALF = 0.71e-45  # half of fp32's smallest number: what a subnormal product may be off
MOST = float(np.finfo(np.float32).max)


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


def beyond(lr):
    """How far a value may be off that is multiplied by the rate before anything else, which may leave subnormals."""
    return HALF / np.maximum(lr, 1e-30)


class ValueRules:
    """The part of Updates that knows these."""

    def before(self, name, state, w):
        return self.state.get(f"optimizer.{name}.{state}", np.zeros(w.shape))

    def coupled(self, w, g, off, decay):
        total = g + decay * w
        return total, off + OFF * (np.abs(g) + np.abs(decay * w)) * (decay != 0)

    def shrink(self, w, share):
        """The weight becomes (1 - share) w before the step."""
        if share:
            self.base, self.base_off = w * (1 - share), 1.8e-7 * np.abs(w)

    def kept(self, name, after, **states):
        """The states by their keys; the next step reads what the checkpoint holds."""
        found = {f"optimizer.{name}.{state}": pair for state, pair in states.items()}
        self.state.update({key: after[key] for key in found})
        return found

    def average(self, name, state, share, x, off):
        """share of the state and the rest of x."""
        last = share * self.before(name, state, x)
        found = last + (1 - share) * x
        return found, (1 - share) * off + 2 * OFF * (np.abs(last) + np.abs((1 - share) * x)) + TINY

    def average_of_squares(self, name, state, share, x, off):
        square, square_off = squares(x, off)
        found = share * self.before(name, state, x) + (1 - share) * square
        error = (1 - share) * square_off + 4 * OFF * found + TINY
        return np.where(found > MOST, np.inf, found), np.where(np.isfinite(found), error, 0.0)

    def averages(self, name, total, off, b2=0.999):
        """Adam's averages of the gradient and of its square, each (value, error)."""
        first = self.average(name, "exp_avg", self.keys.get("beta1", 0.9), total, off)
        return first, self.average_of_squares(name, "exp_avg_sq", self.keys.get("beta2", b2), total, off)

    def sgd(self, name, w, g, off, lr, decay, after):
        keys = self.keys
        momentum, gathers = keys.get("momentum", 0.0), keys.get("velocity", "gradients") == "gradients"
        total, off = self.coupled(w, g, off, decay)
        if momentum == 0:
            return lr * total, lr * off + OFF * np.abs(lr * total), {}
        state = "momentum" if gathers else "velocity"
        before = self.state.get(f"optimizer.{name}.{state}")
        factor = 1.0 if gathers else -lr
        fresh = factor * total * (1.0 if before is None or not gathers else 1 - keys.get("dampening", 0.0))
        v = fresh if before is None else momentum * before + fresh
        v_off = np.abs(factor) * off + OFF * (np.abs(fresh) + (0 if before is None else np.abs(momentum * before)))
        states = self.kept(name, after, **{state: (v, v_off)})
        nesterov = keys.get("nesterov", False)
        if gathers:
            used, used_off = (total + momentum * v, off + v_off) if nesterov else (v, v_off)
            return lr * used, lr * used_off + OFF * lr * (np.abs(used) + np.abs(total)), states
        used = momentum * v + fresh if nesterov else v
        return -used, v_off * 2 + OFF * (np.abs(used) + np.abs(fresh)), states

    def adam(self, name, w, g, off, lr, decay, after):
        apart = self.keys["kind"] == "adamw"
        total, off = (g, off) if apart else self.coupled(w, g, off, decay)
        m, v = self.averages(name, total, off)
        states = {"exp_avg": m, "exp_avg_sq": v}
        if self.keys.get("amsgrad", False):
            v = states["max_exp_avg_sq"] = np.maximum(v[0], self.before(name, "max_exp_avg_sq", w)), v[1]
        c1, c2 = self.corrections()
        step, error = ratio(m[0], m[1] + beyond(lr / c1), v[0] / c2, v[1] / c2, self.keys.get("epsilon", 1e-8))
        step, error = lr / c1 * step, lr / c1 * error
        if apart and self.states.few_bits and "max_exp_avg_sq" not in states:  # in the order of Transformer Engine's FusedAdam
            step, error = step + lr * decay * w, error + 1.8e-7 * np.abs(w) * (decay != 0)
        elif apart:
            self.shrink(w, lr * decay)
        return step, error, self.kept(name, after, **states)

    adamw = adam

    def corrections(self, b2=0.999):
        return (1 - self.keys.get(name, b) ** self.count for name, b in (("beta1", 0.9), ("beta2", b2)))

    def decoupled(self, w, g, off, lr, decay):
        """The gradient where a key says whether the decay is added to it."""
        if not self.keys.get("decoupled_weight_decay", False):
            return self.coupled(w, g, off, decay)
        self.shrink(w, lr * decay)
        return g, off

    def nadam(self, name, w, g, off, lr, decay, after):
        total, off = self.decoupled(w, g, off, lr, decay)
        m, v = self.averages(name, total, off)
        b1, psi = self.keys.get("beta1", 0.9), self.keys.get("momentum_decay", 4e-3)
        shares = [b1 * (1 - 0.5 * 0.96 ** (t * psi)) for t in range(1, self.count + 2)]
        product, after_next = math.prod(shares[:-1]), math.prod(shares)
        of_gradient, of_mean = lr * (1 - shares[-2]) / (1 - product), lr * shares[-1] / (1 - after_next)
        _, c2 = self.corrections()
        by = v[0] / c2, v[1] / c2, self.keys.get("epsilon", 1e-8)
        first, first_off = ratio(total, off + beyond(of_gradient), *by)
        self.base = self.base - of_gradient * first
        self.base_off = self.base_off + of_gradient * first_off + 6e-8 * np.abs(self.base) * (first != 0)
        step, error = ratio(m[0], m[1] + beyond(of_mean), *by)
        return of_mean * step, of_mean * error, self.kept(name, after, exp_avg=m, exp_avg_sq=v)

    def radam(self, name, w, g, off, lr, decay, after):
        total, off = self.decoupled(w, g, off, lr, decay)
        m, v = self.averages(name, total, off)
        c1, c2 = self.corrections()
        states = self.kept(name, after, exp_avg=m, exp_avg_sq=v)
        most = 2 / (1 - self.keys.get("beta2", 0.999)) - 1
        length = most - 2 * self.count * (1 - c2) / c2
        rate, m_off = lr / c1, m[1] + beyond(lr / c1)
        if length <= 5:
            return rate * m[0], rate * m_off + OFF * np.abs(rate * m[0]), states
        rate *= math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length) * c2)
        step, error = ratio(m[0], m_off, *v, self.keys.get("epsilon", 1e-8))
        return rate * step, rate * error, states

    def ademamix(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        m, v = self.averages(name, total, off)
        slow = self.average(name, "exp_avg_slow", self.keys.get("beta3", 0.9999), total, off)
        c1, c2 = self.corrections()
        mix = self.keys.get("mix", 5)
        top, top_off = m[0] / c1 + mix * slow[0], m[1] / c1 + mix * slow[1]
        top_off = top_off + OFF * (np.abs(m[0] / c1) + np.abs(mix * slow[0])) + beyond(lr)
        step, error = ratio(top, top_off, v[0] / c2, v[1] / c2, self.keys.get("epsilon", 1e-8))
        return lr * step, lr * error, self.kept(name, after, exp_avg=m, exp_avg_sq=v, exp_avg_slow=slow)

    def adopt(self, name, w, g, off, lr, decay, after):
        """The first gradient only starts the average of squares; a later one is divided by the average before it."""
        total, off = self.coupled(w, g, off, decay)
        share, last = self.keys.get("beta2", 0.9999), self.before(name, "exp_avg_sq", w)
        if self.count == 1:
            states = self.kept(name, after, exp_avg=(0 * w, 0 * w), exp_avg_sq=squares(total, off))
            return 0 * w, 0 * w, states
        square = self.average_of_squares(name, "exp_avg_sq", share, total, off)
        root = np.maximum(np.sqrt(last), self.keys.get("epsilon", 1e-6))
        most = self.count**0.25
        ends = (np.clip((total + side * off) / root, -most, most) for side in (-1, 0, 1))
        low, x, high = ends
        x_off = np.maximum(high - x, x - low) + OFF * np.abs(x) + TINY
        mean = self.average(name, "exp_avg", self.keys.get("beta1", 0.9), x, x_off)
        states = self.kept(name, after, exp_avg=mean, exp_avg_sq=square)
        return lr * mean[0], lr * (mean[1] + OFF * np.abs(mean[0])), states

    def schedule_free(self, name, w, g, off, lr, decay, after):
        """The weight is the point at which gradients are taken, between z and the average of all z."""
        v = self.average_of_squares(name, "exp_avg_sq", self.keys.get("beta2", 0.999), g, off)
        _, c2 = self.corrections()
        x, x_off = ratio(g, off, v[0] / c2 + 1e-15, v[1] / c2, self.keys.get("epsilon", 1e-8))
        x, x_off = x + decay * w, x_off + OFF * (np.abs(x) + np.abs(decay * w)) * (decay != 0)
        z = w if self.count == 1 else self.before(name, "z", w)
        largest, weights = self.before(name, "averaging", np.zeros(2)) * (self.count > 1)
        largest = max(largest, float(single(lr)))
        weights += largest**2
        share = largest**2 / weights if weights > 0 else 0.0
        pair = np.array([largest, weights])
        self.base, self.base_off = w + share * (z - w), 3e-7 * (np.abs(w) + np.abs(z)) * (z != w)
        new_z = z - lr * x, lr * x_off + OFF * (np.abs(lr * x)) + 6e-8 * np.abs(z - lr * x)
        rate = lr * (1 - self.keys.get("beta1", 0.9) * (1 - share))
        states = self.kept(name, after, z=new_z, exp_avg_sq=v, averaging=(pair, OFF * pair))
        return rate * x, rate * (x_off + OFF * np.abs(x)), states

    def rmsprop(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        share, momentum = self.keys.get("alpha", 0.99), self.keys.get("momentum", 0.0)
        s = self.average_of_squares(name, "square_avg", share, total, off)
        states, (by, by_off) = {"square_avg": s}, s
        if self.keys.get("centered", False):
            mean, mean_off = states["grad_avg"] = self.average(name, "grad_avg", share, total, off)
            by, by_off = by - mean**2, by_off + 2 * np.abs(mean) * mean_off + 2 * OFF * mean**2
            nothing = (total == 0) & (off == 0)
            if ((by - by_off <= 0) & (by + by_off >= 0) & ~nothing).any():
                raise Unsure("a variance that may be negative")
            by = np.where((by < 0) & ~nothing, np.nan, np.abs(by))
        step, error = ratio(total, off + beyond(lr), by, by_off, self.keys.get("epsilon", 1e-8))
        if momentum > 0:
            last = momentum * self.before(name, "momentum_buffer", w)
            step, error = last + step, error + OFF * (np.abs(last) + np.abs(step))
            states["momentum_buffer"] = step, error
        return lr * step, lr * error + OFF * np.abs(lr * step), self.kept(name, after, **states)

    def adagrad(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        square, square_off = squares(total, off)
        s = self.before(name, "sum", w) + square
        s_off = square_off + OFF * s
        lr = lr / (1 + (self.count - 1) * self.keys.get("lr_decay", 0.0))
        step, error = ratio(total, off + beyond(lr), s, s_off, self.keys.get("epsilon", 1e-10))
        return lr * step, lr * error, self.kept(name, after, sum=(s, s_off))

    def adamax(self, name, w, g, off, lr, decay, after):
        total, off = self.coupled(w, g, off, decay)
        b2, eps = self.keys.get("beta2", 0.999), self.keys.get("epsilon", 1e-8)
        m, m_off = self.average(name, "exp_avg", self.keys.get("beta1", 0.9), total, off)
        u = np.maximum(b2 * self.before(name, "exp_inf", w), np.abs(total) + eps)
        u_off = np.where(np.isinf(u), 0.0, off + OFF * u)
        least = np.maximum(u - u_off, eps * (1 - OFF))
        c1, _ = self.corrections()
        step = lr / c1 * m / u
        error = lr / c1 * (np.abs(m) + m_off + beyond(lr / c1)) / least - np.abs(step) + 1e-5 * np.abs(step)
        return step, error, self.kept(name, after, exp_avg=(m, m_off), exp_inf=(u, u_off))

    def lion(self, name, w, g, off, lr, decay, after):
        b1, b2 = self.keys.get("beta1", 0.9), self.keys.get("beta2", 0.99)
        at, at_off = self.average(name, "exp_avg", b1, g, off)
        mean = self.average(name, "exp_avg", b2, g, off)
        sure = np.abs(at) > at_off
        step = lr * np.where(sure, np.sign(at), 0.0)
        nothing = (g == 0) & (off == 0) & (self.before(name, "exp_avg", w) == 0)
        self.shrink(w, lr * decay)
        return step, lr * (2e-7 + np.where(sure | nothing, 0.0, 1.0)), self.kept(name, after, exp_avg=mean)
