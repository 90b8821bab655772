"""ada_train.torch.GradScaler: step by step what torch.amp.GradScaler does under preset pytorch, the
recorded traces of other systems' scalers, and their state. Needs torch (ADA_BENCH_PYTHON)."""
import copy
import csv
import math
import pathlib
import pickle
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import native  # noqa: E402

try:
    import torch
    from torch import nn
    from ada_train.torch import GradScaler
except ImportError:
    torch = None
GOLDEN = head.ROOT / "tests" / "golden" / "dynamic"


def trace(system, label):
    lines = (GOLDEN / system / f"{label}.csv").read_text(encoding="utf-8").splitlines()
    params = next(line for line in lines if line.startswith("# params: "))[10:].split()
    return (dict(word.split("=") for word in params),
            list(csv.DictReader(line for line in lines if not line.startswith("#"))))


class Training:
    """One weight, whose gradient is infinite where an overflow is asked for."""

    def __init__(self, scaler):
        self.scaler, self.net = scaler, nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.net.weight.fill_(1.0)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.125)

    def step(self, overflow, clip=None):
        """Whether the weight changed."""
        self.optimizer.zero_grad()
        before = self.net.weight.detach().clone()
        x = torch.tensor([[math.inf if overflow else 1.0, 1.0]])
        self.scaler.scale(self.net(x).sum()).backward()
        if clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.net.parameters(), clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return not torch.equal(before, self.net.weight)


OtherPythonTest = head.other_python(__file__, "ScalerTest")


