"""The pictures of tools/report.py as functions: each takes runs (ada_train.read) or their folders,
side by side with the same axes, and gives a matplotlib figure; seeds="mean" draws those that differ
in their seed alone as one. Nothing opens a window or changes
matplotlib's settings; in a notebook the figure is shown where it is a cell's last value, and
figure.savefig("file.png") writes it. A ValueError says what a run would have to log."""
from ada_train.report import heads as report_heads
from ada_train.report import (groups, layers, load, pictures_classes, pictures_compared,
                              pictures_layers, pictures_operands, pictures_study,
                              pictures_training, pictures_values, style)
from ada_train.report.load import MADE_BY

__all__ = ["training", "scale", "scale_spread", "underflow", "underflow_worst",
           "underflow_difference", "limits", "histograms", "histograms_time", "probe_error",
           "probe_lost", "operand_sqnr", "operand_scales", "sums", "what_if",
           "what_if_operands", "what_if_sums", "events", "timing", "metric",
           "classes", "confusion", "heads"]


def _as_drawn(runs):
    if not runs:
        raise ValueError("no run is given: pictures take runs of ada_train.read, or folders")
    found = [run.drawn() if hasattr(run, "drawn") else load.read_run(run) for run in runs]
    load.label_runs(found)
    groups.shorten_labels(found)
    return found


def _figure(name, runs, file, draw, wanted, tensor=None, seeds="each"):
    """The picture `name` among those that `draw` makes of the runs' `file`."""
    runs = groups.by_seed(_as_drawn(runs), seeds)
    if not any(len(run.tables[file]) for run in runs):
        raise ValueError(f"{file}.csv has no rows: {MADE_BY[file]}")
    given = {"tensor": tensor, "order": layers.common_order(runs), "last": layers.last_step(runs)}
    with style.look():
        pictures = {picture.name: picture for picture in draw(runs, *[given[w] for w in wanted])}
    if name not in pictures:
        raise ValueError(f"{file}.csv has nothing to draw as '{name}'"
                         + (f" of {tensor}: log.statistics chooses the tensors" if tensor else ""))
    return pictures[name].figure


_LAYERS = ("tensor", "order", "last")


def training(*runs, seeds="each"):
    """Loss, accuracy, learning rate and the scale of the logit gradient over steps."""
    return _figure("training", runs, "steps", pictures_training.training, ("last",),
                   seeds=seeds)


def scale(*runs, tensor="dx", seeds="each"):
    """The scale that each layer's tensor carries, layers x steps."""
    return _figure("scale", runs, "underflow", pictures_layers.scales, _LAYERS, tensor,
                   seeds)


def underflow(*runs, tensor="dx", seeds="each"):
    """The share of each layer's values that underflow, layers x steps."""
    return _figure("underflow", runs, "underflow", pictures_layers.underflow, _LAYERS, tensor,
                   seeds)


def scale_spread(*runs, tensor="dx", seeds="each"):
    """Each layer's scale as mean, standard deviation, smallest and largest."""
    return _figure("scale_spread", runs, "underflow", pictures_compared.scale_spread, _LAYERS,
                   tensor, seeds)


def underflow_difference(*runs, tensor="dx", seeds="each"):
    """By how many points of percent each run loses more than the first, layers x steps."""
    return _figure("underflow_difference", runs, "underflow",
                   pictures_compared.underflow_difference, _LAYERS, tensor, seeds)


def underflow_worst(*runs, tensor="dx", seeds="each"):
    """The same of the layers that lose most, as lines over steps."""
    return _figure("underflow_worst", runs, "underflow", pictures_layers.underflow, _LAYERS, tensor,
                   seeds)


def limits(*runs, seeds="each"):
    """Which limit decided about each layer's factor, layers x steps."""
    return _figure("limits", runs, "scales", pictures_layers.limits, ("order", "last"),
                   seeds=seeds)


def histograms(*runs, tensor="dx", seeds="each"):
    """Where each layer's magnitudes lie at the last logged step, with the format's range."""
    return _figure("histograms", runs, "histograms", pictures_values.histograms, _LAYERS, tensor,
                   seeds)


def histograms_time(*runs, tensor="dx", seeds="each"):
    """The same over steps, of the three layers with the most below the range."""
    return _figure("histograms_time", runs, "histograms", pictures_values.histograms, _LAYERS,
                   tensor, seeds)


def probe_error(*runs, tensor="dx", seeds="each"):
    """The error of each layer's tensor beside fp32, in decibels, layers x probe steps."""
    return _figure("probe_error", runs, "probes", pictures_study.probes, _LAYERS, tensor,
                   seeds)


def probe_lost(*runs, tensor="dx", seeds="each"):
    """The share of each layer's values that were truly lost, layers x probe steps."""
    return _figure("probe_lost", runs, "probes", pictures_study.probes, _LAYERS, tensor,
                   seeds)


def operand_sqnr(*runs, seeds="each"):
    """The mean SQNR of each operand in blocks, layers x operands."""
    return _figure("operand_sqnr", runs, "blocks", pictures_operands.operands, ("order",),
                   seeds=seeds)


def operand_scales(*runs, seeds="each"):
    """How far the scales of an operand's blocks lie apart, by layer."""
    return _figure("operand_scales", runs, "blocks", pictures_operands.operands, ("order",),
                   seeds=seeds)


def what_if(*runs, tensor="dx", seeds="each"):
    """What other formats, scales and policies would have lost, layers x scenarios."""
    return _figure("what_if", runs, "what_if", pictures_study.what_if, ("tensor", "order"), tensor,
                   seeds)


def what_if_operands(*runs, seeds="each"):
    """What operands would keep in block-scaled formats of log.what_if, layers x scenarios."""
    return _figure("what_if_operands", runs, "what_if_blocks", pictures_operands.judged,
                   ("order",), seeds=seeds)


def sums(*runs, seeds="each"):
    """The mean SQNR of the sums that accumulators make, layers x products."""
    return _figure("sums", runs, "accumulators", pictures_operands.sums, ("order",), seeds=seeds)


def what_if_sums(*runs, seeds="each"):
    """What sums would keep in accumulators of log.what_if, layers x scenarios."""
    return _figure("what_if_sums", runs, "what_if_accumulators", pictures_operands.judged_sums,
                   ("order",), seeds=seeds)


def events(*runs, seeds="each"):
    """What happened at which step."""
    return _figure("events", runs, "events", pictures_training.events, ("last",),
                   seeds=seeds)


def timing(*runs, seeds="each"):
    """Where the time went, and the speed over steps."""
    return _figure("timing", runs, "timing", pictures_training.timing, ("last",),
                   seeds=seeds)


def metric(*runs, seeds="each"):
    """mIoU or VOC07 mAP over steps."""
    return _figure("metric", runs, "classes", pictures_classes.classes, ("last",), seeds=seeds)


def classes(*runs, seeds="each"):
    """IoU or VOC07 AP of each class, classes x steps."""
    return _figure("classes", runs, "classes", pictures_classes.classes, ("last",), seeds=seeds)


def confusion(*runs, seeds="each"):
    """What the pixels of each class were taken for at the last evaluation."""
    return _figure("confusion", runs, "confusion", pictures_classes.confusion, (), seeds=seeds)


def heads(*runs, seeds="each"):
    """Underflow of the gradients at the network's end, gradients x steps."""
    return _figure("heads", runs, "underflow", report_heads.heads, ("order", "last"), seeds=seeds)
