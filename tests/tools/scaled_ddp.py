"""Two processes with gloo and DDP against one with the whole batch: gradients, and under statistics
global also every decision. usage: scaled_ddp.py global|local; exit status 1: they differ."""
import copy
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
import torch  # noqa: E402
from torch import distributed, multiprocessing, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from ada_train.torch import AdaLossScaled  # noqa: E402

KEYS = ({"init_scale": 2.0 ** -9, "scale_upper_bound": 4096, "accum_upper_bound": 8.0},
        {"init_scale": 2.0 ** -9, "method": "exact_range"}, {"method": "element_wise_range"},
        {"policy": "layerwise_dynamic"})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.c, self.d = nn.Linear(144, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = functional.relu(self.a(x))
        x = functional.relu(x + self.b(x))
        x = x + functional.scaled_dot_product_attention(x, x, x)  # channels are heads
        return self.d(functional.relu(self.c(x.flatten(1))))


def passed(model, x, labels):
    """Two backward passes: decisions of both."""
    found = []
    for _ in range(2):
        model.zero_grad()
        model.scale(functional.cross_entropy(model(x), labels)).backward()
        found.append([(d["layer"], d["limit"], d["scale_in"], d["scale_out"], d.get("alpha"))
                      for d in model.decisions])
        model.update()
    return found


def work(rank, port, mode):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
    for keys in KEYS:
        torch.manual_seed(0)
        net = Net()
        x, labels = torch.randn(8, 1, 6, 6), torch.arange(8) % 5
        whole = copy.deepcopy(net)
        mine = slice(4 * rank, 4 * rank + 4)
        model = AdaLossScaled(nn.parallel.DistributedDataParallel(net), keys, format="fp16",
                              statistics=mode)
        ours = passed(model, x[mine], labels[mine])
        distributed.barrier()
        alone = AdaLossScaled(whole, keys, format="fp16", statistics="local")
        alone._engine.parts = 1
        theirs = passed(alone, x, labels)
        if mode == "global" and ours != theirs:
            raise SystemExit(f"{keys}: process {rank} decided {ours}, one alone {theirs}")
        for (name, p), q in zip(net.named_parameters(), whole.parameters()):
            off = float((p.grad - q.grad).norm() / q.grad.norm())
            if not off < 3e-3:
                raise SystemExit(f"{keys}: {name}: gradients differ by {off}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (folder + "/port", sys.argv[1]), 2)
