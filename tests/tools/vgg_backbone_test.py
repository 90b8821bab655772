"""tools/vgg_backbone.py: what becomes of torchvision's and the zoo's tensors, and what it refuses."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ADA_BINARY")
sys.path.insert(0, str(ROOT / "tests/tools"))
try:
    import numpy
    import network_step
except ImportError:
    numpy = None

# torchvision.models.vgg16().features and vgg16_bn().features: places of the convolutions, channels.
PLAIN = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
NORMED = (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40)
CHANNELS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
NAMES = ("1_1", "1_2", "2_1", "2_2", "3_1", "3_2", "3_3", "4_1", "4_2", "4_3", "5_1", "5_2", "5_3")


def random(*shape):
    return numpy.random.default_rng(1).random(shape, numpy.float32)


def convolutions(name_of):
    tensors, before = {}, 3
    for place, channels in enumerate(CHANNELS):
        tensors[name_of(place) + ".weight"] = random(channels, before, 3, 3)
        tensors[name_of(place) + ".bias"] = random(channels) + place
        before = channels
    return tensors


@unittest.skipIf(numpy is None, "numpy is missing")
class VggBackbone(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def call(self, tensors):
        network_step.write_arrays(self.path("in.safetensors"), tensors)
        return subprocess.run([sys.executable, str(ROOT / "tools/vgg_backbone.py"),
                               self.path("in.safetensors"), "-o", self.path("out.safetensors")],
                              capture_output=True, text=True, check=False)

    def converted(self, tensors):
        done = self.call(tensors)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return network_step.Tensors(self.path("out.safetensors"))

    def test_torchvision(self):
        given = convolutions(lambda place: f"features.{PLAIN[place]}")
        first, second = random(4096, 512 * 49), random(4096, 4096)
        given |= {"classifier.0.weight": first, "classifier.0.bias": random(4096),
                  "classifier.3.weight": second, "classifier.3.bias": random(4096),
                  "classifier.6.weight": random(1000, 4096), "classifier.6.bias": random(1000)}
        out = self.converted(given)
        self.assertEqual(len(out.entries), 2 * 15)
        for place, name in enumerate(NAMES):
            for part in ("weight", "bias"):
                self.assertTrue((out[f"conv{name}.{part}"] ==
                                 given[f"features.{PLAIN[place]}.{part}"]).all())
        self.assertEqual(out["conv6.weight"].shape, (1024, 512, 3, 3))
        for out_channel, in_channel, row, column in ((0, 0, 0, 0), (5, 17, 1, 2), (1023, 511, 2, 1)):
            self.assertEqual(out["conv6.weight"][out_channel, in_channel, row, column],
                             first[4 * out_channel, 49 * in_channel + 7 * 3 * row + 3 * column])
        self.assertEqual(out["conv7.weight"].shape, (1024, 1024, 1, 1))
        self.assertEqual(out["conv7.weight"][3, 1023, 0, 0], second[12, 4092])

    def test_batch_norm_takes_the_bias(self):
        given = convolutions(lambda place: f"features.{NORMED[place]}")
        for place, channels in zip(NORMED, CHANNELS):
            for part in ("weight", "bias", "running_mean", "running_var"):
                given[f"features.{place + 1}.{part}"] = random(channels) + 2
        out = self.converted(given)
        self.assertEqual(len(out.entries), 5 * 13)
        expected = given["features.38.running_mean"] - given["features.37.bias"]
        self.assertTrue((out["bn5_2.running_mean"] == expected).all())
        self.assertTrue((out["bn5_2.weight"] == given["features.38.weight"]).all())

    def test_the_zoo(self):
        out = self.converted(convolutions(lambda place: "stage{}.conv{}".format(*NAMES[place].split("_"))))
        self.assertEqual(len(out.entries), 2 * 13)
        self.assertIn("conv4_3.bias", out)

    def test_refusals(self):
        given = convolutions(lambda place: f"features.{PLAIN[place]}")
        del given["features.28.weight"]
        done = self.call(given)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no tensor features.28.weight", done.stderr)
        given["features.28.weight"] = random(512, 256, 3, 3)
        done = self.call(given)
        self.assertEqual(done.returncode, 3)
        self.assertIn("features.28.weight: expected shape [512, 512, 3, 3], found [512, 256, 3, 3]",
                      done.stderr)
        pathlib.Path(self.path("in.safetensors")).write_bytes(b"\x05")
        done = subprocess.run([sys.executable, str(ROOT / "tools/vgg_backbone.py"),
                               self.path("in.safetensors"), "-o", self.path("out.safetensors")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no safetensors file", done.stderr)


if __name__ == "__main__":
    unittest.main()
