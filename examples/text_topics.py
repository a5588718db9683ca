"""A transformer that sends a help desk's tickets to teams learns a new product, with and without a reminder.

The shop sold furniture, now it sells phones too, and all new tickets are about those. Tickets have the topics that
they had, but a phone's go to other teams. Fine-tuned on phones alone, the network sends furniture there too. With 50
old tickets of each team in a reminder it learns phones as well, and still knows where furniture goes.

The reminder is attached to the optimizer: the training loop, with its clipping, does not know of it.

    python examples/text_topics.py
"""

import copy
import json

import torch
from torch import Tensor, nn

from selfreminder import Reminder

TOPICS = {
    "payment": "invoice bill price paid bank card amount discount",
    "delivery": "late address parcel arrived date waiting door tracking",
    "repair": "broken crack scratch loose fix damaged noise stuck",
    "returns": "wrong refund colour size unwanted exchange back label",
}
PRODUCTS = {
    "furniture": "sofa table shelf wardrobe chair mattress desk cupboard",
    "phones": "phone charger screen battery headset sim camera display",
}
TEAMS = ["accounts", "drivers", "workshop", "store"]
TEAM_OF = {
    "furniture": {"payment": "accounts", "delivery": "drivers", "repair": "workshop", "returns": "store"},
    "phones": {"payment": "store", "delivery": "workshop", "repair": "drivers", "returns": "accounts"},
}
EVERYWHERE = "the a my is it was i have not and please to of for on with in you at this"
WORDS = ["[PAD]", *" ".join([EVERYWHERE, *TOPICS.values(), *PRODUCTS.values()]).split()]
NUMBER = {word: number for number, word in enumerate(WORDS)}
LENGTH = 12

Tickets = tuple[dict[str, Tensor], Tensor]
"""{"ids": (n, LENGTH) words, "mask": which of them are there}, and (n,) teams"""


def tickets(product: str, count: int, seed: int) -> Tickets:
    """Tickets of 8 to 12 words: two tell the product, three the topic, and one comes from any topic."""
    generator = torch.Generator().manual_seed(seed)

    def some(text: str, n: int) -> list[int]:
        words = text.split()
        return [NUMBER[words[i]] for i in torch.randint(len(words), (n,), generator=generator).tolist()]

    ids, teams = torch.zeros(count, LENGTH, dtype=torch.long), []
    for row in range(count):
        topic = list(TOPICS)[int(torch.randint(len(TOPICS), (), generator=generator))]
        others = int(torch.randint(2, 7, (), generator=generator))
        words = some(PRODUCTS[product], 2) + some(TOPICS[topic], 3) + some(" ".join(TOPICS.values()), 1)
        words += some(EVERYWHERE, others)
        ids[row, : len(words)] = torch.tensor(words)[torch.randperm(len(words), generator=generator)]
        teams.append(TEAMS.index(TEAM_OF[product][topic]))
    return {"ids": ids, "mask": ids > 0}, torch.tensor(teams)


class Router(nn.Module):
    """A small transformer encoder, the mean of its words, a linear layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(TEAMS))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(self.words(ids) + self.places, src_key_padding_mask=~mask)
        present = mask[..., None]
        return self.head((hidden * present).sum(1) / present.sum(1))


def train(model: nn.Module, data: Tickets, reminder: Reminder) -> nn.Module:
    inputs, teams = data
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    reminder.attach(model, optimizer)  # [reminder]
    model.train()
    for _ in range(5):
        for batch in torch.randperm(len(teams)).split(32):
            optimizer.zero_grad()
            logits = model(**{name: column[batch] for name, column in inputs.items()})
            nn.functional.cross_entropy(logits, teams[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, data: Tickets) -> float:
    inputs, teams = data
    return round((model.eval()(**inputs).argmax(1) == teams).float().mean().item(), 4)


def main() -> dict[str, float]:
    furniture, phones = tickets("furniture", 1200, seed=0), tickets("phones", 1200, seed=1)
    furniture_test, phones_test = tickets("furniture", 500, seed=2), tickets("phones", 500, seed=3)

    torch.manual_seed(0)
    reminder = Reminder()  # [reminder]
    deployed = train(Router(), furniture, reminder)
    reminder.remember(deployed, *furniture, per_class=50)  # [reminder] keeps 200 tickets
    without = train(copy.deepcopy(deployed), phones, Reminder())
    with_reminder = train(copy.deepcopy(deployed), phones, reminder)

    result = {
        "old_before": accuracy(deployed, furniture_test),
        "old_without": accuracy(without, furniture_test),
        "old_with": accuracy(with_reminder, furniture_test),
        "new_without": accuracy(without, phones_test),
        "new_with": accuracy(with_reminder, phones_test),
    }
    print(f"{'accuracy on':<24}{'furniture':>10}{'phones':>10}")
    print(f"{'before the update':<24}{result['old_before']:>10.1%}{accuracy(deployed, phones_test):>10.1%}")
    print(f"{'updated':<24}{result['old_without']:>10.1%}{result['new_without']:>10.1%}")
    print(f"{'updated with a reminder':<24}{result['old_with']:>10.1%}{result['new_with']:>10.1%}")
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main()))
