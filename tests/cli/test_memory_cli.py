import base64
import csv
import html
import io
import json
import operator
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from selfreminder import Reminder
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.cli import main
from selfreminder.memory.file import hash_items, open_memory, save_memory
from selfreminder.memory.fingerprint import fingerprint_model
from selfreminder.memory.memory import Memory
from selfreminder.memory.query import COLUMNS, describe_items, find_matching
from selfreminder.report import pictures as export_module
from selfreminder.report.gallery import gallery, render_gallery
from selfreminder.report.html import to_html
from selfreminder.report.pictures import export, pictures

NEW_YEAR = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
DOCS = Path(__file__).parents[2] / "docs" / "memory.md"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def memory() -> Memory:
    """Twelve images of task 0, a day apart by class, and eight of task 1 without labels or times."""
    generator = torch.Generator().manual_seed(0)
    whole = Memory()
    for label in range(4):
        whole += Memory.of(
            {"x": torch.randint(0, 256, (3, 784), generator=generator) / 255},
            torch.randn(3, 4, generator=generator),
            task=0,
            labels=torch.full((3,), label),
            sources=torch.arange(100 * label, 100 * label + 3),
            selection="herding:kernel=gaussian" if label else "random",
            time=NEW_YEAR + 86_400 * label + 3600,
        )
    return whole + Memory.of(
        {"x": torch.randint(0, 256, (8, 784), generator=generator) / 255},
        torch.randn(8, 6, generator=generator),
        task=1,
    )


@pytest.fixture
def file(memory: Memory, tmp_path: Path) -> Path:
    save_memory(memory, tmp_path / "m")
    return tmp_path / "m"


def ids(memory: Memory, **asked: Any) -> list[int]:
    return memory.ids[find_matching(memory, **asked)].tolist()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("selfreminder: ")
    assert captured.err.count("\n") == 1
    return captured.err


# Hashes -----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    counts=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    codecs=st.tuples(
        *[st.sampled_from(["auto", "raw", "uint8", "float16", "affine8", "compressed", "affine8+zlib"])] * 2
    ),
    logit_codecs=st.tuples(*[st.sampled_from(["float32", "float16", "int8"])] * 2),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    tasks=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    seed=st.integers(0, 99),
)
def test_a_hash_is_of_one_item_alone(
    counts: tuple[int, int],
    codecs: tuple[str, str],
    logit_codecs: tuple[str, str],
    widths: tuple[int, int],
    tasks: tuple[int, int],
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, other = (
        Memory.of(
            {"x": torch.rand(count, 2, 3, generator=generator), "y": torch.arange(count)},
            torch.randn(count, width, generator=generator),
            task=task,
            codecs={"x": name, "y": "raw"},
            logit_codec=logits,
        )
        for count, name, logits, width, task in zip(counts, codecs, logit_codecs, widths, tasks)
    )
    apart = dict(enumerate([*hash_items(one), *hash_items(other)]))
    assert len(set(apart.values())) == sum(counts)
    both = one + other
    assert dict(zip(both.ids.tolist(), hash_items(both))) == apart
    some = both.take(torch.rand(len(both), generator=generator) < 0.5)
    assert hash_items(some) == [apart[number] for number in some.ids.tolist()]


def test_a_hash_is_of_all_that_is_kept_of_an_item() -> None:
    x, z = torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[-1.0, 0.5, 2.0]])
    plain = hash_items(Memory.of({"x": x}, z, task=0))
    assert plain == hash_items(Memory.of({"x": x}, z, task=3, labels=torch.tensor([2]), codecs="raw+zlib", time=7))
    assert re.fullmatch("[0-9a-f]{12}", plain[0])
    changed = [
        Memory.of({"x": x.nextafter(torch.ones(1))}, z, task=0),
        Memory.of({"x": x}, z.nextafter(torch.ones(1)), task=0),
        Memory.of({"x": x.reshape(1, 2, 2)}, z, task=0),
        Memory.of({"y": x}, z, task=0),
        Memory.of({"x": x}, torch.cat([z, torch.zeros(1, 1)], 1), task=0),
    ]
    assert len({*plain, *(hash_items(each)[0] for each in changed)}) == 6


