"""tools/report.py on runs of segmentation and detection, made by hand: classes over time, confusion,
the heads, and pictures with predictions."""
import base64
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from png_file import png  # noqa: E402
from report_test import PACKAGES, make_run, run_tool  # noqa: E402

CLASSES = ["sky", "car $x", "<b>"]
SLOW_TO_DRAW = ["scales.csv", "histograms.csv", "probes.csv", "what_if.csv", "timing.csv"]
OF_TASKS = {"metric", "classes", "heads"}


def make_task_run(folder, task, name="a"):
    make_run(folder, name, drop=SLOW_TO_DRAW)
    with open(folder / "config.yaml", "a", encoding="utf-8") as file:
        file.write(f"task: {task}\n")
    (folder / "evaluation.csv").write_text("step,epoch,split,images,loss,top1,top5\n"
                                           "10,1,test,4,0.5,,\n30,2,test,4,0.25,,\n")
    rows = ["step,epoch,split,class,count,iou,accuracy,pixel_accuracy,ap_07,ap"]
    confusion = ["step,epoch,split,class,prediction,count"]
    for step, gain in ((10, 0), (30, 0.25)):
        for i, of in enumerate(CLASSES):
            value = "nan" if i == 2 else 0.25 * i + gain
            rows.append(f"{step},1,test,{of},5,{value},0.5,,," if task == "segmentation"
                        else f"{step},1,test,{of},5,,,,{value},0.5")
            confusion += [f"{step},1,test,{of},{of},6", f"{step},1,test,{of},sky,{2 * i}"]
        rows.append(f"{step},1,test,all,15,{0.125 + gain},0.5,0.5,," if task == "segmentation"
                    else f"{step},1,test,all,15,,,,{0.125 + gain},0.5")
    (folder / "classes.csv").write_text("\n".join(rows) + "\n")
    if task == "segmentation":
        (folder / "confusion.csv").write_text("\n".join(confusion) + "\n")
    return folder


def add_pictures(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        (folder / name).write_bytes(png(1, 1, [i]))


def section(text, anchor):
    found = re.search(f'<section id="{anchor}">.*?</section>', text, re.S)
    return found.group(0) if found else None


@unittest.skipUnless(PACKAGES, "matplotlib, pandas and yaml for the system's Python")
class TasksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def page(self, *arguments):
        """The page and the pictures' names."""
        out = self.root / "page.html"
        pictures = self.root / "pictures"
        done = run_tool(*arguments, "-o", out, "--png", pictures)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out.read_text(encoding="utf-8"), {path.stem for path in pictures.glob("*.png")}

    def test_segmentation(self):
        text, pictures = self.page(make_task_run(self.root / "a", "segmentation"))
        self.assertLessEqual(OF_TASKS | {"confusion"}, pictures)
        classes = section(text, "classes")
        self.assertIn("mIoU 0.3750 (test, step 30), the best 0.3750 at step 30", classes)
        self.assertIn("IoU at the end from 25 % (sky) to 50 % (car $x)", classes)
        self.assertIn('<td>&lt;b&gt;</td><td class="n">–</td><td class="n">50.00</td>', classes)
        self.assertIn("&lt;b&gt; is taken for sky most, in 40 % of its pixels",
                      section(text, "confusion"))
        self.assertIn("mIoU 37.50 % (test, step 30)", section(text, "training"))
        self.assertIn("37.50 (mIoU)", section(text, "runs"))
        self.assertIn("--predictions RUN_DIR/predictions", section(text, "predictions"))

    def test_detection(self):
        run = make_task_run(self.root / "a", "detection")
        file = run / "underflow.csv"
        rows = file.read_text().replace(",fc,", ",multibox.loc.0,")
        first = rows.splitlines()[1]
        file.write_text(rows + first.replace(",loss,dx,", ",loss,dx2,") + "\n"
                        + first.replace(",loss,dx,", ",fc,dw,") + "\n")
        text, pictures = self.page(run)
        self.assertIn("multibox.loc.0.dx loses most, 2 %", section(text, "heads"))
        self.assertLessEqual(OF_TASKS, pictures)
        self.assertNotIn("confusion", pictures)
        self.assertIsNone(section(text, "confusion"))
        self.assertIn("VOC07 mAP 0.3750", section(text, "classes"))
        self.assertIn("area AP (%)", section(text, "classes"))

    def test_several_runs_and_tasks(self):
        runs = [make_task_run(self.root / "a", "segmentation", "a"),
                make_task_run(self.root / "b", "segmentation", "b"),
                make_task_run(self.root / "d", "detection", "d"), make_run(self.root / "c", "c")]
        text, _ = self.page("--seeds", "mean", *runs[:2])
        self.assertIn("(2 seeds): mIoU 0.3750 ± 0.0000", section(text, "classes"))
        text, _ = self.page("--seeds", "each", *runs)
        self.assertIn("a: IoU (%)", section(text, "classes"))
        self.assertIn("d: another task (VOC07 mAP 0.3750)", section(text, "classes"))
        self.assertIn("c: not evaluated yet", section(text, "classes"))
        self.assertIn("c: no pixels were counted", section(text, "confusion"))

    def test_files_that_are_damaged_or_empty(self):
        run = make_task_run(self.root / "a", "segmentation")
        file = run / "classes.csv"
        whole = file.read_text()
        for text in (whole.splitlines()[0] + "\n",
                     whole[:-9].replace("0.5", "x").replace("10,1,test,", "10,1,,")
                     .replace("all", "none")):
            file.write_text(text)
            self.page(run)
        file.write_text(whole)
        (run / "confusion.csv").write_text("step,epoch,split,class,prediction,count\n"
                                           "10,1,test,a,b,inf\n10,1,test,a,a,-3\n30,1,test,b,b,0\n")
        self.page(run)

    def test_pictures_with_predictions(self):
        run = make_task_run(self.root / "a", "detection")
        names = [f"{i}.png" for i in range(12)]
        add_pictures(run / "predictions" / "overlays", names)
        text, _ = self.page(run)
        shown = section(text, "predictions")
        self.assertEqual(shown.count("<img"), 6)
        self.assertIn(base64.b64encode(png(1, 1, [0])).decode(), shown)
        other = self.root / "seen"  # without overlays/: the folder itself
        add_pictures(other, ["x<y.png"])
        (other / "no.png").write_text("no picture")
        text, _ = self.page(run, "--predictions", other)
        self.assertIn("x&lt;y.png", section(text, "predictions"))
        self.assertIn("<i>no PNG</i>", section(text, "predictions"))

    def test_runs_side_by_side_show_what_both_have(self):
        runs = [make_task_run(self.root / name, "detection", name) for name in ("a", "b")]
        add_pictures(runs[0] / "predictions" / "overlays", ["1.png", "2.png"])
        add_pictures(runs[1] / "predictions" / "overlays", ["2.png", "3.png"])
        shown = section(self.page(*runs)[0], "predictions")
        self.assertEqual(shown.count("<img"), 2)
        self.assertNotIn("1.png", shown)

    def test_folders_that_do_not_fit(self):
        run = make_task_run(self.root / "a", "detection")
        out = self.root / "page.html"
        done = run_tool(run, "-o", out, "--predictions", self.root / "none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no such folder", done.stderr)
        done = run_tool(run, "-o", out, "--predictions", run, "--predictions", run)
        self.assertEqual(done.returncode, 2)
        self.assertIn("2 folders for 1 run", done.stderr)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
