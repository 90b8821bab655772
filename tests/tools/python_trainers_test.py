"""AdaLossScaled within Lightning and Hugging Face's Trainer: a training that a checkpoint is resumed
from goes on with its scales, whatever loss the Trainer computes is scaled, and a training that fails
or ends leaves the model as it was. Needs torch with lightning or transformers (ADA_BENCH_PYTHON)."""
import json
import logging
import pathlib
import sys
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import torch_head as head  # noqa: E402
from ada_train import run_files  # noqa: E402

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from ada_train.torch import AdaLossScaled, callbacks
except ImportError:
    torch = None
try:
    import lightning
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
except ImportError:
    lightning = None
try:
    import accelerate
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
except ImportError:
    accelerate = transformers = None
DYNAMIC = {"policy": "dynamic", "init_scale": 4, "growth_interval": 2}
POLICIES = (DYNAMIC, {"init_scale": 4, "update_interval": 3},
            {"init_scale": 4, "method": "exact_range"}, {"policy": "layerwise_dynamic"})


OtherPythonTest = head.other_python(__file__, "TrainerTest")


class Quiet(head.WithLibrary):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def decisions(self, name, first=0):
        """Rows of a run from its step number `first` on, but for their numbers."""
        found = []
        for file in ("steps", "scales"):
            rows = list(run_files.rows(self.folder / name / f"{file}.csv"))
            steps = sorted({int(r["step"]) for r in rows})
            for r in rows:
                if int(r["step"]) > first:
                    r["step"] = steps.index(int(r["step"])) - first
                    r.pop("epoch")
                    found.append(r)
        return found


def clean(model):
    return not any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m)
                   for m in model.modules())


@unittest.skipUnless(torch and lightning, "torch is missing, or lightning (ADA_BENCH_PYTHON)")
class LightningTrainerTest(Quiet):
    def fit(self, name, epochs, policy, checkpoint=None, callback=None, module=None):
        torch.manual_seed(0)
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
        data = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, torch.arange(64) % 3), 8)
        if module is None:
            class Small(lightning.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

                def training_step(self, batch, _):
                    return functional.cross_entropy(self.net(batch[0]), batch[1])

                def configure_optimizers(self):
                    return torch.optim.SGD(self.parameters(), lr=1e-2)
            module = Small()
        if callback is None:
            callback = callbacks.lightning_callback(policy, folder=self.folder / name, every=1,
                                                    record={"overwrite": True})
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
            gradient_clip_val=1e-3)
        trainer.fit(module, data, ckpt_path=checkpoint)
        trainer.save_checkpoint(self.folder / f"{name}.ckpt")  # after its end
        self.assertTrue(clean(module))
        return callback, module

    def test_resumed_as_if_it_had_never_stopped(self):
        for policy in POLICIES:
            with self.subTest(**policy):
                self.fit("whole", 2, policy)
                self.fit("half", 1, policy)
                self.fit("resumed", 2, policy, self.folder / "half.ckpt")
                self.assertEqual(self.decisions("resumed"), self.decisions("whole", 8))

    def test_fit_again(self):
        callback, module = self.fit("a", 1, DYNAMIC)
        self.fit("a", 1, DYNAMIC, callback=callback, module=module)
        self.assertEqual(float(self.decisions("a")[0]["scale"]), 64.0)  # goes on
        self.fit("a", 1, DYNAMIC, callback=callback)
        self.assertEqual(float(self.decisions("a")[0]["scale"]), 4.0)  # another network

    def test_norms_come_before_clipping(self):
        self.fit("run", 1, DYNAMIC)
        self.assertGreater(min(float(r["grad_norm"]) for r in self.decisions("run")[:8]), 1e-2)


@unittest.skipUnless(torch and transformers,
                     "torch is missing, or transformers or accelerate (ADA_BENCH_PYTHON)")
