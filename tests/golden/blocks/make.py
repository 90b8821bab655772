#!/usr/bin/env python3
"""Makes inputs.safetensors and cases.csv of this folder from recordings of block-scaled conversions.

usage: tests/golden/blocks/make.py RECORDINGS    (a folder with cases.csv and four safetensors files)
Needs NumPy. RECORDINGS are what torchao, Transformer Engine and gfloat give for the same inputs; a
case here is one that a format of ours is meant to reproduce. Of its decoded values, scales and codes
a digest is kept (first 16 digits of SHA-256), after what no system promises was made equal: see
canonical() in cases.py.
"""
import csv
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import cases  # noqa: E402  (it lies beside this file)

F32 = np.float32

# What is not reproduced, because it is a fault of the program at this place: codes 0 decoded as half
# (subnormal), inf that decodes to inf while the rest of its block becomes 0 (inf), log2 rounded to
# the next integer (maxima, pow2, huge), a limit of 1e-12 on maxima (tiny, subnormal, zero blocks),
# zeros that decode to other numbers (two-level, subnormal: 0 times an infinite factor).
FAULTS = {
    ("torchao-0.18.0", "FLOOR"): {"subnormal", "inf"},
    ("torchao-0.18.0", "CEIL"): {"subnormal", "inf"},
    ("torchao-0.18.0", "EVEN"): {"subnormal", "inf", "huge"},
    ("torchao-0.18.0", "RCEIL"): {"subnormal", "inf", "maxima"},
    ("torchao-0.18.0", "two-level"): {"subnormal"},
    ("gfloat", "float64"): {"inf"},
    ("gfloat", "float32"): {"inf", "pow2", "huge"},
    ("torchao-0.18.0", "eps 1e-12"): {"zeros", "allzero", "subnormal", "tiny", "w_zero"},
}


def our_format(case):
    """The format of ours that a case is of, as YAML; None where there is none."""
    system, fmt, options, block = (case[k] for k in ("system", "format", "options", "block"))
    if system == "microxcaling" or (system, fmt) == ("modelopt", "fp4_e2m1"):
        return None  # another rounding of elements
    if "fast" in options or case["error"].startswith("Unbound"):
        return None
    if block == "1x32" and fmt != "nvfp4":
        rule = options.lower() if options.isupper() else "floor"
        return f"{{element: {fmt}, rule: {rule}}}"
    n = int(block.split("x")[1])
    shape = f"[{n}, {n}]" if block in ("16x16", "128x128") else str(n)
    if fmt != "nvfp4":
        pow2 = ", power_of_two: true" if options == "pow2" else ""
        return f"{{element: {fmt}, block: {shape}, scale: fp32{pow2}}}"
    more = {"single-level": ", tensor_scale: false",
            "row_scaled": ", tensor_scale: row"}.get(options, "")
    if options == "two-level" or system == "modelopt":
        more = ", rule: " + ("modelopt" if system == "modelopt" else "torchao")
    if options.startswith("4over6"):
        _, error, top = options.split()
        more = f", rule: four_over_six, error: {error.lower()}, top: {top}"
    return f"{{element: fp4_e2m1, block: {shape}, scale: fp8_e4m3{more}}}"


def decoded(case, fmt, codes, repeated, amaxes):
    """The decoded values, by the rule of the system; `repeated`: the scale of each value; `amaxes`:
    the largest magnitude of each row, or None."""
    elements = cases.decode(fmt, codes)
    if case["options"] == "two-level" or case["system"] == "modelopt":
        return None  # recorded
    if case["format"] != "nvfp4" or case["options"] == "single-level":
        return (elements * repeated).astype(F32)
    top = int(case["options"].split()[2]) if case["options"].startswith("4over6") else 448
    amax = F32(case["global"]) if amaxes is None else amaxes.reshape(-1, 1)
    of_tensor = (repeated * amax).astype(F32)
    return (elements * (of_tensor * (F32(1) / F32(6 * top))).astype(F32)).astype(F32)


def recorded(case, store, fmt, kind):
    """Decoded values, stored scales as numbers, codes; None for what was not recorded."""
    scales = codes = values = None
    if case["codes"]:
        codes, raw = store[case["codes"]][1], store[case["scale"]][1]
        rows, columns = (int(x) for x in case["block"].split("x"))
        if case["block"] == "16x16":
            raw = raw[::16]  # recorded once for each row
        scales = raw if kind == "fp32" else cases.decode(kind, raw)
        height, width = codes.shape
        repeated = np.repeat(np.repeat(scales, rows, 0), columns, 1)[:height, :width]
        amaxes = store[case["global"]][1] if case["options"] == "row_scaled" else None
        values = decoded(case, fmt, codes, repeated, amaxes)
    if case["deq"]:
        of_program = store[case["deq"]][1]
        assert values is None or cases.same(values, of_program), case
        values = of_program
    return values, scales, codes


def row_of(case, files):
    """A row of our cases.csv, or None."""
    form = our_format(case)
    if form is None or case["input"] in FAULTS.get((case["system"], case["options"]), ()):
        return None
    nvfp4 = case["format"] == "nvfp4"
    mx = case["block"] == "1x32" and not nvfp4
    store, kind = (("mx", "e8m0") if mx else ("nvfp4", "fp8_e4m3") if nvfp4 else ("fp8block", "fp32"))
    fmt = "fp4_e2m1" if nvfp4 else case["format"]
    signless = nvfp4 and case["system"] == "torchao-36027d8"  # its codes keep the sign of zero
    digests = cases.digests(fmt, *recorded(case, files[store], fmt, kind), signless)
    rht = case["options"] == "rht"  # recorded of a tensor that is an input of its own here
    return [case["system"], case["options"], form, 0 if case["side"] == "col" and not rht else 1,
            "rht/" + case["input"] if rht else case["input"], int(signless), *digests]


def main():
    folder = pathlib.Path(sys.argv[1])
    files = {name: cases.load(folder / f"{name}.safetensors")
             for name in ("inputs", "mx", "nvfp4", "fp8block")}
    with open(folder / "cases.csv") as file:
        all_cases = list(csv.DictReader(line for line in file if not line.startswith("# ")))
    rows = [row for row in (row_of(case, files) for case in all_cases) if row]
    with open(HERE / "cases.csv", "w", newline="") as file:
        file.write("# torchao 0.18.0 and 36027d8, Transformer Engine d0067d0, gfloat 0.5.2,"
                   " modelopt 0.47.0; made by make.py\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("system options format axis input signless values scales codes".split())
        writer.writerows(rows)
    transformed = {"rht/" + name: files["nvfp4"][f"rht/{name}.TE"] for name in files["inputs"]
                   if f"rht/{name}.TE" in files["nvfp4"]}
    cases.save(HERE / "inputs.safetensors", {**files["inputs"], **transformed})
    print(f"{len(rows)} of {len(all_cases)} cases")


if __name__ == "__main__":
    main()
