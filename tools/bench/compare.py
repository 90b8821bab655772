"""The table of models x batches x modes: every mode of one model in turns, each mode's speed, its
ratios to PyTorch's of the same run, its share of the machine's peaks and its peak memory; on a GPU
its ratios and TFLOP/s."""
import dataclasses
import statistics

import machine
import markdown
import models
import operand_check
import torch_runs
from ada_runs import note

ADAPTIVE = ("precision={format: fp16}", "scaling={policy: adaptive, underflow_target: 1e-3, "
            "scale_upper_bound: 128, accum_upper_bound: 4096}")
ADA_MODES = {  # --set values in addition to the model's
    "ada-fp16": ("ada-train fp16, adaptive", ADAPTIVE),
    "ada-bf16": ("ada-train bf16", ("precision={format: bf16}", "scaling={policy: none}")),
    "ada-fp32": ("ada-train fp32", ("precision={format: fp32}", "scaling={policy: none}")),
}
OPERAND_ADA_MODES = {  # of a processor
    "ada-mxfp8": ("ada-train bf16, operands MXFP8",
                  ("precision={recipe: torchao_mxfp8}", "scaling={policy: none}")),
    "ada-nvfp4": ("ada-train bf16, operands NVFP4, Hadamard",
                  ("precision={recipe: te_nvfp4}", "scaling={policy: none}")),
}
TUNED_MODES = {  # of a GPU: plans are measured, as PyTorch's are here
    "ada-fp16-tuned": ("ada-train fp16, adaptive, autotune",
                       (*ADAPTIVE, "device.autotune=true", "device.deterministic=false")),
}
TORCH_MODES = {
    "torch-fp32": "PyTorch fp32",
    "torch-bf16": "PyTorch bf16 autocast",
    "torch-fp16": "PyTorch fp16 autocast",
    "torch-emulated": "PyTorch fp16 emulated by hooks",
    "torch-counted": "PyTorch fp16 emulated, lost values counted",
}
OPERAND_TORCH_MODES = {  # of a processor
    "torch-mxfp8": "PyTorch bf16 autocast, operands MXFP8 by tensor operations",
    "torch-nvfp4": "PyTorch bf16 autocast, operands NVFP4 by tensor operations, Hadamard",
    "torch-mxfp8-torchao": "PyTorch bf16 autocast, torchao's emulated MXFP8 layers but the last",
}
WRITTEN_MODES = {  # of transformers; on processors faster than PyTorch's own attention in bf16
    "torch-fp32-written": "PyTorch fp32, attention written out",
    "torch-bf16-written": "PyTorch bf16 autocast, attention written out",
    "torch-fp16-written": "PyTorch fp16 autocast, attention written out",
    "torch-emulated-written": "PyTorch fp16 emulated by hooks, attention written out",
    "torch-counted-written": "PyTorch fp16 emulated, attention written out, lost values counted",
}
# A minute each before the first step, and a C++ compiler; of a GPU.
COMPILED_MODES, GRAPHED_MODES = (
    {f"{mode}-{way}": f"{TORCH_MODES[mode]}, {words}" for mode in ("torch-fp32", "torch-bf16", "torch-fp16")}
    for way, words in (("compiled", "torch.compile"), ("graphed", "CUDA graph")))
BASE = "torch-fp32"
DEFAULT_MODES = [*ADA_MODES, *TORCH_MODES]
CUDA_MODES = ["ada-fp16", "ada-fp16-tuned", "ada-bf16", "torch-fp16", "torch-bf16",
              "torch-fp16-graphed", "torch-bf16-graphed", "torch-fp16-compiled"]
