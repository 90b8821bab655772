#!/usr/bin/python3
"""Says where `precision.format` is varied and yet no gradient's format changes: the file, or a
--set, gives gradients a format of their own, which comes before it.

usage: effect.py PROGRAM OUT    PROGRAM: ada-train. A line for each configuration file, or none
"""
import re
import sys

import check
import plan as plans

KEY = "precision.format"
GRADIENTS = "precision.gradients"
# An entry of precision.layers for all layers; what it says of gradients stands before the rest.
EVERY_LAYER = re.compile(r"^\{match: [\"']?\*[\"']?[,}]")
SETS_GRADIENTS = re.compile(r"[{ ](?:gradients|format): ([^,{}]+|\{[^{}]*\})")


def gradients(config):
    """(what gives the gradients of a run their format, that format); (None, None) where it is
    precision.format."""
    for key in reversed([key for key in config if key.startswith("precision.layers[")]):
        found = SETS_GRADIENTS.search(config[key])
        if found and EVERY_LAYER.match(config[key]):
            return "precision.layers", found.group(1)
    return (GRADIENTS, config[GRADIENTS]) if GRADIENTS in config else (None, None)


def source(options, key):
    """The last word on `key`: --set, or the configuration file."""
    if any(option.partition("=")[0] == key for option in options):
        return "--set"
    return options[options.index("--config") + 1]


def without_effect(program, plan):
    """Lines for people."""
    groups = {}  # by what gives the key (a file, --set), and by what else varies
    if KEY not in plan["keys"] or GRADIENTS in plan["keys"]:
        return
    for run in plan["runs"]:
        config = check.resolved(program, run["options"])
        if config is None:
            continue  # the run will tell what is wrong
        found = gradients(config)
        rest = tuple(value for key, value in run["values"].items() if key != KEY)
        groups.setdefault(source(run["options"], found[0]), {}).setdefault(rest, []).append(found)
    for place, runs in groups.items():
        if all(len(found) > 1 and len(set(found)) == 1 and found[0][0] for found in runs.values()):
            key, value = next(iter(runs.values()))[0]
            yield (f"{KEY} has no effect on gradients: {place} sets {key} for them, {value}; "
                   f"vary {GRADIENTS}, or take {key} out")


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    for line in without_effect(sys.argv[1], plans.load(sys.argv[2])):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
