"""ada-train score: the recorded metrics of ChainerCV from files that any program could have written,
and what is said of files that are not as they should be."""
import csv
import io
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.program_case import rows_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import on_terminal  # noqa: E402
import png_file  # noqa: E402
import safetensors_file  # noqa: E402

BINARY = os.environ.get("ADA_BINARY", str(ROOT / "build" / "ada-train"))


def folders(part):
    """Where recordings lie."""
    found = [ROOT / "tests" / "golden" / part]
    if os.environ.get("ADA_GOLDEN_VISION"):
        found.append(pathlib.Path(os.environ["ADA_GOLDEN_VISION"]) / part)
    return found


def boxes(tensor):
    values = tensor[1]
    return [values[i:i + 4] for i in range(0, len(values), 4)]


def xml_object(name, box, difficult):
    y0, x0, y1, x1 = (repr(value + 1) for value in box)  # VOC counts from 1
    return (f"<object><name>{name}</name><difficult>{int(difficult)}</difficult><bndbox>"
            f"<xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>")


def write_voc(root, split, images):
    """images: name -> text of its objects."""
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "Annotations").mkdir()
    (root / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{n}\n" for n in images))
    for name, objects in images.items():
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><size><width>100</width><height>100</height><depth>3</depth></size>{objects}"
            "</annotation>")
    return root


def write_detections(path, rows):
    path.write_text("image,label,score,xmin,ymin,xmax,ymax\n" + "".join(
        ",".join(str(value) for value in row) + "\n" for row in rows))
    return path


def score(*arguments):
    return subprocess.run([BINARY, "score", *map(str, arguments)], capture_output=True, text=True,
                          check=False)


def same(a, b):
    a, b = float(a), float(b)
    return a == b or (math.isnan(a) and math.isnan(b))


class ScoreTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def rows(self, *arguments):
        done = score(*arguments, "--csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        return list(csv.DictReader(io.StringIO(done.stdout)))

    def fails(self, code, words, *arguments):
        done = score(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(str(word), done.stderr)
        self.assertEqual(done.stdout, "")


class VocTest(ScoreTest):
    def recorded(self, folder, case, rows):
        values = safetensors_file.numbers(folder / "voc.safetensors")
        of = {key: values[f"{case}.{key}"][1] for key in
              ("pred_image", "pred_label", "pred_score", "gt_image", "gt_label", "gt_difficult")}
        given = rows[0]["difficult_given"] == "1"
        images = {f"i{k}": "" for k in range(int(rows[0]["images"]))}
        for image, label, difficult, box in zip(of["gt_image"], of["gt_label"], of["gt_difficult"],
                                                boxes(values[f"{case}.gt_bbox"])):
            images[f"i{image}"] += xml_object(f"c{label:02}", box, given and difficult)
        voc = write_voc(self.root / case, "test", images)
        found = [(f"i{image}", f"c{label:02}", repr(s), *(repr(box[k]) for k in (1, 0, 3, 2)))
                 for image, label, s, box in zip(of["pred_image"], of["pred_label"],
                                                 of["pred_score"],
                                                 boxes(values[f"{case}.pred_bbox"]))]
        detections = write_detections(self.root / f"{case}.csv", found)
        ours = {row["class"]: row for row in self.rows(
            "voc", "--data", voc, "--detections", detections, "--iou", rows[0]["iou_thresh"])}
        self.assertEqual(list(ours)[-1], "map")
        for row in rows:
            name = row["class"] if row["class"] == "map" else f"c{int(row['class']):02}"
            if name not in ours:
                self.assertEqual(row["prec_is_none"], "1")
                continue
            for column in ("ap_07", "ap"):
                self.assertTrue(same(ours[name][column], row[column]),
                                f"{case} {name} {column}: {ours[name][column]} {row[column]}")

    def test_the_recorded_metrics(self):
        for number, folder in enumerate(folders("detection")):
            cases = {}
            for row in rows_of(folder / "voc.csv"):
                cases.setdefault(row["case"], []).append(row)
            for case, rows in cases.items():
                with self.subTest(folder=number, case=case):
                    (self.root / case).exists() or self.recorded(folder, case, rows)

    def test_classes_are_those_of_truth_and_detections(self):
        voc = write_voc(self.root / "voc", "val", {"a": xml_object("cat", (0, 0, 9, 9), False),
                                                   "b": xml_object("dog", (0, 0, 9, 9), True)})
        found = write_detections(self.root / "d.csv", [("a", "cow", 0.5, 0, 0, 9, 9)])
        rows = self.rows("voc", "--data", voc, "--split", "val", "--detections", found)
        self.assertEqual([tuple(row.values()) for row in rows],
                         [("cat", "0", "0"), ("cow", "nan", "nan"), ("dog", "nan", "nan"),
                          ("map", "0", "0")])

    def test_boxes_as_they_stand(self):
        voc = write_voc(self.root / "voc", "test", {"a": xml_object("cat", (0, 0, 9, 9), False)})
        found = write_detections(self.root / "d.csv", [
            ("a", "cat", 0.9, 9, 9, 0, 0), ("a", "cat", 0.8, -50, -50, 300.5, 1e9),
            ("a", "cat", 0.7, "-inf", "nan", "inf", 3), ("a", "cat", 0.1, 0, 0, 9, 9)])
        done = score("voc", "--data", voc, "--detections", found, "--csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 detection with inf or nan", done.stderr)

    def test_no_detections_and_no_objects(self):
        voc = write_voc(self.root / "voc", "test", {"a": ""})
        found = write_detections(self.root / "d.csv", [])
        self.assertEqual([tuple(row.values()) for row in
                          self.rows("voc", "--data", voc, "--detections", found)],
                         [("map", "nan", "nan")])

    def test_several_years(self):
        years = [write_voc(self.root / year, "test", {year: xml_object("cat", (0, 0, 9, 9), False)})
                 for year in ("2007", "2012")]
        found = write_detections(self.root / "d.csv", [("2012", "cat", 0.9, 0, 0, 9, 9)])
        for data in (["--data", years[0], "--data", years[1]], ["--data", self.root]):
            rows = self.rows("voc", *data, "--detections", found)
            self.assertEqual(rows[0]["ap"], "0.5")

    def test_names_and_columns_of_other_programs(self):
        voc = write_voc(self.root / "voc", "test", {"a b,c": xml_object("cat &amp; co", (0, 0, 9, 9),
                                                                        False)})
        (voc / "ImageSets/Main/test.txt").write_text("a  1\r\n\r\n")
        (voc / "Annotations/a.xml").write_text((voc / "Annotations/a b,c.xml").read_text())
        (self.root / "d.csv").write_text(
            "xmin,ymin,xmax,ymax,area,score,label,image\r\n0,0,9,9,81,0.9,cat & co,a")
        rows = self.rows("voc", "--data", voc, "--detections", self.root / "d.csv")
        self.assertEqual(rows[0], {"class": "cat & co", "ap_07": "1.0000000000000002", "ap": "1"})

    def test_what_is_wrong_is_named(self):
        voc = write_voc(self.root / "voc", "test", {"a": xml_object("cat", (0, 0, 9, 9), False)})
        good = write_detections(self.root / "d.csv", [("a", "cat", 0.9, 0, 0, 9, 9)])
        lists = voc / "ImageSets/Main/test.txt"
        self.fails(3, ["ImageSets/Main/val.txt"], "voc", "--data", voc, "--split", "val",
                   "--detections", good)
        other = write_detections(self.root / "o.csv", [("b", "cat", 0.9, 0, 0, 9, 9)])
        self.fails(3, [f"{other}:2", "test"], "voc", "--data", voc, "--detections", other)
        bad = write_detections(self.root / "b.csv", [("a", "cat", "high", 0, 0, 9, 9)])
        self.fails(3, [f"{bad}:2", "score"], "voc", "--data", voc, "--detections", bad)
        (self.root / "c.csv").write_text("image,label,score\n")
        self.fails(3, ["xmin"], "voc", "--data", voc, "--detections", self.root / "c.csv")
        (self.root / "c.csv").write_text("image,label,score,xmin,ymin,xmax,ymax,score\n")
        self.fails(3, ["c.csv:1: two columns are called 'score'"], "voc", "--data", voc,
                   "--detections", self.root / "c.csv")
        self.fails(3, ["none.csv"], "voc", "--data", voc, "--detections", self.root / "none.csv")
        lists.write_text("a\nb\n")
        self.fails(3, ["b.xml"], "voc", "--data", voc, "--detections", good)
        lists.write_text("a\na\n")
        self.fails(3, [f"{lists}: line 2", "expected each name once"], "voc", "--data", voc, "--detections", good)
        lists.write_text("a\n")
        (voc / "Annotations/a.xml").write_text("<annotation><object><name>cat")
        self.fails(3, ["a.xml"], "voc", "--data", voc, "--detections", good)


class SegmentationTest(ScoreTest):
    def write(self, name, images):
        """A folder of label images: name -> (shape, values)."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        for i, (image, (shape, values)) in enumerate(images.items()):
            (folder / f"{image}.png").write_bytes(
                png_file.png(shape[1], shape[0], values,
                             png_file.PALETTE if i % 2 == 1 else png_file.GREY))
        return folder

    def test_the_recorded_metrics(self):
        for number, folder in enumerate(folders("segmentation")):
            values = safetensors_file.numbers(folder / "miou.safetensors")
            classes = rows_of(folder / "classes.csv")
            for row in rows_of(folder / "miou.csv"):
                case = row["case"]
                with self.subTest(folder=number, case=case):
                    truth, found = {}, {}
                    for k in range(int(row["images"])):
                        shape, labels = values[f"{case}.gt.{k}"]
                        truth[f"im{k}"] = shape, [200 if v < 0 else v for v in labels]
                        found[f"im{k}"] = values[f"{case}.pred.{k}"]
                    ours = {r["class"]: r for r in self.rows(
                        "segmentation", "--labels", self.write(f"{number}{case}.gt", truth),
                        "--predictions", self.write(f"{number}{case}.pred", found),
                        "--ignore", 200)}
                    self.assertEqual(len(ours), int(row["classes"]) + 1)
                    for column in ("miou", "pixel_accuracy", "mean_class_accuracy"):
                        self.assertTrue(same(ours["all"][column], row[column]), column)
                    for one in classes:
                        if one["case"] == case:
                            for column in ("iou", "class_accuracy"):
                                self.assertTrue(same(ours[one["class"]][column], one[column]))

    def test_subfolders_and_other_files_do_not_matter(self):
        labels = self.write("labels", {"a": ((1, 2), [0, 1])})
        found = self.write("found", {"a": ((1, 2), [0, 0]), "b": ((1, 1), [0])})
        (found / "overlays").mkdir()
        (found / "detections.csv").write_text("")
        done = score("segmentation", "--labels", labels, "--predictions", found, "--csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 file without a label image, not judged: b.png", done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "all,,,0.25,0.5,0.5")

    def test_what_is_wrong_is_named(self):
        labels = self.write("labels", {"a": ((1, 2), [0, 1]), "b": ((1, 1), [0])})
        found = self.write("found", {"a": ((1, 2), [0, 1])})
        arguments = ["segmentation", "--labels", labels, "--predictions", found]
        self.fails(3, ["no prediction for 1 label image", "b.png"], *arguments)
        self.write("found", {"b": ((2, 1), [0, 0])})
        self.fails(3, ["found/b.png", "1 x 2", "1 x 1"], *arguments)
        (found / "b.png").write_bytes(b"no picture")
        self.fails(3, ["found/b.png"], *arguments)
        self.fails(3, ["none"], "segmentation", "--labels", labels, "--predictions",
                   self.root / "none")
        (self.root / "empty").mkdir()
        self.fails(3, ["empty"], "segmentation", "--labels", self.root / "empty", "--predictions",
                   found)


class CommandTest(ScoreTest):
    def test_options(self):
        self.fails(2, ["voc or segmentation"], "boxes")
        self.fails(2, ["--detections is missing"], "voc", "--data", "x")
        self.fails(2, ["--labels is missing"], "segmentation", "--predictions", "x")
        self.fails(2, ["--ignore is no option of score voc"], "voc", "--data", "x", "--detections",
                   "y", "--ignore", "3")
        self.fails(2, ["--iou"], "voc", "--data", "x", "--detections", "y", "--iou", "1.5")
        self.fails(2, ["--ignore"], "segmentation", "--labels", "x", "--predictions", "y",
                   "--ignore", "256")
        help_text = score("--help")
        self.assertEqual(help_text.returncode, 0)
        self.assertIn("Examples:", help_text.stdout)

    def test_a_table_on_a_terminal(self):
        names = ["a name of a class that is much longer than any terminal is wide, by far, " * 2, "b"]
        voc = write_voc(self.root / "voc", "test", {
            "i": "".join(xml_object(name, (0, 0, 9, 9), False) for name in names)})
        found = write_detections(self.root / "d.csv", [("i", "b", 0.9, 0, 0, 9, 9)])
        status, text = on_terminal.run_on_terminal(
            [BINARY, "score", "voc", "--data", str(voc), "--detections", str(found)])
        self.assertEqual(status, 0)
        lines = text.splitlines()
        self.assertEqual(lines[0].split(), ["class", "objects", "detections", "ap_07", "ap"])
        self.assertIn("map", lines[3])
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_a_reader_that_has_seen_enough(self):
        voc = write_voc(self.root / "voc", "test", {
            "i": "".join(xml_object(f"class {k:05}", (0, 0, 9, 9), False) for k in range(3000))})
        found = write_detections(self.root / "d.csv", [])
        with subprocess.Popen([BINARY, "score", "voc", "--data", str(voc), "--detections",
                               str(found), "--csv"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            self.assertIn(process.wait(), (0, 141, -13))


if __name__ == "__main__":
    unittest.main()
