"""scaled_dot_product_attention, which modules call as a function: while a network is scaled another
one stands in its place, and modules tell it who calls."""
import functools
import threading
import weakref

import torch
from torch import nn
from torch.nn import functional

from ada_train.torch.layers import is_product
from ada_train.torch.scaling.attention import PLAIN, Attention, Options

_running = threading.local()
_passes = weakref.WeakKeyDictionary()  # engine -> its last backward pass
_scaled = weakref.WeakSet()  # engines of the networks that are scaled


class Caller:
    """The module that runs. `alone`: the whole module is one layer, whose output the emulation
    rounds in any case."""

    def __init__(self, engine, name, alone):
        self.engine, self.name, self._alone = engine, name, alone

    def rounding(self):
        """What rounds and counts p, y and the gradients, where a format is emulated."""
        emulation = self.engine.emulation
        return None if emulation is None else emulation.within(self.name, self._alone)


def _callers():
    if not hasattr(_running, "callers"):
        _running.callers = []
    return _running.callers


def depth():
    """How many modules run."""
    return len(_callers())


def cut(depth):
    """Forgets modules that an exception ended."""
    del _callers()[depth:]


def begin_pass(engine):
    """A backward pass of the engine begins: what it computes again belongs to it."""
    _passes[engine] = torch._C._current_graph_task_id()


def _caller():
    callers, here = _callers(), torch._C._current_graph_task_id()
    if callers:
        return callers[-1] if callers[-1].engine is not None else None
    return next((Caller(engine, "attention", False) for engine, number in _passes.items()
                 if number == here), None)


def _takes(q, k, v, mask):
    """Whether Attention knows such arguments: it wants images and heads as they are."""
    tensors = [x for x in (q, k, v, mask) if x is not None]
    if any(type(x) not in (torch.Tensor, nn.Parameter) or x.is_nested for x in tensors):
        return False
    same = q.dim() == k.dim() == v.dim() and q.dim() in (3, 4)
    if not same or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        return False
    fits = q.shape[:-3] == k.shape[:-3] and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0
    return fits and (mask is None or mask.dim() <= q.dim()) and q.is_floating_point()


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
               enable_gqa=False):
    rest = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal,
            "scale": scale, "enable_gqa": enable_gqa}
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return PLAIN(query, key, value, **rest)
    caller = _caller()
    if caller is None or not _takes(query, key, value, attn_mask) or (
            query.shape[-3] != key.shape[-3] and not enable_gqa):
        return PLAIN(query, key, value, **rest)
    q, k, v = (x if x.dim() == 4 else x[None] for x in (query, key, value))
    if attn_mask is not None:
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
    options = Options(bool(is_causal), float(dropout_p),
                      float(q.shape[-1] ** -0.5 if scale is None else scale))
    y = Attention.apply(q, k, v, attn_mask, options, caller)
    return y if query.dim() == 4 else y[0]


def _may_call(module):
    """Modules of PyTorch's own that have no children call no attention."""
    children = any(True for _ in module.children())
    own = type(module).__module__.startswith("torch.nn.modules")
    return not is_product(module) and (children or not own)


def _enter(caller, *_):
    _callers().append(caller)


def _leave(*_):
    _callers().pop()


def install(model, engine, name_of, is_layer):
    """Hooks that tell which module runs; those to remove."""
    hooks = []
    for path, module in model.named_modules():
        if _may_call(module):
            caller = Caller(engine, name_of(path), is_layer(module))
            hooks += [module.register_forward_pre_hook(functools.partial(_enter, caller),
                                                       prepend=True),
                      module.register_forward_hook(_leave, always_call=True)]
    _scaled.add(engine)
    weakref.finalize(engine, _settle)
    _settle()
    return hooks


def remove(engine):
    """Its network is no longer scaled."""
    _scaled.discard(engine)
    _settle()


def _settle():
    some = any(True for _ in _scaled)
    functional.scaled_dot_product_attention = _attention if some else PLAIN
