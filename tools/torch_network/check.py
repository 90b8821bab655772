"""Whether ada-train sees the shapes that were traced."""
import os
import re
import subprocess
import tempfile

from . import check_data


def shapes_problem(program, path, network, task, size, classes):
    """Where --dry-run tells another shape for a layer, in words; "" where all agree. size: of an
    image, (c, h, w), or (tokens,) of a sequence; classes: what the network gives."""
    with open(path, encoding="utf-8") as file:
        model = file.read()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "check.yaml")
        try:
            sections = check_data.sections(task, network, size, classes, folder)
        except ValueError as error:
            return f"--check: {error}"
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"{model}\n{sections}")
        try:
            run = subprocess.run([program, "train", config, "--dry-run"], capture_output=True,
                                 text=True, check=False)
        except OSError as error:
            return f"--check {program}: {error.strerror}"
    if run.returncode != 0:
        return f"{program} --dry-run: {run.stderr.strip()}"
    told = {}
    for line in run.stdout.splitlines():  # "conv1 conv2d 32x32x16 448 ...", of one pixel "10" alone
        found = re.match(r"\s*(\S+)\s+\S+\s+(?:(\d+)x(\d+)x)?(\d+)(?=\s|$)", line)
        if found:
            told.setdefault(found[1], tuple(int(n or 1) for n in found.groups()[1:]))
    for layer in network.layers:
        c, h, w = layer.output.size
        if told.get(layer.name) != (h, w, c):
            return f"{layer.name}: {h}x{w}x{c} as PyTorch has it, {told.get(layer.name)} by --dry-run"
    return ""
