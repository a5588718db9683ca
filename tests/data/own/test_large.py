"""Data that is larger than memory: as if it were not, but for what is in memory at any time."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from selfreminder import data
from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder.data.limit import IN_MEMORY
from selfreminder.data.mapped import MappedRows
from selfreminder.data.own import blocks, read_own_data
from selfreminder.data.own.inputs import join_inputs, make_encoding
from selfreminder.data.own.pieces import Listener, Pieces, _read_once, read_pieces
from selfreminder.data.own.reading import Reading
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment

DIGITS = data.load("embedded-mnist")


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SELFREMINDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(blocks, "ROWS_AT_ONCE", 400)
    _read_once.cache_clear()
    return tmp_path


@pytest.fixture
def shrink(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have so little memory."""

    def to(limit: str) -> None:
        monkeypatch.setenv(IN_MEMORY, limit)
        _read_once.cache_clear()

    return to


def write_npz(n: int = 300, dtype: Any = np.uint8) -> None:
    site = np.array(["b", "a", "b"] * (n // 3))
    np.savez_compressed("own.npz", x=DIGITS.train_x[:n].astype(dtype), y=DIGITS.train_y[:n], site=site)


def write_folder(n: int = 60) -> None:
    for index in range(n):
        place = Path("photos") / ("day", "night")[index % 2] / str(DIGITS.train_y[index] % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DIGITS.train_x[index]).save(place / f"{index}.png")


NAMES = ["day", "whole", "point", "site", "said", "y"]
ROWS = [
    f"2024-0{1 + i // 500}-11,{i % 17},{'' if i % 50 == 3 else i / 7},{'abc'[i % 3]},{'buy' if i % 2 else 'see'} you,"
    f"{'yes' if i % 2 else '' if i == 600 else 'no'}"
    for i in range(1100)
]


def write_table(kind: str) -> None:
    text = "\n".join([",".join(NAMES), *ROWS]) + "\n"
    Path("own.csv").write_text(text)
    if kind == "parquet":
        pyarrow_csv = pytest.importorskip("pyarrow.csv")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow_csv.read_csv("own.csv"), "own.parquet", row_group_size=300)


def save_table() -> None:
    days = [datetime.fromisoformat(row.split(",")[0]) for row in ROWS]
    columns = {name: [row.split(",")[at] or None for row in ROWS] for at, name in enumerate(NAMES)}
    columns |= {"day": days, "whole": [int(value) for value in columns["whole"]]}
    columns |= {"point": [None if value is None else float(value) for value in columns["point"]]}
    save({**columns, "late": [None] * 400 + [True] * 700})


def save_images(n: int = 300) -> None:
    """Images, of which one is none and one has no label."""
    files = [to_png(pixels) for pixels in DIGITS.train_x[:n]]
    files[50] = files[50][:60]
    names = datasets.ClassLabel(names=list("0123456789"))
    labels = [int(label) for label in DIGITS.train_y[: n - 1]]
    columns = {"picture": [{"path": None, "bytes": file} for file in files], "label": [*labels, -1]}
    site = list("bab") * (n // 3)
    save({**columns, "site": site}, picture=datasets.Image(), label=names, site=datasets.Value("string"))


def save_lists(kind: str, n: int = 300) -> None:
    """Lists of numbers, of which one has one that is not finite if they have a point."""
    x = DIGITS.train_x[:n].reshape(n, -1).astype(kind)
    if kind == "float64":
        x[7] = x[7] / 7 + np.inf
    lists = datasets.Array2D((28, 28), kind) if kind == "uint8" else datasets.Sequence(datasets.Value(kind))
    x = x.reshape(n, 28, 28) if kind == "uint8" else x
    save({"x": list(x), "said": ["word"] * n, "y": DIGITS.train_y[:n]},
         x=lists, said=datasets.Value("string"), y=datasets.Value("int32"))  # fmt: skip


def to_png(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def save(columns: dict[str, Any], shards: int = 3, **features: Any) -> None:
    data = datasets.Dataset.from_dict(columns, datasets.Features(features) if features else None)
    data.save_to_disk("own", num_shards=shards)


TABLE = {"by": "month", "categories": ["site"], "text": ["said"], "words": 16, "skip_bad": True}
CASES = [
    ("npz:own.npz", {"by": "site"}, write_npz, "20KB"),
    ("npz:own.npz", {"by": "class"}, lambda: write_npz(dtype=np.uint16), "20KB"),
    ("folder:photos", {"by": "folder"}, write_folder, "20KB"),
    ("folder:photos", {"by": "parts:2", "size": 12, "channels": 3}, write_folder, "20KB"),
    ("csv:own.csv", TABLE, lambda: write_table("csv"), "50KB"),
    ("csv:own.csv", {"by": "whole", "skip_bad": True}, lambda: write_table("csv"), "3KB"),
    ("parquet:own.parquet", TABLE, lambda: write_table("parquet"), "50KB"),
    ("hf:own", TABLE, save_table, "50KB"),
    ("hf:own", {"by": "whole", "inputs": ["late"], "skip_bad": True}, save_table, "3KB"),
    ("hf:own", {"by": "site", "skip_bad": True}, save_images, "20KB"),
    ("hf:own", {"by": "class", "size": 12, "channels": 3, "skip_bad": True}, save_images, "20KB"),
    ("hf:own", {"by": "parts:2"}, lambda: save_lists("uint8"), "20KB"),
    ("hf:own", {"by": "parts:2", "skip_bad": True}, lambda: save_lists("float64"), "20KB"),
]


@pytest.mark.parametrize(("source", "reading", "write", "limit"), CASES)
def test_it_is_the_same_data(
    source: str, reading: dict[str, Any], write: Callable[[], None], limit: str, shrink: Callable[[str], None]
) -> None:
    write()
    at_once = read_pieces(source, json.dumps(reading))
    shrink(limit)
    told: list[str] = []
    from_file = read_pieces(source, json.dumps(reading), Listener(lambda what, done, total: told.append(what)))
    assert type(at_once.x) is torch.Tensor
    assert isinstance(from_file.x, MappedRows) and from_file.place is not None
    assert told
    assert_same(at_once, from_file)
    _read_once.cache_clear()
    told.clear()
    again = read_pieces(source, json.dumps(reading), Listener(lambda what, done, total: told.append(what)))
    assert not told  # nothing is decoded again
    assert_same(at_once, again)
    assert [path.name for path in (Path("cache") / "own").iterdir()] == [from_file.place.name]


@pytest.mark.parametrize(("source", "reading", "write", "limit"), [case for case in CASES if case[0] == "hf:own"])
def test_a_saved_data_set_in_blocks_is_the_whole(
    source: str, reading: dict[str, Any], write: Callable[[], None], limit: str, shrink: Callable[[str], None]
) -> None:
    """What `compare` reads, always in blocks, is what is read of the whole data set."""
    write()
    how = Reading.of(reading)
    own = read_own_data(
        source, size=how.size, channels=how.channels, skip_bad=how.skip_bad,
        encoding=make_encoding(how) if write is save_table else None,
    )  # fmt: skip
    shrink(limit)
    pieces = read_pieces(source, json.dumps(reading))
    assert torch.equal(join_inputs(own.inputs, own.encoding), pieces.x[torch.arange(len(pieces.x))])
    assert own.labels is not None and torch.equal(own.labels, pieces.y)
    assert own.skipped == pieces.skipped
    assert (own.classes or tuple(map(str, range(10)))) == pieces.classes


def assert_same(one: Pieces, other: Pieces) -> None:
    assert one.sha256 == other.sha256
    assert torch.equal(one.x, other.x[torch.arange(len(other.x))])
    assert torch.equal(one.y, other.y)
    assert one.classes == other.classes and list(one.rows) == list(other.rows)
    assert all(torch.equal(one.rows[name], other.rows[name]) for name in one.rows)
    assert (one.times is None) == (other.times is None)
    assert one.times is None or other.times is None or torch.equal(one.times, other.times)
    assert len(one.skipped) == len(other.skipped)


def test_what_changes_is_decoded_again(shrink: Callable[[str], None]) -> None:
    shrink("20KB")
    write_npz()
    first = read_pieces("npz:own.npz", '{"by": "site"}')
    write_npz(240)
    assert len(read_pieces("npz:own.npz", '{"by": "site"}').y) == 240
    assert len(read_pieces("npz:own.npz", '{"by": "parts:2"}').rows) == 2
    with pytest.raises(DataError, match="has changed since these runs were begun"):
        read_pieces("npz:own.npz", json.dumps({"by": "site", "sha256": first.sha256}))


@pytest.mark.parametrize("damage", ["inputs.bin", "rows.npz", "facts.json"])
def test_what_is_damaged_is_decoded_again(damage: str, shrink: Callable[[str], None]) -> None:
    write_npz()
    at_once = read_pieces("npz:own.npz", '{"by": "site"}')
    shrink("20KB")
    place = read_pieces("npz:own.npz", '{"by": "site"}').place
    assert place is not None
    _read_once.cache_clear()
    (place / damage).write_bytes((place / damage).read_bytes()[:100])
    assert_same(at_once, read_pieces("npz:own.npz", '{"by": "site"}'))


def test_nothing_is_left_of_what_fails(shrink: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    shrink("20KB")
    write_npz()

    def full(folder: Path) -> Any:
        return type("", (), {"free": 1000})

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", full)
        with pytest.raises(DataError, match=r"x.npy of own.npz takes 235 kB, .* left: make room there") as error:
            read_pieces("npz:own.npz", '{"by": "site"}')
    assert "\n" not in str(error.value)
    assert not list((Path("cache") / "own").iterdir())
    np.savez("own.npz", x=np.full((100, 100), np.nan, np.float32), y=np.arange(100) % 2)
    with pytest.raises(DataError, match="not finite"):
        read_pieces("npz:own.npz", '{"by": "parts:2"}')
    assert not list((Path("cache") / "own").iterdir())


def test_mistakes(shrink: Callable[[str], None]) -> None:
    shrink("much")
    write_npz()
    with pytest.raises(SelfReminderError, match=r"SELFREMINDER_IN_MEMORY: .*much"):
        read_pieces("npz:own.npz", '{"by": "site"}')
    shrink("1KB")
    np.savez("own.npz", x=np.asfortranarray(DIGITS.train_x[:90]), y=DIGITS.train_y[:90])
    with pytest.raises(DataError, match="column by column"):
        read_pieces("npz:own.npz", '{"by": "parts:2"}')
    for row, message in (("1,2,3", "are not whole"), ("1,", "gap in label"), ("x\xff,0", "not UTF-8")):
        Path("own.csv").write_bytes("\n".join(["a,y", *["1,0", "2,1"] * 50, row]).encode("latin-1"))
        with pytest.raises(DataError, match=message) as error:
            read_pieces("csv:own.csv", '{"by": "parts:2"}')
        assert "\n" not in str(error.value)
    Path("own.csv").write_text("\n".join(["a,y", *["1,0", "2,1"] * 50]))
    with pytest.raises(SelfReminderError, match="say how it is cut into tasks: --by a"):
        read_pieces("csv:own.csv", "{}")


@pytest.mark.parametrize("kind", ["parquet", "hf"])
def test_a_column_of_numbers_without_any_is_said_to_be_so(kind: str, shrink: Callable[[str], None]) -> None:
    columns = {"x": [1.0] * 100, "none": np.full(100, np.nan), "y": [0, 1] * 50}
    if kind == "hf":
        save(columns)
    else:
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), "own.parquet")
    source = "hf:own" if kind == "hf" else "parquet:own.parquet"
    for limit in ("512MB", "100B"):
        shrink(limit)
        with pytest.raises(DataError, match="column 'none' has no numbers: leave it out"):
            read_pieces(source, '{"by": "parts:2"}')


@pytest.mark.parametrize(
    ("columns", "reading", "message"),
    [
        ({"x": [[1.0], [2.0, 3.0]], "y": [0, 1]}, {}, "different shapes, such as .*: pad to one length"),
        ({"x": [[[1], [2, 3]], [[4], [5, 6]]], "y": [0, 1]}, {}, "its parts have different lengths"),
        ({"x": [[1], [None]], "y": [0, 1]}, {}, "input 'x' holds object, not numbers"),
        ({"a": [[1], [2]], "b": [[1], [2]], "y": [0, 1]}, {}, "the inputs a, b are several: name one with --inputs"),
        ({"x": [[1], [2]]}, {}, "there are no labels"),
        ({"x": [[1], [2]], "kind": [0, 1]}, {}, "hf:own has no labels: name their column with --label"),
        ({"x": [[1], [2]], "y": [0, 1]}, {"label": "x"}, "'x' of own has several values an item"),
        ({"x": [[1], [2]], "y": [0, None]}, {}, "1 of 2 items have a gap in label column 'y' of own: item 1"),
        ({"x": [[1], [2]], "y": ["a", "b"]}, {"text": ["y"]}, "own is no table: it has no columns to be encoded"),
        ({"x": [[1], [2]], "y": [0, 1]}, {"inputs": ["z"]}, "unknown input of own 'z'"),
        ({"x": [[1], [2]], "y": [0, 1]}, {"by": "folder"}, "is no folder of folders"),
        ({"x": [1, 2], "y": [0, 1]}, {"inputs": ["z"]}, "unknown input of own 'z'"),
        ({"x": ["a", "b"], "y": [0, 1]}, {}, "no column of numbers"),
    ],
)
def test_mistakes_in_a_saved_data_set(
    columns: dict[str, Any], reading: dict[str, Any], message: str, shrink: Callable[[str], None]
) -> None:
    save(columns, shards=2)
    for limit in ("512MB", "1B"):
        shrink(limit)
        with pytest.raises(SelfReminderError, match=message) as error:
            read_pieces("hf:own", json.dumps({"by": "parts:2"} | reading))
        assert "\n" not in str(error.value)
    assert not any(Path("cache").rglob("*.bin"))


def test_images_that_cannot_be_read_in_a_saved_data_set(shrink: Callable[[str], None]) -> None:
    shrink("1KB")
    png = to_png(DIGITS.train_x[0])
    parts = [{"path": "a.png", "bytes": png}, None, {"path": None, "bytes": png[:40]}, {"path": "b.png", "bytes": png}]
    save({"picture": parts, "y": [0, 1, 0, 1]}, picture=datasets.Image(), y=datasets.Value("int8"))
    message = r"2 of 4 images cannot be read: item 1 \(no image of a known kind\); item 2 \(.*--skip-bad"
    with pytest.raises(DataError, match=message):
        read_pieces("hf:own", '{"by": "parts:2"}')
    assert len(read_pieces("hf:own", '{"by": "parts:2", "skip_bad": true}').y) == 2


def test_a_saved_data_set_in_parts_or_damaged_is_a_line(shrink: Callable[[str], None]) -> None:
    shrink("1KB")
    part = datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 50, "text": ["word"] * 50, "y": [0, 1] * 25})
    datasets.DatasetDict(train=part, test=part).save_to_disk("both")
    with pytest.raises(DataError, match=r"both has the parts train, test: name one, hf:both.train"):
        read_pieces("hf:both", '{"by": "parts:2"}')
    refused = 0
    for file in Path("both/train").iterdir():
        whole = file.read_bytes()
        for place in range(0, len(whole), 53):
            for content in (whole[:place], whole[:place] + b"\xff" * 8 + whole[place + 8 :]):
                file.unlink()
                file.write_bytes(content)
                try:
                    read_pieces("hf:both/train", '{"by": "parts:2"}')
                except DataError as error:
                    assert "\n" not in str(error)
                    refused += 1
        file.write_bytes(whole)
    assert refused > 10


