"""What each machine got done, from made-up timings whose answers are known."""

import json
from pathlib import Path

import pytest

from selfreminder.cli import main
from selfreminder.experiment.folder import write_grid
from selfreminder.experiment.records import TIMINGS, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.throughput import measure_throughput
from tiny import TINY


def test_two_nodes_and_a_run_that_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / TINY.key
    records = run(TINY, folder)
    lines = [json.loads(line) for line in (folder / TIMINGS).read_text().splitlines()]
    assert all(line["host"] and line["at"] > 1e9 for line in lines)
    steps = records.tasks[0]["steps"]
    moved = [
        {"task": 0, "epoch": 0, "seconds": 100.0, "done": 0.25, "host": "a", "at": 100.0},
        {"task": 0, "epoch": 1, "seconds": 100.0, "done": 0.5, "host": "a", "at": 200.0},
        {"task": 0, "epoch": 1, "seconds": 50.0, "done": 0.5, "host": "b", "at": 1050.0},  # done again
        {"task": 0, "evaluation_seconds": 50.0, "done": 0.5, "host": "b", "at": 1100.0},
        {
            "task": 1,
            "epoch": 0,
            "seconds": 50.0,
            "done": 0.75,
            "host": "b",
            "at": 1120.0,
        },  # beside another
        {"task": 1, "epoch": 1, "seconds": 80.0, "done": 1.0, "host": "b", "at": 1200.0},
    ]
    (folder / TIMINGS).write_text("".join(json.dumps(line) + "\n" for line in moved))
    a, b = measure_throughput([(folder, records)])
    assert (a.node, a.runs, a.busy, a.workers) == ("a", 0.5, 200.0, 1.0)
    assert (b.node, b.runs, b.busy, b.workers) == ("b", 0.5, 200.0, 230 / 200)
    assert (a.steps, b.steps) == (round(steps / 2), round(steps / 2 + records.tasks[1]["steps"]))
    assert a.as_dict()["runs_per_hour"] == 9.0
    write_grid(tmp_path, [TINY], {})
    assert main(["status", str(tmp_path)]) == 0
    assert "steps a second" in capsys.readouterr().out
    assert main(["status", str(tmp_path), "--json"]) == 0
    assert [node["node"] for node in json.loads(capsys.readouterr().out)["nodes"]] == ["a", "b"]


def test_timings_of_earlier_versions_name_no_host(tmp_path: Path) -> None:
    folder = tmp_path / TINY.key
    run(TINY, folder)
    (folder / TIMINGS).write_text('{"task": 0, "epoch": 0, "seconds": 1.0, "done": 0.5}\n')
    records = read_records(folder)
    assert records is not None and measure_throughput([(folder, records)]) == []
