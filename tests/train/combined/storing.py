"""What a run stores beside what it should: values and counts of every rounding."""

import math

import numpy as np

from exact import single
from formats import Tally, stored_ends


class Unsure(Exception):
    """A value of an earlier part of a batch is not known to the last bit."""


class Storing:
    """Compares tensors with the step's dump and counts them; the part of Beside that knows no layer."""

    spreads = False  # an op that adds up what is not finite: which values become NaN depends on the way of computing

    def keep(self, name, tensor, value, error, form, scale=1.0, own=None, round_it=True):
        """What is stored of (value, error): counted into the row of (name, tensor) and compared with the dump's
        tensor."""
        value, error = np.asarray(value, np.float64), np.broadcast_to(error, np.shape(value))
        value = np.where((error == 0) & np.isfinite(value), single(value), value)
        factor = self.own_scale(name, tensor, form, scale) if own else None
        self.used[name, tensor] = factor, form
        low, high = (
            stored_ends(value, error, form, factor, self.stochastic) if round_it else (value - error, value + error)
        )
        unknown = (error > 0) & (np.isnan(low) | np.isnan(high))  # an end beyond a format whose overflow is NaN
        low, high = np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)
        stored = self.settle(f"{name}.{tensor}", low, high, error)
        if round_it:
            tally = self.tallies.get((name, tensor))
            if tally is None:
                tally = self.tallies[name, tensor] = Tally(form, scale)
                tally.row_scale = scale * (1.0 if factor is None else factor)
                if factor is not None:
                    tally.row_scale = single(scale * factor)
            tally.scale, tally.row_scale = scale, tally.row_scale if factor is not None else scale
            tally.add(value, error, stored, factor)
            if factor is not None:
                self.remember(name, tensor, value, error)
        return stored

    def spreading(self, layer, *arrays):
        self.spreads = layer.mixes and not all(np.isfinite(a).all() for a in arrays)

    def remember(self, name, tensor, value, error):
        """The largest magnitude of the step, and how far it may be off, for the tensor's own scale."""
        a = np.abs(value)
        most, off = (float(a.max()), float((a + error).max() - a.max())) if np.isfinite(a).all() else (math.inf, 0.0)
        self.amax[name, tensor] = max(self.amax.get((name, tensor), (0.0, 0.0)), (most, off))

    def settle(self, name, low, high, error):
        if self.spreads:
            tensor = name.rsplit(".", 1)
            self.loose.add(tuple(tensor))
            if self.dump is None and not self.twins:
                raise Unsure(name)
            got = self.whole_dump.get(name)
            return low if got is None else got.reshape(low.shape)
        if name == "input.y":
            name = f"{self.network.reads_images[0].name}.x"
        if self.dump is not None and name in self.dump:
            got = self.dump[name].reshape(low.shape)
            unsure = np.isnan(low) | (low == -np.inf) & (high == np.inf)
            fits = ((got >= low) & (got <= high)) | (np.isnan(got) & unsure)
            self.compared += got.size
            self.exact += int(np.sum(error == 0))
            if not fits.all():
                at = tuple(int(i) for i in np.argwhere(~fits)[0])
                self.differ(
                    f"{name}{list(at)}",
                    f"{int(np.sum(~fits))} of {fits.size} values",
                    f"stored {got[at]!r}",
                    f"expected {low[at]!r} .. {high[at]!r}",
                )
            return got
        if np.any((low != high) & ~(np.isnan(low) & np.isnan(high))):
            if self.dump is None:  # an equal part's values are these
                got = self.whole_dump[name].reshape(low.shape) if self.twins and name in self.whole_dump else np.nan
                if not (np.isnan(low) & np.isnan(high) | (got >= low) & (got <= high)).all():
                    raise Unsure(name)
                return got
            return (low + high) / 2
        return low

    def own_scale(self, name, tensor, form, scale=1.0):
        """s of delayed scaling: (largest / amax) / 2^margin, of a history of earlier steps; None in fp32, which
        rounds nothing."""
        if form.is_fp32:
            return None
        keys = self.precision.own_scales
        s, amax, off = self.next_scale(name, tensor, form)
        row = self.row_of.get((name, tensor))
        if off and row is not None:  # of a largest magnitude that is not known to the last bit
            written = float(row["scale"]) / scale
            if off > 0.1 * amax:  # what is left of a difference
                s = self.scales[name, tensor] = written
            elif (
                abs(written - s) <= (1.5 * off / amax + 1e-6) * s
                or keys.get("power_of_two", False)
                and written in (s / 2, s * 2)
            ):
                s = self.scales[name, tensor] = written
        return s

    def next_scale(self, name, tensor, form, keys=None):
        """The tensor's scale by its history, (s, amax, how far amax may be off); kept where amax is 0, and as a power
        of two where
        largest / amax is beyond fp32."""
        keys = keys or self.precision.own_scales
        seen = self.histories.get((name, tensor), [])[-keys.get("history", 1024) :]
        s = self.scales.get((name, tensor), 1.0)
        amax, off = (seen[-1] if keys.get("amax", "max") == "most_recent" else max(seen)) if seen else (0.0, 0.0)
        if amax > 0:
            margin = keys.get("margin", 0)
            quotient = float(single(form.largest / amax))
            if not keys.get("power_of_two", False):
                s = float(single(quotient / 2.0**margin))
                s = s if math.isfinite(s) else float(np.finfo(np.float32).max)
            elif math.isfinite(quotient):
                s = 2.0 ** (math.frexp(quotient)[1] - 1 - int(margin))
        self.scales[name, tensor] = s
        return s, amax, off

    def tally(self, name, tensor, value, error, form, scale, own):
        """Counts of a tensor that no dump has; returns the ends of what is stored."""
        factor = self.own_scale(name, tensor, form, scale) if own else None
        self.used[name, tensor] = factor, form
        low, high = stored_ends(value, error, form, factor, self.stochastic)
        tally = self.tallies.setdefault((name, tensor), Tally(form, scale))
        tally.scale, tally.row_scale = scale, scale if factor is None else single(scale * factor)
        tally.add_between(value, error, low, high, factor)
        if factor is not None:
            self.remember(name, tensor, value, error)
        return low, high
