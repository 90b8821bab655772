"""tools/bench: counting of operations, arguments, and tables from known numbers."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
import bench  # noqa: E402
import compare  # noqa: E402
import costs  # noqa: E402
import flops  # noqa: E402
import machine  # noqa: E402
import markdown  # noqa: E402
import models  # noqa: E402
import modes  # noqa: E402
import operand_check  # noqa: E402
import op_rows  # noqa: E402
import turns  # noqa: E402

LENET = """\
layer  kind        output    parameters  MFLOP  y     w     dx    dw    policy
input              28x28x1                      fp16                    -
conv1  conv2d      28x28x6          156  0.235  fp16  fp16        fp32  -
relu1  relu        28x28x6                                              -
bn1    batch_norm  28x28x6           12         fp16        fp16        -
conv2  conv2d      10x10x16        2416  0.480  fp16  fp16  fp16  fp32  adaptive: approx_range
fc1    linear      120            48120  0.096  fp16  fp16  fp16  fp32  fixed
fc2    linear      10              1210  0.002  fp16  fp16  fp16  fp32  fixed
loss               10                                       fp16        -
total                           51914  0.814
device    cpu (oneDNN 2.6.3, avx512, 2 threads): device auto, and no CUDA backend is built in
"""
GPT = """\
layer                 kind                output     parameters   MFLOP  p     y     w     dx    policy
input                                     128x1x1                              fp32              -
transformer.wte       embedding           128x1x128       32768                fp32  fp32        -
transformer.wpe       position_embedding  128x1x128       16384                fp32              -
transformer.h.0.attn  linear              128x1x384       49536  12.583        fp32  fp32  fp32  none
transformer.h.0       attention           128x1x128               8.389  fp32  fp32              -
transformer.h.0.add   add                 128x1x128                            fp32              -
lm_head               linear              128x1x256               8.389        fp32        fp32  none
loss                                      128x1x256                                        fp32  -
total                                                     98688  29.361
"""
PEAK = machine.Peak(fma=100.0, pairs=200.0, tiles=1000.0, copy=20.0)
PAIRS = machine.Peak(fma=100.0, pairs=200.0, tiles=None, copy=20.0)
FLOATS = machine.Peak(fma=100.0, pairs=None, tiles=None, copy=20.0)


class FlopsTest(unittest.TestCase):
    def test_a_network_of_images(self):
        network = flops.parse(LENET)
        self.assertEqual(network.parameters, 51914)
        self.assertAlmostEqual(network.forward_flop, 0.814e6)
        self.assertEqual(network.layers, {"conv1": 156, "bn1": 12, "conv2": 2416, "fc1": 48120,
                                          "fc2": 1210})

    def test_the_first_layer_has_no_data_gradient(self):
        self.assertAlmostEqual(flops.parse(LENET).training_flop(), 2 * 0.235e6 + 3 * 0.579e6)

    def test_behind_an_embedding_the_first_layer_has_one(self):
        network = flops.parse(GPT)
        self.assertAlmostEqual(network.forward_flop, 29.361e6)
        self.assertEqual(network.layers, {"transformer.wte": 32768, "transformer.wpe": 16384,
                                          "transformer.h.0.attn": 49536})
        self.assertEqual(network.training_flop(), 3 * network.forward_flop)

    def test_what_is_no_table(self):
        for text in ("", "total 5 0.1\n", LENET.replace("total", "sum")):
            with self.assertRaises(ValueError):
                flops.parse(text)


class MarkdownTest(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([markdown.number(x) for x in (0.0012345, 1.2345, 98.76, 123.45, 98765.4)],
                         ["0.00123", "1.23", "98.8", "123", "98,765"])
        self.assertEqual([markdown.number(x) for x in (None, 0, float("nan"))], ["", "0", "nan"])
        self.assertEqual([markdown.percent(x) for x in (0.001, 0.0567, 0.123, 1.5, None)],
                         ["0.1 %", "5.7 %", "12 %", "150 %", ""])

    def test_table(self):
        self.assertEqual(markdown.table(["a", "b"], [["1", "2"], ["", "3"]]),
                         "| a | b |\n|---|---|\n| 1 | 2 |\n|  | 3 |")


class ArgumentsTest(unittest.TestCase):
    def test_defaults(self):
        options = bench.arguments([])
        self.assertEqual(options.models,
                         ["resnet20", "resnet56", "vgg16", "fashion", "lenet", "mlp"])
        self.assertEqual(options.modes, modes.of(""))
        self.assertEqual((options.batch, options.rounds, options.log_every), (None, 5, 100))
        self.assertEqual(models.MODELS["resnet18"].batch, 32)
        self.assertEqual(bench.arguments(["--log-cost"]).batch, [128])
        self.assertEqual(bench.arguments(["--ops"]).models, ["resnet20"])
        self.assertEqual(bench.arguments(["--scaling"]).models, ["resnet20"])
        self.assertIn("quick", bench.arguments(["--log-cost"]).config)
        self.assertNotIn("quick", bench.arguments(["--policy-cost"]).config)

    def test_lists(self):
        options = bench.arguments(["--models", "mlp,resnet20", "--batch", "64,32", "--modes",
                                   "torch-fp32,ada-bf16"])
        self.assertEqual(options.models, ["mlp", "resnet20"])
        self.assertEqual(options.batch, [64, 32])
        self.assertEqual(options.modes, ["torch-fp32", "ada-bf16"])
        self.assertEqual(bench.arguments(["--models", "all", "--ops"]).models[-1], "mlp")
        self.assertIn("torch-bf16-compiled", bench.arguments(["--modes", "all"]).modes)

    def test_of_a_gpu(self):
        options = bench.arguments(["--device", "cuda"])
        self.assertEqual((options.models, options.modes), (["resnet20", "resnet50"],
                                                           modes.CUDA))
        self.assertEqual(bench.arguments(["--device", "cuda", "--models", "mlp"]).models, ["mlp"])
        self.assertEqual(models.MODELS["resnet20"].steps(128, "cuda"), 10000)
        self.assertEqual(models.MODELS["resnet20"].steps(128), 200)

    def test_transformers_are_measured_where_they_are_named(self):
        options = bench.arguments(["--models", "gpt2_jargon", "--modes",
                                   "ada-fp16,ada-bf16,torch-emulated-written"])
        gpt = models.MODELS["gpt2_jargon"]
        adaptive, bf16 = (compare.ada_values(options, gpt, gpt.batch, modes.MODES[mode])[0]
                          for mode in options.modes[:2])
        self.assertIn("data.batch_size=16", adaptive)
        self.assertEqual(adaptive[-1], "scaling.init_scale=auto")
        self.assertEqual(bf16[-1], "scaling={policy: none}")
        self.assertTrue(models.keeps_optimizer(gpt.config))
        self.assertFalse(models.keeps_optimizer(models.RESNET20))

    def test_what_speed_counts(self):
        header = ["mode", "images/s"]
        self.assertEqual(models.in_units(header, ["mlp", "vit_cifar"]), header)
        self.assertEqual(models.in_units(header, ["gpt2_jargon"]), ["mode", "tokens/s"])
        self.assertEqual(models.in_units(header, ["gpt2_jargon", "mlp"]),
                         ["mode", "images/s, tokens/s"])

    def test_measured_plans_are_a_mode_of_a_gpu(self):
        options = bench.arguments(["--device", "cuda", "--modes", "ada-fp16,ada-fp16-tuned"])
        plain, tuned = (compare.ada_values(options, models.MODELS["resnet20"], 128, modes.MODES[mode])[0]
                        for mode in options.modes)
        self.assertEqual(tuned, [*plain, "device.autotune=true", "device.deterministic=false"])

    def test_refused(self):
        for words in (["--models", "resnet21"], ["--modes", ""], ["--batch", "x"],
                      ["--batch", "1"], ["--rounds", "0"], ["--threads", "-1"],
                      ["--ops", "--scaling"], ["--ada-steps", "1.5"], ["--device", "gpu"],
                      ["--device", "cuda", "--ops"], ["--isa", "sse9"],
                      ["--modes", "torch-fp16-graphed"], ["--modes", "ada-fp16-tuned"],
                      ["--modes", "torch-counted-written"],
                      ["--models", "resnet20", "--modes", "torch-mxfp8-torchao"],
                      ["--device", "cuda", "--modes", "ada-mxfp8"]):
            with self.subTest(words), self.assertRaises(SystemExit), \
                    contextlib.redirect_stderr(io.StringIO()):
                bench.arguments(words)


class CompareTest(unittest.TestCase):
    def test_each_round_starts_with_another_mode(self):
        seen = []
        measures = {key: lambda key=key: seen.append(key) or len(seen) for key in "abc"}
        with contextlib.redirect_stderr(io.StringIO()) as told:
            found = turns.in_turns(4, measures, lambda key, value: key == "b" and f"b is {value}")
        self.assertEqual(seen, list("abcbcacababc"))
        self.assertEqual(found["a"], [1, 6, 8, 10])
        self.assertEqual(told.getvalue().splitlines()[:2],
                         ["round 1 of 4: b is 2", "round 2 of 4: b is 4"])

    def test_rows(self):
        results = {
            "ada-fp16": compare.Measured([300.0, 100.0, 200.0], 50.0),
            "torch-fp32": compare.Measured([50.0], 700.0, 500.0),
            "torch-bf16": compare.Measured([80.0, 90.0, 70.0], 1200.0, 500.0),
        }
        cells = compare.rows("Net", 64, results, 1e8, PEAK)
        self.assertEqual(cells[0], ["Net", "64", "ada-train fp16, adaptive", "200", "100, 300",
                                    "2.50", "4.00", "20.0", "20 %", "2.0 %", "50"])
        self.assertEqual(cells[1][3:], ["50.0", "50.0, 50.0", "0.62", "1.00", "5.00", "5.0 %",
                                        "0.5 %", "700 (import torch: 500)"])
        self.assertEqual(cells[2][5:7], ["1.00", "1.60"])
        self.assertEqual(len(cells[0]), len(compare.HEADER))

    def test_rows_without_pytorch_or_bf16_products(self):
        results = {"ada-fp32": compare.Measured([10.0], 5.0)}
        for peak, share in ((FLOATS, ""), (PAIRS, "5.0 %"), (PEAK, "1.0 %")):
            cells = compare.rows("Net", 64, results, 1e9, peak)
            self.assertEqual(cells[0][5:], ["", "", "10.0", "10 %", share, "5"])
        self.assertNotIn("bf16", FLOATS.text())
        self.assertIn("bf16 products 200 GFLOP/s", PAIRS.text())
        self.assertNotIn("tiles", PAIRS.text())

    def test_median_of_peaks(self):
        peaks = [machine.Peak(1.0, 7.0, 1.5), machine.Peak(3.0, 8.0, 3.5),
                 machine.Peak(2.0, 9.0, 2.5)]
        self.assertEqual(machine.median_peak(peaks), machine.Peak(2.0, 8.0, 2.5))

    def test_instruction_sets(self):
        for flags, words in (("sse2", "SSE2"), ("avx2", "AVX2"), ("avx2 avx512f", "AVX-512"),
                             ("avx512f avx512_bf16", "AVX-512 and its bf16 products"),
                             ("avx512f avx512_bf16 amx_bf16",
                              "AVX-512 and its bf16 products, AMX")):
            self.assertEqual(machine.instruction_sets(flags.split()), words)


class OperandsTest(unittest.TestCase):
    def test_losses_or_gradients_apart_end_the_program(self):
        ours = [2.0, 1.0]
        with contextlib.redirect_stderr(io.StringIO()) as told:
            operand_check.check("mlp512", "torch-mxfp8", ours,
                                {"losses": [2.0, 1.004], "gradient_distance": 0.01})
        self.assertIn("0.4 % apart at most (0.5 % are allowed), the first gradient 1 % (2 %)",
                      told.getvalue())
        for losses, distance in (([2.0, 1.006], 0.01), ([2.0, 1.0], 0.03), ([2.0], 0.01),
                                 ([2.0, float("nan")], 0.01), ([2.0, 1.0], float("nan"))):
            with self.subTest(losses, distance=distance), self.assertRaises(SystemExit):
                operand_check.check("mlp512", "torch-mxfp8", ours,
                                    {"losses": losses, "gradient_distance": distance})

    def test_ratios_are_of_the_same_round(self):
        results = {"ada-bf16": compare.Measured([6400.0], cpu=[0.002, 0.004]),
                   "ada-mxfp8": compare.Measured([3200.0], cpu=[0.003, 0.008]),
                   "torch-mxfp8": compare.Measured([640.0], cpu=[0.06, 0.08])}
        cells = compare.operand_rows("Net", 64, results)
        self.assertEqual(cells[1][3:], ["20.0", "5.50", "3.00, 8.00", "1.75 (1.50 to 2.00)", ""])
        self.assertEqual(cells[2][3:], ["100", "70.0", "60.0, 80.0", "", "15.00 (10.00 to 20.00)"])

    def test_models_that_are_asked_for(self):
        self.assertNotIn("mlp512", models.usual("cpu"))
        self.assertEqual(bench.arguments(["--models", "mlp512", "--modes", "torch-mxfp8-torchao"])
                         .modes, ["torch-mxfp8-torchao"])


class DeviceTest(unittest.TestCase):
    def test_rows(self):
        results = {"ada-fp16": compare.Measured([30000.0, 10000.0, 20000.0]),
                   "torch-fp16": compare.Measured([5000.0]),
                   "torch-fp16-graphed": compare.Measured([8000.0])}
        cells = compare.rows("Net", 64, results, 1e9, None)
        self.assertEqual(cells[0], ["Net", "64", "ada-train fp16, adaptive", "20,000",
                                    "10,000, 30,000", "4.00", "2.50", "20.0"])
        self.assertEqual(cells[2][2:], ["PyTorch fp16 autocast, CUDA graph", "8,000",
                                        "8,000, 8,000", "1.60", "1.00", "8.00"])
        self.assertEqual(len(cells[0]), len(compare.CUDA_HEADER))
        alone = compare.rows("Net", 64, {"ada-fp16": compare.Measured([1.0])}, 1e9, None)
        self.assertEqual(alone[0][5:7], ["", ""])

    def test_costs_are_of_the_same_round(self):
        speeds = {costs.BASE: [100.0, 50.0, 200.0], "slow": [80.0, 40.0, 100.0]}
        self.assertEqual(costs.rows("Net", 8, speeds),
                         [["Net", "8", costs.BASE, "100", "base", ""],
                          ["Net", "8", "slow", "80.0", "+25.0", "+25.0, +100.0"]])


class DataTest(unittest.TestCase):
    def test_data_that_are_not_there_are_made_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(machine.os.environ, ADA_DATA=folder):
            text = machine.data_options("configs/gpt2_jargon.yaml")
            self.assertIn("data.dataset=text", text)
            self.assertTrue(pathlib.Path(text[-1].removeprefix("data.path=")).is_file())
            self.assertEqual(machine.data_options(models.RESNET20), ["data.dataset=synthetic"])
            for name in ("jargon", "cifar-10"):
                pathlib.Path(folder, name).mkdir()
            self.assertEqual(machine.data_options("configs/gpt2_jargon.yaml"), text[:1])
            self.assertEqual(machine.data_options(models.RESNET20),
                             ["data.limit={train: 0, test: 256}"])
            with self.assertRaises(SystemExit):
                machine.data_options("configs/segnet_camvid.yaml")


class LoadTest(unittest.TestCase):
    def test_a_busy_machine_is_told(self):
        self.assertEqual(machine.load_warning(0.2), "")
        self.assertIn("load average 3.1", machine.load_warning(3.14))


class ThreadsTest(unittest.TestCase):
    def test_counts(self):
        self.assertEqual([compare.thread_counts(n) for n in (1, 2, 4, 6)],
                         [[1], [1, 2], [1, 2, 4], [1, 2, 4, 6]])

    def test_rows(self):
        self.assertEqual(compare.thread_rows("Net", 8, {"torch-fp32": [10.0, 15.0]}),
                         [["Net", "8", "PyTorch fp32", "10.0", "15.0", "1.50"]])


class OpsTest(unittest.TestCase):
    def test_limits(self):
        for program, least in (("fp16", 1 / 250), ("fp32", 1 / 100), ("onednn", 1 / 100)):
            self.assertAlmostEqual(op_rows.limit_seconds(program, 1e9, 1e6, PEAK), least)
        for peak, program, least in ((PEAK, "bf16", 1 / 1000), (PAIRS, "bf16", 1 / 200),
                                     (PAIRS, "fp16", 1 / 100), (FLOATS, "bf16", 1 / 100)):
            self.assertAlmostEqual(op_rows.limit_seconds(program, 1e9, 1e6, peak), least)
        self.assertAlmostEqual(op_rows.limit_seconds("fp32", 1e9, 1e9, PEAK), 1 / 20)  # by memory

    def test_what_google_benchmark_says(self):
        """The median of the rounds; a data gradient that is measured with the weight gradient."""
        runs = [(part, seconds, "iteration") for part, all_seconds in
                (("weight gradient", (3, 1, 2)), ("both gradients", (5, 9, 4))) for seconds in all_seconds]
        text = json.dumps({"benchmarks": [
            {"label": f"a|2|{part}|fp16", "real_time": seconds * 1e9, "run_type": kind, "flop": 8.0,
             "bytes": 4.0} for part, seconds, kind in [*runs, ("forward", 7, "aggregate")]]})
        self.assertEqual(op_rows.parts_of(text),
                         {("a", "2", "weight gradient", "fp16"): (2.0, 8.0, 4.0),
                          ("a", "2", "data gradient", "fp16"): (3.0, 8.0, 4.0)})

    def test_rows_and_sums(self):
        measured = {("a", "2", "forward", "fp16"): (0.008, 1e9, 0),
                    ("a", "2", "forward", "onednn"): (0.02, 1e9, 0),
                    ("b", "1", "forward", "fp16"): (0.004, 1e9, 0),
                    ("b", "1", "forward", "onednn"): (0.01, 1e9, 0)}
        cells = op_rows.rows(measured, PEAK)
        none = ["", "", ""]
        self.assertEqual(cells[0], ["a", "2", "forward", "8.00", "125", "50 %", *none, *none,
                                    "20.0", "50.0", "50 %", "2.50"])
        self.assertEqual(cells[2], ["all", "3", "forward", "20.0", "150", "60 %", *none, *none,
                                    "50.0", "60.0", "60 %", "2.50"])
        self.assertEqual(len(cells), 3)
        self.assertEqual(len(cells[0]), len(op_rows.HEADER))


class PolicyCostTest(unittest.TestCase):
    def test_backward_over_forward_in_both_orders(self):
        """The backward pass takes 10 % more and is half of the step; one core is twice as fast."""
        class Ada:
            def start(self, config, values, threads, name, core):
                speed = 2.0 if core == min(cores) else 1.0
                factor = 1.1 if "extra" in values else 1.0
                return {"forward": 1 / speed, "backward": factor / speed,
                        "seconds": (1 + factor) / speed}

            def finish(self, started, least):
                return compare_run([started] * least)

        def compare_run(rows):
            return type("Run", (), {"rows": rows})

        cores = {0, 1}
        original = costs.os.sched_getaffinity
        costs.os.sched_getaffinity = lambda _: cores
        try:
            cost = costs.policy_cost(Ada(), "config", [], "extra", "base")
        finally:
            costs.os.sched_getaffinity = original
        self.assertAlmostEqual(cost, 0.1 * 0.5)


if __name__ == "__main__":
    unittest.main()
