"""Files that anybody may have made, and numbers that nobody means: one line, and no memory taken before."""

import base64
import csv
import hashlib
import random
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from selfreminder import Memory, Reminder, SelfReminderError, Size, open_memory, save_memory
from selfreminder._base import tensor_file
from selfreminder._base.errors import MemoryFileError
from selfreminder.cli import main
from selfreminder.memory.encoded import Encoded
from selfreminder.memory.number_formats import inflate_item
from selfreminder.memory.query import find_matching
from selfreminder.report.gallery import render_gallery
from selfreminder.report.pictures import export


def make(n: int = 6, **more: Any) -> Memory:
    return Memory.of({"x": torch.rand(n, 9)}, torch.rand(n, 3), task=0, **more)


def bomb(nbytes: int) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(bytes(nbytes)) + deflater.flush()


def forge_items(path: Path, items: Sequence[bytes], shape: list[int]) -> None:
    """A memory of deflated items; its hash is right."""
    memory = make(len(items), codecs="raw+zlib")
    columns = memory.columns | {
        "inputs.x": torch.frombuffer(bytearray().join(items), dtype=torch.uint8),
        "inputs.x.sizes": torch.tensor([len(item) for item in items], dtype=torch.int32),
    }
    facts = {"schema": 2, **memory.facts, "inputs": {"x": {"codec": "raw+zlib", "dtype": "uint8", "shape": shape}}}
    tensor_file.write(path, columns, "selfreminder", facts)


@pytest.mark.parametrize(
    "shape",
    [
        *([-1], [2**32], [2**16, 2**16], [2**30, 2], [0, 2**30, 2**30, 2**30], [1] * 99, [10**400], [30_000_000]),
        *([], [0], [1], [999_999], [1000, 1001]),  # they are possible, but not of these items
    ],
)
def test_shapes_that_an_item_cannot_have(shape: list[int], tmp_path: Path) -> None:
    forge_items(tmp_path / "m", [bomb(1_000_000)], shape)
    with pytest.raises(MemoryFileError, match="holds no whole memory"):
        open_memory(tmp_path / "m")
    assert main(["memory", "verify", str(tmp_path / "m")]) == 2


def test_inflating_is_never_without_a_limit() -> None:
    for size in (-1, -2, 999_999, 1_000_001):
        with pytest.raises(SelfReminderError, match="is damaged"):
            inflate_item(memoryview(bomb(1_000_000)), size)
    assert len(inflate_item(memoryview(bomb(1_000_000)), 1_000_000)) == 1_000_000


@pytest.mark.parametrize("item", [bomb(5), bomb(10), bomb(9) + b"more", bomb(9)[:-1], b"\xff\xff\xff"])
def test_verify_reads_every_item(item: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge_items(tmp_path / "good", [bomb(9), bomb(9)], [9])
    assert main(["memory", "verify", str(tmp_path / "good")]) == 0
    forge_items(tmp_path / "m", [bomb(9), item], [9])
    open_memory(tmp_path / "m")  # which looks at the first
    assert main(["memory", "verify", str(tmp_path / "m")]) == 2
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "facts",
    [
        {"next_id": float("inf")},
        {"next_id": 10**400},
        {"next_id": -1},
        {"selection_names": [["given"]]},
        {"streams": {"0": {"seen": 10**400, "seed": 0}}},
        {"recorders": {"0": {"model": "a", "classes": float("inf"), "transform": "", "inputs": {}}}},
    ],
)
def test_numbers_in_facts(facts: dict[str, Any], tmp_path: Path) -> None:
    memory = make()
    tensor_file.write(tmp_path / "m", memory.columns, "selfreminder", {"schema": 2, **memory.facts, **facts})
    with pytest.raises(MemoryFileError, match="holds no whole memory"):
        open_memory(tmp_path / "m")