class TransformersTrainerTest(Quiet):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        made = torch.Generator().manual_seed(3)
        self.rows = [{"input_ids": t, "labels": t}
                     for t in torch.randint(0, 50, (32, 12), generator=made)]

    @staticmethod
    def model():
        torch.manual_seed(0)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))

    def trainer(self, name, policy=None, kind=None, callback=None, steps=4, **keys):
        keys = {"max_steps": steps, "per_device_train_batch_size": 4, "report_to": [],
                "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "seed": 1, **keys}
        loss = keys.pop("compute_loss_func", None)
        arguments = transformers.TrainingArguments(str(self.folder / f"{name}-out"), **keys)
        if callback is None and policy is not None:
            callback = callbacks.transformers_callback(policy, folder=self.folder / name, every=1,
                                                       record={"overwrite": True})
        return (kind or transformers.Trainer)(
            self.model(), arguments, train_dataset=self.rows, compute_loss_func=loss,
            callbacks=[callback] if callback is not None else [])

    def test_resumed_as_if_it_had_never_stopped(self):
        saves = {"save_strategy": "steps", "save_steps": 4, "save_total_limit": 1}
        for policy, restores in zip(POLICIES, (False, True, False, False)):
            with self.subTest(**policy, restores=restores):
                keys = {"lr_scheduler_type": "constant", **saves}
                self.trainer("whole", policy, steps=8, **keys).train()
                self.trainer("half", policy, **keys).train()
                there = self.folder / "half-out/checkpoint-4"
                kept = json.loads((there / "trainer_state.json").read_text())
                self.assertIn("AdaLossCallback", kept["stateful_callbacks"])
                self.trainer("resumed", policy, steps=8, **keys,
                             restore_callback_states_from_checkpoint=restores).train(
                                 resume_from_checkpoint=str(there))
                self.assertEqual(self.decisions("resumed"), self.decisions("whole", 4))
        plain = self.trainer("plain", steps=4, **saves)
        plain.train()  # a checkpoint of a training that was not scaled
        there = str(self.folder / "plain-out/checkpoint-4")
        self.trainer("scaled", DYNAMIC, steps=8, **saves).train(resume_from_checkpoint=there)
        self.assertEqual(float(self.decisions("scaled")[0]["scale"]), 4.0)

    def test_whatever_loss_it_computes(self):
        """Weights are those of the plain Trainer, and all layers choose a scale."""
        class Own(transformers.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **_):
                made = model(**inputs)
                loss = made.loss + 0.1 * made.logits.square().mean()
                return (loss, made) if return_outputs else loss

        def function(outputs, labels, num_items_in_batch=None):
            return functional.cross_entropy(outputs["logits"].flatten(0, 1), labels.flatten())
        for name, keys in (("own", {"kind": Own}), ("smooth", {"label_smoothing_factor": 0.1}),
                           ("function", {"compute_loss_func": function}),
                           ("model's", {"gradient_accumulation_steps": 2}),
                           ("clipped", {"max_grad_norm": 1e-3})):
            with self.subTest(name):
                plain = self.trainer("plain", **keys)
                plain.train()
                scaled = self.trainer("run", {"init_scale": 1024.0}, **keys)
                scaled.train()
                for (path, p), q in zip(plain.model.named_parameters(), scaled.model.parameters()):
                    torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-6, msg=path)
                scales = list(run_files.rows(self.folder / "run/scales.csv"))
                self.assertEqual(len({r["layer"] for r in scales if r["limit"] != "branch"}), 9)
                self.assertTrue(clean(scaled.model))
                norms = [float(r["grad_norm"]) for r in self.decisions("run")[:4]]
                self.assertGreater(min(norms), 1e-2)

    def test_a_backward_of_its_own_is_refused(self):
        class Own(transformers.Trainer):
            def training_step(self, model, inputs, *_):
                loss = self.compute_loss(model, inputs)
                loss.backward()
                return loss.detach()
        plain = accelerate.Accelerator.backward
        trainer = self.trainer("run", {"init_scale": 64.0}, kind=Own)
        with self.assertRaisesRegex(RuntimeError, "no loss of this update was scaled"):
            trainer.train()
        self.assertTrue(clean(trainer.model))
        self.assertIs(accelerate.Accelerator.backward, plain)
        again = self.trainer("run", {"init_scale": 64.0})  # the folder is free for the next one
        again.train()
        self.assertTrue(clean(again.model))

    def test_accelerate_keeps_the_state(self):
        def prepared():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
            one = accelerate.Accelerator(cpu=True)
            model = one.prepare(AdaLossScaled(net, {**DYNAMIC, "growth_interval": 1}))
            optimizer = one.prepare(torch.optim.AdamW(model.parameters(), lr=1e-2))
            one.register_for_checkpointing(model.scaling)
            return one, model, optimizer

        def step(one, model, optimizer):
            optimizer.zero_grad()
            one.backward(model.scale(functional.cross_entropy(model(torch.ones(3, 8)),
                                                              torch.arange(3))))
            model.step(optimizer)
        first = prepared()
        for _ in range(3):
            step(*first)
        first[0].save_state(self.folder / "state")
        second = prepared()
        second[0].load_state(self.folder / "state")
        for one in (first, second):
            step(*one)
        self.assertEqual(first[1].scaling_state(), second[1].scaling_state())
        for p, q in zip(first[1].parameters(), second[1].parameters()):
            self.assertTrue(torch.equal(p, q))


if __name__ == "__main__":
    unittest.main()
