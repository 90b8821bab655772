"""The policies and rules of ada-train itself, src/scaling, through the C interface of
libada_scaling (src/c_api/ada_scaling.h): no formula of a scale is written down in Python.

The library is looked for where ADA_SCALING_LIBRARY says, where a wheel and a Debian package have
it, and in the folder `build` of the tree that this package lies in.
"""
import ctypes
import json
import os
import pathlib
import sysconfig
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p

INTERFACE = 4
NAME = "libada_scaling.so"
NEEDS_MOMENTS, NEEDS_LOGS, NEEDS_PRODUCTS = 1, 2, 4
UPDATE, SKIP, SANITIZE = 0, 1, 2
TAIL_BINS = 256


class NoLibrary(ImportError):
    """libada_scaling was not found, or is one of another version."""


class PolicyError(ValueError):
    """The keys of a policy are none of ada-train's, or have values that it refuses."""


class PolicyEnd(RuntimeError):
    """The policy ends the training, as the program that it follows does."""


class _Fields(ctypes.Structure):
    def values(self):
        return {name: getattr(self, name) for name, _ in self._fields_}


class Facts(_Fields):
    _fields_ = [("awaits_start", c_int32), ("constant_scale", c_int32),
                ("owns_layer_scales", c_int32), ("scales_batch_norms", c_int32),
                ("scales_attention", c_int32), ("follows_reference", c_int32),
                ("needs_amax", c_int32), ("needs_layers", c_int32), ("needs_edge", c_double),
                ("sanitizes", c_int32), ("max_retries", c_int64)]


class Outcome(_Fields):
    _fields_ = [("overflow", c_int32), ("amax", c_double), ("above", c_int64), ("below", c_int64),
                ("layers", POINTER(c_char_p)), ("layer_count", c_int32)]


class Update(_Fields):
    _fields_ = [("action", c_int32), ("before", c_double), ("after", c_double),
                ("reason", c_char_p)]


class LayerInfo(_Fields):
    _fields_ = [("name", c_char_p), ("fan_reference", c_double), ("fan_exact", c_double),
                ("u_min", c_double), ("u_max", c_double), ("has_weight", c_int32),
                ("fp16_gradients", c_int32), ("within", c_int32)]


class Moments(_Fields):
    _fields_ = [("mean", c_double), ("mean_square", c_double), ("min", c_float), ("max", c_float),
                ("min_abs", c_float)]


class Observation(_Fields):
    _fields_ = [("dy", Moments), ("w", Moments), ("log_mean", c_double), ("log_std", c_double),
                ("product_min", c_double), ("product_max", c_double)]


class Decision(_Fields):
    _fields_ = [("unbound", c_double), ("bound", c_double), ("pow2", c_double),
                ("scale_in", c_float), ("alpha", c_float), ("scale_out", c_float),
                ("limit", c_char_p), ("alpha_first", c_int32), ("failed", c_int32),
                ("wants_tail", c_int32)]


class Tail(_Fields):
    _fields_ = [("bins", c_int64 * TAIL_BINS), ("nonzero", c_int64), ("largest", c_double)]


class BlockFigures(_Fields):
    _fields_ = [(name, c_int64) for name in (
        "numel", "zeros", "inf", "nan", "lost_beside_largest", "lost_scale_rounding",
        "lost_scale_floor", "lost_tensor_scale", "saturated", "blocks", "zero_blocks",
        "broken_blocks")] + [(name, c_double) for name in (
            "scale_log2_min", "scale_log2_max", "scale_log2_mean", "scale_log2_std")] + [
        ("scale_floor", c_int64), ("scale_ceiling", c_int64), ("sqnr_db", c_double),
        ("sqnr_mean_db", c_double), ("sqnr_worst_db", c_double)]


class Operand(_Fields):
    _fields_ = [("weight", c_int32), ("linear", c_int32), ("along_channels", c_int32),
                ("bf16", c_int32), ("groups", c_int64), ("rank", c_int32),
                ("dims", POINTER(c_int64))]


