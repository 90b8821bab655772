"""The program for 64-bit ARM, made by a cross compiler and run by qemu-user: it does what the one
for this machine does, to the same bytes wherever no order of sums is free. Takes Debian's packages
for ARM and many minutes; ADA_AARCH64_SYSROOT names a folder that tools/package/sysroot.sh made, and
build-aarch64/ is kept, so that later runs are fast."""
import csv
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import safetensors_file  # noqa: E402  (a neighbor)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("ADA_BINARY", ROOT / "build/ada-train")).resolve()
BUILD = ROOT / "build-aarch64"
JOBS = os.environ.get("ADA_JOBS", str(os.cpu_count()))

IMAGES = """data: {dataset: synthetic, batch_size: 16,
  synthetic: {height: 8, width: 8, channels: 3, classes: 4, train: 64, test: 32}}"""
CONVOLUTIONS = """model: {layers: [
  {name: conv, kind: conv2d, channels: 16, kernel: 3}, {name: bn, kind: batch_norm},
  {name: relu, kind: relu}, {name: pool, kind: max_pool, kernel: 3, stride: 2},
  {name: next, kind: conv2d, channels: 8, kernel: 3, padding: 1}, {name: gelu, kind: gelu},
  {name: fc, kind: linear, features: 4}]}"""
TRANSFORMER = """task: language
data: {dataset: text, path: text.txt, context: 16, batch_size: 16, validation: 0.2}
model: {zoo: gpt2, width: 32, heads: 2, layers: 2, dropout: 0.1}"""
RUNS = {
    "fp16": f"{IMAGES}\n{CONVOLUTIONS}\nprecision: {{format: fp16}}\nscaling: {{policy: adaptive}}",
    "fp8": f"{IMAGES}\n{CONVOLUTIONS}\nprecision: {{format: fp8_e4m3}}\n"
           "scaling: {policy: adaptive, method: exact_range}",
    "stochastic": f"{IMAGES}\n{CONVOLUTIONS}\n"
                  "precision: {format: fp8_e5m2, rounding: stochastic}\nscaling: {policy: dynamic}",
    "mx": f"{IMAGES}\n{CONVOLUTIONS}\nprecision: {{format: bf16, operands: mxfp4}}\n"
          "scaling: {policy: none}",
    "transformer": f"{TRANSFORMER}\nprecision: {{format: fp16}}\nscaling: {{policy: adaptive}}",
}
# Every product of two such numbers, and every sum of so few of them, is exact in fp32. A bias is not
# rounded: with one the order would count.
WITHOUT_BIAS = re.sub(r"(channels|features): (\d+)", r"\1: \2, bias: false", CONVOLUTIONS)
EXACT = {
    "exact": f"{IMAGES}\n{WITHOUT_BIAS}\nprecision: {{format: fp6_e2m3}}\n"
             "scaling: {policy: fixed, scale: 16}",
    "exact_transformer": f"{TRANSFORMER}\nprecision: {{format: fp6_e2m3}}\n"
                         "scaling: {policy: fixed, scale: 65536}",
}
REST = """train: {epochs: 2}
seed: 3
log: {every: 1, histogram_every: 2, probe_every: 3, dump_every: 4,
  statistics: [y, w, dx, dy, dw, update, operands]}
"""


