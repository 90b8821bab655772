"""A run as Python sees it: a frame for each CSV file, read when it is first asked for, the summary
and the configuration."""
import contextlib
import os
import warnings

from ada_train import run_files, tables
from ada_train.columns import TABLES
from ada_train.report import load
from ada_train.report.load import Unreadable

__all__ = ["Run", "Unreadable"]


def _typed(node):
    """The value of a node of YAML, with the types that ada-train writes; what is quoted is text."""
    if isinstance(node.value, list) and node.id == "mapping":
        return {str(key.value): _typed(value) for key, value in node.value}
    if isinstance(node.value, list):
        return [_typed(inner) for inner in node.value]
    if node.style is not None:
        return node.value
    if node.value in ("true", "false"):
        return node.value == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(node.value)
    return node.value


class Run:
    """run.steps, .scales, .underflow, .histograms, .what_if, .probes, .events, .evaluation and
    .timing are frames with every column of the file: whole numbers int64, flags bool, scales and
    numbers float64 (an empty field and the word nan are NaN, inf is inf), text str. A file that the
    run does not have gives a frame without rows. What had to be left out of a damaged file is
    warned of, and stands in run.notes. reload() forgets what was read, of a run that goes on."""

    def __init__(self, folder):
        self.folder = os.path.normpath(os.fspath(folder))
        load.check_folder(self.folder)
        self.notes = []
        self.reload()

    def reload(self):
        self._tables, self._drawn = {}, None
        self.notes.clear()
        self.summary, problem = run_files.read_summary(self.folder)
        if problem:
            self._note([problem])
        return self

    def _note(self, notes):
        self.notes += notes
        for note in notes:
            warnings.warn(f"{self.folder}: {note}", stacklevel=4)

    def __getattr__(self, name):
        if name not in TABLES:
            raise AttributeError(f"a run has no '{name}'; its tables are {', '.join(TABLES)}")
        if name not in self._tables:
            notes = []
            self._tables[name] = tables.typed(self.folder, name, notes)
            self._note(notes)
        return self._tables[name]

    def __dir__(self):
        return [*super().__dir__(), *TABLES]

    def __repr__(self):
        return f"<ada_train run {self.name!r} in {self.folder!r}: {self.status}>"

    @property
    def config(self):
        """config.yaml as maps and lists; needs PyYAML. {} where there is none."""
        import yaml
        path = os.path.join(self.folder, "config.yaml")
        if not os.path.isfile(path):
            return {}
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        try:
            load.refuse_aliases(text)
            root = yaml.compose(text, yaml.BaseLoader)
            return _typed(root) if root is not None and root.id == "mapping" else {}
        except (yaml.YAMLError, RecursionError) as error:
            note = "config.yaml cannot be read: " + " ".join(str(error).split())
            if note not in self.notes:
                self._note([note])
            return {}

    @property
    def name(self):
        return run_files.text(self.summary, "name") or os.path.basename(self.folder)

    @property
    def status(self):
        """finished, stopped, interrupted; unfinished where there is no summary (yet)."""
        return run_files.text(self.summary, "status") or "unfinished"

    def drawn(self):
        """The run as the report's pictures take it."""
        if self._drawn is None:
            self._drawn = load.read_run(self.folder)
        return self._drawn