_FUNCTIONS = {  # name: result, arguments
    "ada_interface": (c_int32, []),
    "ada_error": (c_char_p, []),
    "ada_policy_new": (c_void_p, [c_char_p]),
    "ada_policy_free": (None, [c_void_p]),
    "ada_policy_name": (c_char_p, [c_void_p]),
    "ada_policy_section": (c_char_p, [c_void_p]),
    "ada_policy_look": (None, [c_void_p, POINTER(Facts)]),
    "ada_policy_scale": (c_double, [c_void_p]),
    "ada_policy_layer_scale": (c_double, [c_void_p, c_char_p]),
    "ada_policy_rescales_branches": (c_int32, [c_void_p, c_char_p]),
    "ada_policy_start": (c_char_p, [c_void_p, c_double, c_double]),
    "ada_policy_update": (c_int32, [c_void_p, POINTER(Outcome), POINTER(Update)]),
    "ada_policy_save": (c_char_p, [c_void_p]),
    "ada_policy_load": (c_int32, [c_void_p, c_char_p]),
    "ada_layer_new": (c_void_p, [c_void_p, POINTER(LayerInfo)]),
    "ada_layer_free": (None, [c_void_p]),
    "ada_layer_method": (c_char_p, [c_void_p]),
    "ada_layer_needs": (c_int32, [c_void_p]),
    "ada_layer_decide": (None, [c_void_p, POINTER(Observation), c_float, c_float,
                                POINTER(Decision)]),
    "ada_layer_observe": (None, [c_void_p, POINTER(Tail)]),
    "ada_layer_save": (c_char_p, [c_void_p]),
    "ada_layer_load": (c_int32, [c_void_p, c_char_p]),
    "ada_branch_target": (c_float, [POINTER(c_float), c_int32, c_double, c_double]),
    "ada_branch_target_reference": (c_float, [POINTER(c_float), POINTER(c_float), c_int32,
                                              c_float]),
    "ada_branch_halves": (c_int32, [c_float, c_double, c_double, c_double]),
    "ada_block_format_new": (c_void_p, [c_char_p]),
    "ada_block_format_free": (None, [c_void_p]),
    "ada_block_format_name": (c_char_p, [c_void_p]),
    "ada_operand_quantize": (c_int32, [c_void_p, POINTER(Operand), c_void_p, c_void_p,
                                       POINTER(BlockFigures)]),
    "ada_moments_of": (None, [c_void_p, c_int64, POINTER(Moments)]),
    "ada_tail_of": (None, [c_void_p, c_int64, c_float, POINTER(Tail)]),
}
_loaded = None


def places():
    """Where the library is looked for, in this order."""
    here = pathlib.Path(__file__).resolve().parent
    given = os.environ.get("ADA_SCALING_LIBRARY")
    debian = pathlib.Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "")
    return ([pathlib.Path(given)] if given else []) + [
        here / "program/lib/ada-train" / NAME, here.parents[2] / "build" / NAME,
        debian / "ada-train" / NAME]


def library():
    """The library, loaded when it is first asked for. Raises NoLibrary."""
    global _loaded
    if _loaded is None:
        found = next((place for place in places() if place.is_file()), None)
        if found is None:
            raise NoLibrary("libada_scaling is missing; looked for it at "
                            + ", ".join(map(str, places())) + ". `cmake --build build --target "
                            "ada_c_api` makes it; ADA_SCALING_LIBRARY may name it")
        try:
            lib = ctypes.CDLL(str(found))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise NoLibrary(f"{found}: {error}") from None
        if lib.ada_interface() != INTERFACE:
            raise NoLibrary(f"{found}: its interface is {lib.ada_interface()}, this package's "
                            f"{INTERFACE}; build both from the same tree")
        _loaded = lib
    return _loaded


def _why():
    return library().ada_error().decode()


def _state(text):
    if text is None:
        raise PolicyError(_why())
    return json.loads(text)


class Policy:
    """One policy with its state. `keys`: those of the section `scaling:`, as a map or as YAML.
    Copies and pickles are policies of their own with the same state."""

    def __init__(self, keys):
        self._lib, self._handle = library(), None
        self._text = keys if isinstance(keys, str) else json.dumps(dict(keys))
        self._layers = {}  # name -> what ada_layer_new was given: a policy's state may be by layer
        self._handle = self._lib.ada_policy_new(self._text.encode())
        if not self._handle:
            raise PolicyError(_why())
        self.name = self._lib.ada_policy_name(self._handle).decode()
        self.section = self._lib.ada_policy_section(self._handle).decode()

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.ada_policy_free(self._handle)

    def __reduce__(self):
        return _policy_again, (self._text, self._layers, self.state())

    @property
    def facts(self):
        facts = Facts()
        self._lib.ada_policy_look(self._handle, byref(facts))
        return facts

    @property
    def scale(self):
        return self._lib.ada_policy_scale(self._handle)

    def layer_scale(self, layer):
        return self._lib.ada_policy_layer_scale(self._handle, layer.encode())

    def rescales_branches(self, layer):
        return bool(self._lib.ada_policy_rescales_branches(self._handle, layer.encode()))

    def start(self, largest, u_max):
        """Chooses `init_scale: auto`; gives the reason in words."""
        reason = self._lib.ada_policy_start(self._handle, largest, u_max)
        if reason is None:
            raise PolicyError(_why())
        return reason.decode()

    def update(self, overflow, amax=0.0, above=0, below=0, layers=()):
        """(action, scale before, scale after, why it changed). Raises PolicyEnd."""
        names = (c_char_p * max(1, len(layers)))(*[name.encode() for name in layers])
        outcome = Outcome(bool(overflow), amax, above, below, names, len(layers))
        made = Update()
        if self._lib.ada_policy_update(self._handle, byref(outcome), byref(made)):
            raise PolicyEnd(_why())
        return made.action, made.before, made.after, made.reason.decode()

    def layer(self, name, fan_reference, fan_exact, u_min, u_max, has_weight=True,
              fp16_gradients=False, within=False):
        given = (name, fan_reference, fan_exact, u_min, u_max, has_weight, fp16_gradients, within)
        made = Layer(self, given)
        self._layers[name] = given
        return made

    def state(self):
        return _state(self._lib.ada_policy_save(self._handle))

    def load(self, state):
        if self._lib.ada_policy_load(self._handle, json.dumps(state).encode()):
            raise PolicyError(_why())


