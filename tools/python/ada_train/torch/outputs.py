"""The tensors in what a network gives: a tensor, or a map, tuple, list or dataclass of some."""
import copy
import dataclasses

import torch


def _parts(value):
    """[(key, part)] of a container; None of anything else."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def tensors(value):
    """All of them, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for _, part in _parts(value) or () for x in tensors(part)]


def logits(value):
    """Those that a loss may be computed from: not a loss beside them, which is one number."""
    return [x for x in tensors(value) if x.requires_grad and x.is_floating_point()
            and (x.dim() > 0 or x is value)]


def outer(value, most=10000):
    """Of logits(), those from which no other one was computed."""
    found = {id(x): x for x in logits(value)}
    nodes = {x.grad_fn: key for key, x in found.items()}
    if len(nodes) > 1:
        seen, queue = set(), [after for node in nodes if node is not None
                              for after, _ in node.next_functions]
        while queue and len(seen) < most:
            node = queue.pop()
            if node is not None and node not in seen:
                seen.add(node)
                found.pop(nodes.get(node), None)
                queue += [after for after, _ in node.next_functions]
    return list(found.values())


def replaced(value, change):
    """`value` with change(x) in the place of each tensor x, where that is another one. Containers
    that change are copies."""
    if isinstance(value, torch.Tensor):
        return change(value)
    parts = [(key, part, replaced(part, change)) for key, part in _parts(value) or ()]
    changed = [(key, new) for key, old, new in parts if new is not old]
    if not changed:
        return value
    if isinstance(value, tuple):
        made = [new for *_, new in parts]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    value = copy.copy(value)
    for key, new in changed:
        if isinstance(value, (dict, list)):
            value[key] = new
        else:
            object.__setattr__(value, key, new)
    return value
