#!/usr/bin/python3
"""What is to be done with each run of a sweep: a finished run is skipped, but only if it is the run
that the sweep now asks for.

usage: check.py PROGRAM OUT [NAME]    PROGRAM: ada-train. A line per run (or for NAME alone):
  go       NAME            to be started or resumed
  finished NAME            nothing to do
  refused  NAME  REASON    its folder holds a run of another configuration
Fields are parted by tabs.
"""
import pathlib
import re
import subprocess
import sys

import plan as plans

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from ada_train import run_files  # noqa: E402

# Keys that say where and on what a run runs, and not what it computes or records.
FREE = re.compile(r"(name|output|device(\..*)?|data\.path)$")
SHOWN = 3  # differences


def flatten(text):
    """key.key -> value of the block YAML that --print-config writes; list entries are numbered."""
    values, path, counts = {}, [], {}
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        above = ".".join(key for _, key in path)
        if entry.startswith("- "):
            counts[above] = counts.get(above, 0) + 1
            values[f"{above}[{counts[above]}]"] = entry[2:].strip()
            continue
        key, _, value = entry.partition(":")
        path.append((indent, key))
        if value.strip():
            values[f"{above}.{key}".lstrip(".")] = value.strip()
    return values


def resolved(program, options):
    """The complete configuration of these options, flattened; None where it is refused."""
    result = subprocess.run([program, *options, "--print-config"], capture_output=True, text=True,
                            errors="replace", check=False)
    return flatten(result.stdout) if result.returncode == 0 else None


def differences(made, wanted):
    """Lines "key: value there, value here"."""
    return [f"{key} is {made.get(key, 'not set')} there, {wanted.get(key, 'not set')} here"
            for key in {**made, **wanted}
            if made.get(key) != wanted.get(key) and not FREE.match(key)]


def is_finished(folder):
    try:
        summary, _ = run_files.read_summary(folder)
    except OSError:
        return False
    return run_files.text(summary, "status") == "finished"


def decide(program, folder, options):
    """(what to do, why) with one run."""
    stored, finished = folder / "config.yaml", is_finished(folder)
    # Without a checkpoint ada-train starts afresh: nothing of another configuration would stay.
    if not stored.exists() or not (finished or any(folder.glob("checkpoints/*.json"))):
        return "go", ""
    wanted = resolved(program, options)
    if wanted is None:
        return "go", ""  # the run will tell what is wrong
    # Read anew, so that keys which are younger than the run have their defaults.
    made = resolved(program, ["--config", str(stored)])
    if made is None:
        made = flatten(stored.read_text(encoding="utf-8", errors="replace"))
    other = differences(made, wanted)
    if other:
        more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        return "refused", f"made with another configuration: {'; '.join(other[:SHOWN])}{more}"
    return ("finished" if finished else "go"), ""


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    program, out, *name = sys.argv[1:]
    plan = plans.load(out)
    for run in [plans.find(plan, name[0])] if name else plan["runs"]:
        try:
            what, why = decide(program, pathlib.Path(out, run["name"]), run["options"])
        except OSError:  # its folder is none, or cannot be read
            what, why = "go", ""  # the run will tell what is wrong
        print(what, run["name"], run_files.visible(why), sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
