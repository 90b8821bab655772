#!/usr/bin/python3
"""Checks the pages (Markdown files) of this tree: how many words each has and all have together, how
long their sentences are, and that links between them lead somewhere.

usage: tools/check_pages.py [FOLDER] [--count]    (default: this tree)
Prints one line per finding and exits 1 if there are any; --count prints the words of each page and
the median of the sentences instead. Words are what `wc -w` counts; configs/KEYS.md, which the program
writes, is left out. The limits below may only shrink: what a page gains, it pays for.
"""
import pathlib
import re
import statistics
import sys

# Words of each page.
LIMITS = {
    "README.md": 1120,
    "configs/ACCUMULATORS.md": 1065,
    "configs/blocks.md": 1190,
    "configs/CHOOSE.md": 665,
    "configs/COMMANDS.md": 935,
    "configs/data.md": 875,
    "configs/formats.md": 1115,
    "configs/JSON.md": 645,
    "configs/language.md": 600,
    "configs/logs.md": 800,
    "configs/MISMATCH.md": 515,
    "configs/nan.md": 560,
    "configs/networks.md": 875,
    "configs/policies.md": 1015,
    "configs/README.md": 715,
    "configs/RESULTS.md": 1740,
    "configs/tasks.md": 775,
    "configs/VERDICTS.md": 535,
    "src/backend/README.md": 1430,
    "src/number/blocks/README.md": 1080,
    "src/parallel/README.md": 830,
    "src/README.md": 1600,
    "src/scaling/README.md": 2695,
    "src/telemetry/README.md": 3745,
    "tests/golden/README.md": 735,
    "tests/README.md": 770,
    "tools/bench/README.md": 1540,
    "tools/python/README.md": 985,
    "tools/README.md": 1120,
}
OTHERS = 500  # of a page that has no row
ALL = 36000
SENTENCE = 40  # words of a sentence
MEDIAN = 18  # of all sentences, but for those in tables

GENERATED = "configs/KEYS.md"
SKIPPED = {"build", "runs", ".git", "node_modules"}


def pages(root):
    """The pages below a folder, as paths relative to it."""
    found = (path.relative_to(root) for path in sorted(root.rglob("*.md")))
    return [page for page in found
            if not any(part in SKIPPED or part.startswith("build-") for part in page.parts)]


def without_code(text):
    """A page whose blocks of code are blank, line by line."""
    return re.sub(r"(?ms)^ *```.*?^ *```\s*?$", lambda block: "\n" * block.group().count("\n"), text)


def paragraphs(text):
    """Yields (line, text, whether it is prose) of paragraphs and entries of lists, which are prose,
    of headings, and of cells of tables."""
    first, lines = 0, []
    for number, line in enumerate([*without_code(text).split("\n"), ""], 1):
        starts = re.match(r"\s*(#|[*-] |\d+\. |\||!\[)", line)
        if (starts or not line.strip()) and lines:
            yield first, " ".join(lines), not lines[0].startswith("#")
            lines = []
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                if cell.strip(" -"):
                    yield number, cell.strip(), False
        elif line.strip() and not line.startswith("!["):
            first = first if lines else number
            lines.append(re.sub(r"^\s*([*-]|\d+\.) ", "", line).strip())


def sentences(text):
    """Yields (line, words, whether it is prose) of each sentence of a page. Code within a line is one
    word, and a list after a colon is its own sentence only where it begins with a capital letter."""
    for line, paragraph, is_prose in paragraphs(text):
        paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", paragraph))
        for sentence in re.split(r"(?<=[.!?])[*\"')]* (?=[\"'(*]*[A-Z]|code|[a-z]\w*[ .])", paragraph):
            count = sum(1 for word in sentence.split() if re.search(r"\w", word))
            if count:
                yield line, count, is_prose


def anchors(text):
    """The names that GitHub gives the headings of a page."""
    names = []
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.append(name + (f"-{names.count(name)}" if name in names else ""))
    return names


def broken_links(root, page, text):
    """Yields (line, message) of each link of a page to a file or heading that is not there."""
    for found in re.finditer(r"\]\(([^)\s]+)\)", without_code(text)):
        target, _, anchor = found.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (root / page).parent / target if target else root / page
        line = text.count("\n", 0, found.start()) + 1
        if not path.exists():
            yield line, f"{found.group(1)}: no such file"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text("utf-8")):
            yield line, f"{found.group(1)}: no such heading"


def findings(root):
    """What is wrong with the pages of a tree."""
    total, lengths = 0, []
    for page in pages(root):
        name, text = page.as_posix(), (root / page).read_text(encoding="utf-8")
        for line, message in broken_links(root, page, text):
            yield f"{name}:{line}: {message}"
        if name == GENERATED:
            continue
        count = len(text.split())
        total += count
        limit = LIMITS.get(name, OTHERS)
        if count > limit:
            yield f"{name}: {count} words; at most {limit}"
        for line, length, is_prose in sentences(text):
            if length > SENTENCE:
                yield f"{name}:{line}: a sentence of {length} words; at most {SENTENCE}"
            if is_prose:
                lengths.append(length)
    if total > ALL:
        yield f"all pages: {total} words; at most {ALL}"
    if lengths and statistics.median(lengths) > MEDIAN:
        yield f"all pages: half of the sentences have more than {MEDIAN} words"


def print_counts(root):
    """Prints the words of each page, and of all."""
    total, lengths = 0, []
    for page in pages(root):
        if page.as_posix() == GENERATED:
            continue
        text = (root / page).read_text(encoding="utf-8")
        total += len(text.split())
        lengths += [length for _, length, is_prose in sentences(text) if is_prose]
        print(f"{len(text.split()):6} {page}")
    print(f"{total:6} all; median of sentences: {statistics.median(lengths)}")


def main():
    """Prints the findings; returns the exit status."""
    arguments = [word for word in sys.argv[1:] if word != "--count"]
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    if not root.is_dir():
        print(f"check_pages.py: {root} is no folder", file=sys.stderr)
        return 2
    if "--count" in sys.argv:
        print_counts(root)
        return 0
    found = list(findings(root))
    for message in found:
        print(message)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
