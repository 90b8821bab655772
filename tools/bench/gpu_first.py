#!/usr/bin/env python3
"""The first half hour on a GPU: device tests, whether bits repeat themselves with each switch of
src/backend/cuda/switches.h, networks beside the CPU, times of each switch, compute-sanitizer. Every
result is on stdout and in FOLDER/results.tsv at once. Exit status: 0; 1: something failed.
"""
import csv
import hashlib
import os
import pathlib
import subprocess
import sys
import time

import machine
from turns import end, parser_of

SWITCHES = {"graphs": "GRAPHS=0", "side_stream": "SIDE_STREAM=0", "pdl": "PDL=off",
            "pdl_early": "PDL=early", "plain": "PLAIN=0", "last_block": "LAST_BLOCK=0",
            "fused": "FUSED=0", "attention": "ATTENTION=0", "cublas": "CUBLAS=0", "round": "ROUND=0", "poison": "POISON=1"}
OTHER_BITS = ("cublas", "round")  # other kernels of the libraries, which may give other bits
RESNET20 = "configs/resnet20_cifar.yaml"
NETWORKS = {  # configuration and --set values
    "gpt2": ("gpt2_jargon_quick",), "llama": ("llama_jargon_quick",), "vit": ("vit_cifar_quick",),
    "segnet": ("segnet_camvid_quick",), "ssd": ("ssd300_bccd_quick",),
    "fp8_codes": ("resnet20_cifar_quick_fp8", "device.fp8=hardware"),
    "resnet20_mxfp8": ("sweep/operands_resnet20", "precision.operands=mxfp8_e4m3"),
    "resnet20_nvfp4": ("sweep/operands_resnet20", "precision.recipe=nvfp4_pretraining"),
    "gpt2_te_fp8": ("sweep/operands_gpt2", "precision.recipe=te_fp8_delayed"),
    "gpt2_deepseek": ("sweep/operands_gpt2", "precision.recipe=deepseek_v3")}
TIMED = {RESNET20: 500, "configs/vit_cifar.yaml": 500, "configs/gpt2_jargon.yaml": 500,
         "configs/resnet50_synthetic.yaml": 60}  # steps


