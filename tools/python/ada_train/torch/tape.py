"""What one layer computed, operation by operation, and the same again in fp32: the values before
their rounding, and their gradients. The layer itself is not called again. Its operations are seen
below autograd and autocast, with the operands that its kernels have; what they draw at random, find
by comparing or compute without gradients is taken as it was."""
import contextlib
import sys
import threading

import torch
from torch.utils import _python_dispatch

NARROW = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten
# They hand values on, so that what was rounded last is what they were given.
_MOVES = {"clone", "_unsafe_view", "_to_copy", "cat", "stack", "constant_pad_nd", "index_select",
          "repeat", "flip", "roll", "lift_fresh"}
_BATCH_NORMS = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
                "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "miopen_batch_norm"}
# Kernels that call others which autocast casts for: below a dispatch mode it would be off.
_CASTING = {"_trilinear", "linalg_matrix_exp"}
# Random numbers that depend on an operand's shape, or have no gradient by it.
_DRAWN = {"bernoulli", "normal", "poisson", "multinomial", "binomial", "rand_like", "randn_like",
          "randint_like"}


_FUNCTION = "it computes by a torch.autograd.Function of its own"
_PARTS = "it writes into parts of a tensor"


class Untold(Exception):
    """Why the values before the rounding are not known."""


class _Stored(torch.autograd.Function):
    """Values as a narrower dtype stores them; the gradient passes."""

    @staticmethod
    def forward(_, x, dtype):
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(_, dy):
        return dy, None


class _Given:
    """A tensor that was there before the operation that takes it, as of `version`. Its values lie
    at `place`, None where they are a copy of its own; `cast_of`: the parameter whose cast it is."""
    __slots__ = ("x", "version", "place", "cast_of")

    def __init__(self, x, place=None):
        self.x, self.version, self.place, self.cast_of = x, x._version, place, None
        node = x.grad_fn
        if node is not None and node.name().startswith("ToCopyBackward"):
            self.cast_of = getattr(node.next_functions[0][0], "variable", None)

    def keep(self):
        """Before its values are overwritten."""
        self.x, self.place = self.x.clone(), None
        self.version = self.x._version

    def settle(self):
        """After the layer's pass: without the graph that made it."""
        self.x = self.x.detach()

    def value(self):
        if self.x._version != self.version:
            raise Untold("a tensor that it took was changed in place before its gradient came")
        return self.x.float() if self.x.dtype in NARROW else self.x


class _Slot:
    """A value that an operation of the tape made; its `dtype` is the one that it is stored in."""
    __slots__ = ("dtype", "reason")

    def __init__(self, dtype, reason=None):
        self.dtype, self.reason = dtype, reason


class _Step:
    __slots__ = ("run", "args", "kwargs", "made", "moves")

    def __init__(self, run, args, kwargs, made, moves=False):
        self.run, self.args, self.kwargs = run, args, kwargs
        self.made, self.moves = made, moves


def key_of(x):
    """Where a tensor's values lie: storage and geometry."""
    return (x.untyped_storage()._cdata, x.storage_offset(), tuple(x.shape), x.stride(), x.dtype)


def _mapped(change, value):
    """`value` with each tensor and dtype in it changed: one of an operation's arguments."""
    if isinstance(value, (list, tuple)):
        return [_mapped(change, inner) for inner in value]
    return change(value)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for inner in value for x in _tensors(inner)]
    return []


def _name(operation):
    return getattr(getattr(operation, "overloadpacket", operation), "__name__", str(operation))


def _of_place(operation):
    """The operation that gives what this one writes into its first operand."""
    if _name(operation) == "copy_":
        return lambda x, source, *_: source.to(x.dtype).expand(x.shape)
    namespace = getattr(torch.ops, operation.namespace)
    found = getattr(namespace, _name(operation)[:-1], None)
    if found is None or not hasattr(found, operation._overloadname):
        raise Untold(f"it computes in place ({_name(operation)})")
    return getattr(found, operation._overloadname)


def _written(operation):
    """Indices and names of the arguments that the operation writes into."""
    arguments = operation._schema.arguments if hasattr(operation, "_schema") else ()
    return [(i, a.name) for i, a in enumerate(arguments)
            if a.alias_info is not None and a.alias_info.is_write]


def _arguments(operation, args, kwargs):
    """All by name, defaults included."""
    given = {a.name: a.default_value for a in operation._schema.arguments}
    given.update(zip((a.name for a in operation._schema.arguments), args))
    return {**given, **kwargs}


def _batch_norm(operation, args, kwargs):
    """Its running statistics are its own affair where it computes others."""
    given = _arguments(operation, args, kwargs)
    training = bool(given.get("training", not _name(operation).endswith("no_training")))
    statistics = [None if training else given[name] for name in ("running_mean", "running_var")]
    return [given["input"], given.get("weight"), given.get("bias"), *statistics, training, 0.0,
            given.get("eps", given.get("epsilon"))]


_functions = threading.local()


@contextlib.contextmanager
def plain_function():
    """Around the forward of a function of autograd whose gradient is that of its operations."""
    before = getattr(_functions, "inside", False)
    _functions.inside = True
    try:
        yield
    finally:
        _functions.inside = before


