import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from selfreminder._base.errors import MissingExtraError, SelfReminderError
from selfreminder.experiment.folder import write_grid
from selfreminder.experiment.records import PACKED, RECORDS, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.table import list_columns, records
from selfreminder.training import StoppedError
from tiny import TINY

DOCS = Path(__file__).parents[2] / "docs"
SHORT = replace(TINY, method="fsr-logit", tasks=3, epochs=1, strength=1, probe=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that is done, one that was stopped after its first task, one with heads and measures of another grid."""
    folder = tmp_path_factory.mktemp("grid")
    partial = replace(SHORT, seed=1)
    run(SHORT, folder / SHORT.key)
    count = iter(range(1000))
    with pytest.raises(StoppedError):
        run(partial, folder / partial.key, stop=lambda: next(count) == 8)  # its evaluation asks four times too
    hat = replace(
        SHORT, method="hat", benchmark="split-mnist", tasks=2, per_class=None, per_task=3, options={"clamp": 5.0}
    )
    hat = replace(hat, evaluate_every=2)
    run(hat, folder / hat.key)
    write_grid(folder, [SHORT, partial, replace(SHORT, seed=2)], {})
    return folder


def test_rows(folder: Path) -> None:
    rows = records(folder)
    done, partial = ([row for row in rows if row["seed"] == seed] for seed in (0, 1))
    assert len(rows) == len(done) + len(partial) == 6 + 1
    assert all(list(row) == list(list_columns()) for row in rows)
    assert [(row["after_task"], row["on_task"]) for row in done] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    found = read_records(folder / SHORT.key)
    assert found is not None
    for row in done:
        task = found.tasks[row["after_task"]]
        assert row["accuracy"] == task["test"][row["on_task"]]
        assert row["validation"] == task["validation"][row["on_task"]]
        assert row["flips"] == task["flips"][row["on_task"]]
        assert row["bytes"] == task["bytes"]
        assert row["chance"] == 0.1
        assert (row["run"], row["done"], row["validation_share"]) == (SHORT.key, True, 0.1)
    assert [row["done"] for row in partial] == [False]
    assert all(isinstance(row["strength"], float) for row in rows)  # however it was written


def test_types(folder: Path) -> None:
    of = list_columns()
    for row in records(folder, every=True):
        assert all(value is None or type(value) is of[name] for name, value in row.items())


def test_which_runs(folder: Path, tmp_path: Path) -> None:
    assert {row["method"] for row in records(folder)} == {"fsr-logit"}
    every = records(folder, every=True)
    assert {row["method"] for row in every} == {"fsr-logit", "hat"}
    assert {row["options"] for row in every} == {"{}", '{"clamp": 5.0}'}
    assert records(str(folder / SHORT.key)) == [row for row in every if row["run"] == SHORT.key]
    for place, message in ((tmp_path, "holds no runs"), (tmp_path / "nowhere", "nowhere does not exist")):
        with pytest.raises(SelfReminderError, match=message):
            records(place)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_frames(folder: Path, name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a frame is made of; without the library, what to install is said."""
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=f"pip install {name}"):
        records(folder, name)
    library = ModuleType(name)
    library.DataFrame = lambda rows, **how: SimpleNamespace(rows=rows, **how)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, name, library)
    frame = records(folder, name)
    assert frame.rows == records(folder)
    assert list(frame.columns if name == "pandas" else frame.schema) == list(list_columns())
    with pytest.raises(SelfReminderError, match="did you mean 'pandas'"):
        records(folder, "panda")  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_columns_are_documented() -> None:
    text = (DOCS / "records.md").read_text(encoding="utf-8")
    assert [name for name in list_columns() if f"`{name}`" not in text] == []


