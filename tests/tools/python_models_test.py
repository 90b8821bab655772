"""Networks of torchvision, timm and transformers, a family each, small: three recorded steps give
the losses of the plain training, bit for bit, and the next random number. ADA_SLOW=1 runs it, in the
Python that ADA_BENCH_PYTHON names or this one; a package that is missing skips its networks."""
import importlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from ada_train import run_files  # noqa: E402

try:
    import numpy
    import torch
    import ada_train.torch
    from ada_train.torch import outputs
except ImportError:
    torch = None
OTHER = os.environ.get("ADA_BENCH_PYTHON")
SLOW = os.environ.get("ADA_SLOW")
VISION = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x0_5", "squeezenet1_0",
          "mnasnet0_5", "googlenet", "regnet_y_400mf", "densenet121", "lraspp_mobilenet_v3_large",
          "convnext_tiny", "swin_t")
TIMM = ("resnet10t", "seresnext26t_32x4d", "regnetz_005", "mobilenetv4_conv_small_035", "lcnet_050",
        "ghostnet_050", "convnext_atto", "edgenext_xx_small", "mobilevit_xxs", "repvit_m0_9")
TEXT = ("llama", "qwen3", "gemma2", "phi", "gpt_neox", "gptj", "gpt2", "olmo2", "cohere", "mixtral",
        "opt", "bloom", "bert", "roberta", "distilbert", "albert", "electra", "mpnet", "t5", "bart")
SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "intermediate_size": 32, "head_dim": 8, "rotary_dim": 4,
         "n_embd": 16, "n_layer": 2, "n_head": 2, "d_model": 16, "num_layers": 2, "num_heads": 2,
         "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "n_layers": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_ff": 32,
         "d_kv": 8, "ffn_dim": 32, "embedding_size": 16, "dim": 16, "hidden_dim": 32, "n_heads": 2,
         "num_local_experts": 4, "word_embed_proj_dim": 16, "max_position_embeddings": 64,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@unittest.skipUnless(torch is None and OTHER and SLOW, "ADA_SLOW is not set, or no Python is named")
class OtherPythonTest(unittest.TestCase):
    def test_there(self):
        result = subprocess.run([OTHER, "-m", "unittest", "-v", "-k", "ModelsTest", __file__],
                                capture_output=True, text=True, check=False, cwd=ROOT,
                                env={**os.environ, "ADA_BENCH_PYTHON": ""})
        self.assertEqual(result.returncode, 0, result.stderr)


@unittest.skipUnless(torch and SLOW, "torch is missing, or ADA_SLOW is not set")
class ModelsTest(unittest.TestCase):
    def package(self, name):
        try:
            return importlib.import_module(name)
        except ImportError:
            self.skipTest(f"{name} is missing")

    def same(self, name, make, batch):
        for cast in (False, True):
            with self.subTest(name, cast=cast), tempfile.TemporaryDirectory() as folder:
                ends = [self.train(make, batch, cast, where) for where in (None, folder + "/run")]
                self.assertEqual(*ends)
                self.assertGreater(len(list(run_files.rows(
                    pathlib.Path(folder) / "run/underflow.csv"))), 20)

    @staticmethod
    def train(make, batch, cast, folder):
        torch.manual_seed(0)
        net = make().train()
        optimizer, recorder, losses = torch.optim.SGD(net.parameters(), lr=1e-3), None, []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if folder is not None:
                recorder = ada_train.torch.record(net, optimizer, folder, every=2)
            for seed in (torch.manual_seed, numpy.random.seed, random.seed):
                seed(7)
            for _ in range(3):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=cast):
                    found = outputs.logits(net(**batch) if isinstance(batch, dict) else net(batch))
                    loss = sum(x.float().square().mean() for x in found)
                losses.append(loss.item())
                loss.backward()
                optimizer.step()
                if recorder is not None:
                    recorder.step(loss)
            if recorder is not None:
                recorder.close()
        return [*losses, torch.rand(()).item()]

    def test_torchvision(self):
        models = self.package("torchvision").models
        x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
        for name in VISION:
            options = {"weights_backbone": None} if "lraspp" in name else {}
            options.update({"init_weights": False} if name == "googlenet" else {})
            self.same(name, lambda: models.get_model(name, weights=None, **options), x)

    def test_timm(self):
        timm = self.package("timm")
        x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
        for name in TIMM:
            self.same(name, lambda: timm.create_model(name, num_classes=10, drop_rate=0.1), x)

    def test_transformers(self):
        transformers = self.package("transformers")
        ids = torch.randint(3, 60, (2, 16), generator=torch.Generator().manual_seed(1))
        for name in TEXT:
            kind = transformers.CONFIG_MAPPING[name]
            whole = kind()
            known = {key: value for key, value in SMALL.items()
                     if hasattr(whole, key) or key in kind.attribute_map}
            batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            if whole.is_encoder_decoder:
                batch["decoder_input_ids"] = ids[:, :8].clone()
            self.same(name, lambda: transformers.AutoModel.from_config(kind(**known)), batch)


if __name__ == "__main__":
    unittest.main()