def test_every_damage_of_a_memory_file_is_noticed(tmp_path: Path) -> None:
    path, damaged, chance = tmp_path / "m", tmp_path / "damaged", random.Random(0)
    save_memory(make(codecs="compressed") + make(4, codecs="affine8"), path)
    whole = path.read_bytes()
    for _ in range(300):
        content, place = bytearray(whole), chance.randrange(8 * len(whole))
        content[place // 8] ^= 1 << place % 8
        for broken in (bytes(content), whole[: chance.randrange(len(whole))]):
            damaged.write_bytes(broken)
            with pytest.raises(MemoryFileError):
                open_memory(damaged)


# Numbers --------------------------------------------------------------------------------------------------------


def test_odd_numbers_are_refused_in_a_line() -> None:
    memory, huge = make(), 10**400
    calls: list[Any] = [
        lambda: memory.draw(0),
        lambda: memory.draw(-3),
        lambda: memory.draw(float("nan")),  # pyright: ignore[reportArgumentType]
        lambda: memory.draw(huge),
        lambda: memory.draw(2, part=(2, 2)),
        lambda: memory.draw(2, part=(0, 0)),
        lambda: memory.draw(2, part=(-1, 2)),
        lambda: make(time=float("nan")),
        lambda: make(time=-1),
        lambda: make(time=huge),
        lambda: Memory.of({"x": torch.rand(1, 2)}, torch.rand(1, 2), task=huge),
        lambda: Memory.of({"x": torch.rand(1, 2)}, torch.rand(1, 2), task=1.5),  # pyright: ignore[reportArgumentType]
        lambda: Size(per_class=huge),
        lambda: Size(budget=huge),
        lambda: Size(budget="9" * 400 + "MB"),
        lambda: Reminder().remember(nn.Linear(4, 2), torch.rand(9, 4), per_task=3, time=float("nan")),
        lambda: Reminder().remember(nn.Linear(4, 2), torch.rand(9, 4), per_task=3, time=float("inf")),
    ]
    for call in calls:
        with pytest.raises(SelfReminderError) as raised:
            call()
        assert len(str(raised.value)) < 200


def test_conditions_with_many_digits(tmp_path: Path) -> None:
    memory = make(time=1)
    assert not find_matching(memory, where=f"source={'9' * 5000}").any()
    assert find_matching(memory, where=f"id<{'9' * 5000}").all()
    assert not find_matching(memory, older_than="9" * 400 + "d").any()
    save_memory(memory, tmp_path / "m")
    assert main(["memory", "show", str(tmp_path / "m"), "--html", "x", "--most", "9" * 400]) == 2


# Texts ----------------------------------------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\u202e"


def test_no_text_of_a_file_moves_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = replace(make(selection=EVIL), inputs={EVIL: Encoded.of("raw", torch.rand(6, 2))})
    save_memory(memory, tmp_path / "m")
    for words in (["list"], ["show"], ["verify"], ["export", "--out", str(tmp_path / "out")]):
        assert main(["memory", words[0], str(tmp_path / "m"), *words[1:]]) == 0
    assert main(["memory", "list", str(tmp_path / "m"), "--where", f"selection={EVIL}x"]) == 2
    printed = capsys.readouterr()
    assert "\\x1b[2J" in printed.out
    assert "\\x1b[2J" in printed.err
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", printed.out + printed.err)


def test_an_export_leads_nowhere_and_computes_nothing(tmp_path: Path) -> None:
    x = Encoded.of("raw", torch.rand(6, 2))
    names = ("../../up", "/root", "..", "C:\\x", "a/b", "a_b", "plain")
    memory = replace(make(selection='=HYPERLINK("http://x","y")'), inputs=dict.fromkeys(names, x))
    export(memory, tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "out" / "inputs.npz") as archive:
        found = archive.namelist()
    assert len(set(found)) == len(names)
    assert "plain.npy" in found
    assert all(re.fullmatch(r"[\w-][\w.-]*\.npy", name) for name in found)
    with (tmp_path / "out" / "items.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["selection"] for row in rows} == {'\'=HYPERLINK("http://x","y")'}
    assert all(float(row["z0"]) >= 0 for row in rows)


def test_a_page_runs_no_script_but_ours() -> None:
    page = render_gallery(make(selection=EVIL), EVIL)
    assert "<script>alert" not in page
    assert "\x1b" not in page
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', page)
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    ours = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src &#x27;none&#x27;; img-src data:;" in policy
    assert f"script-src &#x27;sha256-{ours}&#x27;" in policy
