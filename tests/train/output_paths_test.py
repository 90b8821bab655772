"""Where commands write: what is empty, given twice, read at the same time, or a run's own is refused
with exit code 2 before anything is written."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from tests.program_case import BINARY, SharedFolderCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_sets  # noqa: E402



class OutputPaths(SharedFolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small_sets.write_all(cls.folder)
        for task in small_sets.RUNS:
            cls.ada(0, "train", f"{task}.yaml", "--output", task[:4], "--no-progress")
        cls.tensors = max((cls.folder / "clas/checkpoints").glob("step-*.safetensors")).name
        shutil.copy(cls.folder / "clas/checkpoints" / cls.tensors, cls.folder / "w.safetensors")
        for name in ("a.png", "b.png", "a.jpg"):
            (cls.folder / name).write_bytes(small_sets.picture(0, 1))
        (cls.folder / "link.png").symlink_to("a.png")

    @classmethod
    def ada(cls, code, *arguments):
        return cls.run_program(*arguments, code=code)

    def state(self):
        """Every file and folder, with what is in it."""
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                for path in sorted(self.folder.rglob("*"))}

    def refuse(self, *arguments, says):
        before = self.state()
        with self.subTest(" ".join(arguments)):
            done = self.ada(2, *arguments)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual(self.state(), before)

    def test_empty_values(self):
        for arguments in [("train", "classification.yaml", "--output", ""),
                          ("train", "classification.yaml", "--name", ""),
                          ("--config", "classification.yaml", "--output", ""),
                          ("train", "--config", ""), ("train", ""),
                          ("evaluate", "clas", "--predictions", ""),
                          ("evaluate", "clas", "--outputs", ""),
                          ("evaluate", "clas", "--data", ""), ("evaluate", ""),
                          ("evaluate", "--checkpoint", ""),
                          ("predict", "a.png", "--checkpoint", "segm", "--predictions", ""),
                          ("predict", "a.png", "--checkpoint", ""), ("predict", "", "--csv"),
                          ("convert", "w.safetensors", "", "--format", "fp16"),
                          ("convert", "", "x", "--format", "fp16"),
                          ("convert", "w.safetensors", "x", "--format", ""),
                          ("picture", "a.png", "-o", ""), ("picture", ""),
                          ("picture", "a.png", "--box", ""), ("picture", "a.png", "--resize", ""),
                          ("datasets", "--preview", "", "--config", "classification.yaml"),
                          ("inspect", ""), ("inspect", "w.safetensors", "--tensors", ""),
                          ("replay", "--preset", ""), ("replay", "--trace", ""),
                          ("score", "voc", "--data", "", "--detections", "x"),
                          ("score", "voc", "--data", "boxes", "--detections", ""),
                          ("what-if", ""), ("what-if", "clas", "--policy", ""),
                          ("recommend", ""), ("compare", "clas", ""), ("watch", "")]:
            self.refuse(*arguments, says="empty quotes")

    def test_one_file_for_two_things(self):
        self.refuse("evaluate", "clas", "--predictions", "x", "--outputs", "x", says="names, too")
        self.refuse("evaluate", "clas", "--predictions", "x", "--outputs", "photos/../x",
                    says="names, too")
        self.refuse("evaluate", "segm", "--predictions", "x/", "--outputs", "x", says="names, too")
        self.refuse("predict", "a.png", "a.jpg", "--checkpoint", "segm", "--predictions", "seen",
                    says="would both become a.png")

    def test_what_is_read_is_not_written_over(self):
        self.refuse("picture", "a.png", "-o", "a.png", says="is what is read")
        self.refuse("picture", "a.png", "-o", "./a.png", says="is what is read")
        self.refuse("picture", "link.png", "-o", "a.png", says="is what is read")
        self.refuse("evaluate", "--config", "classification.yaml", "w.safetensors",
                    "--predictions", "w.safetensors", says="is what is read")
        self.refuse("evaluate", "--config", "classification.yaml", "w.safetensors",
                    "--outputs", "classification.yaml", says="is what is read")
        self.refuse("datasets", "--preview", "classification.yaml", "--config",
                    "classification.yaml", says="is what is read")
        self.refuse("datasets", "--preview", "photos/train/ant/0.png", "--config",
                    "classification.yaml", says="is a file of the data set")
        for folder in ("shapes/test", "shapes/testannot", "shapes/train"):
            self.refuse("evaluate", "segm", "--predictions", folder, says="data set's own files")
        self.refuse("predict", "a.png", "--checkpoint", "segm", "--predictions", ".",
                    says="a.png would be written over")
        self.refuse("train", "classification.yaml", "--output", "photos", says="among the files")
        for folder in ("photos/train/x", "photos/valid/x", "photos/dev/x"):
            self.refuse("train", "classification.yaml", "--output", folder,
                        says="among the files")
        # A set without a folder train: its classes lie at its path.
        self.refuse("train", "classification.yaml", "--data", "photos/train", "--set",
                    "data.validation=0.3", "--output", "photos/train/x", says="among the files")
        self.refuse("train", "classification.yaml", "--output", "clas", "--overwrite", "--set",
                    f"model.init.weights=clas/checkpoints/{self.tensors}",
                    says="which this run starts from")
        self.refuse("assign", "classification.yaml", "--formats", "fp16", "--yaml",
                    "classification.yaml", says="is what is read")
        self.refuse("rates", "classification.yaml", "--config", "segmentation.yaml",
                    says="expected one configuration")
        self.refuse("--overwrite", "train", "classification.yaml", "--resume",
                    says="--resume excludes --overwrite")

    def test_files_of_the_data_set_stay(self):
        label = "shapes/testannot/p0.png"
        for folder in ("shapes/testannot", "shapes/testannot/", "shapes/test", "shapes/train"):
            self.refuse("predict", "a.png", "--checkpoint", "segm", "--predictions", folder,
                        says="holds files of the data set")
            self.refuse("predict", "shapes/test", "--checkpoint", "segm", "--predictions", folder,
                        says="")
        for folder in ("boxes/Annotations", "boxes/JPEGImages", "boxes"):
            self.refuse("predict", "a.png", "--checkpoint", "dete", "--predictions", folder, says="")
        for path in ("photos/val/ant/0.png", "photos/train/../val/ant/0.png"):
            self.refuse("evaluate", "clas", "--predictions", path, says="is a file of the data set")
            self.refuse("evaluate", "clas", "--outputs", path, says="is a file of the data set")
            self.refuse("blame", "clas", "--picture", path, says="is a file of the data set")
            self.refuse("assign", "classification.yaml", "--formats", "fp16", "--yaml", path,
                        says="is a file of the data set")
        for path in ("boxes/Annotations/test0.xml", "boxes/ImageSets/Main/test.txt"):
            self.refuse("evaluate", "dete", "--outputs", path, says="is a file of the data set")
            self.refuse("datasets", "--preview", path, "--config", "detection.yaml",
                        says="is a file of the data set")
        self.refuse("evaluate", "segm", "--outputs", label, says="is a file of the data set")
        self.refuse("evaluate", "lang", "--outputs", "words/text.txt",
                    says="is a file of the data set")
        (self.folder / "more.yaml").write_text("optimizer: {lr: 0.2}\n")
        (self.folder / "net.yaml").write_text("layers: [{name: f, kind: linear, features: classes}]\n")
        (self.folder / "of_net.yaml").write_text(
            "data: {dataset: folder, path: photos, batch_size: 4}\nmodel: {file: net.yaml}\n"
            "optimizer: {lr: 0.1}\n")
        self.refuse("assign", "of_net.yaml", "--formats", "fp16", "--yaml", "net.yaml",
                    says="is what is read")
        self.refuse("assign", "classification.yaml", "--formats", "fp16", "--yaml", "w.safetensors",
                    "--set", "model.init.weights=w.safetensors", says="is what is read")

    def test_a_folder_that_others_filled_is_no_folder_of_predictions(self):
        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "a.png").write_bytes(small_sets.picture(1, 1))
        (mine / "p0.png").write_bytes(small_sets.picture(1, 1))
        (mine / "detections.csv").write_text("image,label,score,xmin,ymin,xmax,ymax\n")
        for run in ("segm", "dete"):
            self.refuse("predict", "a.png", "--checkpoint", run, "--predictions", "mine",
                        says="would be written over")
            self.refuse("evaluate", run, "--predictions", "mine", says="would be written over")
        for again in range(2):  # what these commands wrote they may replace
            for run, folder in (("segm", "shapes/seen"), ("dete", "boxes/seen"), ("segm", "seen")):
                with self.subTest(run=run, folder=folder, again=again):
                    self.ada(0, "predict", "a.png", "--checkpoint", run, "--predictions", folder)
                    self.ada(0, "evaluate", run, "--predictions", folder)
        shutil.rmtree(mine)
        for folder in ("shapes/seen", "boxes/seen", "seen"):
            shutil.rmtree(self.folder / folder)

    def test_what_a_run_keeps_is_its_own(self):
        for path in ("clas/checkpoints/x.csv", "clas/steps.csv", "clas/config.yaml",
                     "clas/histograms.csv", "clas/.lock", "segm/checkpoints/deeper/x",
                     "clas/tensorboard/x"):
            self.refuse("evaluate", "clas", "--predictions", path, says="belongs to the run")
            self.refuse("evaluate", "clas", "--outputs", path, says="belongs to the run")
            self.refuse("convert", "w.safetensors", path, "--format", "fp16",
                        says="belongs to the run")
            self.refuse("picture", "a.png", "-o", path, says="belongs to the run")
            self.refuse("datasets", "--preview", path, "--config", "classification.yaml",
                        says="belongs to the run")
            for command in ("recommend", "advise"):
                self.refuse(command, "clas", "--yaml", path, says="belongs to the run")
            self.refuse("blame", "clas", "--picture", path, says="belongs to the run")
        kept = "clas/checkpoints/" + self.tensors
        self.refuse("evaluate", "clas", "--outputs", kept, says="is what is read")
        self.refuse("convert", kept, kept, "--format", "fp16", says="belongs to the run")
        for path in ("clas/checkpoints", "clas/checkpoints/", "clas/dump", "clas/dump/x"):
            self.refuse("train", "classification.yaml", "--output", path, says="belongs to the run")
            self.refuse("evaluate", "segm", "--predictions", path, says="belongs to the run")
            self.refuse("predict", "a.png", "--checkpoint", "segm", "--predictions", path,
                        says="belongs to the run")

    def test_other_places_are_taken(self):
        self.ada(0, "evaluate", "clas", "--predictions", "clas/mine.csv", "--outputs", "o.safetensors")
        self.ada(0, "evaluate", "clas", "--predictions", "/dev/null", "--outputs", "/dev/null")
        self.ada(0, "evaluate", "segm", "--predictions", "segm/seen", "--outputs",
                 "segm/o.safetensors")
        self.ada(0, "predict", "a.png", "b.png", "--checkpoint", "dete", "--predictions", "found")
        self.ada(0, "convert", "w.safetensors", "w.safetensors", "--format", "fp32")
        self.ada(0, "picture", "b.png", "-o", "link.png")
        self.assertFalse((self.folder / "link.png").is_symlink())
        (self.folder / "link.png").unlink()
        (self.folder / "link.png").symlink_to("a.png")

    def test_names_of_photos_are_theirs_in_json(self):
        name = "two\nlines \u00e9.png"
        shutil.copy(self.folder / "a.png", self.folder / name)
        for run in ("clas", "segm", "dete"):
            told = self.ada(0, "predict", name, "--checkpoint", run, "--json").stdout
            self.assertEqual(json.loads(told)[0]["photo"], name)
        told = self.ada(0, "predict", name, "--checkpoint", "clas", "--csv", "--top", "1").stdout
        self.assertIn(f'"{name}",1,', told)
        other = os.fsencode(self.folder) + b"/\xff.png"
        shutil.copy(os.fsencode(self.folder / "a.png"), other)
        told = self.ada(0, "predict", other, "--checkpoint", "clas", "--json").stdout
        self.assertTrue(json.loads(told)[0]["photo"].endswith("/\\xff.png"))
        os.unlink(other)

    def test_a_preview_that_needs_too_much_memory_says_what_does(self):
        done = self.ada(4, "datasets", "--preview", "sheet.png", "--config", "classification.yaml",
                        "--set", "data.dataset=synthetic", "--set", "data.batch_size=1000000", "--set",
                        "data.synthetic={height: 1024, width: 1024, channels: 64, train: 250, test: 1}",
                        "--set", "data.drop_last=false")
        self.assertIn("the first training batch of synthetic, fp32 [250, 1024, 1024, 64], 62.5 GiB",
                      done.stderr)
        self.assertFalse((self.folder / "sheet.png").exists())

    def test_an_output_folder_without_permission(self):
        """Seen by a user who may not write there; root may everywhere."""
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            folder.chmod(0o755)
            (folder / "t.yaml").write_text(
                "data: {dataset: synthetic, batch_size: 16, limit: {train: 64, test: 32}}\n"
                "model: {zoo: mlp, hidden: [16]}\ntrain: {max_steps: 2}\n", encoding="utf-8")
            (folder / "locked").mkdir(mode=0o000)
            try:
                subprocess.run([BINARY, "--version"], capture_output=True, check=True, **other)
            except (OSError, subprocess.CalledProcessError):
                self.skipTest("another user cannot start the program where it is")
            for output in ("locked", "locked/run"):
                done = subprocess.run([BINARY, "train", "t.yaml", "--output", output], cwd=folder,
                                      capture_output=True, text=True, check=False, **other)
                self.assertEqual(done.returncode, 6, done.stderr)
                self.assertIn(f"output folder {output}: cannot be written: Permission denied",
                              done.stderr)
            (folder / "locked").chmod(0o700)


if __name__ == "__main__":
    unittest.main()
