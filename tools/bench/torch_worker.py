"""Training steps of one network in PyTorch in one mode: what ada-train's speed is compared with.
Started by torch_runs.py in a Python that has torch, with one argument, a map as JSON:

  model, batch, device   a name of torch_networks.py; images or sequences; cpu or cuda
  mode                   as modes.py has it, without "torch-"
  threads                0: torch's own choice
  replay                 a checkpoint of ada-train and the folder of its dumps, or null
  policy                 not empty: AdaLossScaled with this policy as YAML around the network
  contiguous             true: not in channels_last

Trains the recorded steps that `replay` names, warms up, then prints what it is as a line of JSON.
Reads numbers of steps from stdin, one a line, and answers each with {"seconds": [of each step],
"peak_mib": VmHWM of this process, "cpu": processor seconds of a step, of all threads}; on a GPU,
where steps are queued, "seconds" is the mean step alone. Data stay in memory: no loader, no
augmentation, no logging.
"""
import json
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from torch_emulation import emulate_fp16
from torch_networks import NETWORKS, describe, write_attention_out
from torch_replay import first_weights, recorded_batches

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

WARM_UP = 5  # steps before the first measurement
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
OPERANDS = ("mxfp8", "nvfp4", "mxfp8-torchao")  # quantized, within autocast to bf16


def peak_mib():
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


class Training:
    """A network in one mode and its training step."""

    def __init__(self, case, network, asked):
        self.case, self.device, self.scaled = case, asked["device"], None
        mode, how = asked["mode"], asked["mode"].partition("-")
        form = torch.contiguous_format if asked.get("contiguous") else torch.channels_last
        self.network = network.to(self.device, memory_format=form)
        if how[0] in ("emulated", "counted"):
            emulate_fp16(self.network, counting=how[0] == "counted")
        if how[2] == "written":
            write_attention_out(self.network)
        elif how[2] == "compiled":
            self.network = torch.compile(
                self.network, mode="reduce-overhead" if self.device == "cuda" else None)
        if mode in OPERANDS:
            from torch_operands import quantize_operands
            quantize_operands(self.network, mode)
        self.autocast = AUTOCAST.get("bf16" if mode in OPERANDS else how[0])
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.autocast == torch.float16)
        self.optimizer = case.optimizer(network)
        if asked.get("policy"):
            from ada_train.torch import AdaLossScaled
            self.network = self.scaled = AdaLossScaled(network, asked["policy"])
        self.samples = case.samples(asked["batch"], self.device)
        if self.samples.dim() == 4:
            self.samples = self.samples.contiguous(memory_format=form)
        with torch.no_grad(), self.casting():
            outputs = self.logits(self.samples[:2])
        of_pixels = outputs.dim() == 4
        self.labels = torch.randint(0, outputs.shape[1], (
            asked["batch"] * outputs.shape[0] // 2, *outputs.shape[2:]), device=self.device)
        self.weight = torch.ones(outputs.shape[1], device=self.device) if of_pixels else None
        self.graph = self.captured() if how[2] == "graphed" else None

    def casting(self, cached=True):
        return torch.autocast(self.device, dtype=self.autocast or torch.bfloat16,
                              enabled=self.autocast is not None, cache_enabled=cached)

    def logits(self, samples):
        """[images, classes], or [images, classes, h, w] of pixels, or [tokens, vocabulary]."""
        outputs = self.network(samples)
        return outputs.flatten(0, 1) if outputs.dim() == 3 else outputs

    def gradients(self, cached=True):
        with self.casting(cached):
            loss = functional.cross_entropy(self.logits(self.samples), self.labels,
                                            weight=self.weight,
                                            label_smoothing=self.case.smoothing)
        (self.scaler if self.scaled is None else self.scaled).scale(loss).backward()
        return loss

    def captured(self):
        """Forward and backward pass as a CUDA graph; the update, which may be skipped, is none."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # as PyTorch's manual asks for
                self.optimizer.zero_grad(set_to_none=True)
                self.gradients(cached=False)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.gradients(cached=False)
        return graph

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            self.gradients()
        if self.case.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.case.clip, foreach=True)
        if self.scaled is None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.scaled.step(self.optimizer)

    def replay(self, weights, batches):
        """Trains from these weights on these batches. Returns the loss of each step, and how far the
        first weight's first gradient is from the recorded one, as a share of that."""
        first_weights(self.network, weights)
        mine, losses, distance = (self.samples, self.labels), [], None
        for samples, labels, gradient in recorded_batches(batches):
            self.samples = samples.reshape(mine[0].shape).contiguous(
                memory_format=torch.channels_last)
            self.labels = labels
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(float(self.gradients().detach()))
            if distance is None:
                own = next(self.network.parameters()).grad
                distance = float((own - gradient).norm() / gradient.norm())
            self.optimizer.step()
        self.samples, self.labels = mine
        return losses, distance

    def measure(self, steps):
        if self.device == "cuda":
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(steps):
                self.step()
            torch.cuda.synchronize()
            return [(time.perf_counter() - start) / steps]
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return seconds


def main():
    asked = json.loads(sys.argv[1])
    import_mib = peak_mib()
    on_gpu = asked["device"] == "cuda"
    if on_gpu and not torch.cuda.is_available():
        sys.exit(f"torch_worker.py: PyTorch {torch.__version__} finds no GPU")
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    torch.backends.cudnn.benchmark = on_gpu
    torch.manual_seed(0)
    case = NETWORKS[asked["model"]]
    network = case.make()
    about = {"torch": torch.__version__, "import_mib": import_mib, **describe(case, network)}
    training = Training(case, network, asked)
    if asked.get("replay"):
        about["losses"], about["gradient_distance"] = training.replay(
            *map(pathlib.Path, asked["replay"]))
    training.measure(WARM_UP)
    print(json.dumps(about), flush=True)  # from here on it only works when asked
    for request in sys.stdin:
        before = time.process_time()
        seconds = training.measure(int(request))
        print(json.dumps({"seconds": seconds, "peak_mib": peak_mib(),
                          "cpu": (time.process_time() - before) / int(request)}), flush=True)


if __name__ == "__main__":
    main()
