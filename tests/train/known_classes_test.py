"""A checkpoint knows its classes and its files: data with other names, or another order, are
refused with exit code 3 by --resume, evaluate and predict; other counts or files are told."""
import pathlib
import shutil
import sys
import unittest

from tests.program_case import ProgramCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_sets  # noqa: E402

DIFFERENT = "labels mean other classes"
CHANGED = "the data set is no longer what the checkpoint was made with: "


class KnownClasses(ProgramCase):
    def ada(self, code, *arguments):
        return self.run_program(*arguments, code=code)

    def train(self, text, *more):
        (self.folder / "r.yaml").write_text(text)
        self.ada(0, "train", "r.yaml", "--no-progress", *more)

    def files(self):
        return {str(path): path.stat().st_mtime_ns for path in (self.folder / "run").rglob("*")
                if path.name != ".lock"}

    def refuse(self, says, *more):
        """evaluate and --resume refuse, and change nothing."""
        before = self.files()
        for arguments in (["evaluate", "run", *more],
                          ["train", "r.yaml", "--resume", "--set", "train.max_steps=4", *more],
                          ["train", "--resume", "run", "--set", "train.max_steps=4", *more]):
            done = self.ada(3, *arguments)
            self.assertIn(DIFFERENT, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
        self.assertEqual(self.files(), before)

    def resume(self, steps):
        return self.ada(0, "train", "r.yaml", "--resume", "--no-progress", "--set",
                        f"train.max_steps={steps}").stderr

    def rename(self, path, old, new):
        for split in ("train", "val"):
            (self.folder / path / split / old).rename(self.folder / path / split / new)

    def test_class_folders_with_other_names_or_another_order(self):
        small_sets.write_folder(self.folder / "photos")
        self.train(small_sets.FOLDER_RUN)
        self.rename("photos", "ant", "zebra")
        self.refuse("classes ant, bee, cat, and the data (photos) have bee, cat, zebra: class 0 is "
                    "ant there and bee here")
        self.refuse("give the class folders the names")
        (self.folder / "p.png").write_bytes(small_sets.picture(0, 9))
        self.ada(0, "predict", "p.png", "--checkpoint", "run")  # asks the checkpoint alone
        done = self.ada(3, "predict", "p.png", "--checkpoint", "run", "--data", "photos")
        self.assertIn(DIFFERENT, done.stderr)
        self.rename("photos", "zebra", "ant")
        self.assertNotIn(CHANGED, self.resume(4))

    def test_a_class_more_or_less(self):
        small_sets.write_folder(self.folder / "photos")
        self.train(small_sets.FOLDER_RUN)
        for split in ("train", "val"):
            shutil.copytree(self.folder / "photos" / split / "cat",
                            self.folder / "photos" / split / "dog")
        self.refuse("class 3 is none there and dog here")
        for split in ("train", "val"):
            shutil.rmtree(self.folder / "photos" / split / "dog")
            shutil.rmtree(self.folder / "photos" / split / "cat")
        self.refuse("class 2 is cat there and none here")

    def test_counts_and_files_that_changed_are_told(self):
        small_sets.write_folder(self.folder / "photos")
        self.train(small_sets.FOLDER_RUN)
        (self.folder / "photos/train/bee/new.png").write_bytes(small_sets.picture(1, 77))
        said = CHANGED + "split train has 13 samples, and had 12 (bee: 5, before 4)"
        self.assertIn(said, self.ada(0, "evaluate", "run").stderr)
        told = self.resume(4)
        self.assertEqual(told.count(CHANGED), 1, told)
        self.assertIn(said + "; the run goes on with it as it is now", told)
        self.assertNotIn(CHANGED, self.resume(6))  # the checkpoint knows by now
        picture = self.folder / "photos/val/cat/1.png"
        picture.write_bytes(picture.read_bytes() + b"more")
        self.assertIn(CHANGED + "there is as much of it", self.resume(8))
        (self.folder / "photos").rename(self.folder / "moved")
        self.assertNotIn(CHANGED, self.ada(0, "evaluate", "run", "--data", "moved").stderr)

    def test_boxes(self):
        small_sets.write_voc(self.folder / "boxes")
        self.train(small_sets.BOX_RUN)
        files = sorted((self.folder / "boxes/Annotations").glob("*.xml"))
        for path in files:
            path.write_text(path.read_text().replace(">ant<", ">zebra<"))
        self.refuse("class 0 is ant there and bee here")
        self.refuse("data.class_names")
        for path in files:
            path.write_text(path.read_text().replace(">zebra<", ">ant<"))
        files[0].write_text(files[0].read_text().replace("<xmax>8<", "<xmax>9<"))
        self.assertIn(CHANGED + "there is as much of it", self.resume(4))
        files[0].write_text(files[0].read_text().replace(">cat<", ">bee<", 1))
        self.assertIn("(bee: ", self.resume(6))

    def test_label_images(self):
        small_sets.write_camvid(self.folder / "shapes")
        self.train(small_sets.PIXEL_RUN)
        done = self.ada(3, "evaluate", "run", "--set", "data.class_names=[bee, ant, cat]")
        self.assertIn("class 0 is ant there and bee here", done.stderr)
        (self.folder / "shapes/trainannot/p0.png").write_bytes(
            (self.folder / "shapes/trainannot/p0.png").read_bytes() + b"\0")
        self.assertIn(CHANGED + "there is as much of it", self.resume(4))

    def test_arrays(self):
        try:
            import numpy
            import network_step
        except ImportError as missing:
            self.skipTest(str(missing))
        images = numpy.random.default_rng(1).integers(0, 256, (6, 12, 12, 3), numpy.uint8)
        arrays = {"train.images": images, "train.labels": numpy.arange(6) % 3,
                  "test.images": images, "test.labels": numpy.arange(6) % 3}

        def write(names):
            network_step.write_arrays(self.folder / "a.safetensors", arrays,
                                       {"classes": names} if names else None)
        write("ant,bee,cat")
        text = small_sets.FOLDER_RUN.replace("folder, path: photos", "tensors, path: a.safetensors")
        self.train(text)
        write("bee,ant,cat")
        self.refuse("class 0 is ant there and bee here")
        write(None)  # nobody says it
        self.ada(0, "evaluate", "run")
        arrays["train.labels"] = numpy.array([0, 0, 0, 1, 1, 2])
        write("ant,bee,cat")
        self.assertIn("(ant: 3, before 2, cat: 1, before 2)", self.resume(4))


if __name__ == "__main__":
    unittest.main()
