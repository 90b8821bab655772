"""torchvision's networks as tools/from_torch.py wrote them, on weights from a formula: logits, loss,
sums of gradients and running statistics of one step are PyTorch's (golden/models). Where torch is
installed the networks are written anew and compared; ADA_GOLDEN_VISION names a folder with the
recordings of ten networks, all of which are then tried, as ADA_SLOW=1 asks for."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.program_case import rows_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/models"
BINARY = os.environ.get("ADA_BINARY")
TORCH = os.environ.get("ADA_BENCH_PYTHON", sys.executable)
sys.path.insert(0, str(ROOT / "tests/tools"))
try:
    import numpy
    import network_step
except ImportError:
    numpy = None

LOSS = 10  # times the noise of PyTorch's own fp32 run
SUMS = 3
# The column of models.csv is the noise of one run of PyTorch, in which another relu near zero may
# have turned than in ours. The recordings' page gives 2e-3 for this network's family.
FAMILY = {"vgg19_bn": 2e-3}


def has_torch():
    try:
        probe = subprocess.run([TORCH, "-c", "import torch, torchvision, yaml, safetensors"],
                               capture_output=True, check=False)
    except OSError:
        return False
    return probe.returncode == 0


def write_network(name, size, folder):
    """net.yaml by the command; dropout as recorded."""
    more = {"googlenet": ["init_weights=False", "aux_logits=False", "dropout=0"],
            "inception_v3": ["init_weights=False", "aux_logits=False", "dropout=0"],
            "mobilenet_v2": ["dropout=0"], "squeezenet1_1": ["dropout=0"],
            "vgg19": ["dropout=0"], "vgg19_bn": ["dropout=0"]}.get(name, [])
    arguments = [word for item in more for word in ("--arg", item)]
    subprocess.run([TORCH, str(ROOT / "tools/from_torch.py"), f"torchvision.models:{name}",
                    *arguments, "--input", f"3x{size}x{size}", "--output", folder, "--no-weights"],
                   check=True, capture_output=True)
    return pathlib.Path(folder, "net.yaml")


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
@unittest.skipIf(numpy is None, "numpy is missing")
class GoldenModels(unittest.TestCase):
    def compare(self, name, golden, net, folder):
        facts = next(row for row in rows_of(golden / "models.csv") if row["model"] == name)
        table = rows_of(golden / f"{name}.csv")
        batch, size = int(facts["batch"]), int(facts["H"])
        logits = network_step.Tensors(golden / f"{name}.safetensors")
        # The seed of the formula; recordings of others than 0 have it in their labels.
        seed = int(logits["labels"][0] - 7) % 1000 if "labels" in logits else 0
        images = 1.5 * network_step.formula(batch * 3 * size * size, 100000, seed)
        labels = [(7 + 331 * n + seed) % 1000 for n in range(batch)]
        network_step.write_images(f"{folder}/images.safetensors",
                                  images.astype(numpy.float32).reshape(batch, 3, size, size), labels)
        weights = {}
        for row in table:
            shape = [int(n) for n in row["shape"].split("x")]
            weights[row["parameter"]] = network_step.formula_parameter(
                int(row["p"]), row["kind"], shape, seed)
            if row["kind"] == "gamma":
                layer = row["parameter"].removesuffix(".weight")
                weights[f"{layer}.running_mean"] = numpy.zeros(shape, numpy.float32)
                weights[f"{layer}.running_var"] = numpy.ones(shape, numpy.float32)
        network_step.write_arrays(f"{folder}/weights.safetensors", weights)
        layers = [line for line in net.read_text().splitlines() if "{name: " in line]
        last = layers[-1].split("{name: ", 1)[1].split(",")[0]
        pathlib.Path(folder, "step.yaml").write_text(network_step.configuration(
            net, "weights.safetensors", "images.safetensors", batch,
            network_step.STEP.format(last=last)))
        self.compare_logits(network_step.outputs(BINARY, folder, "step.yaml"),
                            logits["logits_eval"], 1e-4)
        step = network_step.Step(BINARY, folder, "step.yaml")
        true_loss = float(facts["loss_fp64"])
        noise = abs(float(facts["loss_fp32"]) - true_loss) + 1e-7 * true_loss
        self.assertLessEqual(abs(step.loss - true_loss), LOSS * noise)
        largest = float(abs(logits["logits"]).max())
        self.compare_logits(step.dump[f"{last}.y"].reshape(batch, -1), logits["logits"],
                            LOSS * float(facts["logits_max_diff_fp32"]) / largest + 1e-6)
        noise = max(float(facts["grad_l1_worst_rel_fp32"]), FAMILY.get(name, 0))
        self.compare_gradients(step, table, noise, seed)
        if (golden / f"{name}_running.csv").exists():
            self.compare_statistics(step, rows_of(golden / f"{name}_running.csv"))

    def compare_logits(self, ours, theirs, tolerance):
        ours = ours[:, :theirs.shape[1]]
        self.assertLessEqual(float(abs(ours - theirs).max()),
                             tolerance * float(abs(theirs).max()))

    def compare_gradients(self, step, table, noise, seed):
        tolerance = SUMS * noise + 1e-6
        for row in table:
            gradient = step.gradient(row["parameter"]).astype(numpy.float64).ravel()
            total = float(row["grad_abs_sum"])
            if total <= 1e-9 * gradient.size:  # a shift that the next batch norm takes out again
                continue
            with self.subTest(parameter=row["parameter"]):
                self.assertLessEqual(abs(abs(gradient).sum() - total), tolerance * total)
                signs = network_step.formula(gradient.size, int(row["p"]), seed + 1)
                self.assertLessEqual(abs(gradient @ signs - float(row["grad_projection"])),
                                     tolerance * total)

    def compare_statistics(self, step, table):
        for row in table:
            with self.subTest(layer=row["batchnorm"]):
                mean = step.tensors[row["batchnorm"] + ".running_mean"].astype(numpy.float64)
                var = step.tensors[row["batchnorm"] + ".running_var"].astype(numpy.float64)
                for ours, theirs in ((abs(mean).sum(), row["mean_abs_sum"]),
                                     (var.sum(), row["var_sum"]), (var[0], row["var_first"])):
                    self.assertLessEqual(abs(ours - float(theirs)), 2e-3 * float(theirs))

    def test_squeezenet(self):
        with tempfile.TemporaryDirectory() as folder:
            self.compare("squeezenet1_1", GOLDEN, GOLDEN / "squeezenet1_1.yaml", folder)

    def test_mobilenet(self):
        with tempfile.TemporaryDirectory() as folder:
            self.compare("mobilenet_v2", GOLDEN, GOLDEN / "mobilenet_v2.yaml", folder)

    @unittest.skipUnless(has_torch(), "torch, torchvision, safetensors or PyYAML are missing")
    def test_networks_are_what_the_command_writes(self):
        for name in ("squeezenet1_1", "mobilenet_v2"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(write_network(name, 64, folder).read_text(),
                                 (GOLDEN / f"{name}.yaml").read_text())

    @unittest.skipUnless(os.environ.get("ADA_SLOW") and os.environ.get("ADA_GOLDEN_VISION"),
                         "ADA_SLOW=1, and ADA_GOLDEN_VISION with the recordings of ten networks")
    @unittest.skipUnless(has_torch(), "torch, torchvision, safetensors or PyYAML are missing")
    def test_ten_networks(self):
        golden = pathlib.Path(os.environ["ADA_GOLDEN_VISION"]) / "models"
        for row in rows_of(golden / "models.csv"):
            with self.subTest(row["model"]), tempfile.TemporaryDirectory() as folder:
                net = write_network(row["model"], row["H"], folder)
                self.compare(row["model"], golden, net, folder)


if __name__ == "__main__":
    unittest.main()
