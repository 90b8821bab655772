"""Images per second over numbers of threads. Used by bench.py --scaling."""
import compare
import machine
import markdown
import models
from ada_runs import note


def thread_counts(most):
    """1, 2, 4 ... and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + [most] * (most > 1)


def rows(title, batch, results):
    """Cells of one model's rows. `results`: mode -> threads -> compare.Measured."""
    cells = []
    for mode, by_threads in results.items():
        speeds = {threads: result.speed() for threads, result in by_threads.items()}
        most = max(speeds)
        cells.append([title, str(batch), compare.label(mode),
                      *(markdown.number(speed) for speed in speeds.values()),
                      f"{speeds[most] / speeds[1]:.2f}"])
    return cells


def run(options, ada):
    """Measures all models and modes with each number of threads in turns and prints the table."""
    counts, table, torch_version = thread_counts(options.threads), [], None
    for name in options.models:
        for batch in options.batch or [models.MODELS[name].batch]:
            benches = {count: compare.Bench(options, ada, name, batch, count) for count in counts}

            def one(number, item, benches=benches):
                mode, count = item
                bench = benches[count]
                speed = bench.measure(mode)
                note(f"{bench.model.title}, batch {bench.batch}, round {number + 1} of "
                     f"{options.rounds}: {compare.label(mode)}, {count} thread(s): {speed:,.0f} "
                     f"{bench.model.unit()}")
            order = [(mode, count) for mode in options.modes for count in counts]
            compare.in_turns(order, options.rounds, one)
            results = {mode: {count: benches[count].results[mode] for count in counts}
                       for mode in options.modes}
            table += rows(benches[1].model.title, batch, results)
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
