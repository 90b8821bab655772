"""On a bare Debian 12 and 13: the container recipes' steps, the .deb on a second tree, the wheel, and
MPICH, each by training the quick start; and that nothing is left of them. Takes root, debootstrap,
Debian's mirror, PyPI and half an hour; bare_tree.py tells how a repeat is quicker."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import bare_tree  # noqa: E402
from bare_workshop import COMPILERS, QUICK, Workshop, written  # noqa: E402

WORKSHOPS = {}
ORDINARY = 1000
HOME = "/home/an ordinary user"
EXPECTED = ("/usr/bin/ada-train", "/usr/share/man/man1/ada-train.1.gz",
            "/usr/share/bash-completion/completions/ada-train",
            "/usr/share/zsh/vendor-completions/_ada-train",
            "/usr/share/fish/vendor_completions.d/ada-train.fish",
            "/usr/share/ada-train/configs/fashion_quickstart.yaml",
            "/usr/share/ada-train/ada-train.schema.json", "/usr/share/ada-train/scripts/fetch.py",
            "/usr/share/ada-train/tools/report.py", "/usr/share/ada-train/tools/sweep.sh")


def setUpModule():
    if not os.environ.get("ADA_SLOW"):
        raise unittest.SkipTest("tools/test.sh --install runs it")
    bare_tree.needed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folders go then too
    scratch = tempfile.TemporaryDirectory(prefix="ada-bare-")
    unittest.addModuleCleanup(scratch.cleanup)
    unittest.addModuleCleanup(WORKSHOPS.clear)
    WORKSHOPS["folder"] = pathlib.Path(scratch.name)


def kept():
    return pathlib.Path(os.environ.get("ADA_BARE_TREES") or WORKSHOPS["folder"] / "kept").absolute()


def workshop(release):
    if release not in WORKSHOPS:
        WORKSHOPS[release] = Workshop(release, kept(), WORKSHOPS["folder"])
    return WORKSHOPS[release]


def of_ours(paths):
    return sorted(path for path in paths if "ada-train" in path or "ada_train" in path)


class OnABareDebian:
    release = ""

    @classmethod
    def setUpClass(cls):
        cls.shop = workshop(cls.release)
        cls.user = bare_tree.Tree(cls.release, kept(), WORKSHOPS["folder"] / f"{cls.release}-user")
        home = cls.user.path(HOME)
        home.mkdir(parents=True)
        os.chown(home, ORDINARY, ORDINARY)
        cls.before = cls.user.files()

    def ordinary(self, *command, cwd=HOME, **options):
        return self.user.run(*command, user=ORDINARY, cwd=cwd, HOME=HOME, **options)

    def trains(self, said):
        self.assertRegex(said, r"run fashion_quickstart finished in epoch 1: 100 steps")
        self.assertRegex(said, r"test accuracy [6-9]\d\.\d\d %")

    def install_deb(self):
        """The .deb in the second tree, if it is not there."""
        assert self.shop.recipe
        if not self.user.path("/usr/bin/ada-train").exists():
            shutil.copy(self.shop.deb, self.user.path("/tmp/ada-train.deb"))
            self.user.install("/tmp/ada-train.deb")

    def test_1_the_recipe_leaves_a_program_that_trains_and_no_compiler(self):
        self.assertIn("installed as a package\n", self.shop.recipe)
        self.assertEqual(self.shop.compilers, [])
        self.assertEqual([name for name in self.shop.packages if name.endswith("-dev")], [])
        self.assertEqual(set(EXPECTED) - self.shop.files, set())
        self.trains(self.shop.said)
        self.assertEqual(self.shop.warnings, [])

    def test_2_the_installed_program_writes_the_bytes_of_the_build(self):
        assert self.shop.recipe
        self.assertEqual(written(self.shop.tree, f"{bare_tree.HOME}/runs/fashion_quickstart"),
                         written(self.shop.tree, f"{bare_tree.HOME}/built"))

    def test_3_a_purge_after_the_recipe_leaves_nothing(self):
        self.assertEqual(sorted(self.shop.left), [])

    def test_4_the_package_on_an_untouched_tree_trains(self):
        self.install_deb()
        self.assertEqual([name for name in COMPILERS if self.user.has(name)], [])
        self.assertIn("installed as a package\n", self.ordinary("ada-train", "--version"))
        self.trains(self.ordinary("ada-train", *QUICK))
        self.assertEqual(written(self.user, f"{HOME}/runs/fashion_quickstart"),
                         written(self.shop.tree, f"{bare_tree.HOME}/built"))

    def test_5_what_cannot_be_written_is_told(self):
        self.install_deb()
        said = self.ordinary("ada-train", *QUICK, cwd="/usr", expect=6)
        self.assertIn("runs/fashion_quickstart", said)
        self.assertIn("ermission denied", said)
        said = self.ordinary("ada-train", "fetch", "cifar10", cwd="/usr", expect=1)
        self.assertIn("fetch.py: data", said)
        self.assertIn("Permission denied", said)

    def test_6_without_a_network_fetch_says_what_else_there_is(self):
        self.install_deb()
        said = self.ordinary("ada-train", "fetch", "cifar10", network=False, expect=1)
        self.assertIn("--from FOLDER", said)
        self.assertNotIn("Traceback", said)
        self.assertFalse(self.user.path(f"{HOME}/data").exists())
        said = self.ordinary("ada-train", "--config", "resnet20_cifar", network=False, expect=3)
        self.assertIn("ada-train fetch cifar10", said)

    def test_7_a_purge_leaves_nothing(self):
        self.install_deb()
        self.user.purge("ada-train")
        self.assertEqual(of_ours(self.user.files()), [])
        self.assertNotIn("ada-train", self.user.packages())
        self.user.remove_unneeded()
        self.assertEqual(sorted(self.user.files() - self.before), [])

    def wheel_runs(self, wheel, name):
        """Installs the wheel in an environment of its own, trains, removes it: the CSV files."""
        place = f"{HOME}/{name}"
        python = f"{place}/bin/python"
        self.user.install("python3-venv", "dataset-fashion-mnist")
        inside = self.user.path(f"/tmp/{wheel.name}")
        shutil.copy(wheel, inside)
        self.ordinary("python3", "-m", "venv", place)
        pip = (python, "-m", "pip", "--quiet", "--no-cache-dir")
        self.ordinary(*pip, "install", "numpy", "pandas", "PyYAML")
        before = self.user.files() | self.below(place)
        self.ordinary(*pip, "install", f"/tmp/{wheel.name}")
        self.assertIn("installed as a wheel\n", self.ordinary(f"{place}/bin/ada-train", "--version"))
        said = self.ordinary(python, "-c", "import ada_train; run = ada_train.run("
                             f"'fashion_quickstart.yaml', output='{name}-run', "
                             "train={'max_steps': 100}); print(len(run.underflow) > 0)")
        self.assertTrue(said.endswith("True\n"), said)
        self.ordinary(*pip, "uninstall", "--yes", "ada-train")
        self.assertEqual(sorted((self.user.files() | self.below(place)) - before), [])
        return written(self.user, f"{HOME}/{name}-run")

    def below(self, folder):
        return {str(path) for path in self.user.path(folder).rglob("*")
                if "__pycache__" not in path.parts}

    def test_8_the_wheel_in_an_environment_writes_the_bytes_of_the_build(self):
        self.assertEqual(self.wheel_runs(self.shop.wheel, "own wheel"),
                         written(self.shop.tree, f"{bare_tree.HOME}/built"))

    def test_9_mpich_and_open_mpi_write_the_same_bytes(self):
        mpich, named = self.shop.with_mpi("mpich", "libmpich-dev")
        self.assertIn("MPICH", named)
        open_mpi, named = self.shop.with_mpi("openmpi-bin", "libopenmpi-dev")
        self.assertIn("Open MPI", named)
        self.assertEqual(mpich, open_mpi)

    @unittest.skipUnless(shutil.which("lintian"), "lintian is missing: tools/setup.sh --bare")
    def test_lintian_finds_no_error(self):
        assert self.shop.recipe
        done = subprocess.run(["lintian", "--allow-root", "--no-cfg", "--fail-on", "error",
                               str(self.shop.deb)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Debian12Test(OnABareDebian, unittest.TestCase):
    release = "bookworm"


class Debian13Test(OnABareDebian, unittest.TestCase):
    release = "trixie"

    def test_8_the_wheel_of_debian_12_runs(self):
        self.assertEqual(self.wheel_runs(workshop("bookworm").wheel, "older wheel"),
                         written(workshop("bookworm").tree, f"{bare_tree.HOME}/built"))


def take_interrupts():
    """In a new process: a test that was started in the background ignores SIGINT, and so would it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class InterruptTest(unittest.TestCase):
    def test_an_interrupt_leaves_no_process_and_no_mount(self):
        folder = WORKSHOPS["folder"] / "interrupted"
        tree = bare_tree.Tree("bookworm", kept(), folder)
        started = tree.path(f"{bare_tree.HOME}/started")
        code = ("import sys, bare_tree; tree = bare_tree.Tree.__new__(bare_tree.Tree); "
                "tree.folder, tree.kept, tree.environment = sys.argv[1], sys.argv[2], "
                "bare_tree.PLAIN; tree.run('sh', '-c', 'touch ~/started; exec sleep 3600')")
        command = subprocess.Popen([sys.executable, "-c", code, str(folder), str(tree.kept)],
                                   cwd=pathlib.Path(__file__).parent, start_new_session=True,
                                   stderr=subprocess.DEVNULL, preexec_fn=take_interrupts)
        while not started.exists():
            self.assertIsNone(command.poll())
            time.sleep(0.05)
        self.assertGreater(bare_tree.mounts_below(folder), set())
        os.killpg(command.pid, signal.SIGINT)
        command.wait(60)
        while bare_tree.mounts_below(folder):  # CTest's limit ends a wait that is in vain
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
