"""AdaLossScaled: a user's own network whose gradients carry the scales that a policy of ada-train
chooses, layer by layer."""
import fnmatch
import functools
import math
import os
import warnings

import torch
import yaml
from torch import nn

from ada_train import native
from ada_train.csv_writer import shortest
from ada_train.formats import NAMED
from ada_train.torch.emulate import Emulation, roles_of
from ada_train.torch.layers import Names, is_layer, is_product
from ada_train.torch.operands import formats_of
from ada_train.torch.recorder import Recorder
from ada_train.torch.scaling import calls, sites
from ada_train.torch.scaling.engine import Engine
from ada_train.torch.scaling.merging import Cell
from ada_train.torch.scaling.plan import NAME, Plan
from ada_train.torch.scaling.rules import ALONE
from ada_train.torch.scaling.statistics import largest
from ada_train.torch.watching import layers_of

_INNER = "module."


class _Start(torch.autograd.Function):
    """The loss as it is; its gradient carries S."""

    @staticmethod
    def forward(ctx, loss, scale, cell, engine):
        ctx.start, ctx.ada_linear = (scale, cell, engine), True
        return loss.clone()

    @staticmethod
    def backward(ctx, dy):
        scale, cell, engine = ctx.start
        calls.begin_pass(engine)
        cell.scale = scale
        cell.passes += 1
        return dy * scale, None, None, None


