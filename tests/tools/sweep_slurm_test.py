"""tools/sweep.sh --slurm: each task of the job script, run as Slurm would run it."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sweep_case import TOOL, SweepCase  # noqa: E402  (beside this file)


class SlurmTest(SweepCase):
    def setUp(self):
        super().setUp()
        self.sweep("--slurm", "job.sh", "-j", "3", "--threads", "4", "--vary", "mode=good,wait",
                   "--vary", "seed=1,2")
        self.write("scontrol", '#!/bin/sh\necho "$@" >>requeued\n')
        (self.folder / "scontrol").chmod(0o755)
        self.environment["PATH"] = f"{self.folder}:{os.environ['PATH']}"

    def task(self, number):
        environment = {**self.environment, "SLURM_ARRAY_TASK_ID": str(number),
                       "SLURM_ARRAY_JOB_ID": "77", "SLURM_JOB_ID": "78",
                       "SLURM_CPUS_PER_TASK": "6"}
        return subprocess.Popen(["bash", self.folder / "job.sh"], cwd="/", env=environment,
                                stderr=subprocess.PIPE, text=True)

    def test_one_task_is_one_run(self):
        text = (self.folder / "job.sh").read_text(encoding="utf-8")
        self.assertIn("#SBATCH --array=0-3%3\n", text)
        self.assertIn("#SBATCH --cpus-per-task=4\n", text)
        self.assertEqual(subprocess.run(["bash", "-n", self.folder / "job.sh"], check=False)
                         .returncode, 0)
        self.assertEqual(self.calls(), [])
        for turn in range(2):  # the second finds the run finished
            process = self.task(1)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, said)
            self.assertEqual([(call["name"], call["threads"]) for call in self.calls()],
                             [] if turn else [("mode=good__seed=2", "6")])
        result = subprocess.run([TOOL, "--table", "out"], cwd=self.folder, env=self.environment,
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(list(self.column("status").values()),
                         ["pending", "finished", "pending", "pending"])

    def test_a_run_of_several_processes_is_started_by_srun(self):
        self.sweep("--slurm", "job.sh", "--tasks", "4", "--threads", "2", "--vary", "mode=good")
        self.write_srun()
        text = (self.folder / "job.sh").read_text(encoding="utf-8")
        self.assertIn("#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=2\n", text)
        self.assertNotIn("--nodes", text)
        process = self.task(0)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual((self.folder / "started").read_text(),
                         "--mpi=pmix --ntasks=4 --cpus-per-task=6 --kill-on-bad-exit=1\n")
        self.assertEqual([call["name"] for call in self.calls()], ["mode=good"])
        result = subprocess.run([TOOL, "--config", "base.yaml", "--out", "out", "--tasks", "2"],
                                cwd=self.folder, env=self.environment, capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--tasks goes with --slurm", result.stderr)

    def write_srun(self):
        """One process stands for all. As the real one, srun kills it where it gets SIGTERM itself, and
        scancel reaches it past srun."""
        self.write("srun", "#!/bin/bash\n"
                           'echo "$1 $2 $3 $4" >>started\n'
                           'shift 4\n"$@" &\necho $! >process\n'
                           "trap 'kill -KILL $!' TERM\nwait $!\n")
        self.write("scancel", '#!/bin/sh\necho "$@" >>cancelled\nkill -TERM "$(cat process)"\n')
        for name in ("srun", "scancel"):
            (self.folder / name).chmod(0o755)

    def wait_for(self, path):
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.02)

    def test_processes_of_srun_write_a_checkpoint_before_the_limit(self):
        self.sweep("--slurm", "job.sh", "--tasks", "4", "--vary", "mode=wait", "--vary", "seed=1,2")
        self.write_srun()
        for task, number in ((0, signal.SIGUSR1), (1, signal.SIGTERM)):
            with self.subTest(number):
                folder = self.out / f"mode=wait__seed={task + 1}"
                process = self.task(task)
                self.wait_for(folder / "waiting")
                process.send_signal(number)
                if number == signal.SIGTERM:  # at the end of a job all get it from Slurm, once
                    os.kill(int((self.folder / "process").read_text()), number)
                _, said = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 143, said)
                self.assertEqual((folder / "checkpoints" / "step-00000002.json").read_text(), "1")
                self.assertEqual((self.folder / "cancelled").read_text(), "--signal=TERM 77_0\n")
                self.assertEqual((self.folder / "requeued").read_text(), "requeue 77_0\n")

    def test_a_signal_before_the_limit_queues_the_task_again(self):
        for number, requeued in ((signal.SIGTERM, False), (signal.SIGUSR1, True)):
            task = 2 if requeued else 3
            folder = self.out / f"mode=wait__seed={task - 1}"
            process = self.task(task)
            self.wait_for(folder / "waiting")
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 143, said)
            self.assertEqual((folder / "checkpoints" / "step-00000002.json").read_text(), "1")
            self.assertEqual((self.folder / "requeued").exists(), requeued)
            process = self.task(task)  # as Slurm starts it again
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, said)
        self.assertEqual((self.folder / "requeued").read_text(), "requeue 77_2\n")

    def test_a_failed_run_fails_its_task(self):
        self.sweep("--slurm", "job.sh", "--vary", "mode=fail")
        process = self.task(0)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5)
        self.assertIn("out of luck", said)


if __name__ == "__main__":
    unittest.main()
