"""Trainings of torchao recorded: what each layer computes in, what was left out, biases without a
gradient, and the operands' rows beside the recording of another program, with the training's own
losses to the bit. Needs torch and torchao (ADA_BENCH_PYTHON), libada_scaling, and the recordings
that ADA_GOLDEN_TORCHAO names or that lie in ../shared."""
import copy
import csv
import os
import pathlib
import subprocess
import sys
import unittest
import unittest.mock
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
try:
    import torch
    import torchao.float8
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    import ada_train.torch
except ImportError:
    torch = None
GOLDEN = pathlib.Path(os.environ.get("ADA_GOLDEN_TORCHAO") or
                      head.ROOT.parent / "shared/golden/practice/torchao_model")
OPERANDS = ("forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy")


OtherPythonTest = head.other_python(__file__, "TorchaoTest", torch is not None)


def table(name):
    with open(GOLDEN / name, encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@unittest.skipUnless(torch, "torchao is missing (ADA_BENCH_PYTHON may name a Python that has it)")
class TorchaoTest(head.WithLibrary):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    # --- Beside the recordings ---

    @unittest.skipUnless((GOLDEN / "operands.csv").exists(), "the recordings are missing")
    def test_the_recorded_trainings(self):
        sys.path.insert(0, str(GOLDEN.parent / "generators"))
        import torchao_models
        import torchao.prototype.quantized_training.int8_mixed_precision as int8
        int8.scaled_int8_mm = lambda a, b, rows, columns: (  # the module's own way without triton
            torch._int_mm(a, b) * columns.view(-1) * rows.view(-1, 1))
        for run in torchao_models.runs():
            with self.subTest(run):
                plain = torchao_models.build(run, str(GOLDEN))
                losses = torchao_models.train(*plain)
                net, data, config = torchao_models.build(run, str(GOLDEN))
                recorder = ada_train.torch.record(net, None, self.folder / run, every=1)
                found = self.train(net, data, config, recorder)
                recorder.close()
                self.assertEqual(found, losses)
                for name, p in plain[0].named_parameters():
                    other = net.get_parameter(name)
                    self.assertTrue(torch.equal(getattr(p, "_data", p),
                                                getattr(other, "_data", other)), name)
                self.compare_layers(run, recorder.table())
                self.compare_operands(run, recorder.table())
                self.compare_biases(run)

    @staticmethod
    def train(net, data, config, recorder):
        """As torchao_models.train, with the recorder's two lines."""
        optimizer = (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
                     if config["optimizer"] == "sgd" else
                     torch.optim.AdamW(net.parameters(), lr=0.003, foreach=False))
        losses = []
        for x, t in data:
            optimizer.zero_grad()
            y = net(x)
            loss = nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]).float(), t.reshape(-1))
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
        return losses

    def compare_layers(self, run, found):
        wanted = [(r["layer"], r["class"], r["weight_class"], r["converted"] == "1")
                  for r in table("layers.csv") if r["run"] == run]
        got = [(r["layer"], r["class"], r["weight_class"], r["converted"])
               for r in found if r["operand"] == "forward.x"]
        self.assertEqual(got, wanted)
        log = (self.folder / run / "log.txt").read_text()
        self.assertTrue(log.startswith(str(found)), log)
        left = [layer for layer, _, _, converted in wanted if not converted]
        if len(left) == len(wanted):
            self.assertIn("0 of 5 linear layers are converted", log)
            self.assertIn("matched nothing", log)
        else:
            self.assertIn("left out: " + ", ".join(left), log)

    def compare_operands(self, run, found):
        formats = {(r["layer"], r["operand"]): (r["format"], r["granularity"]) for r in found}
        rows, blocks = ({(r["step"], r["layer"], r["tensor"]): r for r in run_files.rows(
            self.folder / run / f"{name}.csv")} if (self.folder / run / f"{name}.csv").exists()
            else {} for name in ("underflow", "blocks"))
        for want in table("operands.csv"):
            if want["run"] != run:
                continue
            at = run, want["step"], want["layer"], want["operand"]
            self.assertEqual(formats[at[2:]], (want["format"], want["granularity"]), at)
            if want["format"] == "none":
                self.assertNotIn(at[1:], rows)
                continue
            row, block, first = rows[at[1:]], blocks[at[1:]], at[1] == "1"
            self.assertEqual(row["format"], want["format"], at)
            for name, value in (("numel", row["numel"]), ("lost", row["underflow"])):
                if first or name == "numel":
                    self.assertEqual(int(value), int(want[name]), (at, name))
            near = 1e-5 if first else 0.01
            for name, value in (("amax", float(row["max_abs"])), ("abs_sum", float(row["l1"]))):
                self.assertLessEqual(abs(value / float(want[name]) - 1), near, (at, name))
            if want["sqnr"]:
                self.assertAlmostEqual(float(row["sqnr_db"]), float(want["sqnr"]),
                                       delta=2e-3 if first else 0.5, msg=at)
            if first:
                scales = int(want["scales"])
                self.assertEqual(int(block["blocks"]), scales, at)
                self.assertEqual(int(block["lost"]), int(want["lost"]), at)
                if want["granularity"] == "tensor":
                    self.assertAlmostEqual(float(row["scale"]) / float(want["scale_min"]), 1, 5)
        events = [r for r in run_files.rows(self.folder / run / "events.csv")]
        self.assertNotIn("not_the_rule", [r["event"] for r in events])
        idle = [r["layer"] for r in events if r["event"] == "conversion_idle"]
        self.assertEqual(idle, [r["layer"] for r in found if r["operand"] == "forward.x" and (
            r["converted"] and r["format"] == "none")])

    def compare_biases(self, run):
        wanted = [r["step"].removeprefix("bias gradient of ") for r in table("steps.csv")
                  if r["run"] == run and r["loss"] == "none"]
        got = [r["layer"] for r in run_files.rows(self.folder / run / "events.csv")
               if r["event"] == "no_bias_gradient"]
        self.assertEqual(got, wanted)

    # --- Alone ---

    def recorded(self, net, name="run", steps=2, x=None):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        x = self.batch() if x is None else x
        with ada_train.torch.record(net, optimizer, self.folder / name, every=1) as recorder:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
        return recorder

    @staticmethod
    def batch():
        return torch.randn(16, 32, generator=torch.Generator().manual_seed(1))

    @staticmethod
    def converted(bias=True, **options):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(32, 32, bias=bias), nn.ReLU(), nn.Linear(32, 16, bias=bias))
        config = torchao.float8.Float8LinearConfig.from_recipe_name("tensorwise")
        object.__setattr__(config, "emulate", True)
        return torchao.float8.convert_to_float8_training(net, config=config, **options)

    def test_a_filter_that_matches_nothing(self):
        net = self.converted(module_filter_fn=lambda module, name: name == "heads")
        recorder = self.recorded(net)
        self.assertEqual(recorder.table().converted, 0)
        self.assertIn("0 of 2 linear layers are converted", str(recorder.table()))

    def test_a_library_that_does_something_else(self):
        scaling = sys.modules["torchao.float8.float8_scaling_utils"]
        own = scaling.tensor_to_scale
        with unittest.mock.patch.object(scaling, "tensor_to_scale",
                                        lambda *args: own(*args) * 0.75):
            self.recorded(self.converted())
        found = [r for r in run_files.rows(self.folder / "run/events.csv")
                 if r["event"] == "not_the_rule"]
        self.assertEqual({(r["layer"], r["tensor"]) for r in found},
                         {(layer, operand) for layer in ("0", "2") for operand in OPERANDS})

    def test_rows_of_the_products(self):
        """y, dx and dw of a network in fp32 are what the layer computes."""
        net, seen = self.converted(), {}
        net[2].register_forward_hook(lambda _, args, y: seen.update(y=y.detach()))
        net[2].register_full_backward_hook(lambda _, dx, dy: seen.update(dx=dx[0]))
        self.recorded(net, steps=1)
        seen["dw"] = net[2].weight.grad
        rows = {(r["layer"], r["tensor"]): r for r in run_files.rows(
            self.folder / "run/underflow.csv")}
        for tensor, x in seen.items():
            self.assertAlmostEqual(float(rows["2", tensor]["l1"]) / float(x.abs().sum()), 1, 5)

    def test_a_frozen_layer_that_reads_the_input(self):
        """Its forward product rounds as before, and it has no other."""
        rows = {}
        for frozen in (False, True):
            net, name = self.converted(), f"frozen{frozen}"
            for p in net[0].parameters():
                p.requires_grad_(not frozen)
            self.recorded(net, name, steps=1)
            rows[frozen] = {(r["layer"], r["tensor"]): r for r in self.rows(name, "blocks")}
        self.assertEqual({tensor for layer, tensor in rows[True] if layer == "0"},
                         {"forward.x", "forward.w"})
        for name in (("0", "forward.x"), ("0", "forward.w")):
            self.assertEqual(rows[True][name], rows[False][name])

    def test_a_layer_whose_bias_alone_is_trained(self):
        net = self.converted()
        net[0].weight.requires_grad_(False)
        recorder = self.recorded(net, steps=1)
        self.assertEqual(self.rows("run", "events"), [])
        self.assertNotIn("no part", str(recorder.table()))
        self.assertTrue({"forward.x", "forward.w"} <= {
            r["tensor"] for r in self.rows("run", "blocks") if r["layer"] == "0"})

    def test_products_of_the_processor(self):
        """Not emulated: by torch._scaled_mm, whose rows pass through bf16."""
        for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
            config = torchao.float8.Float8LinearConfig.from_recipe_name(recipe)
            ends = []
            for how in ("plain", "recorded"):
                torch.manual_seed(0)
                net = nn.Sequential(nn.Linear(32, 32, bias=False), nn.ReLU(),
                                    nn.Linear(32, 16, bias=False))
                torchao.float8.convert_to_float8_training(net, config=config)
                if how == "recorded":
                    self.recorded(net, recipe, 1)
                else:
                    net(self.batch()).square().mean().backward()
                ends.append([p.grad for p in net.parameters()])
            for plain, found in zip(*ends):
                self.assertTrue(torch.equal(plain, found))
            self.assertEqual({r["event"] for r in self.rows(recipe, "events")}, set())
            row = next(r for r in self.rows(recipe, "underflow") if r["tensor"] == "y")
            self.assertEqual(row["format"], "fp32" if recipe == "tensorwise" else "bf16")

    def test_a_module_of_mx(self):
        """Its bias has a part in its output, unlike that of a weight that was wrapped."""
        from torchao.prototype.moe_training.mxfp8_linear import MXFP8Linear
        from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
        found = []
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            net = nn.Sequential(MXFP8Linear(32, 64, kernel_preference=KernelPreference.EMULATED))
            net, x = net.to(dtype), self.batch().to(dtype)
            net[0].register_forward_hook(lambda _, args, y: found.append(y.detach().float()))
            plain = copy.deepcopy(net)
            plain(torch.cat([x, x])).float().square().mean().backward()
            self.recorded(net, str(dtype), 1, torch.cat([x, x]))
            self.assertTrue(torch.equal(plain[0].bias.grad, net[0].bias.grad))
            self.assertTrue(torch.equal(plain[0].weight.grad, net[0].weight.grad))
            rows = {r["tensor"]: r for r in self.rows(str(dtype), "underflow")}
            self.assertEqual({*OPERANDS, "y", "dw"} - set(rows), {"dx.dy", "dx.w"} - set(rows))
            self.assertAlmostEqual(float(rows["y"]["l1"]) / float(found[-1].abs().sum()), 1, 3)
            self.assertEqual(list(self.rows(str(dtype), "events")), [])

    def test_transformer_engine(self):
        """A stand-in with the attributes that its pages name."""
        recipes = {name: type(name, (), {"fp8_format": "Format.HYBRID"}) for name in (
            "DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling", "Float8BlockScaling",
            "NVFP4BlockScaling")}
        kind = type("LayerNormLinear", (nn.Module,), {
            "__module__": "transformer_engine.pytorch.module.layernorm_linear", "fp8": True,
            "forward": lambda self, x: nn.functional.linear(x, self.weight)})
        wanted = {"DelayedScaling": ("fp8_e4m3", "tensor", "fp8_e5m2"),
                  "Float8CurrentScaling": ("fp8_e4m3", "tensor", "fp8_e5m2"),
                  "MXFP8BlockScaling": ("fp8_e4m3", "block32", "fp8_e4m3"),
                  "Float8BlockScaling": ("fp8_e4m3", "block128", "fp8_e4m3"),
                  "NVFP4BlockScaling": ("nvfp4", "block16", "nvfp4"), None: ("none", "", "none")}
        for name, (x, shape, dy) in wanted.items():
            net = nn.Sequential(kind())
            net[0].weight = nn.Parameter(torch.ones(4, 32))
            net[0].fp8_meta = {"recipe": recipes[name]()} if name else {}
            found = {r["operand"]: r for r in self.recorded(net, str(name), 1).table()}
            self.assertEqual([found["forward.x"]["format"], found["forward.x"]["granularity"],
                              found["dx.dy"]["format"]], [x, shape, dy])
            self.assertTrue(all(r["class"] == "LayerNormLinear" for r in found.values()))

    def test_scaled(self):
        """Converted layers get gradients without a scale, and give those of the plain network."""
        x, ends = self.batch(), []
        for scaled in (False, True):
            net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), *self.converted(), nn.Linear(16, 4))
            torch.manual_seed(3)
            for part in (net[0], net[-1]):
                part.reset_parameters()
            model = ada_train.torch.AdaLossScaled(
                net, {"method": "fixed", "scale": 4.0, "init_scale": 64}) if scaled else net
            loss = model(x).square().mean()
            (model.scale(loss) if scaled else loss).backward()
            ends.append([p.grad for p in net.parameters()])
        self.assertIn("matmul_with_hp_or_float8_args", model.reasons)
        for plain, found in zip(*ends):
            self.assertTrue(torch.equal(plain, found))

    def test_scaled_by_the_values_of_a_wrapped_weight(self):
        """A weight of INT8 has no address of its own; its layer chooses alpha by the values within."""
        from torchao.prototype.quantized_training import int8_mixed_precision_training
        from torchao.quantization import quantize_
        x, decisions = self.batch(), []
        for converted in (False, True):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 16))
            if converted:
                quantize_(net, int8_mixed_precision_training())
            for method in ("approx_range", "exact_range", "element_wise_range"):
                model = ada_train.torch.AdaLossScaled(net, {"method": method, "init_scale": 64})
                model.scale(model(x).square().mean()).backward()
                decisions.append([(d["layer"], d["alpha"]) for d in model.decisions])
                model.remove()
        self.assertEqual(decisions[:3], decisions[3:])
        self.assertTrue(all(decisions))

    def test_called_by_keyword_and_computed_again(self):
        """Under a checkpoint and by keyword the rows are the same."""
        found = []
        for how in ("plain", "keyword", "checkpoint"):
            net = self.converted()
            if how == "keyword":
                inner = net[2]
                net = nn.Sequential(net[0], net[1])
                net.add_module("2", inner)
                net.forward = lambda x, net=net: net[2](input=net[1](net[0](input=x)))
            if how == "checkpoint":
                net.forward = lambda x, net=net: checkpoint(
                    lambda x: net[2](net[1](net[0](x))), x, use_reentrant=False)
            self.recorded(net, how)
            found.append(self.rows(how, "blocks"))
        self.assertEqual(len(found[0]), 24)
        for other in found[1:]:
            self.assertEqual(found[0], other)

    def test_what_the_commands_say(self):
        binary = os.environ.get("ADA_BINARY", str(head.ROOT / "build/ada-train"))
        if not os.path.exists(binary):
            self.skipTest(f"{binary} is missing")
        self.recorded(self.converted())
        for command in (["watch", "--once"], ["compare"], ["advise"], ["recommend"],
                        ["what-if", "--format", "fp8_e5m2"]):
            folders = [str(self.folder / "run")] * (2 if command == ["compare"] else 1)
            result = subprocess.run([binary, command[0], *folders, *command[1:]],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, (command, result.stderr))


if __name__ == "__main__":
    unittest.main()
