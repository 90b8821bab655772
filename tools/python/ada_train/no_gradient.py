"""Layers that no gradient reaches, as src/telemetry/no_gradient.h has it for ada-train's runs."""


def layers_without_gradient(rows):
    """(layer, tensor, died at, by rounding) of the layers of which all of dx or dw was zero after
    rounding, in the order of the backward pass; `rows` of one step, in their order. died at: the
    last tensor that still had values, and its row."""
    dead, alive = {}, None
    for row in rows:
        layer, tensor = row["layer"], row["tensor"]
        came = row["zeros_before"] != row["numel"]
        if tensor in ("dx", "dx2", "dy") and came:
            alive = row
        if row["zeros_after"] != row["numel"] or tensor not in ("dx", "dw") or not row["numel"]:
            continue
        dead.setdefault(layer, (tensor, row if came else alive))
    return [(layer, tensor, last) for layer, (tensor, last) in dead.items()]
