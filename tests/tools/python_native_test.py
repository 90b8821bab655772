"""ada_train.native: the rules and policies behind the C interface, over the recordings of the
systems that they follow (tests/golden), and what it refuses. Needs libada_scaling."""
import array
import copy
import csv
import ctypes
import gc
import json
import math
import pathlib
import pickle
import struct
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import safetensors_file  # noqa: E402
from ada_train import native  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
MISSING = None
try:
    native.library()
except native.NoLibrary as problem:
    MISSING = str(problem)
# The names that the recorded systems have for keys of `scaling:`.
KEYS = {"pytorch": {"init_scale": "init_scale", "growth_factor": "growth_factor",
                    "backoff_factor": "backoff_factor", "growth_interval": "growth_interval"},
        "deepspeed": {"init_scale": "init_scale", "scale_window": "growth_interval",
                      "scale_factor": "growth_factor", "min_scale": "min_scale",
                      "delayed_shift": "hysteresis",
                      "consecutive_hysteresis": "consecutive_hysteresis",
                      "raise_error_at_min_scale": "error_at_min_scale"}}


def rows(path):
    """(params of the comments, rows)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    params = next((c[8:].split() for c in comments if c.startswith("params: ")), [])
    return (dict(word.split("=") for word in params),
            list(csv.DictReader(line for line in lines if not line.startswith("#"))))


def single(text):
    """The fp32 that a number of a recording is."""
    return struct.unpack("f", struct.pack("f", float(text)))[0]


def values_of(entry):
    """(shape, values) of a tensor of fp16 or fp32."""
    shape, data = entry
    code = "e" if len(data) == 2 * math.prod(shape) else "f"
    return shape, list(struct.unpack(f"<{math.prod(shape)}{code}", data))


def moments(values):
    """Of a list; a NaN or inf goes into mean_square, as the library's own statistics have it."""
    held = array.array("f", values)
    return native.moments_of(held.buffer_info()[0], len(held))


def observation(row, tensors):
    seen = native.Observation()
    dy_shape, dy = values_of(tensors[row["dy"]])
    seen.dy = moments(dy)
    logs = [math.log(abs(v)) for v in dy if v != 0 and math.isfinite(v)]
    if logs:
        mean = sum(logs) / len(logs)
        seen.log_mean = mean
        seen.log_std = 0 if len({abs(v) for v in dy if v != 0}) == 1 else math.sqrt(
            sum((x - mean) ** 2 for x in logs) / len(logs))
    if not row["w"]:
        return seen
    w_shape, w = values_of(tensors[row["w"]])
    seen.w = moments(w)
    if row["method"] == "element_wise_range":
        seen.product_min, seen.product_max = products(dy, dy_shape, w, w_shape)
    return seen


