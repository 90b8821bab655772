"""Numbers spread evenly over a range."""


def evenly(count, most):
    """At most `most` of the numbers below `count`, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / max(1, most - 1)) for i in range(most)})
