from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from selfreminder._base.errors import SelfReminderError
from selfreminder.experiment.folder import JOURNAL
from selfreminder.experiment.tuning.candidates import STRENGTHS
from selfreminder.experiment.tuning.study import Study, TrialResult, open_journal
from tunings import tuning


def curve_of(strength: float) -> float:
    return round(1 / (1 + abs(strength - 0.02)), 4)


def tpe(folder: Path, trials: int, total: int = 6, **settings: Any) -> list[dict[str, Any]]:
    """What is asked when so many trials are run one after the other, at most, of a total."""
    asked = tuning("fsr-logit", sampler="tpe", trials=total, **settings)
    (candidates,) = asked.candidates
    study = Study(candidates, asked, open_journal(folder))
    found = []
    while len(found) < trials:
        trial = next(iter(study.open.values()), None) or study.ask()
        if trial is None:
            break
        found.append(trial.settings)
        study.tell(trial, TrialResult(trial.settings, "done", curve_of(trial.settings["strength"])))
    return found


def test_tpe_samples_beyond_the_candidates_and_goes_on_as_if_not_interrupted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    whole = tpe(tmp_path / "a", 100, total=12)
    assert len(whole) == 12
    strengths = [settings["strength"] for settings in whole]
    low, high = min(STRENGTHS["fsr-logit"]) / 3, max(STRENGTHS["fsr-logit"]) * 3
    assert all(low <= value <= high for value in strengths)
    assert min(strengths) < 0.01 < max(strengths)  # over the logarithm
    assert len(set(strengths)) == 12
    parts = [tpe(tmp_path / "b", count, total=12) for count in (1, 4, 2, 100)]
    assert [settings for part in parts for settings in part] == whole
    assert len(tpe(tmp_path / "a", 100, total=14)) == 2  # two more


def test_trials_at_once_differ(tmp_path: Path) -> None:
    asked = tuning("ewc", sampler="tpe", trials=20, fields=("strength", "lr"))
    study = Study(asked.candidates[0], asked, open_journal(tmp_path))
    begun = [study.ask() for _ in range(21)]
    assert begun.pop() is None
    assert len({str(trial.settings) for trial in begun if trial}) == 20
    # All of them are taken up again.
    again = Study(asked.candidates[0], asked, open_journal(tmp_path))
    assert again.open == study.open


def test_whole_numbers_names_and_switches(tmp_path: Path) -> None:
    values = {
        "batch_size": (32, 64),
        "over_tasks": ("sum", "mean"),
        "memory_batch": (None, 16),
        "plateau": (True, False),
    }
    for sampler, count in (("grid", 16), ("tpe", 8)):
        asked = tuning("fsr-logit", sampler=sampler, values=values, trials=8 if sampler == "tpe" else None)
        study = Study(asked.candidates[0], asked, open_journal(tmp_path))
        while study.ask():
            pass
        again = Study(asked.candidates[0], asked, open_journal(tmp_path))
        assert len(again.open) == count
        for trial in again.open.values():
            assert isinstance(trial.settings["batch_size"], int)
            assert trial.settings["over_tasks"] in ("sum", "mean")
            assert trial.settings["memory_batch"] in (None, 16)
            assert {type(one.batch_size) for one in trial.runs} == {int}


def grid_study(folder: Path) -> Study:
    asked = tuning("ewc", values={"strength": (1.0, 2.0, 3.0)})
    return Study(asked.candidates[0], asked, open_journal(folder))


def test_a_journal_that_was_cut_anywhere_goes_on(tmp_path: Path) -> None:
    """A kill, or a power cut, leaves some first bytes of what was written, or garbage in place of the last."""
    study = grid_study(tmp_path)
    for value, trial in zip((0.1, 0.3, 0.2), list(study.open.values())):
        study.tell(trial, TrialResult(trial.settings, "done", value))
    whole = (tmp_path / JOURNAL).read_bytes()
    last_line = len(whole.rstrip(b"\n").rpartition(b"\n")[0]) + 1
    cuts = [*range(0, len(whole), 97), *range(last_line - 1, len(whole) + 1, 19)]
    for cut, garbage in zip(cuts, cycle((b"", b"\0" * 40, b'{"op_code": 4, "tri'))):
        (tmp_path / JOURNAL).write_bytes(whole[:cut] + garbage)
        again = grid_study(tmp_path)
        states = [trial.state for trial in again.results(tmp_path)]
        assert len(states) == 3
        assert states.count("unfinished") == len(again.open)
        for trial in list(again.open.values()):
            again.tell(trial, TrialResult(trial.settings, "done", 0.05))
        once_more = grid_study(tmp_path)
        assert [trial.settings["strength"] for trial in once_more.results(tmp_path)] == [1.0, 2.0, 3.0]
        assert not once_more.open
    # All but the last trial survive the loss of the last line.
    (tmp_path / JOURNAL).write_bytes(whole[:-1])
    assert [trial.value for trial in grid_study(tmp_path).results(tmp_path)] == [0.1, 0.3, None]


def test_a_journal_that_is_damaged_in_the_middle_is_said(tmp_path: Path) -> None:
    grid_study(tmp_path)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join([lines[0], b"nothing\n", *lines[1:]]))
    with pytest.raises(SelfReminderError, match=r"journal.jsonl is damaged .*remove it; runs that are done stay so"):
        grid_study(tmp_path)


@pytest.mark.parametrize(("old", "new"), [('"strength"', '"strenfth"'), ('"strength":3.0', '"strength":2.5')])
def test_a_journal_with_a_trial_that_nobody_asked_for_is_said(tmp_path: Path, old: str, new: str) -> None:
    study = grid_study(tmp_path)
    for trial in list(study.open.values()):
        study.tell(trial, TrialResult(trial.settings, "done", 0.05))
    whole = (tmp_path / JOURNAL).read_text()
    assert old in whole
    (tmp_path / JOURNAL).write_text(whole.replace(old, new))
    with pytest.raises(SelfReminderError, match=r"journal.jsonl is damaged .*remove it; runs that are done stay so"):
        grid_study(tmp_path)


def test_a_journal_of_something_else_is_said(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"op_code": 99}\n')
    with pytest.raises(SelfReminderError, match=r"journal.jsonl is damaged"):
        grid_study(tmp_path)


def test_what_falls_behind_is_pruned(tmp_path: Path) -> None:
    """Averages go down from task to task: what counts is the median of others after the same task."""
    asked = tuning("ewc", prune=True, at={"tasks": 6})
    study = Study(asked.candidates[0], asked, open_journal(tmp_path))
    first, *others = study.open.values()
    assert not study.falls_behind(first, [0.1, 0.1, 0.1, 0.1])  # nothing to be compared with yet
    assert study.count_noted(first) == 4
    for level, trial in zip((0.0, 0.01, 0.02, 0.03), others):
        study.falls_behind(trial, [level + 0.9 - 0.1 * task for task in range(6)])
        study.tell(trial, TrialResult(trial.settings, "done", level + 0.4))
    last = others[4]
    curve = [0.9 - 0.1 * task for task in range(6)]
    assert not study.falls_behind(last, [0.1])  # too early
    assert not study.falls_behind(last, [0.1, 0.1])
    assert not study.falls_behind(last, [0.1, 0.1, curve[2] + 0.02])
    assert study.falls_behind(last, [0.9, 0.9, 0.9, curve[3] + 0.01])
    study.tell(last, TrialResult(last.settings, "pruned"))
    states = [trial.state for trial in study.results(tmp_path)]
    assert states == ["unfinished", "done", "done", "done", "done", "pruned"]
