"""evaluate --outputs and without a checkpoint, and predict: they agree with each other, with
--predictions and with a softmax worked out here."""
import csv
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

from tests.program_case import SharedFolderCase, run_in

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY")
sys.path.insert(0, str(ROOT / "tests/tools"))
import png_file  # noqa: E402
try:
    import numpy
    import network_step
except ImportError:
    numpy = None

CONFIG = """
seed: 3
model:
  layers:
    - {name: conv, kind: conv2d, channels: 8, kernel: 3, stride: 2}
    - {name: relu, kind: relu}
    - {name: fc, kind: linear, features: 7}
data: {dataset: tensors, path: images.safetensors, batch_size: 4, evaluate_batch_size: 3}
train: {max_steps: 2}
output: run
"""


def write_png(path, pixels):
    """`pixels`: u8, [h, w, 3]."""
    height, width, _ = pixels.shape
    path.write_bytes(png_file.png(width, height, pixels.tobytes(), png_file.RGB))


@unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
@unittest.skipIf(numpy is None, "numpy is missing")
class Predict(SharedFolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(1)
        cls.images = random.integers(0, 256, (8, 9, 10, 3), numpy.uint8)
        labels = (numpy.arange(8) % 7).astype(numpy.int64)
        network_step.write_arrays(cls.folder / "images.safetensors", {
            "train.images": cls.images, "train.labels": labels,
            "test.images": cls.images, "test.labels": labels})
        (cls.folder / "net.yaml").write_text(CONFIG)
        cls.ada("train", "net.yaml", "--no-progress")

    @classmethod
    def ada(cls, *arguments, code=0, folder=None):
        return run_in(folder or cls.folder, arguments, code)

    def outputs(self, *arguments):
        self.ada("evaluate", *arguments, "--outputs", "out.safetensors", "--no-progress")
        return network_step.Tensors(self.folder / "out.safetensors")["outputs"].astype(float)

    @staticmethod
    def softmax(logits):
        e = numpy.exp(logits - logits.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def test_outputs_are_those_of_the_predictions_in_file_order(self):
        logits = self.outputs("run")
        self.assertEqual(logits.shape, (8, 7))
        self.ada("evaluate", "run", "--predictions", "p.csv", "--no-progress")
        probabilities = self.softmax(logits)
        for row in csv.DictReader((self.folder / "p.csv").read_text().splitlines()):
            image = int(row["image"])
            self.assertEqual(int(row["prediction"]), int(logits[image].argmax()))
            self.assertAlmostEqual(float(row["probability"]), probabilities[image].max(), 6)

    def test_without_a_checkpoint_the_network_is_as_it_starts(self):
        started = self.outputs("--config", "net.yaml")
        self.assertTrue((started == self.outputs("-c", "net.yaml", "--set", "device.threads=1")).all())
        self.assertFalse((started == self.outputs("run")).all())
        checkpoint = sorted((self.folder / "run/checkpoints").glob("step-*.safetensors"))[-1]
        loaded = self.outputs("-c", "net.yaml", "--set", f"model.init.weights={checkpoint}",
                              "model.init.ignore_unknown=true")
        self.assertTrue((loaded == self.outputs("run")).all())
        self.assertIn("RUN is missing", self.ada("evaluate", code=2).stderr)

    def test_photos_get_the_outputs_of_the_same_images_in_the_data_set(self):
        names = ["a photo.png", "b.png"]
        for name, image in zip(names, self.images):
            write_png(self.folder / name, image)
        probabilities = self.softmax(self.outputs("run"))
        told = json.loads(self.ada("predict", *names, "--checkpoint", "run", "--json").stdout)
        rows = list(csv.DictReader(io.StringIO(
            self.ada("predict", *names, "--checkpoint", "run", "--csv", "--top", "7").stdout)))
        self.assertEqual(len(rows), 14)
        for number, (name, entry) in enumerate(zip(names, told)):
            self.assertEqual(entry["photo"], name)
            order = list(numpy.argsort(-probabilities[number]))
            self.assertEqual([guess["class"] for guess in entry["classes"]], order[:5])
            for guess in entry["classes"]:
                self.assertAlmostEqual(guess["probability"],
                                       probabilities[number][guess["class"]], 6)
            own = [row for row in rows if row["photo"] == name]
            self.assertEqual([int(row["class"]) for row in own], order)
        text = self.ada("predict", "b.png", "--checkpoint", "run", "--top", "1").stdout
        self.assertRegex(text, r"^b\.png\n +\d+\.\d\d %  class \d\n$")

    def test_a_photo_of_another_size_is_resized_and_cropped(self):
        large = numpy.repeat(numpy.repeat(self.images[0], 4, 0), 5, 1)
        write_png(self.folder / "large.png", large)
        self.ada("predict", "large.png", "--checkpoint", "run")

    def test_a_checkpoint_alone_is_enough(self):
        """Its two files, without the data set, the run's folder or the configuration's file."""
        named = {"train.images": self.images, "test.images": self.images[:7],
                 "train.labels": (numpy.arange(8) % 7).astype(numpy.int64),
                 "test.labels": numpy.arange(7)}
        network_step.write_arrays(self.folder / "named.safetensors", named,
                                   {"classes": "a,b,c,d,\u00e9,f,g"})
        custom = "data.normalize={mean: [0.1, 0.2, 0.3], std: [0.5, 0.6, 0.7]}"
        self.ada("train", "net.yaml", "--output", "named", "--no-progress", "--set",
                 "data.path=named.safetensors", custom)
        write_png(self.folder / "alone.png", self.images[3])
        before = self.ada("predict", "alone.png", "--checkpoint", "named", "--json").stdout
        probabilities = self.softmax(self.outputs("named"))
        for guess in json.loads(before)[0]["classes"]:
            self.assertAlmostEqual(guess["probability"], probabilities[3][guess["class"]], 6)
            self.assertEqual(guess["name"], "abcd\u00e9fg"[guess["class"]])
        with tempfile.TemporaryDirectory() as elsewhere:
            for path in (self.folder / "named/checkpoints").glob("step-00000002.*"):
                shutil.copy(path, elsewhere)
            shutil.copy(self.folder / "alone.png", elsewhere)
            arguments = ["predict", "alone.png", "--checkpoint", "step-00000002.safetensors"]
            self.assertEqual(self.ada(*arguments, "--json", folder=elsewhere).stdout, before)
            told = self.ada(*arguments, "--data", "named.safetensors", folder=elsewhere, code=3)
            self.assertIn("named.safetensors: cannot be opened", told.stderr)

    def test_what_cannot_be_read_is_named(self):
        self.assertIn("no.png: cannot be opened", self.ada(
            "predict", "no.png", "--checkpoint", "run", code=3).stderr)
        self.assertIn("net.yaml: is text", self.ada(
            "predict", "net.yaml", "--checkpoint", "run", code=3).stderr)
        self.assertIn("PHOTO is missing", self.ada(
            "predict", "--checkpoint", "run", code=2).stderr)
        self.assertIn("--checkpoint is missing", self.ada("predict", "a.png", code=2).stderr)
        self.assertIn("none: no such checkpoint", self.ada("evaluate", "none", code=3).stderr)


if __name__ == "__main__":
    unittest.main()
