"""What README.md says, beside what the program does: the end of the quick start, the formats that
`choose` ranks, the run that fails with what `advise` makes of it (ADA_SLOW=1 and the data), and every
sentence with a figure: it is checked here, or its page has the command. ADA_BINARY names the program."""
import csv
import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from tests.program_case import BINARY, ProgramCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
JARGON = pathlib.Path(os.environ.get("ADA_DATA", ROOT / "data")) / "jargon/jargon.txt"
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())
AVX2 = " avx2 " in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
ACCURACY = re.compile(r"test accuracy ([\d.]+) %")
POINTS = 1.5  # by which instruction sets, which add in another order, may differ
# Sentences with figures that a test below checks; all others have a link to the page of their command.
CHECKED = (
    r"in fp16 a gradient of 0\.00000001 is zero", r"those of twenty systems",  # Facts
    r"starts with S = 1 and loses a quarter", r"multiplies what it passes on by 8",  # the quick start
    r"exit code 5 \(with AVX2", r"cause in step 1", r"reaches 85\.87 %",  # the run that fails
    r"bf16 here", r"within 1 % of fp32",  # choose
)
# Figures that are no claims about what the program does: names, kinds of formats, what is needed.
NAMES = re.compile(r"\b(fp|bf|FP|MXFP|NVFP)\d+\w*|\bGPT-2\b|IJCAI-20|x86-64|64-bit|ResNet-\d+|SSD\d*|"
                   r"Debian 12 or 13|16, 8 or 4 bits than in 32|gradients in 8 bits|H200|AVX2|AVX-512|Zen \d|"
                   r"S = 1\b(?= and)|fc\d")


def program(*words, cwd=None, code=0, **variables):
    done = subprocess.run([BINARY, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})
    if done.returncode != code:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def sentences():
    """Those outside of blocks of code, headings and tables."""
    text = re.sub(r"(?ms)^```.*?^```$", "", PAGE)
    kept = [line for line in text.split("\n") if not line.startswith(("#", "|", "!["))]
    return [" ".join(sentence.split()) for paragraph in re.split(r"\n\n|\n\* ", "\n".join(kept))
            for sentence in re.split(r"(?<=[.:!?])\s+(?=[A-Z`])", paragraph)]


class Facts(unittest.TestCase):
    def test_every_figure_is_checked_or_has_its_page(self):
        claims = [one for one in sentences()
                  if re.search(r"\d|\btwenty\b|\bquarter\b", NAMES.sub("", re.sub(r"`[^`]*`|\([^)]*\.md[^)]*\)",
                                                                                  "", one)))]
        self.assertGreater(len(claims), 5)
        for claim in claims:
            with self.subTest(claim):
                self.assertTrue(any(re.search(pattern, claim) for pattern in CHECKED)
                                or re.search(r"\]\([\w/]+\.md", claim), claim)
        for pattern in CHECKED:
            self.assertRegex(FLAT, pattern)

    def test_what_vanishes_in_fp16(self):
        formats = json.loads(program("formats", "--json"))["entries"]
        smallest = next(one for one in formats if one["name"] == "fp16")["smallest_subnormal"]
        self.assertLess(0.00000001, smallest / 2)  # which would round to the smallest, or to zero

    def test_twenty_systems(self):
        self.assertEqual(len(re.findall("^dynamic, preset ", program("policies"), re.MULTILINE)), 20)

    def test_lines_and_columns(self):
        self.assertLessEqual(len(PAGE.splitlines()), 130)


