"""A recording beside optimizers of all kinds: fused ones under a GradScaler, wrapped ones, several;
grad_norm is that of the gradients without S and before they are clipped, and equal for all of them.
Needs torch (ADA_BENCH_PYTHON)."""
import math
import pathlib
import sys
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import native, run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    import ada_train.torch
except ImportError:
    torch = None
try:
    import accelerate
except ImportError:
    accelerate = None
STEPS = 3


OtherPythonTest = head.other_python(__file__, "OptimizersTest")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(step):
    made = torch.Generator().manual_seed(step)
    return torch.randn(32, 8, generator=made), torch.arange(32) % 3


def norm(net):
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in net.parameters()))


@head.needs_torch
class OptimizersTest(head.Scratch):
    def train(self, make, scaler=None, clip=None, parts=1, watched=lambda optimizer: optimizer):
        """Norms by hand, and the rows of steps.csv."""
        net, norms = network(), []
        optimizer = make(net)
        several = optimizer if isinstance(optimizer, list) else [optimizer]
        recorder = ada_train.torch.record(net, watched(optimizer), self.folder / "run", every=1,
                                          scaler=scaler, overwrite=True)
        for step in range(STEPS):
            net.zero_grad()
            for x, y in zip(*(x.chunk(parts) for x in batch(step))):
                loss = functional.cross_entropy(net(x), y) / parts
                (loss if scaler is None else scaler.scale(loss)).backward()
            norms.append(norm(net) / (1 if scaler is None else scaler.get_scale()))
            if clip is not None:
                for one in several if scaler is not None else ():
                    scaler.unscale_(one)
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            for one in several:
                one.step() if scaler is None else scaler.step(one)
            if scaler is not None:
                scaler.update()
            recorder.step(loss)
        recorder.close()
        return norms, list(run_files.rows(self.folder / "run/steps.csv"))

    def test_one_meaning_of_the_norm(self):
        def adam(net):
            return torch.optim.AdamW(net.parameters(), lr=1e-2)

        def fused(net):
            return torch.optim.AdamW(net.parameters(), lr=1e-2, fused=True)

        def plain(net):
            return torch.optim.SGD(net.parameters(), lr=1e-2)

        def several(net):
            return [torch.optim.SGD(net[0].parameters(), lr=1e-2),
                    torch.optim.AdamW(net[2].parameters(), lr=1e-3, fused=True)]
        for make in (adam, fused, plain, several):
            for scales in (False, True):
                for clip in (None, 1e-3):
                    for parts in (1, 2):
                        with self.subTest(make=make.__name__, scales=scales, clip=clip):
                            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0,
                                                          growth_interval=1) if scales else None
                            norms, rows = self.train(make, scaler, clip, parts)
                            self.assertEqual([r["skipped"] for r in rows], ["0"] * STEPS)
                            for wanted, row in zip(norms, rows):
                                self.assertAlmostEqual(float(row["grad_norm"]), wanted,
                                                       delta=1e-6 * wanted)

    def test_what_is_skipped(self):
        for fused in (False, True):
            net = network()
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, fused=fused)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            with ada_train.torch.record(net, optimizer, self.folder / "run", scaler=scaler, every=1,
                                        overwrite=True) as recorder:
                for large in (math.inf, 1.0):
                    optimizer.zero_grad()
                    loss = functional.cross_entropy(net(batch(0)[0]), batch(0)[1]) * large
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                    recorder.step(loss)
            rows = list(run_files.rows(self.folder / "run/steps.csv"))
            self.assertEqual([(r["skipped"], math.isfinite(float(r["grad_norm"]))) for r in rows],
                             [("1", False), ("0", True)])

    @unittest.skipUnless(accelerate, "accelerate is missing")
    def test_accelerates_optimizer_is_looked_through(self):
        wanted = self.train(lambda net: torch.optim.AdamW(net.parameters(), lr=1e-2))

        def make(net):
            return accelerate.Accelerator(cpu=True).prepare(
                torch.optim.AdamW(net.parameters(), lr=1e-2))
        found = self.train(make)
        self.assertEqual(found, wanted)
        self.assertIn("optimizer: {kind: adamw, lr: 0.01",
                      (self.folder / "run/config.yaml").read_text())

    def test_wrappers_that_have_no_hooks(self):
        class Lookahead(torch.optim.Optimizer):  # without Optimizer.__init__, as several do
            def __init__(self, inner):
                self.base_optimizer, self.param_groups = inner, inner.param_groups

            def step(self, closure=None):
                return self.base_optimizer.step(closure)
        norms, rows = self.train(lambda net: Lookahead(torch.optim.SGD(net.parameters(), lr=0.1)))
        self.assertEqual([r["skipped"] for r in rows], ["0"] * STEPS)
        self.assertAlmostEqual(float(rows[0]["grad_norm"]), norms[0], delta=1e-6)
        self.train(lambda net: [torch.optim.SGD([net[0].weight], lr=0.1),
                                torch.optim.Adam(net[2].parameters())])
        self.assertIn("# optimizer: SGD, Adam", (self.folder / "run/config.yaml").read_text())

    def test_what_is_no_optimizer(self):
        net = network()
        for wrong, words in ((object(), "object: expected a torch.optim.Optimizer, one that wraps"),
                             ([], "expected at least one, or None"), (0.1, "float: expected a")):
            with self.assertRaisesRegex(TypeError, words):
                ada_train.torch.record(net, wrong, self.folder / "run")
        self.assertFalse(net._forward_pre_hooks or (self.folder / "run").exists())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with self.assertRaises(ValueError):
            ada_train.torch.record(net, optimizer, self.folder / "run",
                                   operands={"z": "mxfp8_e4m3"})
        ada_train.torch.record(net, optimizer, self.folder / "run").close()
        self.assertFalse(net._forward_pre_hooks or optimizer._optimizer_step_pre_hooks)
        self.assertFalse(net[0].weight._post_accumulate_grad_hooks)

    def test_scaled_models_take_them_too(self):
        for make in (lambda net: torch.optim.AdamW(net.parameters(), fused=True),
                     lambda net: [torch.optim.SGD(net[0].parameters(), lr=0.1),
                                  torch.optim.SGD(net[2].parameters(), lr=0.1)]):
            net = network()
            before = [p.detach().clone() for p in net.parameters()]
            model = ada_train.torch.AdaLossScaled(
                net, {"method": "fixed", "scale": 8.0, "init_scale": 64.0},
                folder=self.folder / "run", every=1, record={"overwrite": True})
            model.scale(functional.cross_entropy(model(batch(0)[0]), batch(0)[1])).backward()
            wanted = norm(net)
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            model.step(make(net))
            model.remove()
            row = next(iter(run_files.rows(self.folder / "run/steps.csv")))
            self.assertAlmostEqual(float(row["grad_norm"]), wanted, delta=1e-6)
            self.assertFalse(any(torch.equal(p, q) for p, q in zip(net.parameters(), before)))

    def test_marian_repairs_for_fused_optimizers_too(self):
        try:
            native.library()
        except native.NoLibrary as problem:
            self.skipTest(str(problem))
        found = []
        for fused, unscales in ((False, False), (True, False), (True, True)):
            net = network()
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=fused)
            scaler = ada_train.torch.GradScaler("cpu", preset="marian")
            x, y = batch(0)
            for large in (math.inf, 1.0):
                optimizer.zero_grad()
                x[0, 0] = large
                scaler.scale(functional.cross_entropy(net(x), y)).backward()
                if unscales:
                    scaler.unscale_(optimizer)
                scaler.step(optimizer)
                if large == math.inf:
                    with self.assertRaisesRegex(RuntimeError, "has already been called"):
                        scaler.step(optimizer)
                scaler.update()
            found.append([p.detach().clone() for p in net.parameters()] + [scaler.get_scale()])
        for other in found[1:]:
            self.assertEqual(other[-1], found[0][-1])
            for p, q in zip(found[0][:-1], other[:-1]):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
