"""The graph of one backward pass, and the scale that each of its gradients will carry: found when
the loss is scaled, carried out by hooks on autograd's nodes. Nothing of the model's forward pass
has to be known for it, so any Python will do that autograd follows."""
import functools

import torch

from ada_train.torch.scaling import nodes, tensor_hooks
from ada_train.torch.scaling.agreement import Agreement
from ada_train.torch.scaling.attention import Attention
from ada_train.torch.scaling.choice import Choice
from ada_train.torch.scaling.merging import Cell, Merge, times
from ada_train.torch.scaling.products import Product

UNSCALED = Cell(1.0)
# Keys of a node's metadata: its plan, the layer whose output it made, the scale that it is given.
MARK, NAME, CELL = "ada_train_plan", "ada_train_layer", "ada_train_cell"


def in_order(root):
    """The nodes below `root`, each before those to which it hands its gradients, with its edges."""
    edges = {root: root.next_functions}
    result, stack = [], [(root, iter(edges[root]))]
    while stack:
        node, following = stack[-1]
        for after, _ in following:
            if after is not None and after not in edges:
                edges[after] = after.next_functions
                stack.append((after, iter(edges[after])))
                break
        else:
            result.append(node)
            stack.pop()
    return result[::-1], edges


def scale_here():
    """The scale of the gradient that the node which runs now is given, in a logged step of a
    scaled training; None elsewhere."""
    node = torch._C._current_autograd_node()
    cell = node.metadata.get(CELL) if node is not None else None
    return None if cell is None else cell.scale


class _Exit:
    """What becomes of the gradients that leave a node, in this order: alpha, the scale taken off
    those of parameters, and where several meet, their sum."""

    def __init__(self, order):
        self.order, self.scaled, self.unscaled, self.merges = order, None, [], []

    def __call__(self, gradients, _):
        gradients = list(gradients)
        if self.scaled is not None:
            self.scaled.leave(gradients)
        for index, cell in self.unscaled:
            if gradients[index] is not None and cell.scale != 1:
                gradients[index] = gradients[index] / cell.scale
        for index, cell, merge, order in self.merges:
            gradients[index] = merge.arrive(gradients[index], cell.scale, order)
        return tuple(gradients)


class _Slots:
    """A node with several outputs, whose gradients come with scales of their own."""

    def __init__(self, engine, name, cells):
        self.cell, self._cells, self._engine, self.name = Cell(), cells, engine, name

    def __call__(self, gradients):
        given = [(g, cell.scale) for g, cell in zip(gradients, self._cells) if g is not None]
        scales = {s for _, s in given}
        self.cell.scale = next(iter(scales)) if scales else 1.0
        if len(scales) < 2:
            if len(given) > 1:
                self._engine.merged(self.name, self.cell.scale)
            return None
        self.cell.scale = self._engine.common_scale(self.name, given)
        return tuple(g if g is None or cell.scale == self.cell.scale
                     else times(g, self.cell.scale / cell.scale)
                     for g, cell in zip(gradients, self._cells))


class _RawRule:
    """A product that a function made: alpha is chosen before its node runs, and multiplies what
    comes out of it."""

    def __init__(self, rule, product, came):
        self.leaves, self._rule, self._product, self._came = Cell(), rule, product, came
        self._made = None

    def enter(self, gradients):
        dy = gradients[0]
        if dy is not None:
            node = torch._C._current_autograd_node()  # a hook that kept its node would never go
            self._made = self._rule.decide(self._product.operands(node, dy), self._came.scale)
            self.leaves.scale = self._made.scale_out

    def leave(self, gradients):
        dx = gradients[self._product.data]
        if dx is None or self._made is None:
            return
        if self._made.alpha != 1:
            dx.mul_(self._made.alpha)  # the product made it, and nobody else has it yet
        self._rule.observe(dx, self._made)