ALL_MODES = [*DEFAULT_MODES, *COMPILED_MODES]
OPERAND_MODES = [*OPERAND_ADA_MODES, *OPERAND_TORCH_MODES]
MODES = [*ALL_MODES, *OPERAND_MODES, *WRITTEN_MODES, *TUNED_MODES, *GRAPHED_MODES]
OURS = {**ADA_MODES, **OPERAND_ADA_MODES, **TUNED_MODES}
SHORT = 2  # steps of a run that is its start and little else
HEADER = ["model", "batch", "mode", "images/s", "lowest, highest", "to PyTorch's fastest",
          "to PyTorch fp32", "GFLOP/s", "of fp32 FMA peak", "of bf16 peak", "peak memory, MiB"]
CUDA_BASE = "torch-fp16"
CUDA_HEADER = [*HEADER[:5], "to PyTorch fp16 autocast", "to PyTorch's fastest", "TFLOP/s"]


@dataclasses.dataclass
class Measured:
    """One mode of one model: images/s or tokens/s of each round, and memory in MiB."""
    speeds: list = dataclasses.field(default_factory=list)
    peak_mib: float = 0
    import_mib: float = None  # of PyTorch before it made anything; None: ada-train
    # Processor seconds of a step, of all threads, of each round; of ours without the start of a run.
    cpu: list = dataclasses.field(default_factory=list)

    def speed(self):
        return statistics.median(self.speeds)

    def memory(self):
        own = f"{self.peak_mib:,.0f}"
        return own if self.import_mib is None else f"{own} (import torch: {self.import_mib:,.0f})"


def ada_values(options, model, batch, mode):
    """(--set values of a measurement of ada-train, its steps)."""
    steps = options.ada_steps or model.steps(batch, options.device)
    return [*model.network, f"data.batch_size={batch}", f"train.max_steps={steps}",
            f"log={{every: {min(options.log_every, steps)}}}", *model.policy(OURS[mode][1])], steps


