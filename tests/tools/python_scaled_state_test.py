"""ada_train.torch.AdaLossScaled beside the network that it scales: names of its state, copies and
pickles, hooks of tensors and nodes, gradients of all types and sizes, backward passes of backward
passes, and what a call that fails leaves behind. Needs torch (ADA_BENCH_PYTHON)."""
import collections
import copy
import dataclasses
import gc
import io
import math
import pathlib
import pickle
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.optim.swa_utils import AveragedModel
    import ada_train.torch
    import scaled_modules
    from ada_train.torch import AdaLossScaled
    from ada_train.torch.optimizers import GradientNorm
except ImportError:
    torch = None
ALPHA4 = {"method": "fixed", "scale": 4.0, "init_scale": 2.0 ** -6}


OtherPythonTest = head.other_python(__file__, "StateTest")


def square(y):
    return (y ** 2).mean()


def hooks_of(net):
    """How many hooks its modules and parameters have, and what tells of a scaled network."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + ("forward" in vars(m))
               for m in net.modules()) + sum(
        len(p._post_accumulate_grad_hooks or ()) for p in net.parameters())


@head.needs_torch
class StateTest(head.WithLibrary):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def gradients(self, net, loss, x, keys=None):
        """By parameter, of the plain network and of the scaled one."""
        found = []
        for scaled in (False, True):
            one = copy.deepcopy(net)
            model = AdaLossScaled(one, keys or ALPHA4) if scaled else one
            value = loss(model, x)
            (model.scale(value) if scaled else value).backward()
            found.append({name: p.grad for name, p in one.named_parameters()})
            if scaled:
                model.remove()
        return found

    def assert_same(self, plain, scaled):
        for name, g in plain.items():
            self.assertTrue(torch.equal(g, scaled[name]), name)

    # --- Names ---

    def test_states_load_where_they_came_from(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.module, self.norm = nn.Sequential(nn.Linear(4, 2)), nn.BatchNorm1d(2)

        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        ddp = nn.parallel.DistributedDataParallel
        for make in (Net, scaled_modules.mlp):
            plain, lone, within = make(), make(), make()
            for wrapped in (AdaLossScaled(lone), AdaLossScaled(ddp(within))):
                self.assertEqual(list(wrapped.state_dict()), list(plain.state_dict()))
                self.assertEqual(list(wrapped.state_dict()._metadata)[-1],
                                 list(plain.state_dict()._metadata)[-1])
                holder = nn.ModuleDict({"net": wrapped})
                for one, state in ((wrapped, wrapped.state_dict()), (wrapped, plain.state_dict()),
                                   (wrapped, ddp(plain).state_dict()),
                                   (holder, holder.state_dict())):
                    self.assertEqual(str(one.load_state_dict(state)),
                                     "<All keys matched successfully>")
            for name, value in plain.state_dict().items():
                self.assertTrue(torch.equal(value, lone.state_dict()[name]), name)
                self.assertTrue(torch.equal(value, within.state_dict()[name]), name)

    # --- Copies ---

    def test_a_copy_is_the_plain_model(self):
        x = torch.randn(3, 8)
        net = scaled_modules.mlp()
        model = AdaLossScaled(net, {"init_scale": 64.0})
        model.scale(square(model(x))).backward()
        copied = copy.deepcopy(model)
        self.assertIsInstance(copied, nn.Sequential)
        self.assertEqual(hooks_of(copied), 0)
        average = AveragedModel(model)
        with torch.no_grad():
            wanted = net(x)
            for p in net.parameters():
                p.mul_(3)
        self.assertTrue(torch.equal(copied(x), wanted))
        average.update_parameters(model)
        average.update_parameters(model)
        for p, q, r in zip(average.module.parameters(), copied.parameters(), net.parameters()):
            torch.testing.assert_close(p, (q * 0 + r + r) / 2)
        with self.assertRaisesRegex(TypeError, "save state_dict.. and scaling_state"):
            torch.save(model, io.BytesIO())
        with self.assertRaisesRegex(TypeError, "copy.deepcopy gives a plain model"):
            copy.copy(model)
        again = AdaLossScaled(copy.deepcopy(model.module), ALPHA4)  # a copy may be scaled anew
        again.scale(square(again(x))).backward()
        self.assertEqual([d["alpha"] for d in again.decisions], [4.0, 4.0])
        with self.assertRaisesRegex(ValueError, "Sequential is scaled already: expected remove"):
            AdaLossScaled(net)
        model.remove()
        AdaLossScaled(net)

    def test_a_copy_multiplies_its_own_weights(self):
        """Where formats and operands are emulated, too."""
        for form in ("fp16", {"operands": "mxfp8_e4m3"}):
            net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
            model, x = AdaLossScaled(net, format=form), torch.randn(2, 32)
            with self.assertWarnsRegex(UserWarning, "without the formats"):
                copied = copy.deepcopy(model)
            twin = copy.deepcopy(net)
            for one in (copied, twin):
                with torch.no_grad():
                    for p in one.parameters():
                        p.zero_()
                    self.assertFalse(one(x).any())

    def test_a_recorded_model_is_copied(self):
        for options in ({}, {"format": "fp16"}, {"operands": "mxfp8_e4m3"}):
            with self.subTest(**options):
                net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                with ada_train.torch.record(net, optimizer, self.folder / "run", every=1,
                                            overwrite=True, **options) as recorder:
                    x = torch.randn(2, 32)
                    twin = pickle.loads(pickle.dumps(copy.deepcopy(net)))
                    before = [p.clone() for p in twin.parameters()]
                    square(twin(x)).backward()  # of no attempt of the recording
                    square(net(x)).backward()
                    optimizer.step()
                    recorder.step(0.5)
                    for p, q in zip(twin.parameters(), before):
                        self.assertTrue(torch.equal(p, q))
                    with torch.no_grad():
                        for p in twin.parameters():
                            p.zero_()
                        self.assertFalse(twin(x).any())
                rows = list(run_files.rows(self.folder / "run/underflow.csv"))
                self.assertEqual({r["numel"] for r in rows
                                  if (r["layer"], r["tensor"]) == ("2", "y")}, {"8"})

    # --- Hooks ---

    def test_hooks_see_plain_gradients(self):
        """And what they give back is used as in the plain network: a power of two changes no
        bits."""
        kept = []

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(4, 3)
                self.w = nn.Parameter(torch.randn(8, 8))

            def forward(self, x):
                h = self.a(x)
                h.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
                h.register_hook(lambda g: kept.append(g))
                h.retain_grad()
                h = h.relu_()
                y = h @ self.w
                y.grad_fn.register_prehook(lambda g: (g[0].clamp(max=2e-3),))
                y.grad_fn.register_hook(lambda dx, dy: kept.extend([*dx, *dy]))
                u, v = self.b(y).chunk(2, -1)
                u.grad_fn.register_prehook(lambda g: kept.extend(g))
                u.register_hook(lambda g: g.sign() * 1e-3)
                v.retain_grad()
                z = self.c(u * v + v)
                self.retained = [h, v, z]
                z.retain_grad()
                return z

        net, x = Net(), torch.linspace(-1, 1, 40).reshape(5, 8)
        for keys in (ALPHA4, {"policy": "fixed", "scale": 8192.0}):
            found = []
            for scaled in (False, True):
                del kept[:]
                one = copy.deepcopy(net)
                model = AdaLossScaled(one, keys) if scaled else one
                z = model(x)
                z.register_hook(lambda g: kept.append(g))
                (model.scale(square(z)) if scaled else square(z)).backward()
                found.append([*kept, *(p.grad for p in one.parameters()),
                              *(t.grad for t in one.retained)])
                if scaled:
                    self.assertLessEqual(set(model.reasons), {"a"})
                    model.remove()
            plain, ours = found
            self.assertEqual((len(plain), len(ours)), (7 + 7 + 3,) * 2)
            for i, (p, q) in enumerate(zip(plain, ours)):
                self.assertTrue(torch.equal(p, q), (keys, i))
        gc.collect()  # networks of other tests, which are scaled still
        self.assertEqual(torch.Tensor.register_hook.__module__, "torch._tensor")
        self.assertNotIn("retain_grad", vars(torch.Tensor))

    # --- Gradients ---

    def test_gradients_of_all_sizes_and_types(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.nothing = nn.Linear(4, 2), nn.Parameter(torch.zeros(0, 3))

            def forward(self, x):
                return self.a(x) + self.nothing.sum()
        net = Net()
        model, optimizer = AdaLossScaled(net), torch.optim.SGD(net.parameters(), lr=0.5)
        before = net.a.bias.detach().clone()
        model.scale(model(torch.ones(3, 4)).sum()).backward()
        self.assertFalse(model.overflow)
        model.step(optimizer)
        self.assertTrue(torch.equal(net.a.bias, before - 0.5 * 3))
        for large, overflows in ((1e100, False), (math.inf, True)):
            net = nn.Linear(2, 1).double()
            model, norm = AdaLossScaled(net), GradientNorm(net.parameters, lambda: 1.0)
            model.scale(model(torch.tensor([[large, 1.0]], dtype=torch.float64)).sum()).backward()
            self.assertEqual((model.overflow, norm.value()), (overflows, large))

    def test_layers_without_values(self):
        """A batch of no images: gradients of zeros, as plain PyTorch has them."""
        for make, shape in ((scaled_modules.mlp, (0, 8)),
                            (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)),
                             (0, 1, 6, 6)),
                            (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                             (0, 5, 8))):
            for method in ("approx_range", "exact_range", "lognormal", "element_wise_range"):
                with self.subTest(method=method, shape=shape):
                    plain, ours = self.gradients(
                        make(), lambda model, x: model(x).sum(), torch.zeros(shape),
                        {"method": method})
                    self.assert_same(plain, ours)

    def test_backward_of_a_backward(self):
        """A gradient penalty: gradients of the plain loss, and scale() of the sum."""
        def penalty(model, x):
            x = x.clone().requires_grad_()
            y = model(x)
            g, = torch.autograd.grad(y.sum(), x, create_graph=True)
            return square(y) + (g.flatten(1).norm(dim=1) - 1).square().mean()
        smooth = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        images = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(),
                               nn.ConvTranspose2d(4, 2, 3), nn.Tanh(), nn.Flatten(),
                               nn.LazyLinear(3))
        images(torch.zeros(1, 1, 7, 7))
        for net, x in ((smooth, torch.randn(5, 8)), (images, torch.randn(2, 1, 7, 7))):
            plain, ours = self.gradients(net, penalty, x)
            for name, g in plain.items():  # sums of more than two gradients, in another order
                torch.testing.assert_close(ours[name], g, rtol=1e-5, atol=1e-7)
        model = AdaLossScaled(smooth, ALPHA4)
        x = torch.randn(5, 8, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16), self.assertRaisesRegex(
                RuntimeError, "2: create_graph: a product whose operands autocast has cast"):
            torch.autograd.grad(model(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "2: create_graph: a scaled backward pass is not"):
            torch.autograd.grad(model.scale(square(model(x))), x, create_graph=True)

    # --- Outputs of all kinds ---

    def test_models_that_return_maps(self):
        @dataclasses.dataclass
        class Output:
            logits: object
            other: tuple = ()
        Pair = collections.namedtuple("Pair", "logits other")

        class Net(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.a, self.b, self.kind = nn.Linear(8, 8), nn.Linear(8, 4), kind

            def forward(self, x):
                h = self.a(x)
                return self.kind(logits=self.b(h), other=(h,))
        kinds = {"map": dict, "dataclass": Output, "named": Pair}
        for name, kind in kinds.items():
            for keys in ({"init_scale": "auto"}, {"init_scale": 64.0, "reference": True}):
                with self.subTest(name, **keys):
                    self.assert_same(*self.gradients(
                        Net(kind), lambda model, x: square(
                            model(x)["logits"] if kind is dict else model(x).logits),
                        torch.randn(5, 8), keys))

    def test_the_reference_with_a_loss_inside(self):
        """It multiplies the gradient of logits; where they never leave, that of the loss."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

            def forward(self, x):
                y = self.b(self.a(x))
                return {"loss": square(y), "logits": y}
        net = Net()
        model = AdaLossScaled(net, {"init_scale": 2.0 ** 12, "reference": True}, format="fp16")
        model.scale(model(torch.randn(5, 8))["loss"]).backward()
        self.assertEqual(model.decisions[0]["scale_in"], 2.0 ** 12)
        self.assertTrue(all(p.grad.any() for p in net.parameters()))

    # --- Processes that do not do the same ---

    def test_uneven_processes(self):
        done = subprocess.run([sys.executable, str(head.ROOT / "tests/tools/scaled_uneven.py")],
                              capture_output=True, text=True, check=False, timeout=250)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # --- Compilers, and calls that fail ---

    def test_a_model_compiled_in_place(self):
        net = scaled_modules.mlp()
        net.compile(backend="eager")
        compiled = net._compiled_call_impl
        with self.assertWarnsRegex(UserWarning, "torch.compile hides"):
            model = AdaLossScaled(net, ALPHA4)
        model.scale(square(model(torch.ones(3, 8)))).backward()
        self.assertEqual(len(model.decisions), 2)
        model.remove()
        self.assertIs(net._compiled_call_impl, compiled)
        parts = nn.Sequential(nn.Linear(8, 8), torch.compile(nn.Linear(8, 4)))
        with self.assertRaisesRegex(ValueError, "gradients of 1's layers; expected a model whose"):
            AdaLossScaled(parts)

    def test_a_call_that_fails_leaves_nothing(self):
        net = scaled_modules.mlp()
        before, place = hooks_of(net), self.folder / "run"
        attention = functional.scaled_dot_product_attention
        for options in ({"format": {"operands": "mxfp9"}}, {"policy": {"SB": 3}},
                        {"record": {"layers": "nothing"}}, {"record": {"colour": 1}},
                        {"record": {"statistics": ["dz"]}}):
            for folder in (None, place) if "record" not in options else (place,):
                with self.assertRaises((ValueError, TypeError)):
                    AdaLossScaled(net, folder=folder, **options)
                self.assertEqual(hooks_of(net), before)
        self.assertIs(functional.scaled_dot_product_attention, attention)
        with ada_train.torch.record(net, None, place, overwrite=True):
            pass

    def test_a_recording_takes_the_folder_of_another(self):
        """Of this process, as in a notebook's cell that is run again."""
        net, place = scaled_modules.mlp(), self.folder / "run"
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        first = ada_train.torch.record(net, optimizer, place, every=1)
        square(net(torch.ones(2, 8))).backward()
        optimizer.step()
        first.step(0.5)
        with self.assertRaisesRegex(ada_train.torch.FolderInUse, "recording of this process that goes"):
            ada_train.torch.record(net, optimizer, place)
        with self.assertWarnsRegex(UserWarning, "ends the recording of this process"):
            second = ada_train.torch.record(net, optimizer, place, overwrite=True)
        first.close()
        self.assertFalse((place / "config.yaml").exists())
        second.close()
        self.assertEqual(hooks_of(net), 0)

    def test_an_update_without_a_loss(self):
        model = AdaLossScaled(scaled_modules.mlp(), folder=self.folder / "run", every=1)
        with self.assertRaisesRegex(RuntimeError, "scale.. was given no loss"):
            model(torch.ones(2, 8)).sum().backward()
            model.update()
        model.remove()


if __name__ == "__main__":
    unittest.main()