def products(dy, dy_shape, w, w_shape):
    """Channels are dimension 1 of dy and dimension 0 of w."""
    inner = math.prod(dy_shape[2:])
    low = high = 0.0
    if not all(map(math.isfinite, dy)):
        return 0.0, math.inf
    for c in range(dy_shape[1]):
        ours = [abs(v) for i, v in enumerate(dy) if i // inner % dy_shape[1] == c and v != 0]
        part = len(w) // w_shape[0]
        theirs = [abs(v) for v in w[c * part:(c + 1) * part] if v != 0]
        if ours and theirs:
            least = min(ours) * min(theirs)
            low = least if high == 0 else min(low, least)
            high = max(high, max(ours) * max(theirs))
    return low, high


@unittest.skipIf(MISSING, MISSING)
class NativeTest(unittest.TestCase):
    def test_every_recorded_call_of_a_layer(self):
        files, compared, failed, layer = {}, 0, 0, None
        for row in rows(GOLDEN / "adaptive" / "pipeline.csv")[1]:
            with self.subTest(case=row["case"], call=row["call"]):
                group = row["group"]
                if group not in files:
                    files[group] = safetensors_file.read(
                        GOLDEN / "adaptive" / f"{group}.safetensors")
                if row["call"] == "0":
                    layer = self.layer(row)
                self.assertEqual(bool(layer.needs() & native.NEEDS_MOMENTS),
                                 row["updating"] == "1" and row["method"] != "fixed")
                made = layer.decide(observation(row, files[group]), single(row["S_prev"]))
                self.compare(made, row)
                compared, failed = compared + 1, failed + made.failed
        self.assertEqual((compared, failed), (178, 20))

    @staticmethod
    def layer(row):
        method = "lognormal" if "lognormal" in row["method"] else row["method"]
        bounds = row["use_bound"] == "1"
        keys = {"policy": "adaptive", "reference": True, "method": method,
                "underflow_target": float(row["n_uf"]), "u_min": single(row["u_min"]),
                "scale_upper_bound": min(float(row["SB"]), 1e38) if bounds else 1e38,
                "accum_upper_bound": min(float(row["AB"]), 1e38) if bounds else 1e38,
                "power_of_two": row["power_of_two"] == "1",
                "update_interval": int(row["update_interval"])}
        if method == "fixed":
            keys["scale"] = float(row["fixed"])
        policy = native.Policy(keys)
        return policy.layer(row["case"], float(row["fan"] or 1), 1, single(row["u_min"]),
                            float(row["u_max"]), row["kind"] != "cast",
                            row["dy_dtype"] == "float16")

    def compare(self, made, row):
        near = 2e-5 if "lognormal" in row["method"] else 3e-6
        self.assertEqual(bool(made.failed), bool(row["error"]))
        for name, column in (("unbound", "unbound"), ("pow2", "pow2"), ("alpha", "alpha"),
                             ("scale_out", "S_out")):
            ours, theirs = getattr(made, name), row[column]
            if not theirs or math.isnan(float(theirs)):
                self.assertTrue(math.isnan(ours), name)
            elif math.isinf(float(theirs)):
                self.assertEqual(ours, float(theirs), name)
            else:
                self.assertLessEqual(abs(ours - single(theirs)),
                                     (near if name == "unbound" else 0) * abs(single(theirs)), name)

    def test_recorded_traces(self):
        for preset, names in KEYS.items():
            played = 0
            for path in sorted((GOLDEN / "dynamic" / preset).glob("*.csv")):
                with self.subTest(preset=preset, trace=path.name):
                    given, trace = rows(path)
                    keys = {names[key]: {"True": True, "False": False}.get(value) if value in (
                        "True", "False") else float(value) for key, value in given.items()}
                    for key in ("growth_interval", "hysteresis"):
                        if key in keys:
                            keys[key] = int(keys[key])
                    played += self.play({"policy": "dynamic", "preset": preset, **keys}, trace)
            self.assertGreater(played, 1000)

    def play(self, keys, trace):
        policy = native.Policy(keys)
        for i, row in enumerate(trace):
            if i == len(trace) // 2:  # a policy that was saved and loaded goes on
                state, policy = policy.state(), native.Policy(keys)
                policy.load(state)
            self.assertEqual(policy.scale, float(row["scale"]))
            try:
                action, before, after, _ = policy.update(row["overflow"] == "1")
            except native.PolicyEnd as end:
                self.assertTrue(row["error"], end)
                continue
            self.assertFalse(row["error"])
            self.assertEqual((before, after, action == native.SKIP),
                             (float(row["scale"]), float(row["scale_after"]),
                              row["skipped"] == "1"))
        return len(trace)

    def test_branches(self):
        self.assertEqual(native.branch_target([2.0, 64.0], 1000.0, 65504.0), 64.0)
        self.assertEqual(native.branch_target([2.0, 64.0], 2000.0, 65504.0), 2.0)
        for scales in ([math.inf], [math.inf, math.inf], []):
            self.assertFalse(math.isfinite(native.branch_target(scales, 0.0, 65504.0)))
            self.assertFalse(math.isfinite(
                native.branch_target_reference(scales, [0.0] * len(scales), 65504.0)))
        self.assertTrue(native.branch_halves(8.0, 1.0, 65504.0, 65504.0))
        self.assertFalse(native.branch_halves(8.0, 1.0, 65503.0, 65504.0))

    def test_statistics(self):
        held = moments([0.0, -3.0, 2.0 ** -140, 5.0] * 1000)
        self.assertEqual((held.mean, held.mean_square, held.min, held.max, held.min_abs),
                         (0.5, 8.5, -3.0, 5.0, 2.0 ** -140))
        self.assertTrue(math.isnan(moments([1.0, math.nan, math.inf]).mean_square))
        self.assertEqual(moments([1.0] * 20 + [-math.inf]).mean_square, math.inf)
        self.assertEqual(moments([0.0]).min_abs, 0.0)
        x = array.array("f", [0.0, 4.0, -8.0, 0.25])
        tail = native.tail_of(x.buffer_info()[0], 4, 4.0)
        self.assertEqual((tail.nonzero, tail.largest, sum(tail.bins)), (3, 2.0, 3))
        self.assertEqual((tail.bins[123], tail.bins[127], tail.bins[128]), (1, 1, 1))

    def test_state_of_a_layer(self):
        policy = native.Policy({"update_interval": 3, "policy": "adaptive"})
        one = policy.layer("a", 10, 10, 2.0 ** -24, 65504)
        seen = native.Observation()
        seen.dy = seen.w = moments([1e-6, -1e-6, 2e-6, 0.0])
        first = one.decide(seen, 1.0)
        other = policy.layer("b", 10, 10, 2.0 ** -24, 65504)
        other.load(json.loads(json.dumps(one.state())))
        self.assertEqual(other.needs(), 0)
        self.assertEqual(other.decide(native.Observation(), 1.0).values(),
                         {**first.values(), "limit": b"SB" if first.limit == b"SB" else b"stale"})

    def test_a_name_that_is_no_text_is_an_error_and_not_the_end(self):
        policy = native.Policy({"policy": "layerwise_dynamic"})
        library, handle = native.library(), policy._handle  # pylint: disable=protected-access
        info = native.LayerInfo(b"\xff", 1, 1, 2.0 ** -24, 65504, 1, 0, 0)
        layer = library.ada_layer_new(handle, ctypes.byref(info))
        self.assertTrue(layer)
        self.assertIsNone(library.ada_policy_save(handle))
        self.assertIn("UTF-8", native.error())
        with self.assertRaisesRegex(native.PolicyError, "UTF-8"):
            policy.state()
        library.ada_layer_free(layer)

    def test_gradients_within_attention(self):
        """Under `reference` they follow the rules that are ours: alpha comes after the product."""
        for keys, scales in (({"policy": "adaptive"}, 1), ({"policy": "layerwise_dynamic"}, 1),
                             ({"policy": "adaptive", "attention": False}, 0)):
            self.assertEqual(native.Policy(keys).facts.scales_attention, scales)
        policy = native.Policy({"policy": "adaptive", "reference": True})
        seen = native.Observation()
        seen.dy = seen.w = moments([1e-6, -1e-6, 2e-6, 0.0])
        for within in (False, True):
            layer = policy.layer("a", 10, 10, 2.0 ** -24, 65504, True, True, within)
            self.assertEqual(layer.decide(seen, 1.0).alpha_first, not within)

    def test_what_is_refused(self):
        for keys, message in (({"policy": "adaptiv"}, "policy: expected one of none, fixed"),
                              ({"policy": "adaptive", "SB": 2}, "scaling.SB: unknown key"),
                              ({"policy": "adaptive", "underflow_target": 2}, "between 0 and 1"),
                              ({"policy": "fixed"}, "scale"),
                              ({"policy": "dynamic", "preset": "apex", "tolerance": 0.5},
                               "tolerance"),
                              ("[1", "policy")):
            with self.subTest(keys), self.assertRaisesRegex(native.PolicyError, message):
                native.Policy(keys)
        policy = native.Policy({"policy": "dynamic"})
        with self.assertRaisesRegex(native.PolicyError, "growth_tracker"):
            policy.load({"scale": "0x1p+3"})
        with self.assertRaisesRegex(native.PolicyError, "expected a text"):
            policy.load({"scale": 3})

    def test_copies_have_handles_of_their_own(self):
        """A copy goes on by itself, and outlives the first."""
        for keys, outcomes in (
                ({"policy": "dynamic", "init_scale": 16.0, "growth_interval": 2}, (0, 1, 0, 0, 0)),
                ({"policy": "layerwise_dynamic"}, (1, 1, 0)), ({"policy": "adaptive"}, (0,)),
                ("{policy: adaptive, method: exact_range, update_interval: 3}", (0, 0))):
            for how in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
                policy = native.Policy(keys)
                layer = policy.layer("fc", 10.0, 10.0, 2.0 ** -24, 65504.0)
                policy.update(bool(outcomes[0]), layers=["fc"] if outcomes[0] else [])
                seen = native.Observation()
                seen.dy = seen.w = native.Moments(0.0, 1e-6, -1e-3, 1e-3, 1e-9)
                layer.decide(seen, 8.0)
                twins = [how(policy), how(layer)]
                self.assertEqual([twins[0].state(), twins[1].state(), twins[0].section],
                                 [policy.state(), layer.state(), policy.section])
                scales = []
                for i, one in enumerate((twins[0], policy)):
                    scales.append([one.update(bool(bad), layers=["fc"] if bad else [])[:3]
                                   for bad in outcomes[1:]])
                    if i == 0:
                        self.assertEqual(policy.scale, how(policy).scale)
                self.assertEqual(*scales)
                wanted = repr(layer.decide(seen, 8.0).values())
                del policy, layer
                gc.collect()
                again = native.Policy(keys)  # where the freed one may have been
                self.assertEqual(repr(twins[1].decide(seen, 8.0).values()), wanted)
                twins[0].update(False)
                del twins, again
                gc.collect()
        form = native.BlockFormat("nvfp4")
        for how in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            twin = how(form)
            self.assertNotEqual(twin._handle, form._handle)
            self.assertEqual(twin.name, form.name)
            del twin
        self.assertEqual(native.BlockFormat("nvfp4").name, form.name)


if __name__ == "__main__":
    unittest.main()
