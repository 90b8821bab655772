"""tools/bench/scaling.py: its model against the same sums written out, and its table."""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/bench/scaling.py"
sys.path.insert(0, str(TOOL.parent))
import scaling  # noqa: E402  (beside the tools)


class ScalingTest(unittest.TestCase):
    NETWORK = (1e-3, 2e-3, 4_000_000, 10, 64)  # 16 MB of gradients, four buckets of 4 MiB

    def test_one_process_waits_for_nobody(self):
        parts = scaling.step_seconds(1, self.NETWORK, 1e-6, 1e9, 4, False)
        self.assertEqual(parts, (1e-3 * 64 + 2e-3, 0.0, 0.0))

    def test_two_processes_written_out(self):
        compute, exposed, small = scaling.step_seconds(2, self.NETWORK, 1e-5, 1e9, 4, False)
        self.assertAlmostEqual(compute, 0.032 + 0.002)
        # A bucket of 4,000,000 bytes: half of it to the other, twice; a message each time.
        bucket = 2 * (1e-5 + 4e6 / 2 / 1e9)
        self.assertAlmostEqual(exposed, bucket)  # three buckets hide behind 21 ms of backward pass
        self.assertAlmostEqual(small, 10 * (1e-5 + 2 * 48 / 1e9) + 1e-5 + 2 * 600 / 1e9)

    def test_what_does_not_hide_is_waited_for(self):
        slow = scaling.step_seconds(2, self.NETWORK, 1e-5, 1e8, 4, False)[1]
        bucket = 2 * (1e-5 + 4e6 / 2 / 1e8)
        self.assertAlmostEqual(slow, bucket + 3 * bucket - 2 / 3 * 0.032)
        half = scaling.step_seconds(2, self.NETWORK, 1e-5, 1e8, 2, False)[1]
        self.assertLess(half, slow)

    def test_a_reader_that_goes_away_ends_tools_that_print_quietly(self):
        printing = ([TOOL, "--network", "net=0.001,0.002,4e6,10,64"], [ROOT / "tools/change_files.py"],
                    [ROOT / "tools/check_arrows.py", "--diagram"])
        for command in printing:
            reads, writes = os.pipe()
            os.close(reads)
            done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
            os.close(writes)
            self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""), command)

    def test_the_table_ends_where_images_do(self):
        done = subprocess.run([TOOL, "--network", "net=0.001,0.002,4e6,10,64"],
                              capture_output=True, text=True, check=True)
        rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
        self.assertEqual([row[0].strip("| ") for row in rows[1:]],
                         ["1", "2", "4", "8", "16", "32", "64"])
        self.assertTrue(rows[1][-1].startswith("100 %"))
        self.assertIn("net: below half of a process's worth from", done.stdout)
        weak = subprocess.run([TOOL, "--weak", "--network", "net=0.001,0.002,4e6,10,64"],
                              capture_output=True, text=True, check=True).stdout
        self.assertIn("| 4096 | 64 |", weak)

    def test_a_network_that_is_none_is_refused(self):
        done = subprocess.run([TOOL, "--network", "net=1,2"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected NAME=IMAGE,STEP,PARAMETERS,LAYERS,BATCH", done.stderr)


if __name__ == "__main__":
    unittest.main()
