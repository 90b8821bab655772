"""What to do after each run: what `ada-train advise` says, at the top of the page."""
import os
import shutil
import subprocess

from ada_train import program
from ada_train.report.names import escaped
from ada_train.report.page import Section

HOW = ("What each run's record asks for, at most five changes a run, as `ada-train advise` says them: "
       "YAML, its reason, and how sure. `ada-train advise RUN_DIR --yaml FILE` writes them, "
       "`ada-train train --with FILE` takes them.")
MOST_RUNS = 12


def _program():
    """The program that run() would start, where it can be; None where there is none."""
    try:
        found = program.path()
    except FileNotFoundError:
        return None
    return found if os.access(found, os.X_OK) else shutil.which("ada-train")


def _lines(ada_train, folder):
    """The advice for one run; None where the program cannot give it."""
    try:
        done = subprocess.run([ada_train, "advise", folder], capture_output=True, text=True,
                              timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def _item(line):
    yaml, _, reason = line.partition("  # ")
    if not reason:
        return f"<li>{escaped(line.removeprefix('# '))}</li>"
    return f"<li><code>{escaped(yaml)}</code><br>{escaped(reason)}</li>"


def section(runs):
    """The section, of the first runs."""
    ada_train = _program()
    if ada_train is None:
        text = ("<p class=\"absent\">The program is not here: <code>tools/build.sh</code> makes it, "
                "and <code>ada-train advise RUN_DIR</code> tells.</p>")
        return Section("advice", "What to do", HOW, extra=text)
    text = ""
    for run in runs[:MOST_RUNS]:
        lines = _lines(ada_train, run.folder)
        items = "<li>the record does not tell</li>" if lines is None else "".join(
            map(_item, lines))
        text += f"<p><b>{escaped(run.label)}</b></p><ul class=\"advice\">{items}</ul>"
    return Section("advice", "What to do", HOW, extra=text)
