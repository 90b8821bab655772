"""What tools/hammer.sh runs: kill -9, failing system calls, limits and full disks, under runs on
every kind of data, each followed by a resume that must give what nothing disturbed gives."""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile

import bench as benches
import calls
import disks
import kills
import limits
import networks
import recipes
import table as tables

# Each module is a kind of disturbance: add_options(parser) adds what it takes, hammer(bench,
# options, pool) does it to one recipe's runs and gives [(row, status, problem)] to pool.collect.
KINDS = (kills, limits, disks, calls)
# Kinds that make recipes of their own: hammer(program, folder, options, pool), once.
WITH_RECIPES = (networks,)


class Pool:
    """Tasks side by side, and the table that their results go to."""

    def __init__(self, jobs, table):
        self._workers = concurrent.futures.ThreadPoolExecutor(jobs)
        self._table = table

    def collect(self, tasks):
        """Runs (function, argument, ...) tuples; all results, which are in the table then."""
        found = []
        started = [self._workers.submit(*task) for task in tasks]
        for task in concurrent.futures.as_completed(started):
            for result in task.result():
                self._table.add(*result)
                found.append(result)
        return found


def parse():
    parser = argparse.ArgumentParser(prog="tools/hammer.sh", description=__doc__)
    for kind in (*KINDS, *WITH_RECIPES):
        kind.add_options(parser)
    names = [recipe.name for recipe in recipes.RECIPES]
    parser.add_argument("--data", metavar="NAMES", default=",".join(names),
                        help=f"kinds of data, between commas ({','.join(names)})")
    parser.add_argument("--seed", type=int, default=1, help="of moments and sizes (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--program", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep folders of runs with problems")
    options = parser.parse_args()
    numbers = [value for value in vars(options).values() if isinstance(value, int)]
    if min(numbers) < 0 or options.jobs < 1:
        parser.error("numbers must not be negative")
    options.data = options.data.split(",")
    unknown = set(options.data) - set(names)
    if unknown:
        parser.error(f"--data {','.join(sorted(unknown))}: expected some of {', '.join(names)}")
    return options


def main():
    options = parse()
    program, folder = options.program.resolve(), pathlib.Path(tempfile.mkdtemp(prefix="ada-hammer-"))
    table = tables.Table()
    pool = Pool(options.jobs, table)
    for recipe in recipes.RECIPES:
        if recipe.name in options.data:
            bench = benches.Bench(program, recipe, folder / recipe.name)
            for kind in KINDS:
                kind.hammer(bench, options, pool)
    for kind in WITH_RECIPES:
        kind.hammer(program, folder, options, pool)
    table.write()
    if options.keep and table.problems:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if table.problems else 0)


main()
