from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import step_seed
from selfreminder._base.sizes import Size
from selfreminder.memory import reservoir
from selfreminder.memory.columns import ReservoirState
from selfreminder.memory.file import open_memory, save_memory
from selfreminder.memory.memory import Memory
from selfreminder.memory.reservoir import find_entering, find_state, make_keys, merge_entered, shrink_memory
from selfreminder.reminder.reminder import Reminder

N = 60
generator = torch.Generator().manual_seed(0)
ITEMS = torch.randint(0, 256, (N, 90), generator=generator) / 255
ITEMS = ITEMS * (torch.arange(90) < torch.randint(1, 91, (N, 1), generator=generator))  # some deflate to less
LABELS = torch.randint(0, 3, (N,), generator=generator)

cuts_strategy = st.lists(st.integers(0, 20), max_size=8)
sizes_strategy = st.one_of(
    st.builds(lambda k: Size(per_task=k), st.integers(1, 30)),
    st.builds(lambda k: Size(per_class=k), st.integers(1, 12)),
    st.builds(lambda b: Size(budget=b), st.integers(300, 8000)),
)


def observe(memory: Memory, n: int, size: Size, *, task: int = 0, codecs: str = "auto", seed: int = 0) -> Memory:
    """The next n items go by."""
    seen = find_state(memory, task, seed=seed).seen
    x, labels = ITEMS[seen : seen + n], LABELS[seen : seen + n]
    index = find_entering(memory, task, len(x), size, labels, seed=seed)
    new = Memory.of(
        {"x": x[index]},
        x[index, :3],
        task=task,
        labels=labels[index],
        sources=seen + index,
        codecs=codecs,
        selection="reservoir",
    )
    return merge_entered(memory, new, task, seen + len(x), size, seed=seed)


def after(cuts: list[int], size: Size, memory: Memory | None = None, **options: Any) -> Memory:
    """The whole stream, cut into batches of these sizes and a rest."""
    memory = Memory() if memory is None else memory
    for n in (*cuts, N):
        memory = observe(memory, n, size, **options)
    return memory


def other_task(items: int, task: int) -> Memory:
    return Memory.of(
        {"x": ITEMS[:items]}, ITEMS[:items, :3], task=task, selection="herding", sources=torch.arange(items)
    )


def assert_same(one: Memory, other: Memory, *, but: tuple[str, ...] = ("ids",)) -> None:
    assert one.reservoirs == other.reservoirs
    for name, column in one.columns.items():
        assert name in but or torch.equal(column, other.columns[name]), name


# Which items ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2**62), min_size=1), st.integers(0, 2**63 - 1))
def test_keys_are_those_of_splitmix(positions: list[int], seed: int) -> None:
    assert make_keys(torch.tensor(positions), seed).tolist() == [step_seed(seed, position) for position in positions]


@given(cuts_strategy, st.integers(1, 50), st.integers(0, 5))
def test_the_smallest_keys_stay_in_order(cuts: list[int], per_task: int, seed: int) -> None:
    memory = after(cuts, Size(per_task=per_task), seed=seed)
    key = make_keys(torch.arange(N), find_state(memory, 0).seed)
    assert memory.sources.tolist() == key.argsort()[:per_task].tolist()
    assert torch.equal(memory.draw(N).inputs["x"], ITEMS[memory.sources])
    assert torch.equal(memory.labels, LABELS[memory.sources].short())
    assert memory.reservoirs[0].seen == N


@settings(max_examples=20)
@given(cuts_strategy, sizes_strategy, st.integers(0, 20))
def test_batches_make_no_difference(cuts: list[int], size: Size, seed: int) -> None:
    assert_same(after(cuts, size, seed=seed), after([1] * N, size, seed=seed))


@settings(max_examples=20)
@given(cuts_strategy, st.integers(400, 9000), st.integers(0, 30), st.sampled_from([0, 7]))
def test_nor_do_they_beside_other_tasks(cuts: list[int], budget: int, others: int, task: int) -> None:
    """They make room under a budget, evenly, whether the reservoir's task is before or after them."""
    memory = other_task(others, 3)
    size = Size(budget=budget)
    cut = after(cuts, size, memory, task=task)
    assert_same(cut, after([1] * N, size, memory, task=task))
    assert cut.nbytes <= budget
    assert cut.nbytes + cut.item_nbytes > budget or len(cut) == N + others


@settings(max_examples=20)
@given(cuts_strategy, st.integers(300, 6000), st.integers(0, 20))
def test_nor_do_they_where_items_differ_in_bytes(cuts: list[int], budget: int, seed: int) -> None:
    """Nor does a small item slip in where larger ones with smaller keys found no room."""
    size = Size(budget=budget)
    memory = after(cuts, size, codecs="compressed", seed=seed)
    assert_same(memory, after([1] * N, size, codecs="compressed", seed=seed))
    everything = after([], Size(per_task=N), codecs="compressed", seed=seed)
    assert memory.sources.tolist() == everything.shrink(budget).sources.tolist()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40)), min_size=1, max_size=8))
