"""--help as wide as the terminal: paragraphs are wrapped; lines that are indented, which are
commands and code, keep their own ends, and commands that are too long go on below themselves."""
import argparse
import textwrap


class WrappedHelp(argparse.HelpFormatter):
    def _fill_text(self, text, width, indent):
        filled, paragraph = [], []

        def end_paragraph():
            if paragraph:
                filled.append(textwrap.fill(" ".join(paragraph), width, break_long_words=False,
                                            break_on_hyphens=False))
                paragraph.clear()
        for line in text.splitlines():
            indented = line.startswith(" ")
            if indented or not line:
                end_paragraph()
                filled.append(_command(line, width) if indented else "")
            else:
                paragraph.append(line)
        end_paragraph()
        return "\n".join(indent + line for line in "\n".join(filled).splitlines())


def _command(line, width):
    """`line`, broken before options where it is longer than `width`."""
    text, used = "", 0
    for number, part in enumerate(line.split(" --")):
        part = part if number == 0 else f"--{part}"
        if number > 0 and used + 1 + len(part) + len(" \\") > width:
            text, used = f"{text} \\\n      {part}", 6 + len(part)
        else:
            text += part if number == 0 else f" {part}"
            used += len(part) + (number > 0)
    return text
