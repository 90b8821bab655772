"""tools/from_torch.py on sequences: which layers it makes of modules with attention, that their logits
are PyTorch's, and what it refuses. Needs torch (ADA_BENCH_PYTHON); transformers for its two models."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import network_step  # noqa: E402
import torch_commands  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("ADA_BINARY")
MODULE = "from_torch_sequences"
TOKENS = "10"
BLOCK = "layer_norm linear attention linear dropout add layer_norm linear gelu linear add "
GPT = "embedding position_embedding dropout " + 2 * BLOCK + "layer_norm linear"
PARTS = 2 * "attention linear dropout add layer_norm linear {} dropout linear dropout add {}"
KINDS = {
    "GPT": GPT, "written_out": GPT,
    "MultiHead": "embedding linear attention linear add rms_norm linear",
    "Rotary": "embedding rms_norm linear linear linear rope rope attention add linear silu linear "
              "multiply linear add linear",
    "KeyBias": "embedding linear linear linear attention add linear",
    "NoBias": "embedding layer_norm layer_norm linear",
    **dict.fromkeys(("HeadByHead", "Grouped"), "embedding linear attention linear add linear"),
    **dict.fromkeys(("head_by_head_rotated", "head_by_head_rotated_in_part"),
                    "embedding linear slice rope slice rope slice attention linear add linear"),
    "Letters": "embedding linear linear linear attention linear add linear relu linear add linear add linear "
               "add linear",
    "written_scale": "embedding linear attention linear add linear",
    "Scaled": "embedding position_embedding linear slice slice slice affine attention linear softmax add linear",
    "Pooled": "conv2d position_embedding linear add layer_norm linear attention linear add global_avg_pool linear",
    "Distilled": "conv2d class_token class_token position_embedding linear attention linear add select linear",
    "ViT": "conv2d class_token position_embedding layer_norm linear attention linear add select "
           "linear"}
LINES = {
    "GPT": ["{name: lm_head, kind: linear, features: classes, bias: false, weight_of: wte}",
            "{name: h.0, kind: attention, heads: 4, causal: true, dropout: 0.1}"],
    "Rotary": ["kind: rope, inputs: [k], heads: 2}",
               "kind: attention, inputs: [rope, rope_2, v], heads: 4, kv_heads: 2, causal: true}"],
    "interleaved": ["kind: rope, inputs: [q], heads: 4, base: 500.0, pairing: interleaved}"],
    "sequence_first": ["kind: attention, heads: 4, causal: true, dropout: 0.1}"],
    "NoBias": ["{name: first, kind: layer_norm, eps: 1.0e-05, bias: false}",
               "{name: last, kind: layer_norm, eps: 1.0e-05, bias: false}"],
    "ViT": ["{name: cls, kind: class_token}", "{name: pos, kind: position_embedding, context: 17}"]}
REFUSED = {
    "HeadNorms": "norm: RMSNorm: over 8 of the 72 channels of each token, head by head",
    "unit_heads": "normalize: over 8 of the 72 channels of each token, head by head",
    "bare_heads": "rms_norm: over 8 of the 72 channels of each token, head by head",
    "Waves": "that differs between tokens; positions that are added are trained: an nn.Parameter or nn.Embedding",
    "TwoOrders": "out: Linear: takes channels of qkv that others take in another order",
    "PartsOfChannels": "its queries are channels 0 to 7, 24 to 31, 48 to 55 of tanh, where expected are those of one "
                       "head after the other",
    "ByToken": "ne: compares values of the input",
    "Biased": "adds a bias to its scores; only a mask of 0 and -inf",
    "Detached": "gradient: another one reaches it in PyTorch (detach",
    "Padding": "add_bias_kv, add_zero_attn or key_padding_mask",
    "Crossed": "of queries from one sequence and keys from another",
    "Last": "output: of shape [3, 1, 40]; expected the logits of every token",
    "other_angles": "turns pairs of values by other angles than place * base^(-2 i / rotary)",
    "PaddedEmbedding": "embed: Embedding: padding_idx, max_norm or scale_grad_by_freq",
    "Bare": "an RMS norm written out, without factors by channel"}
OTHER_ORDERS = ("HeadByHead", "head_by_head_rotated", "head_by_head_rotated_in_part", "Grouped", "Letters", "Scaled",
                "Pooled")
IMAGES = ("ViT", "Pooled", "Distilled")
HUGGING_FACE = ("gpt2_of_transformers", "llama_of_transformers")


SAME_STATE = f"""
def main():
    import sys, torch
    from safetensors.torch import load_file
    import {MODULE}
    torch.manual_seed(0)
    wanted = getattr({MODULE}, sys.argv[1])().state_dict()
    found = load_file(sys.argv[1] + ".safetensors")
    assert wanted.keys() == found.keys()
    for name, tensor in wanted.items():
        assert torch.equal(tensor, found[name]), name
