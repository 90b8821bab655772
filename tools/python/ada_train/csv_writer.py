"""Rows of a run's CSV files as ada-train writes them: the same text for the same values."""
import math
import os

from ada_train.columns import TABLES


def _real(text):
    """Whole numbers with a point: a reader that guesses types does not take them for integers."""
    return text + ".0" if text.lstrip("-").isdigit() else text


def _word(value):
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def nine_digits(value):
    return f"{value:.9g}" if math.isfinite(value) else _word(value)


def shortest(value):
    """The shortest text that reads back to the same double."""
    if not math.isfinite(value):
        return _word(value)
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    for count in range(17):  # digits after the first
        mantissa, _, exponent = f"{value:.{count}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    power = int(exponent)
    science = f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    fixed = f"{value:.{max(0, count - power)}f}"
    return fixed if len(fixed) <= len(science) else science


def field(value, kind):
    if kind == "integer":
        return str(int(value))
    if kind == "flag":
        return "1" if value else "0"
    if kind == "scale":
        return "" if math.isnan(value) else _real(shortest(float(value)))
    if kind == "number":
        return _real(nine_digits(float(value)))
    if kind == "number?":
        return "" if math.isnan(value) else _real(nine_digits(float(value)))
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def header(name):
    """The first line of a table's file, with its end."""
    return ",".join(TABLES[name]) + "\n"


class CsvFile:
    """<folder>/<name>.csv with its header; rows are kept until flush()."""

    def __init__(self, folder, name):
        self._kinds = TABLES[name]
        self._file = open(os.path.join(folder, name + ".csv"), "wb", buffering=0)
        self._rows = [",".join(self._kinds)]
        self.flush()

    def add(self, row):
        self._rows.append(",".join(field(row[name], kind) for name, kind in self._kinds.items()))

    def flush(self):
        if self._rows:
            self._file.write("".join(row + "\n" for row in self._rows).encode())
        self._rows = []

    def close(self):
        self.flush()
        self._file.close()
