"""The recorder: attempts to update a model's weights as rows of a run's files."""
import math
import numbers
import os
import platform

import torch

from ada_train import __version__
from ada_train.coverage import lost_from_the_start
from ada_train.csv_writer import nine_digits, shortest
from ada_train.no_gradient import BRANCH, layers_without_gradient
from ada_train.not_finite import advice_text, name_text
from ada_train.recording import RunFolder
from ada_train.torch import config, formats, hooks
from ada_train.torch.clock import Clock
from ada_train.torch.converted import Table, linear_layers
from ada_train.torch.dumps import Dumps
from ada_train.torch.emulate import Emulation, roles_of
from ada_train.torch.layers import Names, check, is_compiled, is_product
from ada_train.torch.operands import formats_of as operands_of
from ada_train.torch.operands import text_of as operands_text
from ada_train.torch.watching import Watching, due, layers_of

# Formats of operands that the commands know by no name.
MAPS = {"int8": "{exponent: 1, mantissa: 6, has_inf: false, has_nan: false}"}
ALERT_PCT = 50  # the default of log.alert_underflow_pct
TENSORS = ("y", "w", "dx", "dw", "dy")


def _cause(last):
    """Where a gradient died, as an event's value and in words; last: its row, BRANCH or None."""
    if last == BRANCH:
        return BRANCH, ("a branch without, while the gradient goes on past it: no target of an "
                        "output, an input of zeros")
    if last is None:
        return "loss", "the last tensor with values was loss: no tensor had values"
    died_at = f"{last['layer']}.{last['tensor']}"
    return died_at, (f"the last tensor with values was {died_at}: it lost "
                     f"{last['underflow_pct_nonzero']:.3g} % in {last['format']} at scale "
                     f"{shortest(last['scale'])}")


def blocks_row(figures, operand):
    """The columns of blocks.csv that BlockFigures fill."""
    row = figures.values()
    row["lost"] = sum(row["lost_" + cause] for cause in (
        "beside_largest", "scale_rounding", "scale_floor", "tensor_scale"))
    nonzero = row["numel"] - row["zeros"]
    row["lost_pct_nonzero"] = 100 * row["lost"] / nonzero if nonzero else math.nan
    if operand.endswith("dy"):  # of a gradient: its norm over that of what rounding did to it
        row["norm_over_noise"] = 10 ** (row["sqnr_db"] / 20)
    return row


def _check_steps(**given):
    for key, steps in given.items():
        if not isinstance(steps, numbers.Integral) or steps < 0:
            raise ValueError(f"{key}: {steps!r}: expected a whole number of steps, or 0 for none")


def _value(x):
    return float(x.detach()) if isinstance(x, torch.Tensor) else float(x)


