"""Parts of channels as layers."""
from .network import CannotExpress, Value


class Slices:
    """Layers that take channels of another, one for each part of it."""

    def __init__(self):
        self.made = {}     # (layer, first channel, count) -> the layer
        self.ordered = {}  # layer -> Ordered

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
        if x.layer in self.ordered:
            made = self.ordered_part(call, x, range(first, first + count))
            if made is None:
                call.refuse(f"takes channels of {x.layer} that others take in another order")
            return made
        key = (x.layer, first, count)
        if key not in self.made:
            self.made[key] = self.slice(call, x, first, count)
        return self.made[key]

    def slice(self, call, x, first, count):
        keys = {"channels": count, **({"first": first} if first else {})}
        network = call.converter.network
        name = network.unique(f"{x.layer}.slice", False)
        return network.add(name, "slice", [x], Value("", "rows", count, x.height, x.width), keys)

    def ordered_part(self, call, x, channels):
        """`channels`, in this order, of the layer of `x` as a layer: the rows of its weight are written
        so that they lie side by side. None: they cannot be."""
        channels, network = tuple(channels), call.converter.network
        ordered = self.ordered.get(x.layer)
        if ordered is None:
            layer = network.find(x.layer)
            if layer is None or layer.kind not in ("linear", "conv2d") or "groups" in layer.keys or (
                    "weight" not in layer.tensors):
                return None
            ordered = Ordered(layer)
            for (name, first, count), made in self.made.items():
                if name == x.layer:
                    ordered.parts.append((tuple(range(first, first + count)), made.layer))
        known = next((made for part, made in ordered.parts if part == channels), None)
        if known is None and ordered.taken() & set(channels):
            return None
        if known is None:
            whole = len(channels) == x.channels
            known = x.layer if whole else self.slice(call, x, 0, len(channels)).layer
            ordered.parts.append((channels, known))
            self.ordered[x.layer] = ordered
            ordered.write(network)
        return Value(known, "rows", len(channels), x.height, x.width)

    def check(self, network):
        """Raises CannotExpress where a layer reads channels that were written in another order."""
        for ordered in self.ordered.values():
            name = ordered.layer.name
            parts = {made for _, made in ordered.parts} | ordered.readers
            for layer in network.layers:
                if name in layer.inputs and layer.name not in parts:
                    raise CannotExpress(layer.name, layer.kind, f"takes the channels of {name} in their "
                                        "order, which attention takes head by head")


class Ordered:
    """A layer whose channels are written in another order: those of `parts` one after the other.
    `readers`: layers that take all of them so."""

    def __init__(self, layer):
        self.layer, self.parts, self.readers = layer, [], set()

    def taken(self):
        return {channel for part, _ in self.parts for channel in part}

    def write(self, network):
        rows = []
        for part, made in self.parts:
            if made != self.layer.name:
                keys = network.find(made).keys
                keys.pop("first", None)
                keys.update({"first": len(rows)} if rows else {})
            rows += part
        rest = set(range(self.layer.output.channels)) - set(rows)
        for name, stored in self.layer.tensors.items():
            self.layer.tensors[name] = stored.changed(rows=rows + sorted(rest))
