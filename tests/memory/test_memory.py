from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codec_tolerance import tolerance
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder._base.sizes import share_evenly
from selfreminder.benchmarks.stream import Stream
from selfreminder.memory.file import open_memory, save_memory
from selfreminder.memory.fingerprint import Fingerprint
from selfreminder.memory.memory import Memory, ReservoirState

sizes_strategy = st.lists(st.integers(1, 40), min_size=1, max_size=5)


def make(sizes: list[int], width: int = 3) -> Memory:
    """Item i has input i and logits i: an item is known by its value."""
    memory, start = Memory(), 0
    for task, size in enumerate(sizes):
        values = torch.arange(start, start + size, dtype=torch.float32)
        memory = memory + Memory.of(
            {"x": values[:, None].repeat(1, 2)},
            values[:, None].repeat(1, width),
            task=task,
            labels=torch.arange(size) % 4,
            codecs="raw",  # items of one size
        )
        start += size
    return memory


def permutation(digits: Stream, task: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed_for(0, "permutation", task))
    return torch.randperm(digits[task].train.x.shape[1], generator=generator)


def eq1(memory: Memory, value: torch.Tensor) -> float:
    """Σ_t mean_j value_j, as Eq. 1 says it."""
    return sum(value[memory.tasks == task].mean().item() for task in memory.counts)


@settings(max_examples=25)
@given(sizes_strategy, st.integers(1, 30), st.integers(0, 1000))
def test_draws_are_unbiased(sizes: list[int], n: int, seed: int) -> None:
    """Σ weight·d has Eq. 1's value for its mean, also when tasks keep unequal numbers of items."""
    memory = make(sizes)
    value = torch.randn(len(memory), generator=torch.Generator().manual_seed(seed)).exp()
    generator = torch.Generator().manual_seed(seed)
    draws = []
    for _ in range(1500 if n < len(memory) else 2):  # a memory that fits is always drawn whole
        batch = memory.draw(n, generator)
        assert torch.equal(batch.inputs["x"][:, 0], batch.logits[:, 0])
        draws.append((batch.weight * value[batch.logits[:, 0].long()]).sum())
    estimates = torch.stack(draws).double()
    error = estimates.std() / len(draws) ** 0.5 + 1e-5 * len(sizes)
    assert abs(estimates.mean() - eq1(memory, value)) < 5 * error


@given(sizes_strategy, st.integers(1, 30))
def test_every_task_has_its_share_of_a_draw(sizes: list[int], n: int) -> None:
    memory = make(sizes)
    batch = memory.draw(n, torch.Generator().manual_seed(0))
    assert len(batch) == min(n, len(memory))
    counts = torch.bincount(batch.tasks.long(), minlength=len(sizes))
    if n < len(memory):  # whole strata, and the two that its ends cut
        assert ((counts - n / len(sizes)).abs() < 2).all()
    assert batch.weight.sum().item() == pytest.approx(len(sizes), rel=1e-5)


def test_a_memory_that_fits_is_taken_whole() -> None:
    memory = make([5, 2])
    batch = memory.draw(7)
    value = torch.randn(7, generator=torch.Generator().manual_seed(0))
    assert (batch.weight * value).sum().item() == pytest.approx(eq1(memory, value), rel=1e-5)


def test_adding_keeps_order_and_gives_new_ids() -> None:
    memory = make([3, 2])
    late = Memory.of({"x": torch.full((2, 2), 9.0)}, torch.full((2, 3), 9.0), task=0, selection="late", time=5)
    memory = memory + late
    assert memory.tasks.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert memory.ids.tolist() == [0, 1, 2, 5, 6, 3, 4]
    assert memory.logits[:, 0].tolist() == [0, 1, 2, 9, 9, 3, 4]
    assert [memory.selection_names[i] for i in memory.selections] == ["given"] * 3 + ["late"] * 2 + ["given"] * 2
    assert memory.times is not None
    assert memory.times.tolist() == [-1, -1, -1, 5, 5, -1, -1]
    smaller = memory.take(torch.tensor([0]))
    assert (smaller + late).ids.tolist() == [0, 7, 8]


