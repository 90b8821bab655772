#!/usr/bin/python3
"""approx_weight_moments.csv from recorded calls: the tensors are replaced by their moments, taken here in float64.

    python3 make_moments.py ADAPTIVE > approx_weight_moments.csv      (numpy; ADAPTIVE holds pipeline.csv and *.safetensors)
    python3 make_moments.py ADAPTIVE branches > rescaling_moments.csv  (largest |g| / S over the branches of rescaling.csv)

Kept: every call of a layer with a weight under approx_range (lognormal is ignored there) and every `fixed` one. use_bound 0
is written as infinite bounds."""
import csv
import json
import sys

import numpy as np

np.seterr(all="ignore")
folder = sys.argv[1]
KINDS = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def load(name):
    raw = open(f"{folder}/{name}.safetensors", "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head, body = json.loads(raw[8 : 8 + n]), raw[8 + n :]
    return {k: np.frombuffer(body[slice(*v["data_offsets"])], KINDS[v["dtype"]])
            for k, v in head.items() if k != "__metadata__"}


def table(name):
    lines = open(f"{folder}/{name}.csv").read().splitlines()
    return [x for x in lines if x.startswith("# ")], list(csv.DictReader(x for x in lines if not x.startswith("# ")))


def moments(x):
    if x is None:
        return [0.0] * 4
    d = x.astype(np.float64)
    return [float(v) for v in (d.mean(), (d * d).mean(), d.min(), d.max())]


def pipeline():
    notes, rows = table("pipeline")
    print("\n".join(notes + ["# moments: make_moments.py"]))
    copied = "case call updating method u_min u_max n_uf SB AB power_of_two update_interval fixed fan S_prev".split()
    recorded = "derived_limit unbound bound pow2 alpha S_out".split()
    names = [f"{t}_{m}" for t in ("dy", "w") for m in ("mean", "mean_square", "min", "max")]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(copied + names + recorded + ["error"])
    store = {}
    for r in rows:
        if not (r["method"] == "fixed" or r["method"].startswith("approx_range") and r["kind"] != "cast"):
            continue
        t = store.setdefault(r["group"], load(r["group"]))
        r["method"] = r["method"].split("+")[0]
        if r["use_bound"] == "0":
            r["SB"] = r["AB"] = "inf"
        stats = moments(t[r["dy"]]) + moments(t[r["w"]] if r["w"] else None)
        out.writerow([r[c] for c in copied] + [repr(v) for v in stats] + [r[c] for c in recorded] + [int(bool(r["error"]))])


def branches():
    notes, rows = table("rescaling")
    t = load("rescaling")
    print("\n".join(notes + ["# largest: max over the branches of max|g| / S, make_moments.py"]))
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow("case scales largest target note".split())
    for r in rows:
        if r["method"] != "approx_range":
            continue
        scales = [float(x) for x in r["scales"].split()]
        largest = max(float(np.abs(t[f"{r['case']}.g{i}"].astype(np.float64)).max()) / s for i, s in enumerate(scales))
        if any(np.isnan(t[f"{r['case']}.g{i}"]).any() for i in range(len(scales))):
            largest = float("nan")
        out.writerow([r["case"], r["scales"], repr(largest), r["target"], r["note"]])


branches() if sys.argv[2:] == ["branches"] else pipeline()
