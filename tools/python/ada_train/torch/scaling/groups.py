"""The processes of a training, whose tensors are parts of one batch."""
import math

import torch
from torch import distributed


def processes():
    return (distributed.get_world_size()
            if distributed.is_available() and distributed.is_initialized() else 1)


class Group:
    """The processes whose tensors are one: statistics are those of the whole batch. Without a group
    this process is alone."""

    def __init__(self, everywhere):
        alone = not (everywhere and processes() > 1)
        # A group of its own: the order of its messages does not depend on those of DDP.
        self._group = None if alone else distributed.new_group()
        self.alone = alone

    def gather(self, numbers, like):
        """The numbers of each process, as a list of lists."""
        if self.alone:
            return [numbers]
        nccl = distributed.get_backend(self._group) == "nccl"
        device = "cpu" if not nccl else like.device if like.is_cuda else "cuda"
        mine = torch.tensor(numbers, dtype=torch.float64, device=device)
        parts = [torch.empty_like(mine) for _ in range(distributed.get_world_size(self._group))]
        distributed.all_gather(parts, mine, group=self._group)
        return [part.tolist() for part in parts]

    def largest(self, number, like):
        found = [part[0] for part in self.gather([number], like)]
        return math.nan if any(map(math.isnan, found)) else max(found)