def test_a_size_that_changes_leaves_a_uniform_sample(steps: list[tuple[int, int]]) -> None:
    """However it rises and falls: the reservoir has the smallest keys of all that went by."""
    memory, least = Memory(), N
    for n, per_task in steps:
        memory = observe(memory, n, Size(per_task=per_task))
        seen, stream = find_state(memory, 0).seen, find_state(memory, 0)
        key = make_keys(torch.arange(seen), stream.seed)
        least = min(least, per_task)
        assert min(seen, least) <= len(memory) <= per_task
        assert memory.sources.tolist() == key.argsort()[: len(memory)].tolist()
        assert not len(memory) or stream.below > int(make_keys(memory.sources, stream.seed).max())


@given(cuts_strategy, st.integers(1, 60))
def test_each_class_has_its_own_smallest_keys(cuts: list[int], per_class: int) -> None:
    memory = after(cuts, Size(per_class=per_class))
    key = make_keys(torch.arange(N), find_state(memory, 0).seed)
    for label in range(3):
        of_class = LABELS.eq(label).nonzero().flatten()
        expected = of_class[key[of_class].argsort()][:per_class]
        assert memory.sources[memory.labels == label].tolist() == expected.tolist()
    assert torch.equal(memory.sources, memory.sources[make_keys(memory.sources, find_state(memory, 0).seed).argsort()])
    fewer = observe(memory, 0, Size(per_class=1))
    assert sorted(fewer.labels.tolist()) == [0, 1, 2]


# Uniformity -----------------------------------------------------------------------------------------------


def p_value(samples: list[Tensor], items: int) -> float:
    """Of χ² over positions: that uniform samples without replacement differ as much."""
    counts = torch.cat(samples).bincount(minlength=items).double()
    expected = counts.mean()
    share = expected / len(samples)
    chi2 = ((counts - expected).square() / expected).sum() / (1 - share) * (items - 1) / items
    return torch.special.gammaincc(torch.tensor((items - 1) / 2).double(), chi2 / 2).item()


def many(runs: int = 300) -> list[Memory]:
    return [after([7, 1, 30, 2], Size(per_task=12), seed=seed) for seed in range(runs)]


def test_every_position_is_as_likely() -> None:
    memories = many()
    assert p_value([memory.sources for memory in memories], N) > 0.01
    half = memories[0].item_nbytes * 6
    shrunk = [memory.shrink(half) for memory in memories]
    assert {len(memory) for memory in shrunk} == {6}
    assert p_value([memory.sources for memory in shrunk], N) > 0.01


