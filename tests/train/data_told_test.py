"""What is said of a data set's files is true, and the same whoever says it: --check, --dry-run, a
run, predict. What is printed as CSV is UTF-8."""
import csv
import io
import os
import pathlib
import shutil
import struct
import sys
import unittest

from tests.program_case import ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tests/tools")]
import data_surprises_test as surprises  # noqa: E402
import on_terminal  # noqa: E402
import small_sets  # noqa: E402
from small_sets import SIDE, png_file  # noqa: E402

BINARY = surprises.BINARY
GREY, RGB, GREY_ALPHA, RGBA = 0, 2, 4, 6


def sixteen(kind, channels):
    return surprises.png(SIDE, SIDE, [struct.pack(">H", 3000) * SIDE * channels] * SIDE, kind, 16)


class DataTold(ProgramCase):
    def ada(self, code, *arguments):
        """What is printed must be UTF-8."""
        return self.run_program(*arguments, code=code)

    def faults(self, code, *more):
        text = self.ada(code, "datasets", "--check", "r.yaml", "--csv", *more).stdout
        return [(row["split"], row["kind"], row["ends_run"], row["file"], row["message"])
                for row in csv.DictReader(io.StringIO(text))]

    def photos(self):
        small_sets.write_folder(self.folder / "photos")
        self.put("r.yaml", small_sets.FOLDER_RUN)

    def masks(self, mask=None, text=small_sets.PIXEL_RUN):
        small_sets.write_camvid(self.folder / "shapes")
        self.put("r.yaml", text)
        if mask:
            self.put("shapes/trainannot/p2.png", mask)

    def test_names_that_a_terminal_would_obey(self):
        self.photos()
        for split in ("train", "val"):
            for name in ("ant\x1b[31mRED", "bee"):
                self.put(f"photos/{split}/{name}/z\x1b]0;title\a\u202e.png", b"no picture")
        for arguments in (("datasets", "--check", "r.yaml"), ("datasets", "--check", "r.yaml", "--csv"),
                          ("train", "r.yaml", "--dry-run")):
            said = self.ada(3, *arguments)
            for text in (said.stdout, said.stderr):
                for byte in "\x1b\a\u202e":
                    self.assertNotIn(byte, text, arguments)
            self.assertIn("\\x1b]0;title", said.stdout)
        name = "y\x1b[36m.png"
        self.put(name, small_sets.picture(0, 1))
        self.assertIn("y\\x1b[36m.png: 12 x 12", self.ada(0, "picture", name).stdout)
        small_sets.write_folder(self.folder / "others")
        said = self.ada(0, "datasets", "--preview", "s\x1b[36m.png", "--config", "r.yaml", "--data",
                        "others").stdout
        self.assertTrue(said.startswith("s\\x1b[36m.png: "), said)

    def test_classes_are_told_by_their_names_where_splits_have_others(self):
        for split, classes in (("train", ("ant", "cat", "dog")), ("val", ("cat", "dog"))):
            for name in classes:
                self.put(f"photos/{split}/{name}/0.png", small_sets.picture(len(split), len(name)))
        (self.folder / "photos/val/emptyclass").mkdir()
        self.put("r.yaml", small_sets.FOLDER_RUN)

        def of_classes():
            found = [row for row in self.faults(3) if row[1] in ("empty_class", "label")]
            said = self.ada(3, "train", "r.yaml", "--dry-run").stdout
            self.assertNotIn("has no picture in split", said)
            return {(row[1], row[3], row[4]) for row in found}
        others = {("empty_class", "photos/val/ant", "no folder for class ant of photos/train"),
                  ("empty_class", "photos/val/emptyclass", "class emptyclass has no pictures"),
                  ("label", "photos/val/emptyclass",
                   "a class folder that photos/train does not have")}
        self.assertEqual(of_classes(), others)
        for name in ("bee", "eel", "fox"):
            self.put(f"photos/val/{name}/0.png", small_sets.picture(1, 5))
            others.add(("label", f"photos/val/{name}",
                        "a class folder that photos/train does not have"))
        self.assertEqual(of_classes(), others)

    def test_detections_that_are_no_utf8_are_refused(self):
        small_sets.write_voc(self.folder / "boxes")
        text = "image,label,score,xmin,ymin,xmax,ymax\ntest0,Änt,0.5,2,2,7,9\n"
        score = ["score", "voc", "--data", "boxes", "--detections", "d.csv"]
        for encoding, says in (("latin-1", "d.csv:2: the byte '\\xc4' is no UTF-8"),
                               ("utf-16", "d.csv:1: the file is UTF-16")):
            self.put("d.csv", text.encode(encoding))
            self.assertIn(says, self.ada(3, *score).stderr)
        for encoding in ("utf-8", "utf-8-sig"):
            self.put("d.csv", text.encode(encoding))
            self.assertIn("Änt,", self.ada(0, *score, "--csv").stdout)

    def test_names_of_files_are_utf8_in_csv(self):
        self.photos()
        ants = os.fsencode(self.folder) + b"/photos/val/ant/"
        os.rename(ants + b"0.png", ants + b"caf\xe9.png")
        self.ada(0, "train", "r.yaml")
        path = "photos/val/ant/caf\\xe9.png"
        said = self.ada(0, "predict", "photos/val/ant", "--checkpoint", "run", "--csv").stdout
        self.assertIn(path, [row["photo"] for row in csv.DictReader(io.StringIO(said))])
        self.ada(0, "evaluate", "run", "--predictions", "p.csv")
        rows = csv.DictReader(io.StringIO((self.folder / "p.csv").read_text("utf-8")))
        self.assertIn(path, [row["image"] for row in rows])

    def test_predict_says_what_becomes_something_else(self):
        self.photos()
        self.ada(0, "train", "r.yaml")
        self.put("new/a.png", surprises.grey16(3000))
        self.put("new/b.png", surprises.grey16(3000))
        self.put("new/c.png", surprises.png(SIDE, SIDE, [bytes(SIDE * 4)] * SIDE, RGBA))
        self.put("new/broken.png", "nothing")
        shutil.copy(surprises.TURNED / "exif6.jpg", self.folder / "new/d.jpg")
        said = self.ada(0, "predict", "new", "--checkpoint", "run").stderr
        for line in ("2 pictures are 16-bit grey (the first: new/a.png): values above 255",
                     "1 picture carries an EXIF orientation (new/d.jpg): it is not applied",
                     "1 picture has alpha (new/c.png): it is dropped"):
            self.assertIn(line, said)
        rules = ["--set", "data.sixteen_bit=scale", "data.exif=apply"]
        said = self.ada(0, "predict", "new/a.png", "new/d.jpg", "--checkpoint", "run", *rules)
        self.assertNotIn("warning", said.stderr)

    def test_label_images_of_other_kinds_are_refused_by_their_headers(self):
        kinds = {"PNG, 8-bit RGB": surprises.png(SIDE, SIDE, [bytes(SIDE * 3)] * SIDE, RGB),
                 "PNG, 16-bit grey": surprises.grey16(1),
                 "PNG, 8-bit grey and alpha":
                     surprises.png(SIDE, SIDE, [bytes(SIDE * 2)] * SIDE, GREY_ALPHA),
                 "is a JPEG picture": (surprises.TURNED / "exif1.jpg").read_bytes()}
        self.masks()
        for kind, mask in kinds.items():
            self.put("shapes/trainannot/p2.png", mask)
            for command in (["train", "r.yaml", "--dry-run"], ["datasets", "--check", "r.yaml"]):
                said = " ".join(self.ada(3, *command).stdout.split())
                self.assertIn(f"split train: shapes/trainannot/p2.png: {kind}", said)
        skip = ["--set", "data.on_broken=skip"]
        self.ada(0, "train", "r.yaml", "--dry-run", *skip)
        # By color any PNG will do, and no JPEG.
        text = small_sets.PIXEL_RUN.replace(
            "class_names: [ant, bee, cat]",
            'label_values: {"#000000": ant, "#010101": bee, "#020202": cat}')
        self.put("r.yaml", text)
        self.assertIn("is a JPEG picture", self.ada(3, "train", "r.yaml", "--dry-run").stdout)
        self.put("shapes/trainannot/p2.png", kinds["PNG, 8-bit RGB"])
        self.ada(0, "train", "r.yaml", "--dry-run")
        self.assertEqual([row for row in self.faults(0) if row[2] == "1"], [])

    def test_exif_is_named_where_a_label_image_has_the_turned_size(self):
        for split in ("train", "test"):
            for i in range(4):
                self.put(f"shapes/{split}annot/p{i}.png", png_file.png(19, 27, bytes(19 * 27)))
                self.put(f"shapes/{split}/p{i}.jpg",
                         (surprises.TURNED / "exif6.jpg").read_bytes())
        self.put("r.yaml", small_sets.PIXEL_RUN)
        why = "EXIF orientation 6 turns the picture to that size: set data.exif: apply"
        self.assertIn(why, self.ada(3, "train", "r.yaml").stderr)
        self.assertIn(why, self.ada(3, "train", "r.yaml", "--dry-run").stdout)
        self.assertIn(why, [row[4] for row in self.faults(3) if row[1] == "size"][0])
        self.ada(0, "train", "r.yaml", "--dry-run", "--set", "data.exif=apply")

    def test_all_sixteen_bit_pictures_are_named(self):
        self.photos()
        high = "16-bit: the high byte of each value is taken (data.sixteen_bit)"
        wanted = {}
        for i, (kind, channels) in enumerate(((GREY, 1), (RGB, 3), (RGBA, 4), (GREY_ALPHA, 2))):
            name = f"photos/train/bee/{i}.png"
            self.put(name, sixteen(kind, channels))
            wanted[name] = high
        wanted["photos/train/bee/0.png"] = (
            "16-bit grey: values above 255 become white (data.sixteen_bit)")
        found = {row[3]: row[4] for row in self.faults(0) if row[1] == "sixteen_bit"}
        self.assertEqual(found, wanted)
        said = self.ada(0, "train", "r.yaml").stderr
        self.assertIn("1 picture is 16-bit grey (photos/train/bee/0.png): values above", said)
        self.assertIn("3 pictures are 16-bit (the first: photos/train/bee/1.png): the high byte",
                      said)
        scaled = ["--set", "data.sixteen_bit=scale"]
        self.assertNotIn("sixteen_bit", [row[1] for row in self.faults(0, *scaled)])

    def test_a_value_with_a_class_is_not_called_ignored(self):
        def says(values):
            self.put("r.yaml", small_sets.PIXEL_RUN.replace("class_names: [ant, bee, cat]",
                                                            f"label_values: {values}"))
            return self.faults(3)[0][4]
        self.masks(png_file.png(SIDE, SIDE, bytes([200]) * SIDE * SIDE))
        for rest, ignored in (("255: d", ""), ("7: d", " nor the ignored label 255"),
                              ("255: ignored", " nor the ignored label 255")):
            shutil.rmtree(self.folder / "shapes")
            self.masks(png_file.png(SIDE, SIDE, bytes([200]) * SIDE * SIDE))
            self.assertIn(f"label 200 is none of data.label_values{ignored}; give it",
                          says(f"{{0: a, 1: b, 2: c, {rest}}}"))

    def test_progress_says_what_is_done(self):
        self.photos()
        _, shown = on_terminal.run_on_terminal([BINARY, "datasets", "--check", "r.yaml"], cwd=self.folder)
        self.assertIn("checking train", shown)
        self.assertNotIn("evaluating", shown)


if __name__ == "__main__":
    unittest.main()
