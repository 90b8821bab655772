"""Measurements in turns, the programs that are measured, and how tools are called."""
import argparse
import pathlib
import subprocess
import sys


def note(text):
    print(text, file=sys.stderr, flush=True)


def parser_of(description):
    """Of a tool's options; `description`: its docstring, shown as it is."""
    return argparse.ArgumentParser(description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def end(text):
    """Ends this program, which is named first."""
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def words_of(*command, **how):
    """What a program prints; where it fails this one ends."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **how)
    if done.returncode != 0:
        end(f"{pathlib.Path(command[0]).name} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def in_turns(rounds, measures, told=None):
    """{key: the value of each round}. `measures`: {key: function}. Every round calls each of them
    once and starts with another one, so that a machine whose speed drifts treats all alike.
    `told`: key and value as words for the user, or None."""
    keys, found = list(measures), {key: [] for key in measures}
    for number in range(rounds):
        first = number % len(keys)
        for key in keys[first:] + keys[:first]:
            found[key].append(measures[key]())
            words = told and told(key, found[key][-1])
            if words:
                note(f"round {number + 1} of {rounds}: {words}")
    return found
