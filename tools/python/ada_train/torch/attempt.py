"""What is counted in one attempt to update the weights, layer by layer and tensor by tensor."""
import torch

from ada_train import counting

# Of attention: the word of `statistics` that they are counted under.
_WITHIN = {"p": "y", "ds": "dx", "dq": "dx", "dk": "dx", "dv": "dx"}


class Attempt:
    """`step`; `counts`: whether it is a logged one; `bins`: whether with histograms; `scale`: S of
    the gradients; `evaluates`: it was begun in evaluation mode. Tensors of several micro-batches,
    and of a layer that runs several times, are counted as one, with the scale of the last."""

    def __init__(self, step, scale, counts, bins, tensors, evaluates=False):
        self.step, self.scale, self.counts, self._bins = step, scale, counts, bins
        self.evaluates = evaluates
        self._tensors = tensors
        self._found = {}  # (layer, tensor) -> [format, Stats, Bins or None]
        self._operands = {}  # (layer, operand) -> [name of its format, figures, row or None]
        self.events = []  # of what was looked at
        self.forward, self.backward = {}, {}  # layers in the order in which they ran

    def _carried(self, tensor):
        """The scale of a tensor: weight gradients carry S until the optimizer takes them."""
        return self.scale if tensor in ("dx", "dy", "dw") else 1.0

    def add(self, layer, tensor, values, form, scale=None):
        """Counts what rounding `values` (fp32, before it) to the format does. `scale`: what they
        carry, where it is not the attempt's."""
        (self.backward if tensor[0] == "d" else self.forward)[layer] = True
        if not self.counts or _WITHIN.get(tensor, tensor) not in self._tensors:
            return
        scale = self._carried(tensor) if scale is None else scale
        with torch.no_grad():
            x = values.detach().float().contiguous()
            stats = counting.count(form.grid, x, torch)
            bins = counting.bins(x, scale, torch) if self._bins and layer != "input" else None
        known = self._found.get((layer, tensor))
        if known is None:
            self._found[layer, tensor] = [form.name, stats, bins, scale]
        elif tensor != "w":  # a weight is one, however often it is used
            known[1].add(stats)
            known[3] = scale
            if bins is not None:
                known[2].add(bins)

    def wants(self, tensor):
        return tensor in self._tensors

    def has(self, layer, tensor):
        return (layer, tensor) in self._found

    def add_operand(self, layer, operand, form, figures, row=None):
        """What a format with a scale of its own did to an operand; of several micro-batches the
        last. `figures`: BlockFigures, or what has its values(); `row`: columns of underflow.csv."""
        self._operands[layer, operand] = [form, figures, row]

    def operand_rows(self):
        """(layer, operand, format, figures, row of underflow.csv or None)."""
        for key, found in self._operands.items():
            yield (*key, *found)

    def rows(self):
        """(layer, tensor, format, Stats, Bins, scale) in the order of execution."""
        order = [(layer, tensor) for layer in self.forward for tensor in ("w", "p", "y")]
        order += [(layer, tensor) for layer in self.backward
                  for tensor in ("dy", "dw", "dx", "dv", "ds", "dq", "dk")]
        for key in order:
            if key in self._found:
                yield (*key, *self._found[key])

    def first_not_finite(self):
        """(layer, tensor, largest magnitude) of the first tensor that is or becomes infinite."""
        for layer, tensor, _, stats, *_ in self.rows():
            if stats.overflow or stats.inf or stats.nan:
                return layer, tensor, stats.max_abs
        return "", "", None
