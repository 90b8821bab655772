"""A module as a torch.fx graph, each node with the path of the module that it stands in and with
what it gives for an image of the wanted size."""
import torch
from torch import fx

from .modules import known_type
from .network import CannotExpress

BATCH = 3  # images; no axis of a network has this meaning by chance when views are told apart


class Tracer(fx.Tracer):
    """Looks into every module for which there is no layer kind."""

    def __init__(self):
        super().__init__()
        self.scopes = [""]
        self.failed = ""  # the innermost module in which tracing ended

    def is_leaf_module(self, m, module_qualified_name):
        return known_type(m) is not None or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m, forward, args, kwargs):
        self.scopes.append(self.path_of_module(m))
        try:
            result = super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or self.scopes[-1]
            raise
        finally:
            self.scopes.pop()
        return result

    def create_node(self, *args, **kwargs):
        node = super().create_node(*args, **kwargs)
        node.meta["scope"] = self.scopes[-1]
        return node


class Results(fx.Interpreter):
    """Runs the graph; keeps the shape of every tensor, and every other value as it is."""

    def run_node(self, n):
        try:
            result = super().run_node(n)
        except Exception as error:
            raise CannotExpress(n.meta.get("scope", ""), n.name,
                                f"fails for this size of image: {first_line(error)}") from error
        if isinstance(result, torch.Tensor):
            n.meta["shape"] = tuple(result.shape)
        elif n.op != "output":
            n.meta["result"] = result
        return result


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def trace(module, size):
    """The graph of `module` in training. `size`: channels, height, width. Its modules are left in
    evaluation."""
    module.train()
    tracer = Tracer()
    try:
        graph = tracer.trace(module)
    except Exception as error:
        raise CannotExpress(tracer.failed, "torch.fx", first_line(error)) from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if not inputs or any(not node.args for node in inputs[1:]):
        raise CannotExpress("", "forward", f"expected one input, the images; found {len(inputs)}")
    module.eval()
    interpreter = Results(fx.GraphModule(module, graph))
    interpreter.extra_traceback = False
    for made, node in zip(interpreter.graph.nodes, graph.nodes):
        made.meta.update(node.meta)
    with torch.no_grad():
        interpreter.run(torch.randn(BATCH, *size))
    return interpreter.graph