@head.needs_torch
class ScalerTest(unittest.TestCase):
    def setUp(self):
        try:
            native.library()
        except native.NoLibrary as problem:
            self.skipTest(str(problem))

    def test_as_torch_step_by_step(self):
        keys = {"init_scale": 1024.0, "growth_interval": 3}
        ours = Training(GradScaler("cpu", preset="pytorch", **keys))
        theirs = Training(torch.amp.GradScaler("cpu", **keys))
        for i in range(40):
            overflow, clip = i % 7 == 5 or 20 <= i < 23, 0.5 if i % 2 else None
            self.assertEqual(ours.step(overflow, clip), theirs.step(overflow, clip))
            self.assertEqual(ours.scaler.get_scale(), theirs.scaler.get_scale())
            self.assertTrue(torch.equal(ours.net.weight, theirs.net.weight))
            state = ours.scaler.state_dict()
            for key, value in theirs.scaler.state_dict().items():
                self.assertEqual(state[key], value, key)
            if i == 10:  # a pickled copy goes on
                ours.scaler = pickle.loads(pickle.dumps(ours.scaler))

    def test_scales_beyond_fp32_overflow(self):
        """A scale that is a double grows on; what it multiplies is inf, so that it falls again."""
        for preset, largest in (("mindspore", 2.0 ** 128), ("pytorch", 2.0 ** 127)):
            with self.subTest(preset):
                training = Training(GradScaler("cpu", preset=preset, init_scale=2.0 ** 126,
                                               growth_interval=1))
                scale, clean = 2.0 ** 126, []
                for _ in range(8):
                    self.assertEqual(training.scaler.get_scale(), scale)
                    training.net.weight.data.fill_(2.0 ** -100)
                    clean.append(training.step(False))
                    scale = min(scale * 2, largest) if scale < 2.0 ** 128 else scale / 2
                    if clean[-1]:
                        again = GradScaler("cpu", preset=preset, growth_interval=1)
                        again.load_state_dict(training.scaler.state_dict())
                        training.scaler = again
                self.assertEqual(all(clean), preset == "pytorch")

    def test_recorded_systems(self):
        for system, label, keys in (
                ("deepspeed", "consecutive", {"consecutive_hysteresis": True,
                                              "growth_interval": 7}),
                ("apex", "w7", {}), ("mxnet", "w7", {}), ("chainer", "w10", {})):
            if not (GOLDEN / system / f"{label}.csv").exists():
                label = sorted(path.stem for path in (GOLDEN / system).glob("w*.csv"))[0]
            given, rows = trace(system, label)
            for name, key in (("init_scale", "init_scale"), ("scale_window", "growth_interval"),
                              ("_scale_seq_len", "growth_interval"), ("_loss_scale", "init_scale"),
                              ("interval", "growth_interval"), ("loss_scale", "init_scale")):
                if name in given:
                    value = float(given[name])
                    keys[key] = int(value) if key == "growth_interval" else value
            with self.subTest(system=system, trace=label):
                training = Training(GradScaler("cpu", preset=system, **keys))
                for row in rows[:300]:
                    self.assertEqual(training.scaler.get_scale(), float(row["scale"]))
                    if row["error"]:
                        break
                    changed = training.step(row["overflow"] == "1")
                    self.assertEqual(changed, row["skipped"] == "0")
                    self.assertEqual(training.scaler.get_scale(), float(row["scale_after"]))

    def test_marian_repairs_at_its_floor(self):
        training = Training(GradScaler("cpu", preset="marian"))
        self.assertTrue(training.step(True))
        self.assertTrue(bool(torch.isfinite(training.net.weight).all()))
        self.assertEqual(training.scaler.get_scale(), 8.0)

    def test_nnabla_counts_its_tries(self):
        training = Training(GradScaler("cpu", preset="nnabla"))
        training.step(True)
        training.step(True)
        self.assertEqual((training.scaler.retries, training.scaler.get_scale()), (2, 2.0))
        training.step(False)
        self.assertEqual(training.scaler.retries, 0)

    def test_deepspeed_ends_the_training(self):
        training = Training(GradScaler("cpu", preset="deepspeed", init_scale=1.0))
        training.step(True)
        with self.assertRaisesRegex(native.PolicyEnd, "minimum|floor|min"):
            training.step(True)

    def test_states(self):
        one = Training(GradScaler("cpu", preset="megatron", growth_interval=3))
        for overflow in (False, True, False, True, False):
            one.step(overflow)
        two = Training(GradScaler("cpu", preset="megatron", growth_interval=3))
        two.scaler.load_state_dict(copy.deepcopy(one.scaler.state_dict()))
        for overflow in (False, False, True, False, False, False):
            one.step(overflow)
            two.step(overflow)
            self.assertEqual(one.scaler.state_dict(), two.scaler.state_dict())
        theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
        trained = Training(theirs)
        for _ in range(3):
            trained.step(False)
        ours = Training(GradScaler("cpu", preset="pytorch"))
        ours.scaler.load_state_dict(theirs.state_dict())
        for _ in range(3):
            trained.step(False)
            ours.step(False)
            self.assertEqual(ours.scaler.get_scale(), theirs.get_scale())
        other = GradScaler("cpu", preset="apex")
        with self.assertWarnsRegex(UserWarning, "preset megatron, and the scaler's is apex"):
            other.load_state_dict(one.scaler.state_dict())
        self.assertEqual(other.get_scale(), one.scaler.get_scale())

    def test_setters_and_a_new_scale(self):
        training = Training(GradScaler("cpu", init_scale=4.0))
        training.scaler.set_growth_interval(2)
        training.scaler.set_growth_factor(4.0)
        training.scaler.set_backoff_factor(0.25)
        training.step(False)
        training.step(False)
        self.assertEqual(training.scaler.get_scale(), 16.0)
        training.step(True)
        self.assertEqual(training.scaler.get_scale(), 4.0)
        training.optimizer.zero_grad()
        training.scaler.scale(training.net(torch.ones(1, 2)).sum()).backward()
        training.scaler.step(training.optimizer)
        training.scaler.update(new_scale=24.0)
        self.assertEqual(training.scaler.get_scale(), 24.0)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(native.PolicyError, "preset: expected one of pytorch"):
            GradScaler("cpu", preset="pytorh")
        with self.assertRaisesRegex(native.PolicyError, "hysteresis"):
            GradScaler("cpu", preset="pytorch", hysteresis=3)
        off = Training(GradScaler("cpu", enabled=False))
        self.assertTrue(off.step(False))
        self.assertEqual(off.scaler.state_dict(), {})


if __name__ == "__main__":
    unittest.main()
