"""tools/bench/timeline.py on made-up traces: which steps are whole, gaps, what is no trace."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench"))
import timeline  # noqa: E402

HEAD = "stream\tbegin_ns\tend_ns\tkernel\n"


def a_step(at, side=True):
    """2,000 ns of A, 3,000 of nobody, 1,000 of A, the update; on the side 4,000 of B meanwhile."""
    lines = [f"0\t{at}\t{at + 2000}\tA<int>"]
    if side:
        lines.append(f"1\t{at + 1000}\t{at + 5000}\tB")
    lines += [f"0\t{at + 5000}\t{at + 6000}\tA<int>", f"0\t{at + 6000}\t{at + 7000}\tApplyUpdate<1>"]
    return "\n".join(lines) + "\n"


class TimelineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "trace.tsv"

    def run_on(self, text, *options):
        self.path.write_text(text, encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = timeline.main([str(self.path), *options])
        return status, out.getvalue(), err.getvalue()

    def test_by_kernel(self):
        status, out, _ = self.run_on(HEAD + a_step(0) + a_step(10000) + "0\t20000\t22000\tA<int>\n")
        self.assertEqual(status, 0)
        self.assertIn("| A<int> | 0 | 2 | 3.0 | 3.0 |\n| B | 1 | 1 | 4.0 | 0.0 |", out)
        self.assertIn("The step: 7.0 us, 4 launches; main stream: 4.0 us in 3 launches, 3.0 us", out)

    def test_each_launch(self):
        status, out, _ = self.run_on(HEAD + a_step(0) + a_step(10000), "--each")
        self.assertEqual(status, 0)
        self.assertIn("| 5.0 | 0 | 3.0 | 1.0 | A<int> |", out)
        self.assertIn("| 1.0 | 1 | 0.0 | 4.0 | B |", out)

    def test_the_median_of_the_last_steps(self):
        slow = a_step(10000).replace("17000", "19000")
        text = HEAD + a_step(0) + slow + a_step(20000) + a_step(30000, side=False)
        self.assertIn("The step: 7.0 us", self.run_on(text)[1])
        self.assertIn("7.0 us, 3 launches", self.run_on(text, "--steps", "1")[1])

    def test_what_is_no_trace(self):
        for text, message in (("", "line 1: not the trace"), (HEAD + "0\tx\t1\tA\n", "line 2:"),
                              (HEAD + a_step(0), "no two launches of ApplyUpdate")):
            status, out, err = self.run_on(text)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(message, err)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(timeline.main(["/nowhere/at/all"]), 2)


if __name__ == "__main__":
    unittest.main()