class Session:
    def __init__(self, options):
        self.build, self.out = pathlib.Path(options.build).resolve(), pathlib.Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.failed = False
        self.tests = next(self.build.rglob("test_cuda_device"), self.build / "test_cuda_device")

    def record(self, section, name, good, words):
        self.failed = self.failed or not good
        line = "\t".join((section, name, "ok" if good else "FAILED", str(words)))
        print(line, flush=True)
        with open(self.out / "results.tsv", "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def call(self, name, command, seconds, variables=()):
        """(exit code, last line); all words go to FOLDER/NAME.log."""
        log = self.out / f"{name}.log"
        with open(log, "w", encoding="utf-8") as file:
            try:
                code = subprocess.run([str(word) for word in command], cwd=machine.ROOT, stdout=file,
                                      stderr=subprocess.STDOUT, timeout=seconds, check=False,
                                      env={**os.environ, **dict(variables)}).returncode
            except subprocess.TimeoutExpired:
                return 124, f"cut off after {seconds} s"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return code, lines[-1] if lines else ""

    def train(self, name, config, *values, device="cuda", seconds=120, variables=()):
        """(exit code, last line) of a run, whose folder is FOLDER/NAME."""
        return self.call(name, [
            self.build / "ada-train", "--config", config, "--output", self.out / name, "--overwrite",
            "--no-progress", "--set", f"device.kind={device}", "evaluate.every_epochs=0",
            "train.epochs=1000000", *machine.data_options(config), *values], seconds,
            variables)

    def column(self, name, file, column):
        with open(self.out / name / file, encoding="utf-8") as rows:
            return [float(row[column] or "nan") for row in csv.DictReader(rows)]

    def section_tests(self):
        self.record("tests", "gpu", *passed(self.call(
            "tests", [self.tests, "--test-suite=gpu"], 900)))

    def weights(self, name, *variables):
        code, words = self.train("bits_" + name, RESNET20, "train.max_steps=300", "log.every=1000",
                                 "checkpoint={every_steps: 300, keep: 1}", variables=variables)
        if code:
            return f"exit code {code}: {words}"
        files = sorted((self.out / ("bits_" + name) / "checkpoints").glob("step-*.safetensors"))
        return hashlib.sha256(files[-1].read_bytes()).hexdigest()[:16]

    def section_bits(self):
        base = self.weights("defaults")
        again = self.weights("again")
        self.record("bits", "defaults", base == again and len(base) == 16, f"{base}, again {again}")
        for name, value in SWITCHES.items():
            bits = self.weights(name, variable(value))
            self.record("bits", name, bits == base or (name in OTHER_BITS and len(bits) == 16), bits)

    def section_networks(self):
        """One step with every op beside the CPU's; 20 steps on both."""
        for name, (config, *values) in NETWORKS.items():
            config = f"configs/{config}.yaml"
            self.record("compare", name, *passed(self.train(
                name + "_compare", config, *values, "data.batch_size=4", "train.max_steps=1",
                "device.compare=true", seconds=240)))
            steps = (*values, "data.batch_size=16", "train.max_steps=20", "log.every=1")
            both = [self.train(f"{name}_{device}", config, *steps, device=device, seconds=240)
                    for device in ("cuda", "cpu")]
            if any(code for code, _ in both):
                self.record("losses", name, False, both)
                continue
            ours, theirs = (self.column(f"{name}_{device}", "steps.csv", "loss")
                            for device in ("cuda", "cpu"))
            gap = max(abs(a / b - 1) for a, b in zip(ours, theirs))
            self.record("losses", name, True, f"{100 * gap:.3g} % apart at most")

    def section_times(self):
        """Seconds of a step, with the defaults and without each switch."""
        for config, steps in TIMED.items():
            model = pathlib.Path(config).stem
            for name, value in {"defaults": None, **SWITCHES}.items():
                code, words = self.train(
                    f"{model}_{name}", config, f"train.max_steps={steps}",
                    f"log.every={steps // 5}", variables=[variable(value)] if value else ())
                if code == 0:
                    seconds = self.column(f"{model}_{name}", "timing.csv", "seconds")[1:]
                    words = f"{1e3 * sum(seconds) / (len(seconds) * (steps // 5)):.3f} ms a step"
                self.record("times", f"{model} {name}", code == 0, words)

    def section_sanitizer(self):
        for tool in ("memcheck", "racecheck", "synccheck"):
            self.record("sanitizer", tool, *passed(self.call(
                tool, ["tests/cuda/under_sanitizer.sh", tool, self.tests], 600)))


def variable(value):
    name, _, text = value.partition("=")
    return "ADA_CUDA_" + name, text


def passed(result):
    code, words = result
    return code in (0, 77), f"exit code {code}: {words}"


SECTIONS = ("tests", "bits", "networks", "times", "sanitizer")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--build", default="build", help="where ada-train and test_cuda_device lie: "
                        "tools/build.sh --cuda; cmake --build build --target test_cuda_device")
    parser.add_argument("--out", default="gpu_first_results")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections; default: %(default)s")
    parser.add_argument("--minutes", type=float, default=60, help="no section begins later")
    options = parser.parse_args()
    begin, session = time.monotonic(), Session(options)
    for section in options.only.split(","):
        if section not in SECTIONS:
            parser.error(f"unknown section '{section}'; known are {', '.join(SECTIONS)}")
    if machine.gpu() is None:
        end("nvidia-smi finds no GPU on this machine; nothing was measured")
    for section in options.only.split(","):
        if time.monotonic() - begin >= 60 * options.minutes:
            session.record(section, "all", True, f"skipped: {options.minutes:g} minutes are over")
        else:
            getattr(session, "section_" + section)()
    sys.exit(session.failed)


if __name__ == "__main__":
    main()
