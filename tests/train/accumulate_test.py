"""Sums of products under precision.accumulate, beside sums that NumPy makes of a dump's operands by
the published rule, in fp64; and what accumulators.csv counts of them."""
import math
import pathlib
import platform
import unittest

from tests.train.dumped_runs import DumpedRuns, np, rows

NETWORK = """
seed: 5
device: {kind: cpu, threads: %(threads)d}
data:
  dataset: synthetic
  synthetic: {height: 9, width: 7, channels: 3, classes: 10, train: 60, test: 20}
  batch_size: 12
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 20, kernel: 3, padding: 1, bias: false}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 24, kernel: 3, padding: 1, stride: 2, groups: 2, bias: false}
    - {name: up, kind: conv_transpose2d, channels: 16, kernel: 2, stride: 2, groups: 2, bias: false}
    - {name: relu2, kind: relu}
    - {name: fc, kind: linear, features: 10}
precision: %(precision)s
scaling: {policy: fixed, scale: 64}
optimizer: {kind: sgd, lr: 0.05, momentum: 0.9}
train: {max_steps: 4}
log: {every: 2, statistics: [dx, dw], dump_every: 2}
"""
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
IMAGES, S = 12, 64
# name: kernel, stride, padding, groups; fc takes the whole image
WINDOWS = {"conv1": (3, 1, 1, 1), "conv2": (3, 2, 1, 2), "up": (2, 2, 0, 2)}
# mantissa bits, exponent of the smallest normal number, largest
FORMATS = {"fp32": (23, -126, np.finfo(np.float32).max if np else 0), "e8m13": (13, -126, 3.4e38),
           "fp16": (10, -14, 65504.0), "bf16": (7, -126, 3.39e38), "fp8_e4m3": (3, -6, 448.0),
           "fp8_e5m2": (2, -14, 57344.0)}
# group, fraction bits, accumulator, nearest, promote
RULES = {"volta_f16": (4, 23, "fp16", True, 0), "ampere_f32": (8, 24, "fp32", False, 0),
         "hopper_f32": (16, 25, "fp32", False, 0), "hopper_fp8": (32, 13, "e8m13", False, 0),
         "hopper_fp8_promote128": (32, 13, "e8m13", False, 128),
         "hopper_fp8_f16": (32, 13, "fp16", True, 0)}


def rounded(x, name, nearest=True):
    bits, lowest, top = FORMATS[name]
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(np.where(x == 0, 1, x))[1] - 1, lowest)
    unit = np.exp2((exponent - bits).astype(np.float64))
    return np.clip((np.rint if nearest else np.trunc)(x / unit) * unit, -top, top)


def exponents(x, name):
    lowest = FORMATS[name][1]
    return np.where(x == 0, -100000, np.maximum(np.frexp(np.where(x == 0, 1, x))[1] - 1, lowest))


def sums(a, b, format_a, format_b, rule):
    """[M, K], [N, K] of values to [M, N], and how many products were cut to zero, of how many."""
    group, fraction, accumulator, nearest, promote = RULES[rule]
    a, b = a.astype(np.float64), b.astype(np.float64)
    ea, eb = exponents(a, format_a), exponents(b, format_b)
    c, main = np.zeros((len(a), len(b))), np.zeros((len(a), len(b)), np.float32)
    swallowed = products = 0
    for begin in range(0, a.shape[1], group):
        part = slice(begin, begin + group)
        p = a[:, None, part] * b[None, :, part]
        top = np.where(p == 0, -100000, ea[:, None, part] + eb[None, :, part]).max(-1)
        own = exponents(c, accumulator)
        if accumulator != "fp16":
            own = np.maximum(own, -126)
        unit = np.exp2(np.maximum(np.maximum(top, own), -900).astype(np.float64) - fraction)
        cut = np.trunc(p / unit[..., None])
        swallowed += int(((cut == 0) & (p != 0)).sum())
        products += int((p != 0).sum())
        c = rounded((cut.sum(-1) + np.trunc(c / unit)) * unit, accumulator, nearest)
        if promote and (begin + group) % promote == 0:
            main, c = main + c.astype(np.float32), np.zeros_like(c)
    return (main + c.astype(np.float32)) if promote else c.astype(np.float32), swallowed, products


