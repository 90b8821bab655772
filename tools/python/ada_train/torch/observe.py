"""A model in the formats that it computes in: fp32, or fp16 and bf16 by autocast. What its kernels
round cannot be seen from outside, so in logged steps the operations of each layer are computed a
second time in fp32 from the operands that they had, which gives the values before their rounding.
Nothing that the model computes changes: no module is called again, and no random number drawn."""
import functools
import sys
import threading

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from ada_train.torch import formats
from ada_train.torch.converted import conversion_of
from ada_train.torch.converted_watch import ConvertedWatch
from ada_train.torch.layers import tensors_of, weight_of
from ada_train.torch.outputs import outer
from ada_train.torch.scaling.plan import scale_here
from ada_train.torch.tape import NARROW, Tape, key_of


def _is_wanted(node):
    """Whether the backward pass that runs comes to a node; None where autograd does not say, as of
    leaves in torch.autograd.grad()."""
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return None


def _running_module():
    """The frame in which the module runs whose hook this is."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename != nn.modules.module.__file__:
        frame = frame.f_back
    return frame


def _where_it_comes(weight, add):
    """Calls add() if the backward pass that runs gives the weight a gradient."""
    task = torch._C._current_graph_task_id()

    def came(_):
        handle.remove()
        if torch._C._current_graph_task_id() == task:
            add()
    handle = weight.register_hook(came)


class _Call:
    """One pass through a layer: its tape, and where the input lies whose gradient is dx, with the
    node that the gradient goes to."""

    def __init__(self, module):
        self.module, self.tape, self.key, self.dtype = module, None, None, None
        self.node, self.counted = None, False

    def begin(self, given, frame):
        for _, x in given:
            if self.key is None and x.dtype in formats.DTYPES and x.requires_grad:
                self.key, self.dtype = key_of(x), x.dtype
                self.node = x.grad_fn
        self.tape = Tape()
        self.tape.enter(frame)

    def end(self):
        if self.tape is not None:
            self.tape.leave()


class Observer:
    def __init__(self, recorder):
        self._recorder = recorder
        self._logits = {}  # node -> dtype
        self._running = threading.local()
        self.idle = set()  # converted layers that compute as if nobody had

    def hook(self, name, module):
        conversion = conversion_of(module)
        if conversion is not None and conversion.counted:
            return ConvertedWatch(name, module, conversion, self._recorder, self._recorder.guarded,
                                  self.idle).hook()
        return [module.register_forward_pre_hook(
                    lambda _, args, kwargs: self._enter(name, module, args, kwargs),
                    with_kwargs=True),
                module.register_forward_hook(
                    lambda _, args, kwargs, y: self._leave(name, module, y),
                    with_kwargs=True, always_call=True)]

    @staticmethod
    def hook_input(args, kwargs):
        return args, kwargs

    @torch.compiler.disable
    def hook_logits(self, outputs):
        """The gradient of the logits as the loss gives it. Where they are no fp32, autograd rounds
        it before it comes here: follow() finds it."""
        if self._recorder.attempt.counts and not torch._C._are_functorch_transforms_active():
            self._recorder.guarded("loss", self._look_at_logits)(outputs)

    def _look_at_logits(self, outputs):
        attempt, logits = self._recorder.attempt, outer(outputs)
        self._logits = {x.grad_fn: x.dtype for x in logits}
        for x in logits:
            if x.dtype == torch.float32:
                x.register_hook(self._recorder.guarded(
                    "loss", lambda dy: attempt.add("loss", "dx", dy, formats.of(dy.dtype))))

    def follow(self, loss):
        """Looks at the gradient where the loss took its fp32 copy of the logits."""
        if self._recorder.attempt.counts:
            self._recorder.guarded("loss", self._follow)(loss)

    def _follow(self, loss, most=1000):
        attempt = self._recorder.attempt
        seen, queue = set(), [loss.grad_fn]
        while queue and len(seen) < most:
            node = queue.pop()
            if node is None or node in seen or node in self._logits:
                continue
            seen.add(node)
            following = [after for after, _ in node.next_functions]
            dtypes = [self._logits[after] for after in following if after in self._logits]
            if dtypes and dtypes[0] in NARROW and node.name().startswith("ToCopyBackward"):
                node.register_prehook(self._recorder.guarded(
                    "loss", lambda dy, form=formats.of(dtypes[0]):
                    attempt.add("loss", "dx", dy[0], form)))
            queue += following

    # --- Layers ---

    def _calls(self):
        if not hasattr(self._running, "calls"):
            self._running.calls = []
        return self._running.calls

    def _counting(self):
        attempt = self._recorder.attempt
        return attempt is not None and attempt.counts

    def _enter(self, name, module, args, kwargs):
        if self._counting():
            self._begin(name, module, args, kwargs)

    def _leave(self, name, module, y):
        if self._counting():
            self._end(name, module, y)

    @torch.compiler.disable
    def _begin(self, name, module, args, kwargs):
        call = _Call(module)
        self._calls().append(call)
        if torch.is_grad_enabled():
            self._recorder.guarded(name, lambda: self._follow_call(call, args, kwargs))()

    def _follow_call(self, call, args, kwargs):
        if torch._C._are_functorch_transforms_active():
            self._recorder.warn_once("transformed", "a pass within grad, vmap or another transform "
                                     "of torch.func is not recorded")
            return
        call.begin(tensors_of(call.module, args, kwargs), _running_module())

    def settle(self):
        """Ends what an interrupt has left open: a layer that it ends runs no hook."""
        calls = self._calls()
        while calls:
            calls.pop().end()

    @torch.compiler.disable
    def _end(self, name, module, y):
        calls = self._calls()
        if all(call.module is not module for call in calls):
            return
        while calls[-1].module is not module:  # a layer within it that did not end
            calls.pop().end()
        call, attempt = calls.pop(), self._recorder.attempt
        call.end()
        if not isinstance(y, torch.Tensor) or not y.requires_grad:
            return
        attempt.forward[name] = True
        if call.tape is not None and y.dtype in formats.DTYPES:
            self._recorder.guarded(name, lambda: self._watch(attempt, name, call, y))()

    def _watch(self, attempt, name, call, y):
        if not call.tape.close(y):
            return
        dtype = y.dtype

        def seen(dy, scale, alpha=1.0):
            if dy is None:
                return
            self._recorder.guarded(name, lambda: self._count(attempt, name, call, dtype, dy, scale, alpha))()
        if hasattr(y.grad_fn, "observer"):  # its alpha is not known before it has run
            y.grad_fn.observer = seen
        else:
            # After the hooks of tensors, by which FSDP brings the weights back.
            place = y.output_nr
            y.grad_fn.register_prehook(lambda dy: seen(dy[place], scale_here()))

    @staticmethod
    def _count(attempt, name, call, dtype, dy, scale, alpha):
        """`scale`: what dy carries, None where that is the attempt's business; `alpha`: what the
        layer multiplies dx by."""
        weight, tape = weight_of(call.module), call.tape
        trained = weight is not None and weight.requires_grad
        wanted = trained and _is_wanted(get_gradient_edge(weight).node)
        w = tape.given(parameter=weight) if wanted is not False else None
        x = tape.given(call.key) if call.key is not None and (
            call.node is None or _is_wanted(call.node) is not False) else None
        attempt.backward[name] = True
        y, gradients = tape.again(dy, [given for given in (w, x) if given is not None])
        gradients = list(gradients)
        dw = gradients.pop(0) if w is not None else None
        dx = gradients.pop(0) if x is not None else None
        computed = formats.of(dtype)
        if not call.counted:  # several backward passes may come through one pass
            call.counted = True
            if weight is not None:
                attempt.add(name, "w", weight, computed)
            attempt.add(name, "y", y, computed)
        if dw is not None:
            add = functools.partial(attempt.add, name, "dw", *(
                (dw, computed) if scale is None else (dw / scale, formats.of(weight.dtype), 1.0)))
            add() if wanted else _where_it_comes(weight, add)
        if dx is not None:
            attempt.add(name, "dx", dx if alpha == 1 else dx * alpha, formats.of(call.dtype, dtype),
                        None if scale is None else scale * alpha)
