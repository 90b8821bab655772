"""tools/bench/costs.py: what logs cost, from timing rows whose steps have known times."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
import costs  # noqa: E402


def rows(steps, time_of):
    """What timing.csv shows of such a run: step 1 and the multiples of 2 and of 3 have rows."""
    seconds, since = {}, 0.0
    for step in range(1, steps + 1):
        since += time_of(step)
        if step == 1 or step % 2 == 0 or step % 3 == 0:
            seconds[step], since = since, 0.0
    return seconds


def kind(step):
    """Seconds of a step: 4 bare, 5 with statistics, 7 with histograms."""
    return 7.0 if step % 3 == 0 else 5.0 if step % 2 == 0 else 4.0


class LogCostTest(unittest.TestCase):
    def test_known_times(self):
        self.assertEqual(costs.log_shares(rows(200, kind)), (0.25, 0.75))

    def test_warm_up_and_drift_do_not_matter(self):
        slow = rows(60, lambda step: kind(step) + (100 if step <= 6 else 0))
        self.assertEqual(costs.log_shares(slow), (0.25, 0.75))
        drift = costs.log_shares(rows(601, lambda step: kind(step) * (1 + step / 600)))
        self.assertAlmostEqual(drift[0], 0.25, delta=0.01)
        self.assertAlmostEqual(drift[1], 0.75, delta=0.01)

    def test_a_few_slow_steps_do_not_matter(self):
        noisy = rows(200, lambda step: kind(step) + (50 if step % 37 == 0 else 0))
        self.assertEqual(costs.log_shares(noisy), (0.25, 0.75))

    def test_too_few_steps(self):
        self.assertIsNone(costs.log_shares(rows(11, kind)))
        self.assertEqual(costs.log_shares(rows(12, kind)), (0.25, 0.75))

    def test_a_round_is_a_run_for_each_choice_of_tensors(self):
        asked = []

        def seconds_by_step(values):
            asked.append(values)
            return rows(60, kind)
        found = costs.measure_logs(2, seconds_by_step)
        self.assertEqual(set(found), set(costs.TENSORS))
        self.assertEqual(list(found.values())[0], [(25.0, 75.0), (25.0, 75.0)])
        self.assertEqual(len(asked), 4)
        self.assertEqual(asked[0], ["log.every=2", "log.histogram_every=3",
                                    "log.statistics=[dx, dy, dw]"])

    def test_table(self):
        text = costs.log_table({"dx": [(4.0, 9.0), (2.0, 14.0), (3.0, 11.0)]})
        self.assertEqual(text.splitlines()[2:], [
            "| dx | statistics every 100 steps | +0.03 | +0.02, +0.04 |",
            "| dx | statistics every step | +3.0 | +2.0, +4.0 |",
            "| dx | statistics and histograms every step | +11.0 | +9.0, +14.0 |"])


if __name__ == "__main__":
    unittest.main()
