"""An ONNX graph of layers. Tensors are [n, c, h, w], also those of one value a channel."""
import numpy
from onnx import TensorProto, helper, numpy_helper

from .checkpoint import CannotRead, shaped
from .layers import shapes_of
from .onnx_kinds import KINDS

OPSET = 20
OF_THE_GRAPH = ("images", "tokens", "logits", "locations", "scores")


class Graph:
    """Grows node by node. `weights`: arrays by name."""

    def __init__(self, layers, weights, size):
        self.layers, self.weights = layers, weights
        self.shapes, self.sequences = shapes_of(layers, size)
        self.by_name = {layer["name"]: layer for layer in layers}
        self.unpooled = {layer["pool"] for layer in layers if layer["kind"] == "max_unpool"}
        self.nodes, self.initializers, self.kept = [], [], {}
        self.of_tokens = any(layer["kind"] == "embedding" for layer in layers)
        self.values = {"input": "tokens" if self.of_tokens else "images"}  # by layer: the tensor

    def node(self, kind, inputs, name, outputs=1, last=False, **attributes):
        """The name of its output: `name`, but for layers that are called as an input or output is."""
        name = f"{name}:layer" if name in OF_THE_GRAPH and not last else name
        made = [name] + [f"{name}:{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name=name, **attributes))
        return name

    def constant(self, name, array):
        """An initializer called `name`."""
        if name not in self.kept:
            self.kept[name] = name
            self.initializers.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def tensor(self, name, shape):
        """A tensor of the checkpoint."""
        if name not in self.weights:
            raise CannotRead(f"the checkpoint has no {name}: it is of another network")
        return shaped(self.weights[name], shape, name).astype(numpy.float32)

    def weight(self, layer, suffix, shape):
        name = layer.get("prefix", f"{layer['name']}.") + suffix
        return self.constant(name, self.tensor(name, shape))

    def by_channel(self, layer, suffix):
        """A vector of one number a channel, to be spread over images."""
        return self.weight(layer, suffix, [1, self.shapes[layer["name"]][0], 1, 1])

    def ints(self, name, *values):
        return self.constant(name, numpy.array(values, numpy.int64))

    def add_layers(self):
        for layer in self.layers:
            function = KINDS.get(layer["kind"])
            if function is None:
                raise CannotRead(f"{layer['name']}: kind {layer['kind']} has no node in ONNX here")
            inputs = [self.values[name] for name in layer["inputs"]]
            self.values[layer["name"]] = function(self, layer, inputs)

    def shape_in(self, layer):
        return self.shapes[layer["inputs"][0]]


def model_of(layers, outputs, weights, size, normalize=None):
    """An onnx.ModelProto: `images` [n, c, h, w] in, or `tokens` [n, t], and each output as PyTorch would
    give it. `normalize`: (mean, std) by channel, which the graph then takes off itself."""
    graph = Graph(layers, weights, size)
    if normalize:
        mean, std = (numpy.array(v, numpy.float32).reshape(1, -1, 1, 1) for v in normalize)
        centered = graph.node("Sub", ["images", graph.constant("images:mean", mean)],
                              "images:centered")
        graph.values["input"] = graph.node("Div", [centered, graph.constant("images:std", std)],
                                           "images:normal")
    graph.add_layers()
    names = ["logits"] if len(outputs) == 1 else ["locations", "scores"]
    results = []
    for name, layer in zip(names, outputs):
        c, h, w = graph.shapes[layer]
        boxes = graph.by_name[layer]["kind"] == "concat_boxes"
        if boxes or graph.of_tokens and layer in graph.sequences:
            axis = graph.ints("axes:rows", 2) if boxes else graph.ints("axis:3", 3)
            squeezed = graph.node("Squeeze", [graph.values[layer], axis], f"{name}:turned")
            graph.node("Transpose", [squeezed], name, last=True, perm=[0, 2, 1])
            shape = ["n", w if boxes else "t", c]
        elif (h, w) == (1, 1):
            graph.node("Flatten", [graph.values[layer]], name, last=True, axis=1)
            shape = ["n", c]
        else:
            graph.node("Identity", [graph.values[layer]], name, last=True)
            shape = ["n", c, h, w]
        results.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    given = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "t"]) if graph.of_tokens else (
        helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", *size]))
    made = helper.make_graph(graph.nodes, "network", [given], results, graph.initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9,
                             producer_name="ada-train")
