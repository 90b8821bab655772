"""What files of texts and tokens are told to be before the first step: the width of numbers, folders
that are passed over, bytes that are no text, splits without a target."""
import csv
import gzip
import io
import json
import os
import struct
import subprocess
import unittest

from tests.program_case import BINARY, ProgramCase

try:
    import numpy
except ImportError:
    numpy = None

WORDS = b"the cat sat on the mat and a dog lay in the fog. " * 40

RUN = """
seed: 3
device: {kind: cpu, threads: 1}
task: language
data: {%s, batch_size: 4, workers: 0}
model:
  layers:
    - {name: wte, kind: embedding, vocabulary: 131072, features: 4}
    - {name: head, kind: linear, features: classes}
optimizer: {kind: adamw, lr: 0.01}
train: {max_steps: 2}
output: run
"""
TEXT = RUN % "dataset: text, path: corpus, context: 8, validation: 0.2"
TOKENS = RUN % "dataset: tokens, path: train.bin, context: 8, validation: 0.2"
ROWS = RUN % "dataset: tensors, path: rows.safetensors"


def write_rows(path, arrays):
    header, data = {}, b""
    for name, rows in arrays.items():
        content = struct.pack(f"<{len(rows) * len(rows[0])}q", *(x for row in rows for x in row))
        header[name] = {"dtype": "I64", "shape": [len(rows), len(rows[0])],
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class TokenFiles(ProgramCase):
    def ada(self, code, *arguments, config=None):
        if config is not None:
            self.put("r.yaml", config.encode())
        done = self.run_program(*arguments, code=code)
        return done.stdout + done.stderr

    def everywhere(self, *more):
        """What a run, a dry run and a check say; the check as rows."""
        run = self.ada(0, "train", "r.yaml", "--overwrite", "--no-progress", *more)
        dry = self.ada(0, "train", "r.yaml", "--dry-run", *more)
        check = self.ada(0, "datasets", "--check", "r.yaml", "--csv", *more)
        return run, dry, list(csv.DictReader(io.StringIO(check)))

    def test_folders_in_a_folder_of_texts(self):
        for name in ("README", "AA/one", "AA/two", "AB/one"):
            self.put(f"corpus/{name}", WORDS)
        self.put("r.yaml", TEXT.encode())
        line = ("corpus: 2 folders in it are not read: AA, AB (data.path: corpus/*/* takes their "
                "files)")
        run, dry, check = self.everywhere()
        self.assertIn(line, run)
        self.assertIn(line, dry)
        self.assertEqual([(row["kind"], row["ends_run"]) for row in check], [("not_read", "0")])
        self.assertIn(line, check[0]["message"])
        self.assertIn(f"files     1 file, {len(WORDS)} bytes", dry)
        self.assertIn("not_read", self.ada(0, "datasets", "--check", "r.yaml"))
        run, dry, check = self.everywhere("--set", "data.path=corpus/*/*")
        self.assertNotIn("not read", run + dry)
        self.assertEqual(check, [])
        self.assertIn(f"files     3 files, {3 * len(WORDS)} bytes", dry)

    def test_texts_that_are_none(self):
        for name, content, word in (
                ("plain", WORDS, None),
                ("wide", WORDS.decode().encode("utf-16"), "UTF-16"),
                ("packed", gzip.compress(WORDS), "gzip"),
                ("filled", WORDS + bytes(2000), f"2,000 of {len(WORDS) + 2000:,} bytes are 0")):
            with self.subTest(name):
                self.put("corpus/a.txt", content)
                run, dry, check = self.everywhere() if name != "plain" else (
                    self.put("r.yaml", TEXT.encode()) or self.everywhere())
                if word is None:
                    self.assertNotIn("WARNING", run.upper())
                    self.assertEqual(check, [])
                    continue
                self.assertEqual(sum("corpus/a.txt: " in line and word in line
                                     for line in run.splitlines()), 1, run)
                self.assertEqual(sum(line.startswith("warning   corpus/a.txt: ") and word in line
                                     for line in dry.splitlines()), 1, dry)
                self.assertEqual([row["kind"] for row in check], ["encoding"])
                self.assertIn(word, check[0]["message"])

    def test_a_long_text_is_not_read_to_look_at_it(self):
        self.put("corpus", WORDS)
        os.truncate(self.folder / "corpus", 10 << 30)  # takes no room on the disk
        self.put("r.yaml", TEXT.encode())
        for arguments in (["train", "r.yaml", "--dry-run"], ["datasets", "--check", "r.yaml"]):
            process = subprocess.Popen([BINARY, *arguments], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss, 1 << 20)  # KiB, mapped pages among them

    @unittest.skipIf(numpy is None, "numpy is missing")
    def test_widths_of_numbers(self):
        tokens = numpy.random.default_rng(1).integers(0, 128256, 2000)
        small = tokens % 50257
        self.put("r.yaml", TOKENS.encode())

        def dry(numbers, code, *more):
            self.put("train.bin", numbers.tobytes())
            return self.ada(code, "train", "r.yaml", "--dry-run", *more)
        self.assertIn("is read as uint16", dry(small.astype("<u2"), 0))
        for numbers in (tokens, small):
            self.assertIn("it looks like uint32; say which it is: data.element: uint32 or uint16",
                          dry(numbers.astype("<u4"), 3))
            self.assertIn("it looks like int64; write it as uint16 or uint32",
                          dry(numbers.astype("<i8"), 3))
        self.assertNotIn("warning", dry(tokens.astype("<u4"), 0, "--set", "data.element=uint32"))
        said = dry(small.astype("<i8"), 0, "--set", "data.element=uint32")
        self.assertIn("warning   train.bin: as uint32 (data.element) every second token is 0: it "
                      "looks like int64", said)
        check = self.ada(0, "datasets", "--check", "r.yaml", "--set", "data.element=uint32")
        self.assertIn("it looks like int64", " ".join(check.split()))
        said = dry(tokens.astype("<u4"), 3, "--set", "data.element=uint16",
                   "data.vocabulary=50257")
        self.assertIn("the file looks like uint32 (data.element)", said)
        for kind in ("<u2", "<u4", "<i4", "<i8"):
            numpy.save(self.folder / "t.npy", (small if kind == "<u2" else tokens).astype(kind))
            said = self.ada(0, "train", "r.yaml", "--dry-run", "--set", "data.path=t.npy")
            self.assertIn("after the header of NumPy", said)
            self.assertIn(f"tokens    {(small if kind == '<u2' else tokens).max() + 1} different",
                          said)

    def test_splits_without_a_target(self):
        rows = [[1, 2, 3, 4]] * 8
        none = [[-100] * 4] * 8
        some = none[:7] + [[-100, 3, -100, -100]]
        for arrays, more, split in (
                ({"train.tokens": rows, "train.targets": rows, "test.tokens": rows,
                  "test.targets": none}, [], "test"),
                ({"train.tokens": rows, "train.targets": none, "test.tokens": rows}, [], "train"),
                ({"train.tokens": rows, "train.targets": rows[:4] + none[:4]},
                 ["data.validation=3"], "validation"),
                ({"train.tokens": rows, "train.targets": rows, "test.tokens": rows,
                  "test.targets": some}, ["data.limit.test=4"], "test"),
                ({"train.tokens": [[1]] * 8, "test.tokens": [[1]]}, [], "train"),
        ):
            with self.subTest(arrays=list(arrays), split=split):
                write_rows(self.folder / "rows.safetensors", arrays)
                self.put("r.yaml", ROWS.encode())
                more = ["--set", *more] if more else []
                for command in (["train", "r.yaml"], ["train", "r.yaml", "--dry-run"],
                                ["datasets", "--check", "r.yaml"]):
                    said = " ".join(self.ada(3, *command, *more).split())
                    self.assertIn(f"in split {split}; expected a target or more", said)
                self.assertFalse((self.folder / "run").exists())
        write_rows(self.folder / "rows.safetensors",
                   {"train.tokens": rows, "train.targets": some, "test.tokens": rows,
                    "test.targets": some})
        self.everywhere()


if __name__ == "__main__":
    unittest.main()
