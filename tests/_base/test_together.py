"""Two processes that share out the passes through a network get what one process gets, in double precision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base import distributed
from selfreminder._base.together import Together
from selfreminder.benchmarks.models import Heads, Network

WORLD, STEPS = 2, 4


class TwoHeads(Network):
    """A head for each of two tasks: the items of a batch may be of both."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(48, 7), nn.BatchNorm1d(7), nn.ReLU())
        self.heads = Heads(7, (3, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 7), nn.ReLU(), nn.Linear(7, 3)),
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(3, 5, 3),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20, 3),
        nn.BatchNorm1d(3, momentum=None),
    ),
    "heads": TwoHeads,
}


def train(name: str, together: Together) -> dict[str, Any]:
    """Learn batches of 9, which cannot be halved, with a penalty on weights; then predict."""
    torch.manual_seed(0)
    model = NETWORKS[name]().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = torch.randn(9 * STEPS, 3, 4, 4, dtype=torch.float64), torch.randint(3, (9 * STEPS,))
    losses, asked = [], []
    for step in range(STEPS):
        rows = slice(9 * step, 9 * step + 9)
        with together.sharded(model):
            heads = (torch.arange(9) < 2).long()  # of the rows of the second process, none is of the second head
            logits = model(x[rows], heads, [0, 1]) if name == "heads" else model(x[rows])
            loss = F.cross_entropy(logits, y[rows]) + 0.1 * sum(p.square().sum() for p in model.parameters())
        optimizer.zero_grad()
        loss.backward()
        asked.append(together.average(list(model.parameters()), step == 2 and together.rank == WORLD - 1))
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad(), together.sharded(model):
        predicted = model(x, 1) if name == "heads" else model(x)
    together.check_same(name, model.state_dict())
    return {"weights": model.state_dict(), "losses": losses, "asked": asked, "predicted": predicted}


def drop(together: Together) -> tuple[Tensor, float]:
    """Let a network with dropout see ones, and draw a number afterwards."""
    torch.manual_seed(0)
    model = nn.Dropout(0.5)
    with together.sharded(model):
        seen = model(torch.ones(8, 40))
    return seen, torch.rand(()).item()


def come_apart(together: Together) -> str:
    try:
        together.check_same("task 3", {"weight": torch.tensor(float(together.rank))})
    except ValueError as error:
        return str(error)
    return ""


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=WORLD)
    try:
        with distributed.alike():
            assert distributed.get_ranks() == (0, 1), "a reminder does all of its work"
            unseen: list[int] = []
            together = Together(rank, WORLD, unseen.append)
            done: dict[str, Any] = {name: train(name, together) for name in NETWORKS}
            done |= {"dropout": drop(together), "apart": come_apart(together), "unseen": sum(unseen)}
            done["any"] = [together.any(rank == 1), together.any(False)]
            with together.sharded(model := nn.Linear(2, 2)):
                done["one item"] = model(torch.ones(1, 2)).shape
        torch.save(done, folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    mp.spawn(work, (folder,), nprocs=WORLD)  # pyright: ignore[reportPrivateImportUsage]
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize("name", NETWORKS)
def test_two_get_what_one_gets(both: list[dict[str, Any]], name: str) -> None:
    alone = train(name, Together())
    for found in (each[name] for each in both):
        for key, value in alone["weights"].items():
            torch.testing.assert_close(found["weights"][key], value, rtol=0, atol=1e-12)
        assert found["losses"] == pytest.approx(alone["losses"], abs=1e-12)
        torch.testing.assert_close(found["predicted"], alone["predicted"], rtol=0, atol=1e-12)
        assert found["asked"] == [False, False, True, False], "one is asked, and all know"
    first, second = (each[name]["weights"] for each in both)
    assert all(torch.equal(first[key], second[key]) for key in first), "to the bit"


def test_noise_is_each_rows_own_and_draws_agree(both: list[dict[str, Any]]) -> None:
    (seen, drawn), (other, other_drawn) = (each["dropout"] for each in both)
    assert torch.equal(seen, other) and drawn == other_drawn
    assert not torch.equal(seen[:4], seen[4:]), "one process's noise is not the other's"


def test_what_else_they_agree_on(both: list[dict[str, Any]]) -> None:
    assert all(each["any"] == [True, False] for each in both)
    assert all("have come apart in task 3" in each["apart"] for each in both)
    assert both[0]["one item"] == (1, 2), "fewer items than processes: each does all"
    passed = len(NETWORKS) * (9 * STEPS + 9 * STEPS) + 8
    assert sum(each["unseen"] for each in both) == passed * (WORLD - 1), "each item goes through one network"
