"""ada_train.torch.AdaLossScaled: gradients of parameters are those of the plain network, in whatever
way it is written and trained; states, processes, and what is refused. Needs torch
(ADA_BENCH_PYTHON)."""
import copy
import json
import math
import pathlib
import subprocess
import sys
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import native, run_files  # noqa: E402

try:
    import torch
    from torch import nn
    import scaled_modules
    from ada_train.torch import AdaLossScaled
except ImportError:
    torch = None
ALPHA4 = {"method": "fixed", "scale": 4.0, "init_scale": 2.0 ** -6}


OtherPythonTest = head.other_python(__file__, "ScaledTest")


def rows(folder, file="scales"):
    return list(run_files.rows(pathlib.Path(folder) / f"{file}.csv"))


def square(y):
    return (y.float() ** 2).mean()


@head.needs_torch
class ScaledTest(head.WithLibrary):
    # --- Beside the plain network ---

    def against_plain(self, net, x, keys=None, cast=None, near=0.0, loss=square, **options):
        """One backward pass of the network, scaled and plain: the scaled one."""
        plain = copy.deepcopy(net)
        model = AdaLossScaled(net, ALPHA4 if keys is None else keys, **options)
        for one, scale in ((model, model.scale), (plain, lambda value: value)):
            torch.manual_seed(1)
            with torch.autocast("cpu", cast or torch.bfloat16, enabled=cast is not None):
                value = loss(one(x))
            scale(value).backward()
        most = max(float(q.grad.float().norm()) for q in plain.parameters() if q.grad is not None)
        for (name, p), (_, q) in zip(net.named_parameters(), plain.named_parameters()):
            self.assertEqual(p.grad is None, q.grad is None, name)
            if p.grad is not None:
                self.assertEqual(p.grad.dtype, q.grad.dtype)
                off = float((p.grad.float() - q.grad.float()).norm())
                self.assertLessEqual(off, near * (float(q.grad.float().norm()) + most / 100), name)
        return model

    def test_whatever_the_network_is(self):
        for name, (make, x, layers) in scaled_modules.NETWORKS.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(0)
                # Attention forms its sums in another order, and where more than two gradients meet
                # autograd adds them in another one.
                same = not any(layer.endswith(".ds") for layer in layers) and name != "functions"
                model = self.against_plain(make(), x(), near=0 if same else 1e-6)
                found = {d["layer"] for d in model.decisions if d["limit"] != "branch"}
                self.assertEqual(found, set(layers))

    def test_whatever_it_computes_in(self):
        def make():
            torch.manual_seed(0)
            return scaled_modules.convolutions()
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
        for cast, near in ((torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
            self.against_plain(make(), x, cast=cast, near=near)
        self.against_plain(make().bfloat16(), x.bfloat16(), near=2e-2)
        torch.manual_seed(0)
        self.against_plain(scaled_modules.mlp().half(), torch.randn(6, 8).half(), near=3e-3)
        self.against_plain(scaled_modules.mlp().double(), torch.randn(6, 8).double(), near=1e-12,
                           loss=lambda y: (y ** 2).mean())
        for keys in ({"method": "exact_range"}, {"method": "lognormal"},
                     {"method": "fixed", "scale": 3.0, "power_of_two": False},
                     {"method": "element_wise_range"}):
            self.against_plain(make(), x, keys=keys, cast=torch.float16, near=3e-2)

    def test_fp16_keeps_what_would_vanish(self):
        """Alpha multiplies before the product rounds to fp16."""
        def make():
            net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
            with torch.no_grad():
                for p in net.parameters():
                    p.fill_(2.0 ** -10)
            return net.half()
        for keys, lost in (({"policy": "none"}, True),
                           ({"method": "fixed", "scale": 2.0 ** 12}, False)):
            net = make()
            model = AdaLossScaled(net, keys)
            y = model(torch.ones(8, 4, dtype=torch.float16))
            model.scale((y.float() * 2.0 ** -18).sum()).backward()
            self.assertEqual(bool((net[0].weight.grad == 0).all()), lost)

    def test_operands_in_blocks(self):
        """Those of a recording, whose products multiply the same; a power of two changes nothing
        in blocks of mxfp8."""
        import ada_train.torch
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 3, groups=2),
                            nn.Flatten(), nn.Linear(96, 40), nn.ReLU(), nn.Linear(40, 4))
        x = torch.randn(5, 3, 6, 6)
        operands = {"forward": "mxfp8_e4m3", "dx": {"dy": "mxfp8_e5m2", "w": "mxfp4"},
                    "dw": {"x": None, "dy": "mxfp6_e3m2"}}
        plain = copy.deepcopy(net)
        recorder = ada_train.torch.record(plain, None, self.folder / "plain", every=1,
                                          operands=operands)
        value = square(plain(x))
        value.backward()
        recorder.step(value)
        recorder.close()
        def by_place(folder):
            return {(r["layer"], r["tensor"]): [r[key] for key in ("format", "numel", "lost",
                                                                   "blocks")]
                    for r in rows(folder, "blocks")}
        wanted = by_place(self.folder / "plain")
        for keys in (ALPHA4, {"policy": "fixed", "scale": 16.0}):
            twin = copy.deepcopy(net)
            folder = self.folder / keys.get("policy", "adaptive")
            model = AdaLossScaled(twin, keys, format={"operands": operands}, folder=folder, every=1)
            loss = square(model(x))
            self.assertEqual(loss, value)
            model.scale(loss).backward()
            self.assertEqual([d["alpha"] for d in model.decisions],
                             [4.0] * 3 if keys is ALPHA4 else [])
            for (name, p), q in zip(twin.named_parameters(), plain.parameters()):
                self.assertTrue(torch.equal(p.grad, q.grad), name)
            with torch.no_grad():
                self.assertEqual(square(model(x)), value)  # rounded in evaluation too
            model.step(torch.optim.SGD(twin.parameters(), 0.0))
            model.close()
            self.assertEqual(len(wanted), 4 * 2 + 3 * 3 + 1)  # nobody wants the first layer's dx
            self.assertEqual(by_place(folder), wanted)
            model.remove()
            self.assertFalse(any("forward" in vars(m) for m in twin.modules()))

    def test_accumulation_clipping_and_hooks(self):
        torch.manual_seed(0)
        net = scaled_modules.mlp()
        plain, seen = copy.deepcopy(net), []
        model = AdaLossScaled(net, ALPHA4)
        net[0].weight.register_hook(lambda g: seen.append(g.clone()))
        for x in (torch.ones(3, 8), torch.linspace(-1, 1, 24).reshape(3, 8)):
            model.scale(square(model(x))).backward()
            square(plain(x)).backward()
        for p, q in zip(net.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(p.grad, q.grad))
        self.assertTrue(torch.equal(sum(seen), plain[0].weight.grad))  # without a scale
        self.assertEqual(nn.utils.clip_grad_norm_(net.parameters(), 0.1),
                         nn.utils.clip_grad_norm_(plain.parameters(), 0.1))

    def test_statistics_where_the_tensor_lies(self):
        """PyTorch's own operations, which a GPU's tensors take, see what the library sees."""
        from ada_train.torch.scaling import statistics
        torch.manual_seed(0)
        for x in (torch.randn(40, 60) * 1e-6, torch.zeros(3), torch.relu(torch.randn(500)),
                  torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.nan, math.inf])):
            there, here = (found.values() for found in (
                statistics.moments_there(x), native.moments_of(x.data_ptr(), x.numel())))
            self.assertEqual(math.isfinite(there["mean_square"]),
                             math.isfinite(here["mean_square"]))
            for key, value in here.items() if math.isfinite(here["mean_square"]) else ():
                self.assertAlmostEqual(there[key], value, delta=1e-9 * abs(value) + 1e-16)

    def test_parts_of_a_backward_pass(self):
        """Gradients of some parameters alone, and then of all, from one graph."""
        torch.manual_seed(0)
        net = scaled_modules.Residual()
        plain = copy.deepcopy(net)
        model, x = AdaLossScaled(net, ALPHA4), torch.randn(4, 8)
        loss = model.scale(square(model(x)))
        square(plain(x)).backward()
        for _ in range(2):
            found = torch.autograd.grad(loss, [net.norm.weight, net.b.weight], retain_graph=True)
            self.assertTrue(torch.equal(found[0], plain.norm.weight.grad))
            self.assertTrue(torch.equal(found[1], plain.b.weight.grad))
        loss.backward()
        for p, q in zip(net.parameters(), plain.parameters()):
            self.assertTrue(torch.equal(p.grad, q.grad))

    def test_a_gradient_of_the_input(self):
        net = scaled_modules.mlp()
        x = torch.ones(3, 8, requires_grad=True)
        model = AdaLossScaled(net, ALPHA4)
        model.scale(square(model(x))).backward()
        scaled, x.grad = x.grad, None
        square(net(x)).backward()
        self.assertTrue(torch.equal(scaled, x.grad))

    # --- Steps ---

    def test_a_step_that_overflows_is_skipped(self):
        net = scaled_modules.mlp()
        model = AdaLossScaled(net, {"policy": "dynamic", "init_scale": 2.0 ** 100,
                                    "growth_interval": 2}, folder=self.folder / "run", every=1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        before = [p.detach().clone() for p in net.parameters()]
        for overflows in (True, False):
            optimizer.zero_grad()
            x = torch.full((2, 8), 1e30 if overflows else 1.0)
            model.scale(square(model(x))).backward()
            self.assertEqual(model.overflow, overflows)
            model.step(optimizer, epoch=1)
            same = all(torch.equal(p, q) for p, q in zip(net.parameters(), before))
            self.assertEqual(same, overflows)
        model.close()
        steps = rows(self.folder / "run", "steps")
        self.assertEqual([(r["skipped"], r["scale"]) for r in steps],
                         [("1", str(2.0 ** 100)), ("0", str(2.0 ** 99))])
        self.assertEqual([r["event"] for r in rows(self.folder / "run", "events")][-1],
                         "scale_change")

    # --- States and copies ---

    def test_states(self):
        net = scaled_modules.mlp()
        plain = copy.deepcopy(net)
        model = AdaLossScaled(net, {"update_interval": 3})
        self.assertEqual(list(model.state_dict()), list(plain.state_dict()))
        self.assertEqual(str(model.load_state_dict(plain.state_dict())),
                         "<All keys matched successfully>")
        holder = nn.ModuleDict({"net": model})
        self.assertEqual(set(holder.state_dict()), {"net." + key for key in plain.state_dict()})
        holder.load_state_dict(holder.state_dict())
        x = torch.linspace(-1, 1, 24).reshape(3, 8)
        for _ in range(2):
            model.scale(square(model(x))).backward()
        state = json.loads(json.dumps(model.scaling_state()))
        other = AdaLossScaled(plain, {"update_interval": 3})
        other.load_scaling_state(state)
        for one in (model, other):
            one.update()
            one.scale(square(one(x))).backward()
        self.assertEqual([repr(d) for d in model.decisions], [repr(d) for d in other.decisions])
        self.assertEqual({d["limit"] for d in other.decisions}, {"stale"})
        with self.assertRaisesRegex(native.PolicyError, "is of policy adaptive"):
            AdaLossScaled(scaled_modules.mlp(), {"policy": "none"}).load_scaling_state(state)

    def test_copies_and_removal(self):
        net = scaled_modules.mlp()
        keys = list(net.__dict__)
        model = AdaLossScaled(net, ALPHA4, format="fp16")
        twin = copy.deepcopy(net)
        with torch.no_grad():
            twin[0].weight.zero_()
        x = torch.ones(2, 8)
        self.assertFalse(torch.equal(twin(x), net(x)))
        self.assertIs(model.remove(), net)
        self.assertEqual(list(net.__dict__), keys)
        self.assertNotIn("forward", net[0].__dict__)
        self.assertFalse(net[0]._forward_hooks or net._forward_pre_hooks)
        AdaLossScaled(net, ALPHA4)
        torch.save(net, self.folder / "net.pt")  # a plain model, for whoever loads it
        loaded = torch.load(self.folder / "net.pt", weights_only=False)
        square(loaded(x)).backward()
        self.assertTrue(torch.equal(loaded(x), net(x)))

    def test_nothing_is_kept(self):
        """Graphs go when their loss does."""
        import gc
        import weakref
        net = scaled_modules.mlp()
        model = AdaLossScaled(net, {"init_scale": 1.0})
        kept = []
        for _ in range(3):
            x = torch.ones(2, 8)
            y = model(x)
            kept.append(weakref.ref(y))
            loss = model.scale(square(y))
            loss.backward()
            model.update()
            del x, y, loss
        gc.collect()
        self.assertEqual([ref() for ref in kept], [None] * 3)

    # --- Several processes, compilers ---

    def test_two_processes(self):
        for mode in ("global", "local"):
            with self.subTest(mode):
                done = subprocess.run(
                    [sys.executable, str(head.ROOT / "tests/tools/scaled_ddp.py"), mode],
                    capture_output=True, text=True, check=False, timeout=250)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_compiled_model_runs_as_it_was(self):
        net = scaled_modules.mlp()
        with self.assertWarnsRegex(UserWarning, "torch.compile hides"):
            model = AdaLossScaled(torch.compile(net), ALPHA4)
        self.assertIs(model.module, net)
        model.remove()
        x = torch.ones(2, 8)
        y, net.forward = net(x), torch.compile(net.forward)
        compiled = net.forward
        with self.assertWarnsRegex(UserWarning, "torch.compile hides"):
            model = AdaLossScaled(net, ALPHA4)
        self.assertIsNot(net.forward, compiled)
        self.assertTrue(torch.equal(model(x), y))
        model.remove()
        self.assertIs(net.forward, compiled)

    # --- What is refused and named ---

    def test_what_is_refused(self):
        def make():
            return scaled_modules.mlp()
        with self.assertRaisesRegex(native.PolicyError, "scaling.SB: unknown key"):
            AdaLossScaled(make(), {"SB": 3})
        with self.assertRaisesRegex(native.PolicyError, "histogram"):
            AdaLossScaled(make(), {"policy": "histogram"})
        with self.assertRaisesRegex(ValueError, "expected one of fp32, fp16"):
            AdaLossScaled(make(), format="fp17")
        with self.assertRaisesRegex(ValueError, "gradient: expected some of format, activations"):
            AdaLossScaled(make(), format={"gradient": "fp16"})
        with self.assertRaisesRegex(ValueError, "torch.float16: a format is emulated"):
            AdaLossScaled(make().half(), format="fp16")
        with self.assertRaisesRegex(ValueError, "expected global or local"):
            AdaLossScaled(make(), statistics="mine")
        with self.assertRaisesRegex(TypeError, "function; expected a torch.nn.Module"):
            AdaLossScaled(lambda x: x)
        with self.assertRaisesRegex(TypeError, "policy: int: expected keys as a map"):
            AdaLossScaled(make(), 3)
        model = AdaLossScaled(make())
        with self.assertRaisesRegex(ValueError, "parameters have a part in"):
            model.scale(torch.tensor(1.0))
        y = model(torch.ones(2, 8))
        with self.assertRaisesRegex(ValueError, "expected one number, got"):
            model.scale(y)
        model.scale(y.sum())
        with self.assertRaisesRegex(RuntimeError, "scale their sum once"):
            model.scale(y.mean())

    def test_what_is_named(self):
        model = AdaLossScaled(scaled_modules.Custom(), ALPHA4)
        with self.assertWarnsRegex(UserWarning, "Square: nobody knows"):
            model.scale(square(model(torch.ones(2, 8)))).backward()
        self.assertEqual(set(model.reasons), {"a", "Square"})
        named = AdaLossScaled(scaled_modules.Custom(), ALPHA4, linear=["Square"])
        named.scale(square(named(torch.ones(2, 8)))).backward()
        self.assertEqual(set(named.reasons), {"a"})


if __name__ == "__main__":
    unittest.main()
