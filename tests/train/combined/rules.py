"""How a layer finds its alpha under the adaptive policy: the formulas of src/scaling/README.md.

A decision is a map with the columns of scales.csv. What is computed from sums has a relative error; `decide` is
called with the
row that the program wrote and says what differs from the page, then goes on with the program's alpha.
"""

import math
import statistics

import numpy as np

NEAR = 2e-5  # relative error of what comes from moments in fp32
NORMAL = statistics.NormalDist()


def inverse_erf(n):
    return NORMAL.inv_cdf((n + 1) / 2) / math.sqrt(2)


class Operand:
    """What a method sees beside dy: the rounded weight, batch norm's factors, or a summary of attention's other
    factor."""

    def __init__(self, mean_square, smallest, largest, fan, products=None):
        self.mean_square, self.smallest, self.largest, self.fan = mean_square, smallest, largest, fan
        self.products = products  # () -> least and largest |product| that meets, of those other than zero


def magnitudes(x):
    """Smallest and largest magnitude other than zero; None where all are zero."""
    a = np.abs(x)[x != 0]
    return (a.min(), a.max()) if a.size else (None, None)


def extremes(pairs):
    """Least and largest product of (dy, w) that meet, from pairs of arrays."""
    least, most = [], []
    for dy, w in pairs:
        (a, b), (c, d) = magnitudes(dy), magnitudes(w)
        if a is not None and c is not None:
            least.append(float(np.float32(a * c)))
            most.append(float(np.float32(b * d)))
    return (min(least), max(most)) if least else (None, None)


def of_weight(layer, dy, fan_word):
    """The operand of a convolution or linear layer, from its rounded weight."""
    w = layer.w
    fan = layer.fan_reference if fan_word == "reference" else layer.fan

    def products():
        if w.ndim == 2:
            d = layer.rows(dy)
            return extremes((d[:, o], w[o]) for o in range(w.shape[0]))
        if layer.transposed:  # its weight is [in, out / groups, ...]
            g = layer.groups
            ins, outs = w.shape[0] // g, w.shape[1]
            return extremes(
                (dy[:, k * outs + o], w[k * ins : (k + 1) * ins, o]) for k in range(g) for o in range(outs)
            )
        return extremes((dy[:, o], w[o]) for o in range(w.shape[0]))

    low, high = magnitudes(w)
    return Operand(np.mean(w**2), low, high, fan, products)


def of_factors(factors, dy):
    low, high = magnitudes(factors)
    return Operand(
        np.mean(factors**2), low, high, 1, lambda: extremes((dy[:, c], factors[c]) for c in range(len(factors)))
    )


def unbound(method, keys, dy, operand, u_min, u_max):
    """The method's factor and the word of what decided: one, target, cap, fixed, or `target or cap`."""
    low, high = magnitudes(dy)
    n = keys.get("underflow_target", 1e-3)
    if method == "fixed":
        return keys["scale"], "fixed"
    cast = operand is None
    fan = 1 if cast else operand.fan
    target, cap = 1.0, math.inf
    if method == "lognormal" and cast:
        logs = np.log(np.abs(dy)[dy != 0])
        if logs.size == 0 or logs.max() == logs.min():
            return 1.0, "one"
        target = math.exp(min(math.log(u_min) - logs.mean() - logs.std() * NORMAL.inv_cdf(n), 700))
        cap = u_max / high
    elif method in ("approx_range", "lognormal"):
        if cast:
            sigma, largest = dy.std(), high
        else:
            sigma = math.sqrt(np.mean(dy**2) * operand.mean_square) * math.sqrt(fan / 2)
            largest = None if high is None or operand.largest is None else high * operand.largest
        if sigma == 0 or largest is None:
            return 1.0, "one"
        target = u_min / (math.sqrt(2) * inverse_erf(n) * sigma)
        cap = u_max / fan / largest
    elif method == "abs_range":
        if low is None or (not cast and operand.smallest is None):
            return 1.0, "one"
        w_low, w_high = (1.0, 1.0) if cast else (operand.smallest, operand.largest)
        target = u_min / fan / max(low * w_low, 1e-15)
        cap = u_max / fan / (high * w_high)
    elif method == "element_wise_range":
        if cast:
            least, most = low, high
        elif operand.products is not None:
            least, most = operand.products()
        else:
            least, most = (low * operand.smallest, high * operand.largest) if low and operand.smallest else (None, None)
        if not least:
            return 1.0, "one"
        target, cap = u_min / least, u_max / most / fan
    value = min(max(target, 1.0), cap)
    if abs(cap - target) <= NEAR * cap and cap > 1:  # either may be the smaller one
        return value, "target or cap"
    if cap < max(target, 1.0):
        return value, "cap"
    return value, "target" if target > 1 else "one"


def exact_range(keys, last, s_in, u_min, u_max):
    """Every (alpha, word) that the exponents of the last pass allow, None where these are unsure: last is (values,
    errors, S) of its
    dgrad, or None."""
    if last is None:
        return [(1.0, "one")]
    value, error, s_last = last
    if np.mean(error > 0.1 * np.abs(value)) > 0.5 * keys.get("underflow_target", 1e-3):
        return None
    ratio = s_in / s_last
    found = []
    for side in (-1, 0, 1):
        a = np.abs(value)
        a = np.maximum(a + side * error, 0)[a > 0] * ratio
        a = a[a > 0]
        if a.size == 0:
            found.append((1.0, "one"))
            continue
        exponents = np.frexp(a)[1] - 1
        threshold = math.frexp(u_min / 2)[1] - 1
        k = 0
        while np.mean(exponents + k < threshold) > keys.get("underflow_target", 1e-3):
            k += 1
        room = u_max / 2.0 ** keys.get("headroom_bits", 4) / a.max()
        high = math.frexp(room)[1] - 1
        found.append((2.0 ** min(k, high), "cap" if high < k else "target" if k else "one"))
    return found


def floor_power(x):
    return 2.0 ** (math.frexp(x)[1] - 1)


def pipeline(method, keys, value, word, s_in):
    """From the unbound factor to alpha: (bound or None, pow2, alpha, word)."""
    bound = None
    if method in ("approx_range", "lognormal"):
        sb, ab = keys.get("scale_upper_bound", 16), keys.get("accum_upper_bound", 1024) / s_in
        bound = min(value, ab, sb)
        if bound < value:
            word = "SB" if sb <= ab else "AB"
    held = value if bound is None else bound
    pow2 = floor_power(held) if keys.get("power_of_two", True) else None
    alpha = min(max(held if pow2 is None else pow2, 2.0**-126), 2.0**127)
    alpha = min(max(alpha, 2.0**-126 / s_in), 2.0**127 / s_in)
    return bound, pow2, alpha, word
