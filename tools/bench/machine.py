"""The machine in words that name no machine, its measured peaks, and the data it has."""
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess

from turns import end, words_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


def cores():
    return len(os.sched_getaffinity(0))


# What --isa permits: ada-train, PyTorch, and oneDNN in both.
ISA_LIMITS = {
    isa: {"ADA_ISA": isa, "ATEN_CPU_CAPABILITY": of_torch, "ONEDNN_MAX_CPU_ISA": of_onednn}
    for isa, of_torch, of_onednn in (("avx2", "avx2", "AVX2"), ("avx512", "avx512", "AVX512_CORE"),
                                     ("avx512bf16", "avx512", "AVX512_CORE_BF16"))}


def instruction_sets(flags):
    """In words, from the processor's flags."""
    best = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
                 if flag in flags), "SSE2")
    more = [name for flag, name in (("avx512_bf16", "its bf16 products"), ("amx_bf16", "AMX"))
            if flag in flags]
    return best + (" and " + ", ".join(more) if more else "")


def describe(device="cpu"):
    """What --device names."""
    if device == "cuda":
        return gpu()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    limit = os.environ.get("ADA_ISA")
    return (f"{os.cpu_count()} cores, {platform.machine()} with {instruction_sets(flags)}"
            + (f", all programs limited to {limit}" if limit else ""))


def load_warning(load):
    """What a table must say where other programs ran when it was begun, by the load average of the
    last minute; otherwise empty. PyTorch's threads wait for each other in every operation and
    suffer most: ratios to it then mean nothing."""
    if load < 0.5:
        return ""
    return (f"**Not a quiet machine** (load average {load:.1f} before the start): ratios between "
            "programs mean nothing.\n")


def gpu():
    """The GPU and its driver in words, or None where none is found."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                               "--format=csv,noheader"], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return None
    name, driver = (part.strip() for part in lines[0].split(",", 1))
    return f"{name}, driver {driver}"


def data_options(config):
    """--set values for the data of a configuration, whose speed hardly depends on them: the real set
    where its folder in $ADA_DATA is found, otherwise synthetic images of the same shape or a text of
    this tree. Nothing stands in for CamVid."""
    def found(name):
        return (ROOT / (os.environ.get("ADA_DATA") or "data") / name).is_dir()

    if "synthetic" in config or "bccd" in config:
        return []
    if "jargon" in config:  # a short evaluation when a run ends
        text = [] if found("jargon") else ["data.dataset=text",
                                           f"data.path={ROOT / 'configs' / 'KEYS.md'}"]
        return ["data.validation=0.01", *text]
    if "camvid" in config:
        if not found("camvid/train"):
            end("CamVid is not there: `ada-train fetch camvid` gets it")
        return []
    if "fashion" in config:
        if pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
            return ["data.limit={train: 0, test: 256}"]
        return ["data.dataset=synthetic", "data.synthetic={height: 28, width: 28, channels: 1}"]
    return ["data.limit={train: 0, test: 256}" if found("cifar-10") else "data.dataset=synthetic"]


@dataclasses.dataclass(frozen=True)
class Peak:
    """What the machine can do with so many threads at once; None: it has no such products."""
    fma: float  # GFLOP/s of fp32 fused multiply-adds
    copy: float  # GB/s, bytes read and bytes written
    pairs: float = None  # GFLOP/s of AVX-512's bf16 products, summed in fp32
    tiles: float = None  # GFLOP/s of bf16 products of tiles, summed in fp32

    def bf16(self):
        """The fastest bf16 products that there are, or None."""
        return self.tiles or self.pairs

    def text(self):
        pairs = "" if self.pairs is None else f"bf16 products {self.pairs:,.0f} GFLOP/s, "
        tiles = "" if self.tiles is None else f"bf16 tiles {self.tiles:,.0f} GFLOP/s, "
        return (f"fp32 FMA {self.fma:,.0f} GFLOP/s, {pairs}{tiles}memory copied {self.copy:.0f} GB/s")


def measure_peak(program, threads):
    """One Peak; about a second."""
    return Peak(**json.loads(words_of(program, threads)))


def median_peak(peaks):
    """Of Peaks measured in different rounds, each number's median."""
    def middle(values):
        return None if None in values else statistics.median(values)
    return Peak(*map(middle, zip(*map(dataclasses.astuple, peaks))))
