"""Random combinations of keys beside an independent reference in NumPy, which tests/train/combined/ holds.

A network of a few layers is drawn from a seed with its formats, policy, optimizer and data, and trained for a few
steps. Every tensor of the dumps, every weight and state of the checkpoints, every count of underflow.csv, blocks.csv
and accumulators.csv, every decision of scales.csv, every row of steps.csv, histograms.csv, what_if*.csv and
probes.csv, and what events.csv says of overflows is compared with what the pages of the tree say: weights and images
are small whole numbers times powers of two, so that most sums are exact in fp32 in any order, and equality is asked
for; elsewhere a value lies between two bounds, and a count between two counts. The same run without dumps, whose
layers are computed together, has to write the same rows.

Drawn are, of data: batch_size, normalize; of model.layers: inputs, channels, features, kernel, stride, padding,
output_padding, dilation, groups, bias, eps, momentum, min, max, slope, ceil_mode, count_include_pad, size, scale,
first, heads, kv_heads, causal, position, rate, mode, dropout and 42 kinds; of precision: format (all named ones and
maps with exponent, mantissa, bias, saturate, has_inf, has_nan, negative_zero), activations, weights, gradients,
weight_gradients, layers, overflow, masters (compensation), optimizer_state (map), rounding, preset, schedule,
tensor_scaling (kind, history, margin, amax, power_of_two), operands (x, w, dy, forward, dx, dw: formats, all
blocks, as_forward, tensor_scaling, overflow, rounding; tensor_scaling, hadamard, spared), accumulate,
accumulated_gradients; of scaling: policy, preset, init_scale, scale, growth_factor, backoff_factor,
growth_interval, min_scale, max_scale, log_max, overflow_std_dev, beta1, beta2, min_window, max_window,
update_period, bin_edge, threshold, method, underflow_target, scale_upper_bound, accum_upper_bound, power_of_two,
update_interval, fan, u_min, headroom_bits, batch_norm, attention, layers; of optimizer: every kind and key; of
schedule: kind, milestones, every, length, gamma, min_lr; of train: max_steps, accumulate, clip_norm,
label_smoothing, ema, on_overflow, max_retries, schedule_on_skip; of log: statistics, histogram_every, what_if,
probe_every. How many keys a call drew is printed. Language models have embeddings, positions, targets that are left
out, and heads that multiply the embedding's weight; Llamas rotary positions, and queries, keys and values of three
layers; vision transformers class tokens. Segmenters have pictures and label images, class_weights, unpooling and
functions that the others lack; with the last three come total_scale, on_overflow and more presets.

Put back, each of these is found among the networks of the slow suite: batch norms whose smallest product counts as
0 (abs_range), layerwise_dynamic that starts with attention's dk, exponents that exact_range forgets, another word
than `nonfinite`, a 0 that becomes -0 and counts as moved, values beyond fp32 under delayed scaling that count as
inf, channels of a transposed weight by another axis, dw of the last part alone in counts, NaN that becomes 0 and is
no zero, entries of precision.layers without effect or without `input`, a pool's dx that autocast rounds, transforms
of bf16 that saturates left in fp32, accumulators that take attention's tensors with scales of their own for numbers
of fp32, those of attention's gradients chosen by the key of another product, and counts that leave out heads.
"""

import argparse
import collections
import os
import pathlib
import shutil
import sys
import tempfile
import traceback
import unittest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads would only wait for each other
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "combined"))
try:
    import numpy as np
    import draws
    import probes
    from beside import Beside
    from draw_language import DrawLanguage
    from draw_pixels import DrawPixels
    from draw_transformers import DrawLlama, DrawVit
    from network import Network
    from runs import Run
    from storing import Unsure
except ImportError:
    np = None

SLOW = bool(os.environ.get("ADA_SLOW"))


def drawn_by(networks):
    return {"images": draws.Draw, "language": DrawLanguage, "pixels": DrawPixels, "llama": DrawLlama, "vit": DrawVit}[
        networks
    ]


