"""AdaLossScaled: a user's own network whose gradients carry the scales that a policy of ada-train
chooses, layer by layer."""
import copy
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
from ada_train.torch import hooks, optimizers
from ada_train.torch.emulate import Emulation, roles_of
from ada_train.torch.layers import Names, check, is_layer, is_product, is_wrapped, uncompiled_forward
from ada_train.torch.operands import formats_of
from ada_train.torch.outputs import tensors
from ada_train.torch.policy import policy_of
from ada_train.torch.recorder import Recorder
from ada_train.torch.scaling import calls, sites, tensor_hooks
from ada_train.torch.scaling.engine import Engine
from ada_train.torch.scaling.merging import Cell
from ada_train.torch.scaling.nodes import is_leaf, nodes_below
from ada_train.torch.scaling.plan import NAME, Plan
from ada_train.torch.scaling.rules import ALONE
from ada_train.torch.scaling.statistics import largest
from ada_train.torch.watching import layers_of

_INNER = "module."


class _Start(torch.autograd.Function):
    """The loss as it is; its gradient carries S."""

    @staticmethod
    def forward(ctx, loss, scale, plan, engine):
        ctx.start, ctx.ada_linear = (scale, plan.cell, plan.apart, engine), True
        return loss.clone()

    @staticmethod
    def backward(ctx, dy):
        scale, cell, apart, engine = ctx.start
        engine.group.apart = apart
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
        none. Or a function that makes a layer's alpha of its statistics, or an
        ada_train.torch.Policy around one.
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

    nn.Linear, convolutions, nn.MultiheadAttention and GPT-2's Conv1D choose an alpha; all else hands
    S on, and where gradients meet they are brought to one scale and added in fp32.
    scaled_dot_product_attention chooses one for scores, queries, keys and values, called after its
    module (`blocks.0.attn.ds`); attention that is written out hands S on. Products by functions are
    found by their parameter; in fp16 they have alpha 1 and are named, as unknown functions are.
    Compiled models run uncompiled; compiled parts are refused, and so is create_graph. Hooks and
    retained gradients carry no scale; torch.autograd.grad of inner tensors does. `decisions` are
    rows of scales.csv since the last update, `reasons` says which layers choose no scale, and why.
    Copies are plain models; pickle `model.module`.
    """

    def __init__(self, model, policy=None, format=None, folder=None, every=100, *,
                 statistics="global", linear=(), record=None):
        super().__init__()
        if statistics not in ("global", "local"):
            raise ValueError(f"statistics: {statistics!r}: expected global or local")
        self._compiled = []
        check(model, "AdaLossScaled")
        model = _eager(model, self._compiled)
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        policy, formats, operands = policy_of(policy), *_formats(format)
        if policy.facts.follows_reference and formats[0] and not formats[4]:
            formats[4] = formats[3] or formats[0]  # the original keeps weight gradients in fp16
        roles = roles_of(*formats, always=operands is not None)
        if roles is not None:
            Emulation.check(inner)
        sites.check(inner)
        self.module, self._inner = model, [inner]  # a list: no second child of its own
        self._outputs, self._loss, self._overflow = [], None, None
        self._hooks, self._sites, self.recorder, self._engine = [], [], None, None
        try:
            self._engine = Engine(inner, policy, roles, statistics == "global", linear)
            self._install(inner, formats, roles, operands, folder, every, dict(record or {}))
        except BaseException:
            self._take_off()
            if self.recorder is not None:
                self.recorder.abandon()
            raise
        self.attempt = self.recorder.attempt if self.recorder else None
        self._prefix = _INNER * (1 if inner is model else 2)
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def _install(self, inner, formats, roles, operands, folder, every, options):
        names = Names(inner)
        if folder is None:
            names.warn()
        _tell_unmatched(self._engine, [names(path) for path, _ in inner.named_modules()])
        self.recorder = self._record(inner, formats, folder, every,
                                     {"operands": operands, **options})
        if self.recorder is None and roles is not None:
            self._emulate(inner, roles, operands)
        if self._engine.facts.follows_reference and self._engine.emulation is not None:
            self._engine.emulation.start = Cell()
        emulates = self._engine.emulation is not None  # within nn.MultiheadAttention too
        if self._engine.chooses or emulates:
            self._sites = sites.install(inner, self._engine, names)
        if self._engine.attention or emulates:
            self._hooks += calls.install(inner, self._engine, names, is_layer)
        self._hooks += [module.register_forward_hook(functools.partial(_named, names(path)))
                        for path, module in inner.named_modules()
                        if not any(True for _ in module.children())]
        hooks.keep_to_the_module(self._hooks)
        tensor_hooks.install(self._engine)

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
        self._hooks.append(inner.register_forward_pre_hook(
            lambda _, args, kwargs: emulation.hook_input(args, kwargs), with_kwargs=True))
        for module, name in layers_of(inner, ["*"]).items():
            self._hooks += emulation.hook(name, module)
        self._hooks.append(inner.register_forward_hook(
            lambda _, args, y: emulation.hook_logits(y)))

    def __getattr__(self, name):
        """What this module has not is the model's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    # --- The training step ---

    @torch.compiler.disable
    def forward(self, *args, **kwargs):
        depth = calls.depth()
        try:
            outputs = self.module(*args, **kwargs)
        except BaseException:
            self._settle(depth)
            raise
        if self._engine.facts.awaits_start and torch.is_grad_enabled():
            self._outputs = [x for x in tensors(outputs) if x.requires_grad]
        return outputs

    def _settle(self, depth):
        """After an exception, of which layers may not know."""
        calls.cut(depth)
        if self.recorder is not None:
            self.recorder.settle()
        elif self._engine.emulation is not None:
            self._engine.emulation.settle()

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
            self._joins()
            self._start(loss)
        plan = Plan(engine, loss, self._joins())
        engine.load_late()
        scale = engine.policy.scale / engine.parts
        if attempt is not None:
            attempt.scale = scale
            self.recorder.loss(loss)
        self._overflow, self._loss = None, loss.detach()
        late = engine.emulation.start if engine.emulation is not None else None
        if late is not None and plan.late:  # the original program multiplies the logits' gradient when it is fp16
            late.scale, scale = scale, 1.0
        return _Start.apply(loss, scale, plan, engine)

    def _joins(self):
        """Whether other processes may have come to their end of the batches, and wait for nobody.
        """
        join = getattr(self.module, "_join_config", None)
        joins = join is not None and join.enable and self._engine.group.several
        if joins and (self._engine.facts.needs_layers or self._engine.facts.awaits_start):
            raise RuntimeError("scale(): init_scale: auto and policies of layers ask all processes, "
                               "and under torch.distributed.algorithms.join some may have ended; "
                               'expected statistics="local", or another policy')
        return joins

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

    def takes_part(self, loss):
        """Whether the loss has a gradient of one of the model's parameters."""
        mine = {id(p) for p in self.module.parameters()}
        return loss.grad_fn is not None and any(
            is_leaf(node) and id(node.variable) in mine for node in nodes_below(loss.grad_fn))

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
        """optimizer.step(), of a list each one's, unless a gradient is not finite; tells the policy
        and writes the logs. Gives back what the optimizer gives, None where the step was skipped.
        """
        if not self.update(optimizer, loss=loss, accuracy=accuracy, epoch=epoch):
            return None
        if isinstance(optimizer, (list, tuple)):
            return [one.step(*args, **kwargs) for one in optimizer]
        return optimizer.step(*args, **kwargs)

    def update(self, optimizer=None, loss=None, accuracy=math.nan, epoch=None):
        """step() for who calls the optimizer himself: whether it is to be called."""
        if self.recorder is not None and loss is None and self._loss is None:
            raise RuntimeError("update(): scale() was given no loss since training began; expected "
                               "scale(loss).backward() before it, or loss=")
        overflow = self.overflow
        amax = _largest(self._gradients()) if self._engine.facts.needs_amax else 0.0
        norm = self.recorder.gradient_norm() if self.recorder else math.nan
        try:
            action, overflow = self._engine.update(overflow, amax)
        finally:
            self._log(optimizer, loss, accuracy, epoch, not overflow, norm)
        if action == native.SANITIZE:
            self._sanitize()
        self._overflow = None
        return action != native.SKIP

    def _log(self, optimizer, loss, accuracy, epoch, updated, norm):
        if self.recorder is not None:
            self.recorder.ended(optimizers.described(optimizer), updated, norm)
            self.recorder.step(self._loss if loss is None else loss, accuracy, epoch)
        self._engine.decisions = []

    def _sanitize(self):
        form = self._engine.gradient_form or NAMED["fp32"]
        for g in self._gradients():
            bound = min(form.largest / self._engine.policy.scale, torch.finfo(g.dtype).max)
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

    @property
    def scaling(self):
        """The same with the methods state_dict() and load_state_dict(), as accelerate's
        register_for_checkpointing wants it."""
        return _ScalingState(self)

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
        for module, name, compiled in self._compiled:
            setattr(module, name, compiled)
        self._sites, self._hooks, self._compiled = [], [], []
        if self._engine is not None:
            calls.remove(self._engine)
            tensor_hooks.remove(self._engine)

    def __deepcopy__(self, memo):
        """A copy of the model as it is without scaling, as an average of the weights wants it."""
        if self._engine.emulation is not None:
            warnings.warn("AdaLossScaled: a copy is the plain model, which computes without the "
                          "formats that are emulated", stacklevel=3)
        copied = copy.deepcopy(self._inner[0], memo)
        sites.remove(copied.modules())
        hooks.forget(copied)
        return copied

    def __reduce_ex__(self, _):
        raise TypeError("AdaLossScaled is not pickled, nor copied by copy.copy: save state_dict() "
                        "and scaling_state(), or `.module`, which loads as a plain model; "
                        "copy.deepcopy gives a plain model")


