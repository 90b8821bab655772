"""kill -9 at random moments of one run, ten at most, and signals that ask for the end, one a run; then
the run goes on to its end."""
import random
import signal
import time

import bench as benches

MOST = 10  # of one run
ASKING = (signal.SIGHUP, signal.SIGTERM, signal.SIGXCPU, signal.SIGUSR1, signal.SIGINT,
          signal.SIGUSR2)


def add_options(parser):
    parser.add_argument("--kills", type=int, default=100,
                        help="kill -9 at so many moments of runs on each kind of data (100)")
    parser.add_argument("--signals", type=int, default=24,
                        help="ask so many runs on each kind of data to end, each by a signal (24)")


def _round(bench, index, seed):
    """[(row, status, problem)] of one run."""
    moments = random.Random(f"{seed} {bench.name} {index}")
    row, run, results = bench.row("kill -9"), bench.folder / f"kill{index}", []
    for _ in range(MOST):
        process = bench.start(bench.command(run), f"{run}.log")
        time.sleep(moments.uniform(0, bench.seconds))
        process.kill()
        status = process.wait()
        if status == 0:
            break
        problem = None if status == -signal.SIGKILL else f"run {index} ended with {status}"
        results.append((row, "killed" if problem is None else status, problem))
    differ = bench.differs_after_resume(run)
    if differ:
        results.append((row, "resume", f"run {index}: {', '.join(differ)}"))
    else:
        benches.clear(run)
    return results


def _ask(bench, index, seed):
    """[(row, status, problem)] of one run: a signal asks it to end, which it does with a checkpoint."""
    moments = random.Random(f"{seed} {bench.name} signal {index}")
    number, run = ASKING[index % len(ASKING)], bench.folder / f"signal{index}"
    process = bench.start(bench.command(run), f"{run}.log")
    time.sleep(moments.uniform(0, bench.seconds))
    process.send_signal(number)
    status, problem = bench.wait(process), None
    # Before its first step, and when all is written, a run ends as any program.
    rows = run / "steps.csv"
    begun = rows.exists() and rows.read_text().count("\n") > 1 and not (run / "summary.json").exists()
    if status == 128 + number:
        problem = None if any(run.glob("checkpoints/*.json")) else "left no checkpoint"
    elif status != 0 and (status != -number or begun):
        problem = f"ended with {status}"
    # The checkpoint of the interruption may be one of those that are kept, in the place of another.
    differ = [name for name in bench.differs_after_resume(run)
              if not (name.startswith("checkpoints/step-")
                      and not ((run / name).exists() and (bench.whole / name).exists()))]
    if differ:
        problem = f"{problem or status}; resumed: {', '.join(differ)}"
    if problem is None:
        benches.clear(run)
    return [(bench.row(number.name), status, problem and f"run {index} {problem}")]


def hammer(bench, options, pool):
    pool.collect([(_ask, bench, i, options.seed) for i in range(options.signals)])
    index, killed = 0, 0
    while killed < options.kills:
        rounds = range(index, index + max(1, min(options.jobs, (options.kills - killed) // MOST + 1)))
        index = rounds.stop
        results = pool.collect([(_round, bench, i, options.seed) for i in rounds])
        killed += sum(status == "killed" for _, status, _ in results)