class Recorder:
    """See ada_train.torch.record. A recorder is also a context: `with record(...) as recorder:`
    closes it, as interrupted where an exception ends the block."""

    def __init__(self, model, optimizer, folder, *, scaler, scale, formats, every,
                 histogram_every, statistics, layers, name, dataset, overwrite, scaling=None,
                 operands=None, dump_every=0):
        unknown = [tensor for tensor in statistics if tensor not in TENSORS]
        if unknown:
            raise ValueError(f"statistics: {', '.join(unknown)}: expected some of "
                             + ", ".join(TENSORS))
        _check_steps(every=every, histogram_every=histogram_every, dump_every=dump_every)
        if scaler is not None and not hasattr(scaler, "get_scale"):
            raise TypeError(f"scaler: {type(scaler).__name__}: expected a GradScaler, or None")
        check(model, "record()")
        if dump_every and (operands is not None or any(formats)):  # some format, or saturate
            raise ValueError("dump_every: is for a model in the formats that it computes in; leave "
                             "out format= and operands=")
        if is_compiled(model):
            raise ValueError("record(): the model is behind torch.compile, which hides its layers; "
                             "record the model before torch.compile")
        names = layers_of(model, [layers] if isinstance(layers, str) else list(layers))
        self._linear = linear_layers(model, Names(model))
        converted = Table(self._linear).converted > 0
        taken = None if operands is None else operands_of(operands)
        self._operands = taken
        self._roles = roles_of(*formats, always=taken is not None)
        if self._roles is not None:
            Emulation.check(model)
        self._optimizer, self._scaler, self._fixed = optimizer, scaler, float(scale)
        self._scaling = scaling  # the engine of AdaLossScaled, which chooses scales by layer
        self._policy = (config.policy_of(scaler, self._fixed) if scaling is None
                        else {"policy": scaling.policy.name, "section": scaling.policy.section})
        self._log, self._dump_every = (every, histogram_every, list(statistics)), dump_every
        self._name = name or os.path.basename(os.path.abspath(folder))
        self._model, self._dataset = model, dataset
        self._clock, self._epoch, self._scale = Clock(), 1, None
        self._dead, self._closed, self._known_epochs = set(), False, 0
        self._finite, self._alerted = True, set()
        self._watching = Watching(model, optimizer, names, self._scale_now, self._roles, self._log,
                                  self._clock, taken, plain=scaling is not None)
        try:
            self._folder = RunFolder(folder, overwrite, histogram_every > 0,
                                     taken is not None or converted)
            self._dumps = Dumps(folder, names if dump_every else {}, lambda: self.attempt,
                                lambda step: due(dump_every, step), self._watching.guarded)
        except BaseException:
            self._watching.remove()
            raise
        hooks.keep_to_the_module(self._dumps.hooks)
        self._folder.ended = lambda: self.close("interrupted")
        Names(model).warn()

    def __enter__(self):
        return self

    def __reduce_ex__(self, _):
        raise TypeError("a Recorder is not copied nor pickled: it writes the files of one run; copy "
                        "the model, which a recording leaves as it is")

    def __exit__(self, kind, *_):
        self.close("finished" if kind is None else "interrupted")

    def _scale_now(self):
        if self._scaling is not None:
            return self._scaling.policy.scale
        if self._scaler is not None and self._scaler.is_enabled():
            return float(self._scaler.get_scale())
        return self._fixed

    # --- One attempt ---

    @property
    def attempt(self):
        return self._watching.attempt

    @property
    def emulation(self):
        return self._watching.emulation

    def gradient_norm(self):
        return self._watching.gradient_norm()

    def settle(self):
        """After a forward pass that was interrupted."""
        self._watching.settle()

    def table(self):
        """What each linear layer computes in: a list of maps, one for each operand of its three
        products (layer, class, weight_class, converted, operand, format, granularity, scale,
        rounding, accumulator); as text a few lines, which log.txt begins with."""
        return Table(self._linear, self._watching.idle)

    def step(self, loss, accuracy=math.nan, epoch=None):
        """After each attempt to update the weights. `loss`: without its scale; `accuracy`: share
        of the batch that was classified right, if known; `epoch`: from 1, where it changes."""
        attempt = self._watching.attempt
        if attempt is None or attempt.evaluates and not self._watching.went_backwards:
            raise RuntimeError("step(): no forward pass of the model in training mode came before")
        if self._optimizer is None and self._scaling is None:  # nobody says whether one took them
            norm = self._watching.gradient_norm()
            self._watching.ended(math.isfinite(norm), norm)
        self._clock.begin("log")
        self._epoch = self._epoch if epoch is None else int(epoch)
        at = {"step": attempt.step, "epoch": self._epoch}
        skipped = not self._watching.updated
        norm = self._watching.norm
        if skipped:  # the gradients lie where they were, and may carry their scale or not
            norm = self._watching.gradient_norm()
        loss = _value(loss)
        self._write_config()
        rows = self._tensors(attempt, at) if attempt.counts else []
        self._events(attempt, at, loss, skipped, rows)
        self._folder.add("steps", **at, loss=loss, accuracy=_value(accuracy),
                         lr=self._rate(), scale=attempt.scale,
                         overflow=skipped or not math.isfinite(norm), skipped=skipped,
                         grad_norm=norm)
        if due(self._log[0], attempt.step):
            self._folder.add("timing", step=attempt.step, **self._clock.row())
        if attempt.counts:
            self._folder.flush()
        self._dumps.write(attempt.step)
        self._watching.next()
        self._clock.begin("data")

    def ended(self, optimizer, updated, norm):
        """Before step(), where the optimizer was not known from the start."""
        self._optimizer = optimizer
        self._watching.ended(updated, norm)

    def _rate(self):
        return (math.nan if self._optimizer is None
                else _value(self._optimizer.param_groups[0]["lr"]))

    def loss(self, loss):
        """Gives `loss` back. Called before backward() under autocast, it lets the gradient of the
        logits be seen before it is rounded to their format: rows of loss.dx."""
        self._watching.follow(loss)
        return loss

    def evaluation(self, split, images, loss=math.nan, top1=math.nan, top5=math.nan):
        """One evaluation of a split (`test`, `validation`), after the last step."""
        self._folder.add("evaluation", step=self._watching.steps, epoch=self._epoch, split=split,
                         images=images, loss=_value(loss), top1=_value(top1), top5=_value(top5))

    def _tensors(self, attempt, at):
        rows = []
        for layer, operand, form, figures, row in attempt.operand_rows():
            if row is not None:
                self._folder.add("underflow", **at, layer=layer, tensor=operand, format=form, **row)
            self._folder.add("blocks", **at, layer=layer, tensor=operand,
                             format=MAPS.get(form, form), **blocks_row(figures, operand))
        for decision in self._decisions(attempt):
            self._folder.add("scales", **at, policy=self._policy["policy"], **decision)
        self._watching.look_for_logits()
        for layer, tensor, form, stats, bins, scale in attempt.rows():
            rows.append({**at, "layer": layer, "tensor": tensor, "format": form,
                         **stats.row(scale)})
            self._folder.add("underflow", **rows[-1])
            if bins is not None:
                for exponent, count in bins.rows():
                    self._folder.add("histograms", **at, layer=layer, tensor=tensor, scale=scale,
                                     exponent=exponent, count=count)
        return rows

    def _decisions(self, attempt):
        """The columns of scales.csv of each layer that chooses a scale."""
        if self._scaling is not None and self._scaling.chooses:
            return self._scaling.decisions
        chooses = {name for name, module, inputs in self._watching.traced
                   if inputs and is_product(module)}
        return [{"layer": layer, "limit": "none", "scale_in": attempt.scale, "alpha": 1.0,
                 "scale_out": attempt.scale} for layer in attempt.backward if layer in chooses]

    def _events(self, attempt, at, loss, skipped, rows):
        for event in self._scaling.take_events() if self._scaling is not None else ():
            self._folder.add("events", **at, **event)
        for event in [*attempt.events, *self._idle_biases()]:
            self._folder.add("events", **at, **event)
        before, self._scale = self._scale, attempt.scale
        if before is not None and before != attempt.scale:
            self._folder.add("events", **at, event="scale_change", value=shortest(attempt.scale),
                             message=f"scale {shortest(before)} -> {shortest(attempt.scale)}")
        finite, self._finite = self._finite, math.isfinite(loss)
        lost = finite and not self._finite  # said only of the first such step
        layer, tensor, largest = attempt.first_not_finite() if skipped or lost else ("", "", None)
        value = "" if largest is None else nine_digits(largest)
        where = (name_text(layer, tensor, value) if layer else
                 "unknown: the step is not a logged one" if not attempt.counts else
                 "no recorded tensor")
        if lost:
            advice = advice_text(layer, tensor, value, attempt.scale, attempt.step,
                                 lost_from_the_start(self._folder.totals.tensors))
            self._folder.add("events", **at, event="loss_not_finite", layer="loss",
                             value=nine_digits(loss),
                             message=f"the loss is not finite; first: {where}: {advice}")
        if skipped:
            self._folder.add("events", **at, event="skip", layer=layer, tensor=tensor, value=value,
                             message=f"gradients are not finite, step skipped; first: {where}")
        for row in rows:
            self._alert(at, row)
        if rows:
            self._no_gradient(at, rows)

    def _idle_biases(self):
        """Events of biases that have no part in their layer's output, told once."""
        for name in self._watching.take_idle_biases():
            yield {"event": "no_bias_gradient", "layer": name, "tensor": "bias",
                   "message": f"{name}.bias gets no gradient though the weight does: the layer "
                              "leaves it out of its output, as MX training of torchao does"}

    def _alert(self, at, row):
        """A tensor that passes ALERT_PCT from below, as the program's log.alert_underflow_pct."""
        name, pct = (row["layer"], row["tensor"]), row["underflow_pct_nonzero"]
        high = pct > ALERT_PCT
        if high and name not in self._alerted:
            self._folder.add("events", **at, event="underflow_alert", layer=row["layer"],
                             tensor=row["tensor"], value=nine_digits(pct),
                             message=f"{row['layer']}.{row['tensor']}: {pct:.3g} % of its non-zero "
                             f"values underflow in {row['format']} at scale "
                             f"{shortest(row['scale'])} (log.alert_underflow_pct: {ALERT_PCT})")
        (self._alerted.add if high else self._alerted.discard)(name)

    def _no_gradient(self, at, rows):
        dead = layers_without_gradient(rows)
        for layer, tensor, last in dead:
            if layer in self._dead:
                continue
            died_at, cause = _cause(last)
            what = "gradient" if tensor == "dx" else "weight gradient"
            self._folder.add("events", **at, event="no_gradient", layer=layer, tensor=tensor,
                             value=died_at, message=f"{layer}: all of its {what} is zero; {cause}")
        self._dead = {layer for layer, _, _ in dead}

    # --- The run ---

    def _precision(self):
        if self._roles is None:
            return {"format": formats.of(*sorted(self._watching.dtypes, key=str)).name}
        usual = self._roles["activations"].name
        keys = {"format": usual, **{
            role: form.name for role, form in self._roles.items()
            if form.name != ("fp32" if role == "weight_gradients" else usual)}}
        if self._operands is not None:
            keys["operands"] = operands_text(self._operands)
        return keys

    def _write_config(self):
        """In the first step, and again as the run has more epochs than were known."""
        if self._epoch <= self._known_epochs:
            return
        self._known_epochs = self._epoch
        every, bins_every, tensors = self._log
        log = {"every": max(1, every), "histogram_every": bins_every,
               "statistics": "[" + ", ".join(f'"{t}"' for t in tensors) + "]"}
        if self._dump_every:
            log["dump_every"] = self._dump_every
        self._folder.write_config(config.text_of(
            self._name, self._watching.batch, self._watching.traced, self._precision(),
            self._policy, self._optimizer, self._epoch, log))
        table = self.table()
        self._folder.log(f"{table}\n" if table.says_something else "")

    def _remove_hooks(self):
        self._watching.remove()
        for hook in self._dumps.hooks:
            hook.remove()

    def abandon(self):
        """Takes the hooks off and lets the folder go, of a recording that does not begin."""
        self._closed = True
        self._remove_hooks()
        self._folder.abandon()

    def close(self, status="finished"):
        """Takes the hooks off and writes summary.json. status: finished, stopped, interrupted."""
        if self._closed:
            return
        self._closed = True
        self._remove_hooks()
        precision = self._precision() if self._watching.traced else {}
        facts = {"name": self._name, "status": status, "model": type(self._model).__name__,
                 "dataset": self._dataset or "external", "format": precision.get("format", "fp32"),
                 "policy": self._policy["policy"], "folder": str(self._folder.path),
                 "versions": {"ada_train.torch": __version__, "torch": torch.__version__},
                 "seconds": self._clock.total(), "images_per_second": self._clock.speed(),
                 "host": {"processor": platform.processor() or platform.machine(),
                          "threads": torch.get_num_threads(), "device": str(self._device())}}
        if self._folder.totals.step is not None:
            made = self._folder.totals.counted(self._rounded())
            self._folder.log(f"{made['text']}\n")
        self._folder.close(facts, self._rounded())

    def _rounded(self):
        """The words of `log.statistics` whose tensors were rounded."""
        if self._roles is None:
            narrow = any(dtype != torch.float32 for dtype in self._watching.dtypes)
            return (["dx", "dw", "y", "w"] if narrow else []) + (
                ["operands"] if any(row["format"] != "none" for row in self.table()) else [])
        narrow = {role for role, form in self._roles.items() if not form.grid.exact}
        words = [("gradients", "dx"), ("gradients", "dy"), ("weight_gradients", "dw"),
                 ("activations", "y"), ("weights", "w")]
        return [word for role, word in words if role in narrow] + (
            ["operands"] if self._operands is not None else [])

    def _device(self):
        return next(self._model.parameters(), torch.empty(0)).device
