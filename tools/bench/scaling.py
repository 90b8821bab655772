#!/usr/bin/python3
"""Seconds of a training step over 1 to 4096 processes: a model of few constants, as a Markdown table.

  NAME=...     seconds of one image in one process, seconds of a step that do not depend on its images
               (update, copies of weights), parameters, small sums of a step, images of the batch
  --latency    seconds of one message; --bandwidth: bytes a second into and out of one process
  --bytes      of a gradient's value as it travels: 4, or 2 with parallel.gradients: bf16
  --weak       the batch is given for one process, and grows with their number

A step of n processes that share B images:
  compute      image * ceil(B / n) + step
  gradients    of P values: an exchange and a gather, each of (n - 1) messages and (n - 1) / n of the
               bytes; all but the last bucket (a quarter of P, or 4 MiB) travel beside the backward pass,
               which is two thirds of the images' seconds
  small sums   `LAYERS` gathers of some hundred bytes, which the pass waits for, and one of 600 bytes a
               process: each takes log2(n) messages and n times its bytes
"""
import argparse
import math
import signal
import sys

import markdown
from turns import parser_of

BACKWARD = 2 / 3
SMALL_BYTES, STATS_BYTES = 48, 600
BUCKET = 4 << 20


def step_seconds(n, network, latency, bandwidth, width, weak):
    """Compute, exposed gradients and small sums of a step, in seconds."""
    image, step, parameters, layers, batch = network
    images = batch if weak else math.ceil(batch / n)
    compute = image * images + step
    if n == 1:
        return compute, 0.0, 0.0
    total = parameters * width
    bucket = min(BUCKET * width / 4, total / 4)

    def travel(size):  # an exchange, then a gather
        return 2 * ((n - 1) * latency + size * (n - 1) / n / bandwidth)

    last = travel(bucket)
    before = travel(bucket) * (total / bucket - 1)
    exposed = last + max(0.0, before - BACKWARD * image * images)
    messages = math.ceil(math.log2(n))
    small = (layers * (messages * latency + n * SMALL_BYTES / bandwidth)
             + messages * latency + n * STATS_BYTES / bandwidth)
    return compute, exposed, small


def table(name, network, options):
    """A table as Markdown, and from where on more processes gain less than half of what they add."""
    rows, stops = [], None
    image, step, _, _, batch = network
    alone = batch / (image * batch + step)
    for n in options.ranks:
        if not options.weak and n > batch:
            break
        parts = step_seconds(n, network, options.latency, options.bandwidth, options.bytes,
                             options.weak)
        images = batch * (n if options.weak else 1)
        rate = images / sum(parts)
        efficiency = rate / (alone * n)
        if efficiency < 0.5 and stops is None:
            stops = n
        rows.append([str(n), str(batch if options.weak else math.ceil(batch / n)),
                     *(f"{1000 * seconds:.3g} ms" for seconds in (*parts, sum(parts))),
                     f"{rate:.4g}", f"{100 * efficiency:.0f} %"])
    return markdown.table([f"{name}: processes", "images each", "compute", "gradients waited for",
                           "small sums", "step", "images/s", "efficiency"], rows), stops


def network_of(text):
    name, _, numbers = text.partition("=")
    values = [float(number) for number in numbers.split(",")]
    if not name or len(values) != 5 or min(values) < 0 or values[4] < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=IMAGE,STEP,PARAMETERS,LAYERS,BATCH")
    return name, (*values[:4], int(values[4]))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--network", type=network_of, action="append", required=True,
                        metavar="NAME=IMAGE,STEP,PARAMETERS,LAYERS,BATCH")
    parser.add_argument("--latency", type=float, default=2e-6)
    parser.add_argument("--bandwidth", type=float, default=12e9)
    parser.add_argument("--bytes", type=int, choices=(2, 4), default=4)
    parser.add_argument("--weak", action="store_true")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")],
                        default=[2 ** k for k in range(13)])
    options = parser.parse_args()
    for name, network in options.network:
        text, stops = table(name, network, options)
        print(f"{text}\n\n{name}: " + (f"below half of a process's worth from {stops} processes on"
                               if stops else "above half of a process's worth all the way") + "\n")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of `| head`: nobody reads on
    sys.exit(main())
