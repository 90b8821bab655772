"""The table of models x batches x modes: every mode of one model in turns, each mode's speed, its
ratios to PyTorch's of the same run, its share of the machine's peaks and its peak memory; on a GPU
its ratios and TFLOP/s. Or its speed over numbers of threads."""
import dataclasses
import functools
import statistics

import machine
import markdown
import models
import operand_check
import torch_runs
from modes import BASE, CUDA_BASE, MODES
from turns import in_turns

SHORT = 2  # steps of a run that is its start and little else
HEADER = ["model", "batch", "mode", "images/s", "lowest, highest", "to PyTorch's fastest",
          "to PyTorch fp32", "GFLOP/s", "of fp32 FMA peak", "of bf16 peak", "peak memory, MiB"]
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
    """(--set values of a measurement of ada-train in a Mode, its steps)."""
    steps = options.ada_steps or model.steps(batch, options.device)
    return [*model.network, f"data.batch_size={batch}", f"train.max_steps={steps}",
            f"log={{every: {min(options.log_every, steps)}}}", *model.policy(mode.values)], steps


class Bench:
    """One model at one batch in some modes (name -> Mode): its PyTorch processes live as long as
    this does."""

    def __init__(self, options, ada, modes, name, batch, threads):
        self.options, self.ada, self.modes, self.threads = options, ada, modes, threads
        self.model, self.batch, self.torch = models.MODELS[name], batch, {}
        self.network = ada.network(self.model, batch)
        self.results = {mode: Measured() for mode in modes}
        self.counts_cpu = any(mode.of == "operands" for mode in modes.values())
        for mode in modes:
            if modes[mode].values is not None:
                continue
            recorded = None
            if mode in operand_check.AS_IN:
                recorded = operand_check.Recorded(ada, self.model, mode, batch, threads)
            self.torch[mode] = torch_runs.Torch(
                options.python, model=name, mode=mode.partition("-")[2], batch=batch,
                threads=threads, device=options.device, replay=recorded and recorded.files)
            torch_runs.check_same(name, self.network, self.torch[mode].about, self.model.transformer)
            if recorded:
                operand_check.check(name, mode, recorded.losses, self.torch[mode].about)

    def measure(self, mode):
        """One measurement of one mode, added to its results; its speed."""
        result = self.results[mode]
        steps = self.options.ada_steps or self.model.steps(self.batch, self.options.device)
        if mode in self.torch:
            torch = self.torch[mode]
            answer = torch.measure(self.options.torch_steps or max(5, steps // 8))
            speed = self.batch / statistics.median(answer["seconds"])
            result.peak_mib, result.import_mib = answer["peak_mib"], torch.about["import_mib"]
            result.cpu.append(answer.get("cpu"))
        else:
            values, steps = ada_values(self.options, self.model, self.batch, self.modes[mode])
            run = self.ada.run(self.model.config, values, self.threads)
            speed = run.samples_per_second(self.batch)
            result.peak_mib = max(result.peak_mib, run.peak_mib)
            if self.counts_cpu:  # without program start, data and the first step
                short = (*values, f"train.max_steps={SHORT}", "log.every=1")
                start = self.ada.run(self.model.config, short, self.threads)
                result.cpu.append((run.cpu - start.cpu) / (steps - SHORT))
        result.speeds.append(speed * self.model.units())
        return result.speeds[-1]

    def training_flop(self):
        """Operations of what speed counts one of: an image, or a token."""
        return self.network.training_flop() / self.model.units()

    def torch_version(self):
        return next((f", PyTorch {torch.about['torch']}" for torch in self.torch.values()), "")

    def close(self):
        for torch in self.torch.values():
            torch.close()


def measure_all(options, ada, modes, counts, peaks=None):
    """Measures all models and batches of the options in these modes (name -> Mode), with each number
    of threads, in turns. Yields for each of them its benches, which are still open: threads ->
    Bench. `peaks`: gets one Peak a round, or None."""
    for name in options.models:
        for batch in options.batch or [models.MODELS[name].batch]:
            benches = {count: Bench(options, ada, modes, name, batch, count) for count in counts}
            measures = {(mode, count): functools.partial(bench.measure, mode)
                        for mode in modes for count, bench in benches.items()}
            if peaks is not None:
                measures[None] = lambda: peaks.append(
                    machine.measure_peak(options.peak, options.threads))

            def told(key, speed, model=models.MODELS[name], batch=batch):
                if key is None:
                    return None
                threads = f", {key[1]} thread(s)" if len(counts) > 1 else ""
                return (f"{model.title}, batch {batch}: {modes[key[0]].title}{threads}: "
                        f"{speed:,.0f} {model.unit()}")
            in_turns(options.rounds, measures, told)
            yield benches
            for bench in benches.values():
                bench.close()


def rows(title, batch, results, training_flop, peak):
    """Cells of one model's rows. `results`: mode -> Measured; `training_flop`: of one image or
    token; `peak`: None on a GPU."""
    torch = [result.speed() for mode, result in results.items() if MODES[mode].values is None]
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
        cells.append([title, str(batch), MODES[mode].title, *markdown.spread(result.speeds),
                      *(ratios if peak else ratios[::-1]), *of_device])
    return cells


OPERAND_HEADER = ["model", "batch", "mode", "ms a step", "CPU ms a step: median", "lowest, highest",
                  "CPU, to its bf16", "CPU, to ada-train's of this format"]
SAME_FORMAT = {"torch-mxfp8": "ada-mxfp8", "torch-mxfp8-torchao": "ada-mxfp8",
               "torch-nvfp4": "ada-nvfp4", "torch-bf16": "ada-bf16"}


def operand_rows(title, batch, results):
    """What operands in blocks cost: time and processor time of a step of images, beside the same
    program's bf16 and beside the other program's mode of the same format, each of the same round."""
    def cpu_of(mode):
        return results[mode].cpu if mode in results else []
    return [[title, str(batch), MODES[mode].title, markdown.number(1e3 * batch / result.speed()),
             *markdown.spread([1e3 * seconds for seconds in result.cpu]),
             markdown.ratios(result.cpu, cpu_of(mode.partition("-")[0] + "-bf16")),
             markdown.ratios(result.cpu, cpu_of(SAME_FORMAT.get(mode)))]
            for mode, result in results.items() if result.cpu]


def run(options, ada):
    """Measures all that the options name and prints the table."""
    on_gpu = options.device == "cuda"
    modes, peaks = {name: MODES[name] for name in options.modes}, None if on_gpu else []
    measured, torch = [], ""
    for benches in measure_all(options, ada, modes, [options.threads], peaks):
        bench = benches[options.threads]
        torch = torch or bench.torch_version()
        measured.append((bench.model.title, bench.batch, bench.results, bench.training_flop()))
    peak = None if on_gpu else machine.median_peak(peaks)
    threads = "" if on_gpu else f", {options.threads} thread(s) each"
    print(f"{machine.describe(options.device)}{threads}; {ada.version}"
          f"{torch and torch + ', channels_last'}; median of {options.rounds} rounds taken in turns\n")
    if peak:
        print(f"Peak, median of as many rounds: {peak.text()}\n")
    print(markdown.table(models.in_units(HEADER if peak else CUDA_HEADER, options.models),
                         [row for one in measured for row in rows(*one, peak)]))
    if any(mode.of == "operands" for mode in modes.values()):
        print("\n" + markdown.table(OPERAND_HEADER, [row for title, batch, results, _ in measured
                                                     for row in operand_rows(title, batch, results)]))


def thread_counts(most):
    """1, 2, 4 ... and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + [most] * (most > 1)


def thread_rows(title, batch, results):
    """Cells of one model's rows. `results`: mode -> speeds by number of threads, 1 first."""
    return [[title, str(batch), MODES[mode].title, *map(markdown.number, speeds),
             f"{speeds[-1] / speeds[0]:.2f}"] for mode, speeds in results.items()]


def run_threads(options, ada):
    """Measures all models and modes with each number of threads in turns and prints the table."""
    counts, table, torch = thread_counts(options.threads), [], ""
    modes = {name: MODES[name] for name in options.modes}
    for benches in measure_all(options, ada, modes, counts):
        one = benches[1]
        torch = torch or one.torch_version()
        table += thread_rows(one.model.title, one.batch, {
            mode: [bench.results[mode].speed() for bench in benches.values()] for mode in modes})
    units = models.in_units(["images/s"], options.models)[0]
    print(f"{machine.describe()}; {ada.version}{torch}; {units}, median of {options.rounds} rounds "
          f"taken in turns\n")
    print(markdown.table(["model", "batch", "mode", "1 thread",
                          *(f"{count} threads" for count in counts[1:]),
                          f"{counts[-1]} threads to 1"], table))