def test_the_test_of_uniformity_sees_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last items are twice as likely as the first ones, or nothing but the last ones stay."""

    def biased(positions: Tensor, seed: int) -> Tensor:
        return (make_keys(positions, seed).double() * (1 - positions / N / 2)).long()

    monkeypatch.setattr(reservoir, "make_keys", biased)
    assert p_value([memory.sources for memory in many()], N) < 1e-6
    monkeypatch.undo()
    last = [torch.arange(N - 12, N)] * 300
    assert p_value(last, N) < 1e-6


def test_seeds_and_tasks_have_samples_of_their_own() -> None:
    size = Size(per_task=10)
    chosen = [after([], size, seed=seed, task=task).sources.tolist() for seed, task in ((0, 0), (1, 0), (0, 1))]
    assert len({tuple(each) for each in chosen}) == 3


# Going on -------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(first=st.integers(0, N), size=sizes_strategy, codecs=st.sampled_from(["auto", "compressed"]))
def test_resume_from_a_file(first: int, size: Size, codecs: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("resume") / "memory"
    memory = observe(Memory(), first, size, codecs=codecs, seed=5)
    save_memory(memory, path)
    again = open_memory(path)
    for n in (20, N):
        memory, again = (observe(each, n, size, codecs=codecs, seed=5) for each in (memory, again))
    assert_same(memory, again, but=())
    assert memory.next_id == again.next_id


@pytest.mark.parametrize("size", [Size(per_task=10), Size(per_class=4), Size(budget=1600)])
def test_bytes_stay_what_they_are(size: Size) -> None:
    memory, sizes = observe(Memory(), 30, size), set()
    while find_state(memory, 0).seen < N:
        memory = observe(memory, 5, size)
        sizes.add(memory.nbytes)
    assert len(sizes) == 1


def test_far_along_a_stream() -> None:
    """Neither time nor memory depends on how much has gone by."""
    seen = 10**15
    memory = replace(after([], Size(per_task=10)), reservoirs={0: ReservoirState(seen, seed=1)})
    index = find_entering(memory, 0, 1000, Size(per_task=20))
    new = Memory.of(
        {"x": ITEMS[:1].repeat(len(index), 1)},
        torch.zeros(len(index), 3),
        task=0,
        sources=seen + index,
        selection="reservoir",
    )
    memory = merge_entered(memory, new, 0, seen + 1000, Size(per_task=20))
    assert len(memory) == 20
    assert memory.sources.dtype == torch.int64
    assert memory.reservoirs[0].seen == seen + 1000


def test_what_cannot_enter_needs_no_look_at_the_memory() -> None:
    """Of columns on the meta device nothing can be read."""
    size = Size(budget=1200)
    memory = after([], size)
    stream = replace(memory.reservoirs[0], below=0)
    away = replace(memory, reservoirs={0: stream}).to("meta")
    assert find_entering(away, 0, 1000, size).tolist() == []
    assert merge_entered(away, Memory(), 0, stream.seen + 1000, size).reservoirs[0].seen == stream.seen + 1000


def test_nothing_is_read_anew_when_nothing_enters() -> None:
    size = Size(per_task=5)
    memory = after([], size, codecs="compressed")
    batch = memory.draw(5)
    later = merge_entered(memory, Memory(), 0, N, size)
    assert later.draw(5) is batch


# Beside others --------------------------------------------------------------------------------------------


def test_items_of_the_task_that_were_chosen_otherwise_stay() -> None:
    memory = after([25], Size(per_task=6), other_task(4, 0), task=0)
    assert memory.sources.tolist()[:4] == [0, 1, 2, 3]
    assert [memory.selection_names[which] for which in memory.selections] == ["herding"] * 4 + ["reservoir"] * 6
    alone = after([], Size(per_task=6))
    assert torch.equal(memory.sources[4:], alone.sources)


def test_a_lower_budget_is_kept_to_at_once() -> None:
    memory = after([], Size(budget=5000))
    small = observe(memory, 0, Size(budget=2000))
    assert 1800 < small.nbytes <= 2000
    assert torch.equal(small.sources, memory.sources[: len(small)])


@given(st.integers(10, 40), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(0, 5))
def test_what_was_given_up_for_other_tasks_is_no_room_for_later_items(first: int, others: list[int], seed: int) -> None:
    """After a budget has made room, the reservoir still has the smallest keys of all that went by."""
    memory = observe(Memory(), first, Size(per_task=20), seed=seed)
    budget = memory.nbytes
    for task, items in enumerate(others, start=1):
        memory = shrink_memory(memory + other_task(items, task), Size(budget=budget))
        memory = observe(memory, 3, Size(per_task=20), seed=seed)
        held = memory.sources[memory.tasks == 0]
        key = make_keys(torch.arange(find_state(memory, 0).seen), find_state(memory, 0).seed)
        assert held.tolist() == key.argsort()[: len(held)].tolist()


def test_nor_is_what_another_reservoir_gave_up() -> None:
    memory = observe(Memory(), 20, Size(per_task=20))
    memory = observe(memory, 20, Size(budget=memory.nbytes), task=1)
    assert memory.counts == {0: 10, 1: 10}
    memory = observe(memory, 20, Size(per_task=20))
    key = make_keys(torch.arange(40), find_state(memory, 0).seed)
    held = memory.sources[memory.tasks == 0]
    assert held.tolist() == key.argsort()[: len(held)].tolist()


def test_a_stream_goes_on_after_a_task_was_remembered_within_a_budget() -> None:
    model, reminder = nn.Linear(90, 3), Reminder()
    reminder.observe(model, ITEMS[:30], per_task=20)
    reminder.remember(model, ITEMS[:30], budget=reminder.memory.nbytes)
    assert reminder.memory.counts == {0: 10, 1: 10}
    reminder.observe(model, ITEMS[30:40], per_task=20)
    held = reminder.memory.sources[reminder.memory.tasks == 0]
    key = make_keys(torch.arange(40), reminder.memory.reservoirs[0].seed)
    assert held.tolist() == key.argsort()[: len(held)].tolist()


def test_a_reservoir_that_was_emptied_begins_anew() -> None:
    size = Size(per_task=5)
    memory = observe(Memory(), 50, size) + other_task(3, 1)
    memory = memory.take(memory.tasks == 1)
    assert memory.reservoirs[0].seen == 50
    memory = observe(memory, 4, size)
    assert sorted(memory.sources[memory.tasks == 0].tolist()) == [50, 51, 52, 53]


def test_what_it_refuses() -> None:
    memory = observe(Memory(), 10, Size(per_task=5))
    with pytest.raises(SelfReminderError, match="per_class needs the labels of all 4 items"):
        find_entering(memory, 0, 4, Size(per_class=1))
    with pytest.raises(SelfReminderError, match="per_class needs the labels"):
        find_entering(memory, 0, 4, Size(per_class=1), torch.zeros(3))
    with pytest.raises(SelfReminderError, match="has had 10 items, it cannot go back to 9"):
        merge_entered(memory, Memory(), 0, 9, Size(per_task=5))
    with pytest.raises(SelfReminderError, match="raise the budget"):
        observe(Memory(), 10, Size(budget=10))
