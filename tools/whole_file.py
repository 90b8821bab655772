"""Files that appear whole or not at all, and places where none may appear."""
import os

OF_RUN = ("config.yaml", "summary.json", "log.txt", "blame.json", ".lock", "steps.csv", "scales.csv",
          "underflow.csv", "histograms.csv", "events.csv", "evaluation.csv", "timing.csv", "classes.csv",
          "confusion.csv", "losses.csv", "probes.csv", "blocks.csv", "accumulators.csv", "what_if.csv",
          "what_if_blocks.csv", "what_if_accumulators.csv")


def is_run(folder):
    return all(os.path.isfile(os.path.join(folder, name)) for name in ("steps.csv", "config.yaml"))


def keeper(path):
    """The folder of the run that keeps `path` for itself: one of its files, or something in its
    checkpoints, dumps and event files; None where none does. As RunThatKeeps of src/telemetry."""
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)  # what is at the place itself is replaced, a link as well
    if name in OF_RUN and is_run(folder):
        return folder
    at = os.path.join(folder, name)
    while at != "/":
        above, name = os.path.split(at)
        if name in ("checkpoints", "dump", "tensorboard") and is_run(above):
            return above
        at = above
    return None


def refusal(path, reads=()):
    """Why nothing may be written to `path`, in words; None where it may. reads: files that are read."""
    for name in reads:
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            return f"{path}: is what is read ({name}); expected another place"
    run = keeper(path)
    return run and (f"{path}: belongs to the run in {run}, which alone writes there; expected another "
                    "place")


def replace(path, write):
    """`write(temporary)` writes a file beside `path`, which then takes its name; OSError where it cannot."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        try:
            write(temporary)
        except OSError:
            raise
        except Exception as error:  # safetensors and torch have errors of their own for a full disk
            raise OSError(f"cannot be written: {error}") from error
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # safetensors would keep it to the user alone
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