def one(program, seed, folder, networks):
    """What differs in the network of a seed, the reference that compared it (None: it was not reached), and the run."""
    draw = drawn_by(networks)(seed)
    config, shape = draw.config()
    network = Network(config, shape)
    arrays, weights = draw.arrays(config, shape), draw.weights(network)
    run = Run(folder, config, arrays, weights)
    if run.start(program) != 0:
        return [f"exit code {run.code}: {run.said[-600:]}"], None, run
    beside = Beside(run, arrays, weights)
    with np.errstate(all="ignore"):
        try:
            differences = beside.check()
        except Unsure as unsure:
            beside.given_up = str(unsure)
            differences = beside.differences
    differences += probes.differs(run, program)
    # Without dumps layers are computed together; that changes nothing.
    run.start(program, "plain", "--set", "log.dump_every=0")
    for name in ("steps.csv", "scales.csv", "underflow.csv"):
        if (folder / "out" / name).read_bytes() != (folder / "plain" / name).read_bytes():
            differences.append(f"{name}: another one where nothing is dumped")
    return differences, beside, run


def keys_of(value, path=""):
    """Dotted names of the keys that a configuration gives."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from keys_of(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from keys_of(inner, path + "[]")
    else:
        yield path


def many(program, seeds, keep=None, networks="images"):
    """Runs the networks of the seeds, prints what differs; the number of those that do."""
    program = str(pathlib.Path(program).resolve())
    keys, found = collections.Counter(), collections.Counter()
    compared = exact = 0
    for seed in seeds:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ada-combined-"))
        try:
            differences, beside, run = one(program, seed, folder, networks)
            keys.update(set(keys_of(run.config)))
        except Exception:  # a fault of the reference
            differences, beside = [traceback.format_exc()], None
        found["networks"] += 1
        if beside is not None:
            compared, exact = compared + beside.compared, exact + beside.exact
            found["given up"] += hasattr(beside, "given_up")
        if differences:
            found["differ"] += 1
            print(f"seed {seed}:")
            for text in differences[:6]:
                print("  " + text)
            if keep:
                shutil.copytree(folder, pathlib.Path(keep) / str(seed), dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{found['networks']} networks, {len(keys)} keys, {found['differ']} differ, {found['given up']} given up in an "
        f"earlier part of a batch; {compared} values compared, {exact} of them sums that are exact in any order"
    )
    return found["differ"]


@unittest.skipIf(np is None, "needs NumPy")
class Combined(unittest.TestCase):
    def agree(self, networks, count):
        chosen = range(1, count + 1)
        self.assertEqual(many(os.environ["ADA_BINARY"], chosen, os.environ.get("ADA_KEEP"), networks), 0)

    def test_classifiers(self):
        self.agree("images", 230 if SLOW else 10)

    def test_language_models(self):
        self.agree("language", 70 if SLOW else 5)

    def test_llamas(self):
        self.agree("llama", 60 if SLOW else 3)

    def test_vision_transformers(self):
        self.agree("vit", 60 if SLOW else 3)

    def test_segmenters(self):
        self.agree("pixels", 100 if SLOW else 5)

    def test_states_that_saturate(self):
        """The scale of an fp16 state is the same under precision.overflow: saturate."""
        self.assertEqual(many(os.environ["ADA_BINARY"], [1172], os.environ.get("ADA_KEEP"), "language"), 0)

    def test_transforms_of_bf16(self):
        """What they give is rounded to bf16 where a tensor is kept in it, saturating or not, and not under its own scale."""
        for seed, networks in ((384, "images"), (20036, "vit")):
            self.assertEqual(many(os.environ["ADA_BINARY"], [seed], os.environ.get("ADA_KEEP"), networks), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=os.environ.get("ADA_BINARY"), help="the ada-train that is tried")
    parser.add_argument("--seed", type=int, default=1, help="of the first network")
    parser.add_argument("--count", type=int, default=300, help="how many, with the seeds that follow")
    parser.add_argument("--keep", help="folder for the inputs and outputs of networks that differ")
    parser.add_argument(
        "--networks", default="images", choices=("images", "language", "llama", "vit", "pixels"), help="what is drawn"
    )
    options = parser.parse_args()
    if np is None:
        sys.exit("combined_test.py: needs NumPy (python3-numpy)")
    chosen = range(options.seed, options.seed + options.count)
    sys.exit(1 if many(options.program, chosen, options.keep, options.networks) else 0)
