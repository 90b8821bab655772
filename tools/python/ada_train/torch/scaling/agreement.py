"""Before a backward pass: whether all processes will exchange numbers of the same layers in it, in
one order. Where they do not, as where one of them drops a layer, each decides by its own part:
waiting for each other they would never end."""
import json
import warnings


class Agreement:
    def __init__(self, engine):
        self._engine, self._asks, self._rules = engine, [], {}

    def ask(self, node, name, rule=None):
        """What the node will exchange: a layer's statistics, or at a sum its gradients' sizes."""
        if self._engine.group.several:
            self._asks.append((node._sequence_nr(), name, rule is not None))
            if rule is not None:
                self._rules[name] = rule

    def fails(self, like):
        """Whether this process is on its own in the pass; the same in all of them. What layers
        remember is that of the first process that runs them."""
        engine = self._engine
        if not engine.group.several:
            return False
        asks = [[name, is_layer] for _, name, is_layer in sorted(self._asks, reverse=True)]
        memory = {name: json.dumps(rule.layer.state()) for name, rule in self._rules.items()}
        everyones = engine.group.differences([asks, memory], like)
        if everyones is None:
            return False
        for name, rule in self._rules.items():
            first = next(found[name] for _, found in everyones if name in found)
            if first != memory[name]:
                rule.layer.load(json.loads(first))
        if all(found == everyones[0][0] for found, _ in everyones):
            return False
        text = 'statistics="global": ' + _difference([found for found, _ in everyones])
        if engine.facts.needs_layers:
            raise RuntimeError(f"{text}, and policy {engine.policy.name} wants to know of each; "
                               'expected the same layers in every process, or statistics="local"')
        if engine.tells_once("processes"):
            warnings.warn(f"{text}; in such passes each process decides by its own part of the "
                          'batch, as with statistics="local"', stacklevel=5)
        return True


def _difference(everyones):
    """The first layer that not all processes run, in words."""
    layers = [name for asks in everyones for name, is_layer in asks if is_layer]
    everything = [name for asks in everyones for name, _ in asks]
    for name in dict.fromkeys(layers + everything):
        having = [i for i, asks in enumerate(everyones) if name in [n for n, _ in asks]]
        if len(having) < len(everyones):
            some = "process" if len(having) == 1 else "processes"
            return (f"{name} has a gradient in {some} {', '.join(map(str, having))} of "
                    f"{len(everyones)} alone")
    return "the processes run the same layers in another order"
