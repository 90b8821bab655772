"""tools/check_circles.py on small trees: which circles it names, at which floor."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_circles.py"


class CheckCirclesTest(unittest.TestCase):
    def check(self, **includes):
        """includes: file (__ for a slash, _h or _cpp at the end) to the headers it includes."""
        with tempfile.TemporaryDirectory(prefix="ada-circles-") as folder:
            for name, headers in includes.items():
                stem, _, suffix = name.replace("__", "/").rpartition("_")
                path = pathlib.Path(folder) / f"{stem}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f'#include "{header}"\n' for header in headers))
            result = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True,
                                    check=False)
        return result.returncode, result.stdout.splitlines()

    def test_one_way_is_right(self):
        self.assertEqual(self.check(a__one_h=["a/two.h"], a__one_cpp=["a/one.h"],
                                    a__two_h=["a/in/three.h"], a__in__three_h=[]), (0, []))

    def test_a_source_counts_with_its_header(self):
        code, lines = self.check(a__one_h=[], a__one_cpp=["a/two.h"], a__two_h=["a/one.h"])
        self.assertEqual((code, lines), (1, ["a: one two include each other in a circle"]))

    def test_definitions_in_line_belong_to_their_header(self):
        self.assertEqual(self.check(a__one_h=["a/one_inline.h"], a__one_inline_h=["a/one.h"]),
                         (0, []))

    def test_folders_go_round_through_different_files(self):
        code, lines = self.check(a__x__one_h=["a/y/two.h"], a__y__two_h=[],
                                 a__y__three_h=["a/z/four.h"], a__z__four_h=["a/x/five.h"],
                                 a__x__five_h=[])
        self.assertEqual((code, lines), (1, ["a: x y z include each other in a circle"]))

    def test_a_folder_and_a_file_beside_it(self):
        code, lines = self.check(a__b__in_h=["a/top.h"], a__top_cpp=["a/b/in.h"], a__top_h=[])
        self.assertEqual((code, lines), (1, ["a: b top include each other in a circle"]))

    def test_the_circles_that_are_known_are_there(self):
        result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
