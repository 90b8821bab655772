"""Adaptive loss scaling in Hugging Face's Trainer, by a callback: a small GPT-2 learns to count.
usage: with_transformers.py [FOLDER]"""
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from ada_train.torch.callbacks import transformers_callback


def sentences(count):
    """Numbers of which each is the one before plus a step of the sentence's own, modulo 50."""
    found = []
    for i in range(count):
        tokens = torch.tensor([(i + k * (1 + i % 5)) % 50 for k in range(24)])
        found.append({"input_ids": tokens, "labels": tokens})
    return found


def main():
    set_seed(0)
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=24, n_embd=64, n_layer=2,
                                       n_head=4, bos_token_id=0, eos_token_id=0))
    scaling = transformers_callback({"init_scale": 2.0 ** -6}, format="fp16", folder=folder,
                                    every=10)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch, max_steps=60, per_device_train_batch_size=16, learning_rate=3e-3,
            gradient_accumulation_steps=1, logging_steps=20, save_strategy="no", report_to=[],
            use_cpu=True, disable_tqdm=True)
        Trainer(model, arguments, train_dataset=sentences(320), callbacks=[scaling]).train()


if __name__ == "__main__":
    main()