def test_logits_of_different_widths() -> None:
    memory = make([2], width=2) + Memory.of({"x": torch.zeros(1, 2)}, torch.ones(1, 4), task=1)
    batch = memory.draw(3)
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == [2, 2, 4]
    assert batch.logits.shape == (3, 4)


def test_inputs_that_only_floats_hold_join_bytes_without_loss() -> None:
    pixels, floats = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.1, -3.0]])
    memory = Memory.of({"x": pixels}, torch.zeros(1, 2), task=0)
    assert memory.inputs["x"].dtype == torch.uint8
    memory = memory + Memory.of({"x": floats}, torch.zeros(1, 2), task=1)
    assert torch.equal(memory.draw(2).inputs["x"], torch.cat([pixels, floats]))


@given(sizes_strategy, st.integers(0, 6000), st.integers(0, 100))
def test_budget_of_items_of_unequal_size(sizes: list[int], budget: int, seed: int) -> None:
    """Deflated items differ in size: never over budget, no room for one more, tasks even within one."""
    generator, memory = torch.Generator().manual_seed(seed), Memory()
    for task, size in enumerate(sizes):
        x = torch.randint(0, 256, (size, 40), generator=generator) / 255
        x[:, int(torch.randint(0, 40, (), generator=generator)) :] = 0
        memory = memory + Memory.of({"x": x}, torch.zeros(size, 3), task=task, codecs="compressed")
    first = memory.take(torch.tensor([(memory.tasks == task).nonzero()[0, 0] for task in memory.counts]))
    if budget < first.nbytes:
        with pytest.raises(SelfReminderError, match="raise the budget"):
            memory.shrink(budget)
        return
    small = memory.shrink(budget)
    assert small.nbytes <= budget
    cut = [small.counts[t] for t in memory.counts if small.counts[t] < memory.counts[t]]
    assert not cut or max(small.counts.values()) - min(cut) <= 1
    if cut:
        shares = share_evenly(len(small) + 1, list(memory.counts.values()))
        rows = [(memory.tasks == task).nonzero().flatten()[:share] for task, share in enumerate(shares)]
        assert memory.take(torch.cat(rows)).nbytes > budget


