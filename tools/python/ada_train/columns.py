"""The columns of a run's CSV files with their types: those of src/telemetry/README.md, in the order
of the files. Reading and recording take them from here.

integer: a whole number; flag: 0 or 1; scale: a number that reads back to the same value, no scale
is an empty field; number: nine significant digits, inf, -inf and nan in words; number?: the same,
and NaN (it does not apply) is an empty field; text: anything.
"""
TABLES = {
    "steps": {
        "step": "integer", "epoch": "integer", "loss": "number", "accuracy": "number",
        "lr": "number", "scale": "scale", "overflow": "flag", "skipped": "flag",
        "grad_norm": "number"},
    "scales": {
        "step": "integer", "epoch": "integer", "layer": "text", "policy": "text",
        "scale_in": "scale", "unbound": "number?", "bound": "number?", "pow2": "scale",
        "alpha": "scale", "scale_out": "scale", "limit": "text"},
    "underflow": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text", "format": "text",
        "scale": "scale", "numel": "integer", "zeros_before": "integer", "zeros_after": "integer",
        "underflow": "integer", "underflow_pct_nonzero": "number?",
        "underflow_pct_numel": "number?", "below_min_pct": "number?", "subnormal": "integer",
        "overflow": "integer", "inf": "integer", "nan": "integer", "min_abs": "number?",
        "max_abs": "number", "mean": "number", "std": "number", "l1": "number", "l2": "number",
        "range_log2": "number?", "mse": "number?", "sqnr_db": "number?",
        "zero_denominators": "number?"},
    "histograms": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text", "scale": "scale",
        "exponent": "text", "count": "integer"},
    "what_if": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text",
        "scenario": "text", "format": "text", "scale": "scale", "underflow_pct_nonzero": "number?",
        "overflow": "number", "underflow_unsure_pct": "number?", "overflow_unsure": "integer"},
    "probes": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text", "format": "text",
        "scale": "scale", "numel": "integer", "nonzero": "integer", "lost": "integer",
        "lost_pct": "number?", "mse": "number?", "sqnr_db": "number?", "cosine": "number?",
        "norm_over_noise": "number?"},
    "blocks": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text", "format": "text",
        "numel": "integer", "zeros": "integer", "inf": "integer", "nan": "integer",
        "lost": "integer", "lost_pct_nonzero": "number?", "lost_beside_largest": "integer",
        "lost_scale_rounding": "integer", "lost_scale_floor": "integer",
        "lost_tensor_scale": "integer", "saturated": "integer", "blocks": "integer",
        "zero_blocks": "integer", "broken_blocks": "integer", "scale_log2_min": "number?",
        "scale_log2_max": "number?", "scale_log2_mean": "number?", "scale_log2_std": "number?",
        "scale_floor": "integer", "scale_ceiling": "integer", "sqnr_db": "number?",
        "sqnr_mean_db": "number?", "sqnr_worst_db": "number?", "norm_over_noise": "number?"},
    "accumulators": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text",
        "accumulator": "text", "numel": "integer", "products": "integer", "swallowed": "integer",
        "swallowed_pct": "number?", "lost": "integer", "overflow": "integer", "sqnr_db": "number?",
        "bias": "number?", "max_rel": "number?"},
    "what_if_accumulators": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text",
        "scenario": "text",
        "accumulator": "text", "numel": "integer", "products": "integer", "swallowed": "integer",
        "swallowed_pct": "number?", "lost": "integer", "overflow": "integer", "sqnr_db": "number?",
        "bias": "number?", "max_rel": "number?"},
    "what_if_blocks": {
        "step": "integer", "epoch": "integer", "layer": "text", "tensor": "text",
        "scenario": "text", "format": "text", "scale": "scale",
        "numel": "integer", "zeros": "integer", "inf": "integer", "nan": "integer",
        "lost": "integer", "lost_pct_nonzero": "number?", "lost_beside_largest": "integer",
        "lost_scale_rounding": "integer", "lost_scale_floor": "integer",
        "lost_tensor_scale": "integer", "saturated": "integer", "blocks": "integer",
        "zero_blocks": "integer", "broken_blocks": "integer", "scale_log2_min": "number?",
        "scale_log2_max": "number?", "scale_log2_mean": "number?", "scale_log2_std": "number?",
        "scale_floor": "integer", "scale_ceiling": "integer", "sqnr_db": "number?",
        "sqnr_mean_db": "number?", "sqnr_worst_db": "number?"},
    "events": {
        "step": "integer", "epoch": "integer", "event": "text", "layer": "text", "tensor": "text",
        "value": "text", "message": "text"},
    "evaluation": {
        "step": "integer", "epoch": "integer", "split": "text", "images": "integer",
        "loss": "number", "top1": "number?", "top5": "number?"},
    "classes": {
        "step": "integer", "epoch": "integer", "split": "text", "class": "text",
        "count": "integer", "iou": "number?", "accuracy": "number?", "pixel_accuracy": "number?",
        "ap_07": "number?", "ap": "number?"},
    "confusion": {
        "step": "integer", "epoch": "integer", "split": "text", "class": "text",
        "prediction": "text", "count": "integer"},
    "losses": {
        "step": "integer", "epoch": "integer", "locations": "number", "classes": "number",
        "terms": "integer"},
    "timing": {
        "step": "integer", "seconds": "number", "images_per_second": "number", "data": "number",
        "forward": "number", "backward": "number", "update": "number", "log": "number",
        "tokens": "number?"},
}
