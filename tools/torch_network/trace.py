"""Runs a module on random images and tells of every call of a torch function that it makes: which
one, in which module, at which line of its source. The values are real, so that shape checks, loops
and branches are decided as they would be for images of that size."""
import contextlib
import inspect
import os
import sys

import torch
from torch.overrides import TorchFunctionMode

from .network import CannotExpress
from .views import BATCH

OWN = os.path.dirname(os.path.realpath(__file__))
TORCH = os.path.dirname(os.path.realpath(torch.__file__))


def place_of(frame):
    """The innermost line of a network's own source from `frame` outwards, as "net.py:12"; "" where
    there is none."""
    while frame is not None:
        file = os.path.realpath(frame.f_code.co_filename)
        if not file.startswith((TORCH + os.sep, OWN + os.sep)) and "<" not in file:
            shown = os.path.join(os.path.basename(os.path.dirname(file)), os.path.basename(file))
            at_home = os.path.dirname(file) == os.getcwd()
            return f"{os.path.basename(file) if at_home else shown}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def place_of_error(error):
    """Where `error` was raised, as place_of()."""
    found, trace = "", error.__traceback__
    while trace is not None:
        file = os.path.realpath(trace.tb_frame.f_code.co_filename)
        if not file.startswith((TORCH + os.sep, OWN + os.sep)) and "<" not in file:
            found = f"{os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


class Scopes:
    """Which modules are being called: the innermost last."""

    def __init__(self, module):
        self.paths = {}
        for path, part in module.named_modules():
            self.paths.setdefault(part, path)
        self.modules = [module]
        self.failed = None  # the innermost module in which an error arose

    @property
    def path(self):
        return self.paths.get(self.modules[-1], "")

    @property
    def module(self):
        return self.modules[-1]

    @contextlib.contextmanager
    def followed(self):
        """Inside, calls of modules are followed."""
        plain = torch.nn.Module.__call__

        def call(module, *args, **kwargs):
            if module not in self.paths:  # of another network
                return plain(module, *args, **kwargs)
            self.modules.append(module)
            try:
                return plain(module, *args, **kwargs)
            except Exception:
                self.failed = self.failed or self.path
                raise
            finally:
                self.modules.pop()

        torch.nn.Module.__call__ = call
        try:
            yield
        finally:
            torch.nn.Module.__call__ = plain


class Calls(TorchFunctionMode):
    """Hands every call of a torch function to `seen(function, args, kwargs, result, place)`."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen
        self.fault = None  # an error of `seen`, not of the network

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        try:
            self.seen(function, args, kwargs, result, place_of(sys._getframe(1)))
        except Exception as error:
            self.fault = error
            raise
        return result


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def example(module, size):
    """Random images of `size` (channels, height, width), or tokens where it is their number alone:
    as many different ones as every embedding of `module` takes."""
    if len(size) == 3:
        return torch.randn(BATCH, *size)
    tables = [m.num_embeddings for m in module.modules() if isinstance(m, torch.nn.Embedding)]
    return torch.randint(min(tables, default=2), (BATCH, *size))


def forward(module, given):
    """The module's output. One that gives the logits of all tokens only beside a loss, as nanoGPT's,
    gets targets too."""
    names = inspect.signature(module.forward).parameters
    if not given.is_floating_point() and "targets" in names:
        return module(given, targets=given.clone())
    return module(given)


def trace(module, size, converter):
    """Runs `module` in training on an example of `size` and lets `converter` see its calls. Its
    buffers are put back, and it is left in evaluation."""
    needed = [p for p in inspect.signature(module.forward).parameters.values()
              if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(needed) > 1 and [p.name for p in needed][1:] != ["targets"]:
        raise CannotExpress("", "forward", f"expected one input, the images; found {len(needed)} "
                            f"({', '.join(p.name for p in needed)})")
    before = [(b, b.clone()) for b in module.buffers()]
    scopes = Scopes(module)
    given = example(module, size)
    converter.start(given, scopes)
    calls = Calls(converter.seen)
    module.train()
    try:
        with scopes.followed(), calls:
            output = forward(module, given)
    except Exception as error:  # the network's own code
        if error is calls.fault:
            raise
        what = "image" if len(size) == 3 else "input"
        raise CannotExpress(scopes.failed or "", "forward", f"fails for this size of {what}: "
                            f"{first_line(error)}", place_of_error(error)) from error
    finally:
        module.eval()
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
    return output