class Plan:
    """`late`: whether a rounding of the logits' gradient is what multiplies by S; `apart`: whether
    this process decides by its own part of the batch, as it does where `joins`: others may have no
    batch at all. Raises RuntimeError where a part of the graph has a plan."""

    def __init__(self, engine, loss, joins=False):
        root = loss.grad_fn
        self.cell, self.late = Cell(), False  # the cell of what enters at `root`
        self._number = tensor_hooks.number()
        self._engine = engine
        order, self._edges = in_order(root)
        self._came = {root: {0: [(None, None, self.cell)]}}  # node -> slot -> (exit, index, cell)
        self._exits, self._cells, self._agreement = {}, {}, Agreement(engine)
        rules = Choice(engine, self._edges, self._name).rules(order)
        for node, (made, _) in rules.items():
            for rule in made.values() if isinstance(made, dict) else [made]:
                self._agreement.ask(node, rule.name, rule)
        for node in order:
            self._enter(node)
            self._leave(node, rules)
        for node, leaving in self._exits.items():
            if leaving.scaled or leaving.unscaled or leaving.merges:
                self._mark(node)
                node.register_hook(leaving)
        tensor_hooks.retained_in(self._edges)
        self.apart = joins or self._agreement.fails(loss)

    # --- What comes ---

    def _enter(self, node):
        cells = {}
        for slot, arrived in self._came.pop(node).items():
            found = {id(cell): cell for _, _, cell in arrived}
            if len(found) == 1 or nodes.is_leaf(node):
                cells[slot] = arrived[0][2]
                continue
            merge = Merge(self._engine, self._name_of_whole(node), len(arrived), self.cell)
            self._agreement.ask(node, merge.name)
            for leaving, index, cell in arrived:
                leaving.merges.append((index, cell, merge, (leaving.order, index)))
            cells[slot] = merge.cell
        if nodes.is_leaf(node):
            return
        if len({id(cell) for cell in cells.values()}) > 1:
            slots = _Slots(self._engine, self._name_of_whole(node),
                           [cells.get(i, UNSCALED) for i in range(max(cells) + 1)])
            self._mark(node)
            self._agreement.ask(node, slots.name)
            node.register_prehook(slots)
            self._cells[node] = cells, slots.cell
        else:
            self._cells[node] = cells, next(iter(cells.values()))

    def _name_of_whole(self, node):
        """Of a node whose outputs are the values of one tensor, or parts of it, the tensor's."""
        while nodes.only_moves(node):
            before = self._edges[node][0][0]
            if node.metadata.get(NAME) is not None or before is None or nodes.is_leaf(before):
                break
            node = before
        return self._name(node)

    def _name(self, node):
        """Of the module whose output the node made, or of the nearest one towards the input."""
        words = []
        for _ in range(20):
            name = node.metadata.get(NAME)
            if name is not None:
                return ".".join([name, *reversed(words)])
            if isinstance(node, (Product._backward_cls, Attention._backward_cls)):
                return ".".join([node.site.name, *reversed(words)])
            words = [nodes.kind_of(node).lower()]
            node = next((after for after, _ in self._edges.get(node, ()) if after is not None),
                        None)
            if node is None or nodes.is_leaf(node):
                break
        return ".".join(words) or "input"

    # --- What leaves ---

    def _leave(self, node, rules):
        if nodes.is_leaf(node):
            return
        came, cell = self._cells[node]
        if self._engine.observing:
            node.metadata[CELL] = cell
        leaving = self._exits[node] = _Exit(node._sequence_nr())
        usual, inner, special = cell, cell, {}
        if isinstance(node, Product._backward_cls):
            self._mark(node)
            node.came = cell
            special = {1: UNSCALED, 2: UNSCALED}
            if node in rules:
                node.rule, node.leaves = rules[node][0], Cell()
                special[0] = node.leaves
        elif isinstance(node, Attention._backward_cls):
            self._mark(node)
            node.came = cell
            node.rules = rules[node][0] if node in rules else {}
            node.leaves = [Cell() for _ in range(4)]
            special = dict(enumerate(node.leaves))
        elif node in rules:
            rule, product = rules[node]
            leaving.scaled = _RawRule(rule, product, cell)
            self._mark(node)
            node.register_prehook(leaving.scaled.enter)
            special = {product.data: leaving.scaled.leaves}
        elif hasattr(node, "carried"):
            node.carried.cell = cell
            usual = UNSCALED if node.carried.unscales else node.carried.starts or cell
            self.late = self.late or node.carried.starts is not None
        elif nodes.is_opaque(node, self._engine.linear) and cell is not UNSCALED:
            self._engine.opaque(nodes.kind_of(node))
            self._mark(node)
            node.register_prehook(functools.partial(_take_off, cell))
            usual = inner = UNSCALED
        node.metadata[tensor_hooks.SCALES] = tensor_hooks.Scales(
            self._number, came, inner, special, usual, leaving)
        for index, (after, slot) in enumerate(self._edges[node]):
            if after is None:
                continue
            out = special.get(index, usual)
            if nodes.is_leaf(after) and out is not UNSCALED:
                leaving.unscaled.append((index, out))
            self._came.setdefault(after, {}).setdefault(slot, []).append((leaving, index, out))

    def _mark(self, node):
        """The node has hooks of this plan. Those of two plans would take a scale off twice."""
        if node.metadata.setdefault(MARK, self._number) != self._number:
            raise RuntimeError("scale(): a part of this loss was scaled before; add the losses of "
                               "one graph, and scale their sum once")


def _take_off(cell, gradients):
    return tuple(g if g is None or cell.scale == 1 else g / cell.scale for g in gradients)
