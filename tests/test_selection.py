import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreminder.errors import SelfReminderError
from selfreminder.selection import choose, random, ranking
from selfreminder.sizes import Size, parse_bytes, share_evenly

labels_strategy = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(torch.tensor)


@given(labels_strategy, st.integers(1, 60), st.integers(0, 1000))
def test_any_front_is_balanced(labels: torch.Tensor, total: int, seed: int) -> None:
    """No duplicates; every leading part is balanced within one, except where a class is used up."""
    total = min(total, len(labels))
    chosen = choose(random(labels, torch.Generator().manual_seed(seed)), labels, total=total)
    assert len(set(chosen.tolist())) == total
    for front in range(1, total + 1):
        counts = torch.bincount(labels[chosen[:front]], minlength=5)
        capacity = torch.bincount(labels, minlength=5)
        still_open = counts < capacity
        if still_open.any():
            assert counts.max() - counts[still_open].min() <= 1


@given(labels_strategy, st.integers(1, 10))
def test_per_class(labels: torch.Tensor, per_class: int) -> None:
    counts = torch.bincount(labels, minlength=5)
    ranked = random(labels, torch.Generator())
    if per_class > counts.max():
        with pytest.raises(SelfReminderError, match="larger than the data"):
            choose(ranked, labels, per_class=per_class)
    else:
        chosen = choose(ranked, labels, per_class=per_class)
        assert torch.equal(torch.bincount(labels[chosen], minlength=5), counts.clamp(max=per_class))


def test_random_is_fair_and_deterministic() -> None:
    labels = torch.zeros(20, dtype=torch.long)
    draws = [choose(random(labels, torch.Generator().manual_seed(s)), labels, total=5) for s in range(2000)]
    again = choose(random(labels, torch.Generator().manual_seed(7)), labels, total=5)
    assert torch.equal(draws[7], again)
    counts = torch.bincount(torch.cat(draws), minlength=20).float()
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 43.8  # 99.9 % of chi-square with 19 degrees of freedom


def test_bad_input() -> None:
    with pytest.raises(SelfReminderError, match="7 items is larger than the data: 3 items"):
        choose(torch.arange(3), torch.zeros(3), total=7)
    with pytest.raises(SelfReminderError, match="did you mean 'random'"):
        ranking("randon")


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 100))
def test_share_evenly(capacities: list[int], total: int) -> None:
    shares = share_evenly(total, capacities)
    assert sum(shares) == min(total, sum(capacities))
    assert all(share <= capacity for share, capacity in zip(shares, capacities))
    still_open = [share for share, capacity in zip(shares, capacities) if share < capacity]
    assert not still_open or max(shares) - min(still_open) <= 1


@pytest.mark.parametrize("size", [{"per_class": 0}, {"per_task": -3}, {"budget": "0KB"}])
def test_nothing_to_keep(size: dict) -> None:
    with pytest.raises(SelfReminderError, match="at least one item"):
        Size(**size)


def test_sizes() -> None:
    with pytest.raises(SelfReminderError, match="exactly one of"):
        Size()
    with pytest.raises(SelfReminderError, match="exactly one of"):
        Size(per_class=1, per_task=1)
    with pytest.raises(SelfReminderError, match="'2 apples' is no number of bytes"):
        parse_bytes("2 apples")
