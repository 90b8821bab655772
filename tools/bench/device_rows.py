"""The table of models x batches x modes on a GPU: speed, and its ratios to PyTorch's autocast to
fp16 run eagerly and to PyTorch's fastest mode."""
import markdown

BASE = "torch-fp16"
HEADER = ["model", "batch", "mode", "images/s", "lowest, highest", "to PyTorch fp16 autocast",
          "to PyTorch's fastest", "TFLOP/s"]


def rows(title, batch, results, training_flop, label):
    """Cells of one model's rows. `results`: mode -> compare.Measured; `label`: mode -> words."""
    torch = [result.speed() for mode, result in results.items() if mode.startswith("torch-")]
    fastest = max(torch, default=None)
    base = results[BASE].speed() if BASE in results else None
    cells = []
    for mode, result in results.items():
        speed = result.speed()
        cells.append([
            title, str(batch), label(mode), markdown.number(speed),
            f"{markdown.number(min(result.speeds))}, {markdown.number(max(result.speeds))}",
            f"{speed / base:.2f}" if base else "", f"{speed / fastest:.2f}" if fastest else "",
            markdown.number(speed * training_flop * 1e-12)])
    return cells


def table(header, measured, label):
    """`measured`: (title, batch, results, operations of an image or token) of each model and
    batch."""
    return markdown.table(header, [row for title, batch, results, flop in measured
                                   for row in rows(title, batch, results, flop, label)])
