"""kill -9 at random moments of one run, ten at most; then the run goes on to its end."""
import random
import signal
import time

import bench as benches

MOST = 10  # of one run


def add_options(parser):
    parser.add_argument("--kills", type=int, default=100,
                        help="kill -9 at so many moments of runs on each kind of data (100)")


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


def hammer(bench, options, pool):
    index, killed = 0, 0
    while killed < options.kills:
        rounds = range(index, index + max(1, min(options.jobs, (options.kills - killed) // MOST + 1)))
        index = rounds.stop
        results = pool.collect([(_round, bench, i, options.seed) for i in rounds])
        killed += sum(status == "killed" for _, status, _ in results)
