#!/usr/bin/python3
"""Deals CTest's tests out to shares of about the same length, by the costs that they are given.

usage: ctest --show-only=json-v1 | tools/test_share.py WHICH OF     WHICH: 1 to OF
Prints a regular expression for `ctest -R` that the names of one share match.
"""
import json
import re
import sys


def dealt(costs, shares):
    """costs: by name. Lists of names, the longest test first and each into the emptiest list."""
    lists, filled = [[] for _ in range(shares)], [0] * shares
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        least = filled.index(min(filled))
        lists[least].append(name)
        filled[least] += costs[name]
    return lists


def main():
    which, shares = int(sys.argv[1]), int(sys.argv[2])
    costs = {}
    for test in json.load(sys.stdin)["tests"]:
        given = {one["name"]: one["value"] for one in test.get("properties", [])}
        costs[test["name"]] = float(given.get("COST", 1))
    print("^(" + "|".join(map(re.escape, dealt(costs, shares)[which - 1])) + ")$")


if __name__ == "__main__":
    main()
