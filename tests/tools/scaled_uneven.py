"""Two processes with gloo and DDP that do not do the same: one drops layers, has no images, or fewer
batches (Join). Weights are those of plain DDP; recorded norms those of the gradients that DDP has
made. exit status 1: they differ."""
import copy
import csv
import datetime
import pathlib
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
import torch  # noqa: E402
from torch import distributed, multiprocessing, nn  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ada_train.torch import AdaLossScaled  # noqa: E402

POLICIES = ({"init_scale": 64.0}, {"init_scale": 64.0, "method": "exact_range"},
            {"init_scale": 64.0, "method": "lognormal", "update_interval": 2},
            {"init_scale": 64.0, "method": "element_wise_range"})
KEPT = (((1, 1, 1), (1, 1, 1)), ((1, 0, 1), (1, 1, 1)), ((1, 1, 1), (0, 0, 1)),
        ((0, 1, 1), (1, 1, 0)), ((1, 1, 1), (1, 1, 1)))  # step, process: blocks that are kept


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, kept):
        x = self.first(x).relu()
        for block, keep in zip(self.blocks, kept):
            x = x + block(x).relu() if keep else x
        return self.last(x)


def steps(rank, what):
    """(images, labels, blocks that are kept) of each step."""
    made = torch.Generator().manual_seed(1)
    for step, kept in enumerate(KEPT):
        x = torch.randn(8, 6, generator=made)[4 * rank:4 * rank + 4]
        if what == "empty" and rank == 1 and step in (1, 2):
            x = x[:0]
        if what == "join" and rank == 1 and step > 2:
            return
        yield x, torch.arange(len(x)) % 3, kept[rank] if what in ("dropped", "layerwise") else kept[0]


def train(net, rank, what, keys, folder=None):
    """The weights afterwards, and norms of the gradients of each step."""
    torch.manual_seed(0)
    plain = DistributedDataParallel(net, find_unused_parameters=True)
    model = AdaLossScaled(plain, keys, folder=folder, every=1) if keys else plain
    optimizer, norms = torch.optim.SGD(net.parameters(), lr=0.1), []
    with Join([plain], enable=what == "join"):
        for x, y, kept in steps(rank, what):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x, kept), y, reduction="sum") / 4
            (model.scale(loss) if keys else loss).backward()
            norms.append(float(torch.cat([p.grad.flatten() for p in net.parameters()
                                          if p.grad is not None]).norm()))
            model.step(optimizer) if keys else optimizer.step()
    if keys:
        model.close()
    return [p.detach().clone() for p in net.parameters()], norms


def work(rank, place):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{place}/port", rank=rank,
                                   world_size=2, timeout=datetime.timedelta(seconds=60))
    start = Net()
    distributed.broadcast_object_list(whole := [start.state_dict()])
    start.load_state_dict(whole[0])
    for what in ("dropped", "empty", "join"):
        compare(start, rank, place, what)
    try:
        train(copy.deepcopy(start), rank, "layerwise", {"policy": "layerwise_dynamic"})
    except RuntimeError as error:
        if "blocks.1 has a gradient in process 1 of 2 alone" not in str(error):
            raise
    else:
        raise SystemExit("layerwise_dynamic went through")
    distributed.destroy_process_group()


def compare(start, rank, place, what):
    wanted, _ = train(copy.deepcopy(start), rank, what, None)
    for i, keys in enumerate(POLICIES):
        folder = f"{place}/{what}-{i}-{rank}"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found, norms = train(copy.deepcopy(start), rank, what, keys, folder)
        told = [str(w.message) for w in told if "statistics=" in str(w.message)]
        if len(told) != (what == "dropped") or told and "blocks.1 has a gradient in process 1 of 2" \
                not in told[0]:
            raise SystemExit(f"{keys}: {told}")
        for p, q in zip(wanted, found):
            torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-7)
        with open(folder + "/steps.csv", encoding="utf-8") as file:
            rows = [float(row["grad_norm"]) for row in csv.DictReader(file)]
        torch.testing.assert_close(rows, norms, rtol=1e-5, atol=1e-9)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        multiprocessing.spawn(work, (scratch,), 2)
