"""Runs on a disk that becomes full: a tmpfs of random size, or with room for few files. Where it
grows they go on to their end."""
import random
import subprocess
import sys

import bench as benches

# What a full disk may end a run with: it is done, the folder was refused, output cannot be written.
FULL = {0, 2, 6}
PAGE = 4096


def add_options(parser):
    parser.add_argument("--disks", type=int, default=20, metavar="N",
                        help="runs on disks that become full, on each kind of data (20)")


def _mount(options, disk):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)],
                          capture_output=True, text=True, check=False)


def _room(run):
    """Bytes and files of a run."""
    sizes = [-(-path.stat().st_size // PAGE) * PAGE for path in run.rglob("*")]
    return sum(sizes), len(sizes)


def _full(bench, index, seed):
    sizes = random.Random(f"{seed} {bench.name} {index} disk")
    size, files = _room(bench.whole)
    options = f"size={sizes.randint(PAGE, int(1.2 * size))}"
    if index % 3 == 2:
        options = f"size=64m,nr_inodes={sizes.randint(2, files + 6)}"
    row, disk = bench.row("full disk"), bench.folder / f"disk{index}"
    disk.mkdir()
    mounted = _mount(options, disk)
    if mounted.returncode != 0:
        return [(row, "mount", f"{options}: {mounted.stderr.strip()}")]
    log = f"{disk}.log"
    try:
        run = disk / "run"
        status, text = bench.run(run, log=log)
        grown = _mount("remount,size=64m,nr_inodes=1k", disk)
        if grown.returncode != 0:
            problem = f"it cannot grow: {grown.stderr.strip()}"
        else:
            problem = bench.judged(run, status, text, FULL, log)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
    if problem is None:
        benches.clear(disk)
    return [(row, status, problem and f"{options}: {problem}")]


def hammer(bench, options, pool):
    if options.disks == 0:
        return
    probe = bench.folder / "probe"
    probe.mkdir()
    refused = _mount("size=64k", probe)
    if refused.returncode != 0:
        print(f"hammer.sh: skipped: no disk was filled on {bench.name}: {refused.stderr.strip()}",
              file=sys.stderr)
        return
    subprocess.run(["umount", str(probe)], check=False)
    pool.collect([(_full, bench, i, options.seed) for i in range(options.disks)])