def _tell_unmatched(engine, names):
    """Names entries of the policy's `layers` that fit no module."""
    for entry in yaml.safe_load(engine.policy.section).get("layers") or ():
        glob = str(entry["match"])
        globs = [glob, glob.rpartition(".")[0]]  # fc.use2, attn.ds: of the module fc, attn
        if not any(fnmatch.fnmatchcase(name, part) for name in names for part in globs):
            warnings.warn(f"layers: the entry {glob!r} fits no module of the model", stacklevel=5)


class _ScalingState:
    def __init__(self, model):
        self._model = model

    def state_dict(self):
        return self._model.scaling_state()

    def load_state_dict(self, state):
        self._model.load_scaling_state(state)


def _eager(model, compiled):
    """The model as it was before torch.compile. `compiled`: gets the modules that were compiled in
    place, each with the name and the value of its attribute."""
    inside = [path for path, module in model.named_modules() if path and is_wrapped(module)]
    if inside:
        raise ValueError(f"AdaLossScaled: torch.compile hides the gradients of {inside[0]}'s "
                         "layers; expected a model whose parts are not compiled")
    plain = [(m, "_compiled_call_impl", None) for m in model.modules()
             if getattr(m, "_compiled_call_impl", None) is not None]
    plain += [(m, "forward", uncompiled_forward(m)) for m in model.modules()
              if uncompiled_forward(m) is not None]
    if plain or is_wrapped(model):
        warnings.warn("AdaLossScaled: torch.compile hides the layers' gradients; the model runs as "
                      "it was before it was compiled", stacklevel=3)
    for module, name, value in plain:
        compiled.append((module, name, getattr(module, name)))
        setattr(module, name, value)
    return model._orig_mod if is_wrapped(model) else model


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


