"""Slots: a uniform sample of a stream, whatever its batches, that reads back what went in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.slots import Slots, choose_codec, count_bytes


def fill(slots: Slots, n: int, batch: int, logits: int | None = None) -> Slots:
    for part in torch.arange(slots.seen, slots.seen + n).split(batch):
        given_logits = None if logits is None else part[:, None] + torch.arange(logits) / 10
        slots.observe(part[:, None].float(), part % 7, given_logits)
    return slots


def held(slots: Slots) -> Tensor:
    return slots.read().x[:, 0].long()


@given(st.integers(1, 30), st.integers(0, 80), st.integers(1, 40), st.integers(0, 9))
def test_batches_do_not_matter(size: int, n: int, batch: int, seed: int) -> None:
    """One item after the other is what is meant: of several for one slot the last has it."""
    one, many = (fill(Slots(size, seed=seed), n, each) for each in (1, batch))
    assert len(one) == len(many) == min(size, n)
    if n:
        assert torch.equal(held(one), held(many))
        assert len(held(one).unique()) == len(one)


def test_every_item_is_as_likely_as_any_other() -> None:
    counts = torch.zeros(60)
    for seed in range(2000):
        counts[held(fill(Slots(6, seed=seed), 60, 20))] += 1
    # 200 each on average, with a deviation of 13.4: 60 of them within five of those.
    assert (counts - 200).abs().max() < 67
    assert abs(counts[:30].sum().item() - 6000) < 300


@pytest.mark.parametrize("cut", [3, 10, 25])
def test_it_goes_on_from_its_state(cut: int) -> None:
    whole = fill(Slots(8, seed=1, logit_codec="int8"), 40, 5, logits=3)
    begun, other = fill(Slots(8, seed=1, logit_codec="int8"), cut, 5, logits=3), Slots(8, seed=1, logit_codec="int8")
    other.load_state_dict({name: value.clone() for name, value in begun.state_dict().items()})
    fill(other, 40 - cut, 5, logits=3)
    theirs = other.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in whole.state_dict().items())


def test_what_is_read_is_what_went_in() -> None:
    slots = fill(Slots(10, seed=0), 50, 8, logits=4)
    found = slots.draw(6, torch.Generator().manual_seed(0))
    source = found.x[:, 0]
    assert len(source.unique()) == 6
    assert torch.equal(found.y, source.long() % 7)
    assert found.logits is not None and found.widths is not None
    torch.testing.assert_close(found.logits, source[:, None] + torch.arange(4) / 10)
    assert found.widths.tolist() == [4] * 6
    assert len(slots.draw(99, torch.Generator()).y) == 10


def test_logits_may_grow() -> None:
    slots = fill(fill(Slots(6, seed=0), 6, 3, logits=2), 6, 3, logits=5)
    found = slots.read()
    assert found.logits is not None and found.widths is not None
    old = found.x[:, 0] < 6
    assert 0 < old.sum() < 6
    assert found.widths.tolist() == [2 if each else 5 for each in old]
    assert (found.logits[old][:, 2:] == 0).all()
    slots.record(found.x + torch.zeros(6, 7))
    anew = slots.read()
    assert anew.logits is not None and anew.widths is not None
    assert torch.equal(anew.logits, found.x.expand(6, 7))
    assert (anew.widths == 7).all()


def test_codecs() -> None:
    whole, odd = torch.tensor([[0.0, 1.0, 3 / 255]]), torch.tensor([[0.1, 0.2, 0.3]])
    assert choose_codec("auto", [whole, whole]) == "uint8"
    assert choose_codec("auto", [whole, odd]) == "raw"  # one task that bytes do not keep is enough
    assert count_bytes(whole, "uint8", logits=2, logit_codec="float16") == 3 + 4 + 4
    slots = Slots(2, seed=0, codec="uint8")
    slots.observe(whole, torch.zeros(1, dtype=torch.long))
    assert torch.equal(slots.read().x, whole)
    assert slots.state_dict()["x"].dtype == torch.uint8
    with pytest.raises(SelfReminderError, match="deflates items"):
        choose_codec("compressed", [whole])
    with pytest.raises(SelfReminderError, match="keeps values from 0 to 1"):
        choose_codec("uint8", [odd * 10])
