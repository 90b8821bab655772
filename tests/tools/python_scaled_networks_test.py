"""Networks of others under AdaLossScaled in fp32 and fp64 beside their plain training: recurrent
ones, torchvision's, timm's and transformers'. Losses have the same bits. Alphas are powers of two, so
gradients of recurrent networks have the same bits too, where no more than two meet; in others sums
may have another order: all are near, and those of the same bits are counted and printed. Minutes:
with ADA_SLOW=1. Needs torch and each package (ADA_BENCH_PYTHON)."""
import copy
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from ada_train import native  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    from ada_train.torch import AdaLossScaled
    torch.set_num_threads(1)
except ImportError:
    torch = None
OTHER, SLOW = os.environ.get("ADA_BENCH_PYTHON"), os.environ.get("ADA_SLOW")
KEYS = {"method": "fixed", "scale": 2.0, "init_scale": 2.0 ** -6, "attention": False}
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 60,
         "intermediate_size": 64, "max_position_embeddings": 32, "num_key_value_heads": 2}
VISION = """resnet18 vgg11_bn alexnet mobilenet_v2 mobilenet_v3_small squeezenet1_1 densenet121
    googlenet efficientnet_b0 convnext_tiny shufflenet_v2_x0_5 mnasnet0_5 regnet_x_400mf vit_b_16
    swin_t""".split()
TIMM = """resnet10t seresnet18 res2net50_26w_4s hrnet_w18_small dla34 efficientnet_lite0 ghostnet_050
    lcnet_050 mixer_s32_224 poolformer_s12 vit_tiny_patch16_224 deit_tiny_patch16_224 convnext_atto
    gmlp_ti16_224 resnest14d nf_resnet26""".split()
TEXTS = {  # model type: class, and what its configuration has besides
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}),
    "bert": ("BertForMaskedLM", {}), "roberta": ("RobertaForMaskedLM", {"pad_token_id": 1}),
    "llama": ("LlamaForCausalLM", {}), "mistral": ("MistralForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}), "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "opt": ("OPTForCausalLM", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
                                          "num_heads": 4, "decoder_start_token_id": 0}),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4,
                                             "hidden_dim": 64}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 16}),
    "albert": ("AlbertForMaskedLM", {"embedding_size": 16}),
    "gemma": ("GemmaForCausalLM", {"head_dim": 8}), "phi": ("PhiForCausalLM", {})}


@unittest.skipUnless(torch is None and OTHER, "this Python has torch, or no other is named")
class OtherPythonTest(unittest.TestCase):
    def test_there(self):
        result = subprocess.run([OTHER, "-m", "unittest", "-v", "-k", "NetworksTest", __file__],
                                capture_output=True, text=True, check=False, cwd=ROOT,
                                env={**os.environ, "ADA_BENCH_PYTHON": ""})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("torch is missing", result.stderr)


class Recurrent(nn.Module if torch else object):
    """`again`: the network before is computed again in the backward pass."""

    def __init__(self, kind, again=False):
        super().__init__()
        self.first, self.net, self.last = nn.Linear(8, 8), kind(8, 6), nn.Linear(6, 3)
        self.again = again

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False) if self.again else self.first(x)
        if isinstance(self.net, nn.RNNCellBase):
            state = None
            for part in x:
                state = self.net(part, state)
            y = state[0] if isinstance(state, tuple) else state
        else:
            y = self.net(x)[0]
        return {"logits": self.last(y)}


def most_that_meet(loss):
    """The largest number of gradients that one tensor within the network is given."""
    found, seen, queue = {}, {loss.grad_fn}, [loss.grad_fn]
    for node in queue:
        for after, slot in node.next_functions:
            if after is None or type(after).__name__ == "AccumulateGrad":
                continue
            found[after, slot] = found.get((after, slot), 0) + 1
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return max(found.values(), default=1)


def loss_of(y):
    if isinstance(y, torch.Tensor):
        return (y ** 2).mean()
    if isinstance(y, dict):
        return y["loss"] if y.get("loss") is not None else loss_of(y["logits"])
    return sum(loss_of(part) for part in y if isinstance(part, torch.Tensor))


