"""What to do after each run: what `ada-train advise` says, which decides."""
import json
import os
import shutil
import subprocess

from ada_train import program
from ada_train.report.names import escaped
from ada_train.report.page import Section

HOW = ("What each run's record asks for, at most five changes a run, as `ada-train advise` says them: "
       "YAML, its reason, and how sure. `ada-train advise RUN_DIR --yaml FILE` writes them, "
       "`ada-train train --with FILE` takes them.")
ABSENT = ("<p class=\"absent\">The program is not here: <code>tools/build.sh</code> makes it, "
          "and <code>ada-train advise RUN_DIR</code> tells.</p>")
MOST_RUNS = 12


def _program():
    """The program that run() would start, where it can be; None where there is none."""
    try:
        found = program.path()
    except FileNotFoundError:
        return None
    return found if os.access(found, os.X_OK) else shutil.which("ada-train")


def _advise(ada_train, folder):
    """The object of `advise --json` (configs/JSON.md) for one run; {} where the program cannot give
    it."""
    try:
        done = subprocess.run([ada_train, "advise", folder, "--json"], capture_output=True, text=True,
                              timeout=120, check=False)
        found = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read(runs):
    """What the program advises for the first runs, in their order; None without the program."""
    ada_train = _program()
    return ada_train and [_advise(ada_train, run.folder) for run in runs[:MOST_RUNS]]


def yaml_of(one):
    """A change as a line of YAML."""
    return f"{one['section']}: {{{', '.join(f'{key}: {value}' for key, value in one['keys'].items())}}}"


def _items(found):
    if not found:
        return "<li>the record does not tell</li>"
    if found["keep"]:
        return f"<li>{escaped(found['why'])}</li>"
    return "".join(f"<li><code>{escaped(yaml_of(one))}</code><br>{escaped(one['reason'])} "
                   f"(sure: {escaped(one['sure'])})</li>" for one in found["advice"])


def section(runs, all_found):
    """The section; `all_found`: what read() gave."""
    text = ABSENT if all_found is None else "".join(
        f"<p><b>{escaped(run.label)}</b></p><ul class=\"advice\">{_items(found)}</ul>"
        for run, found in zip(runs, all_found))
    return Section("advice", "What to do", HOW, extra=text)
