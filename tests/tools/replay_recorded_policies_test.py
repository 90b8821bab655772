"""`ada-train replay` against recordings of scaling rules (../shared/golden/practice/policies):
guided-diffusion, apex' hysteresis, mindformers, DALL-E's scales of blocks, and nan_to_num before Adam.
Needs numpy for the last; the recordings may be missing."""
import csv
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.tools import replay_updates_test as updates
from tests.tools.safetensors_file import arrays, write_arrays

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = updates.PROGRAM
RECORDED = updates.SHARED / "golden/practice/policies"
GLOBAL = {"guided_diffusion": ("guided_diffusion",
                               {"initial_lg_loss_scale": "init_lg_scale", "fp16_scale_growth": "lg_growth"}),
          "apex_hysteresis": ("apex_hysteresis", {}),
          "mindformers": ("mindformers",
                          {"loss_scale_value": "init_scale", "scale_factor": "growth_factor",
                           "scale_window": "growth_interval", "max_scale_window": "max_window",
                           "min_scale_window": "min_window"})}


def read(path):
    lines = path.read_text().splitlines()
    given = next(line for line in lines if line.startswith("# params")).split(":", 1)[1].split(";")[0]
    parameters = dict(word.split("=", 1) for word in given.split())
    return parameters, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def replay(*arguments):
    result = subprocess.run([PROGRAM, "replay", "--csv", *arguments], capture_output=True, text=True,
                            check=False)
    return result.returncode, list(csv.DictReader(result.stdout.splitlines())), result.stderr


@unittest.skipUnless(RECORDED.is_dir(), f"{RECORDED} is missing")
class RecordedPoliciesTest(unittest.TestCase):
    def compare(self, ours, theirs):
        self.assertEqual(len(ours), len(theirs))
        for mine, row in zip(ours, theirs):
            for column in ("scale", "scale_after"):
                self.assertEqual(float(mine[column]), float(row[column]), (row, column))
            self.assertEqual(mine["skipped"], row["skipped"], row)

    def test_global(self):
        for system, (preset, names) in GLOBAL.items():
            for path in sorted((RECORDED / system).glob("*.csv")):
                with self.subTest(system, trace=path.name):
                    parameters, rows = read(path)
                    keys = [f"scaling.{names.get(k, k)}={v}" for k, v in parameters.items()]
                    code, ours, error = replay(path, "--preset", preset, "--set", *keys)
                    self.assertEqual(code, 0, error)
                    self.compare(ours, rows)

    def test_blocks(self):
        for path in sorted((RECORDED / "dalle_resblock").glob("*.csv")):
            with self.subTest(path.name):
                parameters, rows = read(path)
                replicas = float(parameters["replicas"])
                start = replicas * 2.0 ** float(re.search(r"2\^([\d.]+)", parameters["init"])[1])
                keys = [f"scaling.init_scale={start!r}", f"scaling.growth_interval={parameters['window']}",
                        f"scaling.min_scale={replicas * 2 ** 7}", f"scaling.max_scale={replicas * 2 ** 24}"]
                code, ours, error = replay(path, "--policy", "layerwise_dynamic", "--preset", "dalle",
                                           "--set", *keys)
                self.assertEqual(code, 0, error)
                self.compare(ours, rows)

    @unittest.skipUnless(updates.np, "numpy is missing")
    def test_replaced(self):
        np = updates.np
        for path in sorted((RECORDED / "nan_to_num").glob("*.csv")):
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                parameters, rows = read(path)
                world = np.float32(parameters["world"]) if path.name.startswith("stylegan") else 1
                gradients = [np.array(row["gradient"].split(), np.float32) / np.float32(world)
                             for row in rows]
                given, kept = (pathlib.Path(folder) / name for name in ("in", "out"))
                write_arrays(given, {"p": np.ones(gradients[0].size, np.float32)} |
                             {f"g.{t + 1}": g for t, g in enumerate(gradients)})
                code, _, error = replay(
                    "--updates", given, "-o", kept, "--set", "optimizer.kind=adam", "optimizer.lr=0.01",
                    "scaling.policy=none", "scaling.on_overflow={action: sanitize, nan: 0, inf: 1.0e5}")
                self.assertEqual(code, 0, error)
                out = arrays(kept)
                for t, row in enumerate(rows, 1):
                    want = np.array(row["parameter_after"].split(), np.float64)
                    apart = np.abs(out[f"p.{t}"] - want) / np.maximum(np.abs(want), 1e-30)
                    self.assertLessEqual(apart.max(), 3e-5, f"step {t}")


if __name__ == "__main__":
    unittest.main()
