"""Attention under ada_train.torch.AdaLossScaled: recorded decisions, counts and gradients of an
independent program (tests/golden/text), gradients beside PyTorch's own, whatever its arguments are,
and whole recorded steps of a GPT-2, a Llama and a ViT. Needs torch (ADA_BENCH_PYTHON)."""
import csv
import gc
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import safetensors_file  # noqa: E402
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
    import scaled_gpt
    import scaled_text
    from ada_train.torch import AdaLossScaled
    from ada_train.torch.scaling import attention, calls
except ImportError:
    torch = None
GOLDEN = head.ROOT / "tests" / "golden" / "text"
# Five times what a second implementation is off (tests/golden/README.md).
LOSS = {"fp32": [4e-7, 3e-7, 5e-7, 5e-7], "fp16_adaptive": [2.5e-4, 1.5e-3, 1.5e-3, 1.5e-3]}
NORM = {"fp32": [5e-7, 5e-6, 5e-6, 5e-6], "fp16_adaptive": [2e-3, 0.1, 0.1, 0.1]}


OtherPythonTest = head.other_python(__file__, "AttentionTest")


def recorded():
    """The cases in which both p and the scores' gradient are rounded."""
    with open(GOLDEN / "rounded.csv", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["op"] == "attention" and row["probabilities"] == row["score_gradients"] == (
                    "rounded") and not row["case"].endswith("saturated"):
                yield row


def tensor(entry):
    shape, data = entry
    code = {2: torch.float16, 4: torch.float32, 8: torch.float64}[
        len(data) // torch.Size(shape).numel()]
    return torch.frombuffer(bytearray(data), dtype=code).reshape(shape)


if torch:
    class Bare(nn.Module):
        """Attention of tensors that are trained; `rest`: its other arguments."""

        def __init__(self, q, k, v, **rest):
            super().__init__()
            self.q, self.k, self.v = map(nn.Parameter, (q, k, v))
            self.rest, self.unused = rest, nn.LayerNorm(1)  # with it, the module is no layer

        def forward(self):
            return functional.scaled_dot_product_attention(self.q, self.k, self.v, **self.rest)


@head.needs_torch
class AttentionTest(head.WithLibrary):
    # --- Beside the recordings ---

    def test_recorded_operations(self):
        tensors = safetensors_file.read(GOLDEN / "rounded.safetensors")
        cases = list(recorded())
        self.assertEqual(len(cases), 8)
        for row in cases:
            with self.subTest(row["case"]):
                self.operation(row, {key.rpartition(".")[2]: tensor(entry) for key, entry in
                                     tensors.items() if key.startswith(row["case"] + ".")})

    def operation(self, row, given):
        def heads(x, count):
            return x.float().unflatten(2, (int(row[count]), -1)).transpose(1, 2).contiguous()
        scale = float(row["S"])
        keys = {"policy": "fixed", "scale": scale} if row["policy"] == "fixed" else {
            "init_scale": scale, "underflow_target": float(row["n"]), "u_min": float(row["u_min"]),
            "scale_upper_bound": float(row["SB"]), "accum_upper_bound": float(row["AB"])}
        net = Bare(heads(given["q"], "heads"), heads(given["k"], "kv_heads"),
                   heads(given["v"], "kv_heads"), is_causal=row["causal"] == "True",
                   enable_gqa=True)
        model = AdaLossScaled(net, keys, format=row["format"], folder=self.folder / row["case"],
                              every=1)
        y = model()
        near = given["y"].abs().max() * 2e-3
        self.assertLess((y - heads(given["y"], "heads")).abs().max(), near)
        model.scale((y * (heads(given["dy"], "heads") / scale)).sum()).backward()
        decided = {d["layer"]: d for d in model.decisions}
        model.step(torch.optim.SGD(net.parameters(), 0.0))
        model.close()
        self.decisions(row, decided)
        counted = {r["tensor"]: r for r in run_files.rows(
            self.folder / row["case"] / "underflow.csv") if r["layer"] == "model"}
        for word in row["counts"].split():
            name, counts = word.split(":")
            r = counted[name]
            self.assertEqual([int(r[c]) for c in ("numel", "zeros_before", "underflow",
                                                  "overflow")],
                             [int(n) for n in counts.split("/")], word)
        carried = dict(word.split(":") for word in row["S_out"].split())
        for name, count in (("dq", "heads"), ("dk", "kv_heads"), ("dv", "kv_heads")):
            theirs = heads(given[name], count) / float(carried[name])
            off = (getattr(net, name[1]).grad - theirs).abs().max() / theirs.abs().max()
            self.assertLess(off, 2e-3 if row["format"] == "fp16" else 1e-2, name)
            self.assertEqual(float(counted[name]["scale"]), float(carried[name]))

    def decisions(self, row, decided):
        for word in row["decisions"].split():
            name, scale_in, unbound, _, pow2, alpha, scale_out, limit = word.split("/")
            if limit == "none":
                self.assertNotIn(f"model.{name}", decided)
                continue
            made = decided[f"model.{name}"]
            self.assertEqual([made[key] for key in ("scale_in", "pow2", "alpha", "scale_out")],
                             [float(x) for x in (scale_in, pow2, alpha, scale_out)], word)
            self.assertEqual(made["limit"], limit)
            self.assertAlmostEqual(made["unbound"] / float(unbound), 1, delta=1e-3)

    def test_recorded_steps(self):
        """All decisions of each layer and of attention's gradients, in all four steps."""
        for family in ("gpt2", "llama", "vit"):
            for case in ("fp32", "fp16_adaptive"):
                with self.subTest(family=family, case=case):
                    self.steps(scaled_text.Recording(GOLDEN / family, case), family, case)
            self.counts(GOLDEN / family / case, self.folder / (family + case))

    def steps(self, recording, family, case):
        net, adaptive = recording.network(), case != "fp32"
        model = AdaLossScaled(net, recording.keys(), folder=self.folder / (family + case), every=1,
                              format=recording.facts["format"] if adaptive else None)
        names = ("layer", "limit", "scale_out", "alpha")
        for i, (row, loss, norm, made) in enumerate(recording.train(model, net)):
            self.assertAlmostEqual(loss / float(row["loss"]), 1, delta=LOSS[case][i])
            self.assertAlmostEqual(norm / float(row["grad_norm"]), 1, delta=NORM[case][i])
            wanted = [[r["layer"], r["limit"], *(float(r[c] or "nan") for c in names[2:])]
                      for r in scaled_text.rows(recording.files / "scales.csv")
                      if r["step"] == row["step"]]
            ours = [[d.get(name, float("nan")) for name in names] for d in made]
            self.assertEqual(sorted(map(repr, ours)),
                             sorted(map(repr, wanted if adaptive else ours)))
        model.close()

    def counts(self, recorded_folder, folder):
        """Those of the first step."""
        theirs = {(r["layer"], r["tensor"]): r for r in scaled_text.rows(
            recorded_folder / "underflow.csv") if r["step"] == "1" and r["tensor"] != "w"}
        seen = 0
        for a in run_files.rows(folder / "underflow.csv"):
            b = theirs.get((a["layer"], a["tensor"]))
            if a["step"] != "1" or b is None:
                continue
            seen += a["tensor"] in ("p", "ds", "dq", "dk", "dv")
            self.assertEqual(float(a["scale"]), float(b["scale"]), a)
            self.assertEqual(a["numel"], b["numel"], a)
            # Where p is nearly 1 its gradient is what cancellation leaves.
            for column in ("zeros_before", "underflow") if a["tensor"] != "ds" else ():
                self.assertLessEqual(abs(int(a[column]) - int(b[column])),
                                     0.025 * int(a["numel"]), (column, a, b))
        self.assertEqual(seen, 10)

    def test_values_are_rounded_under_every_policy(self):
        """Within nn.MultiheadAttention too."""
        recording = scaled_text.Recording(GOLDEN / "vit", "fp16_adaptive")
        losses = []
        for keys in (recording.keys(), {"policy": "fixed", "scale": 8.0}, {"policy": "dynamic"}):
            net = recording.network()
            model = AdaLossScaled(net, keys, format="bf16")
            losses.append(next(recording.train(model, net))[1])
        self.assertEqual(losses, losses[:1] * 3)

    def test_exact_range(self):
        """The second pass chooses by the exponents of what the first one produced: the gradient of
        the scores, by plain operations."""
        torch.manual_seed(0)
        share, scale = 1e-2, 2.0 ** -20
        tensors = [torch.randn(3, 2, 6, 4) for _ in range(3)]
        for most in (1 << 18, 1):
            net = Bare(*tensors)
            model = AdaLossScaled(net, {"method": "exact_range", "init_scale": scale,
                                        "underflow_target": share}, format="fp16")
            with mock.patch.multiple(attention, _PIECE=most, _MOST=most):
                for _ in range(2):
                    model.scale(model().sum()).backward()
                    made = {d["layer"]: d["alpha"] for d in model.decisions}
            q, k, v = tensors
            p = (q @ k.transpose(2, 3) / 2).softmax(3)
            dp = scale * v.sum(3)[:, :, None, :].expand(3, 2, 6, 6)
            ds = (p * (dp - (p * dp).sum(3, keepdim=True))).abs()
            wanted = next(2 ** i for i in range(40)
                          if (ds * 2 ** i <= 2.0 ** -25).sum() <= share * (ds != 0).sum())
            self.assertGreater(wanted, 1)
            self.assertEqual(made["model.ds"], wanted)

    # --- Beside PyTorch's ---

    def test_whatever_its_arguments_are(self):
        torch.manual_seed(0)
        few = torch.rand(2, 1, 5, 7) > 0.4
        few[0, 0, 2] = False  # a query that sees no key
        cases = ({"is_causal": True}, {"attn_mask": few}, {"scale": 2.0},
                 {"attn_mask": torch.randn(5, 7, dtype=torch.float64)},
                 {"attn_mask": torch.randn(4, 1, 7, dtype=torch.float64)})
        for rest in cases:
            for most in (1 << 18, 1):  # an image at a time
                with self.subTest(rest=rest, most=most), mock.patch.multiple(
                        attention, _PIECE=most, _MOST=most):
                    self.beside([torch.randn(2, 4, n, 3, dtype=torch.float64) for n in (5, 7, 7)],
                                rest)
        self.beside([torch.randn(4, n, 3, dtype=torch.float64) for n in (5, 7, 7)], {})
        self.beside([torch.randn(2, h, 5, 3, dtype=torch.float64) for h in (6, 2, 2)],
                    {"enable_gqa": True})
        self.beside([torch.randn(2, 4, 5, n, dtype=torch.float64) for n in (3, 3, 2)], {})
        net = Bare(*(torch.randn(n, 4, 5, 3) for n in (2, 1, 1)))  # keys that all images share
        model = AdaLossScaled(net, {"init_scale": 1.0})
        model.scale(model().square().sum()).backward()
        self.assertFalse({d["layer"] for d in model.decisions} & {"model.dv", "model.ds"})

    def test_attention_by_another_name(self):
        net = Bare(*(torch.randn(2, 4, 5, 3) for _ in range(3)))
        model = AdaLossScaled(net, {"init_scale": 1.0})
        with mock.patch.object(functional, "scaled_dot_product_attention", attention.PLAIN):
            model.scale(model().square().sum()).backward()
        self.assertEqual(model.decisions, [])
        self.assertRegex(list(model.reasons.values())[0], "its gradients choose no scale")

    def beside(self, tensors, rest):
        net, plain = Bare(*tensors, **rest), Bare(*tensors, **rest)
        model = AdaLossScaled(net, {"init_scale": 1.0, "u_min": 1.0})
        model.scale(model().square().sum()).backward()
        plain().square().sum().backward()
        self.assertEqual(len(model.decisions), 4)
        self.assertTrue(any(d["alpha"] != 1 for d in model.decisions))
        for name in "qkv":
            p, q = getattr(net, name), getattr(plain, name)
            self.assertLess((p.grad - q.grad).abs().max() / q.grad.abs().max(), 1e-13, name)
        model.remove()

    def test_the_function_is_given_back(self):
        gc.collect()
        self.assertIs(functional.scaled_dot_product_attention, attention.PLAIN)
        tensors = [torch.randn(1, 2, 4, 3) for _ in range(3)]
        kept, lost = (AdaLossScaled(Bare(*tensors)) for _ in range(2))
        del lost
        gc.collect()
        self.assertIsNot(functional.scaled_dot_product_attention, attention.PLAIN)
        node = functional.scaled_dot_product_attention(kept.q, kept.k, kept.v).grad_fn
        self.assertIn("ScaledDotProduct", type(node).__name__)  # nobody's: PyTorch's own
        self.assertIn("Attention", type(kept().grad_fn).__name__)
        kept.remove()
        self.assertIs(functional.scaled_dot_product_attention, attention.PLAIN)

    def test_who_calls(self):
        """Modules leave their names behind however they end; others' compiled functions see none of
        it."""
        class Again(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.a = nn.Linear(8, 8), scaled_gpt.Attention(8, 2)

            def forward(self, x):
                return checkpoint(self.a, self.first(x), use_reentrant=False)
        torch.manual_seed(0)
        net, x = Again(), torch.randn(2, 5, 8)
        model = AdaLossScaled(net, {"init_scale": 1.0})
        model.scale(model(x).square().mean()).backward()
        self.assertIn("a.ds", {d["layer"] for d in model.decisions})
        self.assertEqual(calls._callers(), [])
        with mock.patch.object(net.a, "heads", 3), self.assertRaises(RuntimeError):
            model(x)  # 8 is no multiple of 3
        self.assertEqual(calls._callers(), [])
        compiled = torch.compile(lambda q: functional.scaled_dot_product_attention(q, q, q),
                                 backend="aot_eager", fullgraph=True)
        q = torch.randn(1, 2, 4, 8)
        self.assertLess((compiled(q) - attention.PLAIN(q, q, q)).abs().max(), 1e-6)

    def test_dropout(self):
        """The gradient is that of the function which dropped what the forward pass dropped."""
        q, k, v = (torch.randn(1, 2, 4, 3, dtype=torch.float64) for _ in range(3))
        net = Bare(q, k, v, dropout_p=0.4)
        model = AdaLossScaled(net, {"method": "fixed", "scale": 4.0})

        def value(*tensors):
            for p, x in zip((net.q, net.k, net.v), tensors):
                p.data = x
            torch.manual_seed(3)
            return model().square().sum()
        model.scale(value(q, k, v)).backward()
        step = 1e-6
        for i, p in enumerate((net.q, net.k, net.v)):
            grad, x = p.grad.clone(), [q, k, v]
            for at in ((0, 0, 1, 2), (0, 1, 3, 0)):
                ends = []
                for sign in (1, -1):
                    moved = [t.clone() for t in x]
                    moved[i][at] += sign * step
                    ends.append(value(*moved).item())
                self.assertAlmostEqual(grad[at].item(), (ends[0] - ends[1]) / (2 * step), 6)

    def test_dropout_draws_what_pytorch_draws(self):
        """The same probabilities are dropped, and the next random number is the same."""
        torch.manual_seed(0)
        for heads, keys in ((2, 2), (4, 2)):
            for dtype, off in ((torch.float32, 1e-6), (torch.float64, 1e-12),
                               (torch.bfloat16, 0.05)):
                for rest in ({}, {"is_causal": True}, {"attn_mask": torch.ones(7, 7).tril() > 0}):
                    q = torch.randn(2, heads, 7, 4, dtype=dtype)
                    k, v = (torch.randn(2, keys, 7, 4, dtype=dtype) for _ in range(2))
                    net, ends = Bare(q, k, v, dropout_p=0.3, enable_gqa=heads != keys, **rest), []
                    model = AdaLossScaled(net, {"method": "exact_range"})
                    for called in (model, lambda: attention.PLAIN(q, k, v, **net.rest)):
                        torch.manual_seed(3)
                        ends.append((called().detach(), torch.rand(())))
                    model.remove()
                    self.assertLess(float((ends[0][0] - ends[1][0]).abs().max()), off)
                    self.assertEqual(ends[0][1], ends[1][1])

    def test_fp16_keeps_what_would_vanish(self):
        """Alphas multiply before the gradients of attention round to fp16."""
        torch.manual_seed(0)
        tensors = [torch.randn(1, 1, 8, 4) for _ in range(3)]
        plain = Bare(*tensors)
        plain().sum().backward()
        for keys, lost in (({"attention": False, "init_scale": 2.0 ** -22}, True),
                           ({"init_scale": 2.0 ** -22, "scale_upper_bound": 2.0 ** 20,
                             "accum_upper_bound": 65536}, False)):
            net = Bare(*tensors)
            model = AdaLossScaled(net, keys)
            with torch.autocast("cpu", torch.float16):
                y = model()
            model.scale(y.float().sum()).backward()
            self.assertEqual(len(model.decisions), 0 if lost else 4)
            for p, q in ((net.q, plain.q), (net.k, plain.k)):
                off = float((p.grad - q.grad).norm() / q.grad.norm())
                self.assertEqual(off > 0.3, lost)
                self.assertEqual(off < 0.01, not lost)
            model.remove()


if __name__ == "__main__":
    unittest.main()
