"""Updates of bf16 parameters beside torch.optim's own, run here: equal to the bit, states too. Tensors
have whole vectors of torch's kernels, whose last values it rounds otherwise. Needs torch; where this Python has none, the one
that ADA_BENCH_PYTHON names runs these tests."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import safetensors_file  # noqa: E402
import torch_head as head  # noqa: E402

try:
    import numpy as np
    import torch
    import replay_updates_test as updates
except ImportError:
    torch = None

PROGRAM = pathlib.Path(os.environ.get("ADA_BINARY", "build/ada-train")).resolve()
VALUES, STEPS = 32 * 512, 7
NAMES = {"eps": "epsilon"}
# The kind of optimizer.kind, torch's class, and its arguments.
CASES = [("adamw", "AdamW", {"lr": 0.003, "weight_decay": 0.01}),
         ("adamw", "AdamW", {"lr": 0.003, "eps": 1e-4, "amsgrad": True, "weight_decay": 0}),
         ("adam", "Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
         ("rmsprop", "RMSprop", {"lr": 0.01}),
         ("rmsprop", "RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.01}),
         ("nadam", "NAdam", {"lr": 0.002, "eps": 1e-6}),
         ("radam", "RAdam", {"lr": 0.003}),
         ("adagrad", "Adagrad", {"lr": 0.01, "lr_decay": 0.1, "eps": 1e-10}),
         ("adamax", "Adamax", {"lr": 0.002}),
         ("sgd", "SGD", {"lr": 0.1}),
         ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01})]


def keys_of(kind, options):
    keys = {"optimizer.kind": kind, "precision.masters": "bf16", "precision.optimizer_state": "bf16"}
    for name, value in options.items():
        if name == "betas":
            keys |= {"optimizer.beta1": value[0], "optimizer.beta2": value[1]}
        else:
            keys["optimizer." + NAMES.get(name, name)] = value
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in keys.items()]


@head.needs_torch
class Bf16Updates(unittest.TestCase):
    def test_equal_to_the_bit(self):
        draw = np.random.default_rng(4)
        start = updates.bf16((draw.standard_normal(VALUES) * 0.1).astype(np.float32))
        gradients = [updates.bf16(np.ldexp(draw.standard_normal(VALUES), draw.integers(-24, 3, VALUES))
                                  .astype(np.float32)) for _ in range(STEPS)]
        gradients[3][:VALUES // 2] = 0
        for kind, name, options in CASES:
            with self.subTest(kind, **options), tempfile.TemporaryDirectory() as folder:
                given, kept = (pathlib.Path(folder) / name for name in ("in", "out"))
                safetensors_file.write_arrays(given, {"p": start} | {f"g.{t + 1}": g for t, g in enumerate(gradients)})
                done = subprocess.run([PROGRAM, "replay", "--updates", given, "-o", kept, "--set",
                                       *keys_of(kind, options)], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                ours = safetensors_file.arrays(kept)
                parameter = torch.nn.Parameter(torch.from_numpy(start.copy()).bfloat16())
                optimizer = getattr(torch.optim, name)([parameter], **options)
                for t, gradient in enumerate(gradients, 1):
                    parameter.grad = torch.from_numpy(gradient.copy()).bfloat16()
                    optimizer.step()
                    theirs = {key: value for key, value in optimizer.state[parameter].items()
                              if torch.is_tensor(value) and value.numel() == VALUES}
                    for key, value in (theirs | {"p": parameter.detach()}).items():
                        np.testing.assert_array_equal(ours[f"{key}.{t}"], value.float().numpy(), f"{key}.{t}")


OtherPythonTest = head.other_python(__file__, "Bf16Updates")

if __name__ == "__main__":
    unittest.main()
