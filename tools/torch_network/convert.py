"""From the calls of torch functions that a module makes to layers, call by call."""
import torch
from torch.utils import _pytree

from . import contractions
from .call import Call, Weights
from .functions import ADVICE, HANDLERS, name_of
from .network import CannotExpress, Network, Value
from .noise import EMPTY, noise_of
from .pending import Pending
from .slices import Slices
from .views import is_whole, view, whole

# Called so for what they are in ada-train.
LAYER_NAMES = {"cat": "concat", "concatenate": "concat", "mul": "multiply", "rmul": "multiply",
               "imul": "multiply", "radd": "add", "iadd": "add", "mean": "pool", "amax": "pool",
               "adaptive_avg_pool2d": "pool", "max_pool2d": "max_pool", "avg_pool2d": "avg_pool",
               "interpolate": "upsample", "adaptive_max_pool2d": "max_pool",
               "isub": "sub", "rsub": "sub", "truediv": "div", "normalize": "l2_normalize"}
# What makes Python numbers of a tensor's values.
READS = ("bool", "item", "int", "float", "index", "tolist", "numpy", "array", "equal", "allclose",
         "nonzero", "contains")


def in_order(args, kwargs):
    """A call's arguments with the tensors that PyTorch calls `input` and `other` in their places,
    the first two, where they were given by keyword."""
    args, kwargs = list(args), dict(kwargs)
    for place, key in enumerate(("input", "other")):
        if len(args) == place and key in kwargs and "condition" not in kwargs:
            args.append(kwargs.pop(key))
    return tuple(args), kwargs


class Refused:
    """Stands for a tensor that no layer gives, and says why."""

    def __init__(self, error):
        self.error = error


