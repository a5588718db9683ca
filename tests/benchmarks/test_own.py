"""Data of one's own as a stream: how it is cut, in each scenario, and what is said of data that cannot be."""

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from selfreminder import data, methods
from selfreminder._base import factories
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.own import make_stream
from selfreminder.benchmarks.stream import Stream, StreamSpec
from selfreminder.data.own.pieces import describe_pieces, read_pieces
from selfreminder.data.own.reading import Reading
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment

DIGITS = data.load("embedded-mnist")
OWN = Experiment(
    benchmark="own", method="adam", data="npz:own.npz", tasks=2, epochs=2, batch_size=32, lr=1e-3, per_class=3
)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_npz(n: int = 400, **columns: Any) -> None:
    np.savez("own.npz", x=DIGITS.train_x[:n], y=DIGITS.train_y[:n], **columns)


def write_csv(rows: list[str]) -> None:
    Path("own.csv").write_text("\n".join(rows) + "\n")


def stream(
    source: str = "npz:own.npz", tasks: int = 2, scenario: str | None = None, seed: int = 0, **how: Any
) -> Stream:
    spec = StreamSpec(data=source, tasks=tasks, reading=json.dumps(how), scenario=scenario, seed=seed)
    return make_stream(spec)


def test_by_a_column() -> None:
    write_npz(site=np.array(["b", "a"] * 200))
    found = stream(by="site")
    assert [task.name for task in found] == ["a", "b"]
    assert found.heads == (10,)
    first = found[0]
    sizes = [len(part) for part in (first.train, first.validation, first.test)]
    assert sum(sizes) == 200
    assert first.train.x.dtype == torch.float32
    assert first.train.x.min() >= 0 and first.train.x.max() <= 1
    others = stream(by="site", seed=1)
    assert torch.equal(first.test.x, others[0].test.x)  # the same for all seeds
    assert not torch.equal(first.validation.x, others[0].validation.x)


def test_parts_have_no_item_in_common() -> None:
    """Items are all different, and each is in one part of one task."""
    x = np.arange(300, dtype=np.float32)[:, None]
    np.savez("own.npz", x=x, y=np.arange(300) % 3)
    found = stream(by="parts:4", tasks=4)
    seen = torch.cat([part.x for task in found for part in (task.train, task.validation, task.test)])
    assert sorted(seen.flatten().tolist()) == x.flatten().tolist()
    assert [task.name for task in found] == ["part 1", "part 2", "part 3", "part 4"]
    assert found[0].train.x.max() < found[3].train.x.min()


@pytest.mark.parametrize("scenario", ["task", "class", "stream"])
def test_by_class(scenario: str) -> None:
    """Ten tasks of one class each have nothing to tell; so classes come in pairs, by a column."""
    write_npz(pair=np.array([f"pair {label // 2}" for label in DIGITS.train_y[:400]]))
    found = stream(by="pair", tasks=5, scenario=scenario)
    third = found[2]
    assert set(third.train.y.tolist()) == ({0, 1} if scenario == "task" else {4, 5})
    assert third.outputs == (6 if scenario == "class" else None)
    assert third.head == (2 if scenario == "task" else None)
    assert found.heads == ((2,) * 5 if scenario == "task" else (10,))
    if scenario == "class":
        assert [task.classes for task in found] == [2] * 5, "those that come with a task"
    if scenario != "task":
        method = methods.build("er", {"size": Size(per_class=3)}, {})
        method.prepare(nn.Linear(784, 10), found)
        assert method.slots.size == 30, "for each class once"


def test_classes_are_numbered_as_they_come() -> None:
    """Of a task that has 7 and 3 first, these are the first outputs: those to come are behind them."""
    chosen = np.concatenate([np.flatnonzero(DIGITS.train_y == k)[:40] for k in (7, 3, 0)])
    when = np.array([1] * 80 + [2] * 40)
    np.savez("own.npz", x=DIGITS.train_x[chosen], y=DIGITS.train_y[chosen], when=when)
    found = stream(by="when", scenario="class")
    assert [task.name for task in found] == ["1", "2"]
    assert [task.outputs for task in found] == [2, 3]
    assert set(found[0].train.y.tolist()) == {0, 1}
    assert set(found[1].train.y.tolist()) == {2}


