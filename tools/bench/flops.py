"""Operations of a training step, from the table that `ada-train --dry-run` prints. A multiply-add
counts as 2; only convolutions, linear layers and the two products of attention count."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Network:
    parameters: int
    forward_flop: float  # of one sample; all operations have three digits after MFLOP's point
    # Of its first layer with products where that sees the images and has no data gradient; 0 where
    # it stands after an embedding.
    first_flop: float
    layers: dict = dataclasses.field(default_factory=dict)  # parameters of each that has some

    def training_flop(self):
        """Forward, weight gradient and data gradient of one sample, each as many operations as the
        forward pass has. (Attention has four products in its backward pass, of two operands each.)"""
        return 3 * self.forward_flop - self.first_flop


def parse(table):
    """The Network of a --dry-run's output. Raises ValueError where it is none."""
    first, layers = None, {}
    for line in table.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "total" and first is not None:
            return Network(int(words[1]), 1e6 * float(words[2]), first, layers)
        if len(words) < 4:
            continue
        name, kind, _, *cells = words
        if cells[0].isdigit():
            layers[name] = int(cells.pop(0))
        if first is None and kind == "embedding":
            first = 0
        elif first is None and kind in ("conv2d", "linear"):
            first = 1e6 * float(cells[0])
    raise ValueError("not the table of a network")
