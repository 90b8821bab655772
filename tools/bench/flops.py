"""Operations of a training step, from the table that `ada-train --dry-run` prints. A multiply-add
counts as 2; only convolutions and linear layers count, as in the table's MFLOP column."""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Network:
    parameters: int
    forward: tuple  # operations of each convolution and linear layer, one image, in their order

    def forward_flop(self):
        return sum(self.forward)

    def training_flop(self):
        """Forward, weight gradient and data gradient of one image, each as many operations as the
        forward pass has; the first layer, which sees the images, has no data gradient."""
        return 3 * sum(self.forward) - self.forward[0]


def parse(table):
    """The Network of a --dry-run's output. Raises ValueError where it is none."""
    layers, total = [], None
    for line in table.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "total":
            total = int(words[1])
            break
        if len(words) > 4 and words[1] in ("conv2d", "linear"):
            layers.append(_flop(words[0], words[1], words[2], int(words[3]), float(words[4])))
    if total is None or not layers:
        raise ValueError("not the table of a network")
    return Network(total, tuple(layers))


def _flop(name, kind, output, parameters, mflop):
    """The exact number behind a rounded MFLOP: twice as many as output values times what each is a
    sum of, which is all parameters of an output channel, but for its bias where there is one. Where
    the rounding fits both, a convolution has none and a linear layer has one."""
    sizes = [int(size) for size in output.split("x")]
    outputs, (own, rest) = math.prod(sizes), divmod(parameters, sizes[-1])
    for terms in (own, own - 1) if kind == "conv2d" else (own - 1, own):
        flop = 2 * outputs * terms
        if rest == 0 and abs(flop - mflop * 1e6) <= 501:
            return flop
    raise ValueError(f"{name}: {mflop} MFLOP do not fit {parameters} parameters and {output}")
