#!/usr/bin/python3
"""The list of runs of a sweep, made of configurations and values, and kept in OUT/sweep.json.

usage: plan.py make [--config FILE...] [--vary KEY=V1,V2...] [--set KEY=VALUE...]   JSON on stdout
       plan.py names OUT             the runs' names, one a line
       plan.py options OUT NAME      ada-train's options of one run, each ended by a NUL
Started by tools/sweep.sh, which explains the options. Exit 2: the message says what is wrong.
"""
import argparse
import hashlib
import itertools
import json
import os
import pathlib
import re
import sys

FILE = "sweep.json"
CONFIG = "config"  # the dimension of several configurations, as a column
LONGEST_PART, LONGEST_NAME = 60, 200  # letters


class PlanError(Exception):
    """The options do not make a sweep."""


def split_values(text):
    """'a, {x: 1, y: 2}, "b,c"' -> ['a', '{x: 1, y: 2}', '"b,c"']: commas part values, except inside
    {...}, [...] and quotes. Raises PlanError where a bracket or a quote stays open."""
    values, value, brackets, quote, before = [], "", [], "", ","
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not before.isalnum():  # not the apostrophe of a word
            quote = letter
        elif letter in "{[":
            brackets.append("}" if letter == "{" else "]")
        elif letter in "}]":
            if not brackets or brackets.pop() != letter:
                raise PlanError(f"'{text}': '{letter}' closes nothing")
        elif letter == "," and not brackets:
            values.append(value.strip())
            value, before = "", letter
            continue
        value, before = value + letter, letter
    if quote or brackets:
        raise PlanError(f"'{text}': {quote or brackets[-1]} is missing at the end")
    return values + [value.strip()]


def key_and_value(option, text):
    """'KEY=VALUE' in two."""
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", key):
        raise PlanError(f"{option} {text}: expected KEY=VALUE, for example {option} seed=1")
    if key in ("output", "name"):
        raise PlanError(f"{option} {text}: the sweep itself sets `{key}` of every run")
    return key, value


def dimension(words):
    """(key, values) of words that give the values of one key."""
    if not words:
        raise PlanError("--vary: `with` stands between keys: KEY=V1,V2 with KEY=V1,V2")
    pairs = [key_and_value("--vary", word) for word in words]
    key = pairs[0][0]
    other = next((name for name, _ in pairs if name != key), None)
    if other:
        raise PlanError(f"--vary {key} and {other} in one: each key has a --vary of its own, or "
                        "`with` between them, where their values go together")
    values = [value for _, text in pairs for value in split_values(text)]
    if "" in values:
        raise PlanError(f"--vary {key}: an empty value between commas")
    return key, values


def dimensions(words):
    """[(key, values)] of the words after one --vary: of several keys, with `with` between them, the
    first values go together, then the second ones, and so on."""
    groups = [[]]
    for word in words:
        if word == "with":
            groups.append([])
        else:
            groups[-1].append(word)
    found = [dimension(group) for group in groups]
    first, values = found[0]
    for key, others in found[1:]:
        if len(others) != len(values):
            raise PlanError(f"--vary {first} with {key}: {len(values)} and {len(others)} values; "
                            "expected as many of each")
    rows = list(zip(*(values for _, values in found)))
    twice = next((row for row in rows if rows.count(row) > 1), None)
    if twice is not None:
        keys = " with ".join(key for key, _ in found)
        raise PlanError(f"--vary {keys}: '{' with '.join(twice)}' is given twice")
    return found


def digest(text):
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]


def cut(text, longest, whole):
    """`text`, or its beginning and a hash of `whole`."""
    return text if len(text) <= longest else f"{text[:longest - 9]}-{digest(whole)}"


def clean(value):
    """What of a value may stand in a folder's name: {policy: fixed, scale: 8} is
    policy-fixed-scale-8."""
    value = re.sub(r"^[^\w.+-]+|[^\w.+-]+$", "", value, flags=re.ASCII)
    return re.sub(r"[^\w.+-]+", "-", value, flags=re.ASCII)


def parts_of(key, label, values):
    """value -> its part of a run's name; a hash keeps apart what would read the same."""
    shown = [clean(value) for value in values]
    if not label:  # it begins the name: no option, no hidden folder, no `..`
        shown = [text.lstrip("-.") for text in shown]
    parts = {}
    for value, text in zip(values, shown):
        if not text or shown.count(text) > 1:
            text = f"{text}-{digest(f'{key}={value}')}".lstrip("-")
        text = f"{label}={text}" if label else text
        parts[value] = cut(text, LONGEST_PART, f"{key}={value}")
    return parts


