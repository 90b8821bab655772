"""Trainings of torchao recorded: what each layer computes in, what was left out, biases without a
gradient, and the operands' rows beside the recording of another program, with the training's own
losses to the bit. Needs torch and torchao (ADA_BENCH_PYTHON), libada_scaling, and the recordings
that ADA_GOLDEN_TORCHAO names or that lie in ../shared."""
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
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(1)) if x is None else x
        with ada_train.torch.record(net, optimizer, self.folder / name, every=1) as recorder:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
        return recorder

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
