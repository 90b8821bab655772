#!/usr/bin/python3
"""The JSON Schema that `ada-train schema` prints, judged by a validator that is not ours.

usage: ADA_BINARY=build/ada-train python3 -m unittest -v tests/config/schema_test.py
(from the root). Needs Debian's python3-jsonschema and python3-yaml; without them it is skipped.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}", file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Yaml12(yaml.SafeLoader):
    """YAML 1.2's core schema, which editors use: 1e-4 is a number, `yes` and dates are text."""


Yaml12.yaml_implicit_resolvers = {}
for tag, expression, first in [
        ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
        ("float", r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
                  r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+0123456789."),
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""])]:
    Yaml12.add_implicit_resolver("tag:yaml.org,2002:" + tag, re.compile(expression), list(first))
Yaml12.add_constructor("tag:yaml.org,2002:int",
                       lambda loader, node: int(loader.construct_scalar(node)))

# A line of tests/bad/*.txt that says what a schema can know: a key that is unknown, missing or in
# the wrong place, a value of another type, word or range.
STRUCTURAL = re.compile(r"unknown key|missing; it has no default|missing; (?:policy|kind|dataset) "
                        r"\S+ needs it|does not belong to|not both|stands here twice"
                        r"|expected .*; got ")
# But for how a number is spelled, and what depends on other values.
BEYOND = re.compile(r"\((?:write it|leading zeros)|not finite|beyond what a double holds"
                    r"|one number per channel|duplicate key|model\.hidden: .*got a list")


def structural(message):
    """The lines of an expected message that a schema can find."""
    return [line for line in message.splitlines()
            if STRUCTURAL.search(line) and not BEYOND.search(line)]


class SchemaCase(unittest.TestCase):
    """The program's schema and a validator of it."""

    @classmethod
    def setUpClass(cls):
        cls.text = subprocess.run([os.environ["ADA_BINARY"], "schema"], check=True,
                                  capture_output=True, text=True).stdout
        cls.schema = json.loads(cls.text)
        cls.validator = jsonschema.Draft202012Validator(cls.schema)

    def refusals(self, text):
        """Why the schema refuses a YAML text: a list of messages."""
        document = yaml.load(text, Loader=Yaml12)
        return [f"{list(error.absolute_path)}: {error.message}"
                for error in self.validator.iter_errors(document)]


class SchemaTest(SchemaCase):
    """The schema itself, and whole configurations."""

    def test_the_schema_is_one(self):
        self.assertEqual(self.schema["$schema"], "https://json-schema.org/draft/2020-12/schema")
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_the_same_bytes_each_time(self):
        again = subprocess.run([os.environ["ADA_BINARY"], "schema"], check=True,
                               capture_output=True, text=True).stdout
        self.assertEqual(self.text, again)
        self.assertTrue(self.text.endswith("}\n"))

    def test_the_page_of_keys_is_what_the_program_prints(self):
        page = subprocess.run([os.environ["ADA_BINARY"], "schema", "--markdown"], check=True,
                              capture_output=True, text=True).stdout
        self.assertEqual(page, (ROOT / "configs/KEYS.md").read_text(encoding="utf-8"))

    def test_every_map_refuses_unknown_keys(self):
        maps = [self.schema] + list(self.schema["$defs"].values())
        self.assertGreater(len(maps), 20)
        for section in maps:
            self.assertEqual(section["type"], "object")
            self.assertIs(section["additionalProperties"], False)
            for name, key in section["properties"].items():
                self.assertTrue(key["description"], name)

    def test_defaults_fit_their_keys(self):
        for section in [self.schema] + list(self.schema["$defs"].values()):
            for name, key in section["properties"].items():
                if "default" not in key:
                    continue
                with self.subTest(name):
                    alone = {**key, "$defs": self.schema["$defs"]}
                    jsonschema.Draft202012Validator(alone).validate(key["default"])

    def test_configurations_are_valid(self):
        files = sorted(ROOT.glob("configs/*.yaml")) + sorted(ROOT.glob("configs/sweep/*.yaml"))
        self.assertGreater(len(files), 20)
        for path in files:
            with self.subTest(path.name):
                self.assertEqual(self.refusals(path.read_text(encoding="utf-8")), [])

    def test_examples_of_the_pages_are_valid(self):
        pages = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("configs/*.md"))]
        examples = re.findall(r"```yaml\n(.*?)```", "".join(pages), flags=re.S)
        self.assertGreater(len(examples), 20)
        for example in examples:
            with self.subTest(example):
                document = yaml.load(example, Loader=Yaml12) or {}
                document.setdefault("data", {"dataset": "synthetic"})
                document.setdefault("model", {"zoo": "lenet"})
                self.assertEqual([e.message for e in self.validator.iter_errors(document)], [])

    def test_shipped_yaml_reads_the_same_in_versions_1_1_and_1_2(self):
        """PyYAML takes 5e-4 for text and 5.0e-4 for a number, and `off` for a boolean."""
        texts = {str(path): path.read_text(encoding="utf-8")
                 for path in ROOT.glob("configs/**/*.yaml")}
        texts |= {str(path): path.read_text(encoding="utf-8")
                  for path in ROOT.glob("tests/golden/models/*.yaml")}
        for path in ROOT.rglob("*.md"):
            if "build" in path.parts or "runs" in path.parts:
                continue
            blocks = re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.S)
            texts |= {f"{path} ({i + 1})": block for i, block in enumerate(blocks)}
        self.assertGreater(len(texts), 60)
        for name, text in sorted(texts.items()):
            with self.subTest(name):
                self.assertEqual(yaml.safe_load(text), yaml.load(text, Loader=Yaml12))

    def test_bad_files_are_refused(self):
        refused = 0
        for path in sorted(ROOT.glob("tests/bad/*.yaml")):
            message = path.with_suffix(".txt").read_text(encoding="utf-8")
            if not structural(message):
                continue
            with self.subTest(path.name):
                self.assertTrue(self.refusals(path.read_text(encoding="utf-8")), message)
                refused += 1
        self.assertGreaterEqual(refused, 50)

    def test_lines_in_a_good_document(self):
        start = "data: {dataset: synthetic}\nmodel: {zoo: lenet}\n"
        for extra in WRONG:
            with self.subTest(extra):
                self.assertTrue(self.refusals(start + extra))
        for extra in RIGHT:
            with self.subTest(extra):
                self.assertEqual(self.refusals(start + extra), [])


