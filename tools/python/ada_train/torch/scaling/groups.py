"""The processes of a training, whose tensors are parts of one batch."""
import hashlib
import json
import math

import torch
from torch import distributed


def processes():
    return (distributed.get_world_size()
            if distributed.is_available() and distributed.is_initialized() else 1)


class Group:
    """The processes whose tensors are one: statistics are those of the whole batch. Without a group
    this process is alone. `apart`: it is in the backward pass that goes on, in which others do not
    run the same layers."""

    def __init__(self, everywhere):
        # A group of its own: the order of its messages does not depend on those of DDP.
        together = everywhere and processes() > 1
        self._group, self.apart = distributed.new_group() if together else None, False

    @property
    def several(self):
        return self._group is not None

    @property
    def alone(self):
        return self._group is None or self.apart

    def gather(self, numbers, like):
        """The numbers of each process, as a list of lists."""
        return [numbers] if self.alone else self._gathered(numbers, like)

    def _gathered(self, numbers, like):
        nccl = distributed.get_backend(self._group) == "nccl"
        device = "cpu" if not nccl else like.device if like.is_cuda else "cuda"
        mine = torch.tensor(numbers, dtype=torch.float64, device=device)
        parts = [torch.empty_like(mine) for _ in range(distributed.get_world_size(self._group))]
        distributed.all_gather(parts, mine, group=self._group)
        return [part.tolist() for part in parts]

    def differences(self, thing, like):
        """What each process gives, in their order; None where all give the same. `thing`: lists of
        texts. Only who differs sends more than a number."""
        digest = hashlib.blake2b(json.dumps(thing).encode(), digest_size=6).digest()
        found = self._gathered([int.from_bytes(digest, "big")], like)
        return None if len({part[0] for part in found}) == 1 else self.objects(thing)

    def objects(self, thing):
        found = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(found, thing, group=self._group)
        return found

    def largest(self, number, like):
        found = [part[0] for part in self.gather([number], like)]
        return math.nan if any(map(math.isnan, found)) else max(found)