def test_by_time() -> None:
    days = [f"2024-{month:02}-{day:02}" for month in (1, 2, 4) for day in range(1, 21)]
    write_csv(["day,size,kind,y", *(f"{d},{i},{'ab'[i % 2]},{'no' if i % 3 else 'yes'}" for i, d in enumerate(days))])
    by_month = stream("csv:own.csv", 3, by="month", categories=["kind"])
    assert [task.name for task in by_month] == ["2024-01", "2024-02", "2024-04"]
    assert [task.name for task in stream("csv:own.csv", 2, by="day:quarter")] == ["2024-Q1", "2024-Q2"]
    # numbers are scaled by the first task: later ones are as far away as they are
    first, last = by_month[0].train.x[:, 0], by_month[2].train.x[:, 0]
    assert abs(first.mean()) < 1 < last.mean()
    assert by_month[0].train.x.shape[1] == 1 + 3  # a place for a category that was never seen


def test_tests_after_the_rest() -> None:
    """The last fifth of each task is its test part, in whatever order the rows are."""
    days = [f"2024-{month:02}-{day:02}" for month in (1, 2) for day in range(1, 31 if month == 1 else 29)]
    rows = [f"{day},{when},{when % 2}" for when, day in enumerate(days)]
    write_csv(["day,x,y", *reversed(rows)])
    spec = StreamSpec(data="csv:own.csv", tasks=2, reading='{"by": "month"}', test_after=True)
    for task in make_stream(spec):
        before = torch.cat([task.train.x, task.validation.x])
        assert before.max() < task.test.x.min()
        assert len(task.test) == round(0.2 * (len(before) + len(task.test)))
    assert torch.equal(make_stream(replace(spec, seed=3))[1].test.x, make_stream(spec)[1].test.x)
    in_order = make_stream(StreamSpec(data="csv:own.csv", tasks=2, reading='{"by": "parts:2"}', test_after=True))
    assert in_order[0].test.x.min() > in_order[0].train.x.max()  # by the only dates there are
    write_npz(site=np.array(["b", "a"] * 200))
    with pytest.raises(SelfReminderError, match="--test-after needs times"):
        make_stream(StreamSpec(data="npz:own.npz", tasks=2, reading='{"by": "site"}', test_after=True))
    with pytest.raises(SelfReminderError, match="the items of permuted-mnist have none"):
        Experiment(benchmark="permuted-mnist", method="adam", test_after=True)


def test_text() -> None:
    write_csv(
        ["text,when,y", *(f"{'buy now cheap' if i % 2 else 'see you at noon'},{i // 20},{i % 2}" for i in range(60))]
    )
    found = stream("csv:own.csv", 3, by="when", text=["text"], words=64)
    assert found[0].train.x.shape[1] == 64
    assert found[0].train.x.norm(dim=1).allclose(torch.ones(1))


def test_a_folder_for_each_task() -> None:
    for index in range(120):
        place = Path("photos") / ("day", "night")[index % 2] / str(DIGITS.train_y[index] % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DIGITS.train_x[index]).save(place / f"{index}.png")
    found = stream("folder:photos", by="folder")
    assert [task.name for task in found] == ["day", "night"]
    assert found[0].train.x.shape[1:] == (1, 28, 28)
    assert len(describe_pieces(read_pieces("folder:photos", json.dumps({"by": "folder"})))) == 2
    Image.fromarray(np.zeros((9, 9), np.uint8)).save("photos/night/0/other.png")
    with pytest.raises(SelfReminderError, match="size"):
        stream("folder:photos", by="folder")
    assert stream("folder:photos", by="folder", size=12)[0].train.x.shape[1:] == (1, 12, 12)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("whenever", "column 'day' holds no dates: item 34 has 'whenever'"),
        ("2024-13-45", "column 'day' holds no dates: item 34 has '2024-13-45'"),
        ("", "column 'day' has 1 gap (the first at item 34): an item without a date belongs to no task"),
    ],
)
def test_a_date_that_is_none_is_named(odd: str, message: str) -> None:
    rows = [f"2024-{1 + i // 20:02}-{1 + i % 20:02},{i},{i % 2}" for i in range(60)]
    rows[33] = f"{odd},33,1"
    write_csv(["day,x,y", *rows])
    with pytest.raises(SelfReminderError) as found:
        stream("csv:own.csv", by="day:month")
    assert message in str(found.value)
    if odd:  # a gap before it is none that is named
        rows[5] = "NA,5,1"
        write_csv(["day,x,y", *rows])
        with pytest.raises(SelfReminderError) as found:
            stream("csv:own.csv", by="day:month")
        assert message in str(found.value)


