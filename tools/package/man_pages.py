#!/usr/bin/env python3
"""Man pages of ada-train from its own help texts, so that nothing is written twice.

usage: man_pages.py PROGRAM FOLDER

Writes FOLDER/ada-train.1 and a page for each command, FOLDER/ada-train-COMMAND.1.
"""
import pathlib
import re
import subprocess
import sys


def help_of(program, *words):
    return subprocess.run([program, "help", *words], check=True, capture_output=True,
                          text=True).stdout


def escaped(text):
    """`text` as roff prints it unchanged."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def page(name, version, text):
    """One page: what stands before `Usage:` as its name, the rest as it stands."""
    what, _, rest = text.partition("\nUsage: ")
    usage, _, body = rest.partition("\n")
    what = " ".join(what.split()).rstrip(".")
    usage = re.sub(r"^\S*ada-train", "ada-train", usage)
    return (f'.TH "{name.upper()}" "1" "" "ada-train {version}" "User Commands"\n'
            f".SH NAME\n{escaped(name)} \\- {escaped(what)}\n"
            f".SH SYNOPSIS\n.nf\n{escaped(usage)}\n.fi\n"
            f".SH DESCRIPTION\n.nf\n{escaped(body.strip())}\n.fi\n"
            ".SH SEE ALSO\n/usr/share/doc/ada\\-train/README.md\n")


def commands_of(text):
    """The words of the groups of commands in the program's help, which follow its options."""
    groups = text.partition("\nOptions:\n")[2].partition("\n\n")[2].partition("\n`ada-train")[0]
    return re.findall(r"^  ([a-z][a-z-]*) ", groups, re.MULTILINE)


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    lines = subprocess.run([program, "--version"], check=True, capture_output=True,
                           text=True).stdout
    version = re.search(r"[0-9]+(\.[0-9]+)+", lines).group(0)
    text = help_of(program)
    commands = commands_of(text)
    if not commands:
        sys.exit(f"man_pages.py: the help of {program} lists no commands")
    (folder / "ada-train.1").write_text(page("ada-train", version, text))
    for command in commands:
        name = f"ada-train-{command}"
        (folder / f"{name}.1").write_text(page(name, version, help_of(program, command)))


if __name__ == "__main__":
    main()
