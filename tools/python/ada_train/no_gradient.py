"""Layers that no gradient reaches, as src/telemetry/totals.h has it for ada-train's runs."""

BRANCH = "branch"  # zeros alone, while the gradient goes on past it


def layers_without_gradient(rows):
    """(layer, tensor, died at) of the layers of which all of dx or dw was zero after rounding, in
    the order of the backward pass; `rows` of one step, in their order. died at: the row of the
    last tensor that still had values; None: none had; BRANCH: rows after it have."""
    dead, alive = {}, None
    last = max((i for i, row in enumerate(rows) if _has_gradient(row)), default=-1)
    for i, row in enumerate(rows):
        layer, tensor = row["layer"], row["tensor"]
        if _has_gradient(row):
            alive = row
        if row["zeros_after"] != row["numel"] or tensor not in ("dx", "dw") or not row["numel"]:
            continue
        at = row if _came(row) else BRANCH if i < last else alive
        dead.setdefault(layer, (tensor, at))
    return [(layer, tensor, at) for layer, (tensor, at) in dead.items()]


def _came(row):
    return row["zeros_before"] != row["numel"]


def _has_gradient(row):
    return row["tensor"] in ("dx", "dx2", "dy") and _came(row)
