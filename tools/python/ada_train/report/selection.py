"""Of many runs those that are drawn layer by layer, and what the page says of the others: pictures
of every run would be higher than a PNG may be, and take more memory and time than a page is worth.
"""
import dataclasses

from ada_train.report import MOST, groups, layers, load
from ada_train.spread import evenly

BRIEF = ("steps", "evaluation", "classes", "underflow", "scales")  # read of the others


@dataclasses.dataclass
class Selection:
    runs: list   # all of them
    drawn: list  # what the pictures show: runs, those that differ in their seed alone as one
    rest: list   # of the same kind, with a part of their tables; [] where all are drawn

    @property
    def all(self):
        """Both, in the order in which the runs were named."""
        place = {id(run): i for i, run in enumerate(self.runs)}
        return sorted(self.drawn + self.rest, key=lambda run: place[id(run.each[0])])

    @property
    def looked_into(self):
        """The runs of which every table was read."""
        return [member for run in self.drawn for member in run.each] if self.rest else self.runs

    def note(self):
        """What the page says of it; "" where all are drawn."""
        if not self.rest:
            return ""
        of = "configurations" if any(len(run.each) > 1 for run in self.all) else "runs"
        return (f"Pictures by layer show {len(self.drawn)} of {len(self.all)} {of}, at even distances "
                "from the first to the last; the tables here and the section All runs have every "
                f"one. --draw N draws N of them (at most {MOST}); for others name their folders "
                "alone.")

    def short_note(self):
        return f" {len(self.drawn)} of {len(self.all)} are drawn." if self.rest else ""


def _shorten(run, tensor):
    """Leaves of a run that is not drawn the rows that tables and the pictures of all runs need."""
    table = run.tables["underflow"]
    of_tensor = layers.is_of(table, tensor)
    last = (table["step"] == table["step"].max()).to_numpy()
    run.tables["underflow"] = table[of_tensor | last].reset_index(drop=True)
    if of_tensor.any():  # it says the scales
        run.tables["scales"] = load.empty_table("scales")


def read(folders, seeds, tensor, most):
    """The runs in these folders, with labels."""
    runs = [load.read_head(folder) for folder in folders]
    load.label_runs(runs)
    groups.shorten_labels(runs)
    lists = groups.together(runs, seeds)
    labels = groups.label_groups(lists)
    chosen = set(evenly(len(lists), most))
    drawn, rest = [], []
    for i, (group, label) in enumerate(zip(lists, labels)):
        for run in group:
            load.read_tables(run, tuple(load.COLUMNS) if i in chosen else BRIEF)
            if i not in chosen:
                _shorten(run, tensor)
        if i in chosen:
            drawn.append(groups.as_one(group, label))
        elif len(group) == 1:
            rest.append(group[0])
        else:  # its members have the rows
            none = {name: load.empty_table(name) for name in load.COLUMNS}
            rest.append(load.Run("", label=label, config=group[0].config, summary={},
                                 tables=none, members=group))
    return Selection(runs, drawn, rest)


def of_drawn(runs, drawn):
    """A selection of runs that are all drawn."""
    return Selection(runs, drawn, [])