def test_the_documented_frame_has_every_method() -> None:
    """Also those without a strength."""
    pytest.importorskip("pandas")
    code = (DOCS / "records.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    *lines, last = code.strip().replace("runs/my-grid", str(DOCS.parent / "results/permuted-mnist-demo")).splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    means = eval(last, names)
    assert set(means.index.get_level_values("method")) == {row["method"] for row in names["rows"]}


# The schema -----------------------------------------------------------------------------------------------

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_KNOWN = {
    *("$ref", "$schema", "$defs", "title", "description", "oneOf", "const", "type", "properties", "required"),
    *("additionalProperties", "items", "minItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("pattern", "enum"),
}


def wrong(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "") -> Iterator[str]:
    """What of a value is not as a JSON Schema says: as much of the standard as our schema uses."""
    assert schema.keys() <= _KNOWN
    if "$ref" in schema:
        yield from wrong(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where)
    if "oneOf" in schema and sum(not list(wrong(value, one, root)) for one in schema["oneOf"]) != 1:
        yield f"{where}: not exactly one of the forms"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: none of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], str(value)):
        yield f"{where}: not like {schema['pattern']}"
    names = schema.get("type", [])
    kinds = tuple(_TYPES[name] for name in ([names] if isinstance(names, str) else names))
    is_bool = isinstance(value, bool) and bool not in kinds
    if kinds and (is_bool or not any(isinstance(value, kind) for kind in kinds)):
        yield f"{where}: {value} is no {names}"
        return
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{where}: no {name}" for name in schema.get("required", []) if name not in value)
        for name, each in value.items():
            if name in known:
                yield from wrong(each, known[name], root, f"{where}.{name}")
            elif others is False:
                yield f"{where}: unknown {name}"
            elif others is not True:
                yield from wrong(each, others, root, f"{where}.{name}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{where}: too short"
        for each in value:
            yield from wrong(each, schema.get("items", {}), root, f"{where}[]")
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum", value), schema.get("maximum", value)
        above, below = schema.get("exclusiveMinimum", value - 1), schema.get("exclusiveMaximum", value + 1)
        if not (least <= value <= most and above < value < below):
            yield f"{where}: {value} is out of bounds"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads((DOCS / "records.schema.json").read_text(encoding="utf-8"))


def test_real_records_follow_the_schema(folder: Path, schema: dict[str, Any]) -> None:
    events = [json.loads(line) for path in folder.glob(f"*/{RECORDS}") for line in path.read_text().splitlines()]
    assert {event["event"] for event in events} == {"start", "epoch", "task", "steps", "done"}
    assert any("measures" in event for event in events)
    assert any("probe" in event for event in events if event["event"] == "task")
    assert [text for event in events for text in wrong(event, schema, schema)] == []


def test_committed_records_follow_the_schema(schema: dict[str, Any]) -> None:
    paths = list((DOCS.parent / "results").rglob(PACKED))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(paths) >= 4 and len(lines) > 4000
    assert [text for line in lines for text in wrong(json.loads(line), schema, schema)] == []


def test_the_schema_says_no(folder: Path, schema: dict[str, Any]) -> None:
    """Each of these changes to a line makes it wrong."""
    lines = (folder / SHORT.key / RECORDS).read_text().splitlines()
    start, task = json.loads(lines[0]), next(event for line in lines if (event := json.loads(line))["event"] == "task")
    for event, change in [
        (start, {"versions": {}}),
        (start, {"experiment": start["experiment"] | {"epochs": 0}}),
        (start, {"experiment": start["experiment"] | {"epochs": True}}),
        (start, {"experiment": start["experiment"] | {"colour": "red"}}),
        (task, {"test": [1.5]}),
        (task, {"test": []}),
        (task, {"bytes": -1}),
        (task, {"bytes": 0.5}),
        (task, {"event": "tusk"}),
        (task, {"more": 1}),
    ]:
        assert list(wrong(event | change, schema, schema)), change
    del task["flips"]
    assert list(wrong(task, schema, schema))


def test_the_schema_knows_every_field(schema: dict[str, Any]) -> None:
    assert list(schema["$defs"]["experiment"]["properties"]) == [field.name for field in fields(Experiment)]
