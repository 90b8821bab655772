"""Which nodes of a backward pass choose a scale, and by which rule."""
from ada_train.torch.scaling import nodes
from ada_train.torch.scaling.attention import Attention
from ada_train.torch.scaling.attention_backward import DECISIONS
from ada_train.torch.scaling.products import Product


class Choice:
    """`edges`: of each node; `name_of`: what a node is called."""

    def __init__(self, engine, edges, name_of):
        self._engine, self._edges, self._name_of = engine, edges, name_of

    def rules(self, order):
        """node -> (rule, or attention's by decision; RawProduct or None), named in the order of the
        forward pass."""
        engine, found, uses = self._engine, {}, {}
        if not engine.chooses:
            return found
        made = [node for node in order if self._may_choose(node)]
        for node in sorted(made, key=lambda node: node._sequence_nr()):
            product = None
            if isinstance(node, Attention._backward_cls):
                found[node] = (self._rules_of_attention(node, uses), None)
                continue
            if isinstance(node, Product._backward_cls):
                name, fans = node.site.name, node.fans
            else:
                product = nodes.product_of(node) or nodes.norm_of(node)
                if product is None:
                    continue
                name, fans = engine.name_of(product.parameter), product.fans
            if self._edges[node][product.data if product else 0][0] is None:
                engine.name_reason(name, "nobody wants the gradient of its input", warns=False)
                continue
            name = self._use(name, uses)
            if product and not engine.can_multiply(node, name):
                continue
            found[node] = (engine.rule(name, fans, node), product)
        return found

    @staticmethod
    def _use(name, uses):
        uses[name] = uses.get(name, 0) + 1
        return name if uses[name] == 1 else f"{name}.use{uses[name]}"

    def _rules_of_attention(self, node, uses):
        """By decision, of the gradients that somebody wants: the first in the backward pass is the
        last that is asked for."""
        name = self._use(node.site.name, uses)
        wanted = dict(zip(("dq", "dk", "dv"), node.needs_input_grad))
        wanted["ds"] = wanted["dq"] or wanted["dk"] or node.needs_input_grad[3]
        return {decision: self._engine.rule(f"{name}.{decision}", (node.fans[decision],) * 2, node,
                                            within=True)
                for decision in reversed(DECISIONS) if wanted[decision]}

    def _may_choose(self, node):
        if isinstance(node, Product._backward_cls):
            return node.site.engine is self._engine
        if isinstance(node, Attention._backward_cls):
            return node.site.engine is self._engine and self._engine.attention
        kind = nodes.kind_of(node)
        if kind.startswith("ScaledDotProduct") and self._engine.attention:
            self._engine.name_reason(self._name_of(node), "attention of a kind that nobody here "
                                     "computes: its gradients choose no scale", warns=False)
        return kind in nodes.PRODUCTS or (
            self._engine.norms and kind.endswith("BatchNorm"))
