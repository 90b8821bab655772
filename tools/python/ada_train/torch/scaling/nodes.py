"""Nodes of autograd's graph that are products of a gradient and a weight but were made by a
function, not by a module that this package knows: which of their gradients is the data's, what
their rule looks at, and which nodes are not linear in the gradient that they are given."""
import torch

from ada_train.torch.scaling.products import convolution_fans
from ada_train.torch.scaling.rules import Operands

# Between a parameter and the product that multiplies it.
_RESHAPES = {"T", "Transpose", "Permute", "View", "UnsafeView", "Reshape", "ToCopy", "Slice",
             "Select", "Split", "SplitWithSizes", "Unbind", "Chunk", "Expand", "Squeeze",
             "Unsqueeze", "Alias", "Clone", "NativeBatchNorm", "Mul", "WeightNormInterface",
             "Narrow", "AsStrided", "Round"}
_MOVES = {"Split", "SplitWithSizes", "Unbind", "Chunk", "View", "UnsafeView", "Reshape", "Permute",
          "Transpose", "T", "Squeeze", "Unsqueeze", "Alias", "Clone", "UnsafeSplit", "Contiguous"}
# Functions of autograd in Python whose backward is linear in its gradient.
LINEAR = {"_DDPSink"}


def kind_of(node):
    """"Convolution" of ConvolutionBackward0."""
    return type(node).__name__.partition("Backward")[0].lstrip("_")


def only_moves(node):
    """Whether what the node made are the values of one other tensor."""
    return kind_of(node) in _MOVES or hasattr(node, "carried")  # a rounding that is emulated


def is_leaf(node):
    return type(node).__name__ == "AccumulateGrad"


def nodes_below(root):
    """The nodes of a graph, those near its root first."""
    seen, queue = {root}, [root]
    for node in queue:
        yield node
        for after, _ in node.next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                queue.append(after)


def parameter_of(node, most=12):
    """The parameter that `node` hands on, reshaped or cast; None where it computes an activation.
    """
    for _ in range(most):
        if node is None:
            return None
        if is_leaf(node):
            return node.variable
        if kind_of(node) not in _RESHAPES:
            return None
        node = next((after for after, _ in node.next_functions if after is not None), None)
    return None


def _weight_of(node, index):
    """(parameter, dimensions are swapped, it is only reshaped) of an operand."""
    swapped, plain = False, True
    node = node.next_functions[index][0]
    parameter = parameter_of(node)
    while parameter is not None and not is_leaf(node):
        kind = kind_of(node)
        swapped ^= kind in ("T", "Transpose")
        plain = plain and kind in ("T", "Transpose", "View", "UnsafeView", "Alias")
        node = next(after for after, _ in node.next_functions if after is not None)
    return parameter, swapped, plain


class RawProduct:
    """A product node: `data` is the index of the gradient of its data, `weight` that of the other
    operand, which the node saved under a name and sums over a dimension of. A saved tensor may be
    looked at once, where it is computed again by a checkpoint: so a parameter itself is looked at
    where it is the operand, reshaped or not."""

    def __init__(self, node, data, weight, saved, dims):
        self.data, self._saved = data, saved
        self._dy_dim, self._w_dim = dims
        self.parameter, swapped, self._plain = _weight_of(node, weight)
        if swapped:
            self._w_dim = -1 - self._w_dim if self._w_dim < 0 else 1 - self._w_dim
        if self.parameter is not None and self._w_dim < 0:
            self._w_dim += self.parameter.dim()
        self.fans = None

    def with_fans(self, reference, exact):
        self.fans = (float(reference), float(exact))
        return self

    def operands(self, node, dy):
        w = self.parameter.detach() if self._plain else getattr(node, self._saved)
        return Operands(dy, self._dy_dim % dy.dim(), w, self._w_dim % w.dim())


def _convolution(node):
    found = RawProduct(node, 0, 1, "_saved_weight", (1, 1 if node._saved_transposed else 0))
    if found.parameter is None:
        return found
    return found.with_fans(*convolution_fans(found.parameter.shape, node._saved_stride,
                                             node._saved_transposed, node._saved_groups))


def _matrices(first, saved):
    """dx = dy w^T sums over the columns of w, and of dy: their number is the fan."""
    def made(node):
        one, two = first, first + 1
        left, right = (parameter_of(node.next_functions[i][0]) is not None for i in (one, two))
        if left == right:
            return None
        found = (RawProduct(node, one, two, saved[1], (-1, -1)) if right
                 else RawProduct(node, two, one, saved[0], (-2, -2)))
        fan = found.parameter.shape[found._w_dim]
        return found.with_fans(fan, fan)
    return made


class Norm(RawProduct):
    """Its factor of a channel is gamma / sqrt(var + eps)."""

    def operands(self, node, dy):
        return Operands(dy, 1, self.parameter.detach().float() * getattr(node, self._saved), 0)


PRODUCTS = {"Convolution": _convolution, "Addmm": _matrices(1, ("_saved_mat1", "_saved_mat2")),
             "Mm": _matrices(0, ("_saved_self", "_saved_mat2")),
             "Bmm": _matrices(0, ("_saved_self", "_saved_mat2"))}


def product_of(node):
    """The RawProduct that a node is, or None: then what it multiplies are activations."""
    make = PRODUCTS.get(kind_of(node))
    found = make(node) if make else None
    return found if found and found.parameter is not None else None


def norm_of(node):
    """A batch norm as a product of dy and its factors by channel; None where it is none."""
    if kind_of(node) not in ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"):
        return None
    data = node.next_functions[0][0]
    if data is None or parameter_of(data) is not None:
        return None
    found = Norm(node, 0, 1, "_saved_result2", (1, 0)).with_fans(1, 1)
    return found if found.parameter is not None else None


def is_opaque(node, linear):
    """Whether nobody knows that the node's backward is linear: a function of autograd written in
    Python, which is neither ours nor named as linear."""
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    return not hasattr(node, "ada_linear") and (
        type(node).__name__.partition("Backward")[0] not in LINEAR | linear)
