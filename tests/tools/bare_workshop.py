"""A bare Debian tree in which bare_debian_test.py builds: the container recipes' steps, the wheel,
and the program with MPICH and with Open MPI. Each is done once, when it is first asked for."""
import pathlib
import shutil
import subprocess

import bare_tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "/tmp/source"  # as in the recipes
QUICK = ("--config", "fashion_quickstart.yaml", "--set", "train.max_steps=100")
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make")
TWO = ("-n", "2", "ada-train", *QUICK, "--set", "device.threads=1")


def copy_source(folder):
    """The tracked files of the tree, as they stand, into `folder`."""
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True,
                           check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def written(tree, run):
    """The CSV files of a run by name, but the one that holds seconds."""
    found = {path.name: path.read_bytes() for path in sorted(tree.path(run).glob("*.csv"))
             if path.name != "timing.csv"}
    assert len(found) > 4, f"{run}: {sorted(found)}"
    return found


class Once:
    """A property that is worked out once; what failed then fails in the same words again."""

    def __init__(self, work):
        self.work = work

    def __get__(self, shop, owner):
        done = shop.__dict__.setdefault("done", {})
        if self.work not in done:
            try:
                done[self.work] = (self.work(shop), None)
            except AssertionError as error:
                done[self.work] = (None, str(error))
        value, failure = done[self.work]
        if failure is not None:
            raise AssertionError(failure)
        return value


class Workshop:
    def __init__(self, release, kept, scratch):
        self.release, self.scratch = release, scratch
        self.tree = bare_tree.Tree(release, kept, scratch / f"{release}-workshop")
        self.before = self.tree.files()
        self.packages_before = self.tree.packages()
        copy_source(self.tree.path(SOURCE))

    @Once
    def recipe(self):
        """What install.sh said; the program's and the build's run are made, the .deb is kept."""
        self.tree.install("ccache")  # the deb, the wheel and two MPIs compile the same files
        said = self.tree.run(f"{SOURCE}/tools/container/install.sh", SOURCE, CCACHE_BASEDIR=SOURCE)
        self.deb, = self.tree.path(f"{SOURCE}/build").glob("ada-train_*.deb")
        self.deb = shutil.copy(self.deb, self.scratch / f"{self.release}.deb")
        self.compilers = [name for name in COMPILERS if self.tree.has(name)]
        self.packages = self.tree.packages() - self.packages_before
        self.files = self.tree.files()
        self.warnings = [line for line in self.tree.path(
            f"{SOURCE}/build/build.log").read_text().splitlines() if "warning:" in line]
        self.said = self.tree.run("ada-train", *QUICK, cwd=bare_tree.HOME)
        self.tree.run(f"{SOURCE}/build/ada-train", *QUICK, "--output", "built")
        return said

    @Once
    def left(self):
        """The files that are new after the program and what came with it have been purged."""
        assert self.recipe
        self.tree.purge("ada-train", "ccache",
                        *({"python3", "dataset-fashion-mnist"} & self.packages))
        self.tree.remove_unneeded()
        return self.tree.files() - self.before

    @Once
    def wheel(self):
        """The wheel's file, built by the release's own Python. CXX is the compiler's name in the
        recipe's build, which ccache looks at."""
        assert self.left is not None
        self.tree.install("ccache")
        self.tree.run("tools/setup.sh", cwd=SOURCE)
        self.tree.run("python3", "-m", "venv", "/tmp/pip")
        self.tree.run("/tmp/pip/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir",
                      "/tmp/wheel", "./tools/python", cwd=SOURCE, CXX="/usr/bin/c++",
                      CMAKE_CXX_COMPILER_LAUNCHER="ccache", CCACHE_BASEDIR=SOURCE)
        made, = self.tree.path("/tmp/wheel").iterdir()
        (self.scratch / self.release).mkdir()
        return pathlib.Path(shutil.copy(made, self.scratch / self.release))

    def with_mpi(self, *packages):
        """The CSV files of two processes of a build with the MPI of these packages, which are then
        removed, and what the program says that the library is."""
        assert self.wheel
        self.tree.install(*packages)
        self.tree.run("rm", "-rf", "build", cwd=SOURCE)
        self.tree.run("tools/build.sh", "--mpi", "--no-tests", cwd=SOURCE, CCACHE_BASEDIR=SOURCE)
        named, = [line for line in self.tree.run(f"{SOURCE}/build/ada-train", "--version").
                  splitlines() if line.startswith("mpi ")]
        root = ("--allow-run-as-root", "--oversubscribe") if "Open MPI" in named else ()
        self.tree.run("mpirun", *root, *TWO, "--output", "two", "--overwrite",
                      PATH=f"{SOURCE}/build:{bare_tree.PLAIN['PATH']}")
        self.tree.purge(*packages)
        self.tree.remove_unneeded()
        return written(self.tree, f"{bare_tree.HOME}/two"), named
