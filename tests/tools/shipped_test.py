"""What comes with the program, used from a folder that is not the source tree: configurations,
the data script, completions; and ada_train.run, which starts the program from Python."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.setdefault(  # for ada_train.run too
    "ADA_TRAIN", os.environ.get("ADA_BINARY", str(ROOT / "build/ada-train")))
sys.path.insert(0, str(ROOT / "tools/python"))

SYNTHETIC = """{name: tiny, data: {dataset: synthetic, batch_size: 16,
  synthetic: {height: 8, width: 8, train: 64, test: 32}},
  model: {layers: [{name: flat, kind: flatten}, {name: fc, kind: linear, features: 10}]}, train: {epochs: 1}}"""


class ShippedTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="ada shipped ")  # with a space
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, *words, expect=0, **environment):
        variables = {key: value for key, value in os.environ.items() if key != "ADA_DATA"}
        done = subprocess.run([PROGRAM, *words], cwd=self.folder, env={**variables, **environment},
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def test_a_shipped_configuration_is_found_from_any_folder(self):
        for name in ("resnet20_cifar.yaml", "resnet20_cifar", "configs/resnet20_cifar.yaml"):
            done = self.run_program("--config", name, "--print-config")
            self.assertIn("path: data/cifar-10\n", done.stdout)
            self.assertIn("name: resnet20_cifar\n", done.stdout)
            self.assertIn(f"{name}: no file here; taken from ", done.stderr)

    def test_shipped_yaml_is_the_same_to_readers_of_yaml_1_1(self):
        # There a bare y or no is a boolean.
        word = re.compile(r"(?<=[\[{,:] |.[\[{])(y|n|yes|no|on|off)(?=\s*[,\]}:#\n])", re.I)
        self.assertTrue(word.search("statistics: [y, w]\n"))
        texts = {path.name: path.read_text(encoding="utf-8")
                 for path in sorted((ROOT / "configs").rglob("*.yaml"))}
        for path in (ROOT / "README.md", *ROOT.glob("*/*.md"), *ROOT.glob("*/*/*.md")):
            blocks = re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
            texts[str(path)] = "\n".join(blocks)
        for name, text in texts.items():
            lines = [re.sub(r"#.*|\"[^\"]*\"", "", line) + "\n" for line in text.splitlines()]
            self.assertEqual([line for line in lines if word.search(line)], [], name)

    def test_scripts_that_name_their_interpreter_can_be_run(self):
        scripts = [path for folder in ("tools", "tests") for path in (ROOT / folder).rglob("*")
                   if path.suffix in (".py", ".sh") and path.read_bytes()[:2] == b"#!"]
        self.assertGreater(len(scripts), 20)
        self.assertEqual([str(path) for path in scripts if not os.access(path, os.X_OK)], [])

    def test_a_file_comes_first(self):
        (self.folder / "lenet_fashion.yaml").write_text(SYNTHETIC)
        done = self.run_program("--config", "lenet_fashion.yaml", "--print-config")
        self.assertIn("name: tiny\n", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_an_unknown_name_is_refused_with_the_nearest(self):
        done = self.run_program("--config", "resnet20_cifr.yaml", expect=2)
        self.assertIn("did you mean resnet20_cifar.yaml? `ada-train configs` lists them",
                      done.stderr)

    def test_the_data_root_is_the_environments(self):
        done = self.run_program("--config", "resnet20_cifar", "--print-config", ADA_DATA="/big")
        self.assertIn("path: /big/cifar-10\n", done.stdout)
        bare = self.folder / "bare.yaml"
        bare.write_text("{data: {dataset: mnist}, model: {zoo: lenet}}")
        self.assertIn("path: /big/mnist\n", self.run_program(
            "--config", "bare.yaml", "--print-config", ADA_DATA="/big").stdout)
        self.assertIn("path: data/mnist\n", self.run_program(
            "--config", "bare.yaml", "--print-config").stdout)

    def test_missing_data_name_the_command_that_fetches_them(self):
        done = self.run_program("--config", "resnet20_cifar", expect=3)
        self.assertIn("fetch it: ada-train fetch cifar10 --to data/cifar-10", done.stderr)

    def test_the_list_has_every_file_with_a_sentence_and_a_source(self):
        lines = self.run_program("configs").stdout.splitlines()
        names = [line for line in lines if not line.startswith(" ")]
        there = sorted(str(path.relative_to(ROOT / "configs"))
                       for path in (ROOT / "configs").rglob("*.yaml"))
        self.assertEqual(names, there)
        self.assertEqual(sum(line.startswith("    data: ") for line in lines), len(there))
        for at, line in enumerate(lines):
            self.assertLessEqual(len(line), 80)
            if not line.startswith(" "):
                self.assertRegex(lines[at + 1], "^    [A-Z0-9]", line)

    def test_a_copy_is_the_file_and_never_overwrites(self):
        self.run_program("configs", "--copy", "sweep/none")
        self.assertEqual((self.folder / "none.yaml").read_bytes(),
                         (ROOT / "configs/sweep/none.yaml").read_bytes())
        (self.folder / "none.yaml").write_text("mine")
        self.run_program("configs", "--copy", "sweep/none", expect=6)
        self.assertEqual((self.folder / "none.yaml").read_text(), "mine")
        self.run_program("configs", "--copy", "nothing_like_it", expect=2)

    def test_fetch_is_the_data_script_with_its_exit_codes(self):
        self.assertIn("DATASET", self.run_program("fetch", "--help").stdout)
        self.run_program("fetch", "no-such-set", expect=2)
        done = self.run_program("fetch", "mnist", "--from", "nowhere", expect=3)
        self.assertIn("nowhere", done.stderr)
        self.assertFalse((self.folder / "data/mnist").exists())

    def complete(self, line):
        """What bash offers at the end of `line`."""
        script = self.run_program("completion", "bash").stdout
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            ["bash", "-c", f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n"
             "_ada_train 2>&1; printf '%s\\n' \"${COMPREPLY[@]}\""],
            cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_bash_completes_commands_options_and_keys(self):
        self.assertEqual(self.complete("ada-train insp"), ["inspect"])
        self.assertIn("--overwrite", self.complete("ada-train train --over"))
        self.assertIn("scaling.underflow_target=", self.complete("ada-train train --set scaling."))
        self.assertIn("resnet20_cifar.yaml", self.complete("ada-train train resnet20_"))

    def test_bash_completes_values(self):
        self.assertEqual(self.complete("ada-train train --policy dy"), ["dynamic"])
        self.assertIn("megatron", self.complete("ada-train replay --preset "))
        self.assertEqual(self.complete("ada-train train --format fp8_e5m2_"), ["fp8_e5m2_fnuz"])
        self.assertIn("nvfp4", self.complete("ada-train assign --formats nv"))
        # With = as the end of a word, as bash has it, and without.
        for line, recipe in (("precision.recipe = te_m", "te_mxfp8"),
                             ("precision.recipe=te_m", "precision.recipe=te_mxfp8")):
            self.assertEqual(self.complete(f"ada-train train --set {line}"), [recipe])
        self.assertIn("pytorch", self.complete("ada-train train --set scaling.preset ="))

    def test_every_command_and_long_option_is_in_every_completion(self):
        said = self.run_program("help").stdout
        groups = re.findall(r"^([A-Z][a-z]+):$", said, re.MULTILINE)
        self.assertEqual(groups[:5], ["Options", "Train", "Look", "Decide", "Files"])
        commands = re.findall(r"^  ([a-z][a-z-]*) ", said.partition("\nTrain:\n")[2], re.MULTILINE)
        self.assertGreater(len(commands), 15)
        for shell in ("bash", "zsh", "fish"):
            text = self.run_program("completion", shell).stdout
            for command in commands:
                self.assertIn(command, text)
            self.assertIn("overwrite", text)
        self.run_program("completion", "tcsh", expect=2)

    def test_python_runs_the_program_and_reads_the_run(self):
        import ada_train
        from ada_train.program import RunFailed
        config = self.folder / "tiny.yaml"
        config.write_text(SYNTHETIC)
        output = str(self.folder / "out")
        run = ada_train.run(str(config), output=output, **{"scaling.policy": "fixed"},
                            scaling={"scale": 8})
        self.assertEqual(list(run.steps.step), [1, 2, 3, 4])
        self.assertEqual(set(run.steps.scale), {8.0})
        with self.assertRaises(RunFailed) as refused:
            ada_train.run(str(config), output=output, train={"epochs": -1})
        self.assertEqual(refused.exception.code, 2)
        self.assertIn("train.epochs", refused.exception.words)


if __name__ == "__main__":
    unittest.main()
