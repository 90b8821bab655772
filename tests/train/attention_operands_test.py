"""Operands of attention's six products (precision.operands.attention), beside products that NumPy
makes in fp64 of operands it rounds by itself: values, rows and blocks that run along each product's
sum, counts and scales; and the same bytes whatever the threads, instruction sets and resumes."""
import math
import pathlib
import platform
import unittest

from tests.train.dumped_runs import DumpedRuns, np, rows

NETWORK = """
seed: 3
device: {kind: cpu, threads: %(threads)d}
task: language
data: {dataset: text, path: text.txt, context: 40, batch_size: 3, validation: 0.2}
model:
  layers:
    - {name: wte, kind: embedding, vocabulary: 256, features: 32}
    - {name: qkv, kind: linear, features: 64, bias: false}
    - {name: attn, kind: attention, heads: 2, kv_heads: 1, causal: true}
    - {name: head, kind: linear, features: 256, bias: false}
precision: %(precision)s
scaling: {policy: fixed, scale: 64}
optimizer: {kind: sgd, lr: 0.5}
train: {max_steps: 4}
evaluate: {every_epochs: 0}
log: {every: 2, statistics: [y, dx, dw, dy, operands], dump_every: 2}
"""
IMAGES, HEADS, WIDTH, TOKENS, S = 3, 2, 16, 40, 64
# mantissa bits, exponent of the smallest normal number, largest
FORMATS = {"fp8_e4m3": (3, -6, 448.0), "fp8_e5m2": (2, -14, 57344.0), "int8": None}
# The axis of the matrix ([positions, width] or [queries, keys]) that the product sums over.
AXES = {"s.q": 1, "s.k": 1, "y.p": 1, "y.v": 0, "dv.p": 0, "dv.dy": 0, "dp.dy": 1, "dp.v": 1,
        "dq.ds": 1, "dq.k": 0, "dk.ds": 0, "dk.q": 0}


def rounded(x, name):
    x = np.asarray(x, np.float64)
    if name == "int8":
        return np.clip(np.rint(x), -127, 127)
    bits, lowest, top = FORMATS[name]
    exponent = np.maximum(np.frexp(np.where(x == 0, 1, x))[1] - 1, lowest)
    unit = np.exp2((exponent - bits).astype(np.float64))
    return np.clip(np.rint(x / unit) * unit, -top, top)


def scaled(x, name, scale):
    """As fp32 has it: times the scale, rounded, divided."""
    scale = np.asarray(scale, np.float32)
    return (rounded(x.astype(np.float32) * scale, name).astype(np.float32) / scale).astype(np.float64)


def plain(name):
    return lambda operand, x, whole: rounded(x, name)


def current(name):
    top = 127 if name == "int8" else FORMATS[name][2]
    return lambda operand, x, whole: scaled(x, name, np.float32(top) / np.float32(np.abs(whole).max()))


def by_row(name):
    top = 127 if name == "int8" else FORMATS[name][2]

    def rounds(operand, x, whole):
        most = np.abs(x).max(axis=AXES[operand], keepdims=True).astype(np.float32)
        return scaled(x, name, np.where(most > 0, np.float32(top) / np.where(most > 0, most, 1), 1))
    return rounds


def static(name, scale):
    return lambda operand, x, whole: scaled(x, name, scale)


def mxfp8(operand, x, whole):
    """32 values along the sum, scale 2^(floor(log2 amax) - 8)."""
    lines = x if AXES[operand] == 1 else x.T
    out = np.zeros_like(lines)
    for begin in range(0, lines.shape[1], 32):
        block = lines[:, begin:begin + 32]
        amax = np.abs(block).max(axis=1, keepdims=True)
        scale = np.exp2(np.frexp(np.where(amax > 0, amax, 1))[1].astype(np.float64) - 1 - 8)
        out[:, begin:begin + 32] = rounded(block / scale, "fp8_e4m3") * scale
    return out if AXES[operand] == 1 else out.T


def stored(operand, x, whole):
    return x