class Tape(_python_dispatch.TorchDispatchMode):
    """While it is entered, operations are remembered; close() ends that."""
    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self._broken, self._frame = None, None
        self._slots, self._given, self._constants = {}, {}, []  # the first two by key
        self._storages, self._made, self._over = {}, set(), set()
        self._steps, self._roots, self._y = [], set(), None
        self._autocast = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]

    # --- While the layer computes ---

    def enter(self, frame):
        """`frame`: while it runs the layer computes."""
        self._frame = frame
        self.__enter__()

    def leave(self):
        """Also where it is not the innermost mode: an interrupt runs no hook of a layer."""
        self._frame, above = None, []
        stack = _python_dispatch._get_current_dispatch_mode_stack()
        if self not in stack:
            return
        while stack.pop() is not self:
            above.append(_python_dispatch._pop_mode())
        self.__exit__(None, None, None)
        for mode in reversed(above):
            _python_dispatch._push_mode(mode)

    def _runs(self):
        frame = sys._getframe(1)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._frame is None or not self._runs():  # the layer was interrupted
            self._frame, self._broken = None, "its pass was interrupted"
            self._slots, self._given, self._constants, self._storages = {}, {}, [], {}
            return func(*args, **kwargs)
        seen = self._guarded(self._before, func, args, kwargs)
        with contextlib.ExitStack() as casting:
            for kind in self._autocast if _name(func) in _CASTING else ():
                casting.enter_context(torch.autocast(kind, torch.get_autocast_dtype(kind)))
            made = func(*args, **kwargs)
        self._guarded(self._after, func, args, kwargs, seen, made)
        return made

    def _guarded(self, what, *args):
        if self._broken is not None:
            return None
        try:
            return what(*args)
        except Exception as problem:  # the layer's own pass goes on, whatever this one cannot do
            self._broken = str(problem) or type(problem).__name__
            return None

    def _is_live(self, x):
        """Whether a gradient goes through it."""
        if not (x.is_floating_point() or x.is_complex()):
            return False
        if getattr(_functions, "inside", False):
            return x.requires_grad or key_of(x) in self._slots
        return x.requires_grad and torch.is_grad_enabled()

    def _ref(self, x):
        """What stands for an operand on the tape."""
        if not isinstance(x, torch.Tensor):
            return torch.float32 if isinstance(x, torch.dtype) and x in NARROW else x
        key = key_of(x)
        if not self._is_live(x):
            self._constants.append(_Given(x, key[0]))
            return self._constants[-1]
        if key in self._slots:
            return self._slots[key]
        if key[0] in self._over or key[0] in self._made:
            return _Slot(None, _PARTS if key[0] in self._over else _FUNCTION)
        if key not in self._given:
            self._given[key] = _Given(x, key[0])
            self._roots.add(x.grad_fn)
        return self._given[key]

    def _before(self, operation, args, kwargs):
        """Whether a gradient goes through the operation, and then its operands on the tape."""
        operands = [*_tensors(args), *_tensors(list(kwargs.values()))]
        for x in operands:
            storage = x.untyped_storage()
            self._storages.setdefault(storage._cdata, storage)
        refs = None
        if _name(operation) != "detach" and any(map(self._is_live, operands)):
            args_, kwargs_ = args, kwargs
            if _name(operation) in _BATCH_NORMS:
                args_, kwargs_ = _batch_norm(operation, args, kwargs), {}
            refs = (_mapped(self._ref, list(args_)),
                    {name: _mapped(self._ref, x) for name, x in kwargs_.items()})
        targets = [x for i, name in _written(operation)
                   for x in _tensors(args[i] if i < len(args) else kwargs.get(name))]
        for x in targets:
            self._overwritten(x.untyped_storage()._cdata)
        return (refs,)

    def _overwritten(self, place):
        for given in [*self._given.values(), *self._constants]:
            if given.place == place:
                given.keep()
        self._over.add(place)
        for key in [key for key in self._slots if key[0] == place]:
            del self._slots[key]

    def _after(self, operation, args, kwargs, seen, made):
        refs, outputs = seen[0], _tensors(made)
        for x in outputs:
            storage = x.untyped_storage()
            if storage._cdata not in self._storages:
                self._storages[storage._cdata] = storage
                self._made.add(storage._cdata)
        if refs is None:
            return
        slots = [_Slot(x.dtype) for x in outputs]
        try:
            self._steps.append(self._step(operation, args, kwargs, refs, outputs, slots))
        except Untold as problem:
            slots = [_Slot(x.dtype, str(problem)) for x in outputs]
        for x, slot in zip(outputs, slots):
            if x.is_floating_point() or x.is_complex():
                self._slots[key_of(x)] = slot

    @staticmethod
    def _step(operation, args, kwargs, refs, outputs, slots):
        name, writes = _name(operation), [i for i, _ in _written(operation)]
        base = name.rstrip("_")
        if not hasattr(operation, "_schema"):
            raise Untold(f"it computes by {name}")
        if name in _BATCH_NORMS:
            return _Step(_aten.native_batch_norm.default, *refs, slots)
        if base in ("native_dropout", "_fused_dropout"):
            rate = float(args[1]) if base == "native_dropout" else 1 - float(args[1])
            factors = outputs[1] * (1 / (1 - rate) if rate < 1 else 0.0)
            return _Step(torch.mul, [refs[0][0], _Given(factors)], {}, slots)
        if base == "rrelu_with_noise":
            given = _arguments(operation, args, kwargs)
            if given["training"]:
                return _Step(torch.mul, [refs[0][0], _Given(given["noise"])], {}, slots)
            slope = (float(given["lower"]) + float(given["upper"])) / 2
            return _Step(_aten.leaky_relu.default, [refs[0][0], slope], {}, slots)
        if torch.Tag.nondeterministic_seeded in operation.tags:
            if base in _DRAWN:
                return _Step(lambda *drawn: list(drawn), [_Given(x) for x in outputs], {}, slots)
            if _arguments(operation, args, kwargs).get("dropout_p") != 0.0:
                raise Untold(f"it draws random numbers ({name})")
        if writes:
            if writes != [0] or not name.endswith("_"):
                raise Untold(f"it computes in place ({name})")
            operation = _of_place(operation)
        if base in ("_softmax", "_log_softmax"):
            refs[0][2] = False  # from fp32 to fp32
        moves = name in _MOVES or getattr(operation, "is_view", False)
        return _Step(operation, *refs, slots, moves)

    # --- After it ---

    def close(self, y):
        """Forgets what `y` is not made of. False where the layer gave `y` as it got it."""
        try:
            if self._broken is not None:
                raise Untold(self._broken)
            key = key_of(y)
            self._y = self._slots.get(key)
            if self._y is None and key[0] in self._over | self._made:
                raise Untold(_PARTS if key[0] in self._over else _FUNCTION)
            if self._y is not None:
                self._follow(y)
                self._prune()
        finally:
            self._slots, self._storages, self._constants = {}, {}, []
        return self._y is not None

    def _follow(self, y, most=2000):
        """Functions of autograd written in Python have gradients that nobody can compute anew."""
        seen, queue = set(), [y.grad_fn]
        while queue and len(seen) < most:
            node = queue.pop()
            if node is None or node in seen or node in self._roots:
                continue
            seen.add(node)
            if isinstance(node, torch.autograd.function.BackwardCFunction) and not (
                    hasattr(node, "ada_linear")):
                raise Untold(_FUNCTION)
            queue += [after for after, _ in node.next_functions]

    def _prune(self):
        needed, kept = {self._y}, []
        for step in reversed(self._steps):
            if any(slot in needed for slot in step.made):
                kept.append(step)
                needed.update(ref for ref in _refs(step) if isinstance(ref, _Slot))
        for slot in needed:
            if slot.reason is not None:
                raise Untold(slot.reason)
        self._steps = kept[::-1]
        taken = {ref for step in kept for ref in _refs(step)}
        for ref in taken:
            if isinstance(ref, _Given):
                ref.settle()
        self._given = {key: given for key, given in self._given.items() if given in taken}

    def given(self, key=None, parameter=None):
        """What stands for a tensor that lies at `key`, or for a parameter or its cast copy."""
        key = key_of(parameter) if parameter is not None else key
        if key in self._given:
            return self._given[key]
        return next((given for given in self._given.values()
                     if parameter is not None and given.cast_of is parameter), None)

    def again(self, dy, after):
        """(y, gradients) in fp32, before they are rounded: the gradients by what given() gave."""
        with torch.enable_grad(), torch.autocast(dy.device.type, enabled=False):
            leaves = {given: given.value().detach().requires_grad_() for given in after}
            y = self._replayed(leaves)
            found = torch.autograd.grad(y, list(leaves.values()), dy.to(y.dtype),
                                        allow_unused=True) if leaves and y.requires_grad else (
                                            [None] * len(leaves))
        return y.detach(), found

    def _replayed(self, leaves):
        values, stored = {}, {}

        def operand(ref, moves):
            if isinstance(ref, _Given):
                return leaves[ref] if ref in leaves else ref.value()
            if not isinstance(ref, _Slot):
                return ref
            if moves or ref.dtype not in NARROW or values[ref].dtype in NARROW:
                return values[ref]
            if ref not in stored:
                stored[ref] = _Stored.apply(values[ref], ref.dtype)
            return stored[ref]
        for step in self._steps:
            widens = step.run is _aten._to_copy.default and step.made[0].dtype not in NARROW
            moves = step.moves and not widens
            made = step.run(*_mapped(lambda x: operand(x, moves), step.args), **{
                name: _mapped(lambda x: operand(x, moves), x) for name, x in step.kwargs.items()})
            values.update(zip(step.made, _tensors(made)))
        return values[self._y]


def _refs(step):
    def flat(value):
        if isinstance(value, list):
            for inner in value:
                yield from flat(inner)
        elif isinstance(value, (_Given, _Slot)):
            yield value
    yield from flat(step.args)
    yield from flat(list(step.kwargs.values()))
