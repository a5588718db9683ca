"""Rows of a file that stand where a tensor does: the same numbers, and no more of them read than asked for."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from selfreminder.data.mapped import MappedRows, iterate_rows, take_rows

ARRAY = np.random.default_rng(0).integers(0, 256, (50, 2, 4, 4), np.uint8)


def decode(x: Tensor) -> Tensor:
    return x.float().div_(255)


PLAIN = decode(torch.from_numpy(ARRAY))
SOME = torch.tensor([40, 3, 3, 17])


@pytest.fixture
def rows() -> MappedRows:
    return MappedRows(ARRAY, decode=decode)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are read, each time."""
    counts: list[int] = []
    whole = MappedRows.read

    def counted(self: MappedRows, at: Tensor | None = None) -> Tensor:
        found = whole(self, at)
        counts.append(len(found))
        return found

    monkeypatch.setattr(MappedRows, "read", counted)
    return counts


@pytest.mark.parametrize(
    ("ask", "count"),
    [
        (lambda x: x[SOME], 4),
        (lambda x: x.index_select(0, SOME), 4),
        (lambda x: x[:7], 7),
        (lambda x: x[torch.arange(50) < 3], 3),
        (lambda x: x[5], 1),
        (lambda x: x.split(20)[2].clone(), 10),
        (lambda x: x.flatten(1)[SOME], 4),
        (lambda x: torch.cat([x, x])[SOME + 50], 4),
        (lambda x: take_rows(x, SOME)[:2], 2),
        (lambda x: x.to("cpu").float().detach()[:3], 3),
        (lambda x: nn.functional.conv2d(x.split(20)[1], torch.ones(1, 2, 3, 3)), 20),
        (lambda x: torch.isfinite(x), 50),
        (lambda x: x[:, 0], 50),
        (lambda x: torch.cat([x[:2], x]), 50),
    ],
)
def test_the_same_numbers(rows: MappedRows, read: list[int], ask: Any, count: int) -> None:
    found = ask(rows)
    assert type(found) is Tensor
    assert torch.equal(found, ask(PLAIN))
    assert max(read) == count


def test_nothing_is_read_to_look_at_it(rows: MappedRows, read: list[int]) -> None:
    assert (len(rows), rows.shape, rows.dtype, rows.nbytes) == (50, PLAIN.shape, torch.float32, PLAIN.nbytes)
    assert [len(part) for part in rows.split(20)] == [20, 20, 10]
    assert repr(rows) == "MappedRows(shape=(50, 2, 4, 4), dtype=torch.float32)"
    assert rows.to("meta").device.type == "meta"
    assert rows.new_zeros(3).dtype == torch.float32
    assert sum(read) == 0


def test_parts_are_read_one_after_the_other(rows: MappedRows, read: list[int]) -> None:
    assert torch.equal(torch.cat(list(iterate_rows(rows, 20))), PLAIN)
    assert read == [20, 20, 10]


def test_rows_go_where_they_are_wanted(rows: MappedRows) -> None:
    assert rows.to("meta")[:3].device.type == "meta"


def test_nothing_is_written(rows: MappedRows) -> None:
    with pytest.raises(RuntimeError, match="read only"):
        rows.add_(1)
