"""Products by any name: matmul, mm, addmm, baddbmm, einsum, tensordot. Of a computed tensor and a
parameter they are a linear layer, of two computed ones a part of attention. Axes have labels, as in
einsum."""
from .arithmetic import add, multiply
from .attention import Scores, scores_of
from .network import Value
from .pending import Mix, Pending, arranged, sizes_of
from .products import linear_of


def contract(call, a, b, first, second, out):
    """The product of `a` and `b`, whose axes are called `first` and `second`: the sum over what `out`
    does not have."""
    if len(set(first)) < len(first) or len(set(second)) < len(second):
        call.refuse("takes a diagonal")
    for given in (a, b):
        if isinstance(given, Pending) and not isinstance(given, Mix):
            return given.product(call, a, b, first, second, out)
    computed = [isinstance(t, (Value, Pending)) for t in (a, b)]
    if all(computed):
        return scores_of(call, a, b, first, second, out)
    if not computed[0]:
        a, b, first, second = b, a, second, first
    if isinstance(a, Mix):
        a = a.settle(call)
    return by_parameter(call, a, b, list(first), list(second), list(out))


def by_parameter(call, x, weight, labels, others, out):
    """`x` times a tensor that the network does not compute."""
    sizes = dict(zip(labels, sizes_of(x)))
    for axis in reversed(range(weight.dim())):  # the same for all: no axis of the matrix
        label, size = others[axis], weight.shape[axis]
        if size > 1 and weight.stride(axis) == 0 or size == 1 and sizes.get(label, 0) > 1:
            weight = weight.select(axis, 0)
            del others[axis]
    own = [label for label in others if label not in labels]
    shared = [label for label in labels if label in others]
    summed = [label for label in shared if label not in out]
    sizes.update(zip(others, weight.shape))
    if not summed and not own and set(labels) == set(out):
        spread = weight.permute([others.index(label) for label in shared])
        made = multiply(call, x, spread.reshape([sizes[label] if label in others else 1 for label in labels]))
        return arranged(made, [labels.index(label) for label in out])
    if len(summed) < len(shared):
        call.refuse("by a matrix of its own for each of several parts; a linear layer has one matrix")
    kept = [label for label in labels if label not in summed]
    if not summed or set(kept + own) != set(out):
        call.refuse("is no linear layer: the sum goes over axes that only one of the two has, or over none")
    x = arranged(x, [labels.index(label) for label in kept + summed], [*[sizes[label] for label in kept], -1])
    matrix = weight.permute([others.index(label) for label in own + summed])
    features, inputs = (1, 1)
    for label in own:
        features *= sizes[label]
    for label in summed:
        inputs *= sizes[label]
    stored = call.stored(matrix, [features, inputs], "weight")
    made = linear_of(call, x, stored, None)
    made = arranged(made, range(len(kept) + 1), [sizes[label] for label in kept + own])
    return arranged(made, [(kept + own).index(label) for label in out])


# --- Their names ---

def matmul(call, input, other):
    """Of vectors, matrices, or batches of them."""
    first, second = len(sizes_of(input)), len(sizes_of(other))
    rows, columns = (["row"] if first > 1 else []), (["column"] if second > 1 else [])
    batch = list(range(max(first, second) - 2, 0, -1))
    labels = [*batch[len(batch) - max(first - 2, 0):], *rows, "sum"]
    others = [*batch[len(batch) - max(second - 2, 0):], "sum", *columns]
    return contract(call, input, other, labels, others, [*batch, *rows, *columns])


def mm(call, input, mat2):
    return matmul(call, input, mat2)


def mv(call, input, vec):
    return matmul(call, input, vec)


def baddbmm(call, input, batch1, batch2, beta=1, alpha=1):
    return addmm(call, input, batch1, batch2, beta, alpha)


def addmm(call, input, mat1, mat2, beta=1, alpha=1):
    """input + mat1 mat2, of matrices, or (baddbmm) of batches of them."""
    made = matmul(call, mat1, mat2)
    if isinstance(made, Scores):
        return made.scaled(alpha) if beta == 0 else made.scaled(alpha).masked(call, input * beta, True)
    if alpha != 1 or beta not in (0, 1):
        call.refuse("with factors (beta, alpha) other than 1")
    return made if beta == 0 else add(call, made, input)


def einsum(call, equation, *operands):
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    if not isinstance(equation, str) or len(operands) > 2:
        call.refuse("of more than two tensors, or with lists of numbers for their axes; one product after "
                    "the other, with its letters in a text, comes over")
    given, arrow, out = equation.replace(" ", "").partition("->")
    letters = [spread(part, len(sizes_of(x)), call) for part, x in zip(given.split(","), operands)]
    every = [label for part in letters for label in part]
    if arrow:
        dots = sorted({label for label in every if isinstance(label, int)}, reverse=True)
        out = [label for letter in out.replace("...", ".") for label in (dots if letter == "." else letter)]
    else:
        out = [*sorted({label for label in every if isinstance(label, int)}, reverse=True),
               *sorted(label for label in every if every.count(label) == 1 and isinstance(label, str))]
    if len(operands) == 1:
        if sorted(map(str, letters[0])) != sorted(map(str, out)):
            call.refuse("of one tensor, sums or takes a diagonal")
        return arranged(operands[0], [letters[0].index(label) for label in out])
    return contract(call, *operands, *letters, out)


def spread(letters, rank, call):
    """The labels of the axes of one tensor: "..." stands for numbers, the last axis of them 1."""
    if "..." not in letters:
        return list(letters)
    before, after = letters.split("...")
    count = rank - len(before) - len(after)
    if count < 0:
        call.refuse("has more letters than the tensor has axes")
    return [*before, *range(count, 0, -1), *after]


def tensordot(call, a, b, dims=2, out=None):
    ranks = len(sizes_of(a)), len(sizes_of(b))
    if isinstance(dims, int):
        dims = list(range(ranks[0] - dims, ranks[0])), list(range(dims))
    pairs = [(i % ranks[0], j % ranks[1]) for i, j in zip(*dims)]
    labels = [("a", i) for i in range(ranks[0])]
    others = [("b", j) for j in range(ranks[1])]
    for i, j in pairs:
        others[j] = labels[i]
    summed = [labels[i] for i, _ in pairs]
    return contract(call, a, b, labels, others, [label for label in labels + others if label not in summed])


NAMES = {"matmul": matmul, "mm": mm, "bmm": mm, "mv": mv, "addmm": addmm, "baddbmm": baddbmm,
         "einsum": einsum, "tensordot": tensordot}
