"""A policy that is a Python function: of a layer's statistics it makes the alpha that the layer
multiplies what it passes back by, or the scale that its gradient then carries. All else (skipped
steps, branches, attention, the log) is as under policy adaptive."""
import dataclasses
import math
from collections.abc import Mapping

from ada_train import native

NEEDS = {"moments": native.NEEDS_MOMENTS, "logs": native.NEEDS_LOGS,
         "products": native.NEEDS_PRODUCTS}
_LARGEST = (2 - 2.0 ** -23) * 2.0 ** 127
_OF = {"dy": "moments", "w": "moments", "log_mean": "logs", "log_std": "logs",
       "product_min": "products", "product_max": "products"}


@dataclasses.dataclass(frozen=True)
class Scale:
    """What a policy's function gives in place of an alpha: the scale that dx is to carry, a power
    of two as alpha is (unless the policy says power_of_two=False)."""
    value: float


@dataclasses.dataclass(frozen=True)
class Moments:
    """Of all values of a tensor as stored, zeros included; min_abs of those other than zero (0:
    none)."""
    mean: float
    mean_square: float
    min: float
    max: float
    min_abs: float

    @property
    def largest(self):
        return max(-self.min, self.max)

    @property
    def std(self):
        return math.sqrt(max(0.0, self.mean_square - self.mean ** 2))


class Statistics:
    """One layer in one backward pass.

    layer: its name; step: attempts so far, from 0; scale_in: the scale that dy carries;
    dy, w: Moments of the gradient of its output, which carries scale_in, and of its weight;
    fan_in: how many products each value of dx sums; u_min, u_max: smallest and largest magnitude
    of the format of dx;
    log_mean, log_std: mean and deviation of ln |dy| (needs "logs"); product_min, product_max:
    extremes of |dy| |w| over the products that dx sums (needs "products").
    """

    def __init__(self, layer, step, scale_in, fan_in, u_min, u_max, seen, needs):
        self.layer, self.step, self.scale_in, self.fan_in = layer, step, scale_in, fan_in
        self.u_min, self.u_max, self._needs = u_min, u_max, needs
        if "moments" in needs:
            self.dy, self.w = Moments(**seen.dy.values()), Moments(**seen.w.values())
        if "logs" in needs:
            self.log_mean, self.log_std = seen.log_mean, seen.log_std
        if "products" in needs:
            self.product_min, self.product_max = seen.product_min, seen.product_max

    def __getattr__(self, name):
        if name in _OF:
            raise AttributeError(f"{name} was not computed; expected Policy(function, needs="
                                 f"[..., {_OF[name]!r}])")
        raise AttributeError(f"statistics have no {name!r}")


class _Layer:
    """A layer as LayerRule drives it. `native`: the program's own, which counts it as one."""

    def __init__(self, policy, own, name, fan_in, u_min, u_max):
        self._policy, self._own, self._about = policy, own, (name, fan_in, u_min, u_max)
        self.method = "python"

    def needs(self):
        return sum(NEEDS[name] for name in self._policy.needs)

    def decide(self, seen, scale_in, _state_scale=1.0):
        name, fan_in, u_min, u_max = self._about
        policy = self._policy
        given = policy.function(Statistics(name, policy.attempts, scale_in, fan_in, u_min, u_max,
                                           seen, policy.needs))
        alpha = policy.alpha_of(name, given, scale_in)
        made = native.Decision()
        made.unbound = made.bound = made.alpha = alpha
        made.pow2 = alpha if policy.power_of_two else math.nan
        made.scale_in, made.scale_out, made.limit = scale_in, scale_in * alpha, b"target"
        return made

    def observe(self, _tail):
        raise native.PolicyError("a function's policy observes no tails")

    def state(self):
        return self._own.state()

    def load(self, state):
        self._own.load(state)


