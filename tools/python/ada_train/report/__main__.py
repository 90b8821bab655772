"""`python -m ada_train.report RUN_DIR... -o report.html`: the tool report.py, which a wheel carries with
its program, and the source tree has around this package."""
import pathlib
import runpy
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
PLACES = (PACKAGE / "program/share/ada-train/tools/report.py", PACKAGE.parents[1] / "report.py")


def main():
    script = next((place for place in PLACES if place.is_file()), None)
    if script is None:
        sys.exit("ada_train.report: report.py is in none of: " + ", ".join(map(str, PLACES))
                 + "; install the wheel anew")
    sys.path.insert(0, str(script.parent))  # for what it imports beside itself
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
