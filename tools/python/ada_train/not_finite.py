"""What is said of the tensor in which numbers that are not finite came first: the words of the
program (src/telemetry/not_finite.cpp)."""
from ada_train.coverage import CARRYING
from ada_train.csv_writer import shortest


def name_text(layer, tensor, value):
    """"conv1.y (largest magnitude 70000)"; layer empty: no tensor is known."""
    if not layer:
        return "no rounded tensor: a product or the loss itself"
    name = layer if layer == "input" else f"{layer}.{tensor}"
    return f"{name} (largest magnitude {value})"


def advice_text(layer, tensor, value, scale, step, lost=("", 0)):
    """Whether a loss scale helps, and what would. `lost`: coverage.lost_from_the_start()."""
    scaled = tensor in CARRYING and scale > 0 and layer != ""
    if lost[0] and step > lost[1] and layer != "input" and not scaled:
        return (f"gradients were lost before that: {lost[0]}; a scale that keeps them, or a wider "
                "format of gradients, comes first")
    number = value not in ("", "inf", "-inf", "nan", "-nan")
    if tensor == "w" and not number and step > 1:
        return ("a loss scale does not help: gradients were finite and the weights are not, so the "
                "optimizer's update did it (optimizer.lr; under Adam optimizer.epsilon too)")
    if tensor == "w":
        return ("a loss scale does not help: the weight leaves its format (precision.weights)"
                if number else
                "a loss scale does not help: the weights were so from the start (model.init)")
    if layer == "input":
        return ("a loss scale does not help: the images leave the format before the network "
                "(data.normalize, precision.activations)")
    if tensor == "y":
        return ("a loss scale does not help: it multiplies gradients, and this is of the forward "
                "pass (a smaller optimizer.lr, warm-up, a format with more range)")
    if scaled:
        return (f"a loss scale helps because the tensor carries it: S = {shortest(scale)} is too "
                "large, or the gradient's format too narrow")
    if tensor == "dw":
        return ("a loss scale does not help: the sum over the batch leaves fp32 or its own format "
                "(precision.weight_gradients, a smaller optimizer.lr)")
    return "a smaller optimizer.lr, warm-up or a format with more range may help"
