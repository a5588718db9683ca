"""A text classifier of Hugging Face transformers learns new topics, with and without a reminder of the old ones.

Messages are words drawn from the vocabularies of their topics. In spring there are four topics, in autumn only three
new ones. Fine-tuned on autumn alone, the network calls every old message by a new topic. With 10 spring messages of
each topic in a reminder it learns autumn as well, and still knows spring.

    pip install '.[transformers]'
    python examples/transformers_topics.py
"""

import copy
import json
import os
import tempfile
from collections.abc import Sequence

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here comes from the hub

import torch
from datasets import Dataset
from torch import nn
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)
from transformers import logging as transformers_logging

from selfreminder import Reminder
from selfreminder.plugins.transformers import ReminderCallback  # [reminder]

TOPICS = {
    "football": "goal team coach league striker penalty season stadium referee derby",
    "weather": "rain storm sunny wind cloud forecast degrees snow fog thunder",
    "cooking": "salt oven recipe flour butter simmer onion spice dough taste",
    "markets": "shares bond inflation profit bank investor index dollar yield merger",
    "space": "orbit rocket moon launch telescope planet crew satellite comet probe",
    "health": "doctor vaccine fever clinic patient dose nurse surgery symptom therapy",
    "music": "guitar concert album choir melody drummer lyrics orchestra tour piano",
}
EVERYWHERE = "the a of and to in is it that was for on with as at by from this be are"
SPRING, AUTUMN = ("football", "weather", "cooking", "markets"), ("space", "health", "music")

WORDS = ["[PAD]", "[CLS]", *" ".join([EVERYWHERE, *TOPICS.values()]).split()]
NUMBER = {word: number for number, word in enumerate(WORDS)}
LENGTH = 13


def tokenise(text: str) -> dict[str, list[int]]:
    """Words as numbers, padded to one length."""
    ids = [NUMBER[word] for word in ["[CLS]", *text.split()]]
    padding = [0] * (LENGTH - len(ids))
    return {"input_ids": ids + padding, "attention_mask": [1] * len(ids) + padding}


def messages(topics: tuple[str, ...], count: int, seed: int) -> Dataset:
    """Messages of 8 to 12 words, of which about a third tell the topic, and a few tell another one."""
    generator = torch.Generator().manual_seed(seed)
    names = list(TOPICS)

    def one_of(choices: Sequence[str]) -> str:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    rows = []
    for _ in range(count):
        topic, words = one_of(topics), []
        for _ in range(int(torch.randint(8, 13, (), generator=generator))):
            chance = float(torch.rand((), generator=generator))
            source = topic if chance < 0.35 else one_of(topics) if chance < 0.45 else None
            words.append(one_of((EVERYWHERE if source is None else TOPICS[source]).split()))
        rows.append({**tokenise(" ".join(words)), "label": names.index(topic)})
    return Dataset.from_list(rows)


def train(model: nn.Module, data: Dataset, folder: str, *callbacks: ReminderCallback) -> nn.Module:
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=8,
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=list(callbacks))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: Dataset) -> float:
    columns = data.with_format("torch")[:]
    labels = columns.pop("label")
    return round((model.eval()(**columns).logits.argmax(1) == labels).float().mean().item(), 4)


def main() -> dict[str, float]:
    spring, autumn = messages(SPRING, 800, seed=0), messages(AUTUMN, 800, seed=1)
    spring_test, autumn_test = messages(SPRING, 500, seed=2), messages(AUTUMN, 500, seed=3)
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=len(WORDS), max_position_embeddings=LENGTH, dim=32, hidden_dim=64, n_layers=2, n_heads=2,
        num_labels=len(TOPICS), initializer_range=0.1,
    )  # fmt: skip
    reminder = Reminder()  # [reminder]
    with tempfile.TemporaryDirectory() as folder:
        remembers = ReminderCallback(reminder, spring, per_class=10)  # [reminder] keeps 40 messages
        deployed = train(DistilBertForSequenceClassification(config), spring, folder, remembers)
        without = train(copy.deepcopy(deployed), autumn, folder)
        with_reminder = train(copy.deepcopy(deployed), autumn, folder, ReminderCallback(reminder))  # [reminder]

    result = {
        "old_before": accuracy(deployed, spring_test),
        "old_without": accuracy(without, spring_test),
        "old_with": accuracy(with_reminder, spring_test),
        "new_without": accuracy(without, autumn_test),
        "new_with": accuracy(with_reminder, autumn_test),
    }
    print(f"{'accuracy on':<24}{'spring':>10}{'autumn':>10}")
    print(f"{'before the update':<24}{result['old_before']:>10.1%}{accuracy(deployed, autumn_test):>10.1%}")
    print(f"{'updated':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
    return result


if __name__ == "__main__":
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)
    print(json.dumps(main()))
