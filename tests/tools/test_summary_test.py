"""tools/test_summary.py on logs of ctest --verbose: what it counts, what it shows, how it ends."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"

PREAMBLE = """1: Test command: /b/test_core "--test-suite=cpu"
1: Working Directory: /b
1: Environment variables:
1:  A=b
1: Test timeout computed to be: 900
"""
# (what, log, last lines, exit code)
CASES = [
    ("doctest counts cases",
     PREAMBLE + "1: [cases] 12 passed, 0 failed, 0 skipped\n"
     "1/1 Test #1: core.cpu ...........   Passed    0.01 sec\n",
     ["12 passed, 0 failed"], 0),
    ("a skipped case has its reason",
     "1: [skipped] steps: no CIFAR-10\n1: [cases] 2 passed, 0 failed, 1 skipped\n"
     "1/1 Test #1: train.slow .........   Passed    0.01 sec\n",
     ["skipped (no CIFAR-10):", "  train.slow: steps", "1 skipped", "2 passed, 0 failed"], 0),
    ("a skipped program is none that passed",
     "1: [skipped] format: no clang-format\n1/2 Test #1: lint.format ....***Skipped   0.00 sec\n"
     "2/2 Test #2: lint.arrows ........   Passed    0.01 sec\n",
     ["1 skipped", "1 passed, 0 failed"], 0),
    ("failures are shown",
     PREAMBLE + "1: ERROR: CHECK( 1 == 2 )\n1: [cases] 3 passed, 2 failed, 0 skipped\n"
     "1/1 Test #1: core.cpu ...........***Failed    0.01 sec\n",
     ["--- core.cpu: Failed", 'Test command: /b/test_core "--test-suite=cpu"',
      "ERROR: CHECK( 1 == 2 )", "[cases] 3 passed, 2 failed, 0 skipped", "3 passed, 2 failed"], 1),
    ("a crash that counts nothing is a failure",
     "1/1 Test #1: core.cpu ...........***Exception: SegFault  0.12 sec\n",
     ["--- core.cpu: Exception: SegFault", "0 passed, 1 failed"], 1),
    ("so is a time-out after a part of the output",
     "1: half\n1/1 Test #1: core.cpu ..........***Timeout 900.01 sec\n",
     ["half", "0 passed, 1 failed"], 1),
    ("unittest counts tests",
     "1: test_b (x.A.test_b) ... skipped 'no net'\n1: Ran 5 tests in 0.001s\n1: \n1: OK (skipped=1)\n"
     "1/1 Test #1: data.fetch .........   Passed    0.20 sec\n",
     ["skipped (no net):", "  data.fetch: test_b", "1 skipped", "4 passed, 0 failed"], 0),
    ("the slowest first",
     "1/3 Test #1: core.cpu ...........   Passed    2.50 sec\n"
     "2/3 Test #2: train.cpu ..........   Passed   31.04 sec\n"
     "3/3 Test #3: lint.arrows ........   Passed    0.25 sec\n",
     ["seconds, the slowest first:", "      31.0  train.cpu", "       2.5  core.cpu",
      "       0.2  the other 1", "3 passed, 0 failed"], 0),
    ("nothing ran", "No tests were found!!!\n", ["0 passed, 0 failed"], 1),
]


class TestSummaryTest(unittest.TestCase):
    def test_cases(self):
        for what, log, last, status in CASES:
            with self.subTest(what), tempfile.NamedTemporaryFile("w", suffix=".log") as file:
                file.write(log)
                file.flush()
                result = subprocess.run([sys.executable, str(TOOL), file.name],
                                        capture_output=True, text=True, check=False)
                self.assertEqual(result.stdout.splitlines()[-len(last):], last)
                self.assertEqual(result.returncode, status, result.stderr)


if __name__ == "__main__":
    unittest.main()
