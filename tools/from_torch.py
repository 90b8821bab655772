#!/usr/bin/env python3
"""Runs a torch.nn.Module once and writes it as ada-train's network: net.yaml, the `model:` section
of a configuration, and net.safetensors, the weights. Layers have PyTorch's names. Shape checks and
branches are decided as they are for images of that size. torch.safetensors is for to_torch.py, which
takes trained weights back.

MODULE:CALLABLE is a function or class that gives the module (torchvision.models:resnet18; with
mynet.py in the working directory, mynet:make); --arg gives it arguments. Dropout, stochastic depth
and batch norm keep what they do in training and in evaluation. Before anything is written, torch
itself runs the layers beside the module: outputs, gradients and running statistics must agree.
What has no layer in ada-train is an error that names module, operation and line, and what would do.

Exit status: 0; 1 packages missing; 2 command line, or the callable fails; 3 the network cannot be
expressed; 6 cannot write.
"""
import argparse
import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from help_format import WrappedHelp  # noqa: E402

EXAMPLES = """examples:
  tools/from_torch.py torchvision.models:resnet18 --input 3x224x224 --output net
  tools/from_torch.py torchvision.models:mobilenet_v2 --arg weights=IMAGENET1K_V2 --input 224 --output net
  tools/from_torch.py timm:create_model --arg model_name=regnety_002 --arg num_classes=10 --input 64 --output net
  tools/from_torch.py torchvision.models:googlenet --no-aux --arg init_weights=False --input 224 --output net
  tools/from_torch.py mynet:make --arg width=32 --input 1x28x28 --output net --check build/ada-train
  tools/from_torch.py mygpt:make --tokens 128 --output net
then, in a configuration:
  model: {file: net/net.yaml}
"""


def image_size(text):
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(parts) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text}: expected CHANNELSxHEIGHTxWIDTH, as 3x224x224, "
                                         "or the side of a square RGB image, as 224")
    numbers = [int(part) for part in parts]
    return tuple(numbers) if len(numbers) == 3 else (3, numbers[0], numbers[0])


def token_count(text):
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of tokens, 2 or more")
    return (int(text),)


def callable_name(text):
    module, colon, name = text.partition(":")
    if not module or not colon or not name:
        raise argparse.ArgumentTypeError(f"{text}: expected MODULE:CALLABLE, as "
                                         "torchvision.models:resnet18")
    return module, name


def keyword(text):
    key, equals, value = text.partition("=")
    if not key.isidentifier() or not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE, as num_classes=10")
    return key, value


def parser():
    result = argparse.ArgumentParser(
        prog="from_torch.py", formatter_class=WrappedHelp,
        description=__doc__, epilog=EXAMPLES)
    result.add_argument("callable", type=callable_name, metavar="MODULE:CALLABLE",
                        help="what gives the torch.nn.Module")
    size = result.add_mutually_exclusive_group(required=True)
    size.add_argument("--input", type=image_size, metavar="CxHxW",
                      help="size of an image: 3x224x224, or 224")
    size.add_argument("--tokens", type=token_count, metavar="T", dest="input",
                      help="of a language model: how many tokens a sequence has")
    result.add_argument("--output", "-o", required=True, metavar="FOLDER",
                        help="where net.yaml and net.safetensors go; made where it is missing")
    result.add_argument("--arg", action="append", default=[], type=keyword, metavar="KEY=VALUE",
                        help="an argument of the callable, VALUE as in YAML or None, True, "
                             "False: num_classes=10, weights=DEFAULT, aux_logits=False")
    result.add_argument("--no-aux", action="store_true",
                        help="of several outputs in training keep the first alone: without "
                             "auxiliary heads")
    result.add_argument("--untie", action="store_true",
                        help="a module that is called N times becomes N layers, whose weights start "
                             "alike and are trained apart")
    result.add_argument("--seed", type=int, default=0, metavar="N",
                        help="of torch, before the callable is called; default: 0")
    result.add_argument("--no-weights", action="store_true", help="write net.yaml alone")
    result.add_argument("--check", metavar="ADA_TRAIN",
                        help="this program's --dry-run must tell the traced shapes")
    return result


def fail(code, message):
    print(f"from_torch.py: {message}", file=sys.stderr)
    sys.exit(code)


def argument(text, yaml):
    """VALUE of --arg: as in YAML, but None, True and False as in Python."""
    words = {"None": None, "True": True, "False": False}
    return words[text] if text in words else yaml.safe_load(text)


def make_module(options, torch, yaml):
    """What the callable gives."""
    module_name, name = options.callable
    sys.path.insert(1, os.getcwd())
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        fail(2, f"{module_name}:{name}: {error}")
    torch.manual_seed(options.seed)
    arguments = {key: argument(value, yaml) for key, value in options.arg}
    try:
        module = found if isinstance(found, torch.nn.Module) else found(**arguments)
    except Exception as error:  # the caller's own code
        fail(2, f"{module_name}:{name}: {type(error).__name__}: {error}")
    if not isinstance(module, torch.nn.Module):
        fail(2, f"{module_name}:{name} gives {type(module).__name__}; expected a torch.nn.Module")
    for path, part in module.named_modules():
        if type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None):
            fail(3, f"{module_name}:{name}: {path or '(the module itself)'}: torch.compile hides what "
                    "it calls; expected the module as it was before")
    if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
        module(torch.zeros(2, *options.input, dtype=torch.float32 if len(options.input) == 3
                           else torch.long))  # which gives them their sizes
    return module


