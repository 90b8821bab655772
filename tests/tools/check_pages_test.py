"""tools/check_pages.py on small trees: words, sentences and links that it lets pass."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_pages.py"


class CheckPagesTest(unittest.TestCase):
    def check(self, pages, *options):
        """The exit status and lines for a tree of these pages: path to text."""
        with tempfile.TemporaryDirectory(prefix="ada-pages-") as folder:
            for name, text in pages.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            result = subprocess.run([sys.executable, TOOL, folder, *options], capture_output=True,
                                    text=True, check=False)
        return result.returncode, result.stdout.splitlines()

    def test_a_page_has_at_most_its_words(self):
        self.assertEqual(self.check({"a.md": "Word. " * 500}), (0, []))
        self.assertEqual(self.check({"a.md": "Word. " * 501}), (1, ["a.md: 501 words; at most 500"]))

    def test_code_counts_as_words_and_builds_do_not(self):
        self.assertEqual(self.check({"a.md": "```\n" + "word " * 501 + "\n```\n"})[0], 1)
        self.assertEqual(self.check({"build/a.md": "Word. " * 501, "build-asan/a.md": "[a](b)"}), (0, []))

    def test_all_pages_together(self):
        most = int(re.search(r"^ALL = (\d+)", TOOL.read_text(), re.MULTILINE).group(1))
        pages = {f"{i}.md": "Word. " * 500 for i in range(most // 500)}
        self.assertEqual(self.check(pages), (0, []))
        self.assertEqual(self.check({**pages, "configs/KEYS.md": "Key. " * 501}), (0, []))
        self.assertEqual(self.check({**pages, "b/a.md": "Word."}),
                         (1, [f"all pages: {most + 1} words; at most {most}"]))

    def test_a_sentence_has_at_most_forty_words(self):
        long = "One " + "word " * 39
        for text in (long + "and.", "* " + long + "\n  and.", f"| {long} and | b |", "Yes. " + long + "and."):
            with self.subTest(text):
                self.assertEqual(self.check({"a.md": text + "\n\nYes. No. Yes."}),
                                 (1, ["a.md:1: a sentence of 41 words; at most 40"]))
        for text in (long, long + ". And.", "* " + long + "\n* and", f"| {long} | and |",
                     f"```\n{long} {long}\n```"):
            with self.subTest(text):
                self.assertEqual(self.check({"a.md": text + "\n\nA few words. " * 3})[0], 0)

    def test_code_in_a_line_is_one_word(self):
        self.assertEqual(self.check({"a.md": "See `" + "word " * 50 + "` here.\n\nYes. No. Yes. No."}), (0, []))

    def test_half_of_the_sentences_are_short(self):
        line = "word " * 18
        self.assertEqual(self.check({"a.md": f"One {line}.\n\nOne {line}.\n\nNo."}),
                         (1, ["all pages: half of the sentences have more than 18 words"]))
        self.assertEqual(self.check({"a.md": f"One {line}.\n\nNo.\n\nNo."}), (0, []))

    def test_links_lead_somewhere(self):
        pages = {"a.md": "[b](b/c.md#two-words---x), [c](b), [d](#it), [e](https://example.org/x)\n\n# It\n",
                 "b/c.md": "## Two words: `--x`\n\n```\n# no heading, [no](link)\n```\n"}
        self.assertEqual(self.check(pages), (0, []))
        for link, message in (("b/d.md", "no such file"), ("b/c.md#no-heading-nolink", "no such heading"),
                              ("#that", "no such heading")):
            with self.subTest(link):
                code, lines = self.check({**pages, "a.md": f"A.\n\n[b]({link})\n\n# It\n"})
                self.assertEqual((code, lines), (1, [f"a.md:3: {link}: {message}"]))

    def test_counts(self):
        code, lines = self.check({"a.md": "Two words. Another one here. A."}, "--count")
        self.assertEqual((code, lines), (0, ["     6 a.md", "     6 all; median of sentences: 2"]))

    def test_the_pages_of_this_tree(self):
        result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_usage(self):
        self.assertEqual(subprocess.run([sys.executable, TOOL, "--help"], capture_output=True,
                                        check=False).returncode, 2)


if __name__ == "__main__":
    unittest.main()
