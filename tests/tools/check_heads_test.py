"""tools/check_heads.py on small files: which comments, tables and classes it names."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_heads.py"
HEAD = "// What the file is for.\n#pragma once\n\n"


class CheckHeadsTest(unittest.TestCase):
    def check(self, text, name="a/one.h"):
        """The exit status and the lines for one file of this text."""
        with tempfile.TemporaryDirectory(prefix="ada-heads-") as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            result = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True,
                                    check=False)
        return result.returncode, result.stdout.splitlines()

    def orphan(self, text):
        """The only line, which must be that of a comment without a place, after its colon."""
        code, lines = self.check(text)
        self.assertEqual((code, len(lines)), (1, 1), lines)
        place, _, words = lines[0].partition(": this comment belongs to no declaration: ")
        return place, words

    def test_a_comment_at_its_declaration_is_right(self):
        self.assertEqual(self.check(HEAD + "// Adds.\n// In order.\nint Add(int a, int b);\n"),
                         (0, []))
        self.assertEqual(self.check(HEAD + "// Needs stdio.\n#include <jpeglib.h>\n"), (0, []))

    def test_no_head(self):
        for text in ("#pragma once\n", "", "\n// Late.\nint a;\n"):
            self.assertEqual(self.check(text), (1, [
                "a/one.h:1: no head: the file begins without a comment that says what it is for"]))

    def test_a_head_alone_is_right(self):
        self.assertEqual(self.check("// Nothing yet.\n", "a/one.cpp"), (0, []))
        self.assertEqual(self.check("// First.\n//\n// Second paragraph.\n\nint a;\n"), (0, []))

    def test_comments_without_a_place(self):
        for after in ("\n// The class.\nclass A {};\n", "\nint a;\n", "}  // namespace\n", ""):
            self.assertEqual(self.orphan(HEAD + "// Another file's head.\n" + after),
                             ("a/one.h:4", "Another file's head."))

    def test_titles_are_short(self):
        self.assertEqual(self.check(HEAD + "// --- cuDNN ---\n\nint a;\n"), (0, []))
        self.assertEqual(self.check(HEAD + "// --- Codes of 16 bits " + 40 * "-" + "\n\nint a;\n"),
                         (0, []))
        for title in ("--- One two three four five six seven eight nine ---",
                      "--- A title. And more ---", "cuDNN"):
            self.assertEqual(self.orphan(HEAD + f"// {title}\n\nint a;\n"), ("a/one.h:4", title))

    def test_a_title_of_two_lines(self):
        self.assertEqual(self.orphan(HEAD + "// --- One\n// two ---\n\nint a;\n")[0], "a/one.h:4")

    def test_words_to_tools_and_comments_within(self):
        self.assertEqual(self.check(HEAD + "// clang-format off\n\nint  a;\n// clang-format on\n\n"
                                    "struct A {\n  // Fields.\n\n  int a;\n};\n"), (0, []))

    def test_one_class_a_header(self):
        two = HEAD + "class A {\n};\nenum class E { kOne };\nstruct S {};\nclass Later;\n"
        self.assertEqual(self.check(two), (0, []))
        two += "template <class T>\nclass [[nodiscard]] B final\n    : public A {\n};\n"
        self.assertEqual(self.check(two), (1, ["a/one.h: defines several classes: A B"]))
        self.assertEqual(self.check(two, "a/one.cpp"), (0, []))

    def test_broken_rows(self):
        row = "//   chunks   [0   ][1   ]...  " + 66 * "w"
        broken = "// Drawn:\n" + row + "\n//   within\n#pragma once\n"
        self.assertEqual(self.check(broken),
                         (1, ["a/one.h:2: the formatter has broken this row: within"]))
        for right in (row + "\n//                              within\n",  # below its column
                      row + "\n//   groups   [0        ]...  all\n",  # another row
                      row[:60] + "\n//   within\n"):  # it would have had room
            self.assertEqual(self.check("// Drawn:\n" + right + "#pragma once\n"), (0, []))

    def test_exceptions_may_only_shrink(self):
        with tempfile.TemporaryDirectory(prefix="ada-heads-") as folder:
            for name in ("src", "tests", "tools"):
                (pathlib.Path(folder) / name).mkdir()
            tool = shutil.copy(TOOL, pathlib.Path(folder) / "tools")
            result = subprocess.run([sys.executable, tool], capture_output=True, text=True,
                                    check=False)
        self.assertEqual(result.returncode, 1)
        for line in result.stdout.splitlines():
            self.assertRegex(line, r"^tools/check_heads.py: src/\S+\.h no longer defines \w+ \w+")

    def test_this_tree(self):
        result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_no_folder(self):
        result = subprocess.run([sys.executable, TOOL, "/nowhere"], capture_output=True, text=True,
                                check=False)
        self.assertEqual((result.returncode, result.stderr),
                         (2, "check_heads.py: /nowhere is no folder\n"))


if __name__ == "__main__":
    unittest.main()
