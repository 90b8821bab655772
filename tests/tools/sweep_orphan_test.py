"""tools/sweep.sh where a sweep was killed and its runs live on: the next start waits for them, names
them, and never takes them for failures."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sweep_case import SweepCase  # noqa: E402  (beside this file)

SECONDS = 60  # until something that must happen counts as not happening


class SweepOrphanTest(SweepCase):
    def start(self, *options):
        """The sweep beside this test; its errors go to a file."""
        with open(self.folder / "errors", "wb") as errors:
            process = subprocess.Popen(self.command(*options), cwd=self.folder, stderr=errors,
                                       env=self.environment, stdout=subprocess.DEVNULL,
                                       start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def errors(self):
        return (self.folder / "errors").read_text(encoding="utf-8")

    def until(self, holds):
        end = time.monotonic() + SECONDS
        while not holds():
            self.assertLess(time.monotonic(), end, self.errors())
            time.sleep(0.02)

    def orphans(self, *names):
        """Runs whose sweep was killed."""
        self.addCleanup(self.release, *names)
        sweep = self.start("--vary", "seed=1,2", "--set", "mode=linger", "-j", "2")
        self.until(lambda: all((self.out / name / "waiting").exists() for name in names))
        sweep.kill()
        sweep.wait()
        self.calls()

    def release(self, *names):
        for name in names:
            (self.out / name / "go").touch()

    def test_the_next_start_waits_for_them(self):
        self.orphans("seed=1", "seed=2")
        sweep = self.start("--vary", "seed=1,2,3", "--set", "mode=linger", "-j", "2")
        self.until(lambda: self.errors().count("waiting") == 2)
        self.assertRegex(self.errors(), r"waiting   seed=1 \(process \d+ \(.*\) works in its folder: "
                         "a run that goes on without its sweep")
        self.release("seed=1", "seed=2")
        self.until(lambda: (self.out / "seed=3" / "waiting").exists())
        self.release("seed=3")
        self.assertEqual(sweep.wait(SECONDS), 0, self.errors())
        self.assertEqual(set(self.column("status").values()), {"finished"})
        self.assertIn("3 finished, 0 skipped, 0 failed, 0 left", self.errors())
        # What they had said stays, and what is said afterwards stands after it.
        self.assertEqual([call["name"] for call in self.calls()], ["seed=1", "seed=2", "seed=3"])

    def test_a_signal_leaves_them_alone(self):
        self.orphans("seed=1", "seed=2")
        sweep = self.start("--vary", "seed=1,2", "--set", "mode=linger", "-j", "2")
        self.until(lambda: self.errors().count("waiting") == 2)
        os.kill(sweep.pid, signal.SIGTERM)
        self.assertEqual(sweep.wait(SECONDS), 143, self.errors())
        self.assertEqual(self.errors().count("left      seed="), 2, self.errors())
        self.assertIn("which goes on", self.errors())
        self.assertEqual(self.calls(), [])
        self.release("seed=1", "seed=2")
        self.until(lambda: all((self.out / name / "summary.json").exists()
                               for name in ("seed=1", "seed=2")))


if __name__ == "__main__":
    unittest.main()
