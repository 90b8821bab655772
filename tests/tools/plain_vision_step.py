"""One training step of SegNetBasic or SSD300 in plain PyTorch, fp32:

    python plain_vision_step.py segnet_basic|ssd300 INPUT.safetensors OUTPUT.safetensors

INPUT has the weights by name, `x` [n, c, h, w], `labels` and, for segnet_basic, `class_weights`; for
ssd300 `locations` [n, boxes, 4]. OUTPUT gets `loss`, `grad.<name>` of every weight, and
`state.<name>` of running statistics. How wide ssd300 is the weights say."""
import sys

import numpy
import torch
from torch.nn import functional

import network_step


class Weights:
    """Tensors by name; what is trained asks for a gradient."""

    def __init__(self, tensors):
        self.trained, self.state = {}, {}
        for name in tensors.entries:
            value = torch.from_numpy(numpy.array(tensors[name]))
            if name.endswith((".running_mean", ".running_var")):
                self.state[name] = value.clone()
            elif name.endswith((".weight", ".bias")):
                self.trained[name] = value.clone().requires_grad_()

    def conv(self, x, name, **options):
        return functional.conv2d(x, self.trained[name + ".weight"],
                                 self.trained.get(name + ".bias"), **options)

    def norm(self, x, name, eps):
        return functional.batch_norm(x, self.state[name + ".running_mean"],
                                     self.state[name + ".running_var"],
                                     self.trained[name + ".weight"], self.trained[name + ".bias"],
                                     training=True, momentum=0.1, eps=eps)


def segnet_basic(weights, x):
    eps = 2e-5
    x = functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1)
    kept = []
    for stage in range(1, 5):
        x = weights.conv(x, f"conv{stage}", padding=3)
        x = functional.relu(weights.norm(x, f"conv{stage}_bn", eps))
        kept.append(x.shape)
        x, where = functional.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True)
        kept[-1] = (kept[-1], where)
    for stage in range(4, 0, -1):
        shape, where = kept[stage - 1]
        x = x[:, :, :where.shape[2], :where.shape[3]]
        x = functional.max_unpool2d(x, where, 2, 2, output_size=shape[2:])
        if stage > 1:  # the original works on whole windows: a row or column more for odd sizes
            x = functional.pad(x, (0, shape[3] % 2, 0, shape[2] % 2))
        x = weights.norm(weights.conv(x, f"conv_decode{stage}", padding=3),
                         f"conv_decode{stage}_bn", eps)
    return weights.conv(x, "conv_classifier")


def ssd300(weights, x):
    def conv(x, index, **options):
        return functional.relu(weights.conv(x, f"conv{index}", **options))

    for stage, count in ((1, 2), (2, 2), (3, 3)):
        for i in range(1, count + 1):
            x = conv(x, f"{stage}_{i}", padding=1)
        x = functional.max_pool2d(x, 2, 2, ceil_mode=True)
    for i in range(1, 4):
        x = conv(x, f"4_{i}", padding=1)
    length = torch.sqrt((x * x).sum(1, keepdim=True)) + 1e-5
    sources = [x / length * weights.trained["norm4.weight"].reshape(1, -1, 1, 1)]
    x = functional.max_pool2d(x, 2, 2, ceil_mode=True)
    for i in range(1, 4):
        x = conv(x, f"5_{i}", padding=1)
    x = functional.max_pool2d(x, 3, 1, padding=1)
    x = conv(conv(x, "6", padding=6, dilation=6), "7")
    sources.append(x)
    for stage in range(8, 12):
        second = {"stride": 2, "padding": 1} if stage < 10 else {}
        x = conv(conv(x, f"{stage}_1"), f"{stage}_2", **second)
        sources.append(x)

    def joined(head, values):
        parts = [weights.conv(source, f"multibox.{head}.{i}", padding=1)
                 for i, source in enumerate(sources)]
        return torch.cat([p.permute(0, 2, 3, 1).reshape(len(x), -1, values) for p in parts], 1)

    boxes = weights.trained["multibox.loc.0.bias"].numel() // 4
    classes = weights.trained["multibox.conf.0.bias"].numel() // boxes
    return joined("loc", 4), joined("conf", classes)


def pixel_loss(scores, labels, class_weights):
    losses = functional.cross_entropy(scores, labels, weight=class_weights, ignore_index=-1,
                                      reduction="sum")
    return losses / (labels >= 0).sum()


def multibox_loss(locations, scores, labels, targets):
    positive = labels > 0
    losses = functional.smooth_l1_loss(locations[positive], targets[positive], reduction="sum")
    entropy = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(),
                                       reduction="none").reshape(labels.shape)
    for image in range(len(labels)):
        hard = entropy[image].detach().masked_fill(positive[image], -1)
        chosen = hard.argsort(descending=True, stable=True)[:3 * int(positive[image].sum())]
        losses = losses + entropy[image][positive[image]].sum() + entropy[image][chosen].sum()
    return losses / positive.sum()


def main(network, source, target):
    tensors = network_step.Tensors(source)
    weights = Weights(tensors)

    def given(name):
        return torch.from_numpy(numpy.array(tensors[name]))

    labels = given("labels").long()
    if network == "segnet_basic":
        loss = pixel_loss(segnet_basic(weights, given("x")), labels, given("class_weights"))
    else:
        locations, scores = ssd300(weights, given("x"))
        loss = multibox_loss(locations, scores, labels, given("locations"))
    loss.backward()
    out = {"loss": loss.detach().reshape(1).numpy()}
    out |= {"grad." + name: value.grad.numpy() for name, value in weights.trained.items()}
    out |= {"state." + name: value.numpy() for name, value in weights.state.items()}
    network_step.write_arrays(target, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
