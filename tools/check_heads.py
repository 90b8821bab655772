#!/usr/bin/python3
"""Checks the comments of C++ files that explain more than a line, and what a header holds:

* Every file begins with a comment that says what it is for: its head.
* Every other comment in the first column stands at what it explains: no blank line, closing brace
  or end of file follows it. Exempt are titles of sections, one line of a few words without a full
  stop:  // --- cuDNN ---
* A header of src/ defines one class. ONE_IDEA has the headers whose classes are one idea, and why; KNOWN
  those that are still to be split. Both may only shrink.
* No row of a drawing or table is broken, with its end at the beginning of the next line, as
  clang-format leaves one that is too long.

usage: tools/check_heads.py [FOLDER]    (default: src and tests of this tree)
Prints one line per finding, with file:line where it has one, and exits 1 if there are any.
"""
import pathlib
import re
import sys

# Headers that define several classes which are one idea: the classes, and why they are one.
ONE_IDEA = {
    "src/backend/cpu/matmul/pack/batch_operands.h": (
        "BatchOperand BatchOperands", "the operands of a layer, and one of them"),
    "src/backend/cpu/matmul/plan/accumulated_chunks.h": (
        "AccumulatedWindow WeightPanels AccumulatedChunks",
        "sums in the order of their products, and both of their operands"),
    "src/backend/cpu/matmul/plan/packed_convolution.h": (
        "ChunkConvolution PackedConvolution", "an interface, and its implementation"),
    "src/backend/cpu/matmul/plan/partial_gradients.h": (
        "PartialGradients AmxWeightGradient DirectWeightGradient",
        "an interface, and its two implementations of one layout"),
    "src/backend/cpu/matmul/plan/winograd.h": (
        "WinogradBatches WinogradConvolution WinogradGradient SparseSums",
        "one algorithm: its tiles, its two passes, and what it must not compute"),
    "src/backend/compare/checker.h": (
        "PairedMemory Checker", "what two backends wrote: where it lies, and whether it agrees"),
    "src/backend/cuda/device/cudnn_plans.h": (
        "PlanTrial CublasMatmuls", "plans of the two libraries"),
    "src/backend/cuda/ops/pass_ops.h": (
        "PassStore Recordings", "a pass: its values, and its replay"),
    "src/backend/cuda/matmuls.h": (
        "Matmul BatchedMatmul Matmuls", "planned matmuls, and the store of all plans"),
    "src/backend/cuda/matmul/matmul_plans.h": (
        "BatchOperand BatchOperands PlannedMatmul MatmulPlans",
        "the matmuls of a layer: their operands of a batch, and their plans"),
    "src/backend/cuda/matmul/weight_copies.h": (
        "RefreshedWeights WeightRefresh WeightOperand WeightCopies",
        "copies of weights: what a product rounds of one, and one launch for all"),
    "src/backend/cuda/memory.h": (
        "Staging Memory SharedBlocks Scratch Pinned", "memory: sent, owned, shared, for one call"),
    "src/backend/cuda/ops/attention_memory.h": (
        "ScoreChunks AttentionMemory", "memory of an attention, and the chunks that lie in it"),
    "src/backend/cuda/rounding/alpha_rule.h": (
        "JoinedRule JoinedTail AlphaRule", "a rule and its decision, of one process or of all"),
    "src/backend/cuda/stream.h": (
        "Recording Event CopyStream Stream", "a stream, and what only has a meaning within one"),
    "src/backend/op.h": (
        "Op LossOp ByteFeed InputOp ImageSource", "the interfaces of all that a graph runs"),
    "src/backend/update.h": (
        "UpdateOp AverageOp", "the interfaces of what changes weights after a step"),
    "src/io/tensor_files/safetensors.h": (
        "SafetensorsFile SafetensorsWriter", "one file format, read and written"),
    "src/data/file_fault.h": (
        "FaultyFile BrokenLabels", "an error, and one that is derived from it"),
    "src/data/images/random_changes.h": (
        "Draws StreamDraws", "an interface, and its implementation for training"),
    "src/data/tensors/tensor_file.h": (
        "MappedFile TensorFile", "a file in memory, and one that holds arrays"),
    "src/data/picture_files.h": (
        "PictureHeaders NameList PictureFiles", "a set of picture files, and its two lists"),
    "src/graph/builder.h": (
        "OpMaker Builder", "a graph is made: its ops, and all the rest"),
    "src/graph/graph.h": (
        "SharedArena TensorObserver GradientReducer Graph",
        "the graph, its memory, and who sees its tensors and gradients"),
    "src/scaling/policies/dynamic_machine.h": (
        "ScaleArithmetic DynamicMachine", "a dynamic preset: when its scale moves, and how"),
    "src/scaling/policies/policy.h": (
        "Policy RetryRule", "what decides about an attempt, and what a skipped one leads to"),
    "src/step/step_observer.h": (
        "LogSchedule AttemptLog StepObserver StepObservers",
        "who is told of single steps, and which of them are written down"),
    "src/step/trainer.h": (
        "PhaseClock Trainer", "a step, and the parts that only it has"),
    "src/telemetry/csv.h": ("CsvRow CsvFile", "a CSV file, and one row of it"),
    "src/telemetry/csv_reader.h": (
        "CsvReader CsvFollower", "a CSV file, read once or while it grows"),
    "src/telemetry/progress.h": (
        "ProgressLine Progress EvaluationProgress", "the progress line, of a run, of an evaluation"),
    "src/telemetry/progress_text.h": (
        "RateMeter Smoothed", "the two smoothed numbers of a progress line"),
    "src/telemetry/totals.h": (
        "RunTotals LayerTotals", "the totals of a run: of the whole, and by layer"),
    "src/judge/scenario.h": (
        "ScenarioPolicy Scenario", "a scenario, and the policy that moves its scales"),
}

