"""What a run of ada-train left behind, for the Python tools: CSV files by strict rules, summary.json
as a map whose fields have the types they should have, and text of files as a terminal may show it.

The rules are those of src/telemetry/csv_reader.h: whole lines of at most MOST_BYTES, RFC 4180, as
many fields as the header has. A file that is torn at its end (the run was killed, or is writing) is
read up to its last line end.
"""
import csv
import io
import json
import math
import os
import unicodedata

MOST_BYTES = 1 << 20  # of a line; our own have some hundred
_OBEYED = {"Cc", "Zl", "Zp"}  # controls and line separators; below: what turns the direction
_TURNS = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class BadFile(ValueError):
    """A file that is not as it should be; the message names file and line."""


def visible(text):
    """`text` without anything that a terminal would obey: that stands there as \\x1b or \\u202e."""
    return "".join(c if unicodedata.category(c) not in _OBEYED | {"Cs"} and c not in _TURNS
                   else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)


class WholeLines(io.RawIOBase):
    """The whole lines of a file: its first `size` bytes, by default up to the last line end that
    stands there now. Reading raises BadFile at a line that is too long."""

    def __init__(self, path, size=None):
        super().__init__()
        self._path, self._lines, self._open = path, 0, 0  # _open: bytes of the line so far
        self.problem = None  # the BadFile that was raised, which a parser may have hidden
        self._left = whole_size(path)[0] if size is None else size
        self._file = open(path, "rb")

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self._file.read(min(len(buffer), self._left, MOST_BYTES))
        self._check(piece)
        buffer[:len(piece)] = piece
        self._left -= len(piece)
        return len(piece)

    def _check(self, piece):
        first = piece.find(b"\n")
        if self._open + (len(piece) if first < 0 else first) > MOST_BYTES:
            self.problem = BadFile(f"{self._path}:{self._lines + 1}: a line of more than 1 MiB; "
                                   "expected rows of some hundred bytes")
            raise self.problem
        self._lines += piece.count(b"\n")
        self._open = self._open + len(piece) if first < 0 else len(piece) - piece.rfind(b"\n") - 1

    def close(self):
        self._file.close()
        super().close()


def whole_size(path, below=None):
    """Bytes up to the last line end (that lies below `below`), and the bytes there are."""
    with open(path, "rb") as file:
        size = file.seek(0, io.SEEK_END)
        end = size if below is None else below
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1, size
            end = start
    return 0, size


def rows(path):
    """The rows of a CSV file as maps from column to text. Raises BadFile with file and line, and
    OSError."""
    with io.TextIOWrapper(io.BufferedReader(WholeLines(path)), encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, [])
            for row in reader:
                if len(row) != len(header):
                    raise BadFile(f"{path}:{reader.line_num}: {len(row)} fields, expected the "
                                  f"header's {len(header)}")
                yield dict(zip(header, row))
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadFile(f"{path}:{reader.line_num}: {error}") from error


def read_summary(folder):
    """(the map of summary.json, what is wrong with it): {} where there is none or it is no map."""
    path = os.path.join(folder, "summary.json")
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}, ""
    except (ValueError, RecursionError) as error:
        return {}, f"summary.json cannot be read: {error}"
    return (value, "") if isinstance(value, dict) else ({}, "summary.json is no map of a run's facts")


def field(value, *keys):
    """The field of a map within maps; None where one of them is missing, or no map."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def number(value, *keys):
    """A finite number that stands there, or None."""
    found = field(value, *keys)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if abs(found) < 1e300 and not math.isnan(found) else None


def text(value, *keys):
    """The text that stands there, or None."""
    found = field(value, *keys)
    return found if isinstance(found, str) else None
