"""Long names, which lines may break only where their words end: in the page and in pictures."""
import html
import re

from ada_train.run_files import visible

LONG = 24  # characters of a word from which on it may be broken
PIECE = re.compile(r"[^_/=,.:+-]*[_/=,.:+-]+|[^_/=,.:+-]+")
WORD = re.compile(r"\S{%d,}" % (LONG + 1))


class RunName(str):
    """A run's name in a table: the page puts the color of the run before it, and breaks it where it
    is long."""


class Colored(str):
    """A word of a table that has a color of its own, wherever it stands."""

    def __new__(cls, text, color):
        word = super().__new__(cls, text)
        word.color = color
        return word


def escaped(text):
    """Text as HTML. Long words may be broken after their separators, and nowhere else."""
    place = "\ue000"  # a character of private use, which no name has
    text = str(text).replace(place, "")
    text = WORD.sub(lambda word: place.join(PIECE.findall(word.group())), text)
    return html.escape(text).replace(place, "<wbr>")


def _pieces(word, most):
    """The pieces of a word that is too long for a line; one without separators is cut."""
    return [piece[i:i + most] for piece in PIECE.findall(word)
            for i in range(0, len(piece), most)]


def lines(text, most):
    """Text in lines of at most `most` characters, as full as its words let them be."""
    rows = [""]
    for word in visible(str(text)).split(" "):
        gap = " " if rows[-1] else ""
        if len(rows[-1] + gap + word) <= most:
            rows[-1] += gap + word
            continue
        if len(word) <= most:
            rows.append(word)
            continue
        rows[-1] += gap
        for piece in _pieces(word, most):
            if len(rows[-1]) + len(piece) <= most:
                rows[-1] += piece
            else:
                rows.append(piece)
    return [row.strip(" ") for row in rows if row.strip(" ")] or [""]
