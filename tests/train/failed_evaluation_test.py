"""What an evaluation fails in costs no training: the weights of the step are there, the run goes on
from them when the cause is mended, and ends with the bytes of a run that never failed."""
import pathlib
import sys
import unittest

from tests.program_case import ProgramCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_sets  # noqa: E402

BROKEN = "photos/val/bee/1.png"
STEPS_OF_EPOCH, STEPS = 3, 8


class FailedEvaluation(ProgramCase):
    def setUp(self):
        super().setUp()
        small_sets.write_folder(self.folder / "photos")
        (self.folder / "r.yaml").write_text(small_sets.FOLDER_RUN)

    def ada(self, code, *arguments):
        return self.run_program(*arguments, code=code).stderr

    def train(self, code, name, *more):
        return self.ada(code, "train", "r.yaml", "--no-progress", "--set", f"output={name}",
                        f"train.max_steps={STEPS}", "checkpoint.best=true", *more)

    def checkpoints(self, name):
        return sorted(path.name for path in (self.folder / name / "checkpoints").iterdir())

    def assert_same_run(self, one, other):
        names = [f"checkpoints/step-{STEPS:08}.safetensors", "checkpoints/best.safetensors",
                 "steps.csv", "evaluation.csv", "scales.csv", "underflow.csv", "events.csv"]
        for name in names:
            self.assertEqual((self.folder / one / name).read_bytes(),
                             (self.folder / other / name).read_bytes(), name)

    def break_picture(self, name=BROKEN):
        """One that can be opened, of the same size, and whose pixels are damaged."""
        path = self.folder / name
        whole = path.read_bytes()
        at = whole.index(b"IDAT") + 40
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1:])
        return lambda: path.write_bytes(whole)

    def check_run(self, *more, broken=BROKEN):
        self.train(0, "whole", *more)
        mend = self.break_picture(broken)
        for attempt in range(2):  # the second one fails in the same evaluation
            said = self.train(3, "failed", *more) if attempt == 0 else self.ada(
                3, "train", "--resume", "failed", "--no-progress")
            stem = f"failed/checkpoints/step-{STEPS_OF_EPOCH:08}"
            self.assertIn(f"the evaluation after step {STEPS_OF_EPOCH} failed; the weights of that "
                          f"step are in {stem}.safetensors", said)
            self.assertIn("train --resume failed", said)
            self.assertIn(broken, said.splitlines()[-1])
            self.assertEqual([name for name in self.checkpoints("failed") if "best" not in name],
                             [f"step-{STEPS_OF_EPOCH:08}.json",
                              f"step-{STEPS_OF_EPOCH:08}.safetensors"])
        mend()
        self.ada(0, "train", "--resume", "failed", "--no-progress")
        self.assert_same_run("whole", "failed")

    def test_in_the_middle_of_a_run(self):
        self.check_run("checkpoint.every_epochs=0")

    def test_where_statistics_of_batch_norms_are_replaced_and_an_average_is_kept(self):
        self.check_run("checkpoint.every_epochs=0", "evaluate.recompute_batch_norm=true",
                       "train.ema.decay=0.9")

    def test_the_second_split_when_the_rows_of_the_first_are_written(self):
        small_sets.write_folder(self.folder / "more")
        (self.folder / "more/val").rename(self.folder / "photos/test")
        self.check_run("checkpoint.every_epochs=0", broken="photos/test/bee/1.png")

    def test_at_the_end_of_a_run(self):
        self.train(0, "whole", "evaluate.every_epochs=0")
        mend = self.break_picture()
        said = self.train(3, "failed", "evaluate.every_epochs=0", "checkpoint.every_epochs=0")
        self.assertIn(f"failed/checkpoints/step-{STEPS:08}.safetensors", said)
        mend()
        self.ada(0, "train", "--resume", "failed", "--no-progress")
        self.assertEqual((self.folder / "whole/evaluation.csv").read_bytes(),
                         (self.folder / "failed/evaluation.csv").read_bytes())


if __name__ == "__main__":
    unittest.main()