@given(sizes_strategy, st.integers(0, 4000))
def test_budget(sizes: list[int], budget: int) -> None:
    """Never over budget, even within one over tasks and classes, the first of each task stay."""
    memory = make(sizes)
    if budget < len(sizes) * memory.item_nbytes:
        with pytest.raises(SelfReminderError, match="raise the budget"):
            memory.shrink(budget)
        return
    small = memory.shrink(budget)
    assert small.nbytes <= budget
    assert len(small) == min(len(memory), budget // memory.item_nbytes)
    cut = [small.counts[t] for t in memory.counts if small.counts[t] < memory.counts[t]]
    assert not cut or max(small.counts.values()) - min(cut) <= 1
    for task, count in small.counts.items():
        assert torch.equal(small.ids[small.tasks == task], memory.ids[memory.tasks == task][:count])
        of_classes = torch.bincount(small.labels[small.tasks == task])
        assert of_classes.max() - of_classes.min() <= 1


def test_rows_taken_in_any_order_stay_ordered_by_task() -> None:
    memory = make([4, 4]).take(torch.tensor([6, 0, 5, 1]))
    assert memory.counts == {0: 2, 1: 2}
    assert memory.ids.tolist() == [0, 1, 6, 5]
    assert len(memory.draw(4).weight) == 4


def test_all_columns_are_on_the_device_of_the_logits() -> None:
    memory = Memory.of({"x": torch.zeros(2, 3)}, torch.zeros(2, 4, device="meta"), task=0, labels=torch.zeros(2))
    assert {column.device.type for column in memory.columns.values()} == {"meta"}


def test_bad_input() -> None:
    memory = make([2])
    with pytest.raises(SelfReminderError, match=r"inputs \['x'\], the other \['y'\]"):
        memory + Memory.of({"y": torch.zeros(1, 2)}, torch.zeros(1, 3), task=1)
    with pytest.raises(SelfReminderError, match=r"of shape \(2,\), the new ones have \(5,\)"):
        memory + Memory.of({"x": torch.zeros(1, 5)}, torch.zeros(1, 3), task=1)
    for pixels in (torch.zeros(1, 2, dtype=torch.uint8), torch.zeros(1, 2, dtype=torch.float64)):
        for codecs in ("auto", "compressed"):
            with pytest.raises(SelfReminderError, match=r"'x' as torch\.float32, the new ones are torch\.\w"):
                memory + Memory.of({"x": pixels}, torch.zeros(1, 3), task=1, codecs=codecs)
    with pytest.raises(SelfReminderError, match="has 2 items, the logits 3"):
        Memory.of({"x": torch.zeros(2, 5)}, torch.zeros(3, 3), task=1)


def test_compressed_inputs_are_drawn_as_plain_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 256, (60, 20), generator=torch.Generator().manual_seed(0)) / 255
    plain, deflated = (Memory.of({"x": x}, torch.zeros(60, 2), task=0, codecs=name) for name in ("auto", "compressed"))

    def drawn(memory: Memory) -> torch.Tensor:
        return memory.draw(10, torch.Generator().manual_seed(1)).inputs["x"]

    assert torch.equal(drawn(plain), drawn(deflated))
    monkeypatch.setattr("selfreminder.memory.sampling._FITS", 0)  # too large to be kept inflated
    assert torch.equal(drawn(plain), drawn(deflated.take(torch.arange(60))))


@pytest.mark.parametrize("name", ["float16", "int8"])
def test_smaller_logits(name: str) -> None:
    logits = torch.randn(8, 10, generator=torch.Generator().manual_seed(0))
    memory = Memory.of({"x": torch.zeros(8, 1)}, logits, task=0, logit_codec=name)
    assert torch.equal(memory.draw(8).logits, memory.logits)
    assert (memory.logits - logits).abs().max() <= tolerance(name, logits).max()
    wider = memory + Memory.of({"x": torch.zeros(1, 1)}, torch.ones(1, 12), task=1, logit_codec=name)
    assert torch.equal(wider.logits[:8, :10], memory.logits)
    assert wider.kept_logits.codec == name
    assert torch.equal(memory.with_logits(memory.logits).logits, memory.logits)


@pytest.mark.parametrize(
    ("codecs", "logit_codec", "most"),
    [("auto", "float32", 850), ("auto", "float16", 830), ("compressed", "float32", 300), ("compressed", "int8", 270)],
)
def test_bytes_of_a_digit(digits: Stream, tmp_path: Path, codecs: str, logit_codec: str, most: int) -> None:
    """An MNIST image, its logits, its provenance and its share of the file's head."""
    order = torch.argsort(permutation(digits, 0))
    x = digits[0].train.x[:500, order]  # as it was before the task shuffled it
    memory = Memory.of({"x": x}, torch.randn(500, 10), task=0, codecs=codecs, logit_codec=logit_codec, time=1)
    save_memory(memory, tmp_path / "memory")
    in_file = (tmp_path / "memory").stat().st_size
    assert in_file / 500 <= most
    assert memory.nbytes < in_file < memory.nbytes + 2000  # what is counted is what is on disk
    assert torch.equal(open_memory(tmp_path / "memory").draw(500).inputs["x"], x)


# What recorded it, and how far its reservoirs are --------------------------------------------------------------


def fingerprint(name: str) -> Fingerprint:
    return Fingerprint(model=name, classes=3, transform=None, inputs={"x": ((2,), "float32")})


def recorded(task: int, name: str, items: int = 4) -> Memory:
    x = torch.full((items, 2), float(task))
    return Memory.of({"x": x}, torch.zeros(items, 3), task=task, fingerprint=fingerprint(name))