def without_aux(module):
    """Takes auxiliary heads away as torchvision itself does where aux_logits is False; their
    names."""
    heads = [name for name in ("aux1", "aux2", "AuxLogits", "aux_classifier")
             if getattr(module, name, None) is not None]
    for name in heads:
        setattr(module, name, None)
    if getattr(module, "aux_logits", False):
        module.aux_logits = False
    return heads


def remarks(module, converter, dropped, task, size):
    """What the user should know of a network that came over."""
    network = converter.network
    used = {id(stored[0]) for stored in network.tensors().values()}
    used.update(converter.touched - {id(p) for p in module.parameters()})
    tensors = [*module.named_parameters(), *module.named_buffers()]
    left = [name for name, t in tensors
            if id(t) not in used and not name.endswith("num_batches_tracked")]
    weights = {id(stored[0]) for name, stored in network.tensors().items()
               if not name.endswith((".running_mean", ".running_var"))}
    frozen = [name for name, t in tensors if not t.requires_grad and id(t) in weights]
    if dropped:
        yield f"left out what only training has: {', '.join(dropped)}"
    output = network.layers[-1].output
    if task == "segmentation" and (output.height, output.width) != size[1:]:
        yield (f"it gives {output.height}x{output.width} pixels for images of {size[1]}x{size[2]}; "
               "task: segmentation wants as many as the label images have")
    if left:
        yield f"left out {len(left)} tensors that the output does not need: {', '.join(left[:4])}" + (
            " ..." if len(left) > 4 else "")
    if frozen:
        yield (f"{len(frozen)} tensors have requires_grad=False; ada-train trains them like all "
               f"others: {', '.join(frozen[:4])}" + (" ..." if len(frozen) > 4 else ""))


def main():
    options = parser().parse_args()
    try:
        import safetensors  # noqa: F401
        import torch
        import yaml
    except ImportError as error:
        fail(1, f"{error}; needs torch, safetensors and PyYAML (and torchvision for its networks)")
    import whole_file
    from torch_network import check, convert, network, output, trace, verify, write
    module = make_module(options, torch, yaml).to("cpu", torch.float32)
    name = ":".join(options.callable)
    state = module.state_dict()
    heads = without_aux(module) if options.no_aux else []
    try:
        converter = convert.Converter(module, options.untie)
        given = trace.trace(module, options.input, converter)
        ends = output.Output(converter, given, options.no_aux)
        layers = converter.network
        verify.verify(module, layers, options.input, ends.names)
    except network.CannotExpress as error:
        fail(3, f"{name}: {error}")
    size = "x".join(map(str, options.input))
    size = f"--input {size}" if len(options.input) == 3 else f"--tokens {size}"
    made_by = " ".join([name, *(f"--arg {k}={v}" for k, v in options.arg),
                        *(["--no-aux"] if options.no_aux else []),
                        *(["--untie"] if options.untie else []), size])
    folder = options.output
    refused = whole_file.refusal(os.path.join(folder, "net.yaml"))
    if refused:
        fail(2, f"--output {refused}")
    try:
        os.makedirs(folder, exist_ok=True)
        if options.no_weights and layers.constants():
            fail(3, f"{name}: --no-weights: the constants of {layers.constants()[0]} differ between "
                    "channels and stand in net.safetensors alone")
        weights = None if options.no_weights else os.path.join(folder, "net.safetensors")
        if weights:
            write.write_tensors(layers, weights)
            write.write_rest(state, layers, os.path.join(folder, "torch.safetensors"))
        text = write.model_text(layers, ends.classes, f"tools/from_torch.py {made_by}",
                                weights and write.plain(weights))
        write.write_text(text, os.path.join(folder, "net.yaml"))
    except OSError as error:
        fail(6, f"{error.filename or folder}: {error.strerror or error}")
    for remark in remarks(module, converter, heads + ends.dropped, ends.task, options.input):
        print(f"from_torch.py: {remark}", file=sys.stderr)
    if options.check:
        problem = check.shapes_problem(options.check, os.path.join(folder, "net.yaml"), layers,
                                       ends.task, options.input, ends.classes)
        if problem:
            fail(3, f"{name}: {problem}")
    count = sum(t.numel() for t, _ in layers.tensors().values()
                if isinstance(t, torch.nn.Parameter))
    print(f"{os.path.join(folder, 'net.yaml')}: {len(layers.layers)} layers, {count} parameters, "
          f"{ends.classes} classes" + ("" if ends.task == "classification" else f", task: {ends.task}"))


if __name__ == "__main__":
    main()