WRONG = """\
device: gpu
device: cuda:256
device: 0
device: {threads: 1025}
seed: -1
seed: 0.5
seed: "1"
name: a/b
name: ..
scaling: {policy: fixed}
scaling: {scale: 8}
scaling: {policy: none, scale: 8}
scaling: {preset: pytorch}
scaling: {policy: dynamic, hysteresis: 2}
scaling: {policy: dynamic, preset: jmp, hysteresis: 2}
scaling: {policy: dynamic, preset: megatron, tolerance: 0}
scaling: {policy: adaptive, layers: [{match: fc, init_scale: 8}]}
scaling: {policy: layerwise_dynamic, layers: [{match: fc, method: fixed}]}
scaling: {policy: layerwise_dynamic, layers: [{init_scale: 8}]}
scaling: {policy: adaptive, underflow_target: 0}
scaling: {policy: adaptive, underflow_target: 1}
precision: {format: fp17}
precision: {format: e8m0}
precision: {format: {exponent: 4}}
precision: {format: {exponent: 4, mantissa: 24}}
precision: {tensor_scaling: {history: 4}}
precision: {tensor_scaling: {kind: none, history: 4}}
precision: {tensor_scaling: sometimes}
schedule: {milestones: [3]}
schedule: {kind: multistep}
schedule: {kind: cosine, gamma: 0.1}
optimizer: {kind: adam, momentum: 0.9}
optimizer: {beta1: 0.9}
optimizer: {lr: 0}
log: {statistics: [dz]}
log: {statistics: [dx, dx]}
log: {alert_underflow_pct: 100.5}
log: {what_if: [{name: nothing}]}
log: {what_if: [{scale: 8, scaling: {policy: none}}]}
log: {what_if: [{scaling: {policy: fixed}}]}
log: {what_if: [{name: "a,b", scale: 8}]}
train: {on_overflow: preset}
""".splitlines()

RIGHT = """\
device: cuda:255
device: cpu
device: {kind: "cuda:0", threads: 0}
seed: 9223372036854775807
name: 2026
name: true
output: ~/runs/x
scaling: {}
scaling: {policy: fixed, scale: 8}
scaling: {init_scale: 8}
scaling: {policy: dynamic, error_at_min_scale: true}
scaling: {policy: dynamic, preset: deepspeed, hysteresis: 2, consecutive_hysteresis: true}
scaling: {policy: adaptive, layers: [{match: fc, method: fixed, scale: 8}]}
scaling: {policy: layerwise_dynamic, layers: [{match: fc, init_scale: 8}]}
scaling: {policy: adaptive, underflow_target: 1e-4}
precision: {format: {exponent: 4, mantissa: 3}, gradients: fp8_e5m2}
precision: {tensor_scaling: delayed}
precision: {tensor_scaling: {kind: delayed, history: 4}}
schedule: {kind: multistep, milestones: []}
optimizer: {kind: adam, beta1: 0.9}
log: {histogram_every: 1, what_if: [{scaling: {policy: dynamic, preset: apex}}, {format: fp16}]}
log: {dump_every: 5, dump: ["*"]}
train: {on_overflow: retry}
""".splitlines()


