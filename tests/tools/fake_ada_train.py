#!/usr/bin/python3
"""Stands in for ada-train in sweep_test.py: the same options, folders and exit codes, no training.

The "configuration" is lines `key: value`. FAKE_CALLS: a file that gets a line per start. Keys:
mode=fail: exit 5; mode=wait: waits for a signal, writes a checkpoint and exits with 143, finishes
when resumed; mode=linger: goes on until its folder has a file `go`; mode=bad: refused. The results are worked out from `seed` and `lr`.
"""
import argparse
import csv
import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import sys
import time


def results(config):
    seed, lr = int(config.get("seed", 1)), float(config.get("lr", 0))
    layers = {
        "loss": {"dx": {"numel": 100, "zeros_before": 20, "underflow": 8,
                        "underflow_pct_nonzero_mean": 10.0}},
        "fc": {"dx": {"numel": 200, "zeros_before": 0, "underflow": 4 * seed,
                      "underflow_pct_nonzero_mean": 2.0 * seed},
               "dw": {"numel": 50, "zeros_before": 0, "underflow": 50,
                      "underflow_pct_nonzero_mean": 100.0}},
    }
    best = {"step": 2, "epoch": 1, "top1": 0.75, "loss": 0.5}
    test = {"step": 4, "loss": 1.0 + seed, "top1": 0.5 + lr, "top5": 1.0, "best": best}
    return {"status": "finished", "steps": 4, "skipped": seed, "last_scale": 128.0,
            **({"not_finite": {"since": 2, "layer": "fc", "tensor": "y"}} if lr == 9 else {}),
            "train": {"loss": None if lr == 9 else seed / 3, "accuracy": 0.25},
            "counted": {"of": ["dx", "dw"], "not": ["y"], "logged_steps": 2,
                        "coverage": "dx and dw, 2 of 4 steps; not counted: y (log.statistics)",
                        "lost_most": {"layer": "fc", "tensor": "dw", "pct_mean": 100.0,
                                      "pct_max": 100.0}},
            "evaluation": {"test": test}, "layers": layers, "images_per_second": 10.0,
            "seconds": 2.5}


def wait_for_signal(folder):
    """Ends with a checkpoint that tells how many signals came."""
    signals = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    (folder / "waiting").touch()
    while not signals:
        time.sleep(0.02)
    time.sleep(0.3)
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "step-00000002.json").write_text(json.dumps(len(signals)))
    sys.exit(128 + signals[0])


def expanded(path):
    """Of a folder: a leading ~ and ${VAR}."""
    path = re.sub(r"^~(?=/|$)", os.environ["HOME"], path)
    return re.sub(r"\$\{(.*?)\}", lambda found: os.environ[found.group(1)], path)


def locked(folder):
    """A lock as src/io/file_lock.cpp takes it; it dies with the process."""
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        sys.exit(f"ada-train: output folder {folder}: another process writes into it")


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("--config", "--output", "--name", "--threads"):
        parser.add_argument(option)
    for option in ("--resume", "--no-progress", "--print-config"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--set", nargs="+", action="extend", default=[])
    options = parser.parse_args()
    lines = pathlib.Path(options.config).read_text().splitlines()
    config = dict(line.split(": ", 1) for line in lines)
    config.update(item.split("=", 1) for item in options.set)
    config.update(output=options.output or "runs/x", name=options.name or "x")
    text = "".join(f"{key}: {value}\n" for key, value in config.items())
    if config.get("mode") == "bad":
        sys.exit("ada-train: mode: expected good, got 'bad'")
    if options.print_config:
        sys.stdout.buffer.write(os.fsencode(text))
        return
    with open(os.environ["FAKE_CALLS"], "a", encoding="utf-8") as calls:
        calls.write(json.dumps({"name": options.name, "resume": options.resume,
                                "threads": options.threads, "set": options.set}) + "\n")
    folder = pathlib.Path(expanded(options.output))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"ada-train: output folder {folder}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    locked(folder)
    (folder / "config.yaml").write_bytes(os.fsencode(text))
    if config.get("mode") == "fail":
        print("some progress\nada-train: stopped: out of luck", file=sys.stderr)
        sys.exit(5)
    if config.get("mode") == "wait" and not (folder / "checkpoints").exists():
        wait_for_signal(folder)
    while config.get("mode") == "linger" and not (folder / "go").exists():
        (folder / "waiting").touch()
        time.sleep(0.02)
    with open(folder / "evaluation.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["step", "epoch", "split", "images", "loss", "top1", "top5"],
                                    [2, 1, "test", 10, 0.5, 0.75, 0.875],
                                    [4, 2, "test", 10, 1, 0.5, 1]])
    (folder / "summary.json").write_text(json.dumps(results(config)))


if __name__ == "__main__":
    main()
