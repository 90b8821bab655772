"""Networks of torchvision, timm and transformers, and recurrent ones, recorded and scaled beside
their plain training: losses, gradients and the next random numbers have the same bits. ADA_SLOW=1
runs it, in the Python that ADA_BENCH_PYTHON names or this one; a package that is missing skips its
networks. ADA_NETWORKS: globs on family.name, of those that are wanted (timm.res*)."""
import copy
import fnmatch
import os
import pathlib
import random
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

try:
    import numpy
    import torch
    import ada_train.torch
    import network_zoo
except ImportError:
    torch = None
SLOW, WANTED = os.environ.get("ADA_SLOW"), os.environ.get("ADA_NETWORKS", "*").split()
STEPS = 2
KEYS = {"method": "fixed", "scale": 2.0, "init_scale": 2.0 ** -6, "attention": False}


OtherPythonTest = head.other_python(__file__, "NetworksTest", wanted=SLOW)


def bits(g):
    """Of a gradient, NaN included; None of none."""
    return None if g is None else g.detach().cpu().contiguous().numpy().tobytes()


@unittest.skipUnless(torch and SLOW, "torch is missing, or ADA_SLOW is not set")
class NetworksTest(unittest.TestCase):
    def setUp(self):
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        self.library, self.compiled = head.has_library(), False

    def family(self, family, globs=("*",), change=lambda net: None):
        """`change`: what is done to each network beforehand."""
        try:
            networks = network_zoo.FAMILIES[family]()
            first = next(networks)
        except ImportError as problem:
            self.skipTest(str(problem))
        for name, make, batch in [first, *networks]:
            if any(fnmatch.fnmatchcase(f"{family}.{name}", glob) for glob in WANTED) and any(
                    fnmatch.fnmatchcase(name, glob) for glob in globs):
                torch.manual_seed(0)
                net = make().train()
                change(net)
                for cast in (False, True):
                    with self.subTest(f"{family}.{name}", cast=cast):
                        self.same(net, batch, cast)

    def same(self, net, batch, cast):
        try:
            plain = self.train(net, batch, cast)
        except RuntimeError as problem:  # as deberta's masks, which bf16 does not hold
            self.skipTest(f"it does not train alone: {problem}")
        with tempfile.TemporaryDirectory() as folder:
            found = self.train(net, batch, cast, folder=folder + "/run")
            self.equal(plain, found, lambda: self.train(net, batch, cast))
            rows = list(run_files.rows(pathlib.Path(folder) / "run/underflow.csv"))
            narrow = any(p.dtype != torch.float64 for p in net.parameters())
            self.assertGreater(len(rows), 3 if narrow else -1)
        if self.library:
            self.equal(plain, self.train(net, batch, cast, scaled=True),
                       lambda: self.train(net, batch, cast), cast)

    def equal(self, plain, found, again, near=False):
        """Losses, gradients by name, and the next random number. `again`: the plain training once
        more: what it does not repeat itself (a convolution of oneDNN in bf16) is not asked."""
        self.assertEqual(plain[0][0], found[0][0], "the loss of step 1")
        if near and plain[0] != found[0]:
            return  # what a detector draws depends on what it found
        self.assertEqual(plain[2], found[2], "the next random numbers")
        if near:
            return
        off = [name for name, g in plain[1].items() if bits(g) != bits(found[1][name])]
        if off:
            other = again()
            off = [name for name in off if bits(other[1][name]) == bits(plain[1][name])]
        self.assertEqual((plain[0], []), (found[0], off), f"{len(off)} of {len(plain[1])}")

    def train(self, net, batch, cast, folder=None, scaled=False):
        net, recorder, losses = copy.deepcopy(net), None, []
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        if folder is not None:
            recorder = ada_train.torch.record(net, optimizer, folder)  # logs the first step
        model = ada_train.torch.AdaLossScaled(net, KEYS) if scaled else net
        if self.compiled and not scaled:
            torch._dynamo.reset()
            model = torch.compile(net, backend="eager")
        for seed in (torch.manual_seed, numpy.random.seed, random.seed):
            seed(7)
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                given = copy.deepcopy(batch)
                loss = network_zoo.loss_of(model(**given) if isinstance(batch, dict)
                                           else model(*given))
            losses.append(repr(loss.item()))
            (model.scale(loss) if scaled else loss).backward()
            gradients = {name: p.grad.clone() if p.grad is not None else None
                         for name, p in net.named_parameters()}
            if scaled:
                self.assertEqual({row["alpha"] for row in model.decisions
                                  if row["limit"] != "branch"}, {2.0})
            model.step(optimizer) if scaled else optimizer.step()
            if recorder is not None:
                recorder.step(loss)
        if recorder is not None:
            recorder.close()
        return losses, gradients, (torch.rand(()).item(), numpy.random.rand(), random.random())

    def test_recurrent(self):
        self.family("recurrent")

    def test_torchvision(self):
        self.family("torchvision")

    def test_timm(self):
        self.family("timm")

    def test_transformers(self):
        self.family("transformers")

    def test_checkpoints(self):
        self.family("timm", ("vit_tiny*", "resnet10t", "convnext_atto"),
                    lambda net: net.set_grad_checkpointing())
        self.family("transformers", ("llama", "bert", "t5", "vit", "wav2vec2"),
                    lambda net: net.gradient_checkpointing_enable({"use_reentrant": False}))

    def test_compiled(self):
        """Recorded, and compiled afterwards; AdaLossScaled runs it as it was before."""
        self.compiled = True
        self.family("timm", ("lcnet_050", "resnet10t"))
        self.family("transformers", ("bert",))


if __name__ == "__main__":
    unittest.main()
