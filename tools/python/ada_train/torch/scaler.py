"""policy dynamic with all of ada-train's presets in the place of torch.amp.GradScaler."""
import math
import warnings

import torch
import yaml
from torch.amp.grad_scaler import OptState

from ada_train import native

_KEYS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler, whose scale another system's rules move:

        scaler = ada_train.torch.GradScaler(preset="deepspeed", hysteresis=4)

    preset: one of `ada-train policies`. Further keys are those of policy dynamic in the section
    `scaling:`; a preset says what is not given, and refuses keys that its system does not have. Its
    methods and its state are torch's; the state has besides what the preset remembers.
    An overflow that the preset repairs instead of skipping (marian) becomes finite gradients.
    nnabla tries a step again with the next batch: `retries` says how often it has so far.
    """

    def __init__(self, device="cuda", preset="pytorch", enabled=True, **keys):
        super().__init__(device, enabled=enabled)
        self._keys = {"policy": "dynamic", "preset": preset, **keys}
        self._policy = native.Policy(self._keys)
        self._init_scale = _fp32(self._policy.scale)
        self.preset, self.retries, self._retry = preset, 0, int(self._policy.facts.max_retries)
        resolved = yaml.safe_load(self._policy.section)
        self._growth_factor = float(resolved["growth_factor"])
        self._backoff_factor = float(resolved["backoff_factor"])
        self._growth_interval = int(resolved["growth_interval"])

    def step(self, optimizer, *args, **kwargs):
        """Of optimizers that take the scale off themselves, as fused ones do, the gradients that
        the preset repairs are unscaled before."""
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        if self._enabled and fused and self._policy.facts.sanitizes:
            if "closure" in kwargs:
                raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
            self._check_scale_growth_tracker("step")
            state = self._per_optimizer_states[id(optimizer)]
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if state["stage"] is OptState.UNSCALED and _has_overflow(state):
                self._sanitize(optimizer)
                state["stage"] = OptState.STEPPED
                return optimizer.step(*args, **kwargs)
        return super().step(optimizer, *args, **kwargs)

    def _maybe_opt_step(self, optimizer, state, *args, **kwargs):
        if _has_overflow(state) and self._policy.facts.sanitizes:
            self._sanitize(optimizer)
            return optimizer.step(*args, **kwargs)
        return super()._maybe_opt_step(optimizer, state, *args, **kwargs)

    def _sanitize(self, optimizer):
        scale = self._policy.scale
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    bound = min(65504.0 / scale, float(torch.finfo(p.grad.dtype).max))
                    p.grad.nan_to_num_(0.0, bound, -bound)

    def update(self, new_scale=None):
        """After step(): the preset moves the scale. `new_scale`: the scale itself, as torch has
        it. Raises ada_train.native.PolicyEnd where the preset ends the training."""
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set(float(new_scale))
        else:
            found = [float(x) for state in self._per_optimizer_states.values()
                     for x in state["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            overflow = sum(found) > 0
            self.retries = self.retries + 1 if overflow and self.retries < self._retry else 0
            self._policy.update(overflow)
        scale.fill_(_fp32(self._policy.scale))
        self._per_optimizer_states.clear()

    def _set(self, scale):
        state = self._policy.state()
        hexadecimal = _hex(scale)
        self._policy.load({key: hexadecimal if key in ("scale", "next_scale") else value
                           for key, value in state.items()})

    def get_scale(self):
        """In the preset's own type, which for some is a double; losses are multiplied in fp32, where
        2^128 and more is inf: such a step overflows, as it does in the preset's system."""
        return self._policy.scale if self._enabled else 1.0

    def _lazy_init_scale_growth_tracker(self, dev):
        super()._lazy_init_scale_growth_tracker(dev)
        self._scale.fill_(_fp32(self._policy.scale))

    def set_growth_factor(self, new_factor):
        self._again(growth_factor=float(new_factor))
        super().set_growth_factor(new_factor)

    def set_backoff_factor(self, new_factor):
        self._again(backoff_factor=float(new_factor))
        super().set_backoff_factor(new_factor)

    def set_growth_interval(self, new_interval):
        self._again(growth_interval=int(new_interval))
        super().set_growth_interval(new_interval)

    def _again(self, **keys):
        """The same state under other keys."""
        state = self._policy.state()
        self._keys.update(keys)
        self._policy = native.Policy(self._keys)
        self._policy.load(state)

    def __getstate__(self):
        """For copies and pickles: the policy as its keys and state."""
        return {**super().__getstate__(), "_policy": self._policy.state()}

    def __setstate__(self, state):
        super().__setstate__(state)
        self._policy = native.Policy(self._keys)
        self._policy.load(state["_policy"])

    def state_dict(self):
        if not self._enabled:
            return {}
        state = self._policy.state()
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor,
                "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
                "_growth_tracker": int(state.get("growth_tracker", 0)),
                "preset": self.preset, "policy": state}

    def load_state_dict(self, state_dict):
        """A state of this class; one of torch's own scaler gives scale, factors and, under preset
        pytorch, its count of clean steps."""
        if not self._enabled:
            return
        super().load_state_dict({**state_dict, "scale": _fp32(state_dict["scale"])})
        self._keys.update({key: state_dict[key] for key in _KEYS[1:]})
        self._policy = native.Policy(self._keys)
        if "policy" in state_dict:
            if state_dict["preset"] != self.preset:
                warnings.warn(f"the state is of preset {state_dict['preset']}, and the scaler's is "
                              f"{self.preset}: its scale alone is taken", stacklevel=2)
            else:
                self._policy.load(state_dict["policy"])
        if state_dict.get("preset", self.preset) != self.preset or "policy" not in state_dict:
            self._set(float(state_dict["scale"]))
            if self.preset == "pytorch":
                state = self._policy.state()
                tracker = str(int(state_dict["_growth_tracker"]))
                self._policy.load({**state, "growth_tracker": tracker})
        if self._scale is not None:
            self._scale.fill_(_fp32(self._policy.scale))


def _fp32(value):
    """As fp32 has it; torch refuses what is inf there."""
    return float(torch.tensor(float(value), dtype=torch.float64).float())


def _has_overflow(state):
    return sum(float(found) for found in state["found_inf_per_device"].values()) > 0


def _hex(value):
    """As the state of a policy writes numbers."""
    if not math.isfinite(value):
        return "inf" if value > 0 else "nan"
    mantissa, _, exponent = value.hex().partition("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{'0x0' if mantissa == '0x' else mantissa}p{exponent}"
