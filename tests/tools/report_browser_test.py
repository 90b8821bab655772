"""Pages of tools/report.py in headless Chromium at three widths: nothing sticks out of the page, no
word is cut, tables scroll, pictures open, and values are under the pointer. Skipped without
Chromium (Debian's package chromium)."""
import concurrent.futures
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from report_test import PACKAGES, make_run, run_tool  # noqa: E402  (beside this file)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)
if CHROMIUM is None or not PACKAGES:
    print("skipped: " + ("python3-pandas, python3-matplotlib or python3-yaml" if CHROMIUM
                         else "chromium") + " is not installed", file=sys.stderr)
    sys.exit(77)

WIDTHS = (400, 800, 1280)
LOOK = pathlib.Path(__file__).with_name("report_in_browser.js").read_text(encoding="utf-8")
# Chromium's own windows are 500 pixels wide at least; frames are as narrow as they are told. What
# the frames find stands in this page, which --dump-dom prints.
FRAMES = """<!DOCTYPE html><meta charset="utf-8"><body><script>
addEventListener("message", event => {
  const found = document.createElement("pre");
  found.textContent = JSON.stringify(event.data);
  document.body.append(found);
});
</script>"""
LONG = "resnet20_cifar10_fp8_e4m3_policy_adaptive_exact_range_headroom_bits_{}_momentum"
SLOW_TO_DRAW = ["scales.csv", "histograms.csv", "probes.csv", "what_if.csv", "events.csv",
                "timing.csv"]


def make_awkward(folder):
    """A run with a name of one long word, a loss of 1e9 and one that is not finite, a scale of 2^99,
    and a layer without gradient."""
    run = make_run(folder, "a" * 70)
    loss = {12: "1e9", 20: "nan"}
    (run / "steps.csv").write_text(
        "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n" + "".join(
            f"{s},1,{loss.get(s, 2 / s)},0.5,0.1,{2.0 ** (99 if s == 9 else 10)},0,0,1\n"
            for s in range(1, 31)))
    rows = (run / "underflow.csv").read_text()
    (run / "underflow.csv").write_text(re.sub(r"(,fc,dx,fp16,[\d.]+,100,)0,2,2,2,",
                                              r"\g<1>100,100,0,,", rows))
    return run


def look(pages, folder):
    """What LOOK finds in each page at each width: (page's name, width) -> findings."""
    frames = FRAMES
    for page in pages:
        text = page.read_text(encoding="utf-8")
        copy = folder / f"looked_at_{page.name}"
        for width in WIDTHS:
            frames += (f'<iframe src="{copy.name}#{width}" '
                       f'style="width:{width}px;height:900px;border:0"></iframe>')
        copy.write_text(text.replace("</body>", f"<script>{LOOK}</script></body>"),
                        encoding="utf-8")
    (folder / "frames.html").write_text(frames, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom",
         (folder / "frames.html").as_uri()],
        capture_output=True, text=True, check=True, timeout=120)
    found = [json.loads(html.unescape(text))
             for text in re.findall(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)]
    return {(one["page"].removeprefix("looked_at_"), one["asked"]): one for one in found}


class BrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        twelve = [make_run(cls.folder / f"run{i}", LONG.format(i), "none", 2.0 ** i, SLOW_TO_DRAW)
                  for i in range(12)]
        two = [make_awkward(cls.folder / "awkward"), make_run(cls.folder / "target", "target")]
        pages = {"twelve.html": twelve, "two.html": two}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in pool.map(lambda name: run_tool(*pages[name], "-o", cls.folder / name,
                                                       "--seeds", "each"), pages):
                if done.returncode or done.stderr:
                    raise AssertionError(done.stderr)
        cls.found = look([cls.folder / name for name in pages], cls.folder)
        cls.cases = [(page, width) for page in pages for width in WIDTHS]

    def each(self, check):
        """Does a check of what was found in every page at every width."""
        for case in self.cases:
            with self.subTest(case):
                check(self.found[case])

    def test_every_page_was_looked_at_in_its_width(self):
        self.assertEqual(sorted(self.found), sorted(self.cases))
        self.each(lambda found: self.assertEqual(found["width"], found["asked"]))
        self.each(lambda found: self.assertGreater(found["words"], 100))

    def test_nothing_sticks_out(self):
        self.each(lambda found: self.assertEqual(found["beyond"], []))
        self.each(lambda found: self.assertLessEqual(found["scrollWidth"], found["width"]))

    def test_no_word_is_cut(self):
        self.each(lambda found: self.assertEqual(found["cut"], []))

    def test_tables_scroll_where_they_have_to(self):
        for page in ("two.html", "twelve.html"):
            self.assertGreater(self.found[page, 400]["scrolling"], 0)

    def test_pictures_open_at_a_tap_and_close(self):
        self.each(lambda found: self.assertGreater(found["pictures"], 5))
        self.each(lambda found: self.assertEqual(found["closed"], []))

    def test_values_are_under_the_pointer(self):
        self.each(lambda found: self.assertEqual(found["silent"], []))
        self.each(lambda found: self.assertRegex(found["title"], r"^\S+, steps? 1\b.*: 2?\^?\d+"))

    def test_runs_named_like_limits_keep_their_colors(self):
        chips = self.found["two.html", 1280]["chips"]
        colors = {place: color for place, word, color in chips if word == "target"}
        self.assertEqual(colors["runs"], "rgb(213, 94, 0)")  # that of the second run
        self.assertEqual(colors["limits"], "rgb(0, 114, 178)")  # that of the limit
        self.assertIn(["limits", "branch", "rgb(154, 154, 154)"], chips)

    def test_outliers_are_named(self):
        text = (self.folder / "two.html").read_text(encoding="utf-8")
        self.assertIn("loss 1,000,000,000 at step 12", text)
        self.assertIn("scale 2^99 at step 9", text)


if __name__ == "__main__":
    unittest.main()
