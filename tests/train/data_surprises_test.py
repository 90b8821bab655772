"""Data that surprises is told before the first step: datasets --check, --dry-run, warnings of every
run, EXIF, splits as people have them, label values, encodings, folders of photos."""
import csv
import io
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import unittest
import zlib

from tests.program_case import BINARY, ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_sets  # noqa: E402
from small_sets import SIDE, png_file  # noqa: E402

TURNED = ROOT / "tests/golden/turned/files"
GREY, RGB, GREY_ALPHA, RGBA = 0, 2, 4, 6


def png(width, height, rows, kind, depth=8):
    def chunk(name, body):
        return (struct.pack(">I", len(body)) + name + body
                + struct.pack(">I", zlib.crc32(name + body)))
    packed = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
            + chunk(b"IDAT", packed) + chunk(b"IEND", b""))


def grey16(value):
    return png(SIDE, SIDE, [struct.pack(">H", value) * SIDE] * SIDE, GREY, 16)


class DataSurprises(ProgramCase):
    def ada(self, code, *arguments):
        done = self.run_program(*arguments, code=code)
        self.assertNotIn("()", done.stdout + done.stderr)
        return done

    @staticmethod
    def rows(path):
        return list(csv.DictReader(io.StringIO(path.read_text())))

    def photos(self):
        small_sets.write_folder(self.folder / "photos")
        for label, name in enumerate(small_sets.CLASSES):
            for i in range(2):  # other ones than those of training
                self.put(f"photos/val/{name}/{i}.png", small_sets.picture(label, 100 + i))
        self.put("r.yaml", small_sets.FOLDER_RUN)

    def faults(self, code, *more):
        text = self.ada(code, "datasets", "--check", "r.yaml", "--csv", *more).stdout
        return [(row["split"], row["kind"], row["ends_run"], row["file"])
                for row in csv.DictReader(io.StringIO(text))]

    def test_nothing_is_wrong(self):
        self.photos()
        self.assertIn("nothing is wrong", self.ada(0, "datasets", "--check", "r.yaml").stdout)
        self.assertEqual(self.faults(0), [])

    def test_check_names_all_files(self):
        self.photos()
        cut = small_sets.picture(0, 77)
        self.put("photos/train/ant/0.png", cut[:len(cut) // 2])
        self.put("photos/train/ant/1.png", png_file.png(SIDE + 1, SIDE, bytes(SIDE * (SIDE + 1) * 3),
                                                        RGB))
        self.put("photos/train/bee/0.png", b"no picture at all")
        self.put("photos/train/bee/1.png", grey16(30000))
        self.put("photos/train/cat/0.png", png(SIDE, SIDE, [bytes(SIDE * 4)] * SIDE, RGBA))
        self.put("photos/train/cat/1.png", png_file.png(SIDE, SIDE, bytes(SIDE * SIDE), 3))
        shutil.copy(TURNED / "exif6.jpg", self.folder / "photos/train/cat/2.png")
        self.put("photos/train/cat/b.gif", "GIF89a")
        shutil.copy(self.folder / "photos/train/ant/2.png", self.folder / "photos/val/bee/0.png")
        (self.folder / "photos/train/.cache").mkdir()
        (self.folder / "photos/val/.cache").mkdir()
        found = self.faults(3)
        wanted = {
            ("train", "cut", "1", "photos/train/ant/0.png"),
            ("train", "size", "1", "photos/train/ant/1.png"),
            ("train", "unreadable", "1", "photos/train/bee/0.png"),
            ("train", "sixteen_bit", "0", "photos/train/bee/1.png"),
            ("train", "grey", "0", "photos/train/bee/1.png"),
            ("train", "alpha", "0", "photos/train/cat/0.png"),
            ("train", "palette", "0", "photos/train/cat/1.png"),
            ("train", "exif", "0", "photos/train/cat/2.png"),
            ("train", "size", "1", "photos/train/cat/2.png"),
            ("train", "not_read", "0", "photos/train/cat/b.gif"),
            ("test", "duplicate", "0", "photos/val/bee/0.png"),
            ("train", "empty_class", "1", "photos/train/.cache"),
            ("test", "empty_class", "1", "photos/val/.cache"),
        }
        self.assertEqual(wanted - set(found), set())
        self.assertEqual(len(found), len(set(found)))
        # --on_broken: skip leaves files out, but not those of another size.
        skipped = {row for row in self.faults(3, "--set", "data.on_broken=skip") if row[2] == "1"}
        self.assertEqual({row[1] for row in skipped}, {"size", "empty_class"})
        table = self.ada(3, "datasets", "--check", "r.yaml").stdout
        for line in table.splitlines():
            if "photos/" not in line:
                self.assertLessEqual(len(line), 80, line)
        self.assertIn("photos/train/ant/0.png", table)

    def test_pictures_that_a_set_passes_over(self):
        self.photos()
        self.put("photos/train/loose.png", small_sets.picture(0, 300))
        line = "photos/train: 1 picture in no class folder: loose.png; not used"
        self.assertIn(line, self.ada(0, "train", "r.yaml").stderr)
        self.assertIn(line, self.ada(0, "train", "r.yaml", "--dry-run").stdout)
        self.assertEqual(self.faults(0), [("train", "not_read", "0", "photos/train/loose.png")])
        small_sets.write_camvid(self.folder / "shapes")
        for name in ("train/aachen/1.png", "train/bochum/2.png"):
            self.put(f"shapes/{name}", small_sets.picture(1, 400))
        self.put("r.yaml", small_sets.PIXEL_RUN)
        line = "shapes/train: 2 folders in it are not read: aachen, bochum"
        self.assertIn(line, self.ada(0, "train", "r.yaml", "--overwrite").stderr)
        self.assertIn(line, self.ada(0, "train", "r.yaml", "--dry-run").stdout)
        self.assertIn(("train", "not_read", "0", "shapes/train"), self.faults(0))

    def test_label_images_of_nothing_but_the_ignored_label(self):
        small_sets.write_camvid(self.folder / "shapes")
        self.put("r.yaml", small_sets.PIXEL_RUN)
        for path in (self.folder / "shapes/trainannot").iterdir():
            path.write_bytes(png_file.png(SIDE, SIDE, bytes([255]) * SIDE * SIDE))
        for more in ([], ["--dry-run"]):
            said = self.ada(3, "train", "r.yaml", *more).stderr
            self.assertIn("shapes/trainannot/p0.png: every pixel of split train's 6 label images "
                          "has the label that is passed over", said)
        self.assertIn(("train", "empty_class", "0", ""), self.faults(0))

    def test_dry_run_refuses_what_training_would_by_headers(self):
        self.photos()
        self.put("photos/val/ant/0.png", small_sets.picture(0, 5)[:-40])
        self.put("photos/val/cat/0.png", png_file.png(SIDE, SIDE + 2, bytes(SIDE * (SIDE + 2) * 3),
                                                      RGB))
        done = self.ada(3, "train", "r.yaml", "--dry-run")
        self.assertIn("photos/val/ant/0.png", done.stdout)
        self.assertIn("photos/val/cat/0.png", done.stdout)
        self.assertIn("2 files of the data set cannot be used", done.stderr)
        self.put("photos/val/cat/0.png", small_sets.picture(2, 5))
        self.ada(0, "train", "r.yaml", "--dry-run", "--set", "data.on_broken=skip")
        self.put("photos/val/ant/0.png", small_sets.picture(0, 5))
        self.ada(0, "train", "r.yaml", "--dry-run")

    def test_sixteen_bit_grey_is_a_warning_of_every_run_and_scales(self):
        for split in ("train", "val"):
            for name, value in (("dark", 4000), ("light", 34000)):
                for i in range(4):
                    self.put(f"photos/{split}/{name}/{i}.png", grey16(value + 100 * i))
        self.put("r.yaml", small_sets.FOLDER_RUN)
        for arguments in (["train", "r.yaml"], ["train", "r.yaml", "--overwrite", "--quiet"],
                          ["evaluate", "run"]):
            said = self.ada(0, *arguments).stderr
            self.assertIn("split train: 8 pictures are 16-bit grey", said)
            self.assertIn("data.sixteen_bit: scale", said)
        said = self.ada(0, "train", "r.yaml", "--overwrite", "--set", "data.sixteen_bit=scale",
                        "train.max_steps=60", "optimizer.lr=0.05")
        self.assertNotIn("16-bit", said.stderr)
        self.assertIn("test accuracy 100.00 %", said.stdout)

    def test_exif(self):
        for split in ("train", "val"):
            for name, of in (("a", "exif6.jpg"), ("b", "exif8.jpg")):
                (self.folder / f"photos/{split}/{name}").mkdir(parents=True)
                for i in range(2):
                    shutil.copy(TURNED / of, self.folder / f"photos/{split}/{name}/{i}.jpg")
        self.put("r.yaml", small_sets.FOLDER_RUN)
        said = self.ada(0, "train", "r.yaml")
        self.assertIn("4 pictures carry an EXIF orientation", said.stderr)
        applied = self.ada(0, "train", "r.yaml", "--overwrite", "--set", "data.exif=apply")
        self.assertNotIn("EXIF", applied.stderr)
        dry = self.ada(0, "train", "r.yaml", "--dry-run", "--set", "data.exif=apply").stdout
        self.assertIn("[27, 19, 3]" if "[27" in dry else "27x19x3", dry)

    def voc_of_turned(self, width, height, box):
        for split, of in (("trainval", "p0"), ("test", "p1")):
            self.put(f"boxes/ImageSets/Main/{split}.txt", of + "\n")
            self.put(f"boxes/Annotations/{of}.xml",
                     f"<annotation><size><width>{width}</width><height>{height}</height></size>"
                     "<object><name>ant</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
                     "<ymax>{}</ymax></bndbox></object></annotation>".format(*box))
            (self.folder / "boxes/JPEGImages").mkdir(parents=True, exist_ok=True)
            shutil.copy(TURNED / "exif6.jpg", self.folder / f"boxes/JPEGImages/{of}.jpg")
        self.put("r.yaml", small_sets.BOX_RUN.replace("values: 4, inputs: [conf]",
                                                      "values: 2, inputs: [conf]")
                 .replace("{name: conf, kind: conv2d, channels: 8", "{name: conf, kind: conv2d, channels: 4")
                 .replace("  batch_size: 4", "  batch_size: 1"))

    def test_exif_of_boxes(self):
        self.voc_of_turned(19, 27, (2, 3, 10, 12))  # as viewers show it
        said = self.ada(3, "train", "r.yaml").stderr
        self.assertIn("EXIF orientation 6 turns to 19 x 27 pixels", said)
        self.assertIn("data.exif: apply", said)
        self.assertNotIn("mend the size", said)
        self.ada(0, "train", "r.yaml", "--set", "data.exif=apply", "--dry-run")
        found = self.faults(3)
        self.assertEqual([row[1] for row in found if row[2] == "1"], ["size", "size"])
        self.voc_of_turned(30, 27, (2, 3, 10, 12))
        said = self.ada(3, "train", "r.yaml").stderr
        self.assertIn("those of another picture (it has EXIF orientation 6)", said)

    def test_splits_as_people_have_them(self):
        self.photos()
        photos = self.folder / "photos"
        for name in ("valid", "validation", "dev"):
            (photos / "val").rename(photos / name)
            self.assertIn("12 training and 6 test images",
                          self.ada(0, "train", "r.yaml", "--dry-run").stdout)
            (photos / name).rename(photos / "val")
        shutil.copytree(photos / "val", photos / "test")
        (photos / "val").rename(photos / "valid")
        (photos / "test/ant/0.png").unlink()
        self.assertIn("12 training, 6 validation and 5 test images",
                      self.ada(0, "train", "r.yaml", "--dry-run").stdout)
        self.ada(0, "train", "r.yaml", "--set", "checkpoint.best=true")
        rows = (self.rows(self.folder / "run/evaluation.csv"))
        self.assertEqual([(row["split"], row["images"]) for row in rows],
                         [("validation", "6"), ("test", "5")])
        said = self.ada(2, "train", "r.yaml", "--overwrite", "--set", "data.validation=2").stderr
        self.assertIn("have a validation split of their own", said)
        shutil.copytree(photos / "valid", photos / "dev")
        self.assertIn("valid, dev", self.ada(3, "train", "r.yaml", "--dry-run").stderr)

    def test_a_flat_folder_and_a_share(self):
        small_sets.write_folder(self.folder / "photos", train=5, val=1)
        (self.folder / "photos/train").rename(self.folder / "flat")
        self.put("r.yaml", small_sets.FOLDER_RUN.replace("photos", "flat"))
        said = self.ada(3, "train", "r.yaml").stderr
        self.assertIn(f"({self.folder.resolve()})", said.replace(str(self.folder), str(
            self.folder.resolve())))
        self.assertIn("data.validation: 0.2", said)
        share = ["--set", "data.validation=0.2"]
        self.assertIn("12 training and 3 test images",
                      self.ada(0, "train", "r.yaml", "--dry-run", *share).stdout)
        self.ada(0, "train", "r.yaml", *share)

        def held_back(*more):
            self.ada(0, "evaluate", "run", "--predictions", "p.csv", *more)
            return [row["image"] for row in self.rows(self.folder / "p.csv")]
        first = held_back()
        self.assertEqual([name.split("/")[1] for name in first], ["ant", "bee", "cat"])
        self.assertEqual(held_back(), first)
        others = {tuple(held_back("--set", f"seed={seed}")) for seed in range(4, 10)}
        self.assertGreater(len(others | {tuple(first)}), 1)

    def test_label_values_and_classes_without_pixels(self):
        def masks(make):
            for split in ("train", "test"):
                for i in range(4):
                    self.put(f"shapes/{split}/p{i}.png", small_sets.picture(i, i))
                    self.put(f"shapes/{split}annot/p{i}.png", make())
        half = SIDE * SIDE // 2
        masks(lambda: png_file.png(SIDE, SIDE, bytes([0] * half + [255] * half)))
        text = small_sets.PIXEL_RUN.replace("[ant, bee, cat]", "[background, lesion]")
        self.put("r.yaml", text)
        said = self.ada(0, "train", "r.yaml").stderr
        self.assertIn("no labelled pixel of 4 label images is of class lesion", said)
        self.assertIn("data.label_values: {0: background, 255: lesion}", said)
        self.put("r.yaml", text.replace("class_names: [background, lesion]",
                                        "label_values: {0: background, 255: lesion}"))
        said = self.ada(0, "train", "r.yaml", "--overwrite").stderr
        self.assertNotIn("no labelled pixel", said)
        rows = (self.rows(self.folder / "run/classes.csv"))
        counts = {row["class"]: row["count"] for row in rows if row["class"] in
                  ("background", "lesion")}
        self.assertEqual(counts, {"background": str(4 * half), "lesion": str(4 * half)})
        # The same by color, of RGB pictures, with a color that is passed over.
        masks(lambda: png_file.png(SIDE, SIDE, bytes([0, 0, 0] * half + [255, 0, 0] * (half - 1)
                                                     + [9, 9, 9]), RGB))
        said = self.ada(3, "train", "r.yaml", "--overwrite").stderr
        self.assertIn("data.label_values says the classes", said)
        colors = '{"#000000": background, 255 0 0: lesion, "9,9,9": ignored}'
        self.put("r.yaml", text.replace("class_names: [background, lesion]",
                                        f"label_values: {colors}"))
        self.ada(0, "train", "r.yaml", "--overwrite")
        rows = (self.rows(self.folder / "run/classes.csv"))
        counts = {row["class"]: row["count"] for row in rows if row["class"] in
                  ("background", "lesion")}
        self.assertEqual(counts, {"background": str(4 * half), "lesion": str(4 * (half - 1))})
        again = self.ada(0, "train", "r.yaml", "--print-config").stdout
        self.assertIn('label_values: {"#000000": background, "#ff0000": lesion, "#090909": ignored}',
                      again)
        masks(lambda: png_file.png(SIDE, SIDE, bytes([0, 0, 1] * 2 * half), RGB))
        said = self.ada(3, "train", "r.yaml", "--overwrite").stderr
        self.assertIn("row 0, column 0: the color #000001 is none of data.label_values", said)
        found = self.faults(3)
        self.assertEqual({row[1] for row in found if row[2] == "1"}, {"label"})
        self.put("r.yaml", text.replace("batch_size: 4",
                                        "label_values: {0: background, 255: lesio, 300: x}\n"
                                        "  batch_size: 4", 1))
        said = self.ada(2, "train", "r.yaml").stderr
        self.assertIn("'lesio' is none of data.class_names; did you mean 'lesion'?", said)
        self.assertIn("a value from 0 to 255, or a color", said)

    def test_boxes_are_checked(self):
        small_sets.write_voc(self.folder / "boxes")
        self.put("r.yaml", small_sets.BOX_RUN + "\n")
        annotation = self.folder / "boxes/Annotations/trainval0.xml"
        annotation.write_text(annotation.read_text().replace("<ymax>9<", "<ymax>2<", 1))
        other = self.folder / "boxes/Annotations/trainval1.xml"
        other.write_text(other.read_text().replace("<xmax>7<", "<xmax>70<", 1))
        found = self.faults(0)
        self.assertIn(("train", "box", "0", "boxes/Annotations/trainval1.xml"), found)
        done = self.ada(3, "datasets", "--check", "r.yaml", "--set",
                        "data.class_names=[ant, bee, cow]")
        self.assertIn("label", done.stdout)

    def test_hidden_folders_and_other_files_are_told(self):
        self.photos()
        for split in ("train", "val"):
            self.put(f"photos/{split}/.cache/0.png", small_sets.picture(1, 1))
        self.put("photos/train/ant/a.bmp", "BM")
        self.put("photos/train/ant/b.gif", "GIF89a")
        self.put("photos/train/bee/c.gif", "GIF89a")
        for arguments in (["train", "r.yaml"], ["evaluate", "run"]):
            said = self.ada(0, *arguments).stderr
            self.assertIn("photos/train/.cache: the name of this folder begins with a dot", said)
            self.assertIn("3 files of other endings than .jpg, .jpeg, .png and .webp "
                          "(1 .bmp, 2 .gif): ant/a.bmp, ant/b.gif, bee/c.gif", said)

    def test_webp_trains(self):
        self.photos()
        for path in (self.folder / "photos").rglob("*.png"):
            path.unlink()
            shutil.copy(TURNED / "lossy.webp", path.with_suffix(".webp"))
        self.assertIn("12 training and 6 test images of",
                      self.ada(0, "train", "r.yaml", "--dry-run").stdout)
        self.ada(0, "train", "r.yaml")

    def test_encodings_of_annotations(self):
        small_sets.write_voc(self.folder / "boxes")
        self.put("r.yaml", small_sets.BOX_RUN)
        name = "Köter"
        encodings = (("cp1252", "windows-1252"), ("utf-16", "UTF-16"), ("cp850", "IBM850"))
        for i, path in enumerate(sorted((self.folder / "boxes/Annotations").iterdir())):
            text = path.read_text().replace("<name>ant<", f"<name>{name}<")
            encoding, declared = encodings[i % 3]
            path.write_bytes((f'<?xml version="1.0" encoding="{declared}"?>' + text)
                             .encode(encoding))
        dry = self.ada(0, "train", "r.yaml", "--dry-run").stdout
        self.assertIn(name, dry)
        path = self.folder / "boxes/Annotations/trainval0.xml"
        path.write_bytes(('<?xml version="1.0" encoding="klingon-8"?><annotation><object><name>'
                          + name + "</name></object></annotation>").encode("latin-1"))
        said = self.ada(3, "train", "r.yaml").stderr
        self.assertIn("in the encoding 'klingon-8', which is not known here", said)

    def test_predict_takes_folders_and_skips_broken_photos(self):
        self.photos()
        self.ada(0, "train", "r.yaml")
        for i in range(3):
            self.put(f"new/deep/{i}.png", small_sets.picture(0, 50 + i))
        self.put("new/broken.png", "nothing")
        self.put("new/notes.txt", "nothing")
        done = self.ada(0, "predict", "new", "--checkpoint", "run", "--csv", "--top", "1")
        photos = [row["photo"] for row in csv.DictReader(io.StringIO(done.stdout))]
        self.assertEqual(photos, [f"new/deep/{i}.png" for i in range(3)])
        self.assertIn("new/broken.png: is text", done.stderr)
        self.assertIn("(left out)", done.stderr)
        self.assertIn("1 .txt", done.stderr)
        self.ada(3, "predict", "new/broken.png", "--checkpoint", "run")
        (self.folder / "empty").mkdir()
        self.assertIn("holds no pictures",
                      self.ada(3, "predict", "empty", "--checkpoint", "run").stderr)

    def test_predictions_name_files(self):
        self.photos()
        self.ada(0, "train", "r.yaml")
        self.ada(0, "evaluate", "run", "--predictions", "p.csv")
        rows = (self.rows(self.folder / "p.csv"))
        self.assertEqual([row["image"] for row in rows],
                         [f"photos/val/{name}/{i}.png" for name in small_sets.CLASSES
                          for i in range(2)])

    def sent(self, number):
        """The exit code of a training that got a signal, and what it said from then on."""
        self.photos()
        self.put("r.yaml", small_sets.FOLDER_RUN.replace("output: run", "output: my run")
                 .replace("max_steps: 2", "max_steps: 100000000").replace("epochs: 50",
                                                                          "epochs: 1000000"))
        run = subprocess.Popen([BINARY, "train", "r.yaml", "--no-progress"], cwd=self.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in run.stderr:
            if "evaluat" in line or "epoch 1 " in line:
                break
        run.send_signal(number)
        said = run.stderr.read()
        run.stderr.close()
        return run.wait(), said

    def test_stopped_by_a_signal_it_says_how_to_go_on(self):
        code, said = self.sent(signal.SIGTERM)
        self.assertEqual(code, 143)
        self.assertIn(f"go on with: {BINARY} train --resume 'my run'", said)

    def test_a_mapped_file_whose_disk_fails_is_an_error_of_the_machine(self):
        """Which the system tells by a signal."""
        code, said = self.sent(signal.SIGBUS)
        self.assertEqual(code, 4)
        self.assertIn("ada-train: a data file could not be read: its disk or server failed", said)


if __name__ == "__main__":
    unittest.main()
