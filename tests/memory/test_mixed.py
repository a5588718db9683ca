"""Items of several codecs in one memory: each as its codec keeps it, in the bytes that are counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pretend_device import pretending
from selfreminder._base import tensor_file
from selfreminder._base.errors import MemoryFileError, SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.memory import codec
from selfreminder.memory.encoded import Encoded, Kept
from selfreminder.memory.file import hash_items, open_memory, save_memory
from selfreminder.memory.memory import Memory
from selfreminder.memory.mixed import Mixed
from selfreminder.memory.reservoir import find_entering, merge_entered
from selfreminder.reminder.reminder import Reminder
from selfreminder.report.pictures import export

SHAPE = (2, 3)
FLOATS = ("uint8", "raw", "float32", "float16", "affine8", "uint8+zlib", "raw+zlib", "float16+zlib", "affine8+zlib")
"""codecs that read float32 back"""
seeds = st.integers(0, 10_000)
kinds = st.lists(st.booleans(), max_size=12)
"""of each item, whether it is an image of bytes"""
pieces = st.lists(st.tuples(st.sampled_from(FLOATS), st.integers(0, 4)), min_size=1, max_size=5)


def items(exact: list[bool], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (len(exact), *SHAPE), generator=generator) / 255
    floats = torch.rand(len(exact), *SHAPE, generator=generator) / 3 + 1e-4
    return torch.where(torch.tensor(exact, dtype=torch.bool).reshape(-1, 1, 1), images, floats)


def join(parts: list[tuple[str, int]], seed: int) -> tuple[Kept, Tensor]:
    """Items of several codecs, and what is read back of each by itself."""
    each = [codec.encode(name, items([False] * n, seed + i)) for i, (name, n) in enumerate(parts)]
    joined = each[0]
    for other in each[1:]:
        joined = joined + other
    return joined, torch.cat([one.decode() for one in each])


def same(one: Kept, other: Kept) -> bool:
    equal = one.parts.keys() == other.parts.keys() and one.facts == other.facts
    return equal and all(torch.equal(part, other.parts[ending]) for ending, part in one.parts.items())


def remembered(exact: list[bool], seed: int = 0, task: int = 0, **how: Any) -> Memory:
    x = items(exact, seed)
    return Memory.of({"x": x}, x.flatten(1)[:, :4], task=task, labels=torch.arange(len(x)) % 3, **how)


# As codecs keep items -----------------------------------------------------------------------------------------


@given(kinds, seeds)
@pytest.mark.parametrize("name", ["auto", "compressed"])
def test_each_item_has_its_own_codec_and_nothing_is_lost(name: str, exact: list[bool], seed: int) -> None:
    x, zlib = items(exact, seed), "+zlib" if name == "compressed" else ""
    kept = codec.encode(name, x)
    assert torch.equal(kept.decode(), x)
    assert (len(kept), kept.shape, kept.read_dtype) == (len(x), SHAPE, torch.float32)
    mixed = len(set(exact)) == 2
    assert isinstance(kept, Mixed) == mixed
    for number, bytewise in enumerate(exact):
        alone = codec.encode(name, x[number : number + 1])
        assert alone.codec == ("uint8" if bytewise else "raw") + zlib
        assert kept.item_nbytes()[number] == alone.nbytes + mixed
    assert kept.nbytes == int(kept.item_nbytes().sum())
    assert all(size >= kept.least_item_nbytes for size in kept.item_nbytes())


def test_a_codec_for_each_item_is_not_worth_a_byte_of_each() -> None:
    floats = torch.rand(100, 4) / 3 + 1e-4
    floats[:8] = 0.0  # 8 items of 4 numbers, 3 bytes each: less than 100
    assert codec.encode("auto", floats).codec == "raw"
    floats[8] = 0.0
    assert codec.encode("auto", floats).nbytes == 9 * 4 + 91 * 16 + 100


@given(pieces, seeds, st.data())
def test_joined_or_taken_items_are_the_items(parts: list[tuple[str, int]], seed: int, data: st.DataObject) -> None:
    """No item is rounded twice, none gets larger but for a byte, and the same items are the same columns."""
    joined, whole = join(parts, seed)
    assert torch.equal(joined.decode(), whole)
    alone = [codec.encode(name, items([False] * n, seed + i)) for i, (name, n) in enumerate(parts)]
    assert joined.nbytes == sum(one.nbytes for one in alone) + (len(joined) if isinstance(joined, Mixed) else 0)
    assert joined.nbytes == int(joined.item_nbytes().sum())
    assert isinstance(joined, Mixed) == (len({name for name, n in parts if n}) > 1)

    rows = data.draw(st.lists(st.integers(0, len(joined) - 1), max_size=8)) if len(joined) else []
    index = torch.tensor(rows, dtype=torch.long)
    taken = joined.take(index)
    assert torch.equal(joined.decode(index), whole[index])
    assert torch.equal(taken.decode(), whole[index])
    assert isinstance(taken, Mixed) == (len({piece.codec for piece in taken.pieces}) > 1)
    assert torch.equal((taken + joined).decode(), torch.cat([whole[index], whole]))
    assert same((joined + taken).take(torch.arange(len(joined))), joined) or not len(joined)
    if len(alone) > 2 and len(joined):
        other = alone[0] + sum(alone[2:], alone[1])
        assert same(other, joined)

    for kept in (joined, taken):
        back = codec.from_parts(kept.parts, kept.facts)
        back.check(codec.NAMES)
        assert same(back, kept)


def test_what_does_not_join() -> None:
    kept = codec.encode("auto", items([True, False]))
    for other in (torch.zeros(1, 2, 4), torch.zeros(1, *SHAPE, dtype=torch.int64)):
        with pytest.raises(SelfReminderError, match="do not join"):
            kept + codec.encode("auto", other)
        with pytest.raises(SelfReminderError, match="do not join"):
            codec.encode("raw", other) + kept
    with pytest.raises(SelfReminderError, match="do not join"):
        codec.encode("raw", torch.zeros(1, 2)) + codec.encode("raw", torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    "names",
    [("auto", "raw"), ("auto", "compressed"), ("compressed", "raw"), ("affine8", "raw"), ("compressed", "raw+zlib")],
)
def test_on_another_device(names: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.memory.sampling._FITS", 0)  # nothing is read once and for all
    exact = [True, False, True, True, False]
    expected = torch.cat([codec.encode(name, items(exact)).decode() for name in names])
    with pretending() as device:
        logits = torch.zeros(5, 3, device=device)
        first, second = (Memory.of({"x": items(exact).to(device)}, logits, task=0, codecs=name) for name in names)
        for memory in (first + second, (first.to("cpu") + second.to("cpu")).to(device)):
            index = torch.tensor([7, 0, 1, 9, 4], device=device)
            taken = memory.take(index).inputs["x"]
            assert torch.equal(taken.decode().cpu(), expected[index.cpu()])
            assert memory.inputs["x"].decode(index).device == device
            assert torch.equal(memory.inputs["x"].decode(index).cpu(), expected[index.cpu()])
            assert torch.equal(memory.draw(10).inputs["x"].cpu(), expected)
            drawn = memory.draw(4, torch.Generator(device).manual_seed(0)).inputs["x"]
            assert drawn.device == device
            assert (drawn.cpu().flatten(1)[:, None] == expected.flatten(1)).all(2).any(1).all()
            assert torch.equal(memory.to("cpu").inputs["x"].decode(), expected)
            assert int(memory.inputs["x"].item_nbytes().sum()) == memory.inputs["x"].nbytes


# In a memory --------------------------------------------------------------------------------------------------


@given(
    st.lists(kinds.filter(bool), min_size=1, max_size=3), st.integers(0, 3000), st.sampled_from(["auto", "compressed"])
)
def test_never_over_budget(tasks: list[list[bool]], budget: int, name: str) -> None:
    memory = Memory()
    for task, exact in enumerate(tasks):
        memory = memory + remembered(exact, task, task, codecs=name)
    assert int(memory.nbytes_before()[-1]) == memory.nbytes
    first = memory.take(torch.tensor([(memory.tasks == task).nonzero()[0, 0] for task in memory.counts]))
    if budget < first.nbytes + len(first):
        return  # there may be room for none
    small = memory.shrink(budget)
    assert small.nbytes <= budget
    assert torch.equal(small.draw(99).inputs["x"].flatten(1)[:, :4], small.logits)
    assert small.item_nbytes >= small.least_item_nbytes >= memory.least_item_nbytes


@settings(max_examples=30)
@given(first=kinds, second=kinds, data=st.data())
def test_saved_and_opened(
    first: list[bool], second: list[bool], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("mixed") / "m"
    one, other = remembered(first, 0), remembered(second, 1, task=1, codecs="compressed")
    memory = one + other
    save_memory(memory, path)
    back = open_memory(path)
    assert back.facts == memory.facts
    assert back.nbytes == memory.nbytes
    assert torch.equal(back.draw(99).inputs["x"], memory.draw(99).inputs["x"]) if len(memory) else not len(back)
    assert hash_items(back) == hash_items(one) + hash_items(other)
    save_memory(back, path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()

    left = data.draw(st.lists(st.booleans(), min_size=len(memory), max_size=len(memory)))
    there = torch.tensor(left, dtype=torch.bool)
    save_memory(back.take(there), path)
    assert hash_items(open_memory(path)) == [digest for digest, here in zip(hash_items(memory), left) if here]
    for gone in (one.inputs["x"].decode() * 255).round().to(torch.uint8)[~there[: len(one)]]:
        assert gone.numpy().tobytes() not in path.read_bytes()


def test_the_same_file_whatever_the_order_of_joining(tmp_path: Path) -> None:
    x = torch.cat([items([True] * 3), items([False] * 3)])
    parts = [Memory.of({"x": x[i : i + 1]}, torch.zeros(1, 2), task=i) for i in range(6)]
    for name, order in (("a", range(6)), ("b", (5, 0, 3, 1, 2, 4))):
        memory = sum((parts[i] for i in order), Memory())
        ids = torch.arange(6, dtype=torch.int32)  # given in the order of joining
        save_memory(Memory(**{**vars_of(memory), "ids": ids}), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def vars_of(memory: Memory) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in memory.__dataclass_fields__}


def test_a_plain_memory_stays_plain(tmp_path: Path) -> None:
    """Nothing of a mix is left where it is of no use."""
    mixed, plain = remembered([True, False, True]), remembered([True, False, True], codecs="raw")
    bytewise = mixed.take(torch.tensor([0, 2]))
    assert bytewise.facts["inputs"] == {"x": {"codec": "uint8"}}
    assert set(bytewise.columns) == set(plain.columns)
    assert bytewise.nbytes == mixed.take(torch.tensor([0])).nbytes + mixed.take(torch.tensor([2])).nbytes
    assert mixed.facts["inputs"] == {"x": {"codecs": [{"codec": "raw"}, {"codec": "uint8"}]}}
    assert mixed.columns["inputs.x.codecs"].tolist() == [1, 0, 1]
    assert not len(mixed.take(torch.zeros(3, dtype=torch.bool)))


def test_logits_of_different_codecs_stay_as_they_are(tmp_path: Path) -> None:
    parts = [remembered([True] * 3, i, i, logit_codec=name) for i, name in enumerate(("float16", "float32", "int8"))]
    wide = Memory.of({"x": items([True])}, torch.randn(1, 6), task=9, logit_codec="int8")
    memory = sum(parts, Memory()) + wide
    assert torch.equal(memory.logits[:9, :4], torch.cat([part.logits for part in parts]))
    assert torch.equal(memory.logits[9:], wide.logits)
    assert memory.kept_logits.item_nbytes().tolist() == [13] * 3 + [25] * 3 + [11] * 4
    save_memory(memory, tmp_path / "m")
    back = open_memory(tmp_path / "m")
    assert torch.equal(back.logits, memory.logits)
    assert torch.equal(back.with_logits(back.logits).logits, memory.logits)
    assert back.with_logits(torch.ones(10, 6)).nbytes == memory.nbytes


def test_exported_exactly(tmp_path: Path) -> None:
    memory = remembered([True, False, True])
    done = export(memory, tmp_path / "out")
    assert (done.items, done.arrays) == (3, ("x",))
    with np.load(tmp_path / "out" / "inputs.npz") as arrays:
        assert torch.equal(torch.from_numpy(arrays["x"]), items([True, False, True]))


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=30, max_size=90), st.integers(1, 9), st.integers(200, 2000))
def test_a_reservoir_under_a_budget(exact: list[bool], batch: int, budget: int) -> None:
    """Never over budget, and nothing but the smallest keys: the first items of the same stream in one batch."""
    x, size, kept = items(exact), Size(budget=str(budget)), []
    for n in (batch, len(x)):
        memory = Memory()
        for start in range(0, len(x), n):
            part = x[start : start + n]
            index = find_entering(memory, 0, len(part), size)
            new = Memory()
            if len(index):
                new = Memory.of(
                    {"x": part[index]}, torch.zeros(len(index), 3), task=0, sources=start + index, selection="reservoir"
                )
            memory = merge_entered(memory, new, 0, start + len(part), size)
            assert memory.nbytes <= budget
            assert torch.equal(memory.draw(99).inputs["x"], x[memory.sources.long()])
        kept.append(memory.sources.tolist())
    fewest = min(map(len, kept))
    assert fewest
    assert kept[0][:fewest] == kept[1][:fewest]


# Remembered ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [0, 100, 237])
@pytest.mark.parametrize(("name", "select"), [("auto", "random"), ("auto", "herding"), ("compressed", "random")])
def test_one_odd_image_does_not_cost_the_others_their_room(name: str, select: str, odd: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (238, 784), generator=generator) / 255
    mixed, model, labels = images.clone(), nn.Linear(784, 10), torch.arange(238) % 10
    mixed[odd] = torch.rand(784, generator=generator)
    sizes = []
    for x in (images, mixed):
        reminder = Reminder(codec=name)
        reminder.remember(model, x, labels, budget="200KB", select=select)
        memory = reminder.memory
        assert memory.nbytes <= 200_000
        assert torch.equal(memory.inputs["x"].decode(), x[memory.sources])
        assert reminder.penalty(model).item() == 0.0
        sizes.append(len(memory))
    assert sizes[0] - 5 <= sizes[1] <= sizes[0]
    assert sizes[0] > 220


def test_remembered_task_after_task_and_loaded_again(tmp_path: Path) -> None:
    model, labels = nn.Linear(6, 3), torch.arange(40) % 3
    reminder = Reminder()
    for task, exact in enumerate(([True] * 40, [False] * 40, [True, False] * 20)):
        reminder.remember(model, items(exact, task).flatten(1), labels, budget="4KB")
        assert reminder.memory.nbytes <= 4000
    assert reminder.memory.inputs["x"].codec == "raw and uint8"
    other = Reminder()
    other.load_state_dict(reminder.state_dict())
    reminder.save(tmp_path / "m")
    for memory in (other.memory, open_memory(tmp_path / "m")):
        assert torch.equal(memory.inputs["x"].decode(), reminder.memory.inputs["x"].decode())
        assert hash_items(memory) == hash_items(reminder.memory)
    assert other.penalty(model).item() == 0.0


# Files that nobody wrote --------------------------------------------------------------------------------------


def forge(path: Path, memory: Memory, columns: dict[str, Tensor | None], about: Any) -> None:
    """A file with some columns replaced or left out, and other facts of input x; its hash is right."""
    found = {name: column for name, column in (memory.columns | columns).items() if column is not None}
    facts: dict[str, Any] = {"schema": 2, **memory.facts, "inputs": {"x": about}}
    tensor_file.write(path, {name: column.contiguous() for name, column in found.items()}, "selfreminder", facts)


RAW, BYTES = {"codec": "raw"}, {"codec": "uint8"}
ONES, THREE = torch.ones(3, dtype=torch.uint8), torch.zeros(3, *SHAPE, dtype=torch.uint8)
DEFLATED = {"codec": "uint8+zlib", "dtype": "uint8", "shape": list(SHAPE)}


@pytest.mark.parametrize(
    ("columns", "codecs"),
    [
        ({}, []),
        ({}, [RAW]),
        ({}, [BYTES, RAW]),
        ({}, [RAW, RAW]),
        ({}, [RAW, BYTES, {"codec": "affine8"}]),
        ({}, [RAW, DEFLATED]),
        ({}, [RAW, {"codec": "auto"}]),
        ({}, [RAW, {"codec": None}]),
        ({}, [RAW, {"codecs": [RAW, BYTES]}]),
        ({}, {"raw": RAW, "uint8": BYTES}),
        ({}, "ab"),
        ({}, 7),
        ({}, None),
        ({"inputs.x.codecs": torch.tensor([0, 1, 0], dtype=torch.uint8)}, [BYTES, RAW]),
        ({"inputs.x.codecs": ONES, "inputs.x.uint8": THREE}, [RAW, BYTES]),
        ({"inputs.x.codecs": ONES, "inputs.x.uint8": THREE, "inputs.x.raw": torch.zeros(0, *SHAPE)}, [RAW, BYTES]),
        ({"inputs.x.codecs": ONES - 1, "inputs.x.uint8": THREE}, [BYTES]),
        ({"inputs.x.codecs": None}, [RAW, BYTES]),
        ({"inputs.x.raw": None}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([1, 0, 2], dtype=torch.uint8)}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([1, 1, 1], dtype=torch.uint8)}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([1, 0], dtype=torch.uint8)}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([1, 0, 1])}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([1.0, 0.0, 1.0])}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor([[1], [0], [1]], dtype=torch.uint8)}, [RAW, BYTES]),
        ({"inputs.x.codecs": torch.tensor(1, dtype=torch.uint8)}, [RAW, BYTES]),
        ({"inputs.x.raw": torch.zeros(1, 3, 2)}, [RAW, BYTES]),
        ({"inputs.x.raw": torch.zeros(2, 2, 3)}, [RAW, BYTES]),
        ({"inputs.x.raw": torch.zeros(1, 2, 3, dtype=torch.float64)}, [RAW, BYTES]),
        ({"inputs.x.raw": torch.zeros(())}, [RAW, BYTES]),
        ({"inputs.x.uint8": torch.zeros(2, 2, 3)}, [RAW, BYTES]),
        ({"inputs.x.uint8.scale": torch.zeros(2, 2)}, [RAW, BYTES]),
        ({"inputs.x.raw.sizes": torch.ones(1, dtype=torch.int32)}, [RAW, BYTES]),
    ],
)
def test_forged_files_are_refused(columns: dict[str, Tensor | None], codecs: Any, tmp_path: Path) -> None:
    memory = remembered([True, False, True])
    forge(tmp_path / "good", memory, {}, {"codecs": [RAW, BYTES]})
    assert hash_items(open_memory(tmp_path / "good")) == hash_items(memory)
    forge(tmp_path / "m", memory, columns, {"codecs": codecs})
    with pytest.raises(MemoryFileError, match="holds no whole memory"):
        open_memory(tmp_path / "m")


small = st.integers(-1, 4)
forged_parts = st.builds(
    lambda dtype, shape, value: torch.full(shape, value).to(dtype),
    st.sampled_from([torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bool]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
)
forged_facts = st.fixed_dictionaries(
    {},
    optional={
        "codec": st.sampled_from([*codec.NAMES, "int8", "zstd", None, 3]),
        "dtype": st.sampled_from(["uint8", "float32", "int64", "float", "Tensor", "", None, 3]),
        "shape": st.one_of(
            st.lists(st.sampled_from([0, 2, 3, -1, 2.0, "a", None, 2**70]), max_size=3), small, st.none()
        ),
    },
)


@settings(max_examples=400)
@given(data=st.data())
def test_whatever_is_forged_is_refused_or_can_be_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("forged") / "m"
    memory = remembered([True, False, True], codecs=data.draw(st.sampled_from(["auto", "compressed"])))
    memory = memory + remembered([False], 1, codecs="affine8")
    about = memory.facts["inputs"]["x"]["codecs"]
    mine = [name for name in memory.columns if name.startswith("inputs")]
    columns: dict[str, Tensor | None] = data.draw(
        st.dictionaries(
            st.sampled_from([*mine, "inputs.x", "inputs.x.raw.sizes"]), st.one_of(st.none(), forged_parts), max_size=1
        )
    )
    place = data.draw(st.integers(0, 3))
    if place < 3:
        about[place] = data.draw(st.one_of(st.just(about[place]), forged_facts.map(lambda new: about[place] | new)))
    try:
        forge(path, memory, columns, {"codecs": about})
        opened = open_memory(path)
        read = opened.draw(4).inputs["x"]
    except SelfReminderError:
        return
    assert read.shape == (4, *opened.inputs["x"].shape)
    assert len(hash_items(opened)) == 4


def test_damaged_values_are_refused() -> None:
    kept = codec.encode("compressed", items([True, False, True]))
    parts = {
        ending: torch.full_like(part, 255) if part.dtype == torch.uint8 else part for ending, part in kept.parts.items()
    }
    with pytest.raises(SelfReminderError, match="damaged"):
        codec.from_parts(parts | {".codecs": kept.parts[".codecs"]}, kept.facts).decode()
    assert isinstance(kept, Mixed)
    assert all(isinstance(piece, Encoded) for piece in kept.pieces)
