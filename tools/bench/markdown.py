"""Markdown tables, and numbers as they stand in them."""
import math
import statistics


def table(header, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, *rows]]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def number(value, digits=3):
    """With so many significant digits, but all of those before the point; None is empty."""
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(places, 0)}f}"


def percent(share):
    if share is None:
        return ""
    return f"{share * 100:.{0 if share >= 0.1 else 1}f} %"


def spread(values, text=number):
    """Cells of the rounds' values: their median; the lowest and the highest."""
    return [text(statistics.median(values)), f"{text(min(values))}, {text(max(values))}"]


def cost(values, digits=1):
    """The same of percentages that something adds."""
    return spread(values, lambda value: f"{value:+.{digits}f}")


def ratios(ours, theirs):
    """Of the rounds, which were taken in turns: median, lowest and highest; empty without both."""
    of = [a / b for a, b in zip(ours or [], theirs or [])]
    return f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})" if of else ""
