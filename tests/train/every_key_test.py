"""Every key of the JSON Schema with values of a wrong length, sign and kind, in each task: exit 2
with a message, or 0 where the value happens to be right; never a bug and never a signal.

What the schema refuses is refused when a file is read, which tests/config tries value by value. Here
most values are those that it admits: whether they fit is known when the data are. With ADA_SLOW=1
those that it admits are tried in all tasks, those that it refuses in one, and those of layers in
layers of every kind."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.program_case import BINARY, SharedFolderCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import small_sets  # noqa: E402

try:
    import jsonschema
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

SLOW = os.environ.get("ADA_SLOW") == "1"

WRONG = [-1, 0, 7, 1.5, "word", True, [], [1], [1, 1], [1, 1, 1, 1, 1], [-1, -2, -3], [[1], [2]],
         ["word"], ["word", "other"], {}, {"a": 1}, None]
# Keys that name files: what they name is missing here.
NAMES_FILES = ("data.path", "data.splits", "data.class_names", "model.init.weights", "model.file")
# Keys that the data may contradict: a text has bytes that a vocabulary of seven does not.
DATA_DECIDE = ("model.classes", "model.vocabulary")
# What an entry of a list needs besides the key that is tried, and what the list needs besides it.
ENTRIES = {
    "precision.layers": ({"match": "*"}, []),
    "scaling.layers": ({"match": "*"}, []),
    "optimizer.groups": ({"match": "*", "lr_factor": 1}, []),
    "model.init.parameters": ({"match": "*"}, []),
    "log.what_if": ({"name": "a"}, ["log.histogram_every=1"]),
}


class Keys:
    """The keys of a schema, by their paths, with their own schemas."""

    def __init__(self, schema):
        self.schema, self.found = schema, {}
        self.walk(schema, "", ())

    def sections_of(self, schema):
        """The sections that a value may be, and whether they are entries of a list."""
        if "$ref" in schema:
            yield self.schema["$defs"][schema["$ref"].rsplit("/", 1)[1]], False
        for part in ("anyOf", "allOf"):
            for inner in schema.get(part, []):
                yield from self.sections_of(inner)
        for part in ("then", "else"):
            if part in schema:
                yield from self.sections_of(schema[part])
        if isinstance(schema.get("items"), dict):
            for section, _ in self.sections_of(schema["items"]):
                yield section, True

    def walk(self, section, path, parents):
        for name, key in section.get("properties", {}).items():
            if not isinstance(key, dict):
                continue
            here = f"{path}.{name}" if path else name
            self.found.setdefault(here, key)
            for inner, entry in self.sections_of(key):
                if id(inner) in parents or "properties" not in inner:
                    continue
                self.walk(inner, here + ("[]" if entry else ""), parents + (id(inner),))


class EveryKey(SharedFolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small_sets.write_all(cls.folder)
        cls.schema = json.loads(cls.words_of("schema"))
        cls.keys = Keys(cls.schema).found

    def run_one(self, task, overrides, train=False):
        """The exit code and the messages of a dry run, or of a run into a folder of its own."""
        command = [BINARY, "train", f"{task}.yaml"]
        for override in overrides:
            command += ["--set", override]
        if train:
            with tempfile.TemporaryDirectory(dir=self.folder) as own:
                return self.ended(command + ["--output", own + "/run", "--no-progress"])
        return self.ended(command + ["--dry-run"])

    def ended(self, command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=120)
        return done.returncode, done.stderr

    def overrides(self, path, value):
        """How the command line says that the key at `path` has the value; None: not here."""
        if path.count("[]") == 0:
            return [f"{path}={json.dumps(value)}"]
        where, name = path.split("[].", 1)
        if where not in ENTRIES or "[]" in name or "." in name:
            return None
        entry, others = ENTRIES[where]
        return others + [f"{where}={json.dumps([{**entry, name: value}])}"]

    def judge(self, task, path, value, overrides):
        code, told = self.run_one(task, overrides)
        allowed = {0, 2}
        if path.startswith(NAMES_FILES) or (task == "language" and path in DATA_DECIDE):
            allowed.add(3)
        if path.startswith("device"):
            allowed.add(4)
        if code not in allowed or (code != 0 and not told.strip()):
            return f"{task}: {overrides}: exit {code}: {told}"
        if code == 0 and isinstance(value, list):
            code, told = self.run_one(task, overrides, train=True)
            if code not in allowed | {5}:
                return f"{task}: {overrides}: trains, exit {code}: {told}"
        return None

    def jobs(self):
        tasks = list(small_sets.RUNS)
        for number, (path, key) in enumerate(sorted(self.keys.items())):
            judge = jsonschema.Draft202012Validator({**key, "$defs": self.schema["$defs"]})
            for value in WRONG:
                overrides = self.overrides(path, value)
                if overrides is None:
                    continue
                admitted = judge.is_valid(value)
                if admitted and (SLOW or isinstance(value, list)):
                    chosen = tasks
                elif SLOW or admitted or value in (None, "word"):
                    chosen = [tasks[number % len(tasks)]]
                else:
                    chosen = []
                for task in chosen:
                    yield task, path, value, overrides

    def layer_jobs(self):
        """Each key of a layer, in layers of each kind."""
        kinds = self.keys["model.layers[].kind"]["enum"]
        for path, key in sorted(self.keys.items()):
            name = path.removeprefix("model.layers[].")
            if not path.startswith("model.layers[].") or name in ("name", "kind", "repeat"):
                continue
            judge = jsonschema.Draft202012Validator({**key, "$defs": self.schema["$defs"]})
            for kind in kinds:
                layer = {"name": "z", "kind": kind, "inputs": ["input"]}
                for value in WRONG:
                    if not judge.is_valid(value):
                        continue
                    layers = [{**layer, name: value},
                              {"name": "fc", "kind": "linear", "features": "classes"}]
                    yield ("classification", path, value,
                           [f"model={json.dumps({'layers': layers})}"])

    @unittest.skipUnless(SLOW, "ADA_SLOW is not 1")
    def test_layers(self):
        self.check(list(self.layer_jobs()))

    def check(self, jobs):
        self.assertGreater(len(jobs), 500)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [text for text in pool.map(lambda job: self.judge(*job), jobs) if text]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(jobs)}:\n" + "\n".join(wrong[:20]))

    def test_wrong_values_are_refused_and_never_a_bug(self):
        self.assertGreater(len(self.keys), 200)
        self.check(list(self.jobs()))

    def test_lists_of_a_wrong_length_are_refused_with_the_number_that_is_expected(self):
        for task, override, told in [
                ("segmentation", "train.class_weights=[1, 1]",
                 "--set train.class_weights: expected one number a class, 3; got 2"),
                ("segmentation", "train.class_weights=[1, 1, 1, 1]",
                 "--set train.class_weights: expected one number a class, 3; got 4"),
                ("classification", "data.normalize={mean: [0.5], std: [1, 1, 1]}",
                 "data.normalize.mean: expected one number per channel, 3; got 1"),
                ("classification", "data.normalize={mean: [0.5, 0.5, 0.5], std: [1, 1]}",
                 "data.normalize.std: expected one number per channel, 3; got 2"),
                ("classification", "data.augment.random_erasing.value=[1, 2]",
                 "--set data.augment.random_erasing.value: 2 values for images of 3 channels"),
                ("detection", "detection.variances=[0.1]", "expected two numbers"),
        ]:
            with self.subTest(override):
                code, said = self.run_one(task, [override])
                self.assertEqual(code, 2, said)
                self.assertIn(told, said)

    def test_the_place_in_the_file_is_told(self):
        text = small_sets.PIXEL_RUN.replace("train: {epochs: 50, max_steps: 2}",
                                            "train:\n  class_weights: [1, 1]")
        (self.folder / "placed.yaml").write_text(text)
        line = text.splitlines().index("  class_weights: [1, 1]") + 1
        for more in (["--dry-run"], ["--no-progress"]):
            code, told = self.ended([BINARY, "train", "placed.yaml", *more])
            self.assertEqual(code, 2, told)
            self.assertEqual(told, f"ada-train: placed.yaml:{line}:18: train.class_weights: "
                                   "expected one number a class, 3; got 2\n")
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
