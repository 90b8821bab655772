"""CSV files of a run as pandas frames: whole lines alone, fields by the types of columns.py. A file
that is torn at its end (the run was killed, or is writing) is read up to its last whole row."""
import csv
import io
import os

import pandas

from ada_train.columns import TABLES
from ada_train.run_files import BadFile, WholeLines, whole_size


# pandas 3 makes numbers of categories that look like some ("01"); it is given text first.
_GUESSES = int(pandas.__version__.split(".")[0]) >= 3


def _parse(path, size, kinds, words, exact):
    if words == "category" and _GUESSES:
        frame = _parse(path, size, kinds, str, exact)
        return frame.astype({name: words for name in frame if kinds[name] == "text"})
    text = {name: words for name, kind in kinds.items() if kind == "text"}
    empty = {name: ["", "nan"] for name in kinds if name not in text}
    lines = WholeLines(path, size)
    with io.BufferedReader(lines, 1 << 20) as file:
        try:
            return pandas.read_csv(file, usecols=lambda name: name in kinds, dtype=text,
                                   na_values=empty, keep_default_na=False, on_bad_lines="skip",
                                   encoding_errors="replace",
                                   float_precision="round_trip" if exact else None)
        except Exception:
            if lines.problem is not None:
                raise lines.problem from None
            raise


def raw(path, kinds, notes, words="category", exact=False):
    """The file's columns of `kinds`, text as `words`, the rest as pandas guesses it. What is left
    out is told in `notes`. No rows where the file is empty or cannot be read as CSV."""
    name = os.path.basename(path)
    size, there = whole_size(path)
    if size < there:
        notes.append(f"{name}: the last line is cut off (the run was killed, or is writing); "
                     "it is left out")
    for _ in range(3):  # an open quote in the last row: one row less
        if size == 0:
            return pandas.DataFrame()
        try:
            frame = _parse(path, size, kinds, words, exact)
            break
        except pandas.errors.EmptyDataError:
            return pandas.DataFrame()
        except BadFile as error:
            notes.append(f"{error}; the file is left out")
            return pandas.DataFrame()
        except (pandas.errors.ParserError, ValueError, csv.Error) as error:
            reason = str(error).strip()
            size, _ = whole_size(path, size - 1)
    else:
        notes.append(f"{name}: cannot be read as CSV and is left out: {reason}")
        return pandas.DataFrame()
    missing = [column for column in kinds if column not in frame.columns]
    if missing and len(frame):
        notes.append(f"{name} has no column {', '.join(missing)}")
    texts = [column for column in kinds if kinds[column] == "text" and column in frame.columns]
    whole = frame[texts].notna().all(axis=1)
    if not whole.all():
        notes.append(f"{name}: {int((~whole).sum())} rows with too few fields are left out")
        frame = frame[whole].reset_index(drop=True)
    return frame


def _numbers(column, name, file, notes):
    """float64; what is no number becomes NaN, and is told."""
    if column.dtype.kind in "biuf":
        return column.astype("float64")
    found = pandas.to_numeric(column, errors="coerce").astype("float64")
    words = column.astype(str).str.strip().str.lower().isin(["nan", "+nan", "-nan", ""])
    lost = int((found.isna() & column.notna() & ~words).sum())
    if lost:
        notes.append(f"{file}: {lost} fields of column {name} are no numbers and are read as empty")
    return found


def _whole(column, name, file, notes):
    """int64; Int64 with <NA> where a field is empty or no whole number."""
    if column.dtype.kind in "iu":
        return column.astype("int64")
    found = _numbers(column, name, file, notes)
    bad = found.notna() & ~((found % 1 == 0) & (found.abs() < 2.0 ** 63))
    if bad.any():
        notes.append(f"{file}: {int(bad.sum())} fields of column {name} are no whole numbers and "
                     "are read as empty")
    found = found.mask(bad)
    return found.astype("Int64") if found.isna().any() else found.astype("int64")


def _flags(column, name, file, notes):
    found = _whole(column, name, file, notes)
    bad = ~found.isin([0, 1]) & found.notna()
    if bad.any():
        notes.append(f"{file}: {int(bad.sum())} fields of column {name} are neither 0 nor 1 and "
                     "are read as empty")
        found = found.astype("Int64").mask(bad)
    return found.astype("boolean" if found.isna().any() else "bool")


def typed(folder, name, notes):
    """<folder>/<name>.csv with all its columns, in its order, by their types: int64, bool, float64
    and text. A column that a file of another version lacks is empty; no file, no rows."""
    kinds, file = TABLES[name], name + ".csv"
    path = os.path.join(folder, file)
    frame = raw(path, kinds, notes, str, True) if os.path.isfile(path) else pandas.DataFrame()
    columns = {}
    for column, kind in kinds.items():
        values = frame.get(column, pandas.Series("" if kind == "text" else float("nan"),
                                                 index=frame.index,
                                                 dtype=str if kind == "text" else "float64"))
        if kind == "integer":
            values = _whole(values, column, file, notes)
        elif kind == "flag":
            values = _flags(values, column, file, notes)
        elif kind != "text":
            values = _numbers(values, column, file, notes)
        columns[column] = values
    return pandas.DataFrame(columns)