class Bench:
    """One model at one batch: its PyTorch processes live as long as this does."""

    def __init__(self, options, ada, name, batch, threads):
        self.options, self.ada, self.threads = options, ada, threads
        self.model, self.batch = models.MODELS[name], batch
        self.network = ada.network(self.model, batch)
        recorded = {mode: self.recorded(mode) for mode in options.modes
                    if mode in OPERAND_TORCH_MODES}
        self.torch = {mode: torch_runs.Torch(options.python, name, mode.partition("-")[2], batch,
                                             threads, options.device, self.replay(recorded, mode))
                      for mode in options.modes if mode not in OURS}
        for mode, torch in self.torch.items():
            torch_runs.check_same(name, self.network, torch.about, self.model.transformer)
            if mode in recorded:
                operand_check.check(name, mode, recorded[mode].losses, torch.about)
        self.results = {mode: Measured() for mode in options.modes}
        self.counts_cpu = any(mode in OPERAND_MODES for mode in options.modes)

    def recorded(self, mode):
        """Steps of ours that a mode of PyTorch is compared with."""
        same, more, _, _ = operand_check.AS_IN[mode]
        return operand_check.Recorded(self.ada, self.model, (*OURS[same][1], *more), self.batch,
                                      self.threads, "recorded-" + mode)

    @staticmethod
    def replay(recorded, mode):
        return (recorded[mode].weights, recorded[mode].batches) if mode in recorded else ()

    def measure(self, mode):
        """One measurement of one mode, added to its results."""
        result = self.results[mode]
        steps = self.options.ada_steps or self.model.steps(self.batch, self.options.device)
        if mode in OURS:
            values, steps = ada_values(self.options, self.model, self.batch, mode)
            run = self.ada.run(self.model.config, values, self.threads)
            result.speeds.append(run.samples_per_second(self.batch) * self.model.units())
            result.peak_mib = max(result.peak_mib, run.peak_mib)
            if self.counts_cpu:
                result.cpu.append((run.cpu - self.start_cpu(mode)) / (steps - SHORT))
        else:
            torch = self.torch[mode]
            steps = self.options.torch_steps or max(5, steps // 8)
            result.speeds.append(torch.samples_per_second(steps) * self.model.units())
            result.peak_mib = torch.peak_mib
            result.import_mib = torch.about["import_mib"]
            result.cpu.append(torch.cpu)
        return result.speeds[-1]

    def start_cpu(self, mode):
        """Processor seconds of a run of few steps: program start, data and the first step."""
        values, _ = ada_values(self.options, self.model, self.batch, mode)
        short = (*values, f"train.max_steps={SHORT}", "log.every=1")
        return self.ada.run(self.model.config, short, self.threads).cpu

    def training_flop(self):
        """Operations of what speed counts one of: an image, or a token."""
        return self.network.training_flop() / self.model.units()

    def torch_version(self):
        return next((torch.about["torch"] for torch in self.torch.values()), None)

    def close(self):
        for torch in self.torch.values():
            torch.close()


def in_turns(order, rounds, measure):
    """Calls measure(round, item) for all items in every round; each round starts with another."""
    for number in range(rounds):
        first = number % len(order)
        for item in order[first:] + order[:first]:
            measure(number, item)


def label(mode):
    if mode in OURS:
        return OURS[mode][0]
    return {**TORCH_MODES, **OPERAND_TORCH_MODES, **WRITTEN_MODES, **COMPILED_MODES,
            **GRAPHED_MODES}[mode]


def rows(title, batch, results, training_flop, peak):
    """Cells of one model's rows. `results`: mode -> Measured; `training_flop`: of one image or
    token; `peak`: None on a GPU."""
    torch = [result.speed() for mode, result in results.items() if mode not in OURS]
    base = results.get(BASE if peak else CUDA_BASE)

    def ratio(speed, other):
        return f"{speed / other:.2f}" if other else ""
    cells = []
    for mode, result in results.items():
        speed = result.speed()
        gflops = speed * training_flop * 1e-9
        ratios = [ratio(speed, max(torch, default=None)), ratio(speed, base and base.speed())]
        of_device = ([markdown.number(gflops), markdown.percent(gflops / peak.fma),
                      markdown.percent(peak.bf16() and gflops / peak.bf16()), result.memory()]
                     if peak else [markdown.number(gflops * 1e-3)])
        cells.append([
            title, str(batch), label(mode), markdown.number(speed),
            f"{markdown.number(min(result.speeds))}, {markdown.number(max(result.speeds))}",
            *(ratios if peak else ratios[::-1]), *of_device])
    return cells


OPERAND_HEADER = ["model", "batch", "mode", "ms a step", "CPU ms a step: median", "lowest, highest",
                  "CPU, to its bf16", "CPU, to ada-train's of this format"]
SAME_FORMAT = {"torch-mxfp8": "ada-mxfp8", "torch-mxfp8-torchao": "ada-mxfp8",
               "torch-nvfp4": "ada-nvfp4", "torch-bf16": "ada-bf16"}


def cpu_ratio(one, other):
    """Of the rounds, which were taken in turns: median, lowest and highest."""
    if not other or not one.cpu or not other.cpu:
        return ""
    of = [a / b for a, b in zip(one.cpu, other.cpu)]
    return f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})"


def operand_table(measured):
    """What operands in blocks cost: time and processor time of a step of images, beside the same
    program's bf16 and beside the other program's mode of the same format."""
    cells = []
    for title, batch, results, _ in measured:
        for mode, result in results.items():
            if not result.cpu:
                continue
            cpu = [1e3 * seconds for seconds in result.cpu]
            cells.append([
                title, str(batch), label(mode), markdown.number(1e3 * batch / result.speed()),
                markdown.number(statistics.median(cpu)),
                f"{markdown.number(min(cpu))}, {markdown.number(max(cpu))}",
                cpu_ratio(result, results.get(mode.partition("-")[0] + "-bf16")),
                cpu_ratio(result, results.get(SAME_FORMAT.get(mode)))])
    return markdown.table(OPERAND_HEADER, cells)