def test_a_file_keeps_hashes(memory: Memory, file: Path) -> None:
    assert hash_items(open_memory(file)) == hash_items(memory)
    assert len(set(hash_items(memory))) == 20
    assert hash_items(Memory()) == []


# Conditions -------------------------------------------------------------------------------------------------

_OPERATORS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@settings(max_examples=100)
@given(
    conditions=st.lists(
        st.tuples(
            st.sampled_from(["id", "task", "label", "source"]),
            st.sampled_from(sorted(_OPERATORS)),
            st.one_of(st.integers(0, 12), st.sampled_from([100, 201, 10**30])),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_conditions_mean_what_they_say(conditions: list[tuple[str, str, int]]) -> None:
    labels = torch.tensor([0, 1, 2, -1, 3, 3])
    sources = torch.tensor([100, 2, -1, 201, 9, 12])
    memory = Memory.of({}, torch.zeros(6, 2), task=1, labels=labels, sources=sources)
    memory += Memory.of({}, torch.zeros(6, 2), task=0, labels=labels.flip(0), sources=sources)

    def holds(row: dict[str, Any]) -> bool:
        return all(
            name == "!=" if row[column] is None else _OPERATORS[name](row[column], value)
            for column, name, value in conditions
        )

    expected = [row["id"] for row in describe_items(memory) if holds(row)]
    assert ids(memory, where=" , ".join(f"{column} {name} {value}" for column, name, value in conditions)) == expected


def test_other_columns(memory: Memory) -> None:
    everything = memory.ids.tolist()
    assert ids(memory, where="label=none") == ids(memory, where="task=1") == everything[12:]
    assert ids(memory, where="label!=None,source!=none") == everything[:12]
    assert ids(memory, where="selection=random") == [0, 1, 2]
    assert ids(memory, where="selection=herding,label=2") == [6, 7, 8]
    assert ids(memory, where="selection!=herding:kernel=gaussian") == [0, 1, 2, *everything[12:]]
    assert ids(memory, where="selection=influence") == []
    assert ids(memory, where=f"hash={hash_items(memory)[5].upper()}") == [5]
    assert ids(memory, ids="3, 5,9-11,17-900,77") == [3, 5, 9, 10, 11, 17, 18, 19]
    assert ids(memory, ids="3-9", where="label=2") == [6, 7, 8]
    assert ids(memory) == everything
    assert ids(Memory(), where="task=0,selection=random,time=none,hash=012345678901", ids="3") == []


@pytest.mark.parametrize(
    ("condition", "labels"),
    [
        ("time<2025-01-02", [0]),
        ("time<=2025-01-02", [0, 1]),
        ("time=2025-01-02", [1]),
        ("time>2025-01-02", [2, 3]),
        ("time>=2025-01-02", [1, 2, 3]),
        ("time!=2025-01-02,time!=none", [0, 2, 3]),
        ("time=2025-01-02T01:00", [1]),
        ("time=2025-01-02T03:00+02:00", [1]),
        ("time>2025-01-02 01:00:00", [2, 3]),
        ("time<2025-01-02T01:00", [0]),
    ],
)
def test_a_date_is_a_day_and_a_time_a_second(condition: str, labels: list[int], memory: Memory) -> None:
    assert sorted(set(memory.labels[find_matching(memory, where=condition)].tolist())) == labels


def test_age(memory: Memory) -> None:
    timed = memory.take(memory.tasks == 0)
    now = NEW_YEAR + 86_400 * 4 + 3600  # ages: 4, 3, 2 and 1 days
    assert set(timed.labels[find_matching(timed, older_than="36h", now=now)].tolist()) == {0, 1, 2}
    assert set(timed.labels[find_matching(timed, older_than="2d", now=now)].tolist()) == {0, 1}
    assert ids(timed, older_than="1w", now=now) == []
    assert ids(timed, older_than="9" * 400 + "w", now=now) == []
    with pytest.raises(SelfReminderError, match="8 of 20 items have no time"):
        find_matching(memory, older_than="2d", now=now)
    assert ids(memory, where="time!=none", older_than="3.5d", now=now) == [0, 1, 2]
    assert ids(timed, older_than="1h") == ids(timed)  # by the clock


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--where", "tsk=0"], "unknown column 'tsk': did you mean 'task'?"),
        (["--where", "task"], "'task' is no condition: write for example task=0"),
        (["--where", "task=0,"], "'' is no condition"),
        (["--where", ""], "'' is no condition"),
        (["--where", "task~0"], "'task~0' is no condition"),
        (["--where", "task="], "'task=' lacks a value"),
        (["--where", "task=one"], "task is a whole number from 0 on, not 'one'"),
        (["--where", "task=<2"], "not '<2'"),
        (["--where", "label=-1"], "label is a whole number from 0 on, or none, not '-1'"),
        (["--where", "label=1.5"], "not '1.5'"),
        (["--where", "label<none"], "nothing is less or more than none"),
        (["--where", "id=none"], "every item has an id"),
        (["--where", "selection=herdign"], "did you mean 'herding'?"),
        (["--where", "selection>herding"], "use = or !="),
        (["--where", "hash=12"], "it has 12 digits"),
        (["--where", "time<yesterday"], "'yesterday' is no time: write a date such as"),
        (["--where", "time<2025-13-01"], "'2025-13-01' is no time"),
        (["--wher", "task=0"], "Did you mean --where"),
        (["--id", "3;4"], "'3;4' is no id: write for example 3,5,10-20"),
        (["--id", "-3"], "'-3' is no id"),
        (["--id", ""], "'' is no id"),
        (["--id", "9-3"], "run backwards: write 3-9"),
        (["--older-than", "90"], "'90' is no age: write for example 90d"),
        (["--older-than", "3m"], "'3m' is no age"),
        (["--older-than", "1d"], "8 of 20 items have no time"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "export", "delete"])
def test_mistakes(
    verb: str, asked: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = file.read_bytes()
    out = ["--out", "new"] if verb == "export" else []
    assert message in complaint(capsys, "memory", verb, "m", *out, *asked)
    assert file.read_bytes() == before
    assert not (tmp_path / "new").exists()


# List and show ----------------------------------------------------------------------------------------------


def test_list(memory: Memory, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "list", "m", "--where", "label=2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [tuple(row) for row in rows] == [COLUMNS] * 3
    assert rows[0] == {
        "id": 6,
        "task": 0,
        "label": 2,
        "witness": 0,
        "source": 200,
        "time": "2025-01-03T01:00:00+00:00",
        "selection": "herding:kernel=gaussian",
        "hash": hash_items(memory)[6],
    }
    assert main(["memory", "list", "m", "--id", "19"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"19 +1 +- +0 +- +- +given +{hash_items(memory)[19]}", out)
    assert main(["memory", "list", "m", "--where", "task=7"]) == 0
    assert "given" not in capsys.readouterr().out


def test_a_time_beyond_all_calendars() -> None:
    milliseconds = Memory.of({}, torch.zeros(1, 2), task=0, time=1_767_225_600_000)
    assert describe_items(milliseconds)[0]["time"] == "1767225600000 s after 1970"


def test_show_who_recorded_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, reminder = torch.nn.Linear(4, 3), Reminder(transform=torch.sigmoid)
    reminder.remember(model, torch.rand(20, 4), per_task=5)
    reminder.observe(model, torch.rand(20, 4), per_task=5)
    reminder.save(tmp_path / "m")
    assert main(["memory", "show", str(tmp_path / "m"), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["results"][0]["tasks"]
    assert first["model"] == second["model"] == fingerprint_model(model)
    assert first["transform"] == reminder.memory.fingerprints[0].transform_hash != "unknown"
    assert (first["seen"], second["seen"]) == (None, 20)


def test_witnesses_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, reminder, path = torch.nn.Linear(4, 3), Reminder(), str(tmp_path / "m")
    reminder.remember(model, torch.rand(30, 4), torch.arange(30) % 3, per_class=10)
    reminder.save(path)
    assert main(["memory", "list", path, "--where", "witness=1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["id"] for row in rows] == reminder.memory.ids[reminder.memory.witnesses].tolist()
    assert len(rows) == 6 and all(row["witness"] == 1 for row in rows)
    assert main(["memory", "show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["tasks"][0]["witnesses"] == 6
    assert "every item has a 0 or a 1" in complaint(capsys, "memory", "list", path, "--where", "witness=none")


def test_show(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["memory", "show", "m", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["results"]
    assert about["inputs"] == {"x": {"shape": [784], "kept_as": "uint8", "codec": "uint8"}}
    assert (about["logits"], about["logit_codec"]) == (6, "float32")
    unknown = {"model": None, "transform": None, "seen": None}
    assert about["tasks"] == [
        {"task": 0, "items": 12, "witnesses": 0, "classes": 4, **unknown},
        {"task": 1, "items": 8, "witnesses": 0, "classes": 0, **unknown},
    ]
    assert main(["memory", "show", "m", "--html", "page.html"]) == 0
    assert "page.html: all items" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<img") == 20
    assert main(["memory", "show", "m", "--html", "page.html", "--most", "7"]) == 0
    assert "page.html: 7 of 20 items, --most 20 shows all" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<img") == 7
    before = file.read_bytes()
    assert "is the memory itself" in complaint(capsys, "memory", "show", "m", "--html", "m")
    assert file.read_bytes() == before
    assert "is a folder" in complaint(capsys, "memory", "show", "m", "--html", str(tmp_path))
    assert "most is 0" in complaint(capsys, "memory", "show", "m", "--html", "p", "--most", "0")
    assert "'1.5' is no whole number" in complaint(capsys, "memory", "show", "m", "--html", "p", "--most", "1.5")


# Gallery ----------------------------------------------------------------------------------------------------


def images_of(page: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [np.array(Image.open(io.BytesIO(base64.b64decode(each)))) for each in found]


def test_a_gallery_shows_every_item(memory: Memory) -> None:
    page = render_gallery(memory, "m")
    kept = memory.inputs["x"].values.reshape(-1, 28, 28).numpy()
    assert all(np.array_equal(shown, expected) for shown, expected in zip(images_of(page), kept, strict=True))
    for row in describe_items(memory):
        assert f"<b>id {row['id']}</b>" in page
        assert f"<code>{row['hash']}</code>" in page
        assert row["selection"] in page
    assert page.count("<h2>") == 2
    assert [int(label) for label in re.findall(r"<h3>Class (\d)</h3>", page)] == [0, 1, 2, 3]
    assert page.count("<h3>No label</h3>") == 1
    # The label's bar stands out in each item that has one; another one only where the largest is not the label.
    wrong = int((memory.logits[:12, :4].argmax(1) != memory.labels[:12]).sum())
    assert page.count('class="label">') == 12
    assert page.count('class="other">') == wrong > 0
    assert page.count('class="largest">') == 20
    assert "look like noise" in page


def test_a_page_loads_nothing(memory: Memory) -> None:
    page = render_gallery(memory, "m")
    addresses = re.findall(r"""(?:src|href|url|@import)\s*[=(]\s*["']?([^"')>]+)""", page)
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "default-src 'none'" in html.unescape(page)
    assert page == render_gallery(memory, "m")


def test_text_in_a_page_is_only_text() -> None:
    rogue = "<script>alert(1)</script>"
    memory = Memory.of({rogue: torch.zeros(1, 2), "y": torch.zeros(1)}, torch.zeros(1, 2), task=0, selection=rogue)
    page = render_gallery(memory, rogue)
    assert rogue not in page
    assert page.count("&lt;script&gt;alert(1)") >= 3


def test_a_gallery_of_many_is_even(memory: Memory) -> None:
    page = to_html(gallery(memory, most=8))
    assert "8 of 20 items are shown" in page
    assert [int(number) for number in re.findall(r"<b>id (\d+)</b>", page)] == [0, 3, 6, 9, 12, 13, 14, 15]
    assert "items are shown" not in to_html(gallery(memory, most=20))


def test_galleries_of_other_things() -> None:
    assert "The memory is empty" in render_gallery(Memory(), "m")
    tokens = Memory.of({"tokens": torch.tensor([[30522, 7, 0]]), "mask": torch.ones(1, 3)}, torch.zeros(1, 2), task=0)
    page = render_gallery(tokens, "m")
    assert "tokens: 30522 7 0" in page
    assert "mask: 1 1 1" in page
    assert "<img" not in page
    odd = torch.tensor([[float("nan"), float("inf"), -float("inf"), 2.0]])
    drawn = re.findall(r' d="([^"]*)"', to_html(gallery(Memory.of({}, odd, task=0))))
    assert len(drawn) == 3
    assert not any("nan" in path or "inf" in path for path in drawn)
    wide = render_gallery(Memory.of({}, torch.arange(1000.0)[None], task=0, labels=torch.tensor([7])), "m")
    assert "the 40 largest" in wide
    bars = {kind: path.count("z") for path, kind in re.findall(r'<path d="([^"]*)" class="(\w+)">', wide)}
    assert bars == {"plain": 39, "label": 1, "other": 1, "largest": 1, "zero": 0}
    assert "largest logit: class 999, 999.00; label: class 7, 7.00" in wide
    large = Memory.of({"x": torch.zeros(1, 3, 300, 200, dtype=torch.uint8)}, torch.zeros(1, 2), task=0)
    (image,) = images_of(render_gallery(large, "m"))
    assert image.shape == (128, 85, 3)


@pytest.mark.parametrize(
    ("shape", "pixels"),
    [
        ((784,), (28, 28)),
        ((28, 28), (28, 28)),
        ((1, 5, 7), (5, 7)),
        ((3, 5, 7), (5, 7, 3)),
        ((5, 7, 3), (5, 7, 3)),
        ((5, 7, 1), (5, 7)),
    ],
)
def test_shapes_of_pictures(shape: tuple[int, ...], pixels: tuple[int, ...]) -> None:
    given_bytes = torch.randint(0, 256, (4, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    seen = pictures(given_bytes)
    assert seen is not None
    assert seen.pixels.shape == (4, *pixels)
    as_floats = pictures(given_bytes.float() / 255)
    assert as_floats is not None
    assert np.array_equal(as_floats.pixels, seen.pixels)
    assert as_floats.exact
    assert not as_floats.stretched
    if len(shape) == 3 and shape[0] == 3:
        assert torch.equal(torch.from_numpy(seen.pixels).movedim(3, 1), given_bytes)


def test_what_is_no_picture() -> None:
    for shape in ((10,), (4, 4), (8, 9), (2, 5, 5), (1, 0, 5), (3, 4, 5, 6)):
        assert pictures(torch.zeros(2, *shape)) is None
    assert pictures(torch.zeros(2, 784, dtype=torch.int64)) is None
    assert pictures(torch.full((2, 784), float("nan"))) is None
    assert pictures(torch.zeros(0, 784)) is None
    normalised = pictures(torch.linspace(-2, 3, 784)[None])
    assert normalised is not None
    assert normalised.stretched
    assert (normalised.pixels.min(), normalised.pixels.max()) == (0, 255)
    page = render_gallery(Memory.of({"x": torch.linspace(-2, 3, 784)[None]}, torch.zeros(1, 2), task=0), "m")
    assert "Values of x run from −2 (shown darkest) to 3 (shown brightest)" in page


# Export -----------------------------------------------------------------------------------------------------


def test_export(memory: Memory, file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["memory", "export", "m", "--out", "deep/new", "--where", "label=3"]) == 0
    assert "deep/new: 3 of 20 items in items.csv, 3 PNG files" in capsys.readouterr().out
    assert main(["memory", "export", "m", "--out", "all", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["results"]
    assert about == {"folder": "all", "items": 20, "images": 20, "arrays": []}
    with (tmp_path / "all/items.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["hash"] for row in rows] == hash_items(memory)
    assert rows[5]["file"] == "task-0/label-1/id-5.png"
    assert rows[13]["file"] == "task-1/label-none/id-13.png"
    assert (rows[13]["label"], rows[13]["source"], rows[13]["time"]) == ("", "", "")
    for row, pixels, logits, width in zip(rows, memory.inputs["x"].values, memory.logits, memory.widths.tolist()):
        shown = np.array(Image.open(tmp_path / "all" / row["file"]))
        assert np.array_equal(shown.reshape(784), pixels.numpy())
        read = [row[f"z{k}"] for k in range(6)]
        assert read[width:] == [""] * (6 - width)
        assert torch.equal(torch.tensor([float(z) for z in read[:width]]), logits[:width])
    # Nobody's folder is touched.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    for out in ("mine", "mine/thesis.tex"):
        assert "exists and is no empty folder" in complaint(capsys, "memory", "export", "m", "--out", out)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    assert main(["memory", "export", "m", "--out", "empty", "--id", "0"]) == 0
    assert main(["memory", "export", "m", "--out", "none", "--id", "99"]) == 1
    assert "none of its 20 items matches" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_export_of_what_is_no_image(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "file": torch.randn(3, 5, generator=generator),
        "image": torch.rand(3, 1, 4, 4, generator=generator),  # 8 bits round these
        "bytes": torch.zeros(3, 1, 4, 4, dtype=torch.uint8),
        "../../../../../escape": torch.zeros(3, 3, 4, 4, dtype=torch.uint8),
        "half": torch.randn(3, 2, generator=generator).to(torch.bfloat16),
    }
    memory = Memory.of(inputs, torch.zeros(3, 2), task=0)
    done = export(memory, tmp_path / "out")
    assert done.images == 9
    assert set(done.arrays) == {"file", "image", "half"}
    with np.load(tmp_path / "out/inputs.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype for name in arrays} == dict.fromkeys(done.arrays, np.dtype("float32"))
        assert np.array_equal(arrays["file"], inputs["file"].numpy())
        assert np.array_equal(arrays["image"], inputs["image"].numpy())
        assert np.array_equal(arrays["half"], inputs["half"].float().numpy())
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "cache"}
    with (tmp_path / "out/items.csv").open(encoding="utf-8", newline="") as table:
        files = next(csv.DictReader(table))["file"].split(";")
    assert len(files) == 3
    assert all((tmp_path / "out" / name).is_file() and ".." not in name for name in files)


def test_an_export_that_fails_leaves_nothing(
    memory: Memory, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(export_module, "png", full)
    assert "out: No space left on device: make room" in complaint(capsys, "memory", "export", "m", "--out", "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# Delete -----------------------------------------------------------------------------------------------------


def test_delete(memory: Memory, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    gone = memory.inputs["x"].values[4].numpy().tobytes()
    assert gone in before
    asked = ["memory", "delete", "m", "--where", "label=1"]
    assert main([*asked, "--dry-run"]) == 0
    sizes = f"{show_bytes(memory.nbytes)} before, {show_bytes(memory.take(memory.labels != 1).nbytes)} after"
    assert f"m: would delete 3 of 20 items: 3 of task 0; {sizes}\n" == capsys.readouterr().out
    assert file.read_bytes() == before
    assert main(asked) == 0
    assert f"m: deleted 3 of 20 items: 3 of task 0; {sizes}\n" == capsys.readouterr().out
    left = open_memory(file)
    keep = memory.labels != 1
    assert left.ids.tolist() == memory.ids[keep].tolist()
    assert hash_items(left) == [each for each, kept in zip(hash_items(memory), keep) if kept]
    assert left.next_id == memory.next_id
    for row in (3, 4, 5):
        assert memory.inputs["x"].values[row].numpy().tobytes() not in file.read_bytes()
        assert memory.logits[row].numpy().tobytes() not in file.read_bytes()
    assert main(asked) == 1
    assert "m: none of its 17 items matches; nothing was written" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"results": []}


@pytest.mark.parametrize("codec", ["compressed", "affine8", "float16", "raw"])
def test_deleted_bytes_are_gone_with_every_codec(codec: str, tmp_path: Path) -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    memory = Memory.of({"x": x}, torch.zeros(5, 2), task=0, codecs=codec)
    save_memory(memory, "m")
    kept = memory.inputs["x"].take(torch.tensor([2])).values.numpy().tobytes()
    assert kept in (tmp_path / "m").read_bytes()
    assert main(["memory", "delete", "m", "--id", "2"]) == 0
    assert kept not in (tmp_path / "m").read_bytes()
    assert torch.equal(open_memory("m").draw(4).inputs["x"], memory.draw(5).inputs["x"][[0, 1, 3, 4]])


def test_delete_to_another_file(memory: Memory, file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = file.read_bytes()
    assert main(["memory", "delete", "m", "--id", "0-3,99", "--out", "n", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["results"]
    assert (about["deleted"], about["left"], about["file"]) == ([0, 1, 2, 3], 16, "n")
    assert about["tasks"] == [{"task": 0, "items": 4}]
    assert (about["bytes_before"], about["bytes"]) == (memory.nbytes, open_memory("n").nbytes)
    assert file.read_bytes() == before
    there = (tmp_path / "n").read_bytes()
    assert "n exists" in complaint(capsys, "memory", "delete", "m", "--id", "0", "--out", "n")
    assert (tmp_path / "n").read_bytes() == there
    assert main(["memory", "delete", "m", "--id", "7,99", "--out", "m"]) == 0
    told = capsys.readouterr().out
    assert "No item has the id 99." in told
    assert "as it was" not in told
    assert len(open_memory(file)) == 19


def test_delete_says_which(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "which items? Say it by --id" in complaint(capsys, "memory", "delete", "m")
    assert main(["memory", "delete", "m", "--id", "99"]) == 1
    assert main(["memory", "delete", "m", "--where", "time!=none", "--older-than", "1h"]) == 0
    assert open_memory(file).ids.tolist() == list(range(12, 20))


def test_delete_all(file: Path, memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "delete", "m", "--where", "id>=0"]) == 0
    assert "The memory is now empty." in capsys.readouterr().out
    for verb in ("list", "show", "verify"):
        assert main(["memory", verb, "m"]) == 0
    assert main(["memory", "show", "m", "--html", "page.html"]) == 0
    reminder = Reminder.load("m")
    reminder.remember(torch.nn.Linear(784, 4), torch.rand(6, 784), per_task=2)
    assert reminder.memory.ids.tolist() == [20, 21]


def test_a_damaged_file_is_not_deleted_from(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    for arguments in (["delete", "--id", "0"], ["export", "--out", "new"], ["verify"], ["show", "--html", "p"]):
        verb, *rest = arguments
        assert "cut short" in complaint(capsys, "memory", verb, "m", *rest)


# The page about all this ------------------------------------------------------------------------------------


def test_the_examples_of_the_docs_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|sh)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    for language, text in blocks:
        if language == "python":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                exec(text, {})
        for line in text.splitlines() if language == "sh" else []:
            program, *arguments = shlex.split(line)
            assert program == "selfreminder"
            assert main(arguments) == 0, line
    assert {path.name for path in tmp_path.iterdir()} >= {"memory.html", "exported", "fewer.safetensors"}
    assert set(open_memory("half.safetensors").labels.tolist()) <= set(range(5))