class Converter:
    """Fills `network` while trace() runs the module."""

    def __init__(self, module, untie=False):
        self.module = module
        self.network = Network(name for name, _ in module.named_modules())
        self.weights = Weights(module, untie)
        self.slices = Slices()
        self.handlers = HANDLERS
        self.values = {}  # by the tensor's id: Value, Noise or Refused
        self.kept = []    # all of these tensors, so that ids stay theirs
        self.scopes = None
        self.not_last = {}    # layer -> why the network cannot end with it
        self.touched = set()  # ids of buffers that calls read

    def start(self, given, scopes):
        """`given`: images [n, c, h, w], or tokens [n, t]."""
        self.scopes = scopes
        size = given.shape[1:] if given.dim() == 4 else (1, given.shape[1], 1)
        form = "rows" if given.dim() == 4 else "flat"
        self.images = Value("input", form, *size)
        self.store(given, self.images)

    def store(self, tensor, value):
        self.values[id(tensor)] = value
        self.kept.append(tensor)

    def seen(self, function, args, kwargs, result, place):
        """One call; trace.Calls tells of it."""
        name = name_of(function)
        args, kwargs = in_order(args, kwargs)
        given, named = _pytree.tree_map(
            lambda a: self.values.get(id(a), a) if isinstance(a, torch.Tensor) else a,
            (args, kwargs))
        leaves = _pytree.tree_leaves((given, named))
        refused = [v for v in leaves if isinstance(v, Refused)]
        self.touched.update(id(v) for v in leaves if isinstance(v, torch.Tensor))
        if name in EMPTY:
            return
        if refused or any(isinstance(v, (Value, Pending)) for v in leaves):
            call = self.call_of(function, name, args, result, place)
            try:
                read = name in READS and not isinstance(result, torch.Tensor)
                made = refused[0] if refused and not read else (
                    self.layers_of(call, name, given, named))
            except CannotExpress as error:
                made = Refused(error)
            self.bind(call, args, result, made)
            return
        if isinstance(result, torch.Tensor):
            noise = noise_of(name, given, named, result)
            if noise is not None:
                self.store(result, noise)

    def call_of(self, function, name, args, result, place):
        module, path = self.scopes.module, self.scopes.path
        own = type(module).__module__.startswith(("torch.nn.", "torchvision.ops."))
        of_module = own and bool(path) and next(module.children(), None) is None
        kind = LAYER_NAMES.get(name, name)
        operation = type(module).__name__ if of_module else name
        layer = path if of_module else f"{path}.{kind}" if path else kind
        return Call(self, function, path, operation, layer, of_module, args, result,
                    place)

    def layers_of(self, call, name, args, kwargs):
        """What stands for the call's result: a value, or a list of them."""
        tensors = [t for t in _pytree.tree_leaves(call.result) if isinstance(t, torch.Tensor)]
        if not tensors and name in READS:
            call.refuse("makes a number of what the network computed: forward depends on values")
        if not tensors and name != "setitem":
            return None  # x.shape and the like
        if any(isinstance(v, Pending) for v in _pytree.tree_leaves((args, kwargs))):
            made, args, kwargs = self.pending(call, name, args, kwargs)
            if made is not NotImplemented:
                return made
        handler = self.handlers.get(name)
        if handler is None or kwargs.pop("out", None) is not None:
            call.refuse(ADVICE.get(name, "ada-train has no layer for it; tools/README.md lists what "
                                         "comes over"))
        if self.scopes.module._forward_hooks and call.of_module:
            call.refuse("has forward hooks, whose work may not be in the graph")
        try:
            return handler(call, *args, **kwargs)
        except CannotExpress:
            raise
        except Exception as error:  # arguments of a kind that no handler expects
            return call.refuse(f"called in a way that is not known here ({error})")

    def pending(self, call, name, args, kwargs):
        """What a call makes of arguments that are no layers yet, or NotImplemented and the arguments
        as values."""
        waiting = []
        for leaf in _pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Pending) and all(leaf is not other for other in waiting):
                waiting.append(leaf)
        for leaf in waiting:
            made = leaf.then(call, name, args, dict(kwargs))
            if made is not NotImplemented:
                return made, args, kwargs
        if name in ("scaled_dot_product_attention", *contractions.NAMES):  # which settle rotations
            return NotImplemented, args, kwargs
        settled = {id(leaf): leaf.settle(call) for leaf in waiting}
        args, kwargs = _pytree.tree_map(lambda a: settled.get(id(a), a), (args, kwargs))
        return NotImplemented, args, kwargs

    def bind(self, call, args, result, made):
        """`made` stands for the call's result; where PyTorch overwrote an argument, also for what
        later readers of that tensor see."""
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if made is None:
            return
        if not isinstance(result, (torch.Tensor, tuple, list)):
            if result is None and first is not None:  # x[...] = y
                self.overwrite(first, made)
            else:  # read into a number
                raise made.error
            return
        if isinstance(result, torch.Tensor):
            if result is first and isinstance(made, (Value, Pending, Refused)):
                made = self.overwritten(call, first, made)
            self.store(result, made)
            return
        parts = [t for t in result if isinstance(t, torch.Tensor)]
        if isinstance(made, (Refused, Value, Pending)):
            made = [made] * len(parts)
        for tensor, value in zip(parts, made):
            self.store(tensor, Refused(value) if isinstance(value, CannotExpress) else value)

    def overwritten(self, call, tensor, made):
        """In place: what shares memory with `tensor` follows."""
        before = self.values.get(id(tensor))
        if not isinstance(before, Value) or (isinstance(made, Value)
                                             and made.layer == before.layer):
            return made
        whole_change = isinstance(made, Value) and made.size == before.size and is_whole(before)
        place = tensor.untyped_storage().data_ptr()
        for other in self.kept:
            value = self.values.get(id(other))
            if other is tensor or not isinstance(value, (Value, Refused)) or (
                    other.untyped_storage().data_ptr() != place):
                continue
            if whole_change and isinstance(value, Value) and value.layer == before.layer:
                self.values[id(other)] = Value(made.layer, value.form, *value.size, value.index)
            elif isinstance(value, Value):
                self.values[id(other)] = Refused(CannotExpress(
                    call.path, call.operation, "changes a part of a tensor in place; torch.cat of "
                    "the parts comes over", call.place))
        return made

    def overwrite(self, tensor, refused):
        place = tensor.untyped_storage().data_ptr()
        for other in self.kept:
            if other.untyped_storage().data_ptr() == place:
                self.values[id(other)] = refused

    def shaped(self, made, shape):
        """`made`, of one value a channel, in PyTorch's `shape`."""
        return view(made, whole(made).reshape(shape))

    def rank(self, x):
        return x.index.dim() if x.form == "other" else {"rows": 4, "pixels": 4, "flat": 2}[x.form]
