"""tools/bench/gpu_first/run.sh from start to end with made-up programs: without a GPU everything is
skipped and the page says so; with one, what differs and which switch owns it."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"

# 0.1 s a step, 0.2 s without recordings; other weights with the general kernels, and of GPT-2 where
# it is resumed. There are no pictures of CamVid.
ADA = """#!/bin/bash
[ "$1" != --version ] || { echo "ada-train 0.0"; exit; }
case "$*" in
  *segnet*--dry-run*) echo "no folder camvid"; exit 3 ;;
  *--dry-run*) exit ;;
  *too_large*) echo "out of memory"; exit 4 ;;
esac
all=$*
while [ $# -gt 0 ]; do [ "$1" != --output ] || out=$2; shift; done
mkdir -p "$out/checkpoints"
weights="weights ${ADA_CUDA_PLAIN-1}"
case $all in *gpt2*--resume*) weights=others ;; esac
for step in best step-00000010 step-00000020; do
  echo "$weights" >"$out/checkpoints/$step.safetensors"
done
touch "$out/summary.json"
seconds=10
[ -z "${ADA_CUDA_GRAPHS-}" ] || seconds=20
printf 'seconds,step\\n9,1\\n%s,101\\n' "$seconds" >"$out/timing.csv"
printf 'step,loss\\n1,2.0\\n2,1.0\\n' >"$out/steps.csv"
case $out in *resnet50_round) echo broken; exit 4 ;; esac
"""
NO_GPU = "#!/bin/sh\necho '[skipped] all: the NVIDIA driver finds no GPU'\nexit 77\n"
TESTS = """#!/bin/sh
case "$*" in
  *--count*) echo '[doctest] unskipped test cases passing the current filters: 17' ;;
  *--first=4*) echo 'TEST CASE:  streams: broken'; echo '[cases] 2 passed, 1 failed'; exit 1 ;;
  *) echo '[doctest] assertions: 24 | 24 passed | 0 failed |' ;;
esac
"""


class GpuFirstTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bare = self.folder / "gpu_first"
        shutil.copytree(BENCH / "gpu_first", self.bare / "gpu_first")
        (self.bare / "gpu_first" / "run.sh").rename(self.bare / "run.sh")
        (self.bare / "tree" / "tests" / "cuda").mkdir(parents=True)
        (self.bare / "cuda_major").write_text("13\n")
        (self.bare / "cpu_steps.csv").write_text("step,loss\n1,2.0\n2,1.01\n")
        self.script("tree/tests/cuda/under_sanitizer.sh",
                    "#!/bin/sh\n[ $1 = racecheck ] && exit 1\nexit 0\n")
        self.script("ada-train", ADA)

    def script(self, name, text):
        path = self.bare / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run_it(self, *words):
        environment = {**os.environ, "ADA_BENCH_PYTHON": "/bin/false"}
        done = subprocess.run([self.bare / "run.sh", "--out", self.folder / "out", *words],
                              capture_output=True, text=True, check=False, env=environment)
        return done, (self.folder / "out" / "verdicts.md").read_text(encoding="utf-8")

    def test_without_a_gpu_all_is_skipped_visibly(self):
        self.script("test_cuda_device", NO_GPU)
        done, page = self.run_it()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for section in ("one step", "tests", "bits", "networks", "times", "sanitizer"):
            self.assertIn(f"* {section}: the NVIDIA driver finds no GPU", page)
            self.assertIn(": skipped: the NVIDIA driver finds no GPU", done.stdout)
        self.assertNotIn("## Failed", page)

    def test_tests_that_do_not_start_are_a_failure(self):
        self.script("test_cuda_device", "#!/bin/sh\necho 'no libdnnl' >&2\nexit 127\n")
        done, page = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertIn("* device tests: test_cuda_device ends with exit code 127: no libdnnl", page)

    def test_what_differs_and_what_gains_too_little(self):
        self.script("test_cuda_device", TESTS)
        done, page = self.run_it()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for line in ("* the defaults repeat themselves", "**plain owns a difference**",
                     "the same bits without each of: graphs, side_stream, pdl_off, pdl_early, "
                     "last_block, cublas, round, cudnn_skip, poison",
                     "* losses beside the CPU's: 2 steps, first 0 %, worst 0.99 % (step 2)", "* graphs gains 100.0 %",
                     "* side_stream gains 0.0 %: **less than 2 %, should be off**",
                     "* times of resnet50, round: exit code 4", "* memcheck: clean",
                     "* racecheck: exit code 1", "* part 0: assertions: 24 | 24 passed | 0 failed", "* PyTorch, resnet20 fp16: ",
                     "* device tests, part 1: TEST CASE:  streams: broken",
                     "* llama, losses: 2 steps, first 0 %, worst 0 % (step 2)",
                     "* segnet: no folder camvid", "* mxfp8_e4m3: +0.0 % beside the defaults", "* too_large, status: exit code 4: out of memory",
                     "* gpt2, resumed: exit code 0; weights "):
            self.assertIn(line, page)
        for line in ("* resnet20, resumed: exit code", "* a batch that is too large:"):
            self.assertNotIn(line, page)

    def test_what_is_asked_for_alone(self):
        self.script("test_cuda_device", TESTS)
        done, page = self.run_it("--only", "bits")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("## Times", page)
        done, page = self.run_it("--minutes", "0")
        self.assertEqual(done.returncode, 0)
        self.assertIn("* times: 0 minutes are over", page)

    def test_a_wrong_option_is_refused(self):
        for words in (("--wrong",), ("--out",)):
            done = subprocess.run([self.bare / "run.sh", *words], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("run.sh: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
