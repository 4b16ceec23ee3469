"""Hugging Face's Trainer: one line in `callbacks`, and the verdict at the end of train().

    python examples/transformers_train.py

A small GPT-2, from its configuration alone, learns to continue sums such as "17+25=42". The trouble: the dataset builds
its tokens in Python, character by character, on the thread that trains. Needs `pip install transformers accelerate`.
"""

from __future__ import annotations

import random
import tempfile

import torch
from torch.utils.data import Dataset
from trainperf.integrations.transformers import TrainPerfCallback
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

ALPHABET, LENGTH = "0123456789+= ", 64


class Sums(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": (tokens := tokenize(sums(random.Random(index)))), "labels": tokens}


def sums(numbers: random.Random) -> str:
    text = ""
    while len(text) < LENGTH:
        a, b = numbers.randrange(1000), numbers.randrange(1000)
        text += f"{a}+{b}={a + b} "
    return text[:LENGTH]


def tokenize(text: str) -> torch.Tensor:
    return torch.tensor([vocabulary().index(text[i : i + 2].ljust(2)) for i in range(len(text))])


def vocabulary() -> list[str]:
    """Made again for each token, as a first version would."""
    return [a + b for a in ALPHABET for b in ALPHABET]


def main() -> None:
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(ALPHABET) ** 2, n_positions=LENGTH, n_embd=48, n_layer=1, n_head=2,
            bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM",
        )
    )  # fmt: skip
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(prefix="trainperf-"), per_device_train_batch_size=8,
            gradient_accumulation_steps=2, max_steps=40, logging_steps=20, save_strategy="no", report_to=[],
            disable_tqdm=True, use_cpu=True,
        ),
        train_dataset=Sums(),
        callbacks=[TrainPerfCallback(name="transformers")],
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main()
