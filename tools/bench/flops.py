"""Operations of a training step, from the table that `ada-train --dry-run` prints. A multiply-add
counts as 2; only convolutions, linear layers and the two products of attention count, as in the
table's MFLOP column."""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Network:
    parameters: int
    forward: tuple  # operations of each layer with products, one sample, in their order
    sees_input: bool = True  # the first of them, which has no data gradient then
    layers: dict = dataclasses.field(default_factory=dict)  # parameters of each that has some

    def forward_flop(self):
        return sum(self.forward)

    def training_flop(self):
        """Forward, weight gradient and data gradient of one sample, each as many operations as the
        forward pass has. (Attention has four products in its backward pass, of two operands each.)
        A first layer that sees the images has no data gradient; one behind an embedding has."""
        return 3 * sum(self.forward) - self.forward[0] * self.sees_input


def parse(table):
    """The Network of a --dry-run's output. Raises ValueError where it is none."""
    forward, layers, sees_input, total = [], {}, True, None
    for line in table.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "total":
            total = int(words[1])
            break
        if len(words) < 4:
            continue
        name, kind, output, *cells = words
        parameters = int(cells.pop(0)) if cells[0].isdigit() else 0
        if parameters:
            layers[name] = parameters
        if kind == "embedding":
            sees_input = False
        elif kind in ("conv2d", "linear", "attention"):
            forward.append(_flop(name, kind, output, parameters, float(cells[0])))
    if total is None or not forward:
        raise ValueError("not the table of a network")
    return Network(total, tuple(forward), sees_input, layers)


def _flop(name, kind, output, parameters, mflop):
    """The exact number behind a rounded MFLOP: twice as many as output values times what each is a
    sum of. That is all parameters of an output channel, but for its bias where there is one (where
    the rounding fits both, a convolution has none and a linear layer has one); in attention, once
    for the scores and once for the values, all positions; and where the weight is another layer's,
    the whole number that fits alone."""
    sizes = [int(size) for size in output.split("x")]
    outputs, (own, rest) = math.prod(sizes), divmod(parameters, sizes[-1])
    fits = 501  # MFLOP have three digits behind the point
    if kind == "attention":
        sums = (2 * sizes[0],)
    elif parameters == 0:
        sums = (round(mflop * 1e6 / (2 * outputs)),) if outputs > fits else ()
    else:
        sums = (own, own - 1) if kind == "conv2d" else (own - 1, own)
    for terms in sums:
        flop = 2 * outputs * terms
        if rest == 0 and abs(flop - mflop * 1e6) <= fits:
            return flop
    raise ValueError(f"{name}: {mflop} MFLOP do not fit {parameters} parameters and {output}")
