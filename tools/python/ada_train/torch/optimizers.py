"""Optimizers as others wrap them, or several of one training; and the norm of a training's
gradients, which has one meaning whatever optimizer, scaler and clipping there are."""
import weakref

import torch
from torch.nn.parameter import is_lazy

_INNER = ("optimizer", "_optimizer", "base_optimizer", "optim")


def _calls_hooks(optimizer):
    """Wrappers often have what an optimizer has, but a step() of their own that calls no hook."""
    return hasattr(optimizer, "_optimizer_step_pre_hooks") and getattr(
        type(optimizer).step, "hooked", False)


def _looked_through(given):
    optimizer = given
    while not _calls_hooks(optimizer):
        optimizer = next((inner for inner in (getattr(optimizer, name, None) for name in _INNER)
                          if inner is not None and inner is not optimizer), None)
        if optimizer is None:
            raise TypeError(f"optimizer: {type(given).__name__}: expected a torch.optim.Optimizer, "
                            "one that wraps it as its attribute `optimizer`, a list of them, or "
                            "None")
    return optimizer


class Several:
    """Optimizers that update the weights of one training together."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    @property
    def param_groups(self):
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def register_step_pre_hook(self, hook):
        return _Handles([o.register_step_pre_hook(hook) for o in self.optimizers])


class _Handles:
    def __init__(self, handles):
        self._handles = handles

    def remove(self):
        for handle in self._handles:
            handle.remove()


def described(given):
    """of() for who only reads what an optimizer has: others are taken as they are."""
    if isinstance(given, (list, tuple)) and given:
        return Several([described(one) for one in given])
    try:
        return of(given)
    except TypeError:
        return given


def of(given):
    """The optimizer whose step() others call in the end, Several of a list, or None. Raises
    TypeError."""
    if given is None or isinstance(given, Several):
        return given
    if not isinstance(given, (list, tuple)):
        return _looked_through(given)
    if not given:
        raise TypeError("optimizer: expected at least one, or None; the list is empty")
    found = [_looked_through(optimizer) for optimizer in given]
    return found[0] if len(found) == 1 else Several(found)


def name_of(optimizer):
    several = optimizer.optimizers if isinstance(optimizer, Several) else [optimizer]
    return ", ".join(type(one).__name__ for one in several)


def takes_gradients(optimizer):
    """Whether the step that begins updates: a fused optimizer under a GradScaler is told."""
    found = getattr(optimizer, "found_inf", None)
    return found is None or float(found) == 0


class GradientNorm:
    """The Euclidean norm of all gradients of parameters, without S and before they are clipped: it
    is taken when a backward pass ends. `parameters`: a function that gives them; `scale`: one that
    gives the S that their gradients carry then."""

    def __init__(self, parameters, scale):
        if any(is_lazy(p) for p in parameters()):
            raise ValueError("some parameters have no shape yet (nn.Lazy...): expected a model that "
                             "was called once before it is recorded")
        self._parameters, self._scale, self._pass, self._found = parameters, scale, None, None
        accumulated = weakref.WeakMethod(self._accumulated)  # parameters outlive a recording
        self._hooks = [p.register_post_accumulate_grad_hook(lambda _: _call(accumulated))
                       for p in dict.fromkeys(parameters()) if p.requires_grad and p.is_leaf]

    def _accumulated(self):
        number = torch._C._current_graph_task_id()
        if number != self._pass:
            self._pass = number
            # After what others do when the pass ends, as DDP does its sums.
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: queue(self._take))

    def _take(self):
        self._found = self._norm() / self._scale()

    def _norm(self):
        norms = [torch.linalg.vector_norm(g, dtype=_type_of_norm(g)) for g in self._gradients()]
        if not norms:
            return 0.0
        device, kind = norms[0].device, max((n.dtype for n in norms), key=lambda t: t.itemsize)
        return float(torch.linalg.vector_norm(torch.stack([n.to(device, kind) for n in norms])))

    def _gradients(self):
        for p in dict.fromkeys(self._parameters()):
            if p.grad is not None:
                yield values_of(p.grad.detach())

    def value(self):
        """Of the attempt's gradients; those that no backward pass made are taken as they lie."""
        return self._norm() if self._found is None else self._found

    @property
    def found(self):
        """Whether a backward pass of the attempt ended."""
        return self._found is not None

    def forget(self):
        """The attempt is over."""
        self._found = None

    def remove(self):
        for hook in self._hooks:
            hook.remove()


def _call(method):
    here = method()
    if here is not None:
        here()


def values_of(gradient):
    """The values that a gradient has, which may be sparse."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _type_of_norm(gradient):
    if gradient.dtype.is_complex:
        return torch.complex128 if gradient.dtype == torch.complex128 else torch.complex64
    return torch.float64 if gradient.dtype == torch.float64 else torch.float32