class Trained(ProgramCase):
    def run_program(self, *words, code=0, **variables):
        return program(*words, cwd=self.folder, code=code, **variables)

    def train(self, name, *more, code=0, **variables):
        return self.run_program("train", *more, "--no-progress", "--output", name, code=code, **variables)

    @unittest.skipUnless(os.environ.get("ADA_SLOW") and JARGON.is_file(),
                         "ADA_SLOW is not set, or data/jargon is missing (ada-train fetch jargon)")
    def test_choose_says_what_the_page_shows(self):
        command = re.search(r"^build/ada-train (choose .*?)(?: +#.*)?$", PAGE, re.MULTILINE).group(1)
        words = shlex.split(command)
        words[1] = str(ROOT / words[1])
        found = json.loads(self.run_program(*words, "--json", "--out", "a", "--data", JARGON.parent))
        shown = dict(re.findall(r"^ {2}(\w+) +\d+\.\d+ +([+-]\d+\.\d+) ", PAGE, re.MULTILINE))
        arms = {arm["arm"]: arm["loss_minus_baseline"] for arm in found["arms"] if arm["arm"] in shown}
        self.assertEqual(set(arms), set(shown))
        for arm, minus in arms.items():
            self.assertAlmostEqual(minus, float(shown[arm]), delta=max(0.01, abs(minus) / 10))
        self.assertEqual(found["verdict"]["arm"], re.search(r"^Take (\w+):", PAGE, re.MULTILINE).group(1))
        self.assertLess(abs(arms["torchao_mxfp8"] - arms["bf16"]), 0.005)
        self.assertGreater(arms["mxfp8_e4m3"], 2 * abs(arms["torchao_mxfp8"]))
        self.assertGreater(arms["nvfp4"], 4 * arms["nvfp4_pretraining"])

    @unittest.skipUnless(os.environ.get("ADA_SLOW") and DATA.is_dir(),
                         "ADA_SLOW is not set, or Fashion-MNIST is missing")
    def test_the_quick_start_ends_as_the_page_shows(self):
        said = self.train("runs/fashion_quickstart", ROOT / "configs/fashion_quickstart.yaml")
        shown = re.search(r"```\n(run fashion_quickstart.*?)```", PAGE, re.DOTALL).group(1)
        for text in (shown, said):
            self.assertIn("4 epochs, 1872 steps (0 skipped)", text)
        self.assertAlmostEqual(float(ACCURACY.search(said).group(1)),
                               float(ACCURACY.search(shown).group(1)), delta=POINTS)
        row = re.compile(r"^  (\w+)\s+dx\s+([\d.]+) %\s+[\d.]+ %\s+(\d+)\s+(\S+)", re.MULTILINE)
        rows = [{layer: more for layer, *more in row.findall(text)} for text in (shown, said)]
        self.assertGreaterEqual(len(rows[0]), 4)
        self.assertEqual(sorted(rows[0]), sorted(rows[1]))
        for layer, (lost, *scales) in rows[0].items():
            self.assertAlmostEqual(float(lost), float(rows[1][layer][0]), delta=max(float(lost) / 4, 1))
            self.assertEqual(scales, rows[1][layer][1:], layer)  # S, and the layer's own factor
        counted = re.compile(r"^counted: .*$", re.MULTILINE)
        self.assertEqual(counted.search(shown).group(), counted.search(said).group())

    @unittest.skipUnless(os.environ.get("ADA_SLOW") and DATA.is_dir() and AVX2,
                         "ADA_SLOW is not set, or Fashion-MNIST or AVX2 is missing")
    def test_the_run_that_fails_and_the_advice_that_mends_it(self):
        config = ROOT / "configs/fashion_deep_fp8.yaml"
        self.train("bad", config, code=5, ADA_ISA="avx2")
        log = (self.folder / "bad/log.txt").read_text(encoding="utf-8")
        for event in re.findall(r"^(step \d+: .*)$", PAGE, re.MULTILINE):
            self.assertIn(event, log)
        with open(self.folder / "bad/steps.csv", encoding="utf-8", newline="") as file:
            self.assertTrue(all(row["skipped"] == "1" for row in list(csv.DictReader(file))[-50:]))
        advice = self.run_program("advise", "bad", "--yaml", "a.yaml")
        self.assertRegex(advice.splitlines()[0], r"^scaling: .*65536.*fc3\.dx lost 100 % ")
        self.assertNotIn("optimizer:", advice)
        said = self.run_program("recommend", "bad", "--yaml", "b.yaml")
        for wrong in ("does not help", "does not mend", "smaller scale", "too large"):
            self.assertNotIn(wrong, advice + said)
        self.assertEqual((self.folder / "a.yaml").read_bytes(),
                         (self.folder / "b.yaml").read_bytes())
        mended = float(ACCURACY.search(self.train("good", config, "--with", "a.yaml")).group(1))
        said = self.train("fp32", config, "--set", "precision={format: fp32}")
        fp32 = float(ACCURACY.search(said).group(1))
        told = re.search(r"reaches ([\d.]+) % on the test set; in fp32 it reaches ([\d.]+) %", FLAT)
        self.assertAlmostEqual(mended, float(told.group(1)), delta=POINTS)
        self.assertAlmostEqual(fp32, float(told.group(2)), delta=POINTS)
        self.assertGreater(mended, fp32 - POINTS)


if __name__ == "__main__":
    unittest.main()
