"""Sums of attention's products under precision.accumulate, beside sums that NumPy makes of a dump's
operands by the published rule."""
import math
import unittest

from tests.train.accumulated_sums import RULES, rounded, sums
from tests.train.dumped_runs import DumpedRuns, np, rows

ATTENTION = """
seed: 3
device: {kind: cpu, threads: 2}
task: language
data: {dataset: text, path: text.txt, context: 40, batch_size: 3, validation: 0.2}
model:
  layers:
    - {name: wte, kind: embedding, vocabulary: 256, features: 32}
    - {name: qkv, kind: linear, features: 96, bias: false}
    - {name: attn, kind: attention, heads: 2, causal: true}
    - {name: head, kind: linear, features: 256, bias: false}
precision: {format: fp16, layers: [{match: attn, accumulate: %s}]}
scaling: {policy: fixed, scale: 1024}
optimizer: {kind: sgd, lr: 0.5}
train: {max_steps: 2}
evaluate: {every_epochs: 0}
log: {every: 1, statistics: [y, dx, dw, dy], dump_every: 2}
"""


class AccumulateAttention(DumpedRuns):
    def test_attention(self):
        """y, dq, dk and dv of two blocks of queries, with a rule that is coarse enough to show."""
        RULES["made"] = (8, 7, "fp32", False, 16)
        rule = "{group: 8, fraction_bits: 7, accumulator: fp32, promote: 16}"
        out, done = self.train(ATTENTION % rule)
        self.assertNotIn("no effect", done.stderr)
        dump = self.dump(out, 2)
        counted = {(r["step"], r["layer"], r["tensor"]): r for r in rows(out / "accumulators.csv")}
        images, heads, width, tokens = 3, 2, 16, 40
        qkv = dump["qkv.y"].reshape(images, 3, heads, width, tokens)
        dy = dump["attn.dy"].reshape(images, heads, width, tokens)
        factor = np.float32(1 / math.sqrt(width))
        products = 0
        for image in range(images):
            for head in range(heads):
                q, k, v = (qkv[image, part, head].T for part in range(3))
                gradient = dy[image, head].T
                s = sums(q, k, "fp16", "fp16", "made")[0] * factor
                s = np.where(np.tril(np.ones((tokens, tokens))) > 0, s.astype(np.float64), -np.inf)
                p = np.exp(s - s.max(1, keepdims=True))
                p /= p.sum(1, keepdims=True)
                stored = rounded(p, "fp16")
                dp = sums(gradient, v, "fp16", "fp16", "made")[0].astype(np.float64)
                ds = rounded(p * (dp - (p * dp).sum(1, keepdims=True)), "fp16")
                y, _, found = sums(stored, v.T, "fp16", "fp16", "made")
                products += found
                want = {"y": y, "dq": factor * sums(ds, k.T, "fp16", "fp16", "made")[0],
                        "dk": factor * sums(ds.T, q.T, "fp16", "fp16", "made")[0],
                        "dv": sums(stored.T, gradient.T, "fp16", "fp16", "made")[0]}
                for name, values in want.items():
                    got = dump[f"attn.{name}"].reshape(images, heads, width, tokens)[image, head].T
                    # Probabilities are made of other exponentials: some round the other way.
                    self.assertGreater((got == rounded(values, "fp16")).mean(), 0.98, name)
        self.assertEqual({key[2] for key in counted}, {"forward", "dx"})
        row = counted["2", "attn", "forward"]
        self.assertGreater(int(row["products"]), products)  # those of the scores too
        self.assertGreater(float(row["swallowed_pct"]), 0.5)
        self.assertLess(float(row["bias"]), 0)

    def test_attention_of_tensors_with_scales_of_their_own(self):
        """Codes are added: stored values times the scale that delayed scaling gave their tensor."""
        RULES["made"] = (8, 7, "fp32", False, 16)
        rule = "{group: 8, fraction_bits: 7, accumulator: fp32, promote: 16}"
        text = (ATTENTION % rule).replace(
            "{format: fp16,", "{format: fp16, tensor_scaling: {kind: delayed, history: 1},")
        out, _ = self.train(text)
        dump = self.dump(out, 2)
        scales = {(r["layer"], r["tensor"]): float(r["scale"])
                  for r in rows(out / "underflow.csv") if r["step"] == "2"}
        images, heads, width, tokens, s = 3, 2, 16, 40, 1024
        own = {"x": scales["qkv", "y"], "p": scales["attn", "p"], "dy": scales["head", "dx"] / s,
               "ds": scales["attn", "ds"] / s, "y": scales["attn", "y"], "dv": scales["attn", "dv"] / s,
               "dq": scales["attn", "dq"] / s, "dk": scales["attn", "dk"] / s}
        own = {name: np.float32(value) for name, value in own.items()}
        self.assertNotEqual(math.frexp(own["x"])[0], 0.5)
        code = lambda values, name: rounded((values.astype(np.float32) * own[name]), "fp16")
        one = np.float32(1)

        def product(a, b, of_a, of_b):
            return sums(a, b, "fp16", "fp16", "made")[0] * ((one / own[of_a]) * (one / own[of_b]))
        qkv = dump["qkv.y"].reshape(images, 3, heads, width, tokens)
        dy = dump["attn.dy"].reshape(images, heads, width, tokens)
        factor = np.float32(1 / math.sqrt(width))
        for image in range(images):
            for head in range(heads):
                q, k, v = (code(qkv[image, part, head].T, "x") for part in range(3))
                gradient = code(dy[image, head].T, "dy")
                scores = product(q, k, "x", "x") * factor
                scores = np.where(np.tril(np.ones((tokens, tokens))) > 0, scores.astype(np.float64),
                                  -np.inf)
                p = np.exp(scores - scores.max(1, keepdims=True))
                p /= p.sum(1, keepdims=True)
                stored = code(p, "p")
                dp = product(gradient, v, "dy", "x").astype(np.float64)
                ds = code(p * (dp - (p * dp).sum(1, keepdims=True)), "ds")
                want = {"y": product(stored, v.T, "p", "x"),
                        "dq": factor * product(ds, k.T, "ds", "x"),
                        "dk": factor * product(ds.T, q.T, "ds", "x"),
                        "dv": product(stored.T, gradient.T, "p", "dy")}
                for name, values in want.items():
                    got = dump[f"attn.{name}"].reshape(images, heads, width, tokens)[image, head].T
                    known = (code(values, name).astype(np.float32) / own[name]).astype(np.float32)
                    self.assertGreater((got == known).mean(), 0.97, name)


if __name__ == "__main__":
    unittest.main()
