"""The program ada-train, started from Python by run(): the wheel's own, that of the source tree
around this package, or one on the PATH."""
import os
import pathlib
import shutil
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent
WHEEL = PACKAGE / "program/bin/ada-train"  # where a wheel carries it


class RunFailed(RuntimeError):
    """The program ended with another exit code than 0: `code`, and in `words` what it said."""

    def __init__(self, code, words):
        super().__init__(f"ada-train ended with exit code {code}: {words.strip()}")
        self.code, self.words = code, words


def path():
    """The program's file: $ADA_TRAIN, else the wheel's, the one in the build folder of the source
    tree around this package, or one on the PATH. Raises FileNotFoundError where there is none."""
    named = os.environ.get("ADA_TRAIN")
    if named:
        return named
    candidates = [WHEEL, PACKAGE.parents[2] / "build/ada-train", shutil.which("ada-train")]
    for candidate in candidates:
        if candidate and pathlib.Path(candidate).is_file():
            return str(candidate)
    raise FileNotFoundError(
        "the program ada-train is in none of: " + ", ".join(str(c) for c in candidates if c)
        + "; put it on the PATH, or set ADA_TRAIN to its file")


def main():
    """The command `ada-train` of an installed wheel: becomes the program that the wheel carries.
    Its commands that are Python tools run in this environment."""
    os.environ.setdefault("ADA_PYTHON", sys.executable)
    try:
        os.execv(WHEEL, ["ada-train"] + sys.argv[1:])
    except OSError as error:
        sys.exit(f"ada-train: {WHEEL}: {error.strerror}; install the wheel anew")


def flattened(overrides, prefix=""):
    """("scaling.scale", 1024) of {"scaling": {"scale": 1024}} and of {"scaling.scale": 1024}."""
    for key, value in overrides.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _json(value):
    """JSON that is YAML too, in which no pair of escapes stands for one character."""
    import json
    return json.dumps(value, ensure_ascii=False)


def settings(overrides):
    """The overrides as words of `--set`; JSON is YAML."""
    pairs = [f"{key}={_json(value)}" for key, value in flattened(overrides)]
    return ["--set"] + pairs if pairs else []


def run(config, *, resume=False, overwrite=False, quiet=True, **overrides):
    """Trains as `ada-train --config CONFIG --set ...` does and returns the run as read() does.

    config: a file's path, the name of a shipped configuration, or a map that stands for a file.
    overrides: keys of the configuration, as maps or with dots:
        run("lenet_fashion.yaml", train={"epochs": 1}, **{"scaling.scale": 1024})
    resume, overwrite: as the options of the program. quiet: nothing is printed.
    Raises RunFailed where the program does not end with exit code 0.
    """
    from ada_train import read
    if isinstance(config, dict):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            name = config.get("name", "run")
            file = pathlib.Path(folder) / f"{name}.yaml"
            file.write_text(_json(config), encoding="utf-8")
            return run(str(file), resume=resume, overwrite=overwrite, quiet=quiet, **overrides)
    command = [path(), "train", "--config", str(config)] + settings(overrides)
    resolved = _said(command + ["--print-config"])
    import yaml
    # To YAML 1.1 a folder called 2026-11-28 would be a date.
    folder = yaml.load(resolved, Loader=yaml.BaseLoader)["output"]
    command += ["--resume"] * resume + ["--overwrite"] * overwrite
    if quiet:
        _said(command + ["--quiet"])
    else:
        code = subprocess.run(command).returncode
        if code:
            raise RunFailed(code, "see above")
    return read(folder)


def _said(command):
    """What the command printed; RunFailed with its errors where it failed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RunFailed(done.returncode, done.stderr)
    return done.stdout
