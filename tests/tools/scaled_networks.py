"""LeNet and ResNet-20 in PyTorch with the names of ada-train's zoo, and the same step of both
programs: from the same weights, over the batch that ada-train's dump says."""
import gzip
import pathlib
import subprocess

import safetensors_file
import torch
from torch import nn
from torch.nn import functional

SHAPES = {"lenet": (1, 28), "resnet20": (3, 32)}
CONFIG = """
data: {{dataset: synthetic, batch_size: {batch}, synthetic: {{height: {size}, width: {size},
  channels: {channels}, classes: 10, train: 64, test: 16}}}}
model: {{zoo: {zoo}, init: {{weights: {weights}, require_all: true}}}}
precision: {precision}
scaling: {scaling}
optimizer: {{kind: sgd, lr: 0.005}}
evaluate: {{every_epochs: 0}}
train: {{max_steps: {steps}}}
log: {{every: 1, statistics: [y, w, dx, dy, dw], dump_every: 1, dump: [conv1, loss]}}
"""


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2, self.add, self.relu2 = nn.BatchNorm2d(outputs), Add(), nn.ReLU()
        self.side = (outputs - inputs) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        if self.stride != 1:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.side, self.side))
        return self.relu2(self.add(y, x))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.relu1 = nn.ReLU()
        for i, (before, width) in enumerate(((16, 16), (16, 32), (32, 64)), 1):
            setattr(self, f"stage{i}", nn.Sequential())
            for j in range(1, 4):
                getattr(self, f"stage{i}").add_module(
                    f"block{j}", Block(before if j == 1 else width, width))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(64, 10)

    def forward(self, x):
        x = self.stage3(self.stage2(self.stage1(self.relu1(self.bn1(self.conv1(x))))))
        return self.fc(self.pool(x).flatten(1))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.relu1 = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU()
        self.pool1, self.pool2 = nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.conv2, self.relu2 = nn.Conv2d(6, 16, 5), nn.ReLU()
        self.fc1, self.relu3 = nn.Linear(400, 120), nn.ReLU()
        self.fc2, self.relu4, self.fc3 = nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool2(self.relu2(self.conv2(self.pool1(self.relu1(self.conv1(x))))))
        return self.fc3(self.relu4(self.fc2(self.relu3(self.fc1(x.flatten(1))))))


class GoldenLeNet(nn.Module):
    """That of tests/golden/steps."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5, padding=2), nn.Conv2d(8, 16, 3, padding=1)
        self.bn2, self.fc1, self.fc2 = nn.BatchNorm2d(16), nn.Linear(784, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def load(net, path, names=None):
    """The weights of a safetensors file; `names`: of those that the network calls otherwise."""
    found = {(names or {}).get(key, key): torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
             for key, (shape, data) in safetensors_file.read(path).items()}
    known = net.state_dict()
    wrong = [key for key, x in found.items() if key not in known or known[key].shape != x.shape]
    if wrong:
        raise ValueError(f"{path}: {wrong} are not the network's")
    net.load_state_dict(found, strict=False)
    return net


def cifar(path, count):
    """Images and labels of one of CIFAR-10's binary files, normalised."""
    raw = torch.frombuffer(bytearray(path.read_bytes()[:3073 * count]),
                           dtype=torch.uint8).reshape(count, 3073)
    pixels = raw[:, 1:].reshape(count, 3, 32, 32).float() / 255
    mean, deviation = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (
        (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)))
    return (pixels - mean) / deviation, raw[:, 0].long()


def fashion(folder, count):
    """The same of Fashion-MNIST's training set."""
    images, labels = (gzip.decompress((folder / f"train-{kind}-ubyte.gz").read_bytes())
                      for kind in ("images-idx3", "labels-idx1"))
    pixels = torch.frombuffer(bytearray(images[16:16 + 784 * count]), dtype=torch.uint8)
    return ((pixels.reshape(count, 1, 28, 28).float() / 255 - 0.2860) / 0.3530,
            torch.frombuffer(bytearray(labels[8:8 + count]), dtype=torch.uint8).long())


def made(name, seed=3):
    torch.manual_seed(seed)
    return {"lenet": LeNet, "resnet20": ResNet20}[name]()


def ada_train(binary, place, name, net, precision, scaling, steps=1, batch=16):
    """Trains the network by ada-train in place/run."""
    safetensors_file.write(place / "start.safetensors", {
        key: (x.shape, x.numpy().tobytes()) for key, x in net.state_dict().items()
        if x.dtype == torch.float32})
    channels, size = SHAPES[name]
    (place / "network.yaml").write_text(CONFIG.format(
        zoo=name, weights=place / "start.safetensors", batch=batch, size=size, channels=channels,
        precision=precision, scaling=scaling, steps=steps))
    done = subprocess.run([binary, "--config", place / "network.yaml", "--output", place / "run"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return place / "run"


def batches(run, steps=1):
    """Images and labels as ada-train had them: softmax's gradient is negative at the label."""
    for step in range(1, steps + 1):
        dump = safetensors_file.read(pathlib.Path(run) / "dump" / f"step-{step:08d}.safetensors")
        shape, data = dump["conv1.x"]
        _, gradient = dump["loss.dx"]
        yield (torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape),
               torch.frombuffer(bytearray(gradient), dtype=torch.float32).reshape(-1, 10).argmin(1))
