"""Dumps of a recording: x, w and dy of each product in some steps, as log.dump_every of ada-train
writes them, for `ada-train what-if` and `inspect`."""
import functools
import json
import os
import pathlib
import struct

import torch
from torch.nn.utils import parametrize

from ada_train.torch import formats
from ada_train.torch.converted import plain_weight
from ada_train.torch.layers import is_conv1d, tensors_of
from ada_train.torch.operands import rows


def _as_stored(x, dtype):
    """Values as a kernel of that dtype takes them, in fp32."""
    return x.detach().to(dtype).float().cpu()


def _as_images(x):
    """What a linear layer takes or gives, as a dump has it: [n, channels], or of sequences [n,
    channels, tokens, 1]."""
    if x.dim() < 3:
        return rows(x)
    return x.flatten(1, -2).transpose(1, 2).unsqueeze(-1)


def write_safetensors(path, tensors, metadata):
    """tensors: name -> fp32 tensor. The file appears whole or not at all."""
    header, at = {"__metadata__": metadata}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [at, at + 4 * x.numel()]}
        at += 4 * x.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = path.with_name(f".ada-{os.getpid()}.tmp")
    with open(beside, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(x.contiguous().numpy().astype("<f4", copy=False).tobytes())
    os.replace(beside, path)


class Dumps:
    """`names`: module -> name; `attempt`: a function that gives the attempt that goes on, or None;
    `due`: of a step; `guarded`: makes a function that warns where it fails. Of a layer that runs
    several times in an attempt the last pass is kept."""

    def __init__(self, folder, names, attempt, due, guarded):
        self._folder, self._attempt, self._due = pathlib.Path(folder) / "dump", attempt, due
        self._guarded = guarded
        self._taken, self._metadata, self._inputs = {}, {}, {}
        self.hooks = []
        for module, name in names.items():
            if not isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)) and not (
                    is_conv1d(module)):
                continue
            self.hooks += [
                module.register_forward_pre_hook(self._guarded(
                    f"{name} (dump)", self._enter), with_kwargs=True),
                module.register_forward_hook(self._guarded(f"{name} (dump)", functools.partial(
                    self._leave, name)))]

    def _wants(self):
        attempt = self._attempt()
        return attempt is not None and self._due(attempt.step) and torch.is_grad_enabled() and (
            not torch._C._are_functorch_transforms_active())

    @torch.compiler.disable
    def _enter(self, module, args, kwargs):
        given = tensors_of(module, args, kwargs) if self._wants() else ()
        if given:
            if parametrize.is_parametrized(module, "weight"):  # asking for it would compute it
                raise ValueError("its weight is parametrized")
            # FSDP frees the whole weight after the pass.
            self._inputs[module] = given[0][1], plain_weight(module.weight).clone()

    @torch.compiler.disable
    def _leave(self, name, module, _, y):
        x, w = self._inputs.pop(module, (None, None))
        if x is None or not isinstance(y, torch.Tensor) or not y.requires_grad:
            return
        if y.dtype not in formats.DTYPES or not self._wants():
            return
        dtype, computes_dx = y.dtype, x.requires_grad
        x, w = _as_stored(x, dtype).clone(), _as_stored(w, dtype)  # x may be overwritten
        y.register_hook(self._guarded(f"{name} (dump)", lambda dy: self._take(
            name, module, x, w, dy.detach(), dtype, computes_dx)))

    def _take(self, name, module, x, w, dy, dtype, computes_dx):
        attempt = self._attempt()
        if attempt is None:
            return
        dy = _as_stored(dy, dtype)
        about = {"kind": "linear"}
        if isinstance(module, torch.nn.Conv2d):
            about = {"kind": "conv2d", "groups": str(module.groups),
                     "stride": "x".join(map(str, module.stride))}
        else:
            x, dy = _as_images(x), _as_images(dy)
            w = w.T if is_conv1d(module) else w
        for tensor, values in (("x", x), ("w", w), ("dy", dy)):
            self._taken[f"{name}.{tensor}"] = values
            self._metadata[f"format:{name}.{tensor}"] = formats.of(dtype).name
        self._metadata[f"scale:{name}.dy"] = repr(float(attempt.scale))
        self._metadata[f"dx:{name}"] = "true" if computes_dx else "false"
        self._metadata.update({f"{key}:{name}": value for key, value in about.items()})

    def write(self, step):
        """After an attempt: a file, where it is one of those that are dumped."""
        self._guarded("dump", self._write)(step)

    def _write(self, step):
        taken, metadata = self._taken, self._metadata
        self._taken, self._metadata, self._inputs = {}, {}, {}
        if taken:
            self._folder.mkdir(exist_ok=True)
            write_safetensors(self._folder / f"step-{step:08d}.safetensors", taken, metadata)