class AttentionOperands(DumpedRuns):
    def run_program(self, precision, threads=2, options=(), isa=None, fails=None):
        out, done = self.train(NETWORK % {"threads": threads, "precision": precision}, *options,
                               code=0 if fails is None else 2, isa=isa)
        self.told = done.stdout + done.stderr
        if fails is not None:
            self.assertRegex(done.stderr, fails)
            return None
        self.assertNotIn("no effect", done.stderr)
        return out

    def tensors(self, out, step):
        dump = self.dump(out, step)
        qkv = dump["qkv.y"].reshape(IMAGES, HEADS + 2, WIDTH, TOKENS).swapaxes(2, 3)
        of_heads = lambda name, heads: dump[f"attn.{name}"].reshape(
            IMAGES, heads, WIDTH, TOKENS).swapaxes(2, 3).astype(np.float64)
        found = {name: of_heads(name, HEADS) for name in ("dy", "y", "dq")}
        found |= {name: of_heads(name, 1) for name in ("dk", "dv")}
        q, k, v = qkv[:, :HEADS], qkv[:, HEADS:HEADS + 1], qkv[:, HEADS + 1:]
        return found | {name: x.astype(np.float64) for name, x in (("q", q), ("k", k), ("v", v))}

    def products(self, t, rules):
        """The results, and the unrounded and rounded matrices of each operand; rules: by tensor."""
        before, after = {}, {}

        def taken(operand, x):
            """x: [images, heads, rows, columns]"""
            rule = rules.get(operand.split(".")[1], stored)
            before[operand] = x
            after[operand] = np.stack([np.stack([rule(operand, m, x) for m in image])
                                       for image in x])
            return after[operand]
        factor, mask = 1 / math.sqrt(WIDTH), np.tril(np.ones((TOKENS, TOKENS))) > 0
        turned = lambda x: x.swapaxes(2, 3)
        s = np.where(mask, factor * taken("s.q", t["q"]) @ turned(taken("s.k", t["k"])), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = {"y": taken("y.p", p) @ taken("y.v", t["v"])}
        out["dv"] = (turned(taken("dv.p", p)) @ taken("dv.dy", t["dy"])).sum(1, keepdims=True)
        dp = taken("dp.dy", t["dy"]) @ turned(taken("dp.v", t["v"]))
        ds = p * (dp - (p * dp).sum(-1, keepdims=True))
        out["dq"] = factor * taken("dq.ds", ds) @ taken("dq.k", t["k"])
        out["dk"] = factor * (turned(taken("dk.ds", ds)) @ taken("dk.q", t["q"])).sum(1, keepdims=True)
        return out, before, after

    def check(self, attention, rules, formats, more=""):
        out = self.run_program("{format: fp32, operands: {attention: %s%s}}" % (attention, more))
        counted = {(int(r["step"]), r["tensor"]): r for r in rows(out / "underflow.csv")
                   if r["layer"] == "attn"}
        for step in (1, 2, 4):
            tensors = self.tensors(out, step)
            want, before, after = self.products(tensors, rules)
            for name, values in want.items():
                # Probabilities are made of other exponentials: few of p and ds round the other way.
                error = np.abs(tensors[name] - values) / np.sqrt((values ** 2).mean())
                self.assertLess(np.quantile(error, 0.95), 2e-5, (step, name))
                self.assertLess(error.max(), 0.1, (step, name))
            for operand in AXES:
                kind = operand.split(".")[1]
                if kind not in formats:
                    self.assertNotIn((step, operand), counted)
                    continue
                row = counted[step, operand]
                self.assertEqual(row["format"], formats[kind], operand)
                self.assertEqual(int(row["numel"]), before[operand].size, operand)
                lost = (before[operand] != 0) & (after[operand] == 0)
                zeros = (before[operand] == 0).sum()
                carried = S if kind in ("dy", "ds") else 1
                if "current" in more:  # S times the operand's own
                    top = FORMATS[formats[kind]][2] / np.abs(before[operand]).max()
                    self.assertAlmostEqual(float(row["scale"]) / carried / top, 1, 4, operand)
                elif "static" not in more:
                    self.assertEqual(float(row["scale"]), carried)
                if kind in ("p", "ds"):
                    self.assertAlmostEqual(int(row["underflow"]), lost.sum(),
                                           delta=0.002 * lost.size)
                    continue
                self.assertEqual(int(row["zeros_before"]), zeros, operand)
                self.assertEqual(int(row["underflow"]), lost.sum(), operand)
        return out

    def test_plain_formats(self):
        of = {"q": "fp8_e4m3", "k": "fp8_e4m3", "v": "fp8_e4m3", "p": "fp8_e4m3",
              "dy": "fp8_e5m2", "ds": "fp8_e5m2"}
        self.check("{q: fp8_e4m3, k: fp8_e4m3, v: fp8_e4m3, p: fp8_e4m3, dy: fp8_e5m2, ds: fp8_e5m2}",
                   {name: plain(name_of) for name, name_of in of.items()}, of)

    def test_some_tensors(self):
        self.check("{q: fp8_e5m2, p: fp8_e4m3}",
                   {"q": plain("fp8_e5m2"), "p": plain("fp8_e4m3")},
                   {"q": "fp8_e5m2", "p": "fp8_e4m3"})

    def test_blocks(self):
        out = self.check("mxfp8_e4m3", dict.fromkeys(("q", "k", "v", "p", "dy", "ds"), mxfp8),
                         dict.fromkeys(("q", "k", "v", "p", "dy", "ds"), "mxfp8_e4m3"))
        blocks = {r["tensor"]: r for r in rows(out / "blocks.csv")
                  if r["layer"] == "attn" and r["step"] == "2"}
        self.assertEqual(set(blocks), set(AXES))
        lines = {"s.q": (HEADS * TOKENS, WIDTH), "s.k": (TOKENS, WIDTH), "y.v": (WIDTH, TOKENS),
                 "dv.p": (HEADS * TOKENS, TOKENS), "dk.q": (HEADS * WIDTH, TOKENS)}
        for operand, (count, length) in lines.items():
            self.assertEqual(int(blocks[operand]["blocks"]), IMAGES * count * math.ceil(length / 32))

    def test_scales_of_tensors(self):
        kinds = dict.fromkeys(("q", "k", "v", "p", "dy", "ds"), current("fp8_e4m3"))
        self.check("fp8_e4m3", kinds, dict.fromkeys(kinds, "fp8_e4m3"), ", tensor_scaling: current")

    def test_scales_of_rows(self):
        """Queries and keys in whole numbers by token, values by channel: as SageAttention has it."""
        self.check("{q: int8, k: int8, v: fp8_e4m3}",
                   {"q": by_row("int8"), "k": by_row("int8"), "v": by_row("fp8_e4m3")},
                   {"q": "int8", "k": "int8", "v": "fp8_e4m3"}, ", tensor_scaling: row")

    def test_fixed_scales(self):
        self.check("{p: fp8_e4m3, ds: fp8_e5m2}",
                   {"p": static("fp8_e4m3", 256), "ds": static("fp8_e5m2", 1024)},
                   {"p": "fp8_e4m3", "ds": "fp8_e5m2"},
                   ", tensor_scaling: {kind: static, values: {p: 256, ds: 1024}}")

    def test_nothing_rounded_changes_nothing(self):
        """Whole heads in memory, and in blocks of queries."""
        plain_run = self.run_program("{format: bf16}")
        none = self.run_program("{format: bf16, operands: {attention: none}}")
        wide = self.run_program("{format: bf16, operands: {attention: {dy: bf16}}}")
        for name in ("steps.csv", "scales.csv"):
            want = (plain_run / name).read_bytes()
            self.assertEqual((none / name).read_bytes(), want)
            self.assertEqual((wide / name).read_bytes(), want)

    def test_instruction_sets_threads_logging_and_resume(self):
        precision = ("{format: bf16, operands: {tensor_scaling: %s, attention: "
                     "{q: nvfp4, k: mxfp4, v: {format: fp8_e4m3, rounding: stochastic}, "
                     "p: {format: mxfp8_e4m3, rounding: stochastic}, dy: fp8_e5m2, ds: fp8_e5m2}}}")
        names = ("steps.csv", "underflow.csv", "blocks.csv")
        for kind in ("current", "{kind: delayed, history: 4}"):
            with self.subTest(kind=kind):
                first = self.run_program(precision % kind, threads=1)
                want = [(first / name).read_bytes() for name in names]
                sets = ({"threads": 2},)
                if platform.machine() == "x86_64":
                    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
                    sets += ({"isa": "avx2"},) if " avx2 " in flags else ()
                for options in sets:
                    other = self.run_program(precision % kind, **options)
                    got = [(other / name).read_bytes() for name in names]
                    if "isa" in options:  # sums of other products are made in another order there
                        got, mine = (other / names[1]).read_bytes(), want[1]
                        self.assertEqual(got.count(b"\n"), mine.count(b"\n"))
                        continue
                    self.assertEqual(got, want, options)
                cut = self.run_program(precision % kind, options=("--set", "train.max_steps=2"))
                self.ask("train", cut)
                self.assertEqual([(cut / name).read_bytes() for name in names], want)
                less = self.run_program(precision % kind,
                                        options=("--set", "log.every=4", "log.statistics=[dx]"))
                self.assertEqual((less / "steps.csv").read_bytes(), want[0])

    def test_layers_and_schedule(self):
        out = self.run_program("{format: bf16, operands: {attention: {p: fp8_e4m3, q: fp8_e4m3}}, "
                               "layers: [{match: attn, operands: {attention: {q: none}}}], "
                               "schedule: [{from_step: 3, operands: {attention: mxfp4}}]}")
        found = {(r["step"], r["tensor"], r["format"]) for r in rows(out / "underflow.csv")
                 if r["tensor"] in AXES}
        early = {(step, tensor, "fp8_e4m3") for step in ("1", "2") for tensor in ("y.p", "dv.p")}
        late = {("4", tensor, "mxfp4") for tensor in AXES if not tensor.endswith(".q")}
        self.assertEqual(found, early | late)

    def test_accumulators(self):
        """Codes are added, whatever their scales; of what has none that can be kept the program
        says so."""
        operands = "operands: {attention: %s}, accumulate: %s}"
        for scaling in ("fp8_e4m3", "fp8_e4m3, tensor_scaling: current", "fp8_e4m3, tensor_scaling: row",
                        "nvfp4", "fp8_block128"):
            exact = self.run_program("{format: fp32, " + operands % (scaling, "fma_fp32"))
            sums = self.run_program("{format: fp32, " + operands % (scaling, "none"))
            one, other = self.tensors(exact, 1), self.tensors(sums, 1)
            for name in ("y", "dq", "dk", "dv"):
                unit = np.sqrt((other[name] ** 2).mean())
                # One probability that rounds the other way moves the sums that it is in.
                error = np.abs(one[name] - other[name]) / unit
                self.assertLess(np.quantile(error, 0.95), 2e-5, (scaling, name))
            cut = self.run_program("{format: fp32, " + operands % (scaling, "hopper_fp8"))
            row = [r for r in rows(cut / "accumulators.csv")
                   if r["layer"] == "attn" and r["step"] == "2"]
            self.assertEqual({r["tensor"] for r in row}, {"forward", "dx"})
            for r in row:
                self.assertGreater(float(r["sqnr_db"]), 40)
                self.assertLess(float(r["sqnr_db"]), 120)  # of fp32 sums some 140
        self.run_program("{format: fp32, operands: {attention: mxfp8_e4m3}, accumulate: hopper_fp8}")
        self.run_program("{format: fp32, operands: {attention: {q: {format: {element: fp4_e2m1, "
                         "block: 16, scale: fp8_e4m3, tensor_scale: row}}}}, accumulate: hopper_fp8}",
                         fails="attn: s.q is in .*, whose rows or tensors have scales")

    def test_scenarios_are_what_a_run_in_the_format_counts(self):
        """In step 1, from the same weights: what rounds one tensor leaves it as it is stored."""
        formats = {"mx": "mxfp8_e4m3", "nv": "nvfp4", "tiles": "{element: fp8_e5m2, block: [16, 16]}",
                   "rows": "{element: fp4_e2m1, block: 16, scale: fp8_e4m3, tensor_scale: row}"}
        asked = ", ".join("{name: %s, format: %s}" % pair for pair in formats.items())
        for precision in ("{format: bf16%s}", "{format: fp16, gradients: bf16%s}"):
            plain_run = self.run_program(precision % "")
            judged = self.run_program(precision % "", options=(
                "--set", "log.histogram_every=2", f"log.what_if=[{asked}]"))
            for name in ("steps.csv", "underflow.csv", "scales.csv"):
                self.assertEqual((plain_run / name).read_bytes(), (judged / name).read_bytes())
            found = rows(judged / "what_if_blocks.csv")
            own = {(r["step"], r["scenario"], r["tensor"]): r for r in found if r["layer"] == "attn"}
            self.assertEqual(set(own), {(step, name, operand) for step in ("1", "2", "4")
                                        for name in formats for operand in AXES})
            for name, form in formats.items():
                for tensor in ("q", "k", "v", "p", "dy", "ds"):
                    out = self.run_program(precision % (
                        ", operands: {attention: {%s: %s}}" % (tensor, form)),
                        options=("--set", "train.max_steps=1", "log.every=1"))
                    counted = [r for r in rows(out / "blocks.csv")
                               if r["layer"] == "attn" and r["step"] == "1"]
                    self.assertEqual(len(counted), sum(o.endswith("." + tensor) for o in AXES))
                    for row in counted:
                        mine = own["1", name, row["tensor"]]
                        self.assertEqual({key: mine[key] for key in row if key in mine},
                                         {key: row[key] for key in row if key in mine})
        # Parts of a batch are added up.
        parts = self.run_program("{format: bf16}", options=(
            "--set", "log.histogram_every=2", f"log.what_if=[{asked}]", "train.accumulate=3"))
        whole = {key: int(row["numel"]) for key, row in own.items()}
        self.assertEqual({(r["step"], r["scenario"], r["tensor"]): int(r["numel"])
                          for r in rows(parts / "what_if_blocks.csv") if r["layer"] == "attn"}, whole)
        said = self.ask("recommend", judged).stdout
        self.assertIn("Block-scaled operands of attention, the narrowest first:", said)

    def test_refused(self):
        for operands, message in (
                ("{attention: {x: fp8_e4m3}}", r"operands\.attention\.x"),
                ("{attention: {p: fp9}}", r"operands\.attention\.p"),
                ("{attention: {q: as_forward}}", r"operands\.attention\.q"),
                ("{attention: {p: {format: fp8_e4m3, rounding: up}}}", "rounding")):
            with self.subTest(operands=operands):
                self.run_program("{format: bf16, operands: %s}" % operands, fails=message)


if __name__ == "__main__":
    unittest.main()
