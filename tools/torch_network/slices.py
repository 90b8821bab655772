"""Parts of channels as layers."""
from .network import Value


class Slices:
    """Layers that take channels of another, one for each part of it."""

    def __init__(self):
        self.made = {}  # (layer, first channel, count) -> the layer

    def of(self, call, x, runs, form):
        """The channels `runs`, (first, count) of each, of the layer of `x`, side by side."""
        parts = [self.part(call, x, *run) for run in runs]
        if len(parts) > 1:
            count = sum(part.channels for part in parts)
            whole = call.layer("concat", parts, Value("", "rows", count, x.height, x.width))
        else:
            whole = parts[0]
        return Value(whole.layer, form, *whole.size)

    def part(self, call, x, first, count):
        if (first, count) == (0, x.channels):
            return Value(x.layer, "rows", *x.size)
        key = (x.layer, first, count)
        if key not in self.made:
            keys = {"channels": count, **({"first": first} if first else {})}
            network = call.converter.network
            name = network.unique(f"{x.layer}.slice", False)
            output = Value("", "rows", count, x.height, x.width)
            self.made[key] = network.add(name, "slice", [x], output, keys)
        return self.made[key]