def said(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          **options)
    if done.returncode:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout[-6000:]}"
                             f"{done.stderr[-6000:]}")
    return done.stdout


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Aarch64Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.environ.get("ADA_SLOW"):
            raise unittest.SkipTest("tools/test.sh --install runs it")
        if platform.machine() != "x86_64":
            raise unittest.SkipTest("this machine is not x86-64")
        cls.qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
        if not cls.qemu or not shutil.which("aarch64-linux-gnu-g++"):
            raise unittest.SkipTest("tools/setup.sh --aarch64 installs the cross compiler and qemu")
        cls.sysroot = cls.libraries()
        cls.build("ada-train", "train_on_kernels", "test_number", "test_io")
        scratch = tempfile.TemporaryDirectory(prefix="ada-aarch64-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 60)
        for name, config in {**RUNS, **EXACT}.items():
            # Probes compare with passes in fp32, whose sums are not exact.
            rest = REST.replace("probe_every: 3", "probe_every: 0") if name in EXACT else REST
            (cls.folder / f"{name}.yaml").write_text(f"name: {name}\n{config}\n{rest}")

    @classmethod
    def libraries(cls):
        given = os.environ.get("ADA_AARCH64_SYSROOT")
        if given:
            return given
        made = ROOT / "build-aarch64-sysroot"
        if not made.exists():
            laid_out = subprocess.run([ROOT / "tools/package/sysroot.sh", made], text=True,
                                      capture_output=True, check=False)
            if laid_out.returncode:
                raise unittest.SkipTest(f"Debian's packages for ARM: {laid_out.stderr[-300:]!r}")
        return made

    @classmethod
    def build(cls, *targets):
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        said("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/tools/package/aarch64.cmake",
             f"-DADA_SYSROOT={cls.sysroot}", *launcher)
        built = said("cmake", "--build", BUILD, "--parallel", JOBS, "--target", *targets)
        if "warning:" in built:
            raise AssertionError(built[-6000:])

    def both(self, program, *words):
        """What both programs say; {out} is a folder of the machine's own."""
        answers = []
        for machine in ("x86", "arm"):
            (self.folder / machine).mkdir(exist_ok=True)
            placed = [str(word).replace("{out}", machine) for word in words]
            command = [PROGRAM.parent / program, *placed]
            if machine == "arm":
                command = [self.qemu, "-L", self.sysroot, BUILD / program, *placed]
            isa = "sse2" if machine == "x86" else "generic"
            answers.append(said(*command, cwd=self.folder, env={**os.environ, "ADA_ISA": isa}))
        return answers

    def train(self, name):
        self.both("ada-train", "train", f"{name}.yaml", "--quiet", "--output", f"{{out}}/{name}")

    def files(self, name):
        """Relative paths and bytes of both runs' logs and weights. Dumps are left out: a sum of
        zeros has the sign that its order gives it."""
        found = []
        for machine in ("x86", "arm"):
            folder = self.folder / machine / name
            found.append({str(path.relative_to(folder)): path.read_bytes()
                          for path in sorted(folder.rglob("*"))
                          if path.suffix in (".csv", ".safetensors") and path.stem != "timing"
                          and path.parent.name != "dump"})
        self.assertGreater(len(found[0]), 5)
        return found

    def assert_equal_files(self, name):
        x86, arm = self.files(name)
        self.assertEqual(list(x86), list(arm))
        for path, data in x86.items():
            self.assertEqual(data, arm[path], f"{name}: {path}")

    def test_1_it_starts_and_says_what_it_is(self):
        _, arm = self.both("ada-train", "--version")
        self.assertRegex(arm, r"^ada-train \d+\.\d+\.\d+")
        _, arm = self.both("ada-train", "policies")
        self.assertIn("adaptive", arm)
        refused = subprocess.run([self.qemu, "-L", self.sysroot, BUILD / "ada-train", "train",
                                  "fp16.yaml", "--output", "none"], capture_output=True, text=True,
                                 cwd=self.folder, env={**os.environ, "ADA_ISA": "avx2"}, check=False)
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("ADA_ISA=avx2: this processor offers generic", refused.stderr)

    def test_2_numbers_formats_and_files_in_its_own_unit_tests(self):
        for program in ("test_number", "test_io"):
            said(self.qemu, "-L", self.sysroot, BUILD / program, "--test-suite=cpu",
                 "--test-case-exclude=memory limit: ulimit*",  # which qemu does not hand on
                 env={**os.environ, "ADA_BINARY": ""})

    def test_3_runs_whose_sums_have_one_order_give_the_same_bytes(self):
        for name in RUNS:
            with self.subTest(name):
                self.both("train_on_kernels", "train", f"{name}.yaml", "--output",
                          f"{{out}}/kernels_{name}")
                self.assert_equal_files(f"kernels_{name}")

    def test_4_so_do_runs_whose_sums_are_exact(self):
        for name in EXACT:
            with self.subTest(name):
                self.train(name)
                self.assert_equal_files(name)

    def test_5_other_runs_begin_alike(self):
        """The first step's loss lies within what another order of sums may change, and weights are
        rounded and counted alike until the first update."""
        for name in RUNS:
            with self.subTest(name):
                self.train(name)
                first, also = (rows(self.folder / machine / name / "steps.csv")
                               for machine in ("x86", "arm"))
                self.assertEqual(len(first), len(also))
                self.assertAlmostEqual(float(first[0]["loss"]), float(also[0]["loss"]), places=3)
                counted, again = (
                    [row for row in rows(self.folder / machine / name / "underflow.csv")
                     if row["tensor"] == "w" and row["step"] == "1"] for machine in ("x86", "arm"))
                self.assertEqual(counted, again)
                self.assertTrue(counted)

    def test_6_commands_on_files_say_and_write_the_same(self):
        values = [2.0 ** e * m for e in range(-30, 18) for m in (1, -1.37, 1.5, 0.9999)]
        values += [0.0, -0.0]
        beyond = [*values, float("inf"), -float("inf"), float("nan")]
        path, finite = self.folder / "t.safetensors", self.folder / "finite.safetensors"
        for file, data in ((path, beyond), (finite, values)):
            safetensors_file.write(file, {"t": ([len(data)], struct.pack(f"<{len(data)}f", *data))})
        for command in (["inspect", path, "--format", "fp8_e4m3"],
                        ["inspect", path, "--csv", "counts", "--format", "fp16"],
                        ["replay", "--preset", "pytorch"], ["formats"], ["models"]):
            with self.subTest(" ".join(map(str, command))):
                x86, arm = self.both("ada-train", *command)
                self.assertEqual(x86, arm)
        # A block that holds infinity becomes NaN, whose sign is the processor's.
        for form, file in (("fp16", path), ("fp8_e5m2", path), ("mxfp4", finite),
                           ("nvfp4", finite), ("fp8_block128", finite)):
            with self.subTest(form):
                self.both("ada-train", "convert", file, f"{{out}}/{form}.safetensors", "--format",
                          form)
                x86, arm = ((self.folder / machine / f"{form}.safetensors").read_bytes()
                            for machine in ("x86", "arm"))
                self.assertEqual(x86, arm)


if __name__ == "__main__":
    unittest.main()
