"""Recording beside any network: what it computes, draws and remembers is what it does alone, bit
for bit, whatever its layers give, take and do in place; rows are those of the operations that ran,
by position and by keyword; what cannot be recorded is named once. Needs torch (ADA_BENCH_PYTHON).
"""
import contextlib
import copy
import json
import pathlib
import sys
import unittest
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import native, run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils import _python_dispatch
    from torch.utils.checkpoint import checkpoint
    import ada_train.torch
    import recorded_modules as own
    from ada_train.torch.tape import Tape
except ImportError:
    torch = None


OtherPythonTest = head.other_python(__file__, "BesideTest")


def has_library():
    try:
        native.library()
    except native.NoLibrary:
        return False
    return True


@head.needs_torch
class BesideTest(head.Scratch):
    def rows(self, name="run"):
        return {(row["step"], row["layer"], row["tensor"]): row
                for row in run_files.rows(self.folder / name / "underflow.csv")}

    def layers(self, name="run"):
        return {layer for _, layer, _ in self.rows(name)}

    def train(self, make, x, how, name="run", cast=False, call=None, scaler=None, **options):
        """Losses of four steps, the next random number, and what was warned of."""
        torch.manual_seed(0)
        net = make().train()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        model, recorder, losses = net, None, []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if how == "recorded":
                recorder = ada_train.torch.record(net, optimizer, self.folder / name, every=2,
                                                  scaler=scaler, **options)
            elif how != "alone":
                folder = self.folder / name if how == "scaled" else None
                model = ada_train.torch.AdaLossScaled(net, {"init_scale": 64}, folder=folder,
                                                      every=2)
            torch.manual_seed(1)
            for _ in range(4):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                    y = call(model, x) if call else model(x)
                    loss = y.float().square().mean()
                losses.append(loss.item())
                if model is not net:
                    model.scale(loss).backward()
                    model.step(optimizer)
                    continue
                (loss if scaler is None else scaler.scale(loss)).backward()
                (optimizer.step() if scaler is None else scaler.step(optimizer))
                if scaler is not None:
                    scaler.update()
                if recorder:
                    recorder.step(loss)
            (recorder or model).close() if model is not net or recorder else None
        return losses + [torch.rand(()).item()], [str(w.message) for w in told]

    @staticmethod
    def small():
        return nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3))

    # --- The training is the same ---

    def test_the_same_training(self):
        x = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(2))
        ways = [("alone", "recorded")] + ([("unlogged", "scaled")] if has_library() else [])
        for name, make in own.NETWORKS.items():
            for cast in (False, True):
                for alone, beside in ways[:1] if cast else ways:
                    with self.subTest(name, cast=cast, beside=beside):
                        folder = f"{name}-{cast}-{beside}"
                        plain, _ = self.train(make, x, alone, cast=cast)
                        found, told = self.train(make, x, beside, folder, cast)
                        self.assertEqual(plain, found)
                        self.assertIn("head", self.layers(folder))
                        named = [text for text in told if "inner" in text]
                        self.assertLessEqual(len(named), 1, named)

    def test_weights_that_are_computed_when_they_are_asked_for(self):
        """Spectral norm takes a step of its power iteration each time."""
        spectral = nn.utils.parametrizations.spectral_norm
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))

        def linear():
            return nn.Sequential(nn.Linear(8, 8), spectral(nn.Linear(8, 8)), nn.Linear(8, 3))

        def convolution():
            return nn.Sequential(nn.Unflatten(1, (2, 2, 2)), spectral(nn.Conv2d(2, 2, 1)),
                                 spectral(nn.ConvTranspose2d(2, 2, 1)))

        def attention():
            made = nn.MultiheadAttention(8, 2)
            spectral(made.out_proj)
            return spectral(made, "in_proj_weight")
        for i, (make, call) in enumerate(((linear, None), (convolution, None), (
                attention, lambda m, x: m(x, x, x, need_weights=False)[0]))):
            plain, _ = self.train(make, x, "alone", call=call)
            found, told = self.train(make, x, "recorded", f"recorded{i}", call=call, dump_every=1)
            self.assertEqual(found, plain)
            self.assertEqual(any("1 (dump) is not recorded: its weight is parametrized" in text
                                 for text in told), i < 2, told)
            if has_library():
                found, told = self.train(make, x, "scaled", f"scaled{i}", call=call)
                self.assertEqual(found, plain)
                self.assertFalse([text for text in told if "not recorded" in text])

    def test_passes_of_all_kinds(self):
        """A model that is trained in evaluation mode, one that is evaluated with gradients, one
        whose layers are called without it, and a batch without values."""
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))

        def frozen(model, x):
            return model.eval()(x)

        def evaluated(model, x):
            model.eval()(2 * x)
            y = model.train()(x)
            model.eval()(3 * x)
            model.train()
            return y

        def parts(model, x):
            for part in model.children():
                x = part(x)
            return x
        self.train(self.small, x, "recorded", "usual")
        for call in (frozen, evaluated, parts):
            with self.subTest(call.__name__):
                plain, _ = self.train(self.small, x, "alone", call=call)
                found, _ = self.train(self.small, x, "recorded", call.__name__, call=call)
                self.assertEqual(found, plain)
                rows = {key: row["numel"] for key, row in self.rows(call.__name__).items()}
                usual = {key: row["numel"] for key, row in self.rows("usual").items()
                         if call is not parts or key[1] != "loss"}
                self.assertEqual(rows, usual)
        for shape in ((0, 8), (0, 5, 8), (3, 0, 8)):
            found, _ = self.train(self.small, torch.zeros(shape), "recorded", f"{len(shape)}{shape[0]}",
                                  call=lambda m, x: m(x).sum(), dump_every=1)
            self.assertEqual(found[:4], [0.0] * 4)

    def test_only_gradients_that_are_computed(self):
        """A gradient penalty: its inner pass has no gradient of weights, and y was computed once."""
        def penalty(model, x):
            x = x.clone().requires_grad_()
            y = model(x)
            g, = torch.autograd.grad(y.square().mean(), x, create_graph=True)
            return y + g.norm()

        def by_hand(model, x):
            y = model(x)
            torch.autograd.grad(y.sum(), list(model.parameters()), retain_graph=True)
            return y

        def make():
            return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2))
        x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(2))
        for call, dw, dx in ((penalty, 1, 2), (by_hand, 2, 2)):
            plain, _ = self.train(make, x, "alone", call=call)
            found, _ = self.train(make, x, "recorded", call.__name__, call=call)
            self.assertEqual(found, plain)
            rows = {key[1:]: int(row["numel"]) for key, row in self.rows(call.__name__).items()
                    if key[0] == "1"}
            self.assertEqual((rows["0", "dw"], rows["3", "dw"]), (18 * dw, 16 * dw))
            self.assertEqual((rows["1", "dx"], rows["1", "y"], rows["0", "y"]), (24 * dx, 24, 24))
            self.assertEqual(("0", "dx") in rows, call is penalty)

    def test_losses_of_wider_numbers(self):
        """fp64 logits, whose loss is computed in fp32."""
        x = torch.ones(4, 8, dtype=torch.float64)

        def make():
            return self.small().double()
        plain, _ = self.train(make, x, "alone", call=lambda m, x: m(x).float())
        folder = self.folder / "run"
        torch.manual_seed(0)
        net = make()
        optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
        with warnings.catch_warnings(), ada_train.torch.record(net, optimizer, folder,
                                                               every=2) as recorder:
            warnings.simplefilter("ignore")
            for _ in range(4):
                optimizer.zero_grad()
                loss = recorder.loss(net(x).float().square().mean())
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
                recorder.step(loss)
        self.assertEqual(losses, plain[:4])

    def test_an_interrupt_within_a_layer(self):
        """It runs no hook of the layer: modes, weights and callers are those of before."""
        class Waits(nn.Linear):
            on = False

            def forward(self, x):
                y = super().forward(x)
                if self.on:
                    raise KeyboardInterrupt
                return y
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
        for i, options in enumerate(({}, {"format": "fp8_e5m2"})):
            losses = {}
            for interrupted in (False, True):
                torch.manual_seed(0)
                net = nn.Sequential(nn.Linear(8, 8), Waits(8, 8), nn.Linear(8, 3))
                optimizer, found = torch.optim.SGD(net.parameters(), lr=0.05), []
                recorder = ada_train.torch.record(net, optimizer, self.folder / f"{i}{interrupted}",
                                                  every=1, **options)
                masters = {name: p.detach().clone() for name, p in net.named_parameters()}
                if interrupted:
                    net[1].on = True
                    with self.assertRaises(KeyboardInterrupt):
                        net(x)
                    net[1].on = False
                    state = net.state_dict()
                    self.assertEqual(list(state), list(masters))
                    for name, p in masters.items():
                        self.assertTrue(torch.equal(state[name], p), name)
                for _ in range(3):
                    optimizer.zero_grad()
                    loss = net(x).square().mean()
                    loss.backward()
                    optimizer.step()
                    recorder.step(loss)
                    found.append(loss.item())
                losses[interrupted] = found
                recorder.close()
                self.assertEqual(_python_dispatch._get_current_dispatch_mode_stack(), [])
                self.assertTrue(all(isinstance(p, nn.Parameter) for p in net.parameters()))
            self.assertEqual(losses[False], losses[True])

    def test_transformed_passes(self):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))

        def call(model, x):
            weights = {name: p.detach() for name, p in model.named_parameters()}
            torch.func.vmap(torch.func.grad(lambda w, x: torch.func.functional_call(
                model, w, (x,)).square().mean()), in_dims=(None, 0))(weights, x)
            return model(x)
        plain, _ = self.train(self.small, x, "alone", call=call)
        found, told = self.train(self.small, x, "recorded", call=call, dump_every=1)
        self.assertEqual(found, plain)
        self.assertEqual(len([text for text in told if "torch.func" in text]), 1, told)
        self.assertFalse([text for text in told if "is not recorded: " in text], told)
        self.assertEqual(self.layers(), {"0", "1", "2", "loss"})

    def test_weights_that_lie_elsewhere_between_passes(self):
        """FSDP brings them back by hooks of the outputs, and frees them behind each pass."""
        from torch import distributed
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        self.addCleanup(distributed.destroy_process_group)
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))

        def make():
            net, mesh = nn.Sequential(self.small(), nn.Linear(3, 3)), init_device_mesh("cpu", (1,))
            for part in (*net, net):
                fully_shard(part, mesh=mesh)
            return net
        plain, _ = self.train(make, x, "alone")
        found, told = self.train(make, x, "recorded", dump_every=1)
        self.assertEqual(found, plain)
        self.assertFalse([text for text in told if "not recorded" in text], told)
        self.assertTrue({(layer, tensor) for layer in ("0.0", "0.2", "1") for tensor in (
            "y", "dw")} <= {key[1:] for key in self.rows()})

    def test_checkpoints_and_a_scaler(self):
        x = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(2))

        class Again(nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.block = nn.Sequential(nn.Linear(8, 8), nn.SiLU(inplace=True), nn.Dropout(0.3))
                self.head, self.reentrant = nn.Linear(8, 3), reentrant

            def forward(self, x):
                x = x.detach().requires_grad_()
                return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                def make(reentrant=reentrant):
                    return Again(reentrant)
                ends = [self.train(make, x, how, str(reentrant), True,
                                   scaler=torch.amp.GradScaler("cpu", init_scale=64.0))[0]
                        for how in ("alone", "recorded")]
                self.assertEqual(*ends)
                self.assertEqual({"block.0", "block.1", "head", "loss"},
                                 self.layers(str(reentrant)) | {"loss"})
                row = self.rows(str(reentrant))["2", "block.0", "dw"]
                self.assertEqual(int(row["numel"]), 64)  # counted once

    def test_a_model_that_is_compiled(self):
        net = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3))
        in_place, of_forward = nn.Sequential(nn.Linear(8, 3)), nn.Sequential(nn.Linear(8, 3))
        in_place.compile(backend="eager")
        of_forward.forward = torch.compile(of_forward.forward, backend="eager")
        for compiled in (torch.compile(net, backend="eager"), in_place, of_forward):
            with self.assertRaisesRegex(ValueError, "record the model before torch.compile"):
                ada_train.torch.record(compiled, None, self.folder / "run")
        x, ends = torch.ones(4, 8), []
        for way in ("alone", "recorded"):
            torch._dynamo.reset()
            compiled = []

            def call(model, x, compiled=compiled):
                if not compiled:
                    compiled.append(torch.compile(model, backend="eager"))
                return compiled[0](x)
            ends.append(self.train(self.small, x, way, "after", call=call)[0])
        self.assertEqual(*ends)
        self.assertIn(("2", "1", "dx"), self.rows("after"))

    # --- The rows are those of what ran ---

    def test_in_place_as_out_of_place(self):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
        for kind in own.IN_PLACE:
            for cast in (False, True):
                with self.subTest(kind.__name__, cast=cast):
                    found = []
                    for place in (False, True):
                        name = f"{kind.__name__}-{cast}-{place}"

                        def make(place=place):
                            return nn.Sequential(nn.Linear(8, 8), kind(inplace=place),
                                                 nn.Linear(8, 3))
                        self.train(make, x, "recorded", name, cast)
                        found.append(self.rows(name))
                    self.assertEqual(*map(list, found))
                    self.assertIn(("2", "1", "dx"), found[0])
                    for a, b in zip(*(rows.values() for rows in found)):
                        if a["step"] == "1":  # PyTorch's own derivatives are not the same bits
                            self.assertEqual(*[(r["format"], r["numel"]) for r in (a, b)])
                            self.assertAlmostEqual(float(a["l1"]) / float(b["l1"]), 1,
                                                   2 if cast else 6)

    def test_values_before_the_last_rounding(self):
        """Beside a computation in fp64, from the operands as bf16 has them."""
        torch.manual_seed(3)
        net, captured = nn.Sequential(nn.Linear(8, 8), own.Gated(8)), {}
        net[1].register_forward_pre_hook(lambda _, args: captured.update(x=args[0].detach()))
        net[1].register_full_backward_hook(lambda _, dx, dy: captured.update(dy=dy[0]))
        recorder = ada_train.torch.record(net, None, self.folder / "run", every=1)
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(50, 8)).float().square().sum()
        loss.backward()
        recorder.step(loss)
        recorder.close()
        x = captured["x"].double().requires_grad_()
        self.assertEqual(captured["x"].dtype, torch.bfloat16)
        w = net[1].w.detach().bfloat16().double()
        stored = own.stored(x @ w.t(), torch.bfloat16)
        y = stored * own.stored(torch.sigmoid(stored), torch.bfloat16)
        y.backward(captured["dy"].double())
        found = self.rows()
        for tensor, values in (("y", y), ("dx", x.grad)):
            row = found["1", "1", tensor]
            self.assertEqual(row["format"], "bf16")
            self.assertAlmostEqual(float(row["l1"]) / float(values.abs().sum()), 1, 6)
            self.assertAlmostEqual(float(row["max_abs"]) / float(values.abs().max()), 1, 6)

    def test_random_numbers_that_were_drawn(self):
        """y and dx of a layer with noise are those of the noise that it drew."""
        net, seen = nn.Sequential(nn.Linear(8, 8), own.Noise(), nn.Linear(8, 3)), {}
        net[1].register_forward_hook(lambda _, args, y: (seen.setdefault("y", y.detach()), None)[1])
        recorder = ada_train.torch.record(net, None, self.folder / "run", every=1)
        loss = net(torch.ones(5, 8)).square().mean()
        loss.backward()
        recorder.step(loss)
        recorder.close()
        row = self.rows()["1", "1", "y"]
        self.assertAlmostEqual(float(row["l1"]) / float(seen["y"].double().abs().sum()), 1, 6)

    def test_called_by_keyword(self):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(2))
        for options in ({"format": "fp8_e5m2"}, {}):
            ends = []
            for outer, inner in ((False, False), (True, False), (False, True)):
                name = f"{len(options)}{outer}{inner}"
                call = (lambda model, x: model(pixels=x)) if outer else None
                losses = self.train(lambda: own.Called(inner), x, "recorded", name, call=call,
                                    **options)
                ends.append((losses, self.rows(name)))
            self.assertEqual(ends[0], ends[1])
            self.assertEqual(ends[0], ends[2])
            self.assertIn(("2", "join", "dx"), ends[0][1])

    def test_logits_in_maps_and_tuples(self):
        for form in ("fp8_e5m2", None):
            wanted = None
            for kind in own.Wrapped.KINDS:
                name = f"{form}-{kind}"
                net = own.Wrapped(kind)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    with ada_train.torch.record(net, None, self.folder / name, every=1,
                                                format=form) as recorder:
                        with torch.autocast("cpu", torch.bfloat16, enabled=form is None):
                            y = own.Wrapped.logits(net(torch.ones(6, 8)))
                            loss = recorder.loss(functional.cross_entropy(y, torch.arange(6) % 3))
                        loss.backward()
                        recorder.step(loss)
                found = [(key, row["l1"]) for key, row in self.rows(name).items()
                         if key[2] in ("dx", "dw", "dy")]
                wanted = wanted or found
                self.assertEqual(found, wanted, name)
                self.assertEqual(int(self.rows(name)["1", "loss", "dx"]["numel"]), 18)
                self.assertEqual([str(w.message) for w in told if "loss.dx" in str(w.message)], [])

    def test_no_logits(self):
        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 3)

            def forward(self, x):
                return {"loss": self.fc(x).square().mean()}
        _, told = self.train(Loss, torch.ones(4, 8), "recorded", call=lambda m, x: m(x)["loss"])
        self.assertEqual(len([text for text in told if "loss.dx" in text]), 1, told)

    # --- What is said of it ---

    def test_what_was_counted(self):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
        cases = (({"format": "fp8_e4m3", "statistics": ["dx", "y"]}, "dx and y", "dy and w"),
                 ({"format": "fp8_e4m3", "weight_gradients": "bf16", "statistics": ["dw"]}, "dw",
                  "dx, dy, y and w"),
                 ({"statistics": ["y", "dx"]}, "dx and y", None))
        for i, (options, counted, not_counted) in enumerate(cases):
            self.train(self.small, x, "recorded", str(i), **options)
            found = json.loads((self.folder / str(i) / "summary.json").read_text())["counted"]
            text = f"{counted}, 3 of 4 steps" + (
                f"; not counted: {not_counted} (log.statistics)" if not_counted else "")
            self.assertEqual(found["coverage"], text)
            self.assertTrue(found["text"].endswith(text))
            self.assertEqual((self.folder / str(i) / "log.txt").read_text(), found["text"] + "\n")
            most = max(self.rows(str(i)).values(), key=lambda row: float(
                row["underflow_pct_nonzero"] or 0))
            if float(most["underflow_pct_nonzero"]):
                self.assertTrue(found["text"].startswith(f"{found['lost_most']['layer']}."))
            else:
                self.assertTrue(found["text"].startswith("no value was lost of "))

    def test_gradients_that_were_lost_before(self):
        net = self.small()
        with ada_train.torch.record(net, None, self.folder / "run", every=1,
                                    format="fp8_e4m3") as recorder:
            for factor in (1e-6, 1):
                loss = net(torch.ones(6, 8)).square().mean() * factor
                loss.backward()
                recorder.step(loss)
                with torch.no_grad():
                    net[0].weight *= 1e30
        event = next(r for r in run_files.rows(self.folder / "run/events.csv")
                     if r["event"] == "loss_not_finite")
        self.assertIn("gradients were lost before that: loss.dx lost 100 % of its values in step 1 "
                      "(fp8_e4m3 at S = 1); a scale that keeps them", event["message"])

    # --- What cannot be recorded ---

    def test_nothing_ends_the_training(self):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
        plain, _ = self.train(self.small, x, "alone")
        for what in ("again", "close", "_before", "_after"):
            with self.subTest(what), mock.patch.object(
                    Tape, what, side_effect=RuntimeError("out of luck")):
                found, told = self.train(self.small, x, "recorded", what)
                self.assertEqual(found, plain)
                self.assertEqual(len([text for text in told if "out of luck" in text]), 3, told)
                self.assertEqual(self.layers(what), {"loss"})

    def test_a_function_of_its_own(self):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))

        def make():
            return nn.Sequential(nn.Linear(8, 8), own.Reversed(), nn.Linear(8, 3))
        plain, _ = self.train(make, x, "alone")
        found, told = self.train(make, x, "recorded")
        self.assertEqual(found, plain)
        self.assertEqual(len([text for text in told if text.startswith("1 is not")]), 1, told)
        self.assertEqual(self.layers(), {"0", "2", "loss"})

    def test_names_that_read_the_same(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                for name, size in (("x y", 4), ("x_y", 4), ("x-y", 4), ("x/y", 2)):
                    self.add_module(name, nn.Linear(4, size))

            def forward(self, x):
                for child in self.children():
                    x = child(x)
                return x
        x = torch.ones(3, 4)
        _, told = self.train(Net, x, "recorded", layers=["*", "none*"])
        self.assertEqual(self.layers(), {"x_y", "x_y-2", "x_y-3", "x-y", "loss"})
        self.assertTrue(any("'x y' and 'x_y'" in text for text in told), told)
        self.assertTrue(any("'x/y' and 'x_y'" in text for text in told), told)
        self.assertTrue(any("none* matches no layer" in text for text in told), told)
        self.assertEqual(int(self.rows()["2", "x_y-3", "y"]["numel"]), 6)
        if has_library():
            policy = {"layers": [{"match": "x y", "method": "fixed", "scale": 4.0}]}
            with self.assertWarnsRegex(UserWarning, "'x y' fits no module"):
                model = ada_train.torch.AdaLossScaled(Net(), policy)
            model.scale(model(x.requires_grad_()).square().mean()).backward()
            self.assertEqual({row["layer"] for row in model.decisions},
                             {"x_y", "x_y-2", "x_y-3", "x-y"})

    def test_what_is_refused(self):
        net, folder = nn.Linear(4, 3), self.folder / "refused"
        part = nn.Sequential(torch.jit.trace(nn.Linear(4, 3), torch.ones(1, 4)))
        for error, told, given in (
                (TypeError, "function; expected a torch.nn.Module", {"model": lambda x: x}),
                (ValueError, "TorchScript hides the layers of 0; expected", {"model": part}),
                (ValueError, "no shape yet .*was called once", {"model": nn.LazyLinear(3)}),
                (ValueError, "every: -1: expected a whole number", {"every": -1}),
                (ValueError, "every: 1.5: expected a whole number", {"every": 1.5}),
                (TypeError, "scaler: str: expected a GradScaler", {"scaler": "dynamic"})):
            with self.subTest(told), self.assertRaisesRegex(error, told):
                ada_train.torch.record(**{"model": net, "optimizer": None, "folder": folder, **given})
            self.assertFalse(folder.exists())
        with ada_train.torch.record(net, None, folder) as recorder:
            with self.assertRaisesRegex(TypeError, "not copied nor pickled"):
                copy.deepcopy(recorder)

    def test_a_call_that_fails_leaves_nothing(self):
        with contextlib.suppress(AttributeError):
            ada_train.torch.record(nn.Linear(3, 3), None, self.folder / "held", every=1)
        calls = [lambda net: ada_train.torch.record(net, None, self.folder / "held")]
        if has_library():
            calls += [lambda net: ada_train.torch.record(net, None, self.folder / "new",
                                                         operands="nvfp4"),
                      lambda net: ada_train.torch.AdaLossScaled(
                          net, folder=self.folder / "new",
                          format={"format": "bf16", "operands": "nvfp4"})]
            with mock.patch("ada_train.torch.scaling.calls.install", side_effect=RuntimeError):
                net = nn.Sequential(nn.Linear(4, 3))
                with self.assertRaises(RuntimeError):
                    ada_train.torch.AdaLossScaled(net, folder=self.folder / "new")
                self.left_alone(net)
        for call in calls:
            net = nn.Sequential(nn.Linear(4, 3), nn.Conv2d(1, 1, 3, padding="same"))
            with self.assertRaises((ValueError, OSError)):
                call(net)
            self.left_alone(net)
        with ada_train.torch.record(nn.Linear(3, 3), None, self.folder / "new", overwrite=True):
            pass  # nobody holds it

    def left_alone(self, net):
        for module in net.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks, module)
            self.assertFalse({"forward", "_ada_site"} & set(vars(module)), module)

    @unittest.skipUnless(has_library(), "libada_scaling is missing")
    def test_operands_without_a_batch(self):
        """As with a batch of one."""
        for layer, shape in ((nn.Linear(4, 2), (4,)), (nn.Conv2d(2, 3, 3), (2, 5, 5))):
            x, found = torch.randn(shape), []
            for i, batch in enumerate((False, True)):
                layer.zero_grad()
                with ada_train.torch.record(nn.Sequential(layer), None,
                                            self.folder / f"{len(shape)}{i}", every=1,
                                            format="bf16", operands="nvfp4"):
                    y = layer(x[None] if batch else x)
                    y.square().sum().backward()
                found.append([y.detach().reshape(-1)] + [p.grad.clone() for p in
                                                         layer.parameters()])
            for one, other in zip(*found):
                self.assertTrue(torch.equal(one, other))


if __name__ == "__main__":
    unittest.main()
