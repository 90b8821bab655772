"""Hooks that users give to tensors within a scaled network, or to nodes of autograd's graph, and
gradients that tensors retain: they are without a scale. While a network is scaled, other functions
stand in the places of torch.Tensor.register_hook and retain_grad and of the one that keeps hooks of
nodes: they take the scale off for a hook, and what it gives back carries it again."""
import functools
import itertools
import weakref

import torch

SCALES = "ada_train_scales"  # key of a node's metadata
_register_hook, _retain_grad = torch.Tensor.register_hook, torch.Tensor.retain_grad
_keep_hook = torch.autograd.Function._register_hook
_scaled = weakref.WeakSet()  # engines of the networks that are scaled
_retained = {}  # id -> weak reference of a tensor that retains its gradient
_numbers = itertools.count(1)  # of plans and of nodes' hooks, in the order in which they are made


def number():
    return next(_numbers)


class Scales:
    """The cells of what a node is given, by slot, of what it works with, and of what leaves it, by
    index. `number`: of the plan; `leaving`: what the plan does to the gradients that leave."""
    __slots__ = ("number", "came", "inner", "special", "usual", "leaving")

    def __init__(self, number, came, inner, special, usual, leaving):
        self.number, self.came, self.inner = number, came, inner
        self.special, self.usual, self.leaving = special, usual, leaving

    def of_given(self, slot, later):
        """`later`: after the plan's own hooks."""
        cell = self.inner if later else self.came.get(slot)
        return 1.0 if cell is None else cell.scale

    def of_left(self, index, later):
        raw = self.leaving.scaled is not None and index in self.special and not later
        scale = (self.inner if raw else self.special.get(index, self.usual)).scale
        if later:
            if any(i == index for i, _ in self.leaving.unscaled):
                return 1.0
            scale = next((merge.cell.scale for i, _, merge, _ in self.leaving.merges
                          if i == index), scale)
        return scale


def _here():
    """The scales of the node that runs now, or None."""
    node = torch._C._current_autograd_node()
    return None if node is None else node.metadata.get(SCALES)


def _times(gradient, factor):
    return gradient if gradient is None or factor == 1 else gradient * factor


def _over(gradient, scale):
    return gradient if gradient is None or scale == 1 else gradient / scale


class _TensorHook:
    def __init__(self, hook, slot):
        self._hook, self._slot = hook, slot
        functools.update_wrapper(self, hook, updated=())

    def __call__(self, gradient):
        scales = _here()
        scale = 1.0 if scales is None else scales.of_given(self._slot, False)
        if scale == 1:
            return self._hook(gradient)
        return _times(self._hook(gradient / scale), scale)


class _NodeHook:
    """`hook` has one argument where it runs before its node, two where it runs after it."""

    def __init__(self, hook):
        self._hook, self._number = hook, number()
        functools.update_wrapper(self, hook, updated=())

    def __call__(self, first, *rest):
        scales = _here()
        if scales is None:
            return self._hook(first, *rest)
        later = self._number > scales.number
        of = scales.of_left if rest else scales.of_given
        factors = [of(i, later) for i in range(len(first))]
        given = [tuple(map(_over, first, factors))]
        if rest:
            given.append(tuple(_over(g, scales.inner.scale) for g in rest[0]))
        made = self._hook(*given)
        if made is None:
            return None
        alone = isinstance(made, torch.Tensor)
        made = tuple(map(_times, (made,) if alone else made, factors))
        return made[0] if alone else made


def _is_ours(hook):
    """Hooks of this package know of scales."""
    module = getattr(getattr(hook, "func", hook), "__module__", None) or ""
    return module.startswith("ada_train.torch")


@torch.compiler.disable  # which would write the call of _register_hook as one of this
def _hook_of_tensor(self, hook):
    if torch.compiler.is_compiling() or _is_ours(hook):
        return _register_hook(self, hook)
    return _register_hook(self, _TensorHook(hook, self.output_nr))


def _hook_of_node(hooks, hook):
    return _keep_hook(hooks, hook if _is_ours(hook) else _NodeHook(hook))


def _retain(self):
    _retain_grad(self)
    if torch.compiler.is_compiling() or self.grad_fn is None or id(self) in _retained:
        return
    known = id(self)
    _retained[known] = weakref.ref(self, lambda _: _retained.pop(known, None))
    if SCALES in self.grad_fn.metadata:
        _settle(self)


def retained_in(nodes):
    """Gradients that tensors of these nodes retain will be without a scale. Called once for each
    plan, since what changes a tensor in place gives it another node."""
    for reference in list(_retained.values()):
        tensor = reference()
        if tensor is not None and tensor.retains_grad and tensor.grad_fn in nodes:
            _settle(tensor)


def _settle(tensor):
    """PyTorch's own hook adds the gradient to the tensor's, after all hooks of the tensor and
    before those of its node."""
    reference, slot, before = weakref.ref(tensor), tensor.output_nr, []

    def lay_aside(_):
        here = reference()
        if here is not None:
            before.append(here.grad)
            here.grad = None

    def bring_back(_):
        here = reference()
        if here is None or not before:
            return
        earlier, scales = before.pop(), _here()
        found = _over(here.grad, 1.0 if scales is None else scales.of_given(slot, False))
        here.grad = found if earlier is None else earlier if found is None else earlier + found
    _register_hook(tensor, lay_aside)
    tensor.grad_fn.register_prehook(bring_back)


def install(engine):
    """Its network is scaled from now on."""
    _scaled.add(engine)
    weakref.finalize(engine, _replace)
    _replace()


def remove(engine):
    _scaled.discard(engine)
    _replace()


def _replace():
    if any(True for _ in _scaled):
        torch.Tensor.register_hook, torch.Tensor.retain_grad = _hook_of_tensor, _retain
        torch.autograd.Function._register_hook = staticmethod(_hook_of_node)
        return
    torch.Tensor.register_hook = _register_hook
    for owner, name in ((torch.Tensor, "retain_grad"), (torch.autograd.Function, "_register_hook")):
        if name in vars(owner):
            delattr(owner, name)