BAD = [
    ({}, "say how it is cut into tasks: --by site, --by class, --by parts:5"),
    ({"by": "sites"}, "did you mean 'site'"),
    ({"by": "month"}, "there is no column of dates"),
    ({"by": "site:month"}, "column 'site' holds no dates"),
    ({"by": "parts:0"}, "parts:5 makes five parts"),
    ({"by": "site", "label": "z"}, "z"),
    ({"by": "site", "labell": "y"}, "did you mean 'label'"),
    ({"by": "site", "test": 2.0}, "test is 2.0: it is a share between 0 and 1"),
    ({"by": "site", "size": -3}, "size cannot be -3"),
    ({"by": "class"}, "task '0' has no '1': tasks of a domain have the same classes; choose --scenario class"),
    ({"by": "site", "sha256": "0"}, "has changed since these runs were begun"),
]


@pytest.mark.parametrize(("how", "message"), BAD)
def test_bad_input(how: dict[str, Any], message: str) -> None:
    write_npz(site=np.array(["b", "a"] * 200))
    with pytest.raises(SelfReminderError) as found:
        stream(**how)
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_more_bad_input() -> None:
    np.savez("own.npz", x=DIGITS.train_x[:20], y=np.zeros(20, np.int64))
    with pytest.raises(SelfReminderError, match="has one class, '0'"):
        stream(by="parts:2")
    write_npz(12)
    with pytest.raises(SelfReminderError, match=r"too few of|has no"):
        stream(by="parts:2", scenario="class")[0]
    write_npz(site=np.array(["b", "a"] * 200))
    with pytest.raises(SelfReminderError, match=r"tasks is 3: npz:own\.npz has 2"):
        stream(tasks=3, by="site")
    with pytest.raises(SelfReminderError, match="data is missing"):
        replace(OWN, data="")
    with pytest.raises(SelfReminderError, match="reading is for data of your own"):
        Experiment(benchmark="permuted-mnist", method="adam", reading={"by": "x"})