"""


def convert(names, folder):
    commands = [["from_torch", f"{MODULE}:{name}", *(["--input", "32"] if name in IMAGES else
                                                     ["--tokens", TOKENS]), "--output", name]
                for name in names]
    return dict(zip(names, torch_commands.run_all(commands, folder)))


@unittest.skipUnless(torch_commands.has("torch", "yaml", "safetensors"),
                     "torch, safetensors or PyYAML are missing (ADA_BENCH_PYTHON)")
class Sequences(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in (f"{MODULE}.py", "torch_sequence_logits.py"):
            shutil.copy(HERE / name, self.folder)

    def test_layers(self):
        names = ["GPT", "written_out", "Encoder", "sequence_first", "MultiHead", "Rotary",
                 "interleaved", "KeyBias", "NoBias", *OTHER_ORDERS, "written_scale", "scaled", "Distilled", "ViT"]
        for name, (code, out, told) in convert(names, self.folder).items():
            with self.subTest(name):
                self.assertEqual(code, 0, told)
                text = (self.folder / name / "net.yaml").read_text()
                found = [line.split("kind: ")[1].split(",")[0].rstrip("}")
                         for line in text.splitlines() if "kind: " in line]
                if name in KINDS:
                    self.assertEqual(" ".join(found), KINDS[name])
                for line in LINES.get(name, ()):
                    self.assertIn(line, text)
                if name not in IMAGES:
                    self.assertIn("task: language", out)

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    def test_check_compares_the_shapes_with_the_programs(self):
        names = ["GPT", "Rotary", "MultiHead", *OTHER_ORDERS, *IMAGES]
        commands = [["from_torch", f"{MODULE}:{name}", *(["--input", "32"] if name in IMAGES else
                                                         ["--tokens", TOKENS]), "--output", name,
                     "--check", os.path.realpath(BINARY)] for name in names]
        for name, (code, _, told) in zip(names, torch_commands.run_all(commands, self.folder)):
            with self.subTest(name):
                self.assertEqual(code, 0, told)

    def test_what_does_not_come_over_says_why(self):
        for name, (code, _, told) in convert(list(REFUSED), self.folder).items():
            with self.subTest(name):
                self.assertEqual(code, 3, told)
                self.assertIn(REFUSED[name], told)

    def compare(self, names):
        commands = [["torch_sequence_logits", name, TOKENS] for name in names]
        for name, (code, _, told) in zip(names, torch_commands.run_all(commands, self.folder)):
            with self.subTest(name):
                self.assertEqual(code, 0, told)
                task = "classification" if name in IMAGES else "language"
                net = f"{name}/net.yaml"
                (self.folder / "step.yaml").write_text(f"task: {task}\n" + (
                    network_step.configuration(net, f"{name}/net.safetensors",
                                               f"{name}/data.safetensors", 4)
                    if name in IMAGES else
                    f"model: {{file: {net}}}\n"
                    f"data: {{dataset: tensors, path: {name}/data.safetensors, batch_size: 4, "
                    "evaluate_batch_size: 4}\noptimizer: {lr: 0.1}\n"))
                ours = network_step.outputs(os.path.realpath(BINARY), self.folder, "step.yaml")
                theirs = network_step.Tensors(self.folder / name / "logits.safetensors")["logits"]
                self.assertLessEqual(abs(ours.reshape(theirs.shape) - theirs).max(),
                                     2e-5 * abs(theirs).max())

    def test_weights_written_in_another_order_go_back(self):
        """to_torch.py gives the state dict that the module began with."""
        convert(OTHER_ORDERS, self.folder)
        (self.folder / "same_state.py").write_text(SAME_STATE)
        commands = [["to_torch", f"{name}/net.safetensors", "--net", name, "--output", f"{name}.safetensors"]
                    for name in OTHER_ORDERS] + [["same_state", name] for name in OTHER_ORDERS]
        for command, (code, _, told) in zip(commands, torch_commands.run_all(commands, self.folder)):
            with self.subTest(command):
                self.assertEqual(code, 0, told)

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    def test_logits_are_those_of_pytorch(self):
        self.compare(["GPT", "written_out", "Encoder", "sequence_first", "MultiHead", "Rotary",
                      "interleaved", "KeyBias", "NoBias", *OTHER_ORDERS, "written_scale", "scaled", "Distilled", "ViT"])

    @unittest.skipIf(BINARY is None, "ADA_BINARY names no program")
    @unittest.skipUnless(torch_commands.has("transformers"), "transformers is missing")
    def test_logits_of_transformers_models(self):
        self.compare(list(HUGGING_FACE))


if __name__ == "__main__":
    unittest.main()
