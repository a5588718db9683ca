"""Two processes that train one model by DistributedDataParallel get the weights of one process with their data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from selfreminder._base import distributed
from selfreminder._base.errors import SelfReminderError
from selfreminder.memory.memory import Memory
from selfreminder.reminder.reminder import Reminder

WORLD, STEPS, BATCH, OLD = 2, 5, 16, 20
TOLERANCE = 1e-5
"""of weights near .1 after five steps of SGD: float32 sums are taken in another order"""


def data(task: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(WORLD * STEPS * BATCH, 12, generator=generator)
    return x, (x @ torch.randn(12, 3, generator=generator)).argmax(1)


def network(batch_norm: bool) -> nn.Sequential:
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(8)] if batch_norm else []
    return nn.Sequential(nn.Linear(12, 8), *norm, nn.ReLU(), nn.Linear(8, 3))


def digest(memory: Memory) -> list[tuple[str, list[Any]]]:
    return sorted((name, column.tolist()) for name, column in memory.columns.items())


def new_reminder(batch_size: int = OLD) -> Reminder:
    return Reminder(strength=0.5, batch_size=batch_size)


def steps(model: nn.Module, reminder: Reminder, attach: bool, rank: int, world: int) -> None:
    x, y = data(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    if attach:
        reminder.attach(model, optimizer)
    for step in range(STEPS):
        start = step * WORLD * BATCH
        rows = slice(start + rank, start + WORLD * BATCH, world)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        (loss if attach else loss + reminder.penalty(model)).backward()
        optimizer.step()


def train(rank: int, batch_norm: bool, attach: bool, per_task: int) -> tuple[Any, dict[str, Tensor], float]:
    model, reminder = DistributedDataParallel(network(batch_norm)), new_reminder()
    x, y = data(0)
    reminder.remember(model, x, y, per_task=per_task)
    with torch.no_grad():
        penalty = reminder.penalty(model).item()
    steps(model, reminder, attach, rank, WORLD)
    return digest(reminder.memory), model.module.state_dict(), penalty


def train_sharded(rank: int, attach: bool) -> tuple[Any, dict[str, Tensor], float]:
    """The same by FSDP2: each process has a shard of every parameter."""
    model, reminder = network(False), new_reminder()
    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    reminder.remember(model, *data(0), per_task=120)
    penalty = reminder.penalty(model).item()
    steps(model, reminder, attach, rank, WORLD)
    return digest(reminder.memory), {name: p.full_tensor() for name, p in model.state_dict().items()}, penalty


SETTINGS = [(attach, per_task) for attach in (False, True) for per_task in (9, 120)]
"""a memory that is used whole, in slices of 5 and 4, and one that items are drawn from"""


def work(rank: int, folder: Path) -> None:
    """All that a process does for the tests below: starting one takes seconds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=WORLD)
    try:
        done: dict[Any, Any] = {setting: train(rank, False, *setting) for setting in SETTINGS}
        done |= {("sharded", attach): train_sharded(rank, attach) for attach in (False, True)}
        done["batch norm"] = train(rank, True, False, 120)
        done["gather"], done["stream"] = gather(rank), stream(rank)
        torch.save(done, folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], list[Any]]:
    """What two processes made of each thing."""
    folder = tmp_path_factory.mktemp("two")
    mp.spawn(work, (folder,), nprocs=WORLD)  # pyright: ignore[reportPrivateImportUsage]
    done = [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]
    return lambda name: [each[name] for each in done]


@pytest.mark.parametrize(("attach", "per_task"), SETTINGS)
def test_weights_of_one_process(both: Callable[[Any], list[Any]], attach: bool, per_task: int) -> None:
    (memory_0, ours, penalty), (memory_1, also_ours, _) = both((attach, per_task))
    assert memory_0 == memory_1
    assert penalty == pytest.approx(0.0, abs=1e-12)
    model, reminder = network(False), new_reminder(WORLD * OLD)
    reminder.remember(model, *data(0), per_task=per_task)
    here, there = dict(digest(reminder.memory)), dict(memory_0)
    # Here 40 items are in a pass of what records them, there 20: that alone may change the last bit.
    torch.testing.assert_close(torch.tensor(here.pop("logits")), torch.tensor(there.pop("logits")), rtol=0.0, atol=1e-6)
    assert here == there
    reminder.penalty(model)  # one draw before training, as there
    steps(model, reminder, attach, 0, 1)
    for name, theirs in model.state_dict().items():
        torch.testing.assert_close(ours[name], theirs, rtol=0.0, atol=TOLERANCE)
        assert torch.equal(ours[name], also_ours[name])


@pytest.mark.parametrize("attach", [False, True])
def test_parameters_in_shards(both: Callable[[Any], list[Any]], attach: bool) -> None:
    (memory, ours, penalty), (other_memory, *_) = both(("sharded", attach))
    (whole_memory, theirs, _), _ = both((attach, 120))
    assert memory == other_memory == whole_memory
    assert penalty == pytest.approx(0.0, abs=1e-12)
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=0.0, atol=TOLERANCE)