def test_a_saved_data_set_with_a_name_that_is_no_text_is_a_line() -> None:
    save({"x": [[1], [2]], "y": [0, 1]}, shards=1)
    (file,) = Path("own").glob("*.arrow")
    content = file.read_bytes()
    assert b"item\0" in content
    file.unlink()
    file.write_bytes(content.replace(b"item\0", b"\xd3\xd3em\0"))
    for read in (read_own_data, lambda source: read_pieces(source, '{"by": "parts:2"}')):
        with pytest.raises(DataError, match="own cannot be read as a data set: UnicodeDecodeError"):
            read("hf:own")


@pytest.mark.parametrize("method", ["fsr-logit", "joint", "ewc"])
def test_runs_are_the_same(method: str, shrink: Callable[[str], None], in_folder: Path) -> None:
    write_npz(600)
    experiment = Experiment(
        benchmark="own", method=method, data="npz:own.npz", tasks=2, epochs=1, batch_size=64, lr=1e-3, per_class=3,
        model="mlp:8x1", reading={"by": "site"},
    )  # fmt: skip
    at_once = run(experiment, in_folder / "at once")
    shrink("20KB")
    assert run(experiment, in_folder / "from a file").tasks == at_once.tasks


LIMITED = """
import json, resource, sys
from pathlib import Path
from dataclasses import replace
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder import methods

source, by, method, more = sys.argv[1:]
methods.build(method, {}, {})
tiny = Experiment(benchmark="own", data="npz:tiny.npz", method=method, tasks=2, epochs=1, batch_size=256, lr=1e-3,
                  per_class=3, model="mlp:8x1", reading={"by": "parts:2"})
run(tiny, "warm")  # whatever is imported and set up later is there now
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
most = int(status["VmData"].split()[0]) * 1024 + int(more)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
run(replace(tiny, data=source, reading={"by": by}), "run")
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux counts and limits it so")
@pytest.mark.parametrize(
    ("kind", "method", "allowed"), [("npz", "joint", 100_000_000), ("csv", "fsr-logit", 100_000_000)]
)
def test_memory_is_bounded(kind: str, method: str, allowed: int) -> None:
    """With so many bytes, data that takes more as numbers is learned; read at once, it is not."""
    generator = np.random.default_rng(0)
    np.savez("tiny.npz", x=generator.random((60, 4), np.float32), y=np.arange(60) % 2)
    if kind == "npz":
        x = generator.integers(0, 256, (30_000, 3072), np.uint8)
        np.savez("own.npz", x=x, y=np.arange(len(x)) % 2)
    else:
        line = ",".join(f"{value:.5f}" for value in generator.random(40))
        Path("own.csv").write_text("\n".join([",".join([*(f"c{k}" for k in range(40)), "y"])] + [
            f"{line},{row % 2}" for row in range(60_000)]))  # fmt: skip

    def learn(limit: str) -> subprocess.CompletedProcess[str]:
        # What is freed is given back at once, so that what is counted is what is used.
        returned = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
        env = {
            **os.environ,
            **returned,
            IN_MEMORY: limit,
            "SELFREMINDER_CACHE": f"cache-{limit}",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", LIMITED, f"{kind}:own.{kind}", "parts:2", method, str(allowed)]
        shutil.rmtree("run", ignore_errors=True)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    found = learn("10MB")
    assert found.stdout == "done\n", found.stderr
    assert learn("8GB").stdout == ""