class Policy(native.Policy):
    """`function`: called with Statistics, gives alpha or Scale(S).

    init_scale: S of the loss. power_of_two: refuses other values; without it a gradient is rounded
    once more where alpha multiplies it. needs: what is computed for the function, of "moments",
    "logs" and "products". keys: others of `scaling:` under policy adaptive (attention, batch_norm,
    ...). A function with state_dict() and load_state_dict() has its state in checkpoints. Of several
    processes each calls it with the statistics of all: it must give the same everywhere.
    """

    def __init__(self, function, init_scale=1.0, power_of_two=True, needs=("moments",), **keys):
        if not callable(function):
            raise native.PolicyError(f"policy: {function!r} is no function")
        unknown = [name for name in needs if name not in NEEDS]
        if isinstance(needs, str) or unknown:
            raise native.PolicyError(f"needs: {needs!r}: expected a list of {', '.join(NEEDS)}")
        if "policy" in keys or "method" in keys:
            raise native.PolicyError("policy, method: a function takes their place; leave them out")
        self._given = (function, init_scale, power_of_two, tuple(needs), keys)
        self.function, self.power_of_two, self.needs = function, power_of_two, tuple(needs)
        self.attempts = 0
        super().__init__({"policy": "adaptive", "init_scale": init_scale, **keys})
        self.name = "python"
        self.called = getattr(function, "__qualname__", type(function).__qualname__)
        self.section += f"  # alpha is what the Python function {self.called} gave"

    def __reduce__(self):
        return _again, (self._given, self._layers, self.state())

    def alpha_of(self, layer, given, scale_in):
        """What the function gave for a layer, checked, as an alpha."""
        wanted = given.value if isinstance(given, Scale) else given
        what = f"policy {self.called}: {layer}: {given!r}"
        try:
            wanted = float(wanted)
        except (TypeError, ValueError):
            raise native.PolicyError(f"{what}: expected a number (alpha) or Scale(S)") from None
        if not wanted > 0 or not math.isfinite(wanted):
            raise native.PolicyError(f"{what}: expected a number above 0 that is finite")
        if self.power_of_two and math.frexp(wanted)[0] != 0.5:
            raise native.PolicyError(f"{what}: expected a power of two, which rounds nothing; "
                                     "Policy(function, power_of_two=False) takes others")
        alpha = wanted / scale_in if isinstance(given, Scale) else wanted
        if not 2.0 ** -126 <= scale_in * alpha <= _LARGEST or not 2.0 ** -126 <= alpha <= _LARGEST:
            raise native.PolicyError(f"{what}: S becomes {scale_in * alpha:g}, which is no normal "
                                     "number of fp32")
        return alpha

    def layer(self, name, fan_reference, fan_exact, u_min, u_max, *rest):
        own = super().layer(name, fan_reference, fan_exact, u_min, u_max, *rest)
        return _Layer(self, own, name, fan_exact, u_min, u_max)

    def update(self, *args, **options):
        self.attempts += 1
        return super().update(*args, **options)

    def state(self):
        own = self.function.state_dict() if hasattr(self.function, "state_dict") else None
        return {"native": super().state(), "attempts": self.attempts, "function": own}

    def load(self, state):
        if "native" not in state:
            raise native.PolicyError("the state is of no policy that is a function")
        super().load(state["native"])
        self.attempts = state["attempts"]
        if state["function"] is not None:
            self.function.load_state_dict(state["function"])


def _again(given, layers, state):
    function, init_scale, power_of_two, needs, keys = given
    policy = Policy(function, init_scale, power_of_two, needs, **keys)
    for name in layers:
        policy.layer(*layers[name])
    policy.load(state)
    return policy


def policy_of(given):
    """The policy that `policy=` names: keys as a map or YAML, a function, or a Policy."""
    if isinstance(given, native.Policy):
        return given
    if callable(given):
        return Policy(given)
    if not isinstance(given, (str, Mapping, type(None))):
        raise TypeError(f"policy: {type(given).__name__}: expected keys as a map or YAML, a function, "
                        "or a Policy")
    return native.Policy(given if isinstance(given, str) else {"policy": "adaptive", **(given or {})})
