"""`scaling.layers[].total_scale`: an S for each layer, as it is given. A table of totals trains to the
same bytes as the alphas that give the same S; a resumed run goes on with it; what it excludes is
refused. ADA_BINARY names the program."""
import unittest

from tests.program_case import ProgramCase, SMALL_NETWORK

CONFIG = SMALL_NETWORK.replace("train: 256", "train: 128") + """precision: {format: fp8_e5m2}
train: {epochs: 2}
log: {every: 1}
device: {kind: cpu, threads: 1}
scaling:
"""
BY_ALPHA = """  policy: adaptive
  init_scale: 64
  power_of_two: false
  layers:
    - {match: fc2, method: fixed, scale: 2}
    - {match: fc1, method: fixed, scale: 0.75}
"""
BY_TOTAL = """  policy: adaptive
  init_scale: 64
  layers:
    - {match: "fc?", total_scale: 128}
    - {match: fc1, total_scale: 96}
"""


class TotalScale(ProgramCase):
    def train(self, name, scaling, *more, code=0):
        (self.folder / f"{name}.yaml").write_text(CONFIG + scaling, encoding="utf-8")
        return self.run_program("train", f"{name}.yaml", "--quiet", "--output", name, *more,
                                code=code).stderr

    def test_a_table_is_what_its_alphas_are(self):
        self.train("alpha", BY_ALPHA)
        self.train("total", BY_TOTAL)
        for file in ("steps.csv", "underflow.csv"):
            self.assertEqual((self.folder / "alpha" / file).read_bytes(),
                             (self.folder / "total" / file).read_bytes(), file)
        for row in self.rows_of("total/scales.csv"):
            with self.subTest(row=row):
                totals = {"fc2": (64, 128, 2), "fc1": (128, 96, 0.75)}
                if row["layer"] in totals:
                    self.assertEqual(tuple(float(row[key]) for key in
                                           ("scale_in", "scale_out", "alpha")),
                                     totals[row["layer"]])
                    self.assertEqual(row["limit"], "state")

    def test_a_dry_run_tells_it(self):
        (self.folder / "r.yaml").write_text(CONFIG + BY_TOTAL, encoding="utf-8")
        done = self.run_program("train", "r.yaml", "--dry-run")
        self.assertRegex(done.stdout, r"(?m)^fc2 .*adaptive: total_scale 128$")

    def test_a_resumed_run_goes_on_with_it(self):
        self.train("whole", BY_TOTAL)
        self.train("parts", BY_TOTAL, "--set", "train.max_steps=5")
        self.train("parts", BY_TOTAL, "--resume")
        for file in ("steps.csv", "underflow.csv", "scales.csv"):
            self.assertEqual((self.folder / "whole" / file).read_bytes(),
                             (self.folder / "parts" / file).read_bytes(), file)

    def test_what_it_excludes_is_refused(self):
        for entry, words in (("total_scale: 8, method: fixed", "method"),
                             ("total_scale: 8, method: fixed, scale: 2", "scale"),
                             ("total_scale: 0", "2^-126 to 2^127")):
            with self.subTest(entry=entry):
                error = self.train("r", f"  policy: adaptive\n  layers: [{{match: fc1, {entry}}}]\n",
                                   code=2)
                self.assertIn("scaling.layers[]", error)
                self.assertIn(words, error)
        self.assertIn("total_scale", self.train(
            "r", "  policy: adaptive\n  reference: true\n  layers: [{match: fc1, total_scale: 8}]\n",
            code=2))
        self.assertIn("total_scale", self.train(
            "r", "  policy: layerwise_dynamic\n  layers: [{match: fc1, total_scale: 8}]\n", code=2))

    def test_a_summary_names_it_where_it_is_too_large(self):
        # relu1 hands on what fc1 makes; the policy's S is 1 throughout.
        for match in ("fc1", "fc2"):
            with self.subTest(match=match):
                self.train(match, f"  policy: adaptive\n  layers: [{{match: {match}, total_scale: 1e30}}]\n")
                said = (self.folder / match / "log.txt").read_text("utf-8")
                self.assertIn(f"first tensor {match}.dx", said)
                self.assertIn("its S, a total_scale of scaling.layers, is too large", said)
                self.assertNotIn("S = 1 is too large", said)
                self.assertRegex(said, r"; S = 1\.0000000\d*e\+30\n")
                skip = next(r for r in self.rows_of(f"{match}/events.csv") if r["event"] == "skip")
                self.assertIn("a total_scale of scaling.layers", skip["message"])
                asked = self.run_program("advise", match)
                self.assertIn(f"the total_scale that scaling.layers gives {match}", asked.stdout)

    def test_a_layers_own_alpha_is_not_taken_for_the_policys_scale(self):
        self.train("r", "  policy: adaptive\n  layers: [{match: fc2, method: fixed, scale: 1e30}]\n")
        said = (self.folder / "r/log.txt").read_text("utf-8")
        self.assertIn("the S that its layer chose (scales.csv) is too large", said)


if __name__ == "__main__":
    unittest.main()