class AdaLossScaled(nn.Module):
    """The model, scaled:

        model = AdaLossScaled(model, policy={"method": "approx_range"})
        for images, labels in loader:
            optimizer.zero_grad()
            loss = model.scale(criterion(model(images), labels))
            loss.backward()
            model.step(optimizer)

    policy: the keys of ada-train's `scaling:` as a map or as YAML; policy adaptive where they name
        none.
    format: a format to emulate in a model that computes in fp32; or the roles of one:
        {"format": "fp16", "gradients": "fp8_e5m2", "saturate": True}, and with "operands" what
        products of nn.Linear and nn.Conv2d round once more, as ada_train.torch.record has it:
        {"format": "bf16", "operands": "mxfp8_e4m3"}.
    folder: where the CSVs of a run are written, a row of each layer at every `every`-th step.
    statistics: "global": rules look at the gradients of all processes; "local": at this one's.
    linear: names of functions of autograd, written in Python, whose backward is linear in the
        gradient; others are given gradients without a scale.
    record: further options of ada_train.torch.record (statistics, layers, name, dataset,
        overwrite, histogram_every).

    The value of the loss stays; its gradient carries S. When backward() returns, gradients of
    parameters carry no scale. The modules of `model` are changed in place, until remove().
    """

    def __init__(self, model, policy=None, format=None, folder=None, every=100, *,
                 statistics="global", linear=(), record=None):
        super().__init__()
        if statistics not in ("global", "local"):
            raise ValueError(f"statistics: {statistics!r}: expected global or local")
        model = _eager(model)
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        keys = policy if isinstance(policy, str) else {"policy": "adaptive", **(policy or {})}
        policy, formats, operands = native.Policy(keys), *_formats(format)
        if policy.facts.follows_reference and formats[0] and not formats[4]:
            formats[4] = formats[3] or formats[0]  # the original keeps weight gradients in fp16
        roles = roles_of(*formats, always=operands is not None)
        if roles is not None:
            Emulation.check(inner)
        self.module, self._inner = model, [inner]  # a list: no second child of its own
        self.recorder, self._hooks, self._sites, self._attends = None, [], [], False
        try:
            self._engine = Engine(inner, policy, roles, statistics == "global", linear)
            self._install(inner, roles, formats, operands, folder, every, record or {})
        except BaseException:
            if self.recorder is not None:
                self.recorder.abandon()
            self._take_off()
            raise
        self._outputs, self._loss, self._overflow = [], None, None
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def _install(self, inner, roles, formats, operands, folder, every, record):
        names = Names(inner)
        if folder is None:
            names.warn()
        _tell_unmatched(self._engine, [names(path) for path, _ in inner.named_modules()])
        self.recorder = self._record(inner, formats, folder, every,
                                     {"operands": operands, **record})
        self.attempt = self.recorder.attempt if self.recorder else None
        if self.recorder is None and roles is not None:
            self._emulate(inner, roles, operands)
        if self._engine.facts.follows_reference and self._engine.emulation is not None:
            self._engine.emulation.start = Cell()
        emulates = self._engine.emulation is not None  # within nn.MultiheadAttention too
        if self._engine.chooses or emulates:
            self._sites = sites.install(inner, self._engine, names)
        self._attends = self._engine.attention or emulates
        if self._attends:
            self._hooks += calls.install(inner, self._engine, names, is_layer)
        self._hooks += [module.register_forward_hook(functools.partial(_named, names(path)))
                        for path, module in inner.named_modules()
                        if not any(True for _ in module.children())]

    def _record(self, inner, formats, folder, every, options):
        if folder is None:
            return None
        recorder = Recorder(
            inner, None, os.fspath(folder), scaler=None, scale=1.0, formats=formats,
            every=every, histogram_every=options.pop("histogram_every", every),
            **{"statistics": ("y", "dx", "dy", "dw"), "layers": "*", "name": None, "dataset": None,
               "overwrite": False, **options}, scaling=self._engine)
        self._engine.emulation = recorder.emulation
        return recorder

    def _emulate(self, inner, roles, operands):
        emulation = self._engine.emulation = Emulation(
            self, roles, None if operands is None else formats_of(operands))
        hooks = self._hooks
        hooks.append(inner.register_forward_pre_hook(
            lambda _, args, kwargs: emulation.hook_input(args, kwargs), with_kwargs=True))
        for module, name in layers_of(inner, ["*"]).items():
            hooks += emulation.hook(name, module)
        hooks.append(inner.register_forward_hook(lambda _, args, y: emulation.hook_logits(y)))

    def __getattr__(self, name):
        """What this module has not is the model's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    # --- The training step ---

    @torch.compiler.disable
    def forward(self, *args, **kwargs):
        outputs = self.module(*args, **kwargs)
        if self._engine.facts.awaits_start and torch.is_grad_enabled():
            self._outputs = [x for x in _tensors(outputs) if x.requires_grad]
        return outputs

    def scale(self, loss):
        """The loss with the same value, whose backward() scales each layer's gradients. Once for
        each backward pass."""
        if not isinstance(loss, torch.Tensor) or loss.grad_fn is None:
            raise ValueError("scale(): expected a loss that parameters have a part in")
        if loss.numel() != 1:
            raise ValueError(f"scale(): expected one number, got {tuple(loss.shape)}; take the "
                             "loss's mean or sum")
        engine = self._engine
        attempt = self.recorder.attempt if self.recorder else None
        engine.observing = attempt is not None and attempt.counts
        if engine.facts.awaits_start and not self.__dict__.get("_started"):
            self._start(loss)
        plan = Plan(engine, loss.grad_fn)
        engine.load_late()
        scale = engine.policy.scale / engine.parts
        if attempt is not None:
            attempt.scale = scale
            self.recorder.loss(loss)
        self._overflow, self._loss = None, loss.detach()
        late = engine.emulation.start if engine.emulation is not None else None
        if late is not None:  # the original program multiplies the logits' gradient when it is fp16
            late.scale, scale = scale, 1.0
        return _Start.apply(loss, scale, plan.cell, engine)

    def _start(self, loss):
        """init_scale: auto."""
        outputs = [x for x in self._outputs if x.requires_grad]
        if not outputs:
            raise ValueError("init_scale: auto: the model's outputs have no gradient; call the "
                             "model before scale(), or give init_scale a number")
        found = torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True)
        sizes = [largest(g, self._engine.group) for g in found if g is not None]
        form = self._engine.gradient_form
        if form is None:
            kinds = {x.dtype for x in outputs} | {p.dtype for p in self.module.parameters()}
            kinds |= {torch.get_autocast_dtype(x.device.type) for x in outputs
                      if torch.is_autocast_enabled(x.device.type)}
            form = NAMED["fp16" if torch.float16 in kinds else "fp32"]
        reason = self._engine.policy.start(max(sizes, default=0.0), form.largest)
        self._started, self._outputs = True, []
        scale = shortest(self._engine.policy.scale)
        self._engine.tell("init_scale", scale, f"init_scale is {scale}: {reason}")

    @property
    def overflow(self):
        """Whether a gradient of the last backward pass is not finite."""
        if self._overflow is None:
            self._overflow = not _all_finite(self._gradients())
        return self._overflow

    @property
    def decisions(self):
        """What each layer decided since the last step(): rows of scales.csv, in the order of the
        backward pass."""
        return list(self._engine.decisions)

    @property
    def reasons(self):
        """Convolutions and linear layers that choose no scale, and functions that take none, with
        why; known after the first backward pass."""
        found = dict(self._engine.reasons)
        names = Names(self._inner[0])
        for path, module in self._inner[0].named_modules():
            name = names(path)
            if self._engine.chooses and is_product(module) and name not in found and not (
                    self._engine.has_rule(name)):
                found[name] = "no backward pass has come through its product"
        return found

    def step(self, optimizer, *args, loss=None, accuracy=math.nan, epoch=None, **kwargs):
        """optimizer.step(), unless a gradient is not finite; tells the policy and writes the logs.
        Gives back what the optimizer gives, None where the step was skipped."""
        updates = self.update(optimizer, loss=loss, accuracy=accuracy, epoch=epoch)
        return optimizer.step(*args, **kwargs) if updates else None

    def update(self, optimizer=None, loss=None, accuracy=math.nan, epoch=None):
        """step() for who calls the optimizer himself: whether it is to be called."""
        overflow = self.overflow or bool(self._engine.bad_layers)
        amax = _largest(self._gradients()) if self._engine.facts.needs_amax else 0.0
        norm = self.recorder.gradient_norm() if self.recorder else math.nan
        try:
            action, _ = self._engine.update(overflow, amax)
        finally:
            self._log(optimizer, loss, accuracy, epoch, not overflow, norm)
        if action == native.SANITIZE:
            self._sanitize()
        self._overflow = None
        return action != native.SKIP

    def _log(self, optimizer, loss, accuracy, epoch, updated, norm):
        if self.recorder is not None:
            self.recorder.ended(optimizer, updated, norm)
            self.recorder.step(self._loss if loss is None else loss, accuracy, epoch)
        self._engine.decisions = []

    def _sanitize(self):
        form = self._engine.gradient_form or NAMED["fp32"]
        bound = min(form.largest / self._engine.policy.scale, 3.4028234e38)
        for g in self._gradients():
            g.nan_to_num_(0.0, bound, -bound)

    def _gradients(self):
        return [p.grad for p in self.module.parameters() if p.grad is not None]

    # --- The rest ---

    def scaling_state(self):
        """State of the policy and of the layers' rules, for checkpoints beside state_dict()."""
        return {**self._engine.state(), "started": bool(self.__dict__.get("_started"))}

    def load_scaling_state(self, state):
        self._engine.load(state)
        self._started = bool(state.get("started"))

    def close(self, status="finished"):
        """Ends the recording in `folder`."""
        if self.recorder is not None:
            self.recorder.close(status)

    def remove(self):
        """Gives the model's modules back as they were; gives back the model."""
        self.close()
        self._take_off()
        return self.module

    def _take_off(self):
        sites.remove(self._sites)
        for hook in self._hooks:
            hook.remove()
        if self._attends:
            calls.remove(self._engine)
            self._attends = False