def measure_all(options, ada, peaks):
    """Measures all that the options name: one (title, batch, mode -> Measured, operations of an
    image or token) a model and batch, and PyTorch's version. `peaks`: gets one Peak a round, or
    None."""
    measured, torch_version = [], None
    for name in options.models:
        for batch in options.batch or [models.MODELS[name].batch]:
            bench = Bench(options, ada, name, batch, options.threads)

            def one(number, mode, bench=bench):
                if mode is None:
                    peaks.append(machine.measure_peak(options.peak, options.threads))
                    return
                speed = bench.measure(mode)
                note(f"{bench.model.title}, batch {bench.batch}, round {number + 1} of "
                     f"{options.rounds}: {label(mode)}: {speed:,.0f} {bench.model.unit()}")
            in_turns(options.modes + [None] * (peaks is not None), options.rounds, one)
            torch_version = torch_version or bench.torch_version()
            measured.append((bench.model.title, batch, bench.results,
                             bench.training_flop()))
            bench.close()
    return measured, torch_version


def run(options, ada):
    """Measures all that the options name and prints the table."""
    on_gpu = options.device == "cuda"
    peaks = None if on_gpu else []
    measured, torch_version = measure_all(options, ada, peaks)
    torch = f", PyTorch {torch_version}, channels_last" if torch_version else ""
    rounds = f"median of {options.rounds} rounds taken in turns"
    if on_gpu:
        peak, machine_text = None, f"{machine.gpu()}"
    else:
        peak = machine.median_peak(peaks)
        machine_text = f"{machine.describe()}, {options.threads} thread(s) each"
    print(f"{machine_text}; {ada.version}{torch}; {rounds}\n")
    if peak:
        print(f"Peak, median of as many rounds: {peak.text()}\n")
    print(markdown.table(models.in_units(HEADER if peak else CUDA_HEADER, options.models),
                         [row for title, batch, results, flop in measured
                          for row in rows(title, batch, results, flop, peak)]))
    if any(mode in OPERAND_MODES for mode in options.modes):
        print()
        print(operand_table(measured))


def thread_counts(most):
    """1, 2, 4 ... and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + [most] * (most > 1)


def thread_rows(title, batch, results):
    """Cells of one model's rows. `results`: mode -> threads -> Measured."""
    cells = []
    for mode, by_threads in results.items():
        speeds = {threads: result.speed() for threads, result in by_threads.items()}
        most = max(speeds)
        cells.append([title, str(batch), label(mode),
                      *(markdown.number(speed) for speed in speeds.values()),
                      f"{speeds[most] / speeds[1]:.2f}"])
    return cells


def run_threads(options, ada):
    """Measures all models and modes with each number of threads in turns and prints the table."""
    counts, table, torch_version = thread_counts(options.threads), [], None
    for name in options.models:
        for batch in options.batch or [models.MODELS[name].batch]:
            benches = {count: Bench(options, ada, name, batch, count) for count in counts}

            def one(number, item, benches=benches):
                mode, count = item
                bench = benches[count]
                speed = bench.measure(mode)
                note(f"{bench.model.title}, batch {bench.batch}, round {number + 1} of "
                     f"{options.rounds}: {label(mode)}, {count} thread(s): {speed:,.0f} "
                     f"{bench.model.unit()}")
            order = [(mode, count) for mode in options.modes for count in counts]
            in_turns(order, options.rounds, one)
            results = {mode: {count: benches[count].results[mode] for count in counts}
                       for mode in options.modes}
            table += thread_rows(benches[1].model.title, batch, results)
            torch_version = torch_version or benches[1].torch_version()
            for bench in benches.values():
                bench.close()
    torch = f", PyTorch {torch_version}" if torch_version else ""
    units = models.in_units(["images/s"], options.models)[0]
    print(f"{machine.describe()}; {ada.version}{torch}; {units}, median of {options.rounds} rounds "
          f"taken in turns\n")
    print(markdown.table(["model", "batch", "mode", "1 thread",
                          *(f"{count} threads" for count in counts[1:]),
                          f"{counts[-1]} threads to 1"], table))
