"""The table of what operands in block-scaled formats cost: time and processor time of a step, beside
the same program's bf16 and beside the other program's mode of the same format."""
import statistics

import markdown

HEADER = ["model", "batch", "mode", "ms a step", "CPU ms a step: median", "lowest, highest",
          "CPU, to its bf16", "CPU, to ada-train's of this format"]
OURS = {"torch-mxfp8": "ada-mxfp8", "torch-mxfp8-torchao": "ada-mxfp8", "torch-nvfp4": "ada-nvfp4",
        "torch-bf16": "ada-bf16"}


def ratio(one, other):
    """Of the rounds, which were taken in turns: median, lowest and highest."""
    if not one or not other:
        return ""
    of = [a / b for a, b in zip(one, other)]
    return f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})"


def table(measured, label):
    """`measured`: as compare.measure_all gives it, of images."""
    rows = []
    for title, batch, results, _ in measured:
        for mode, result in results.items():
            if not result.cpu:
                continue
            cpu = [1e3 * seconds for seconds in result.cpu]
            base = results.get(mode.partition("-")[0] + "-bf16")
            ours = results.get(OURS.get(mode))
            rows.append([
                title, str(batch), label(mode), markdown.number(1e3 * batch / result.speed()),
                markdown.number(statistics.median(cpu)),
                f"{markdown.number(min(cpu))}, {markdown.number(max(cpu))}",
                ratio(result.cpu, base.cpu if base else None),
                ratio(result.cpu, ours.cpu if ours else None)])
    return markdown.table(HEADER, rows)