def test_fingerprints_and_reservoirs_go_where_the_items_go() -> None:
    memory = (recorded(0, "a") + recorded(1, "b")).with_reservoirs({0: ReservoirState(9, 1), 5: ReservoirState(2, 1)})
    assert memory.fingerprints == {0: fingerprint("a"), 1: fingerprint("b")}
    for same in (
        memory.to("meta"),
        memory.shrink(4 * memory.item_nbytes),
        memory.interleave(0, 2),
        memory.take(memory.ids >= 0),
    ):
        assert (same.fingerprints, same.reservoirs) == (memory.fingerprints, memory.reservoirs)
    assert memory.with_logits(memory.logits).reservoirs == memory.reservoirs
    back = Memory.from_columns(memory.columns, memory.facts)
    assert (back.fingerprints, back.reservoirs) == (memory.fingerprints, memory.reservoirs)


def test_of_a_task_in_both_memories_our_fingerprint_and_the_longer_stream_stay() -> None:
    ours = recorded(0, "a").with_reservoirs({0: ReservoirState(9, 1), 1: ReservoirState(3, 1)})
    theirs = (recorded(0, "b") + recorded(2, "c")).with_reservoirs(
        {0: ReservoirState(8, 2), 1: ReservoirState(4, 2), 2: ReservoirState(0, 2)}
    )
    both = ours + theirs
    assert both.fingerprints == {0: fingerprint("a"), 2: fingerprint("c")}
    assert both.reservoirs == {0: ReservoirState(9, 1), 1: ReservoirState(4, 2), 2: ReservoirState(0, 2)}
    assert (ours + Memory()) is ours
    empty = Memory().with_reservoirs({0: ReservoirState(10, 3)})
    for one in (ours + empty, empty + ours):
        assert one.reservoirs == {0: ReservoirState(10, 3), 1: ReservoirState(3, 1)}
        assert one.fingerprints == ours.fingerprints


def test_without_items_a_task_has_no_fingerprint_but_its_place_in_the_stream() -> None:
    memory = (recorded(0, "a") + recorded(1, "b")).with_reservoirs(
        {0: ReservoirState(9, 1, below=5), 1: ReservoirState(7, 2, below=6)}
    )
    left = memory.take(memory.tasks == 1)
    assert left.fingerprints == {1: fingerprint("b")}
    assert left.reservoirs == {0: ReservoirState(9, 1), 1: ReservoirState(7, 2, below=6)}
    assert memory.take(torch.zeros(8, dtype=torch.bool)).fingerprints == {}
    assert recorded(0, "a", items=0).fingerprints == {}


def test_a_stream_is_in_whole_numbers() -> None:
    for bad in ({"seen": -1, "seed": 0}, {"seen": 1.5, "seed": 0}, {"seen": True, "seed": 0}, {"seen": 0, "seed": "0"}):
        with pytest.raises(SelfReminderError, match="is no stream"):
            ReservoirState(**bad)


# Spread ---------------------------------------------------------------------------------------------------


@given(sizes_strategy, st.integers(0, 100), st.lists(st.integers(1, 6), min_size=5, max_size=5))
def test_spread(sizes: list[int], seed: int, widths: list[int]) -> None:
    """The mean over tasks of the median over items, over the logits that count and no others."""
    generator, memory, each = torch.Generator().manual_seed(seed), Memory(), []
    for task, (size, width) in enumerate(zip(sizes, widths)):
        logits = 10 + 3 * torch.randn(size, width, generator=generator)
        memory = memory + Memory.of({"x": torch.zeros(size, 1)}, logits, task=task)
        each.append((logits.double().var(1, correction=0) * width).median())
    assert memory.spread == pytest.approx(sum(each).item() / len(each), rel=1e-4)


def test_spread_of_nothing() -> None:
    assert Memory().spread == 0.0
    assert Memory.of({"x": torch.zeros(2, 1)}, torch.ones(2, 3), task=0).spread == 0.0