class LayersTest(SchemaCase):
    """Networks of one's own: kinds, blocks, pairs."""

    def judge(self, layers):
        return self.refusals("data: {dataset: synthetic}\nmodel: {layers: " + layers + "}\n")

    def test_good_layers(self):
        for layers in ["[{name: a, kind: conv2d, channels: 4, kernel: [3, 1], padding: [1, 0]}]",
                       "[{name: 1, kind: relu}, {name: s, kind: add, inputs: [1, input]}]",
                       "[{repeat: 1000, layers: [{name: 'a{i}', kind: relu}]}]"]:
            with self.subTest(layers):
                self.assertEqual(self.judge(layers), [])

    def test_bad_layers(self):
        for layers in ["[]", "[relu]", "[{name: a}]", "[{kind: relu}]", "[{name: loss, kind: relu}]",
                       "[{name: a b, kind: relu}]", "[{name: a, kind: conv}]",
                       "[{name: a, kind: conv2d, channels: 4}]",
                       "[{name: a, kind: conv2d, channels: 4, kernel: [3]}]",
                       "[{name: a, kind: conv2d, channels: 4, kernel: [3, 0]}]",
                       "[{name: a, kind: relu, stride: 2}]", "[{name: a, kind: add}]",
                       "[{repeat: 2}]", "[{repeat: 0, layers: []}]",
                       "[{repeat: 2, layers: [], name: a}]",
                       "[{repeat: 2, layers: [{repeat: 2, layers: []}]}]"]:
            with self.subTest(layers):
                self.assertTrue(self.judge(layers))

    def test_layers_or_a_zoo(self):
        data = "data: {dataset: synthetic}\nmodel: "
        one = "layers: [{name: a, kind: relu}]"
        self.assertTrue(self.refusals(data + "{}"))
        self.assertTrue(self.refusals(data + "{zoo: lenet, " + one + "}"))
        self.assertTrue(self.refusals(data + "{hidden: [3], " + one + "}"))
        self.assertTrue(self.refusals(data + "{zoo: lenet, hidden: [3]}"))
        self.assertEqual(self.refusals(data + "{" + one + ", classes: 10}"), [])
        self.assertEqual(self.refusals(data + "{zoo: mlp, hidden: [3]}"), [])


    def test_how_weights_start_by_the_network(self):
        for network, init in (("zoo: gpt2", "{std: 0.01}"), ("zoo: vit", "{scheme: normal}"),
                              ("zoo: llama", "{scheme: normal, std: 0.5}"),
                              ("zoo: llama", "{scheme: he_normal, gain: 2}"),
                              ("zoo: lenet", "{gain: 2}"),
                              ("zoo: ssd300", "{scheme: normal, std: 0.5}"),
                              ("file: net.yaml", "{fan: out}")):
            with self.subTest(network=network, init=init):
                self.assertEqual(self.init(network, init), ([], 0))
        for network, init in (("zoo: gpt2", "{gain: 2}"), ("zoo: gpt2", "{scheme: constant}"),
                              ("zoo: lenet", "{std: 0.01}"), ("zoo: ssd300", "{std: 0.01}"),
                              ("zoo: lenet", "{scheme: normal}"), ("zoo: vit", "{bound: 1}"),
                              ("layers: [{name: a, kind: linear, features: classes}]",
                               "{std: 0.01}")):
            with self.subTest(network=network, init=init):
                refusals, code = self.init(network, init)
                self.assertTrue(refusals)
                self.assertEqual(code, 2)

    def init(self, network, init):
        """Why the schema refuses a way to start, and the exit code of the program."""
        data = "task: detection\ndata: {dataset: voc, path: data}\n" if "ssd" in network else (
            "task: language\ndata: {dataset: text, path: data, context: 8}\n"
            if "gpt2" in network or "llama" in network else "data: {dataset: mnist}\n")
        text = data + f"model: {{{network}, init: {init}}}\n"
        code = 0
        if "file:" not in network:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "a.yaml")
                path.write_text(text, encoding="utf-8")
                code = subprocess.run([os.environ["ADA_BINARY"], "train", str(path), "--print-config"],
                                      capture_output=True, check=False).returncode
        return self.refusals(text), code


if __name__ == "__main__":
    unittest.main()