@unittest.skipUnless(SLOW, "minutes: ADA_SLOW=1 runs it")
@unittest.skipUnless(torch, "torch is missing (ADA_BENCH_PYTHON may name a Python that has it)")
class NetworksTest(unittest.TestCase):
    def setUp(self):
        try:
            native.library()
        except native.NoLibrary as problem:
            self.skipTest(str(problem))
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        self.counts = {"networks": 0, "gradients": 0, "of the same bits": 0, "off": []}
        self.addCleanup(lambda: print(self.id().rpartition(".")[2], self.counts, flush=True))

    def needs(self, package):
        if importlib.util.find_spec(package) is None:
            self.skipTest(f"{package} is missing")
        return importlib.import_module(package)

    def compare(self, name, make, run, dtype=None, exact=False):
        """One backward pass of both, from the same weights and random numbers. `exact`: gradients
        have the same bits where no more than two meet."""
        with self.subTest(name):
            torch.manual_seed(0)
            net = make().to(dtype or torch.float32).train()
            if hasattr(net, "gradient_checkpointing_disable"):
                net.gradient_checkpointing_disable()
            twin, losses = copy.deepcopy(net), []
            model = AdaLossScaled(twin, KEYS)
            for one in (net, model):
                torch.manual_seed(1)
                losses.append(loss_of(run(one)))
            exact = exact and most_that_meet(losses[0]) <= 2
            losses[0].backward()
            model.scale(losses[1]).backward()
            self.assertTrue(torch.equal(*losses))
            alphas = {d["alpha"] for d in model.decisions if d["limit"] != "branch"}
            self.assertEqual(alphas, {2.0})
            self.count(name, net, twin, exact)
            model.remove()

    def count(self, name, net, twin, exact):
        self.counts["networks"] += 1
        most = max(float(p.grad.norm()) for p in net.parameters() if p.grad is not None)
        for (path, p), q in zip(net.named_parameters(), twin.parameters()):
            self.assertEqual(p.grad is None, q.grad is None, path)
            if p.grad is None:
                continue
            same = torch.equal(p.grad, q.grad)
            self.counts["gradients"] += 1
            self.counts["of the same bits"] += same
            self.assertTrue(same or not exact, path)
            if not same and name not in self.counts["off"]:
                self.counts["off"].append(name)
            self.assertLessEqual(float((p.grad - q.grad).norm()),
                                 1e-4 * (float(p.grad.norm()) + most / 100), path)

    def test_recurrent(self):
        for kind in (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell):
            for again in (False, True):
                for dtype in (torch.float32, torch.float64):
                    x = torch.randn(5, 4, 8, dtype=dtype)
                    self.compare(f"{kind.__name__} {again} {dtype}", lambda: Recurrent(kind, again),
                                 lambda model: model(x), dtype, exact=True)

    def test_torchvision(self):
        made = self.needs("torchvision").models
        for name in VISION:
            keys = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
            size = 224 if name in ("vit_b_16", "alexnet") else 64
            x = torch.randn(2, 3, size, size)
            self.compare(name, lambda: getattr(made, name)(num_classes=10, **keys),
                         lambda model: model(x))

    def test_timm(self):
        made = self.needs("timm")
        for name in TIMM:
            x = torch.randn(2, 3, *([224] * 2 if name.endswith("224") else [64] * 2))
            self.compare(name, lambda: made.create_model(name, num_classes=10),
                         lambda model: model(x))

    def test_transformers(self):
        made = self.needs("transformers")
        tokens = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(4))
        for kind, (name, keys) in TEXTS.items():
            def make():
                own = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, **keys}
                config = made.AutoConfig.for_model(kind, **{**SIZES, **own})
                return getattr(made, name)(config)
            self.compare(kind, make, lambda model: model(input_ids=tokens, labels=tokens))


if __name__ == "__main__":
    unittest.main()
