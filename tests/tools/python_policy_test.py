"""A policy that is a Python function: ada_train.torch.AdaLossScaled(policy=function) gives it the
statistics that torch computes too, multiplies by what it returns, and refuses what is no scale.
Needs torch (ADA_BENCH_PYTHON)."""
import copy
import math
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402  (beside this file)
from ada_train import native  # noqa: E402

try:
    import torch
    from ada_train.torch import AdaLossScaled, Policy, Scale
    from torch import nn
except ImportError:
    torch = None
OtherPythonTest = head.other_python(__file__, "PolicyTest")
LAYERS = ("0", "2", "4")


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def batch():
    torch.manual_seed(2)
    return torch.randn(32, 8, requires_grad=True), torch.randint(0, 4, (32,))


def gradients(model, policy=None, **options):
    """(gradients of the parameters, the scaled model), of one step."""
    x, labels = batch()
    scaled = model if policy is None else AdaLossScaled(model, policy=policy, **options)
    loss = nn.functional.cross_entropy(scaled(x), labels)
    (loss if policy is None else scaled.scale(loss)).backward()
    return [p.grad.clone() for p in scaled.parameters()], scaled


class Counting:
    """Alpha 2 in the first call, 4 in the second, and so on: a function with a state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, seen):
        self.calls += 1
        return 2.0 ** self.calls

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


@unittest.skipIf(torch is None, "torch is missing")
class PolicyTest(unittest.TestCase):
    def test_gradients_are_those_without_a_scale_and_scales_are_the_products_of_alphas(self):
        plain, _ = gradients(network())
        alphas = {"4": 8.0, "2": 0.5, "0": 32.0}
        found, scaled = gradients(network(), Policy(lambda seen: alphas[seen.layer], init_scale=4))
        for one, other in zip(plain, found):
            self.assertTrue(torch.equal(one, other))
        at = 4.0
        for row in scaled.decisions:
            self.assertEqual(row["scale_in"], at)
            at *= alphas[row["layer"]]
            self.assertEqual((row["alpha"], row["scale_out"]), (alphas[row["layer"]], at))
        self.assertEqual([row["layer"] for row in scaled.decisions], ["4", "2", "0"])

    def test_statistics_are_those_of_torch(self):
        model, tensors, seen = network(), {}, {}
        for name in LAYERS:
            model[int(name)].register_full_backward_hook(
                lambda module, _, dy, name=name: tensors.update({name: dy[0].double()}))
        gradients(model)
        model = network()
        weights = {name: model[int(name)].weight.detach().double() for name in LAYERS}

        def keep(one):
            seen[one.layer] = one
            return 2.0
        gradients(model, Policy(keep, needs=["moments", "logs", "products"]))
        for name in LAYERS:
            one = seen[name]
            dy = tensors[name] * one.scale_in
            for found, of in ((one.dy, dy), (one.w, weights[name])):
                self.assertEqual((found.min, found.max), (of.min().item(), of.max().item()))
                self.assertEqual(found.min_abs, of[of != 0].abs().min().item())
                self.assertAlmostEqual(found.mean, of.mean().item(), delta=1e-6 * found.largest)
                self.assertAlmostEqual(found.std, of.std(correction=0).item(), delta=1e-5 * found.std)
            logs = dy[dy != 0].abs().log()
            self.assertAlmostEqual(one.log_mean, logs.mean().item(), places=3)
            products = (dy[:, :, None] * weights[name][None]).abs()
            self.assertAlmostEqual(one.product_max / products.max().item(), 1, places=5)
            self.assertEqual((one.fan_in, one.step), (model[int(name)].out_features, 0))
        self.assertEqual(seen["2"].scale_in, 2 * seen["4"].scale_in)

    def test_a_function_may_name_the_scale_itself(self):
        plain, _ = gradients(network())
        found, scaled = gradients(network(), lambda seen: Scale(1024))
        self.assertEqual({row["scale_out"] for row in scaled.decisions}, {1024.0})
        for one, other in zip(plain, found):
            self.assertTrue(torch.equal(one, other))

    def test_it_saves_what_would_underflow(self):
        tiny = 2.0 ** -20  # times a gradient: below the smallest number of fp8_e5m2

        def step(policy):
            x, labels = batch()
            scaled = AdaLossScaled(network(), policy=policy, format="fp8_e5m2")
            scaled.scale(nn.functional.cross_entropy(scaled(x), labels) * tiny).backward()
            return scaled.module[0].weight.grad.abs().sum().item()
        self.assertEqual(step({"policy": "none"}), 0)
        self.assertGreater(step(Policy(lambda seen: Scale(2.0 ** 22), init_scale=2.0 ** 22)), 0)

    def test_what_is_no_scale_is_refused_by_name(self):
        for given, words in ((math.nan, "above 0"), (0, "above 0"), (-2.0, "above 0"),
                             (math.inf, "above 0"), (3.0, "power of two"), ("x", "a number"),
                             (None, "a number"), (2.0 ** 127, "no normal number"),
                             (Scale(math.nan), "above 0")):
            with self.subTest(given):
                with self.assertRaisesRegex(native.PolicyError, words) as caught:
                    gradients(network(), Policy(lambda seen, given=given: given, init_scale=4))
                self.assertIn("<lambda>: 4: ", str(caught.exception))
        for made, words in ((lambda: Policy(3), "is no function"),
                            (lambda: Policy(len, needs=["dx"]), "expected a list of moments"),
                            (lambda: Policy(len, method="exact_range"), "take their place|takes"),
                            (lambda: Policy(len, upper=1), "upper")):
            with self.assertRaisesRegex(native.PolicyError, words):
                made()

    def test_other_numbers_where_they_are_asked_for(self):
        plain, _ = gradients(network())
        found, scaled = gradients(network(), Policy(lambda seen: 3.0, power_of_two=False))
        self.assertEqual({row["alpha"] for row in scaled.decisions}, {3.0})
        for one, other in zip(plain, found):
            self.assertTrue(torch.allclose(one, other, rtol=1e-5, atol=1e-8))

    def test_statistics_that_were_not_asked_for_say_so(self):
        with self.assertRaisesRegex(AttributeError, "needs=.*'logs'"):
            gradients(network(), lambda seen: 2.0 ** round(seen.log_mean))

    def test_an_error_of_the_function_is_the_users(self):
        with self.assertRaises(ZeroDivisionError):
            gradients(network(), lambda seen: 1 / 0)

    def test_state_goes_into_checkpoints_and_copies(self):
        _, scaled = gradients(network(), Counting())
        state = scaled.scaling_state()
        again = AdaLossScaled(network(), policy=Counting())
        again.load_scaling_state(state)
        x, labels = batch()
        again.scale(nn.functional.cross_entropy(again(x), labels)).backward()
        self.assertEqual([row["alpha"] for row in again.decisions], [16.0, 32.0, 64.0])
        with self.assertRaisesRegex(native.PolicyError, "policy python"):
            AdaLossScaled(network(), policy={}).load_scaling_state(state)
        self.assertEqual(copy.deepcopy(Policy(Counting())).called, "Counting")

    def test_its_rows_stand_in_a_recorded_run(self):
        with tempfile.TemporaryDirectory() as folder:
            x, labels = batch()
            scaled = AdaLossScaled(network(), policy=lambda seen: 4.0, folder=folder + "/run", every=1)
            optimizer = torch.optim.SGD(scaled.parameters(), 0.1)
            scaled.scale(nn.functional.cross_entropy(scaled(x), labels)).backward()
            scaled.step(optimizer)
            scaled.close()
            rows = (pathlib.Path(folder) / "run/scales.csv").read_text().splitlines()
            self.assertIn("1,1,4,python,1.0,4.0,4.0,4.0,4.0,4.0,target", rows)
            config = (pathlib.Path(folder) / "run/config.yaml").read_text()
            self.assertIn("alpha is what the Python function", config)


if __name__ == "__main__":
    unittest.main()
