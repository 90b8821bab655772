"""`ada-train replay --updates` against recordings of optimizers (../shared/golden/practice/optimizers:
torch, lion-pytorch, torch-optimi, pytorch-optimizer, torchao, bitsandbytes, Transformer Engine), within
the tolerances of their README. Needs numpy; the recordings may be missing."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tests.tools.safetensors_file import arrays, write_arrays

try:
    import numpy as np
except ImportError:
    np = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("ADA_BINARY", ROOT / "build/ada-train")).resolve()
SHARED = pathlib.Path(os.environ.get("ADA_SHARED", ROOT.parent / "shared"))
RECORDED = SHARED / "golden/practice/optimizers"
STEPS = 20
KINDS = {"Muon": "muon", "AdamW": "adamw", "Adafactor": "adafactor", "RMSprop": "rmsprop",
         "NAdam": "nadam", "RAdam": "radam", "Adagrad": "adagrad", "Adamax": "adamax", "SGD": "sgd",
         "Lion": "lion", "ScheduleFreeAdamW": "schedule_free", "AdamW8bit": "adamw",
         "AdamW4bit": "adamw", "AdamWFp8": "adamw", "Lion8bit": "lion", "SGD8bit": "sgd",
         "FusedAdam": "adamw", "StableAdamW": "stable_adamw", "ADOPT": "adopt",
         "AdEMAMix": "ademamix", "Lamb": "lamb"}
KEYS = {"adjust_lr_fn": "adjust_lr", "eps": "epsilon"}
LAYOUTS = {"AdamW8bit": "torchao_8bit", "AdamW4bit": "torchao_4bit", "AdamWFp8": "torchao_fp8"}
PLAIN = {"fp32": None, "bf16": "bf16", "fp16": "fp16", "fp8": "fp8_e4m3"}


def bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def wide(values):
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def keys_of(case):
    """The keys of a case, as --set takes them."""
    options, name, system = json.loads(case["options"]), case["optimizer"], case["system"]
    keys = {"optimizer.kind": KINDS[name]}
    optimi, bits = system.startswith("torch-optimi"), system.startswith("bitsandbytes")
    if optimi and name != "StableAdamW":
        keys["optimizer.weight_decay"] = 0
        if name == "AdamW":
            keys |= {"optimizer.beta2": 0.99, "optimizer.epsilon": 1e-6}
    if bits and name == "AdamW8bit":
        keys["optimizer.weight_decay"] = 0.01
    for key, value in options.items():
        if key == "betas":
            keys["optimizer.beta1"], keys["optimizer.beta2"] = value
        elif key not in ("kahan_sum", "warmup_steps", "adam_w_mode", "exp_avg_dtype",
                         "exp_avg_sq_dtype", "store_param_remainders"):
            keys["optimizer." + KEYS.get(key, key)] = value
    layout = "bitsandbytes_8bit" if bits else LAYOUTS.get(name)
    if layout:
        keys["precision.optimizer_state"] = layout
    if case["dtype"] == "bf16" and name != "FusedAdam":
        keys["precision.masters.format"] = "bf16"
        if not layout:
            keys["precision.optimizer_state"] = "bf16"
    if optimi and case["dtype"] == "bf16":
        keys |= ({"precision.masters.compensation": "kahan"} if options.get("kahan_sum")
                 else {"precision.masters.arithmetic": "optimi"})
    if name == "FusedAdam":
        keys |= fused_keys(options)
    return keys


def fused_keys(options):
    first, second = PLAIN[options["exp_avg_dtype"]], PLAIN[options["exp_avg_sq_dtype"]]
    keys = {} if options["adam_w_mode"] else {"optimizer.kind": "adam"}
    state = {name: kind for name, kind in (("exp_avg", first), ("exp_avg_sq", second)) if kind}
    if {"fp16", "fp8_e4m3"} & set(state.values()):
        state["scaling"] = "tensor"
    if state:
        keys["precision.optimizer_state"] = "{" + ", ".join(f"{k}: {v}" for k, v in state.items()) + "}"
    if options["store_param_remainders"]:
        keys["precision.masters"] = "{format: bf16, compensation: remainder}"
    return keys


@unittest.skipUnless(np, "numpy is missing")
@unittest.skipUnless(RECORDED.is_dir(), f"{RECORDED} is missing")
class RecordedUpdatesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data, cls.truth = arrays(RECORDED / "data.safetensors"), arrays(RECORDED / "cases.safetensors")
        lines = (RECORDED / "cases.csv").read_text().splitlines()
        cls.cases = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def gradient(self, case, step):
        big = case["data"] == "big" and "zero at step 4" not in case["note"]
        of = self.data["coef_big" if big else "coef"][step - 1].astype(np.int64)
        sums = np.tensordot(of, self.data[case["data"] + ".G"].astype(np.int64), 1)
        exponents = self.data[case["data"] + ".e"].astype(np.int32)
        values = np.ldexp(sums.astype(np.float32), exponents).astype(np.float32)
        return bf16(values) if case["dtype"] == "bf16" else values

    def run_case(self, case):
        start = self.data[case["data"] + ".p"]
        tensors = {"p": bf16(start) if case["dtype"] == "bf16" else start}
        tensors |= {f"g.{t}": self.gradient(case, t) for t in range(1, STEPS + 1)}
        given, kept = (pathlib.Path(self.folder.name) / name for name in ("in", "out"))
        write_arrays(given, tensors)
        keys = [f"{key}={value if isinstance(value, str) else json.dumps(value)}"
                for key, value in keys_of(case).items()]
        result = subprocess.run([PROGRAM, "replay", "--updates", given, "-o", kept, "--csv", "--set",
                                 *keys], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return arrays(kept)

    def test_recordings(self):
        for case in self.cases:
            with self.subTest(case["case"], system=case["system"], optimizer=case["optimizer"],
                              options=case["options"], data=case["data"], dtype=case["dtype"]):
                ours = self.run_case(case)
                for step in map(int, case["steps"].split()):
                    self.compare(case, ours, step)

    def compare(self, case, ours, step):
        theirs = {name[len(case["case"]) + 1:]: values for name, values in self.truth.items()
                  if name.startswith(case["case"] + ".") and name.endswith(f".{step}")}
        rate = json.loads(case["options"])["lr"]
        name, system = case["optimizer"], case["system"]
        if f"p.{step}" in theirs:
            self.compare_parameter(case, ours, theirs, step, rate)
        if "the nearest" in case["note"] and "not the nearest" in case["note"]:
            return  # the codes of the CPU kernel are not the nearest
        pairs = {"state1": "exp_avg_codes" if name != "SGD8bit" else "momentum_buffer_codes",
                 "state2": "exp_avg_sq_codes"}
        for state, values in theirs.items():
            state = state.rsplit(".", 1)[0]
            if not state.endswith("_codes") and state not in pairs:
                continue
            mine = ours[f"{pairs.get(state, state)}.{step}"]
            equal = (mine == values.reshape(mine.shape)).mean()
            self.assertGreaterEqual(equal, 0.999, f"{state} at step {step}")
        if system.startswith("torch-optimi") and case["dtype"] == "bf16":
            for state in case["states"].split():
                self.assertGreaterEqual(
                    (self.state(ours, state, step, name) == wide(theirs[f"{state}.{step}"])).mean(),
                    0.97, f"{state} at step {step}")

    @staticmethod
    def state(ours, state, step, name):
        return ours[f"{'momentum_buffer' if name == 'SGD' and state == 'exp_avg' else state}.{step}"]

    def compare_parameter(self, case, ours, theirs, step, rate):
        name, system = case["optimizer"], case["system"]
        want, got = wide(theirs[f"p.{step}"]), ours[f"p.{step}"]
        apart = np.abs(got.astype(np.float64) - want)
        equal = (got == want).mean()
        at = f"p at step {step}"
        bf = case["dtype"] == "bf16"
        if name == "Muon":
            rows, columns = want.shape
            factor = {"match_rms_adamw": 0.2 * max(rows, columns) ** 0.5,
                      "spectral_unclamped": (rows / columns) ** 0.5}.get(
                          json.loads(case["options"]).get("adjust_lr_fn"),
                          max(1, rows / columns) ** 0.5)
            if not bf:
                self.assertLessEqual(apart.max(), 0.03 * rate * factor * step, at)
            elif step == 1:
                self.assertGreaterEqual(equal, 0.85, at)
            elif step == STEPS:
                self.assertLessEqual(apart.max(), 0.2 * rate + np.abs(want).max() * 2 ** -7, at)
        elif system.startswith("torch-optimi") and bf:
            self.assertEqual(equal, 1, at)
        elif name == "FusedAdam":
            options = json.loads(case["options"])
            if f"remainder.{step}" in theirs:
                # The weight and its low bits are the fp32 master.
                want = self.master(theirs, step, wide)
                got = self.master(ours, step, lambda p: p)
                apart = np.abs(got.astype(np.float64) - want)
            elif f"master.{step}" in theirs:
                apart = np.abs(got.astype(np.float64) - theirs[f"master.{step}"])
            few = "bf16" in (options["exp_avg_dtype"], options["exp_avg_sq_dtype"])
            self.assertLessEqual(apart.max(), (0.03 if few else 2e-3) * rate, at)
        elif system.startswith(("torchao", "bitsandbytes")) and "_codes" in case["states"] + (
                "_codes" if system.startswith("bits") else ""):
            self.assertLessEqual(apart.max(), rate + (np.abs(want).max() * 2 ** -7 if bf else 0), at)
        elif system.startswith("pytorch-optimizer") or name == "StableAdamW":
            self.assertLessEqual(apart.max(), 1e-3 * rate, at)
        elif bf:
            # One step of bf16 where they are not equal.
            self.assertGreaterEqual(equal, 0.99, at)
            self.assertLessEqual((apart / np.maximum(np.abs(want), 2.0 ** -126)).max(), 2 ** -6, at)
        else:
            self.assertLessEqual(apart.max(), 2e-4 * rate, at)

    @staticmethod
    def master(tensors, step, values):
        high = values(tensors[f"p.{step}"]).astype(np.float32).view(np.uint32) >> 16
        low = tensors[f"remainder.{step}"].view(np.uint16).astype(np.uint32)
        return (((high - (low >> 15)) << 16) | low).astype(np.uint32).view(np.float32)

    def test_newton_schulz(self):
        """A first step without momentum, nesterov and decay is the iteration alone."""
        for name in sorted(self.truth):
            if not name.startswith("ns") or not name.endswith(".bf16"):
                continue
            matrix = self.truth[name[:-5] + ".in"]
            steps = name.split("steps")[1].split(".")[0]
            with self.subTest(name):
                given, kept = (pathlib.Path(self.folder.name) / part for part in ("in", "out"))
                write_arrays(given, {"p": np.zeros_like(matrix), "g.1": matrix})
                keys = {"kind": "muon", "momentum": 0, "nesterov": "false", "weight_decay": 0, "lr": 1,
                        "ns_steps": steps}
                rows, columns = matrix.shape
                result = subprocess.run(
                    [PROGRAM, "replay", "--updates", given, "-o", kept, "--set",
                     *[f"optimizer.{key}={value}" for key, value in keys.items()]],
                    capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                ours = -arrays(kept)["p.1"] / max(1, rows / columns) ** 0.5
                apart = np.abs(ours - wide(self.truth[name])).max()
                # One step of bf16 of an element, and what is amplified on a matrix of rank 2.
                self.assertLessEqual(apart, 0.33 if "rank2" in name else 0.02)

    def test_what_newton_schulz_loses(self):
        """Rows `ns` beside a count of NumPy's: each rounding of the iteration in fp16."""
        draw = np.random.default_rng(3)
        for shape in ((12, 9), (9, 14)):
            matrix = np.ldexp(draw.standard_normal(shape), draw.integers(-26, 2, shape))
            counted = []

            def fp16(values, counts=counted):
                near = values.astype(np.float16).astype(np.float32)
                counts.append((values.size, ((values != 0) & (near == 0)).sum()))
                return near

            def product(a, b):
                """Four sums, of every fourth term."""
                whole, sums = a.shape[1] // 4 * 4, [np.zeros((len(a), b.shape[1]), np.float32)] * 4
                for t in range(a.shape[1]):
                    at = t % 4 if t < whole else 0
                    sums[at] = sums[at] + a[:, t:t + 1] * b[t:t + 1]
                return sums[0] + sums[1] + sums[2] + sums[3]

            def fused(factor, x, y):
                return (np.float64(np.float32(factor)) * x + y).astype(np.float32)
            x = fp16(matrix.astype(np.float32))
            x = x.T if shape[0] > shape[1] else x
            x = fp16(x / np.float16(np.sqrt((x.astype(np.float64) ** 2).sum())).astype(np.float32))
            for _ in range(2):
                gram = fp16(x @ x.T)
                poly = fp16(fused(-4.775, gram, np.float32(2.0315) * product(gram, gram)))
                x = fp16(fused(3.4445, x, product(poly, x)))
            given = pathlib.Path(self.folder.name) / "in"
            write_arrays(given, {"p": np.zeros(shape, np.float32), "g.1": matrix.astype(np.float32)})
            done = subprocess.run(
                [PROGRAM, "replay", "--updates", given, "--csv", "--set", "optimizer={kind: muon, "
                 "momentum: 0, nesterov: false, ns_steps: 2, ns_format: fp16}"],
                capture_output=True, text=True, check=True)
            (row,) = [row for row in csv.DictReader(done.stdout.splitlines()) if row["tensor"] == "ns"]
            self.assertEqual(row["format"], "fp16")
            self.assertEqual(int(row["numel"]), sum(n for n, _ in counted))
            self.assertGreater(int(row["underflow"]), 0)
            self.assertEqual(int(row["underflow"]), sum(n for _, n in counted))

    @staticmethod
    def accumulated(a, b, group, bits, promote=0):
        """a b^T as configs/ACCUMULATORS.md has it: aligned, cut, summed exactly, cut to fp32."""
        out = np.zeros((len(a), len(b)), np.float32)
        for at in np.ndindex(out.shape):
            main, c = np.float32(0), 0.0
            x, y = a[at[0]].astype(np.float64), b[at[1]].astype(np.float64)
            exponents = [np.maximum(np.frexp(v)[1] - 1, -126) for v in (x, y)]
            for first in range(0, len(x), group):
                part = slice(first, first + group)
                products = x[part] * y[part]
                top = max([-126] + [e for p, e in zip(products, (exponents[0] + exponents[1])[part]) if p] +
                          ([int(np.frexp(c)[1]) - 1] if c else []))
                unit = 2.0 ** (top - bits)
                exact = (np.trunc(products / unit).sum() + np.trunc(c / unit)) * unit
                step = 2.0 ** (max(int(np.frexp(exact)[1]) - 1, -126) - 23)
                c = np.trunc(exact / step) * step
                if promote and (first + group) % promote == 0:
                    main, c = np.float32(main + np.float32(c)), 0.0
            out[at] = np.float32(main + np.float32(c))
        return out

    def test_accumulators_of_newton_schulz(self):
        """`precision.accumulate: {ns: ...}` beside NumPy, in bf16."""
        draw = np.random.default_rng(8)
        rules = {"hopper_f32": (16, 25, 0), "{group: 4, fraction_bits: 9, accumulator: fp32, promote: 8}": (4, 9, 8)}
        for shape in ((18, 9), (20, 37)):
            matrix = draw.standard_normal(shape).astype(np.float32)
            for rule, (group, bits, promote) in rules.items():
                def product(a, b, group=group, bits=bits, promote=promote):
                    return self.accumulated(a, b, group, bits, promote)

                def fused(factor, x, y):
                    return bf16((np.float64(np.float32(factor)) * x + y).astype(np.float32))
                x = bf16(matrix)
                x = np.ascontiguousarray(x.T) if shape[0] > shape[1] else x
                x = bf16(x / bf16(np.sqrt((x.astype(np.float64) ** 2).sum()).astype(np.float32)))
                for _ in range(2):
                    gram = bf16(product(x, x))
                    poly = fused(-4.775, gram, np.float32(2.0315) * product(gram, gram))
                    x = fused(3.4445, x, product(poly, np.ascontiguousarray(x.T)))
                given, kept = (pathlib.Path(self.folder.name) / part for part in ("in", "out"))
                write_arrays(given, {"p": np.zeros(shape, np.float32), "g.1": matrix})
                done = subprocess.run(
                    [PROGRAM, "replay", "--updates", given, "-o", kept, "--set", "optimizer={kind: muon, lr: 1, "
                     "momentum: 0, nesterov: false, weight_decay: 0, ns_steps: 2}",
                     "precision.accumulate={ns: " + rule + "}"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                ours = -arrays(kept)["p.1"] / np.float32(max(1, shape[0] / shape[1]) ** 0.5)
                want = x.T if shape[0] > shape[1] else x
                np.testing.assert_allclose(ours, want, rtol=3e-7, err_msg=f"{shape} {rule}")


if __name__ == "__main__":
    unittest.main()
