"""Runs under a limit of the system that they may reach: open files (ulimit -n), address space
(ulimit -v). Without the limit they go on to their end."""
import random

import bench as benches

MOST_FILES = 20  # a run has fewer open
LEAST_KIB = 40 << 10  # less does not hold the program and its libraries


def add_options(parser):
    parser.add_argument("--limits", type=int, default=20, metavar="N",
                        help="runs under each limit, of random size, on each kind of data (20)")


def _limited(bench, index, seed, option):
    sizes = random.Random(f"{seed} {bench.name} {index} {option}")
    size = (sizes.randint(3, MOST_FILES) if option == "-n" else
            # As many tries below a hundred megabytes as above: it is there that runs fail.
            int(LEAST_KIB * max(1.1, bench.peak_kib / LEAST_KIB) ** sizes.random()))
    run = bench.folder / f"limit{option}{index}"
    shell = ["bash", "-c", f'ulimit {option} {size} && exec "$@"', "bash"]
    status, text = bench.run(run, before=shell)
    expected = benches.EXPECTED | {benches.LOADER}
    if option == "-v":
        expected = expected | benches.WITHOUT_MEMORY
    problem = bench.judged(run, status, text, expected)
    if problem is None:
        benches.clear(run)
    else:
        problem = f"ulimit {option} {size}: {problem}"
    return [(bench.row(f"ulimit {option}"), status, problem)]


def hammer(bench, options, pool):
    pool.collect([(_limited, bench, i, options.seed, option) for option in ("-n", "-v")
                  for i in range(options.limits)])