def _policy_again(text, layers, state):
    policy = Policy(text)
    for given in layers.values():
        policy.layer(*given)
    policy.load(state)
    return policy


class Layer:
    """One layer's rule and what it remembers; Policy.layer() makes it. Copies and pickles have a
    memory of their own."""

    def __init__(self, policy, given):
        self._policy, self._given = policy, given
        self._lib, self._handle = library(), None
        info = LayerInfo(given[0].encode(), *given[1:])
        self._handle = self._lib.ada_layer_new(policy._handle, byref(info))
        if not self._handle:
            raise PolicyError(_why())
        self.method = self._lib.ada_layer_method(self._handle).decode()

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.ada_layer_free(self._handle)

    def __reduce__(self):
        return _layer_again, (self._policy._text, self._given, self.state())

    def needs(self):
        return self._lib.ada_layer_needs(self._handle)

    def decide(self, seen, scale_in, state_scale=1.0):
        decision = Decision()
        self._lib.ada_layer_decide(self._handle, byref(seen), scale_in, state_scale,
                                   byref(decision))
        return decision

    def observe(self, tail):
        self._lib.ada_layer_observe(self._handle, byref(tail))

    def state(self):
        return _state(self._lib.ada_layer_save(self._handle))

    def load(self, state):
        if self._lib.ada_layer_load(self._handle, json.dumps(state).encode()):
            raise PolicyError(_why())


def _layer_again(text, given, state):
    layer = Layer(Policy(text), given)  # a policy of layers has one of each name
    layer.load(state)
    return layer


class BlockFormat:
    """A block-scaled format, by its name or as YAML."""

    def __init__(self, text):
        self._lib, self._handle, self._text = library(), None, text
        self._handle = self._lib.ada_block_format_new(text.encode())
        if not self._handle:
            raise ValueError(_why())
        self.name = self._lib.ada_block_format_name(self._handle).decode()

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.ada_block_format_free(self._handle)

    def __reduce__(self):
        return BlockFormat, (self._text,)

    def quantize(self, values, decoded, dims, *, weight, linear, along, groups=1, bf16=False,
                 counts=True):
        """An operand of fp32 values at an address, to another (the same will do). `along`: blocks
        run along channels. Returns BlockFigures, or None without `counts`."""
        sizes = (c_int64 * len(dims))(*dims)
        operand = Operand(weight, linear, along, bf16, groups, len(dims), sizes)
        figures = BlockFigures()
        if self._lib.ada_operand_quantize(self._handle, byref(operand), values, decoded,
                                          byref(figures) if counts else None):
            raise ValueError(_why())
        return figures if counts else None


def error():
    """The words of the decision that failed last."""
    return _why()


def branch_target(scales, largest, u_max):
    array = (c_float * len(scales))(*scales)
    return library().ada_branch_target(array, len(scales), largest, u_max)


def branch_target_reference(scales, magnitudes, u_max):
    array = c_float * len(scales)
    return library().ada_branch_target_reference(array(*scales), array(*magnitudes), len(scales),
                                                 u_max)


def branch_halves(target, largest, sum_max, u_max):
    return bool(library().ada_branch_halves(target, largest, sum_max, u_max))


def moments_of(address, count):
    """Of `count` fp32 values that lie at an address in the processor's memory."""
    moments = Moments()
    library().ada_moments_of(address, count, byref(moments))
    return moments


def tail_of(address, count, alpha):
    tail = Tail()
    library().ada_tail_of(address, count, alpha, byref(tail))
    return tail
