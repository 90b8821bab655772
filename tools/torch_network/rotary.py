"""Rotary positions: pairs of values of a head that turn by an angle for each place."""
import math

import torch

from .network import Value
from .views import BATCH, out_of_order, runs, view

NEAR = 1e-4  # of cosines and sines computed in fp32


def rope_of(call, mix):
    """The value that `mix` is: a layer of kind rope, or constants times values."""
    base, count = mix.base, mix.base.height * mix.base.width
    shape = mix.terms[0][0].shape
    place, image = mix.terms[0][0] % count, mix.terms[0][0] // (base.channels * count)
    for index, factor in mix.terms:
        used = factor != 0
        same = ((index % count == place) & (index // (base.channels * count) == image)) | ~used
        if not bool(same.all()):
            call.refuse("adds values of different places")
    if len(mix.terms) == 1:
        return scaled(call, mix)
    axis = axis_of_places(call, place)
    order = [axis, *[a for a in range(len(shape)) if a != axis]]
    # By place, then all else: the channel of each term and its factor.
    channels = [(i // count % base.channels).permute(order).reshape(count, BATCH, -1)[:, 0]
                for i, _ in mix.terms]
    factors = [c.expand(shape).permute(order).reshape(count, BATCH, -1)[:, 0].double()
               for _, c in mix.terms]
    own = own_channels(call, channels, factors)
    turns = {}
    for k, channel in enumerate(own.tolist()):
        turns.setdefault(channel, turn_of(call, channels, factors, k, channel))
    source, place_of = source_of(call, base, list(turns))
    turns = {place_of[channel]: (None if partner is None else place_of.get(partner, -1), cosine, sine)
             for channel, (partner, cosine, sine) in turns.items()}
    total = len(turns)
    keys = keys_of(call, turns, shape[-1], count)
    made = call.layer("rope", [source], Value("", "rows", total, count), keys,
                      name=f"{call.path}.rope" if call.path else "rope")
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    moved = [shape[a] for a in order]
    own = torch.tensor([place_of[channel] for channel in own.tolist()])
    channel = own.expand(count, BATCH, -1).reshape(moved).permute(back.tolist())
    return view(made, image * total * count + channel * count + place)


def source_of(call, base, channels):
    """The layer that has these channels of the layer of `base` alone, and where each lies there."""
    slices, whole = call.converter.slices, Value(base.layer, "rows", *base.size)
    rising = sorted(channels)
    if len(runs(rising)) == 1:
        return slices.of(call, whole, runs(rising), "rows"), {c: c - rising[0] for c in rising}
    made = slices.ordered_part(call, whole, channels)
    if made is None:
        call.refuse(out_of_order("rotated values", runs(channels), base.layer))
    return made, {channel: place for place, channel in enumerate(channels)}


def scaled(call, mix):
    index, factor = mix.terms[0]
    first = float(factor.flatten()[0])
    if not bool((factor == first).all()):
        call.refuse(f"of {mix.what}: no rotation of pairs")
    return call.handled("affine", view(mix.base, index), first, 0.0)


def axis_of_places(call, place):
    """The axis along which places go 0, 1, 2 ..."""
    for axis in range(1, place.dim()):
        line = torch.arange(place.shape[axis]).reshape([-1 if a == axis else 1
                                                        for a in range(place.dim())])
        if place.shape[axis] > 1 and torch.equal(place, line.expand(place.shape)):
            return axis
    return call.refuse("of values whose places lie on no axis of their own (a sequence of one "
                       "token cannot tell)")


def own_channels(call, channels, factors):
    """Where each value goes: at place 0 nothing turns."""
    own = torch.full(channels[0].shape[1:], -1)
    for channel, factor in zip(channels, factors):
        here = (factor[0] - 1).abs() < NEAR
        own[here] = channel[0][here]
    if int(own.min()) < 0:
        call.refuse("of values times constants and their sums that leave no value of place 0 as it "
                    "is; rotary positions begin there")
    return own


def turn_of(call, channels, factors, k, own):
    """(partner, cosines, sines) of one value: y = x cos + partner * sin."""
    cosine, sine, partner = 0, 0, None
    for channel, factor in zip(channels, factors):
        c, f = int(channel[0, k]), factor[:, k]
        if c == own:
            cosine = cosine + f
        elif bool((f != 0).any()):
            if partner not in (None, c):
                call.refuse("mixes more than two values of a head")
            partner, sine = c, sine + f
    return partner, cosine, sine


def keys_of(call, turns, width, count):
    """Keys of the layer. `turns`: of its channels, from 0 on."""
    total = len(turns)
    if total % width:
        call.refuse(f"rotates {total} channels, which are no whole heads of {width}")
    turning = [j for j in range(width) if turns[j][0] is not None]
    rotary = len(turning)
    if turning != list(range(rotary)) or rotary % 2 or not rotary:
        call.refuse("leaves other values of a head than its last ones as they are")
    half = turns[0][0] == rotary // 2
    angle = [math.atan2(abs(float(turns[i if half else 2 * i][2][1])),
                        float(turns[i if half else 2 * i][1][1]))
             for i in range(rotary // 2)]
    base = 10000.0 if rotary == 2 else angle[1] ** (-rotary / 2) if angle[1] > 0 else 0.0
    base = float(f"{base:.4g}")
    for j in range(total):
        check_turn(call, turns, j, width, rotary, half, base, count)
    keys = {"heads": total // width}
    if base != 10000:
        keys["base"] = base
    if not half:
        keys["pairing"] = "interleaved"
    if rotary != width:
        keys["rotary"] = rotary
    return keys


def check_turn(call, turns, j, width, rotary, half, base, count):
    partner, cosine, sine = turns[j]
    inner, head = j % width, j - j % width
    if inner >= rotary:
        return
    pair, second = (inner % (rotary // 2), inner >= rotary // 2) if half else (
        inner // 2, inner % 2 == 1)
    step = rotary // 2 if half else 1
    expected = head + inner + (-step if second else step)
    angles = torch.arange(count, dtype=torch.float64) * base ** (-2 * pair / rotary)
    near = NEAR * (1 + count * 1e-3)
    if partner != expected or float((cosine - angles.cos()).abs().max()) > near or float(
            (sine - (angles.sin() if second else -angles.sin())).abs().max()) > near:
        call.refuse("turns pairs of values by other angles than place * base^(-2 i / rotary), or in "
                    "other pairs than i with i + rotary / 2, or 2 i with 2 i + 1 (scaled rotary "
                    "positions do not come over)")