def labels(keys):
    """key -> the last word of it where that is enough to tell it from the others."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: word if last.count(word) == 1 else key for key, word in zip(keys, last)}


def config_labels(files):
    """file -> its name without folder and ending where that is enough, else the whole path."""
    stems = [pathlib.PurePath(file).stem for file in files]
    return {file: stem if stems.count(stem) == 1 else file for file, stem in zip(files, stems)}


def make_plan(files, steps):
    """The plan of `steps`: ("set", [words]) and ("vary", [words]) in the order of the command
    line, which is also the order in which ada-train gets them."""
    if not files:
        raise PlanError("--config FILE is missing")
    if len(set(files)) < len(files):
        raise PlanError("a --config is given twice")
    parsed = [("vary", dimensions(words)) if kind == "vary" else
              ("set", [key_and_value("--set", word) for word in words]) for kind, words in steps]
    varied = dict(pair for kind, pairs in parsed if kind == "vary" for pair in pairs)
    seen = [key for kind, pairs in parsed if kind == "vary" for key, _ in pairs]
    fixed = [key for kind, pairs in parsed if kind == "set" for key, _ in pairs]
    for key in seen:
        if seen.count(key) > 1:
            raise PlanError(f"--vary {key} stands twice: give all its values to one --vary")
        if key in fixed:
            raise PlanError(f"{key} is both varied and set: leave one of the two")
    stems, names = config_labels(files), labels(list(varied))
    parts = {key: parts_of(key, names[key], list(dict.fromkeys(values)))
             for key, values in varied.items()}
    config_parts = parts_of(CONFIG, "", list(stems.values()))
    runs = []
    groups = [pairs for kind, pairs in parsed if kind == "vary"]
    rows = [list(zip(*(values for _, values in pairs))) for pairs in groups]
    for file, *picked in itertools.product(files, *rows):
        chosen = {key: value for pairs, row in zip(groups, picked)
                  for (key, _), value in zip(pairs, row)}
        name = [config_parts[stems[file]]] if len(files) > 1 or not varied else []
        name += [parts[key][value] for key, value in chosen.items()]
        options = ["--config", file]
        for kind, pairs in parsed:
            for key, value in pairs:
                options += ["--set", f"{key}={chosen[key] if kind == 'vary' else value}"]
        name = "__".join(name)
        config = {CONFIG: stems[file]} if len(files) > 1 else {}
        runs.append({"name": cut(name, LONGEST_NAME, name), "options": options,
                     "values": {**config, **chosen}})
    return {"keys": ([CONFIG] if len(files) > 1 else []) + list(varied), "runs": runs}


def is_plan(plan):
    """Whether what a JSON file holds is what make_plan returns."""
    def texts(values):
        return isinstance(values, list) and all(isinstance(value, str) for value in values)

    def is_run(run):
        return (isinstance(run, dict) and texts(run.get("options")) and run["options"]
                and isinstance(run.get("name"), str) and re.fullmatch(r"[\w.+=-]+", run["name"])
                and isinstance(run.get("values"), dict) and texts(list(run["values"].values())))
    return (isinstance(plan, dict) and texts(plan.get("keys"))
            and isinstance(plan.get("runs"), list) and all(map(is_run, plan["runs"])))


def load(out):
    """The plan in the folder `out`; exits with 2 where there is none."""
    path = pathlib.Path(out, FILE)
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        if not is_plan(plan):
            raise ValueError("it lists no runs with names, options and values")
        return plan
    except (OSError, ValueError, RecursionError) as error:
        print(f"sweep.sh: {path} cannot be read ({error}); is {out} the folder of a sweep?",
              file=sys.stderr)
        sys.exit(2)


def find(plan, name):
    """The run of that name; exits with 2 where there is none."""
    run = next((run for run in plan["runs"] if run["name"] == name), None)
    if run is None:
        print(f"sweep.sh: this sweep has no run {name} (any more)", file=sys.stderr)
        sys.exit(2)
    return run


class InOrder(argparse.Action):
    """Collects --set and --vary in one list."""

    def __call__(self, parser, namespace, values, option_string=None):
        namespace.steps.append((option_string.lstrip("-"), values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", allow_abbrev=False)
    make.add_argument("--config", nargs="+", action="extend", default=[])
    make.add_argument("--set", nargs="+", action=InOrder)
    make.add_argument("--vary", nargs="+", action=InOrder)
    make.set_defaults(steps=[])
    commands.add_parser("names").add_argument("out")
    options = commands.add_parser("options")
    options.add_argument("out")
    options.add_argument("name")
    chosen = parser.parse_args()
    if chosen.command == "names":
        print(*(run["name"] for run in load(chosen.out)["runs"]), sep="\n")
    elif chosen.command == "options":
        for option in find(load(chosen.out), chosen.name)["options"]:
            sys.stdout.buffer.write(os.fsencode(option) + b"\0")  # no name need be UTF-8
    else:
        try:
            plan = make_plan(chosen.config, chosen.steps)
        except PlanError as error:
            print(f"sweep.sh: {error}", file=sys.stderr)
            return 2
        json.dump(plan, sys.stdout, indent=1)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
