"""What the passes of one training have in common: the policy, the rules of the layers by name, and
what was decided since the last update.

`parts`: DDP takes the mean of what each process computes of its own part of a batch. A process's
part of the whole gradient is its own gradient divided by their number, and it is that part which
carries S: so every process computes what one process would of the whole batch. Cells hold the
factor of the process's own gradient, S / parts; rules and logs speak of S.
"""
import warnings

import torch

from ada_train import counting, native
from ada_train.csv_writer import shortest
from ada_train.formats import NAMED
from ada_train.torch import formats
from ada_train.torch.layers import Names
from ada_train.torch.scaling import groups, statistics
from ada_train.torch.scaling.attention import Attention
from ada_train.torch.scaling.products import Product
from ada_train.torch.scaling.rules import LayerRule


def _form_of(dtype):
    name = formats.DTYPES.get(dtype)
    return NAMED[name] if name else None


def _layers_of(model):
    """What each parameter's product is called: its module, where the parameter is its weight."""
    names, found = Names(model), {}
    for path, parameter in model.named_parameters():
        module, _, own = path.rpartition(".")
        layer = names(module) if module else ""
        found[id(parameter)] = (names(path) if not module else layer if own == "weight"
                                else f"{layer}.{own}")
    return found


class Engine:
    """`roles`: the formats that are emulated, or None; `linear`: names of functions of autograd
    whose backward is linear."""

    def __init__(self, model, policy, roles, everywhere, linear):
        self.policy, self.facts = policy, policy.facts
        self.group, self.parts = groups.Group(everywhere), groups.processes()
        self.chooses = bool(self.facts.owns_layer_scales)
        self.norms = bool(self.facts.scales_batch_norms)
        self.attention = self.chooses and bool(self.facts.scales_attention)
        if self.facts.needs_edge or policy.name == "histogram":
            raise native.PolicyError("policy histogram counts every rounded gradient, which "
                                     "nobody sees here; expected another policy")
        self._grid = roles["gradients"].grid if roles else None
        self.gradient_form = self._grid.form if self._grid else None
        self.linear, self.emulation, self.observing = frozenset(linear), None, False
        self.decisions, self.bad_layers, self.reasons = [], set(), {}
        self._told = set()
        self._events, self._rules, self._restored, self._late = [], {}, {}, None
        self._names = _layers_of(model)

    # --- Layers ---

    def name_of(self, parameter):
        return self._names.get(id(parameter), "weight")

    def rule(self, name, fans, node, within=False):
        """The layer's rule, made in its first pass: its format is that of its gradients. `within`:
        a gradient within attention."""
        if name not in self._rules:
            form = self.gradient_form
            if form is None:
                own = isinstance(node, (Product._backward_cls, Attention._backward_cls))
                form = _form_of(node.computes if own else self._dtype_of(node))
            fp16 = form is not None and (form.exponent, form.mantissa) == (5, 10)
            made = self._rules[name] = LayerRule(self, name, fans, form, fp16, within)
            if name in self._restored:
                made.layer.load(self._restored.pop(name))
        return self._rules[name]

    @staticmethod
    def _dtype_of(node):
        found = getattr(node, "_input_metadata", None)
        return found[0].dtype if found else torch.float32

    def can_multiply(self, node, name):
        """Whether alpha may multiply what a product made: rounded to fp16 it has lost already."""
        if self._dtype_of(node) != torch.float16:
            return True
        self.name_reason(name, "a function multiplies in fp16, and rounds before a scale could "
                               "help: alpha is 1")
        return False

    def opaque(self, kind):
        self.name_reason(kind, "nobody knows whether this function's backward is linear: it is "
                               "given gradients without a scale")

    def name_reason(self, name, reason, warns=True):
        if name not in self.reasons:
            self.reasons[name] = reason
            if warns:
                warnings.warn(f"{name}: {reason}", stacklevel=7)

    def tells_once(self, what):
        """Whether this is the first time that it is said."""
        if what in self._told:
            return False
        self._told.add(what)
        return True

    def has_rule(self, name):
        return name in self._rules

    # --- One pass ---

    def round_gradient(self, x):
        """As gradients are stored."""
        return x if self._grid is None else counting.round_to(self._grid, x.contiguous(), torch)

    def largest_stored(self, dtype):
        """The largest value of the format in which gradients of a dtype are stored."""
        return (self.gradient_form or _form_of(dtype) or NAMED["fp32"]).largest

    def common_scale(self, name, given):
        """The scale of gradients that are not added, but leave one node together."""
        largest = statistics.largest_unscaled(given, self.group)
        target = native.branch_target([s for _, s in given], largest,
                                      self.largest_stored(given[0][0].dtype))
        self.merged(name, target)
        return target

    def decided(self, name, decision):
        row = {key: getattr(decision, key) for key in
               ("scale_in", "unbound", "bound", "pow2", "alpha", "scale_out")}
        self.decisions.append({"layer": name, "limit": decision.limit.decode(), **row})

    def merged(self, name, scale):
        scale *= self.parts
        self.decisions.append({"layer": name, "limit": "branch", "scale_in": scale,
                               "scale_out": scale})

    def halved(self, name, scale):
        self._events.append({
            "event": "branch_halved", "layer": name, "value": shortest(scale),
            "message": f"{name}: the sum of branches left the range; their scale is "
                       f"{shortest(scale)}"})

    def tell(self, event, value, message):
        self._events.append({"event": event, "value": value, "message": message})

    def take_events(self):
        events, self._events = self._events, []
        return events

    # --- One update ---

    def update(self, overflow, amax):
        """(action, whether something is not finite): the policy is told how the attempt ended."""
        layers, self.bad_layers = self._bad_everywhere(), set()
        overflow = overflow or bool(layers)
        action, *_ = self.policy.update(overflow, amax, layers=layers)
        self.facts = self.policy.facts
        return action, overflow

    def _bad_everywhere(self):
        if not self.facts.needs_layers:
            return []
        mine = sorted(self.bad_layers)
        found = self.group.objects(mine) if self.group.several else [mine]
        return sorted({name for names in found for name in names})

    # --- State ---

    def state(self):
        return {"policy": self.policy.name, "state": self.policy.state(),
                "layers": {name: rule.layer.state() for name, rule in self._rules.items()}}

    def load(self, state):
        if state.get("policy") != self.policy.name:
            raise native.PolicyError(f"the state is of policy {state.get('policy')}, and the model "
                                     f"is scaled by {self.policy.name}")
        self._restored = dict(state["layers"])
        for name, rule in self._rules.items():
            if name in self._restored:
                rule.layer.load(self._restored.pop(name))
        self._late = state["state"]
        if self.policy.name != "layerwise_dynamic" or self._rules:
            self.load_late()

    def load_late(self):
        """layerwise_dynamic has a scale for each layer, and knows the layers from their first pass.
        """
        if self._late is not None:
            self.policy.load(self._late)
            self._late = None

