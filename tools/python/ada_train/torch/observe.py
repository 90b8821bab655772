"""A model in the formats that it computes in: fp32, or fp16 and bf16 by autocast. What its kernels
round cannot be seen from outside, so in logged steps each layer is computed a second time in fp32
from the operands that it had, which gives the values before their rounding. Nothing that the model
computes changes."""
import torch
from torch.func import functional_call

from ada_train.torch import formats
from ada_train.torch.layers import is_product, weight_of
from ada_train.torch.scaling.plan import scale_here


def _floats(args):
    return [i for i, arg in enumerate(args)
            if isinstance(arg, torch.Tensor) and arg.dtype in formats.DTYPES]


class Observer:
    def __init__(self, recorder):
        self._recorder = recorder
        self._logits = (None, None)  # node and dtype
        self._again = False  # the second computation runs the same hooks

    def hook(self, name, module):
        return [module.register_forward_hook(
            lambda _, args, kwargs, y: self._seen(name, module, args, kwargs, y),
            with_kwargs=True)]

    @staticmethod
    def hook_input(args):
        return args

    def hook_logits(self, logits):
        """The gradient of the logits as the loss gives it. Where they are no fp32, autograd rounds
        it before it comes here: follow() finds it."""
        attempt = self._recorder.attempt
        self._logits = (logits.grad_fn, logits.dtype)
        if logits.dtype == torch.float32:
            logits.register_hook(
                lambda dy: attempt.add("loss", "dx", dy, formats.of(dy.dtype)))
        return None

    def follow(self, loss, most=1000):
        """Looks at the gradient where the loss took its fp32 copy of the logits."""
        attempt, (logits, dtype) = self._recorder.attempt, self._logits
        if dtype not in formats.DTYPES or dtype == torch.float32 or not attempt.counts:
            return
        seen, queue = set(), [loss.grad_fn]
        while queue and len(seen) < most:
            node = queue.pop()
            if node is None or node in seen or node is logits:
                continue
            seen.add(node)
            following = [after for after, _ in node.next_functions]
            if logits in following and node.name().startswith("ToCopyBackward"):
                node.register_prehook(
                    lambda dy: attempt.add("loss", "dx", dy[0], formats.of(dtype)))
            queue += following

    def _seen(self, name, module, args, kwargs, y):
        attempt = self._recorder.attempt
        if self._again or attempt is None or not y.requires_grad:
            return
        attempt.forward[name] = True
        if attempt.counts:
            inputs = _floats(args)
            kept = {"args": tuple(arg.detach() if isinstance(arg, torch.Tensor) else arg
                                  for arg in args),
                    "kwargs": kwargs, "dtype": y.dtype, "inputs": inputs,
                    "dx": bool(inputs) and args[inputs[0]].requires_grad}
            def seen(dy, scale, alpha=1.0):
                self._compute(attempt, name, module, kept, dy, scale, alpha)
            if hasattr(y.grad_fn, "observer"):  # its alpha is not known before it has run
                y.grad_fn.observer = seen
            else:
                y.register_hook(lambda dy: seen(dy, scale_here()))

    def _compute(self, attempt, name, module, kept, dy, scale, alpha):
        """`scale`: what dy carries, None where that is the attempt's business; `alpha`: what the
        layer multiplies dx by."""
        product = is_product(module)
        narrow = kept["dtype"] if product else torch.float32

        def operand(x):  # as the kernel had it: autocast casts a product's operands
            x = x.detach()
            return (x.to(narrow) if x.dtype == torch.float32 else x).float()
        args = list(kept["args"])
        inputs = kept["inputs"]
        dtypes = [args[i].dtype for i in inputs]
        for i in inputs:
            args[i] = operand(args[i])
        if kept["dx"]:
            args[inputs[0]].requires_grad_()
        state = {key: operand(p) for key, p in module.named_parameters()}
        state.update({key: b.clone() for key, b in module.named_buffers()})
        weight = weight_of(module)
        trained = weight is not None and weight.requires_grad
        if trained:
            state["weight"].requires_grad_()
        self._again = True
        try:
            with torch.enable_grad(), torch.autocast(dy.device.type, enabled=False):
                y = functional_call(module, state, tuple(args), kept["kwargs"])
            after = ([state["weight"]] if trained else []) + (
                [args[inputs[0]]] if kept["dx"] else [])
            gradients = list(torch.autograd.grad(y, after, dy.float())) if after else []
        finally:
            self._again = False
        computed = formats.of(kept["dtype"])
        if weight is not None:
            attempt.add(name, "w", weight, computed)
        attempt.add(name, "y", y, computed)
        if trained:
            dw = gradients.pop(0)
            if scale is not None:
                attempt.add(name, "dw", dw / scale, formats.of(weight.dtype), 1.0)
            else:
                attempt.add(name, "dw", dw, computed)
        attempt.backward[name] = True
        if gradients:
            dx = gradients[0] if alpha == 1 else gradients[0] * alpha
            attempt.add(name, "dx", dx, formats.of(dtypes[0], kept["dtype"]),
                        None if scale is None else scale * alpha)
