"""What runs of ada-train left behind, for Python: read(folder) gives typed pandas frames, pictures
has the report's pictures as functions, torch records one's own PyTorch training in the same files.

Importing this package imports no other: pandas, matplotlib and torch are wanted by what uses them.
"""
__version__ = "0.1.0"
__all__ = ["read", "run", "formats", "pictures", "torch"]


def read(folder):
    """The run in `folder` as ada_train.runs.Run; needs pandas. Raises ada_train.runs.Unreadable
    where the folder holds no run."""
    from ada_train.runs import Run
    return Run(folder)


def run(config, **overrides):
    """Trains as the program does and returns the run's frames: ada_train.program.run."""
    from ada_train import program
    return program.run(config, **overrides)


def __getattr__(name):
    """ada_train.pictures and the other parts, imported when they are asked for."""
    if name in ("formats", "pictures", "program", "torch", "runs"):
        import importlib
        return importlib.import_module("ada_train." + name)
    raise AttributeError(f"module 'ada_train' has no attribute {name!r}")
