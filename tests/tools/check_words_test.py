"""tools/check_words.py on small trees: which names, comments and pages it lets pass."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_words.py"

# (file, its text, a part of the message; None: allowed)
CASES = [
    ("src/backend/cuda/a.h", "enum class Lies { kF32 };\n", "the plain word is StorageType"),
    ("src/backend/cuda/a.h", "enum class StorageType { kF32 };\n", None),
    ("src/backend/cuda/a.h", "EightFloats sum;\n", "vec8"),
    ("src/backend/cuda/a.h", "Beside beside_;\n", "SideStream"),
    ("src/cli/a.cpp", "fs::path Beside(const char* file);\n", None),
    ("src/graph/a.h", "bool y_largest_left = false;\n", "deferred amax"),
    ("src/backend/a.h", "struct ProductSpec {};\n", "matmul"),
    ("src/backend/a.h", "double product = a * b;\n", None),
    ("src/run/a.h", "struct Verdict {};\n", "metrics"),
    ("src/vision/a.h", "int verdict = 0;\n", None),
    ("tests/graph/a.cpp", "float own_scale = 1;\n", "per-tensor scale"),
    ("tests/graph/a.cpp", 'Check("own_scale");\n', None),
    ("src/io/a.h", "int colour = 0;\n", "American spelling has color"),
    ("src/io/a.h", "int NormaliseAll();\n", "American spelling has normaliz"),
    ("src/io/a.h", 'Print("colour");\n', None),
    ("src/io/a.h", 'Print(R"(colour\nof 1\'000)");\n', None),
    ("src/io/a.h", "int n = 1'000;  // its colour\n", "a.h:1: colour"),
    ("src/io/a.h", "// The key `colour` and \"grey\".\nint a;\n", None),
    ("src/io/a.h", "// Of images.\nint a;\n", "begins with \"Of\""),
    ("src/io/a.h", "int a;\n// Counts them. Of images\n// all.\n", "a.h:2: comment: begins"),
    ("src/io/a.h", "// The number\n// Of them is an enumerator.\n", None),
    ("src/io/a.h", "int a;  // of images\n", None),
    ("src/io/a.h", "// A row, zeros behind.\n", "write \"after\""),
    ("src/README.md", "The colour.\n", "README.md:1: colour"),
    ("src/README.md", "Is `colour`.\n\n```\ncolour\n```\n", None),
    ("src/README.md", "```\na\n```\n\nOptimised.\n", "README.md:5: Optimis"),
    ("tests/golden/a.h", "int colour;\n", None),
    ("src/a.txt", "colour\n", None),
]


class CheckWords(unittest.TestCase):
    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)

    def test_words(self):
        for name, text, message in CASES:
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / name
                (pathlib.Path(folder) / "src").mkdir()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                result = self.run_tool(folder)
                self.assertEqual(result.returncode, 0 if message is None else 1, result.stdout)
                self.assertEqual(result.stdout == "", message is None)
                self.assertIn(message or "", result.stdout)

    def test_all_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "src").mkdir()
            (pathlib.Path(folder) / "src" / "a.h").write_text("int grey;\n\n// Of grey.\n", encoding="utf-8")
            lines = self.run_tool(folder).stdout.splitlines()
        self.assertEqual([line.split(": ")[0] for line in lines], ["src/a.h:1", "src/a.h:3", "src/a.h:3"])

    def test_usage(self):
        self.assertEqual(self.run_tool("--help").returncode, 2)
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_tool(folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no src folder", result.stderr)


if __name__ == "__main__":
    unittest.main()