def test_batch_norm(both: Callable[[Any], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against two models in one process that do by hand what DDP does: the first one's buffers, the mean gradient.

    Each process normalises its new items by its own batch, and old ones by its own running statistics.
    """
    (_, ours, _), _ = both("batch norm")
    models = [network(True) for _ in range(WORLD)]
    reminders = [new_reminder() for _ in range(WORLD)]
    for reminder in reminders:
        reminder.remember(models[0], *data(0), per_task=120)
    x, y = data(1)
    for rank in range(WORLD):  # one draw before training, as there
        monkeypatch.setattr(distributed, "get_ranks", lambda rank=rank: (rank, WORLD))
        reminders[rank].penalty(models[rank])
    for step in range(STEPS):
        for name, buffer in models[1].named_buffers():
            buffer.copy_(models[0].get_buffer(name))
        for rank, model in enumerate(models):
            monkeypatch.setattr(distributed, "get_ranks", lambda rank=rank: (rank, WORLD))
            model.zero_grad()
            start = step * WORLD * BATCH
            rows = slice(start + rank, start + WORLD * BATCH, WORLD)
            (F.cross_entropy(model(x[rows]), y[rows]) + reminders[rank].penalty(model)).backward()
        with torch.no_grad():
            for first, second in zip(models[0].parameters(), models[1].parameters()):
                assert first.grad is not None
                assert second.grad is not None
                mean = (first.grad + second.grad) / WORLD
                first -= 0.2 * mean
                second -= 0.2 * mean
    for name, theirs in models[0].state_dict().items():
        torch.testing.assert_close(ours[name], theirs, rtol=0.0, atol=TOLERANCE)


def gather(rank: int) -> tuple[Any, Tensor, Tensor, str]:
    model, (x, y) = network(False), data(0)
    reminder = new_reminder()
    reminder.remember(model, x[rank::WORLD], y[rank::WORLD], per_class=10)  # each its own part
    parts = digest(reminder.memory)
    sources, labels = reminder.memory.sources, reminder.memory.labels
    given = new_reminder()
    half = slice(rank * len(x) // WORLD, (rank + 1) * len(x) // WORLD)
    given.remember(model, x[half], y[half], per_class=10, sources=torch.arange(len(x))[half])
    assert torch.equal(x[given.memory.sources], given.memory.read().inputs["x"])
    try:
        reminder.remember(model, x[rank::WORLD], y[rank::WORLD], per_class=10_000)
    except SelfReminderError as error:
        return parts, sources, labels, str(error)
    raise AssertionError


def test_each_gives_its_part(both: Callable[[Any], list[Any]]) -> None:
    (memory_0, sources, labels, error), (memory_1, *_, other_error) = both("gather")
    assert memory_0 == memory_1
    assert len(sources.unique()) == 30
    assert set((sources % WORLD).tolist()) == {0, 1}  # of both parts
    assert torch.equal(labels.long(), data(0)[1][sources])
    assert error == other_error
    assert "larger than the data" in error  # in both processes, and neither waits for the other


def stream(rank: int) -> tuple[Any, Tensor]:
    model, (x, y) = network(False), data(0)
    reminder = new_reminder()
    for start in range(0, len(x), WORLD * BATCH):
        mine = slice(start + rank * BATCH, start + (rank + 1) * BATCH)
        reminder.observe(model, x[mine], y[mine], per_task=25)
    return digest(reminder.memory), reminder.memory.sources


def test_a_stream_in_two_processes_is_one_stream(both: Callable[[Any], list[Any]]) -> None:
    (memory_0, sources), (memory_1, _) = both("stream")
    assert memory_0 == memory_1
    model, reminder, (x, y) = network(False), new_reminder(), data(0)
    for start in range(0, len(x), 7):
        reminder.observe(model, x[start : start + 7], y[start : start + 7], per_task=25)
    assert torch.equal(reminder.memory.sources, sources)


@pytest.mark.parametrize("items", [1, 2, 3, 4, 7])
def test_the_mean_over_processes_is_exact_however_few_items_there_are(items: int) -> None:
    x = torch.rand(items, 2)
    memory = Memory.of({"x": x}, x, task=0)
    batches = [memory.draw(10, part=(rank, 4)) for rank in range(4)]
    assert min(map(len, batches)) > 0
    sums = torch.stack([(batch.weight[:, None] * batch.logits).sum(0) for batch in batches])
    torch.testing.assert_close(sums.mean(0), x.mean(0))


def test_every_process_sends_its_dtypes_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.complex64]
    monkeypatch.setattr(distributed, "get_ranks", lambda: (0, WORLD))
    for order in (dtypes, dtypes[::-1]):
        sent: list[torch.dtype] = []
        monkeypatch.setattr(dist, "all_reduce", lambda flat, sent=sent: sent.append(flat.dtype))
        distributed.average([torch.ones(2, dtype=dtype) for dtype in order])
        assert sent == order


def test_alone() -> None:
    assert distributed.get_ranks() == (0, 1)
    tensors = [torch.rand(3), torch.rand(2)]
    assert distributed.average(tensors) == tensors
    assert (distributed.all_gather(5), distributed.broadcast(5)) == ([5], 5)
