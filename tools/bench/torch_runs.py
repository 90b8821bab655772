"""A PyTorch process that waits while other programs are measured. Knows no PyTorch itself."""
import json
import pathlib
import statistics
import subprocess
import sys

WORKER = pathlib.Path(__file__).with_name("torch_worker.py")


class Torch:
    """One network in one mode, in a process of its own, so that its peak memory is its own."""

    def __init__(self, python, model, mode, batch, threads, device="cpu", replay=()):
        self.batch, self.peak_mib, self.cpu = batch, None, None
        self.process = subprocess.Popen(
            [python, WORKER, "--model", model, "--mode", mode, "--batch", str(batch), "--threads",
             str(threads), "--device", device, *(("--replay", *replay) if replay else ())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench.py: the PyTorch process ended (its message stands above)")
        return json.loads(line)

    def samples_per_second(self, steps):
        """By the median step."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.peak_mib, self.cpu = answer["peak_mib"], answer.get("cpu")
        return self.batch / statistics.median(answer["seconds"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check_same(model, ours, about, named=False):
    """Ends the program where PyTorch's network is not ada-train's (a flops.Network). `named`: the
    layers have the same names in both, and each has as many parameters."""
    theirs = (about["parameters"], about["forward_flop"])
    if theirs != (ours.parameters, ours.forward_flop()):
        sys.exit(f"bench.py: {model}: ada-train has {ours.parameters} parameters and "
                 f"{ours.forward_flop()} operations, PyTorch {theirs[0]} and {theirs[1]}")
    if named and about["layers"] != ours.layers:
        layer = min(about["layers"].items() ^ ours.layers.items())[0]
        sys.exit(f"bench.py: {model}: layer {layer}: ada-train has {ours.layers.get(layer, 0)} "
                 f"parameters, PyTorch {about['layers'].get(layer, 0)}")