def window_of(layer, big, small):
    """Indices [pixels of small, taps] into the pixels of big, one more for none."""
    if layer == "fc":
        kernel, stride, padding, _ = big, (1, 1), 0, 1
    else:
        size, step, padding, _ = WINDOWS[layer]
        kernel, stride = (size, size), (step, step)
    index = np.full((small[0] * small[1], kernel[0] * kernel[1]), big[0] * big[1])
    for h in range(small[0]):
        for w in range(small[1]):
            for i in range(kernel[0]):
                for j in range(kernel[1]):
                    y, x = h * stride[0] - padding + i, w * stride[1] - padding + j
                    if 0 <= y < big[0] and 0 <= x < big[1]:
                        index[h * small[1] + w, i * kernel[1] + j] = y * big[1] + x
    return index


class Layer:
    """A convolution from `big` to `small`; a transposed one is the same the other way round."""

    def __init__(self, name, dump):
        self.name = name
        x, y = dump[f"{name}.x"], dump[f"{name}.y"]
        if name == "fc":
            x, y = x.reshape(IMAGES, 16, 10, 8), y.reshape(IMAGES, 10, 1, 1)
        self.transposed = name == "up"
        self.groups = WINDOWS[name][3] if name in WINDOWS else 1
        self.w = dump[f"{name}.w"]
        dy = dump[f"{name}.dy"].reshape(y.shape)
        self.big, self.small = (dy, x) if self.transposed else (x, dy)
        self.x, self.y, self.dy = x, y, dy
        self.index = window_of(name, self.big.shape[2:], self.small.shape[2:])

    def weights(self, group):
        """[out of the group, taps, in of the group]"""
        w = np.split(self.w.reshape(self.w.shape[0], -1), self.groups)[group]
        taps = self.index.shape[1]
        return w.reshape(w.shape[0], -1, taps).transpose(0, 2, 1)

    def place(self, values):
        """taps, channels to one axis, in the order of the layer."""
        if self.name == "fc":
            values = np.swapaxes(values, -1, -2)
        return values.reshape(*values.shape[:-2], -1)

    def gathered(self, tensor, index, group):
        """[images * pixels, taps, channels of the group]"""
        part = np.split(tensor, self.groups, axis=1)[group]
        flat = part.reshape(len(part), part.shape[1], -1)
        flat = np.concatenate([flat, np.zeros_like(flat[:, :, :1])], axis=2)
        return flat[:, :, index].transpose(0, 2, 3, 1).reshape(-1, index.shape[1], part.shape[1])

    def toward_small(self, source, group):
        w = self.weights(group)
        return self.place(self.gathered(source, self.index, group)), self.place(w)

    def toward_big(self, source, group):
        pixels = self.big.shape[2] * self.big.shape[3]
        back = np.full((pixels, self.index.shape[1]), self.index.shape[0])
        for pixel in range(self.index.shape[0]):
            for tap, at in enumerate(self.index[pixel]):
                if at < pixels:
                    back[at, tap] = pixel
        w = self.weights(group).transpose(2, 1, 0)
        return self.place(self.gathered(source, back, group)), self.place(w)

    def product(self, name):
        """Pairs of operands [M, K], [N, K], a group each."""
        if (self.name, name) == ("fc", "dx"):  # no taps: a matrix by one image's gradient
            yield self.dy.reshape(IMAGES, -1), self.w.reshape(len(self.w), -1).T
            return
        forward, data = ((self.toward_big, self.toward_small) if self.transposed
                         else (self.toward_small, self.toward_big))
        for group in range(self.groups):
            if name == "forward":
                yield forward(self.x, group)
            elif name == "dx":
                yield data(self.dy, group)
            else:
                small = np.split(self.small, self.groups, axis=1)[group]
                columns = self.gathered(self.big, self.index, group)
                yield (small.transpose(1, 0, 2, 3).reshape(small.shape[1], -1),
                       columns.reshape(len(columns), -1).T)

    def result(self, name, parts):
        """As the dump has it."""
        if name == "dw":
            taps = self.index.shape[1]
            return np.concatenate([p.reshape(len(p), taps, -1).transpose(0, 2, 1).reshape(len(p), -1)
                                   for p in parts]).reshape(self.w.shape)
        to = self.y if name == "forward" else self.x
        if (self.name, name) == ("fc", "dx"):
            return parts[0].reshape(to.shape)
        pixels = to.shape[2] * to.shape[3]
        joined = [p.reshape(IMAGES, pixels, -1).transpose(0, 2, 1) for p in parts]
        return np.concatenate(joined, axis=1).reshape(to.shape)


