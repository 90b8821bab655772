"""A layer that torchao converted, in logged steps: each operand as the module got it, rounded by
the product's own rule, and what the products of the rounded operands are before they are stored.
Nothing that the module computes changes: it is neither called again nor asked for its codes."""
import dataclasses

import torch

from ada_train.torch import formats, operand_rules
from ada_train.torch.converted import plain_weight
from ada_train.torch.converted_parts import OPERANDS, PLAIN
from ada_train.torch.operands import rows as rows_of


def _is_by_the_library(x, y, most=20):
    """Whether a function of torchao's made y of x."""
    seen, queue = {x.grad_fn, None}, [y.grad_fn]
    while queue and len(seen) < most:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        made = getattr(type(node), "_forward_cls", None)
        if made is not None and made.__module__.startswith("torchao."):
            return True
        queue += [after for after, _ in node.next_functions]
    return False


class ConvertedWatch:
    """`guarded`: makes a function that warns where it fails; `recorder` has the attempt; `idle`:
    names of layers that compute without what converted them."""

    def __init__(self, name, module, conversion, recorder, guarded, idle):
        self._idle = idle
        self._name, self._module, self._how = name, module, conversion
        self._recorder, self._guarded = recorder, guarded

    def hook(self):
        return [self._module.register_forward_hook(self._after, with_kwargs=True)]

    @torch.compiler.disable
    def _after(self, module, args, kwargs, y):
        attempt = self._recorder.attempt
        if attempt is None or not attempt.counts or not torch.is_grad_enabled():
            return
        x = args[0] if args else kwargs.get("input")
        self._guarded(self._name, lambda: self._forward(attempt, x, y))()

    def _stands_idle(self, attempt):
        self._idle.add(self._name)
        attempt.events.append({
            "event": "conversion_idle", "layer": self._name,
            "message": f"{self._name} was converted ({self._how.by}), and computes as it is stored: "
                       "no function of the library has a part in its output"})
        self._how = dataclasses.replace(self._how, operands=PLAIN, always=False, bias=True,
                                        through={})

    def _forward(self, attempt, x, y):
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            return
        weight = self._module._parameters.get("weight")
        if weight is None:  # asking for it would compute a parametrization anew
            raise ValueError("its weight is parametrized")
        # The graph tells whether a layer computes what it was converted to, where a gradient goes
        # through the product; of INT8, whose module is a plain one, nothing else does.
        told = y.requires_grad and (x.requires_grad or weight.requires_grad)
        if not told and self._how.kind == "int8":
            return
        if told and self._how.operands is not PLAIN and not _is_by_the_library(x, y):
            self._stands_idle(attempt)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            rows = rows_of(x.detach())
            w = plain_weight(weight)
            if self._how.kind == "int8":
                w = w.to(x.dtype)
            bias = self._module.bias if self._how.bias else None
            taken = {operand: self._taken(attempt, operand, rows if operand.endswith("x") else w)
                     for operand in ("forward.x", "forward.w")}
            found = taken["forward.x"] @ taken["forward.w"].t()
            if bias is not None:
                found = found + bias.detach().float()
        attempt.add(self._name, "w", w, formats.of(w.dtype))
        attempt.add(self._name, "y", found, self._stored("forward", y.dtype))
        if not y.requires_grad:
            return
        dtype, needs = x.dtype, x.requires_grad
        # What the backward pass takes, as it is now: both may be changed before it comes.
        rows, w = rows.clone(), w.clone()
        y.register_hook(lambda dy: self._guarded(self._name, lambda: self._backward(
            attempt, rows, w, dy, dtype, needs))())

    def _backward(self, attempt, x, w, dy, dtype, needs):
        name = self._name
        attempt.backward[name] = True
        with torch.no_grad(), torch.autocast(dy.device.type, enabled=False):
            rows = rows_of(dy.detach())
            given = {"x": x, "w": w, "dy": rows}
            some = [operand for operand in OPERANDS[2:] if self._how.always or (
                needs if operand.startswith("dx") else self._module.weight.requires_grad)]
            taken = {operand: self._taken(attempt, operand, given[operand.split(".")[1]])
                     for operand in some}
            if "dw.dy" in taken:
                attempt.add(name, "dw", taken["dw.dy"].t() @ taken["dw.x"],
                            self._stored("dw", self._module.weight.dtype))
            if needs and "dx.dy" in taken:
                attempt.add(name, "dx", taken["dx.dy"] @ taken["dx.w"],
                            self._stored("dx", dtype))

    def _stored(self, product, dtype):
        """The format of a product's result."""
        return formats.of(self._how.through.get(product, dtype), dtype)

    def _taken(self, attempt, operand, x):
        """The matrix as the product takes it, in fp32; its row is added."""
        how = self._how.operands[operand]
        found = operand_rules.rounded(x, how, operand) if x.numel() else None
        if found is None:
            return x.float()
        scale = attempt.scale if operand.endswith("dy") else 1.0
        attempt.add_operand(self._name, operand, how.format, found, found.row(scale))
        self._guarded(self._name, lambda: self._compare(attempt, operand, x, found.taken))()
        return found.taken.float()

    def _compare(self, attempt, operand, x, ours):
        theirs = operand_rules.by_the_library(x, self._how.operands[operand], operand)
        if theirs is None:
            return
        off = (ours != theirs) & ~(torch.isnan(ours) & torch.isnan(theirs))
        count = int(off.sum())
        if count:
            first = tuple(off.nonzero()[0].tolist())
            attempt.events.append({
                "event": "not_the_rule", "layer": self._name, "tensor": operand,
                "value": str(count),
                "message": f"{self._name}.{operand}: {count} of {ours.numel()} values are others "
                           f"by the library than by the rule that it names; the first at {first}: "
                           f"{float(theirs[first]):.9g}, by the rule {float(ours[first]):.9g}"})
