"""tools/test.sh --sanitizers, --part and --only: which builds and tests they ask for, and how they end; with
stand-ins for what installs, builds and tests."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
BUILD = """#!/usr/bin/env bash
echo "build $*" >>calls
case "$*" in *asan*) folder=build-asan-ubsan ;; *tsan*) folder=build-tsan ;; *) folder=build ;; esac
mkdir -p $folder
"""
# A test of which one case fails under ThreadSanitizer.
COSTS = {"core.cpu": 900, "train.cpu": 2700, "train.slow": 900, "data.cpu": 100, "a+b": 50,
         "graph.cpu": 700, "study.cpu": 800, "lint.words": 1}
CTEST = """#!/usr/bin/env bash
case "$*" in *show-only*) cat tests.json; exit ;; esac
echo "ctest $*" >>calls
case "$*" in *tsan*) failed=1 status='***Failed' ;; *) failed=0 status='Passed' ;; esac
echo "1: [cases] 7 passed, $failed failed, 0 skipped"
echo "1/1 Test  #1: core.cpu ...   $status  0.01 sec"
exit $failed
"""


class TestScriptTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ada-test-script-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "tools").mkdir()
        (self.folder / "bin").mkdir()
        for name in ("test.sh", "common.sh", "test_summary.py", "test_share.py"):
            shutil.copy(TOOLS / name, self.folder / "tools")
        for path, text in (("tools/build.sh", BUILD), ("bin/ctest", CTEST),
                           ("tools/setup.sh", "#!/bin/sh\necho setup $* >>calls\n")):
            (self.folder / path).write_text(text)
            (self.folder / path).chmod(0o755)

        (self.folder / "tests.json").write_text(json.dumps({"tests": [
            {"name": name, "properties": [{"name": "COST", "value": cost}]}
            for name, cost in COSTS.items()]}))

    def run_script(self, *options):
        result = subprocess.run(
            [self.folder / "tools/test.sh", *options], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        calls = self.folder / "calls"
        return result, calls.read_text().splitlines() if calls.exists() else []

    def test_both_sanitizers_one_after_the_other(self):
        result, calls = self.run_script("--all", "--sanitizers", "--only", "^core", "--mpi")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-2:],
                         ["--asan --ubsan: 7 passed, 0 failed", "--tsan: 7 passed, 1 failed"])
        self.assertEqual([call for call in calls if call.startswith("build")],
                         ["build --mpi --asan --ubsan", "build --mpi --tsan"])
        tests = [call for call in calls if call.startswith("ctest")]
        self.assertIn("--test-dir build-asan-ubsan", tests[0])
        self.assertIn("--test-dir build-tsan", tests[1])
        for call in tests:
            self.assertTrue(call.endswith(" -R ^core"), call)

    def test_ten_parts_are_all_tests_once_under_each_sanitizer(self):
        for first, folder in ((1, "build-asan-ubsan"), (6, "build-tsan")):
            dealt, costs = [], []
            for part in range(first, first + 5):
                (self.folder / "calls").unlink(missing_ok=True)
                result, calls = self.run_script("--all", "--sanitizers", "--part", str(part))
                self.assertEqual(result.returncode, 0 if first == 1 else 1, result.stderr)
                self.assertEqual([call for call in calls if call.startswith("build")],
                                 ["build --asan --ubsan" if first == 1 else "build --tsan"])
                (call,) = [call for call in calls if call.startswith("ctest")]
                self.assertIn(f"--test-dir {folder} ", call)
                pattern = call.rpartition(" -R ")[2]
                here = [name for name in COSTS if re.search(pattern, name)]
                dealt += here
                costs.append(sum(COSTS[name] for name in here))
            self.assertEqual(sorted(dealt), sorted(COSTS))
            self.assertEqual(max(costs), COSTS["train.cpu"])  # the longest one is alone

    def test_a_part_that_is_none(self):
        for options in (("--sanitizers", "--part", "11"), ("--sanitizers", "--part", "x"),
                        ("--part", "1"), ("--sanitizers", "--part")):
            result, calls = self.run_script(*options)
            self.assertEqual((result.returncode, calls), (2, []), result.stderr)
            self.assertIn("--part", result.stderr)

    def test_what_was_chosen_holds_for_both(self):
        _, calls = self.run_script("--sanitizers", "--fast", "--no-setup", "--cuda", "--cuda-arch", "90")
        self.assertEqual(calls[0], "build --cuda --cuda-arch 90 --asan --ubsan")
        self.assertIn("-L ^cpu$", calls[1])
        self.assertEqual(len(calls), 4)

    def test_what_does_not_go_together(self):
        for options in (["--sanitizers", "--asan"], ["--debug", "--sanitizers"], ["--only"]):
            result, calls = self.run_script(*options)
            self.assertEqual((result.returncode, calls), (2, []), result.stderr)

    def test_what_needs_more_than_the_compiler_has_a_suite_of_its_own(self):
        _, calls = self.run_script("--all")
        self.assertEqual(calls[0], "setup --hammer")
        self.assertTrue(calls[2].endswith(" -LE ^install$"), calls)
        (self.folder / "calls").unlink()
        _, calls = self.run_script("--install")
        self.assertEqual(calls[0], "setup --fuzz --clang --aarch64 --bare")
        self.assertTrue(calls[2].endswith(" -L ^install$"), calls)

    def test_some_tests_alone(self):
        result, calls = self.run_script("--no-setup", "--only", "^core")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(calls[1].endswith(" -L ^(cpu|lint|gpu|mpi)$ -R ^core"), calls)


if __name__ == "__main__":
    unittest.main()
