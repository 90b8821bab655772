#!/usr/bin/python3
"""Checks that code and comments use the field's plain words in American spelling: names and sentence
starts that nobody outside of this project would guess are kept out.

usage: tools/check_words.py [FOLDER]    (default: this tree; its src/, tests/, tools/ and pages)
Prints one line per finding, file:line, with the word to use instead, and exits 1 if there are any.
What stands in quotes is not looked at: texts that the program prints are its interface.
"""
import functools
import pathlib
import re
import sys

# Names of C++ that are kept out: a pattern of the whole name, what to say instead, the folder in
# which that holds ("": everywhere).
NAMES = (
    (r"k?Lies(As)?", "StorageType", ""),
    (r"eights|(\w+_)?Eight(Floats|Codes|Channels)|fours|Four(Floats|Codes|Words)", "vec8, vec4", ""),
    (r"Beside|beside_", "SideStream", "src/backend"),
    (r"Lane|lane_", "CopyStream", "src/backend/cuda/stream.h"),
    (r"(y_)?largest_left_?|(takes|leaves)_largest|Leaves?Largest|LargestNote", "deferred amax", ""),
    (r"[Rr]emarks_?", "diagnostic lines", ""),
    (r"SeenByHost", "Pinned", ""),
    (r"[Pp]ack_?[Rr]ecords\w*", "packed input", ""),
    (r"of_(parts|floats|pairs)", "on_bf16_split, on_fp32, on_bf16_dot", "src/backend/cpu"),
    (r"Tile(Kernels|Chunks|Convolution|Frame|OfRows)\w*|HasTiles", "kernels, row block, AMX", ""),
    (r"remainders?", "stride phase", "src/backend/cpu/matmul"),
    (r"ImagesTogether|SideBySide", "interleaved images", ""),
    (r"Declined|Redo(Forward|Backward|Weights)", "fp32 fallback", "src/backend/cpu"),
    (r"\w*UnitNorm\w*|unit_norm\w*", "grouped norm", ""),
    (r"Product(Spec|Op|Kind|Geometry|Request|Plans|Rounding|Arguments|Case)\w*"
     r"|(Chunk|Planned|Naive|Cublas|Host|Device|Compared)Products?", "matmul", ""),
    (r"Shared(Gradients|Device)|Check\w*Alike", "distributed, consistency", ("src/step", "src/record", "src/run")),
    (r"Verdict|[Oo]nlookers?|\w+Judge|JudgeImage", "metrics, result, callbacks", ("src/step", "src/record", "src/run")),
    (r"truth", "ground truth, labels", "src/vision"),
    (r"(\w+_)?own_scales?_?|OwnScales?", "per-tensor scale", ""),
    (r"IdlePatterns", "unused globs", ""),
    (r"GradientTaker", "GradientReducer", ""),
    (r"\w*Unit(Args|Hat|Dx|Geometry|Lengths|Statistics|Sums|Threads)|UnitsAlong|AlongUnit|kUnitLanes", "norm group", ""),
    (r"Taken|AsTaken", "operand, layout", "src/backend"),
    (r"\w*Together|together_", "AsOne, AtOnce, InOneLaunch", "src"),
)

# British spelling, in names, comments and pages: the beginning of a word, and the American one.
SPELLING = {
    "behaviour": "behavior", "catalogue": "catalog", "centre": "center", "colour": "color",
    "favour": "favor", "grey": "gray", "initialis": "initializ", "labelled": "labeled",
    "neighbour": "neighbor", "normalis": "normaliz", "optimis": "optimiz", "quantis": "quantiz",
    "recognis": "recogniz", "serialis": "serializ", "summaris": "summariz",
    "synchronis": "synchroniz", "vectoris": "vectoriz",
}
BRITISH = re.compile("|".join(SPELLING), re.IGNORECASE)

# Comments: a pattern, and what is wrong with it.
PHRASES = (
    (re.compile(r"(^|[.:;!?] )Of\b"), "begins with \"Of\": write a sentence with a subject and a verb"),
    (re.compile(r"\bzeros behind\b|\bone behind the other\b"), "\"behind\": write \"after\""),
    (re.compile(r"\bwhat a network says\b", re.IGNORECASE), "write \"predictions\""),
    (re.compile(r"\b(of|in|to) (this|that|each|one|another) rooms?\b"), "\"room\": write \"folder\""),
    (re.compile(r"\ba scale of (its|their) own\b|\bown scales?\b"), "write \"per-tensor scale\""),
)

TOKEN = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)'
                   r'|(?P<text>R"(?P<tag>[^(\s"]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')'
                   r"|(?P<number>[0-9](?:'?[\w.])*)|(?P<name>[A-Za-z_]\w*)", re.DOTALL)
QUOTED = re.compile(r'`[^`\n]*`|"[^"\n]*"|\w*[/_.]\w[\w/.]*')


def line_of(text, at):
    """The number of the line in which place `at` of a text is."""
    return text.count("\n", 0, at) + 1


@functools.lru_cache(maxsize=None)
def plain_words(name):
    """What to say instead of a name, and in which folder: those entries of NAMES that it matches."""
    return [(plain, folder) for pattern, plain, folder in NAMES if re.fullmatch(pattern, name)]


def british(text):
    """Yields (place, message) for each British word of a text."""
    for found in BRITISH.finditer(text):
        yield found.start(), f"{found.group()}: American spelling has {SPELLING[found.group().lower()]}"


def prose(text):
    """A text of equal length in which what is quoted, and paths, are blank."""
    return QUOTED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def paragraphs(text):
    """Yields (line, text) of each paragraph of whole-line comments."""
    first, words = 0, []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = re.match(r"\s*// ?(.*)", line)
        if comment and comment.group(1).strip() and not comment.group(1).startswith(" "):
            first = first if words else number
            words.append(comment.group(1))
        elif words:
            yield first, " ".join(words)
            words = []


def check_code(path, text):
    """Yields (line, message) for a C++ file."""
    for token in TOKEN.finditer(text):
        messages = []
        if token.lastgroup == "name":
            messages = [f"{token.group()}: the plain word is {plain}"
                        for plain, folder in plain_words(token.group()) if path.startswith(folder)]
        if token.lastgroup in ("name", "comment"):
            said = token.group() if token.lastgroup == "name" else prose(token.group())
            messages += [message for _, message in british(said)]
        for message in messages:
            yield line_of(text, token.start()), message
    for line, paragraph in paragraphs(text):
        for pattern, message in PHRASES:
            if pattern.search(paragraph):
                yield line, f"comment: {message}"


def check_page(text):
    """Yields (line, message) for a page, but for its blocks of code."""
    text = re.sub(r"(?ms)^```.*?^```\s*$", lambda block: "\n" * block.group().count("\n"), text)
    for at, message in british(prose(text)):
        yield line_of(text, at), message


def findings(root):
    """What is wrong in a tree, in the order of its paths."""
    for folder in ("src", "tests", "tools"):
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name.startswith("tests/golden/") or path.suffix not in {".cpp", ".h", ".md"}:
                continue
            text = path.read_text(encoding="utf-8")
            check = check_page(text) if path.suffix == ".md" else check_code(name, text)
            for line, message in check:
                yield f"{name}:{line}: {message}"


def main():
    """Prints the findings; returns the exit status."""
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else
                        pathlib.Path(__file__).resolve().parent.parent)
    if not (root / "src").is_dir():
        print(f"check_words.py: {root} has no src folder", file=sys.stderr)
        return 2
    found = list(findings(root))
    for message in found:
        print(message)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
