"""ada_train.torch.record: what it records of a PyTorch model is what ada-train records of the same
network, weights and batches; a model's own formats are seen without changing what it computes; and
the commands for runs take the folder. Needs torch; where this Python has none, the one that
ADA_BENCH_PYTHON names runs these tests."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import safetensors_file  # noqa: E402
import torch_head as head  # noqa: E402
sys.path.insert(0, str(head.ROOT / "tests" / "golden" / "blocks"))
from ada_train import run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    import ada_train.torch
    import cases  # which needs NumPy
except ImportError:
    torch = None

BINARY = os.environ.get("ADA_BINARY")
NETWORK = """
data: {dataset: synthetic, batch_size: 32,
  synthetic: {height: 12, width: 12, channels: 1, classes: 10, train: 640, test: 16}}
model:
  init: {weights: START}
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: sum, kind: add, inputs: [conv2, relu1]}
    - {name: relu2, kind: relu}
    - {name: fc1, kind: linear, features: 32}
    - {name: relu3, kind: relu}
    - {name: fc2, kind: linear, features: 10}
optimizer: {kind: sgd, lr: 0.02}
train: {max_steps: 3}
log: {every: 1, statistics: [y, w, dx, dy, dw], histogram_every: 1, dump_every: 1}
"""
COUNTS = ["numel", "zeros_before", "zeros_after", "underflow", "subnormal", "overflow", "inf",
          "nan"]


def model():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.relu1, self.relu2, self.relu3 = (nn.ReLU(inplace=place)
                                                  for place in (False, True, True))
            self.conv2, self.sum = nn.Conv2d(8, 8, 3, padding=1), Sum()
            self.fc1, self.fc2 = nn.Linear(1152, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = self.relu1(self.bn1(self.conv1(x)))
            x = self.relu2(self.sum(self.conv2(x), x))
            return self.fc2(self.relu3(self.fc1(x.flatten(1))))
    torch.manual_seed(3)
    return Net()


def rows(folder, file="underflow"):
    return list(run_files.rows(folder / f"{file}.csv"))


def train(net, recorder, batches, scale=1.0, scaler=None, cast=None):
    """SGD over the batches; gradients of a fixed scale are divided by it by hand."""
    optimizer = recorder._optimizer
    for images, labels in batches:
        optimizer.zero_grad()
        with cast or contextlib.nullcontext():
            loss = recorder.loss(functional.cross_entropy(net(images), labels))
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            (loss * scale).backward()
            for p in net.parameters():
                p.grad /= scale
            optimizer.step()
        recorder.step(loss)
    recorder.close()


def made_up(count):
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(16, 1, 12, 12, generator=generator),
             torch.randint(0, 10, (16,), generator=generator)) for _ in range(count)]


OtherPythonTest = head.other_python(__file__, "RecordTest")


@head.needs_torch
class RecordTest(head.Scratch):
    def record(self, net, name="run", **options):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
        return ada_train.torch.record(net, optimizer, self.folder / name,
                                      statistics=["y", "w", "dx", "dy", "dw"], **options)

    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_same_rows_as_the_program(self):
        forms = (("fp16", 64.0), ("fp8_e5m2", 8.0), ("{exponent: 4, mantissa: 2}", 1.0))
        for i, (form, scale) in enumerate(forms):
            with self.subTest(form):
                self.compare(form, scale, self.folder / str(i))

    def compare(self, form, scale, place):
        place.mkdir()
        net = model()
        safetensors_file.write(place / "start.safetensors", {
            name: (x.shape, x.numpy().tobytes()) for name, x in net.state_dict().items()
            if x.dtype == torch.float32})
        config = place / "network.yaml"
        config.write_text(NETWORK.replace("START", str(place / "start.safetensors"))
                          + f"precision: {{format: {form}}}\n"
                          + f"scaling: {{policy: fixed, scale: {scale}}}\n")
        subprocess.run([BINARY, "--config", str(config), "--output", str(place / "run")],
                       check=True, capture_output=True)
        recorder = self.record(net, place.name + "/torch", scale=scale, format=form, every=1)
        train(net, recorder, self.batches(place / "run"), scale)
        theirs, ours = rows(place / "run"), rows(place / "torch")
        branches = [sum(int(r["underflow"]) for r in found if r["tensor"] == "dy")
                    for found in (theirs, ours)]
        self.assertGreaterEqual(*branches)  # there before relu1's mask, here after it
        # An add hands its gradient on: ada-train has no row for that.
        theirs, ours = ([r for r in found if r["tensor"] != "dy"
                         and (r["layer"], r["tensor"]) != ("sum", "dx")]
                        for found in (theirs, ours))
        self.assertEqual([[r[c] for c in ("step", "layer", "tensor", "format")] for r in theirs],
                         [[r[c] for c in ("step", "layer", "tensor", "format")] for r in ours])
        lost = 0
        for a, b in zip(theirs, ours):
            lost += int(a["underflow"])
            what = (a["step"], a["layer"], a["tensor"])
            # Sums run in another order: a value next to a threshold may fall on its other side.
            off = 0 if a["step"] == "1" else max(2, int(a["numel"]) // 2000)
            if a["layer"] == "input":  # the dump holds images that were rounded
                continue
            for column in COUNTS:
                self.assertLessEqual(abs(int(a[column]) - int(b[column])), off, (what, column))
            for column in ("max_abs", "std", "l1", "l2"):
                self.assertAlmostEqual(float(b[column]) / (float(a[column]) or 1),
                                       1 if float(a[column]) else 0, 3, (what, column))
        self.assertGreater(lost, 0)
        for a, b in zip(rows(place / "run", "steps"), rows(place / "torch", "steps")):
            self.assertAlmostEqual(float(a["loss"]), float(b["loss"]), 4)
            self.assertAlmostEqual(float(a["grad_norm"]), float(b["grad_norm"]), 4)
        self.assertEqual([r["layer"] for r in rows(place / "run", "scales")
                          if r["limit"] != "branch"],
                         [r["layer"] for r in rows(place / "torch", "scales")])

    @staticmethod
    def batches(run):
        for step in (1, 2, 3):
            dump = safetensors_file.read(run / "dump" / f"step-{step:08d}.safetensors")
            shape, data = dump["conv1.x"]
            _, gradient = dump["loss.dx"]  # of softmax and cross-entropy: negative at the label
            labels = torch.frombuffer(bytearray(gradient), dtype=torch.float32).reshape(-1, 10)
            yield (torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape),
                   labels.argmin(1))

    def test_observing_changes_nothing(self):
        for cast in (None, torch.autocast("cpu", torch.bfloat16)):
            ends = []
            for every in (1, 0):
                net = model()
                recorder = self.record(net, f"{cast is None}-{every}", every=every)
                train(net, recorder, made_up(3), cast=cast)
                ends.append(net.state_dict())
            for name, value in ends[0].items():
                self.assertTrue(torch.equal(value, ends[1][name]), name)

    def test_autocast(self):
        net, captured = model(), {}
        net.fc2.register_forward_pre_hook(lambda _, args: captured.update(x=args[0].detach()))
        net.fc2.register_full_backward_hook(lambda _, dx, dy: captured.update(dy=dy[0], dx=dx[0]))
        weight = net.fc2.weight.detach().clone()
        recorder = self.record(net, every=1)
        train(net, recorder, made_up(1), cast=torch.autocast("cpu", torch.bfloat16))
        found = {(r["layer"], r["tensor"]): r for r in rows(self.folder / "run")}
        self.assertEqual({r["format"] for (layer, _), r in found.items() if layer != "bn1"},
                         {"bf16"})
        dx = captured["dy"].float() @ weight.bfloat16().float()
        self.assertTrue(torch.equal(dx.bfloat16(), captured["dx"].bfloat16()))
        dw = captured["dy"].float().T @ captured["x"].bfloat16().float()
        for tensor, x in (("dx", dx), ("dw", dw), ("w", weight)):
            row = found["fc2", tensor]
            self.assertAlmostEqual(float(row["l1"]) / float(x.double().abs().sum()), 1, 5, tensor)
            self.assertEqual(int(row["numel"]), x.numel())
            self.assertEqual(int(row["zeros_before"]), int((x == 0).sum()))
        self.assertEqual(int(found["loss", "dx"]["numel"]), 160)

    def test_half_precision_loses_what_fp16_loses(self):
        """The same gradients in fp16, which underflow without a scale."""
        net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).half()
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.full((4, 4), 2.0 ** -10))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        recorder = ada_train.torch.record(net, optimizer, self.folder / "run", every=1)
        y = net(torch.ones(2, 4, dtype=torch.float16))
        y.backward(torch.full_like(y, 2.0 ** -18))
        optimizer.step()
        recorder.step(0.0)
        recorder.close()
        found = {(r["layer"], r["tensor"]): r for r in rows(self.folder / "run")}
        self.assertEqual(int(found["1", "dx"]["underflow"]), 8)
        self.assertEqual(found["1", "dx"]["max_abs"], "1.49011612e-08")  # 2^-26
        self.assertEqual(int(found["0", "dw"]["zeros_before"]), 16)
        events = [r["event"] for r in rows(self.folder / "run", "events")]
        self.assertIn("no_gradient", events)

    def converted(self, folder, values, axis):
        """A matrix as `ada-train convert` writes it in nvfp4, blocks along an axis."""
        cases.save(folder / "in.safetensors", {"t": ("F32", values.detach().numpy())})
        subprocess.run([BINARY, "convert", folder / "in.safetensors", folder / "out.safetensors",
                        "--format", "nvfp4", "--axis", str(axis)], check=True)
        return torch.from_numpy(cases.load(folder / "out.safetensors")["t"][1].copy())

    def test_operands_in_blocks(self):
        torch.manual_seed(5)
        layer = nn.Linear(40, 24)
        net, x, dy = nn.Sequential(layer), torch.randn(33, 40), torch.randn(33, 24)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with tempfile.TemporaryDirectory() as folder:
            folder, taken = pathlib.Path(folder), x.clone().requires_grad_()
            with ada_train.torch.record(net, optimizer, folder / "run", every=1,
                                        operands="nvfp4") as recorder:
                y = net(taken)
                y.backward(dy)
                recorder.step(0.0)
            forward = functional.linear(self.converted(folder, x, 1),
                                        self.converted(folder, layer.weight, 1), layer.bias)
            dx = self.converted(folder, dy, 1) @ self.converted(folder, layer.weight, 0)
            dw = self.converted(folder, dy, 0).T @ self.converted(folder, x, 0)
            self.assertTrue(torch.equal(y, forward))
            self.assertTrue(torch.equal(taken.grad, dx))
            self.assertTrue(torch.equal(layer.weight.grad, dw))
            found = {row["tensor"]: row for row in rows(folder / "run", "blocks")}
            self.assertEqual(list(found), ["forward.x", "forward.w", "dx.w", "dx.dy", "dw.x",
                                           "dw.dy"])
            self.assertEqual(int(found["dw.x"]["numel"]), 33 * 40)
            self.assertEqual(int(found["dw.x"]["blocks"]), 3 * 40)  # of 33 images 16, 16 and 1
            lost = (self.converted(folder, dy, 0) == 0) & (dy != 0)
            self.assertEqual(int(found["dw.dy"]["lost"]), int(lost.sum()))
            self.assertIn("precision: {format: fp32, operands: nvfp4}",
                          (folder / "run/config.yaml").read_text())
        self.assertNotIn("forward", vars(layer))  # as it was before

    def test_operands_in_the_configuration(self):
        """As ada-train reads it: `compare` with a run of other operands names the key."""
        form = "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}"
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name, operands in (("a", {"forward": {"x": "nvfp4", "w": form}, "dw": "mxfp4"}),
                                   ("b", {"x": "mxfp4"})):
                net = nn.Sequential(nn.Linear(4, 3))
                with ada_train.torch.record(net, torch.optim.SGD(net.parameters(), 0.1),
                                            folder / name, every=1, operands=operands) as recorder:
                    net(torch.randn(5, 4)).sum().backward()
                    recorder.step(0.0)
            self.assertIn(f"operands: {{forward: {{x: nvfp4, w: {form}}}, dx: {{dy: none, w: none}},"
                          " dw: {x: mxfp4, dy: mxfp4}}", (folder / "a/config.yaml").read_text())
            done = subprocess.run([BINARY, "compare", folder / "a", folder / "b"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("precision.operands.forward.x", done.stdout)

    def test_operands_that_are_refused(self):
        table = [("mxfp9", "expected mxfp8_e4m3"), ({"y": "nvfp4"}, "keys of x, w, dy"),
                 ({"dx": {"x": "nvfp4"}}, "operands.dx: expected dy and w"),
                 ("{element: fp4_e2m1, rule: te}", "scale e8m0 has no rule te; it has floor, ceil, even, rceil")]
        for operands, message in table:
            with self.subTest(operands=operands), tempfile.TemporaryDirectory() as folder:
                with self.assertRaisesRegex(ValueError, message):
                    ada_train.torch.record(model(), None, folder + "/run", operands=operands)

    def test_skipped_steps_and_scales(self):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 40, growth_interval=2)
        recorder = ada_train.torch.record(net, optimizer, self.folder / "run", scaler=scaler,
                                          format="fp16", every=2)
        train(net, recorder, made_up(4), scaler=scaler)
        steps = rows(self.folder / "run", "steps")
        self.assertEqual([r["scale"] for r in steps],
                         [f"{2 ** p}.0" for p in (40, 39, 38, 37)])
        self.assertEqual({(r["skipped"], r["overflow"]) for r in steps}, {("1", "1")})
        events = rows(self.folder / "run", "events")
        self.assertEqual([r["event"] for r in events if r["step"] == "2"],
                         ["scale_change", "skip"])
        self.assertEqual(run_files.read_summary(self.folder / "run")[0]["skipped"], 4)

    def test_the_model_is_left_as_it_was(self):
        net = model()
        names = list(net.state_dict())
        recorder = self.record(net, format="fp8_e4m3")
        with self.assertRaises(RuntimeError):
            net(torch.ones(2, 7))  # ends within a layer whose weight is a rounded copy
        recorder.close("interrupted")
        self.assertEqual(list(net.state_dict()), names)
        weights = [net.conv1.weight, net.fc1.weight]
        self.assertTrue(all(isinstance(p, nn.Parameter) for p in weights))
        self.assertFalse(net._forward_pre_hooks or net.conv1._forward_hooks)

    def test_micro_batches_and_evaluation(self):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        with ada_train.torch.record(net, optimizer, self.folder / "run", every=1,
                                    statistics=["dx", "w"]) as recorder:
            for images, labels in made_up(2):
                functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            recorder.step(1.0)
            net.eval()
            net(made_up(1)[0][0])
            recorder.evaluation("test", 16, 1.0, 0.5, 0.75)
        found = {(r["layer"], r["tensor"]): int(r["numel"]) for r in rows(self.folder / "run")}
        self.assertEqual((found["loss", "dx"], found["fc2", "w"]), (320, 320))
        self.assertEqual(len(rows(self.folder / "run", "steps")), 1)
        self.assertEqual(rows(self.folder / "run", "evaluation")[0]["top5"], "0.75")

    def test_what_is_refused(self):
        net = model()
        for options, message in (({"format": "fp17"}, "expected one of fp32, fp16"),
                                 ({"layers": "nothing*"}, "matches no layer"),
                                 ({"statistics": ["dz"]}, "dz: expected some of y, w")):
            with self.assertRaisesRegex(ValueError, message):
                ada_train.torch.record(net, None, self.folder / "run", **options)
        with self.assertRaisesRegex(ValueError, "torch.float16: a format is emulated"):
            ada_train.torch.record(model().half(), None, self.folder / "run", format="fp16")
        with self.assertRaisesRegex(RuntimeError, "no forward pass"):
            self.record(net).step(1.0)

    def test_dumps_are_what_the_products_took(self):
        """Of images, tokens and a layer that reads the input; and the model's losses stay."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.mix = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), nn.Linear(6, 5)
                self.head = nn.Linear(80, 3)

            def forward(self, x):
                x = self.mix(self.conv(x).flatten(2).transpose(1, 2))
                return self.head(x.flatten(1))

        def losses(recorded):
            torch.manual_seed(2)
            net = Net()
            taken, found = {}, []
            for name, module in net.named_children():
                module.register_forward_pre_hook(
                    lambda _, args, name=name: taken.update({name + ".x": args[0].detach()}))
                module.register_full_backward_hook(
                    lambda _, __, dy, name=name: taken.update({name + ".dy": dy[0]}))
            recorder = self.record(net, every=2, dump_every=2) if recorded else None
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for step in range(2):
                taken.update({name: w.detach().clone() for name, w in net.named_parameters()})
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = functional.cross_entropy(net(images[step]), torch.arange(8) % 3)
                loss.backward()
                optimizer.step()
                found.append(loss.item())
                if recorder:
                    recorder.step(loss)
            if recorder:
                recorder.close()
            return found, taken

        images = torch.randn(2, 8, 4, 8, 8, generator=torch.Generator().manual_seed(1))
        plain, _ = losses(False)
        found, taken = losses(True)
        self.assertEqual(found, plain)
        self.assertEqual(sorted(os.listdir(self.folder / "run/dump")),
                         ["step-00000001.safetensors", "step-00000002.safetensors"])
        dump = cases.load(self.folder / "run/dump/step-00000002.safetensors")
        for name in ("conv", "mix", "head"):
            for tensor, value in (("x", taken[name + ".x"]), ("w", taken[name + ".weight"]),
                                  ("dy", taken[name + ".dy"])):
                value = value.bfloat16().float()
                if name == "mix" and tensor != "w":  # [n, tokens, channels]
                    value = value.transpose(1, 2)[..., None]
                self.assertTrue(torch.equal(torch.tensor(dump[f"{name}.{tensor}"][1]), value),
                                (name, tensor))
        with self.assertRaisesRegex(ValueError, "leave out format="):
            ada_train.torch.record(Net(), None, self.folder / "b", dump_every=1, format="fp8_e5m2")
        if BINARY:
            told = subprocess.run([BINARY, "what-if", self.folder / "run", "--csv"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(told.returncode, 0, told.stderr)
            layers = {tuple(row.split(",")[1:3]) for row in told.stdout.splitlines()[1:]
                      if row.startswith("te_mxfp8,")}
            self.assertEqual(len(layers), 3 * 6 - 2)  # conv computes no dx
            self.assertNotIn(("conv", "dx.dy"), layers)
        self.record(Net(), overwrite=True).close()
        self.assertFalse((self.folder / "run/dump").exists())

    @unittest.skipUnless(BINARY, "ADA_BINARY is not set")
    def test_the_commands_for_runs(self):
        net = model()
        train(net, self.record(net, "a", format="fp8_e5m2", every=1), made_up(3))
        net = model()
        train(net, self.record(net, "b", every=1), made_up(3),
              cast=torch.autocast("cpu", torch.bfloat16))
        a, b = str(self.folder / "a"), str(self.folder / "b")
        before = {path: path.read_bytes() for path in pathlib.Path(a).iterdir()}
        for command, text in (
                (["recommend", a], "Recommended: "), (["watch", a, "--once"], "conv2"),
                (["what-if", b, "--format", "fp16"], "format=fp16"),
                (["what-if", a, "--policy", "adaptive"], "policy=adaptive"),
                (["compare", a, b], "underflow of dx")):
            result = subprocess.run([BINARY, *command], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, (command, result.stderr))
            self.assertIn(text, result.stdout + result.stderr)
        for way in ("--resume", "--overwrite"):
            result = subprocess.run([BINARY, "--config", a + "/config.yaml", "--output", a, way],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("reads such runs and does not train them", result.stderr)
        self.assertEqual({path: path.read_bytes() for path in pathlib.Path(a).iterdir()}, before)
        page = subprocess.run([sys.executable, str(head.ROOT / "tools" / "report.py"), a, b, "-o",
                               str(self.folder / "page.html"), "--static"], capture_output=True,
                              text=True, check=False)
        self.assertIn(page.returncode, (0, 1), page.stderr)  # 1: no matplotlib here


if __name__ == "__main__":
    unittest.main()