def _tell_unmatched(engine, names):
    """Names entries of the policy's `layers` that fit no module."""
    for entry in yaml.safe_load(engine.policy.section).get("layers") or ():
        glob = str(entry["match"])
        globs = [glob, glob.rpartition(".")[0]]  # fc.use2, attn.ds: of the module fc, attn
        if not any(fnmatch.fnmatchcase(name, part) for name in names for part in globs):
            warnings.warn(f"layers: the entry {glob!r} fits no module of the model", stacklevel=5)


def _eager(model):
    if type(model).__name__ != "OptimizedModule" or not hasattr(model, "_orig_mod"):
        return model
    warnings.warn("AdaLossScaled: torch.compile hides the layers' gradients; the model runs as it "
                  "was before it was compiled", stacklevel=3)
    return model._orig_mod


def _formats(format):
    """The arguments of roles_of(), and `operands`."""
    keys = ("format", "activations", "weights", "gradients", "weight_gradients", "saturate")
    given = format if isinstance(format, dict) else {"format": format}
    unknown = sorted(set(given) - set(keys) - {"operands"})
    if unknown:
        raise ValueError(f"format: {', '.join(unknown)}: expected some of {', '.join(keys)}, "
                         "operands")
    return [given.get(key, False if key == "saturate" else None) for key in keys], (
        given.get("operands"))


def _named(name, _, __, y):
    if isinstance(y, torch.Tensor) and y.grad_fn is not None:
        y.grad_fn.metadata[NAME] = name


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in _tensors(part)] if isinstance(value, (list, tuple)) else []


def _all_finite(gradients):
    """One number for all: a norm of what is not finite is not finite."""
    if not gradients:
        return True
    sums = [g.coalesce().values().sum() if g.is_sparse else g for g in gradients]
    norms = torch._foreach_norm([g.float() if g.dtype == torch.float16 else g for g in sums],
                                math.inf)
    device = norms[0].device
    return bool(torch.isfinite(torch.stack([n.to(device, torch.float32) for n in norms])).all())


def _largest(gradients):
    found = [largest(g.coalesce().values() if g.is_sparse else g, ALONE) for g in gradients]
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def _without_prefix(module, state, prefix, _):
    for key in [key for key in state if key.startswith(prefix + _INNER)]:
        state[prefix + key[len(prefix + _INNER):]] = state.pop(key)


def _with_prefix(module, state, prefix, *_):
    for key in [key for key in state if key.startswith(prefix)]:
        if not key.startswith(prefix + _INNER):
            state[prefix + _INNER + key[len(prefix):]] = state.pop(key)