class Accumulate(DumpedRuns):
    def run_program(self, precision, threads=2, options=(), isa=None):
        text = NETWORK % {"threads": threads, "precision": precision}
        out, done = self.train(text, *options, isa=isa)
        self.told = done.stdout
        return out

    def check(self, precision, stored, rules, operands=None):
        """rules: by product; operands: formats of x, w and dy as products take them."""
        out = self.run_program(precision)
        formats = operands or {"x": stored, "w": stored, "dy": stored}
        counted = {(r["step"], r["layer"], r["tensor"]): r for r in rows(out / "accumulators.csv")}
        checked = 0
        for step in (1, 2):  # of fc the bias is 0 in step 1 alone
            dump = self.dump(out, step)
            for name in ("conv1", "conv2", "up", "fc"):
                layer = Layer(name, dump)
                for product, rule in rules.items():
                    if name == "conv1" and product == "dx":
                        self.assertNotIn((str(step), name, product), counted)
                        continue
                    both = {"forward": ("x", "w"), "dx": ("dy", "w"),
                            "dw": ("x", "dy") if layer.transposed else ("dy", "x")}[product]
                    fa, fb = formats[both[0]], formats[both[1]]
                    parts, swallowed, products, count = [], 0, 0, 0
                    for a, b in layer.product(product):
                        c, cut, all_products = sums(rounded(a, fa), rounded(b, fb), fa, fb, rule)
                        parts.append(c)
                        swallowed, products = swallowed + cut, products + all_products
                        count += c.size
                    want = layer.result(product, parts)
                    got = dump[f"{name}.{ {'forward': 'y'}.get(product, product)}"]
                    want = (want / np.float32(S) if product == "dw"
                            else rounded(want, stored)).reshape(got.shape)
                    row = counted[str(step), name, product]
                    if not (name == "fc" and product == "forward" and step > 1):
                        np.testing.assert_array_equal(got, want.astype(np.float32),
                                                      f"{step} {name} {product}")
                    self.assertEqual(row["accumulator"], rule)
                    self.assertEqual(int(row["numel"]), count)
                    self.assertEqual(int(row["products"]), products)
                    self.assertEqual(int(row["swallowed"]), swallowed)
                    if products:
                        self.assertAlmostEqual(float(row["swallowed_pct"]),
                                               100 * swallowed / products, 6)
                    checked += 1
        self.assertEqual(checked, 2 * (4 * len(rules) - ("dx" in rules)))
        return out

    def test_fp16(self):
        self.check("{format: fp16, accumulate: volta_f16}", "fp16",
                   dict.fromkeys(("forward", "dx", "dw"), "volta_f16"))

    def test_bf16_by_product(self):
        self.check("{format: bf16, accumulate: {forward: hopper_f32, dw: ampere_f32}}", "bf16",
                   {"forward": "hopper_f32", "dw": "ampere_f32"})

    def test_fp8_operands(self):
        self.check("{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2}, accumulate: "
                   "{forward: hopper_fp8, dx: hopper_fp8_promote128, dw: hopper_fp8_promote128}}",
                   "bf16", {"forward": "hopper_fp8", "dx": "hopper_fp8_promote128",
                            "dw": "hopper_fp8_promote128"},
                   {"x": "fp8_e4m3", "w": "fp8_e4m3", "dy": "fp8_e5m2"})

    def test_instruction_sets_threads_and_resume(self):
        """The same bytes by any of them."""
        precision = ("{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2}, "
                     "accumulate: hopper_fp8}")
        names = ("steps.csv", "accumulators.csv", "underflow.csv")
        first = self.run_program(precision, threads=1)
        want = [(first / name).read_bytes() for name in names]
        sets = ({"threads": 2},)
        if platform.machine() == "x86_64":
            flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
            sets += ({"isa": "sse2"},) + (({"isa": "avx2"},) if " avx2 " in flags else ())
        for options in sets:
            other = self.run_program(precision, **options)
            self.assertEqual([(other / name).read_bytes() for name in names], want, options)
        cut = self.run_program(precision, options=("--set", "train.max_steps=2"))
        done = self.ask("train", cut)
        self.assertEqual([(cut / name).read_bytes() for name in names], want)
        self.assertIn("sums by hopper_fp8: ", done.stdout)

    def test_scales_that_are_no_powers_of_two(self):
        """Codes are added; the scales of both operands are multiplied in afterwards."""
        precision = ("{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, "
                     "tensor_scaling: current}, accumulate: hopper_fp8}")
        dump = self.dump(self.run_program(precision), 1)
        layer = Layer("conv2", dump)

        def codes(values, name):
            largest = np.float32(np.abs(values).max())
            scale = np.float32(FORMATS[name][2]) / largest
            return rounded((values * scale).astype(np.float32), name), scale
        x, scale_x = codes(layer.x, "fp8_e4m3")
        w, scale_w = codes(layer.w, "fp8_e4m3")
        layer.x, layer.w = x.astype(np.float32), w.astype(np.float32)
        layer.big = layer.x
        factor = (np.float32(1) / scale_x) * (np.float32(1) / scale_w)
        parts = [sums(a, b, "fp8_e4m3", "fp8_e4m3", "hopper_fp8")[0] * factor
                 for a, b in layer.product("forward")]
        want = rounded(layer.result("forward", parts), "bf16").astype(np.float32)
        np.testing.assert_array_equal(dump["conv2.y"], want)

    def codes_by(self, values, axes, name, power_of_two=False):
        """Codes and the factors that bring them back, one for all values along the axes."""
        amax = np.abs(values).max(axis=axes, keepdims=True).astype(np.float32)
        scale = np.float32(FORMATS[name][2]) / np.where(amax > 0, amax, np.float32(FORMATS[name][2]))
        if power_of_two:
            scale = np.exp2(np.floor(np.log2(scale.astype(np.float64)))).astype(np.float32)
        codes = rounded((values * scale).astype(np.float32), name).astype(np.float32)
        return codes, np.float32(1) / scale

    def test_scales_of_rows(self):
        """Multiplied with whole sums: of a linear layer, and of dw under a window. Under a window y
        is added tap by tap."""
        precision = ("{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, "
                     "tensor_scaling: row}, accumulate: hopper_fp8}")
        out = self.run_program(precision)
        dump = self.dump(out, 1)
        fc = Layer("fc", dump)
        x, of_x = self.codes_by(fc.x.reshape(IMAGES, -1), 1, "fp8_e4m3")
        w, of_w = self.codes_by(fc.w, 1, "fp8_e4m3")
        want = sums(x, w, "fp8_e4m3", "fp8_e4m3", "hopper_fp8")[0] * (of_x * of_w.T)
        np.testing.assert_array_equal(dump["fc.y"], rounded(want, "bf16").astype(np.float32))

        layer = Layer("conv2", dump)
        main = []
        for group in range(2):
            x, w = layer.gathered(layer.x, layer.index, group), layer.weights(group)
            x, of_x = self.codes_by(x, 2, "fp8_e4m3")
            w, of_w = self.codes_by(w, 2, "fp8_e4m3")
            total = np.zeros((len(x), len(w)), np.float32)
            for tap in range(x.shape[1]):
                c = sums(x[:, tap], w[:, tap], "fp8_e4m3", "fp8_e4m3", "hopper_fp8")[0]
                by = of_x[:, tap] * of_w[:, tap].T
                total = (total + c.astype(np.float64) * by).astype(np.float32)
            main.append(total)
        want = rounded(layer.result("forward", main), "bf16").astype(np.float32)
        np.testing.assert_array_equal(dump["conv2.y"], want)

        layer.x, of_x = self.codes_by(layer.x, (0, 2, 3), "fp8_e4m3")
        layer.dy, of_dy = self.codes_by(layer.dy, (0, 2, 3), "fp8_e5m2")
        layer.big, layer.small = layer.x, layer.dy
        parts = []
        for group, (a, b) in enumerate(layer.product("dw")):
            by = np.tile(np.split(of_x.reshape(-1), 2)[group], layer.index.shape[1])
            c = sums(a, b, "fp8_e5m2", "fp8_e4m3", "hopper_fp8")[0]
            parts.append(c * (np.split(of_dy.reshape(-1, 1), 2)[group] * by))
        want = layer.result("dw", parts) / np.float32(S)
        np.testing.assert_array_equal(dump["conv2.dw"], want.reshape(dump["conv2.dw"].shape))
        row = [r for r in rows(out / "accumulators.csv") if r["layer"] == "fc"]
        self.assertTrue(all(float(r["sqnr_db"]) > 30 for r in row))

    def test_blocks_with_scales_under_a_window(self):
        """dw: where a block of dy, or of x at this tap, ends, codes are multiplied by both scales."""
        block = ("{element: fp8_e4m3, block: 128, scale: fp32, power_of_two: true}")
        precision = ("{format: bf16, operands: {x: %s, w: %s, dy: %s}, accumulate: hopper_fp8}"
                     % (block, block, block))
        dump = self.dump(self.run_program(precision), 1)
        layer = Layer("conv2", dump)

        def blocks(tensor):  # [images, channels, h, w] to codes and factors of each value
            flat = tensor.transpose(1, 0, 2, 3).reshape(tensor.shape[1], -1)
            parts = [self.codes_by(flat[:, at:at + 128], 1, "fp8_e4m3", True)
                     for at in range(0, flat.shape[1], 128)]
            back = lambda x: x.reshape(tensor.shape[1], IMAGES, *tensor.shape[2:]).swapaxes(0, 1)
            return (back(np.concatenate([codes for codes, _ in parts], 1)),
                    back(np.concatenate([np.broadcast_to(f, c.shape) for c, f in parts], 1)))
        x, of_x = blocks(layer.x)
        dy, of_dy = blocks(layer.dy)
        pixels, big = layer.index.shape[0], layer.x.shape[2] * layer.x.shape[3]
        parts = []
        for group in range(2):
            columns = layer.gathered(x, layer.index, group)
            factors = layer.gathered(of_x, layer.index, group)
            a, of_a = (np.split(t, 2, axis=1)[group].transpose(1, 0, 2, 3).reshape(t.shape[1] // 2, -1)
                       for t in (dy, of_dy))
            taps = []
            for tap in range(layer.index.shape[1]):
                met = layer.index[:, tap]
                total = np.zeros((len(a), columns.shape[2]), np.float32)
                begin = 0
                while begin < a.shape[1]:
                    end, own = begin, None
                    while end < a.shape[1] and end // 128 == begin // 128:
                        inside = met[end % pixels] < big
                        here = (end // pixels * big + met[end % pixels]) // 128
                        if inside and own not in (None, here):
                            break
                        own = here if inside else own
                        end += 1
                    c = sums(a[:, begin:end], columns[begin:end, tap].T, "fp8_e4m3", "fp8_e4m3",
                             "hopper_fp8")[0]
                    by = of_a[:, begin:begin + 1] * factors[begin:end, tap].max(axis=0)
                    total = (total + c.astype(np.float64) * by).astype(np.float32)
                    begin = end
                taps.append(total)
            parts.append(np.stack(taps, 1).reshape(len(a), -1))
        want = layer.result("dw", parts) / np.float32(S)
        np.testing.assert_array_equal(dump["conv2.dw"], want.reshape(dump["conv2.dw"].shape))
        self.run_program("{recipe: deepseek_v3, accumulate: hopper_fp8_promote128}")

    def test_layers_spared_and_schedule(self):
        precision = ("{format: fp16, accumulate: {forward: volta_f16, spared: {first: 1, last: 1}},"
                     " layers: [{match: up, accumulate: {dw: ampere_f32}}],"
                     " schedule: [{from_step: 3, accumulate: {forward: none, dx: hopper_f32}}]}")
        out = self.run_program(precision)
        found = {(r["step"], r["layer"], r["tensor"]): r["accumulator"]
                 for r in rows(out / "accumulators.csv")}
        early = {("conv2", "forward"): "volta_f16", ("up", "forward"): "volta_f16",
                 ("up", "dw"): "ampere_f32"}
        late = {("conv2", "dx"): "hopper_f32", ("up", "dx"): "hopper_f32",
                ("up", "dw"): "ampere_f32"}
        want = {(step, *key): rule for steps, rules in ((("1", "2"), early), (("4",), late))
                for step in steps for key, rule in rules.items()}
        self.assertEqual(found, want)

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

    def test_what_if(self):
        """What another accumulator would do, without a change of the training: the same rows as of
        a run that has it, in the step that starts from the same weights."""
        precision = "{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2}%s}"
        asked = ("--set", "log.what_if=[{accumulate: hopper_fp8}, {name: short, accumulate: "
                          "{group: 8, fraction_bits: 7, accumulator: fp32}}]",
                 "log.histogram_every=2")
        plain = self.run_program(precision % "")
        judged = self.run_program(precision % "", options=asked)
        self.assertEqual((plain / "steps.csv").read_bytes(), (judged / "steps.csv").read_bytes())
        self.assertFalse((judged / "accumulators.csv").exists())
        found = rows(judged / "what_if_accumulators.csv")
        self.assertEqual({r["scenario"] for r in found}, {"accumulate=hopper_fp8", "short"})
        self.assertEqual({r["step"] for r in found}, {"1", "2", "4"})
        self.assertEqual(len(found), 3 * 2 * 11)
        own = {(r["layer"], r["tensor"]): r for r in rows(
            self.run_program(precision % ", accumulate: hopper_fp8") / "accumulators.csv")
            if r["step"] == "1" and r["tensor"] == "forward" and r["layer"] == "conv1"}
        for row in found:
            known = own.get((row["layer"], row["tensor"]))
            if known is None or row["step"] != "1" or row["scenario"] == "short":
                continue
            self.assertEqual({k: row[k] for k in known}, known)
            own.pop((row["layer"], row["tensor"]))
        self.assertEqual(own, {})

    def test_blocks_of_powers_of_two(self):
        self.run_program("{recipe: te_mxfp8, accumulate: blackwell_fp8}")
        self.assertIn("sums by blackwell_fp8: ", self.told)

    def test_blocks_of_other_scales(self):
        """Codes are added block by block, and the blocks' scales multiplied in where one ends."""
        def codes(block, tiles):
            """And the scales that bring them back, of rows or of tiles of 128 rows."""
            amax = np.abs(block).max(axis=1)
            if tiles:
                for begin in range(0, len(amax), 128):
                    amax[begin:begin + 128] = amax[begin:begin + 128].max()
            encode = np.float32(448) / np.where(amax > 0, amax, 448)
            decode = np.where(amax > 0, np.float32(1) / encode, np.float32(1))
            values = (block * encode[:, None]).astype(np.float32)
            return rounded(values, "fp8_e4m3"), decode[:, None].astype(np.float32)

        def product(a, scale_a, b, scale_b, tiles=False):
            main = np.zeros((len(a), len(b)), np.float32)
            for block, begin in enumerate(range(0, a.shape[1], 128)):
                part = slice(begin, begin + 128)
                code_a, left = codes(a[:, part], False)
                code_b, right = codes(b[:, part], tiles)
                for mine, theirs in ((left, scale_a), (right, scale_b)):
                    other = theirs[:, block:block + 1]
                    np.testing.assert_array_equal(np.where(other == 0, mine, other), mine)
                c = sums(code_a, code_b, "fp8_e4m3", "fp8_e4m3", "hopper_fp8")[0]
                factor = (left * right.T).astype(np.longdouble)
                main = (c.astype(np.longdouble) * factor + main).astype(np.float32)
            return main
        layers = """  layers:
    - {name: fc1, kind: linear, features: 300, bias: false}
    - {name: relu, kind: relu}
    - {name: fc2, kind: linear, features: 160, bias: false}
    - {name: fc3, kind: linear, features: 10, bias: false}
"""
        network = NETWORK[:NETWORK.index("  layers:")] + layers + NETWORK[
            NETWORK.index("precision:"):]
        network = network.replace("batch_size: 12", "batch_size: 150").replace("train: 60",
                                                                               "train: 300")
        precision = "{recipe: deepseek_v3, accumulate: hopper_fp8_promote128}"
        out, _ = self.train(network % {"threads": 2, "precision": precision}, "--set",
                            "log.statistics=[operands]")
        dump = self.dump(out, 2)
        for name in ("fc1", "fc2", "fc3"):
            w = dump[f"{name}.w"].reshape(len(dump[f"{name}.w"]), -1)
            x, dy = (dump[f"{name}.{tensor}"].reshape(150, -1) for tensor in ("x", "dy"))
            scales = {operand: dump[f"{name}.{operand}.scales"][0]
                      for operand in ("forward.x", "forward.w", "dw.x", "dw.dy")}
            tiles = np.repeat(scales["forward.w"], 128, axis=0)[:len(w)]
            y = rounded(product(x, scales["forward.x"], w, tiles, True), "bf16")
            np.testing.assert_array_equal(dump[f"{name}.y"].reshape(150, -1), y)
            dw = product(dy.T, scales["dw.dy"], x.T, scales["dw.x"]) / np.float32(S)
            np.testing.assert_array_equal(dump[f"{name}.dw"].reshape(w.shape), dw)
            if name == "fc1":
                continue
            tiles = np.repeat(scales["forward.w"].T, 128, axis=0)[:w.shape[1]]
            dx = rounded(product(dy, dump[f"{name}.dx.dy.scales"][0], w.T, tiles, True), "bf16")
            np.testing.assert_array_equal(dump[f"{name}.dx"].reshape(150, -1), dx)

    def test_refusals(self):
        for precision, words in (
                ("{accumulate: hopper_fp9}", "did you mean 'hopper_fp8'?"),
                ("{accumulate: {group: 32, fraction_bits: 13, accumulator: fp32, promote: 40}}",
                 "promote is 40; it has to be a multiple of group, 32"),
                ("{accumulate: {group: 32}}", "fraction_bits"),
                ("{accumulate: {group: 0, fraction_bits: exact, accumulator: fp32}}", "group"),
                ("{accumulate: {forwards: hopper_fp8}}", "forward")):
            _, done = self.train(NETWORK % {"threads": 1, "precision": precision}, code=2)
            self.assertIn(words, done.stderr)
            self.assertIn("precision.accumulate", done.stderr)


if __name__ == "__main__":
    unittest.main()
