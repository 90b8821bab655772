"""The machine in words that name no machine, its measured peaks, and the data it has."""
import dataclasses
import gzip
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cores():
    return len(os.sched_getaffinity(0))


# What --isa permits: ada-train, PyTorch, and oneDNN in both.
ISA_LIMITS = {
    "avx2": {"ADA_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"ADA_ISA": "avx512", "ATEN_CPU_CAPABILITY": "avx512",
               "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx512bf16": {"ADA_ISA": "avx512bf16", "ATEN_CPU_CAPABILITY": "avx512",
                   "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
}


def instruction_sets(flags):
    """In words, from the processor's flags."""
    best = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
                 if flag in flags), "SSE2")
    more = [name for flag, name in (("avx512_bf16", "its bf16 products"), ("amx_bf16", "AMX"))
            if flag in flags]
    return best + (" and " + ", ".join(more) if more else "")


def describe():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    limit = os.environ.get("ADA_ISA")
    return (f"{os.cpu_count()} cores, {platform.machine()} with {instruction_sets(flags)}"
            + (f", all programs limited to {limit}" if limit else ""))


def describe_device(device):
    """What --device names."""
    return gpu() if device == "cuda" else describe()


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


def cifar10():
    """The folder of the real data set, or None."""
    for folder in (os.environ.get("ADA_CIFAR10"), ROOT / "data" / "cifar-10"):
        if folder and pathlib.Path(folder, "data_batch_1.bin").exists():
            return str(folder)
    return None


def camvid():
    """The folder of CamVid; ends the program where it is not found: nothing stands in for it."""
    folder = os.environ.get("ADA_CAMVID") or ROOT / "data" / "camvid"
    if not pathlib.Path(folder, "train").is_dir():
        sys.exit(f"bench.py: {folder} holds no CamVid; data/scripts/fetch.py camvid fetches it, and "
                 "ADA_CAMVID may name its folder")
    return folder


PACKED_JARGON = pathlib.Path("/usr/share/dictd/jargon.dict.dz")  # of Debian's dict-jargon


def jargon(scratch):
    """--set values for the Jargon File where it is found, otherwise for a text that is made up. The
    vocabulary is that of bytes in both. Files that are made lie in `scratch`."""
    for folder in (os.environ.get("ADA_JARGON"),
                   pathlib.Path(os.environ.get("ADA_DATA") or ROOT / "data", "jargon")):
        if folder and pathlib.Path(folder, "jargon.txt").exists():
            return [f"data.path={pathlib.Path(folder).resolve()}"]
    made = pathlib.Path(scratch, "text")
    made.mkdir(exist_ok=True)
    if PACKED_JARGON.exists():
        if not (made / "jargon.txt").exists():
            (made / "jargon.txt").write_bytes(gzip.decompress(PACKED_JARGON.read_bytes()))
        return [f"data.path={made}"]
    if not (made / "words.txt").exists():
        (made / "words.txt").write_text(made_up_text(), encoding="ascii")
    return ["data.dataset=text", f"data.path={made / 'words.txt'}"]


def made_up_text(words=200000):
    """Words of letters, the same ones on every call; some occur far more often than others."""
    source = random.Random(0)
    known = ["".join(source.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1),
                                    k=source.randint(1, 10))) for _ in range(2000)]
    often = [1 / rank for rank in range(1, len(known) + 1)]
    return " ".join(source.choices(known, often, k=words))


def data_options(config, scratch):
    """--set values for the data of a configuration: the real set where it is found, otherwise
    synthetic images of the same shape or a text that is made up."""
    if "synthetic" in config or "bccd" in config:  # made-up images in any case; nothing stands in
        return []
    if "jargon" in config:
        return ["data.validation=0.005", *jargon(scratch)]  # a short evaluation when a run ends
    if "camvid" in config:
        return [f"data.path={camvid()}"]
    if "fashion" in config:
        if pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
            return ["data.limit={train: 0, test: 256}"]
        return ["data.dataset=synthetic", "data.synthetic={height: 28, width: 28, channels: 1}"]
    if cifar10():
        return [f"data.path={cifar10()}", "data.limit={train: 0, test: 256}"]
    return ["data.dataset=synthetic"]


@dataclasses.dataclass(frozen=True)
class Peak:
    """What the machine can do with so many threads at once; None: it has no such products."""
    fma: float  # GFLOP/s of fp32 fused multiply-adds
    pairs: float  # GFLOP/s of AVX-512's bf16 products, summed in fp32
    tiles: float  # GFLOP/s of bf16 products of tiles, summed in fp32
    read: float  # GB/s
    copy: float  # GB/s, bytes read and bytes written

    def bf16(self):
        """The fastest bf16 products that there are, or None."""
        return self.tiles or self.pairs

    def text(self):
        pairs = "" if self.pairs is None else f"bf16 products {self.pairs:,.0f} GFLOP/s, "
        tiles = "" if self.tiles is None else f"bf16 tiles {self.tiles:,.0f} GFLOP/s, "
        return (f"fp32 FMA {self.fma:,.0f} GFLOP/s, {pairs}{tiles}memory read {self.read:.0f} GB/s, "
                f"copied {self.copy:.0f} GB/s")


def measure_peak(program, threads):
    """One Peak; about a second."""
    done = subprocess.run([program, str(threads)], capture_output=True, text=True, check=True)
    return Peak(**json.loads(done.stdout))


def median_peak(peaks):
    """Of Peaks measured in different rounds, each number's median."""
    def middle(name):
        values = [getattr(peak, name) for peak in peaks]
        return None if None in values else statistics.median(values)
    return Peak(*(middle(field.name) for field in dataclasses.fields(Peak)))
