#!/usr/bin/env python3
"""Writes what a run learnt as an ONNX file: `images` [n, channels, height, width] in (of a language
model `tokens` [n, tokens]), `logits` out (of a detector `locations` and `scores`), in fp32, as the
network computes in evaluation. CHECKPOINT is a run's folder (its newest checkpoint) or a safetensors
file with its .json beside it; layers come from the configuration in it. Needs onnx, numpy,
safetensors and PyYAML.

Exit status: 0; 1 packages missing; 2 command line; 3 a file that is damaged, or a network that ONNX
cannot express; 6 cannot write.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from help_format import WrappedHelp  # noqa: E402

EXAMPLES = """examples:
  tools/to_onnx.py runs/a --output trained.onnx
  tools/to_onnx.py runs/a --best --normalize --output trained.onnx
then, in Python:
  onnxruntime.InferenceSession("trained.onnx").run(None, {"images": images})
"""


def parser():
    result = argparse.ArgumentParser(
        prog="to_onnx.py", formatter_class=WrappedHelp,
        description=__doc__, epilog=EXAMPLES)
    result.add_argument("checkpoint", metavar="CHECKPOINT", help="a run's folder, or a file")
    result.add_argument("--output", "-o", required=True, metavar="FILE", help="*.onnx")
    result.add_argument("--normalize", action="store_true",
                        help="images are pixels from 0 to 1; the graph takes the data set's mean "
                             "and standard deviation off itself. Default: images are normalized")
    result.add_argument("--best", action="store_true", help="of a folder: the best checkpoint")
    result.add_argument("--average", action="store_true", help="the averaged weights (train.ema)")
    result.add_argument("--model", metavar="YAML",
                        help="a file with the `model:` section, where the checkpoint's has `zoo`")
    return result


def fail(code, message):
    print(f"to_onnx.py: {message}", file=sys.stderr)
    sys.exit(code)


def section(options, state, found, checkpoint, layers):
    if not options.model:
        return layers.model_of(state["config"], f"the configuration in {found}")
    try:
        with open(options.model, encoding="utf-8") as file:
            return layers.model_of(file.read(), options.model)
    except (OSError, UnicodeDecodeError) as error:
        raise checkpoint.CannotRead(f"{options.model}: {error}") from error


def main():
    options = parser().parse_args()
    try:
        import onnx
        from trained_network import checkpoint, layers, onnx_graph
    except ImportError as error:
        fail(1, f"{error}; needs onnx, numpy, safetensors and PyYAML")
    import whole_file
    try:
        found = checkpoint.find(options.checkpoint, options.best)
        read = [found, found.removesuffix(".safetensors") + ".json", options.model or found]
        refused = whole_file.refusal(options.output, read)
        if refused:
            fail(2, f"--output {refused}")
        state = checkpoint.state_of(found)
        if "config" not in state or "input" not in state:
            raise checkpoint.CannotRead(f"{found}: no checkpoint of ada-train lies beside it as "
                                        ".json")
        image = state["input"]
        size = (image["channels"], image["height"], image["width"])
        network, outputs = section(options, state, found, checkpoint, layers)
        of_tokens = any(layer["kind"] == "embedding" for layer in network)
        if of_tokens and options.normalize:
            fail(2, "--normalize is of images; the network is given tokens")
        weights = checkpoint.weights_of(found, options.average)
        model = onnx_graph.model_of(network, outputs, weights, size,
                                    (image["mean"], image["std"]) if options.normalize else None)
        onnx.checker.check_model(model)
    except checkpoint.CannotRead as error:
        fail(3, error)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError,
            onnx.checker.ValidationError) as error:  # of a file that no run wrote
        fail(3, f"{options.model or found}: no network that can be written ({type(error).__name__}: {error})")
    names = {"class_names": "\n".join(image.get("class_names", []))}
    onnx.helper.set_model_props(model, {"context": str(size[1])} if of_tokens else {
        "mean": " ".join(map(str, image["mean"])), "std": " ".join(map(str, image["std"])), **names})
    try:
        whole_file.replace(options.output, lambda temporary: onnx.save(model, temporary))
    except OSError as error:
        fail(6, f"{options.output}: {error.strerror or error}")
    given = f"tokens, up to {size[1]}" if of_tokens else f"images {'x'.join(map(str, size))}"
    print(f"{options.output}: {len(network)} layers, {given}, of {found}")


if __name__ == "__main__":
    main()
