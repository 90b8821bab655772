"""A PyTorch process that waits while other programs are measured. Knows no PyTorch itself."""
import json
import pathlib
import subprocess

from turns import end

WORKER = pathlib.Path(__file__).with_name("torch_worker.py")


class Torch:
    """One network in one mode, in a process of its own, so that its peak memory is its own. `asked`:
    what torch_worker.py reads; `about`: what it says of itself."""

    def __init__(self, python, **asked):
        self.process = subprocess.Popen([python, WORKER, json.dumps(asked)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.about = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            end("the PyTorch process ended (its message stands above)")
        return json.loads(line)

    def measure(self, steps):
        """What torch_worker.py answers."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check_same(model, ours, about, named=False):
    """Ends the program where PyTorch's network is not ada-train's (a flops.Network). `named`: the
    layers have the same names in both, and each has as many parameters."""
    parameters, flop = about["parameters"], about["forward_flop"]
    if parameters != ours.parameters or abs(flop - ours.forward_flop) > 501:  # it has three digits
        end(f"{model}: ada-train has {ours.parameters} parameters and {ours.forward_flop:.0f} "
            f"operations, PyTorch {parameters} and {flop}")
    if named and about["layers"] != ours.layers:
        layer = min(about["layers"].items() ^ ours.layers.items())[0]
        end(f"{model}: layer {layer}: ada-train has {ours.layers.get(layer, 0)} parameters, PyTorch "
            f"{about['layers'].get(layer, 0)}")
