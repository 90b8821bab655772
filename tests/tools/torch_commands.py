"""Runs tools/from_torch.py and its like many times in one process of a Python that has torch, which
takes seconds to import."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = os.environ.get("ADA_BENCH_PYTHON", sys.executable)
DRIVER = """
import contextlib, importlib, io, json, sys, traceback
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
done = []
for name, *words in json.loads(sys.stdin.read()):
    sys.argv, out, err, code = [name + ".py", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            importlib.import_module(name).main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = -1
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""


def has(*modules):
    try:
        return subprocess.run([TORCH, "-c", "import " + ", ".join(modules)], check=False,
                              capture_output=True).returncode == 0
    except OSError:
        return False


def run_all(commands, folder):
    """(exit status, stdout, stderr) of each command, [name of the tool, argument ...]."""
    done = subprocess.run([TORCH, "-c", DRIVER, str(ROOT / "tools")], cwd=folder, text=True,
                          input=json.dumps(commands), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def from_torch(names, folder, size="3x8x8", module="nets"):
    """Converts each of `names`, "NAME --more words", into the folder NAME."""
    commands = []
    for words in names:
        name, *more = words.split()
        commands.append(["from_torch", f"{module}:{name}", "--input", size, "--output", name,
                         *more])
    return dict(zip(names, run_all(commands, folder)))
