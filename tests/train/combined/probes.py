"""probes.csv of a run's first step beside another run of it in fp32, whose tensors its dump holds."""

import math

import numpy as np

from runs import Run


def differs(run, program):
    """What differs in the rows of step 1."""
    config = run.config
    if not config["log"].get("probe_every") or "masters" in config["precision"]:  # whose weights are others
        return []
    plain = {k: v for k, v in config.items() if k not in ("precision", "scaling", "optimizer", "schedule")}
    log = {k: v for k, v in config["log"].items() if k in ("every", "dump_every", "statistics")}
    plain.update(train={**config["train"], "max_steps": 1}, optimizer={"kind": "sgd", "lr": 1}, log=log)
    beside = Run.__new__(Run)
    beside.folder, beside.config = run.folder, plain
    if beside.start(program, "fp32", config=plain) != 0:
        return [f"in fp32 exit code {beside.code}: {beside.said[-300:]}"]
    ours, theirs, words = run.dump(1), beside.dump(1, "fp32"), run.formats(1)
    found = []
    for row in run.csv("probes.csv"):
        name = f"{row['layer']}.{row['tensor']}"
        if row["step"] != "1" or name not in ours or name not in theirs:
            continue
        ran, fp32 = ours[name].ravel() / float(words[f"scale:{name}"]), theirs[name].ravel()
        if not (np.isfinite(ran).all() and np.isfinite(fp32).all()):
            continue
        lost, noise = int(np.sum((fp32 != 0) & (ran == 0))), float(np.mean((ran - fp32) ** 2))
        want = {"numel": fp32.size, "nonzero": int(np.count_nonzero(fp32)), "lost": lost, "mse": noise}
        signal, size = float(np.mean(fp32**2)), float(np.mean(ran**2))
        if noise and signal:
            want["sqnr_db"] = 10 * math.log10(signal / noise)
            if row["norm_over_noise"]:
                want["norm_over_noise"] = math.sqrt(signal / noise)
        if signal and size:
            want["cosine"] = float(np.mean(ran * fp32)) / math.sqrt(signal * size)
        for column, value in want.items():
            near = {"sqnr_db": 1e-4 * abs(value) + 1e-12, "cosine": 1e-5 * abs(value) + 1e-12}
            if abs(float(row[column]) - value) > near.get(column, 1e-5 * abs(value)):
                found.append(f"probes.csv {name} {column}: written {row[column]}, expected {value}")
    return found