# Headers that define several classes and are still to be split.
KNOWN = {
    "src/cli/output.h": "OutputPaths TerminalText",
    "src/data/sample_sources.h": "ImageStore TokenSet",
    "src/study/replay/attempts.h": "TraceSource Attempts",
    "src/step/attempt/attempt.h": "BatchCounts AttemptFacts",
    "src/run/evaluate/predictions.h": "PredictionsFile ClassTable OutputsFile",
    "src/run/evaluate/reports.h": "PhotoReport TaskReport",
    "src/run/metrics/prediction.h": "PredictionMaker PredictionFolder",
    "src/record/step_log.h": "RepeatedNotes StepEvents StepLog",
    "src/vision/metrics.h": "AveragePrecision Confusion",
}

SUFFIXES = {".cpp", ".h", ".cu", ".cuh", ".inc"}
WIDTH = 100  # .clang-format: ColumnLimit
TITLE = re.compile(r"// --- (?P<words>[^.]+?) -*---")
TITLE_WORDS = 8
# Comments to tools, which explain nothing.
DIRECTIVE = re.compile(r"// (clang-format (on|off)|NOLINT\w*)")
CLASS = re.compile(r"^class (?:\[\[[\w:]+\]\] |alignas\(\w+\) )*(\w+)\b[^;{]*\{", re.MULTILINE)
# A row of a table in a comment: indented, with columns; and a line that may be its broken end.
ROW = re.compile(r"\s*//( {2,})\S.*?\S {2,}\S.*")
BROKEN_END = re.compile(r"\s*//( +)[a-z][\w ,.)'-]*")


def comments_of(lines):
    """Ranges of lines, begin to end, that are comments in the first column."""
    begin = None
    for i, line in enumerate([*lines, ""]):
        if line.startswith("//") and begin is None:
            begin = i
        elif not line.startswith("//") and begin is not None:
            yield begin, i
            begin = None


def belongs(comment, following):
    """Whether a comment that is not the head has its place, by the line that follows it."""
    if len(comment) == 1:
        title = TITLE.fullmatch(comment[0])
        if title:
            return len(title["words"].split()) <= TITLE_WORDS
        if DIRECTIVE.match(comment[0]):
            return True
    return following.strip() != "" and not following.startswith("}")


def broken_rows(lines):
    """Numbers of lines of tables whose end the formatter has put on the next line."""
    for i, (line, following) in enumerate(zip(lines, lines[1:])):
        row, end = ROW.fullmatch(line), BROKEN_END.fullmatch(following)
        if row and end and row[1] == end[1]:
            word = following[end.end(1):].split()[0]
            if len(line) + 1 + len(word) > WIDTH and "  " not in following[end.end(1):]:
                yield i


def findings_of(name, text):
    """What is wrong with the comments of a file, without what its classes are."""
    lines = text.split("\n")
    if not lines[0].startswith(("//", "/*")):
        yield f"{name}:1: no head: the file begins without a comment that says what it is for"
    for begin, end in comments_of(lines):
        following = lines[end] if end < len(lines) else ""
        if begin > 0 and not belongs(lines[begin:end], following):
            yield f"{name}:{begin + 1}: this comment belongs to no declaration: {lines[begin][3:]}"
    for i in broken_rows(lines):
        yield f"{name}:{i + 1}: the formatter has broken this row: {lines[i + 1].strip()[3:].strip()}"


def several_classes(files):
    """By header: the classes that it defines, where they are several."""
    found = {}
    for name, text in files.items():
        is_header = name.endswith((".h", ".cuh")) and not name.startswith("tests/")
        classes = CLASS.findall(text) if is_header else []
        if len(classes) > 1:
            found[name] = " ".join(classes)
    return found


def files_of(folder, prefix):
    """The texts of a folder's C++ files by name."""
    return {prefix + path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES}


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    allowed = {}
    if len(sys.argv) == 2:
        folder = pathlib.Path(sys.argv[1])
        if not folder.is_dir():
            print(f"check_heads.py: {folder} is no folder", file=sys.stderr)
            return 2
        files = files_of(folder, "")
    else:
        root = pathlib.Path(__file__).resolve().parent.parent
        files = files_of(root / "src", "src/") | files_of(root / "tests", "tests/")
        allowed = {name: classes for name, (classes, _) in ONE_IDEA.items()} | KNOWN
    findings = [finding for name, text in files.items() for finding in findings_of(name, text)]
    found = several_classes(files)
    findings += [f"{name}: defines several classes: {classes}"
                 for name, classes in found.items() if allowed.get(name) != classes]
    findings += [f"tools/check_heads.py: {name} no longer defines {classes}"
                 for name, classes in allowed.items() if found.get(name) != classes]
    print("".join(finding + "\n" for finding in findings), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
