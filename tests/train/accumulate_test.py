"""Sums of products under precision.accumulate, beside sums that NumPy makes of a dump's operands by
the published rule, in fp64; and what accumulators.csv counts of them."""
import pathlib
import platform
import unittest

from tests.train.accumulated_sums import FORMATS, IMAGES, Layer, rounded, sums
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
S = 64
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