@pytest.mark.parametrize("memory", ["512MB", "1KB"])
def test_how_data_is_cut(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is suggested where nothing is said, and what is said of a unit that is none."""
    monkeypatch.setenv("SELFREMINDER_IN_MEMORY", memory)
    write_csv(
        ["a,day,k,site,y", *(f"{i / 7},2024-{1 + i % 12:02}-01,{i % 3},{'NS'[i % 2]},{i % 2}" for i in range(90))]
    )
    for how, message in (
        ({}, "say how it is cut into tasks: --by day:month, --by site, --by k, --by class, --by parts:5"),
        ({"by": "day:mont"}, "unknown unit of time in --by 'mont': did you mean 'month'? Known: year, quarter, month"),
        ({"by": "site:mont"}, "--by site:mont: column 'site' holds no dates"),
    ):
        with pytest.raises(SelfReminderError) as found:
            stream("csv:own.csv", **how)
        assert message in str(found.value)


@pytest.mark.parametrize(("inside", "hint"), [("cat", "--by folder, --by class"), (".", "--by class")])
def test_how_a_folder_is_cut(inside: str, hint: str) -> None:
    for index in range(12):
        place = Path("photos") / ("day", "night")[index % 2] / inside
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DIGITS.train_x[index]).save(place / f"{index}.png")
    with pytest.raises(SelfReminderError) as found:
        stream("folder:photos")
    assert str(found.value).endswith(f"say how it is cut into tasks: {hint}")


def test_settings_of_reading() -> None:
    assert Reading.of({"by": "x", "inputs": ["a"]}) == Reading(by="x", inputs=("a",))


def test_runs_and_goes_on(in_folder: Path) -> None:
    write_npz(site=np.array(["b", "a"] * 200))
    experiment = replace(OWN, reading={"by": "site"}, model="mlp:32x1", method="fsr-logit", epochs=6)
    found = run(experiment, in_folder / "run")
    assert found.tasks[-1]["test"][0] > 0.5
    assert found.experiment == experiment
    frozen = run(replace(experiment, freeze=True, method="adam", lr=0.02), in_folder / "frozen")
    assert 0.2 < frozen.tasks[-1]["test"][0] < 0.9
    trained = run(
        replace(experiment, method="adam", optimizer="sgd", lr=0.1, momentum=0.9, schedule="cosine", augment="crop"),
        in_folder / "trained",
    )
    assert trained.tasks[-1]["test"][0] > 0.5


def test_tensors_and_a_model_of_ones_own(in_folder: Path) -> None:
    x, y = torch.tensor(DIGITS.train_x[:400]).float() / 255, torch.tensor(DIGITS.train_y[:400]).long()
    tasks = Stream.of([(x, y), (1 - x, y)], names=["as it is", "inverted"])
    experiment = replace(OWN, data="digits, inverted", epochs=6)

    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

    found = run(experiment, in_folder / "run", stream=tasks, model=model)
    assert found.tasks[0]["test"][0] > 0.5
    assert run(experiment, in_folder / "run", stream=tasks, model=model) == found
    with pytest.raises(SelfReminderError, match="tasks is 3: the stream has 2"):
        run(replace(experiment, tasks=3), in_folder / "other", stream=tasks, model=model)
    with pytest.raises(SelfReminderError, match="labels are whole numbers"):
        Stream.of([(x, y.float())])
    with pytest.raises(SelfReminderError, match="task 1 has the label -1: classes are numbered from 0 on"):
        Stream.of([(x, y % 2 * 2 - 1)])
    with pytest.raises(SelfReminderError, match="there are 1 names for 2 tasks"):
        Stream.of([(x, y), (x, y)], names=["one"])


def test_tensors_in_each_scenario() -> None:
    x, y = torch.rand(80, 3), torch.arange(80) % 2
    both = [(x, y), (x, y + 2)]
    made = {name: Stream.of(both, scenario=name) for name in ("task", "class", "stream")}
    assert {name: (s.heads, s[1].head, s[1].outputs, int(s[1].test.y.max())) for name, s in made.items()} == {
        "task": ((2, 2), 1, None, 1),
        "class": ((4,), None, 4, 3),
        "stream": ((4,), None, None, 3),
    }
    assert made["class"][0].outputs == 2
    for tasks, scenario, message in (
        (both, "domain", "task 1 has no class 2: tasks of a domain have the same classes; choose scenario='class'"),
        (
            [(x, y + 2), (x, y)],
            "class",
            r"task 1 has the classes \[2, 3\]: number classes as they come",
        ),
        (both, "clas", "did you mean 'class'"),
    ):
        with pytest.raises(SelfReminderError, match=message):
            Stream.of(tasks, scenario=scenario)


def test_functions_by_path_and_entry_point(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models and of data; what is run by either is the same, and says the code that it was made with."""
    (in_folder / "lab").mkdir()
    (in_folder / "lab/parts.py").write_text(
        "import numpy as np\nfrom torch import nn\n"
        "def build(outputs):\n    return nn.Linear(4, outputs)\n"
        "def load():\n    x = np.random.default_rng(0).random((80, 4), np.float32)\n"
        "    return {'x': x, 'y': (x[:, 0] > .5).astype(int), 'site': np.arange(80) // 40}\n"
    )
    sys.path.append(str(in_folder / "lab"))
    points = [
        EntryPoint("linear", "parts:build", factories.MODELS),
        EntryPoint("rain", "parts:load", factories.DATA),
    ]
    monkeypatch.setattr(factories, "entry_points", lambda group: [each for each in points if each.group == group])
    factories.installed.cache_clear()
    found = []
    for model, source in (("lab/parts.py:build", "lab/parts.py:load"), ("linear", "rain")):
        experiment = Experiment(
            benchmark="own", method="adam", data=source, reading={"by": "site"}, model=model, tasks=2, epochs=1
        )
        found.append(run(experiment, in_folder / model.partition("/")[0]))
    assert found[0].tasks == found[1].tasks
    assert found[0].versions["model_code"] == found[1].versions["model_code"]
    with pytest.raises(SelfReminderError, match=r"lab/nowhere\.py: there is no such file"):
        run(replace(found[0].experiment, model="lab/nowhere.py:build"), in_folder / "no")
    factories.installed.cache_clear()
