"""From a traced module to layers, node by node."""
import torch

from .functions import handler_of, name_of, works_in_place
from .modules import Call, convert_module
from .network import CannotExpress, Network, Value

# Called so for what they are in ada-train.
LAYER_NAMES = {"cat": "concat", "concatenate": "concat", "mul": "multiply", "mean": "pool",
               "iadd": "add", "imul": "multiply", "adaptive_avg_pool2d": "pool",
               "max_pool2d": "max_pool", "avg_pool2d": "avg_pool", "interpolate": "upsample",
               "adaptive_max_pool2d": "max_pool"}


class Converter:
    """Fills `network` from a graph that trace() made of `module`."""

    def __init__(self, module, graph, drop_other_outputs):
        self.module, self.graph = module, graph
        self.drop_other_outputs = drop_other_outputs
        self.network = Network(name for name, _ in module.named_modules())
        self.values = {}   # by node
        self.called = {}   # modules with parameters: where they were first called
        self.dropped = []  # outputs left out

    def run(self, size):
        for node in self.graph.nodes:
            self.values[node] = self.value_of(node, size)
        output = self.values[self.last_node()]
        self.finish(output)
        return self.network

    def last_node(self):
        return next(node for node in self.graph.nodes if node.op == "output")

    def parameter_path(self, parameter):
        return next(name for name, p in self.module.named_parameters() if p is parameter)

    # What stands for the node: a Value, a Parameter, or the constant that it gave.
    def value_of(self, node, size):
        if node.op == "placeholder":
            first = not any(isinstance(v, Value) for v in self.values.values())
            return Value("input", "rows", *size) if first else node.args[0]
        if node.op == "output":
            return self.output_of(node)
        if node.op == "get_attr":
            return self.attribute(node)
        if "shape" not in node.meta and not self.makes_tensors(node):
            return node.meta["result"]  # x.size(0) and what is worked out from it
        args, kwargs = self.filled(node.args), self.filled(node.kwargs)
        result = (self.call_module if node.op == "call_module" else self.call)(node, args, kwargs)
        self.rebind(node, args, result)
        return result

    @staticmethod
    def makes_tensors(node):
        result = node.meta.get("result")
        return isinstance(result, (tuple, list)) and any(
            isinstance(item, torch.Tensor) for item in result)

    def filled(self, arguments):
        return torch.fx.node.map_arg(arguments, lambda n: self.values[n])

    def attribute(self, node):
        found = self.module
        for part in node.target.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor) and not isinstance(found, torch.nn.Parameter):
            raise CannotExpress(node.meta["scope"], node.target,
                                "a tensor that is neither computed nor trained")
        return found

    def call_module(self, node, args, kwargs):
        module, path = self.module.get_submodule(node.target), node.target
        call = Call(self, node, path, type(module).__name__, path, True)
        if next(module.parameters(), None) is not None and module in self.called:
            call.refuse(f"is called twice, the first time as {self.called[module]}; layers cannot "
                        "share weights")
        self.called[module] = path
        return convert_module(call, module, args, kwargs)

    def call(self, node, args, kwargs):
        if isinstance(node.target, type) and issubclass(node.target, tuple):  # several outputs
            return node.target(*args, **kwargs)
        scope, name = node.meta["scope"], name_of(node.target)
        kind = LAYER_NAMES.get(name, name)
        operation = node.target if isinstance(node.target, str) else torch.typename(node.target)
        call = Call(self, node, scope, f"{operation} ({node.name})",
                    f"{scope}.{kind}" if scope else kind, False)
        handler = handler_of(node.target)
        if handler is None:
            call.refuse()
        try:
            return handler(call, *args, **kwargs)
        except (TypeError, AttributeError) as error:
            return call.refuse(f"called in a way that is not known here ({error})")

    def rebind(self, node, args, result):
        """Where PyTorch overwrites its input, later readers of that tensor see the result."""
        if node.op == "call_module":
            in_place = getattr(self.module.get_submodule(node.target), "inplace", False) is True
        else:
            in_place = works_in_place(node)
        if not in_place or not args or not isinstance(args[0], Value):
            return
        before = args[0].layer
        for other, value in self.values.items():
            if isinstance(value, Value) and value.layer == before:
                self.values[other] = Value(result.layer, value.form, *value.size)

    def output_of(self, node):
        output = self.filled(node.args[0])
        if isinstance(output, Value):
            return output
        named = list(output.items()) if isinstance(output, dict) else list(
            zip(getattr(output, "_fields", range(len(output))), output))
        named = [(key, value) for key, value in named if value is not None]
        names = [str(key) for key, _ in named]
        if not self.drop_other_outputs and len(named) > 1:
            raise CannotExpress("", "output", f"{len(named)} of them in training "
                                f"({', '.join(names)}); --no-aux keeps the first alone")
        self.dropped = names[1:]
        return named[0][1]

    def finish(self, output):
        """Checks that `output` is one number a class, and makes it the last layer."""
        if not isinstance(output, Value) or output.layer == "input":
            raise CannotExpress("", "output", "nothing that the network computes")
        if output.form != "flat":
            shape = {"rows": output.size, "pixels": (*output.size[1:], output.channels)}
            raise CannotExpress("", "output", f"of shape [n, {', '.join(map(str, shape[output.form]))}"
                                "]; expected [n, classes]")
        if not output.is_vector:
            output = self.network.add(self.network.unique("flatten", False), "flatten", [output],
                                      Value("", "flat", output.channels * output.height *
                                            output.width))
        self.network.prune(output.layer)
        self.name_classes(output.channels)

    def name_classes(self, classes):
        """The layer that decides how many classes there are says `classes` instead of a number."""
        by_name = {layer.name: layer for layer in self.network.layers}
        layer = self.network.layers[-1]
        keeps = ("relu", "relu6", "hardtanh", "leaky_relu", "dropout", "global_avg_pool", "sigmoid",
                 "tanh", "silu", "gelu", "hardswish", "hardsigmoid")
        while layer.kind in keeps and layer.inputs[0] in by_name:
            layer = by_name[layer.inputs[0]]
        for key in ("features", "channels"):
            if layer.kind in ("linear", "conv2d") and layer.keys.get(key) == classes:
                layer.keys[key] = "classes"
