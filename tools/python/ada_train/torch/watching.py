"""The hooks of a recording: when an attempt begins, what its layers compute, and whether the
optimizer took its gradients."""
import fnmatch
import math
import warnings

import torch

from ada_train.torch import formats, hooks, optimizers
from ada_train.torch.attempt import Attempt
from ada_train.torch.converted import conversion_of
from ada_train.torch.emulate import Emulation
from ada_train.torch.layers import Names, is_layer, tensors_of, trace
from ada_train.torch.observe import Observer


def due(every, step):
    return every > 0 and (step == 1 or step % every == 0)


def layers_of(model, globs):
    """module -> name of those that match."""
    names, found, fits = Names(model), {}, set()
    for path, module in model.named_modules():
        name = names(path)
        fitting = [glob for glob in globs if fnmatch.fnmatchcase(name, glob)]
        if is_layer(module) and fitting:
            found.setdefault(module, name)
            fits.update(fitting)
    if not found:
        raise ValueError(f"layers: {', '.join(globs)} matches no layer of the model")
    for glob in globs:
        if glob not in fits:
            warnings.warn(f"layers: {glob} matches no layer of the model", stacklevel=5)
    return found


class Watching:
    """`scale`: a function that gives S of the attempt that begins; `roles`: what is emulated, or
    None; `plain`: gradients of parameters carry no scale when a backward pass ends. From the first
    forward pass of an attempt on there is `attempt`, until next()."""

    def __init__(self, model, optimizer, names, scale, roles, choice, clock, operands=None,
                 plain=False):
        self._model, self._optimizer, self._names = model, optimizer, names
        self._scale, self._choice, self._clock = scale, choice, clock
        self.steps, self.batch, self.attempt = 0, 0, None
        self.updated, self.norm = False, math.nan
        self.traced, self.dtypes = [], set()  # of the first step: layers with their inputs
        self._makers, self._inputs, self._told = {}, {}, set()
        self._biases, self._idle = set(), []  # layers whose bias was looked at; those without
        self._rounding = (Observer(self) if roles is None
                          else Emulation(self, roles, operands))
        self._norm = optimizers.GradientNorm(self._parameters, lambda: 1.0 if plain or (
            self.attempt is None) else self.attempt.scale)
        self._hooks = [self._norm]
        try:
            self._install()
        except BaseException:
            self.remove()
            raise
        hooks.keep_to_the_module(self._hooks)

    @property
    def idle(self):
        """Names of converted layers that compute as if nobody had converted them."""
        return getattr(self._rounding, "idle", ())

    @property
    def emulation(self):
        return self._rounding if isinstance(self._rounding, Emulation) else None

    def next(self):
        """Forgets the attempt, which is over."""
        self.steps += 1
        self.settle()
        self.attempt, self.updated, self.norm = None, False, math.nan
        self._makers, self._inputs = {}, {}
        self._norm.forget()

    def settle(self):
        """Leaves no trace of a pass that was interrupted, in which layers may not have ended."""
        self._rounding.settle()

    def remove(self):
        self.settle()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _install(self):
        found = self._hooks
        found.append(self._model.register_forward_pre_hook(self._begin, with_kwargs=True))
        found.append(self._model.register_state_dict_pre_hook(lambda *_: self.settle()))
        for module, name in self._names.items():
            found.append(module.register_forward_pre_hook(self._trace_input, with_kwargs=True))
            found += self._rounding.hook(name, module)
            found.append(module.register_forward_hook(self._trace_output))
        found.append(self._model.register_forward_hook(self._logits))
        if self._optimizer is not None:
            found.append(self._optimizer.register_step_pre_hook(self._update))

    def _trains(self):
        """Whether a pass belongs to the attempt: one in evaluation mode does where no other one
        does, as of a model that is trained in that mode."""
        return torch.is_grad_enabled() and self.attempt is not None and (
            self._model.training or self.attempt.evaluates)

    def _begin_attempt(self, args, kwargs):
        """Before a pass of the network, or of a layer that is called without it."""
        if not torch.is_grad_enabled():
            return
        here, training = self.attempt, self._model.training
        if here is not None and here.evaluates and training and not self.went_backwards:
            self._clock.images(-self.batch)  # it was an evaluation
            here = self.attempt = None
        if here is None or training or here.evaluates:
            self._clock.begin("forward")
            first = next((arg for arg in [*args, *kwargs.values()]
                          if isinstance(arg, torch.Tensor) and arg.dim() > 0), None)
            self.batch = 0 if first is None else first.shape[0]
            self._clock.images(self.batch)
        if here is None:
            step, (every, bins_every, tensors) = self.steps + 1, self._choice
            bins = due(bins_every, step)
            self.attempt = Attempt(step, self._scale(), bins or due(every, step), bins, tensors,
                                   evaluates=not training)

    @property
    def went_backwards(self):
        """Whether a gradient came to a parameter in this attempt."""
        return self._norm.found

    def _begin(self, _, args, kwargs):
        self.settle()
        self._begin_attempt(args, kwargs)
        return self._rounding.hook_input(args, kwargs)

    def warn_once(self, key, text):
        if key not in self._told:
            self._told.add(key)
            warnings.warn(text, stacklevel=2)

    def guarded(self, name, what):
        """`what`, which must not end the user's pass: where it fails there is a warning."""
        def done(*args):
            try:
                what(*args)
            except Exception as problem:
                self.warn_once(("row", name), f"{name} is not recorded: {problem or repr(problem)}")
        return done

    def _tracing(self):
        return self.steps == 0 and self._trains()

    def _trace_input(self, module, args, kwargs):
        if self.attempt is None:
            self._begin_attempt(args, kwargs)
        if self._tracing() and module not in self._inputs:
            first = next((x for _, x in tensors_of(module, args, kwargs) if x.requires_grad), None)
            self._inputs[module] = [] if first is None else trace(first, self._makers)

    def _trace_output(self, module, _, y):
        name = self._names[module]
        if not isinstance(y, torch.Tensor) or y.dtype not in formats.DTYPES:
            self.warn_once(name, f"{name} ({type(module).__name__}) gives no tensor of fp32, fp16 "
                                 "or bf16, and is not recorded")
        elif self._tracing() and y.requires_grad:
            if all(module is not known for _, known, _ in self.traced):
                self.traced.append((name, module, self._inputs.get(module, [])))
            self.dtypes.add(y.dtype)
            self._makers[y.grad_fn] = name

    def _logits(self, _, args, y):
        if not self._trains():
            return None
        self._clock.begin("backward")
        return None if self.attempt is None else self._rounding.hook_logits(y)

    def look_for_logits(self):
        """A warning where the network's outputs were given no gradient that could be counted."""
        attempt = self.attempt
        if attempt.backward and attempt.wants("dx") and not attempt.has("loss", "dx"):
            self.warn_once("loss", "no gradient of the model's outputs was seen, and none is "
                           "recorded (loss.dx): the loss is computed within the model, or under "
                           "autocast without recorder.loss()")

    def follow(self, loss):
        if self.attempt is not None and isinstance(self._rounding, Observer):
            self._rounding.follow(loss)

    def _update(self, optimizer, *_):
        """Before an optimizer takes the gradients."""
        self._clock.begin("update")
        self.updated = optimizers.takes_gradients(optimizer) or self.updated
        self.norm = self.gradient_norm()
        self._look_at_biases()

    def ended(self, updated, norm):
        """How the attempt ended, where nobody else's optimizer is watched."""
        self._clock.begin("update")
        self.updated, self.norm = updated, norm

    def _look_at_biases(self):
        """Of converted layers, while the gradients lie there."""
        for module, name in self._names.items():
            bias, weight = (module._parameters.get(part) for part in ("bias", "weight"))
            if module in self._biases or bias is None or weight is None:
                continue
            if bias.requires_grad and weight.grad is not None and conversion_of(module) is not None:
                self._biases.add(module)
                if bias.grad is None:
                    self._idle.append(name)

    def take_idle_biases(self):
        """Names of the converted layers whose bias got no gradient, each once."""
        self._look_at_biases()
        found, self._idle = self._idle, []
        return found

    def gradient_norm(self):
        return self._norm.value()

    def _parameters(self):
        if self._optimizer is None:
            return self._model.parameters()
        return (p for group in self._optimizer.param_groups for p in group["params"])