def _all_finite(gradients):
    """In each gradient's own type, by one number of it: the norm of what is not finite is not
    finite."""
    found = [optimizers.values_of(g) for g in gradients]
    norms = torch._foreach_norm([g.float() if g.dtype == torch.float16 else g
                                 for g in found if g.numel()] or [torch.zeros(1)], math.inf)
    device = norms[0].device
    return bool(torch.stack([torch.isfinite(n).to(device) for n in norms]).all())


def _largest(gradients):
    found = [largest(optimizers.values_of(g), ALONE) for g in gradients]
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def _without_prefix(module, state, prefix, _):
    """The plain model's names, also where it lies within DistributedDataParallel."""
    for names in (state, getattr(state, "_metadata", {})):
        inner = prefix + module._prefix
        for key in [key for key in names if (key + ".").startswith(inner)]:
            names[(prefix + key[len(inner):]).rstrip(".")] = names.pop(key)


def _with_prefix(module, state, prefix, *_):
    """From the plain model's names, or those that DistributedDataParallel gives it: whichever more
    keys have."""
    plain = module._inner[0].state_dict(keep_vars=True).keys()
    given = {key: key[len(prefix):] for key in state if key.startswith(prefix)}
    outer = {key: name[len(_INNER):] for key, name in given.items() if name.startswith(_INNER)}
    if sum(name in plain for name in outer.values()) > sum(name in plain
                                                           for name in given.values()):
        given.update(outer)
    values = {prefix + module._prefix + name: state.pop(key) for key, name in given.items()}
    state.update(values)
