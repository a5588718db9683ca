"""The folder of a grid. `grid.json` says which command made it and which runs the grid that was started last has."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import remove_stale, replace_file, write_text
from selfreminder._base.checked import DAMAGE, with_check, without_check
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.lock import locked
from selfreminder.benchmarks import SCALES
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.comparison import Comparison, shared_settings
from selfreminder.experiment.records import PACKED, RECORDS, read_packed, read_records
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import read_table

GRID = "grid.json"
JOURNAL = "journal.jsonl"
"""of the trials of a tuning"""
EARLIER_COMPARISON = "comparison.json"
"""what the folder of a comparison had beside that in earlier versions: the settings that its runs share"""
TABLE = "tuned.toml"
"""a copy of the table that the runs were given by --tuned"""
_HOLDS = {
    "comparison": "a comparison",
    "spec": "a grid of selfreminder run",
    "figure": "the paper's figures",
    "tuning": "a tuning",
}
"""what a folder holds, by the name that `grid.json` has for it"""


# What `grid.json` says ------------------------------------------------------------------------------------


def write_grid(folder: Path, experiments: Iterable[Experiment], about: Mapping[str, Any]) -> None:
    """Write down the whole list of a folder's runs, and what else is to be known of them."""
    runs = [{"key": experiment.key, "experiment": experiment.as_recorded()} for experiment in experiments]
    text, path = json.dumps(with_check({**about, "runs": runs}), indent=1) + "\n", folder / GRID
    if not path.is_file() or path.read_bytes() != text.encode():
        write_text(path, text)


def read_about(folder: Path) -> dict[str, Any] | None:
    """Read all that `grid.json` says; None if there is none, or it is damaged."""
    try:
        return _read_checked(folder / GRID)
    except (OSError, *DAMAGE):
        return None


def _read_checked(path: Path) -> dict[str, Any]:
    return without_check(json.loads(path.read_text(encoding="utf-8")))


def read_grid(folder: Path) -> list[Experiment] | None:
    """Read the runs that belong to a folder's grid, in their order; None if nobody wrote them down."""
    path = folder / GRID
    try:
        return [_read_listed(run) for run in _read_checked(path)["runs"]]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DAMAGE as error:
        raise SelfReminderError(f"{path} is damaged ({error}): start its grid again to write it anew") from None


def _read_listed(run: Mapping[str, Any]) -> Experiment:
    """Read a run of the list; its key is a hash of its settings."""
    experiment = Experiment(**run["experiment"])
    if experiment.key != run["key"]:
        raise ValueError(f"the settings of {run['key']} are those of {experiment.key}")
    return experiment


@dataclass(frozen=True)
class Origin:
    """Where the runs of a folder come from."""

    commands: tuple[str, ...] = ()
    """as they were typed; none where an earlier version made the folder"""
    scale: str | None = None
    comparison: Comparison | None = None
    """what `selfreminder compare` was asked for last"""
    figure: str | None = None
    """of the paper, that `selfreminder reproduce` was asked for"""
    file: tuple[str, str] | None = None
    """name and text of the file that `selfreminder run` was given"""
    with_table: bool = False
    """whether the command was given a table of strengths, of which the folder has a copy"""

    @property
    def redraw(self) -> str | None:
        """The command that draws the paper's figures of these runs and judges its claims."""
        return self.figure and f"selfreminder reproduce {self.figure} --scale {self.scale} --draw-only"

    def gives(self, experiments: Iterable[Experiment]) -> bool:
        """Tell whether the comparison still has these runs: its table of strengths may have changed since."""
        ours = [] if self.comparison is None else self.comparison.experiments
        asked, keys = {(run.method, run.seed) for run in ours}, {run.key for run in ours}
        return all(run.key in keys for run in experiments if (run.method, run.seed) in asked)


def read_origin(folder: Path) -> Origin:
    """Read where the runs of a folder come from, as far as it is known: somebody else may have written it."""
    about = read_about(folder) or {}
    _check_copies(folder, about.get("sha256"))
    with_table = "tuned" in about
    comparison = _read_comparison(about.get("comparison"), folder / TABLE if with_table else None)
    figure, scale = about.get("figure"), about.get("scale")
    if not isinstance(figure, str) or not isinstance(scale, str) or scale not in SCALES:
        figure, scale = None, comparison and comparison.scale
    commands = _read_commands(about)
    if figure and not commands:
        commands = [["reproduce", figure, "--scale", str(scale)]]
    return Origin(
        tuple(shlex.join(["selfreminder", *words]) for words in commands),
        scale,
        comparison,
        figure,
        _read_file(folder, about.get("spec")),
        with_table,
    )


def with_command(folder: Path, words: Sequence[str], about: Mapping[str, Any]) -> dict[str, Any]:
    """What `grid.json` is to say of a folder: its commands, the one just typed last, and what they are about.

    The runs of a file's grid replace those of the grid before; other commands add to what the folder holds.
    """
    earlier = [] if "spec" in about else _read_commands(read_about(folder) or {})
    commands = [*(other for other in earlier if other != list(words)), *([list(words)] if words else [])]
    return {"commands": commands, **about}


def _read_commands(about: Mapping[str, Any]) -> list[list[str]]:
    found = about.get("commands")
    listed = [words for words in found if isinstance(words, list)] if isinstance(found, list) else []
    return [[str(word) for word in words] for words in listed]


def _read_comparison(said: Any, table: Path | None) -> Comparison | None:
    try:
        if table is not None:
            read_table(table)  # says if it is damaged: without it, strengths would be others
    except OSError:
        table = None
    try:
        return None if said is None else Comparison.from_dict(said, table)
    except (ValueError, TypeError, AttributeError):
        return None


def _check_copies(folder: Path, said: Any) -> None:
    """Refuse a file beside the runs that is not what a command was given: it would tell of other settings."""
    for name, digest in said.items() if isinstance(said, dict) else ():
        path = folder / Path(name).name
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise SelfReminderError(
                f"{path} was damaged or edited since it was put there: start its command again to write it anew, "
                "or remove it"
            )


def _read_file(folder: Path, name: Any) -> tuple[str, str] | None:
    """The copy of a file that is in the folder, whatever somebody wrote into the list of runs."""
    try:
        name = Path(name).name
        return name, (folder / name).read_text(encoding="utf-8")
    except (OSError, TypeError, ValueError):
        return None


# Whose folder it is ---------------------------------------------------------------------------------------


def run_folders(folder: Path, *, deep: bool = False) -> list[Path]:
    """List the folders of all runs that have begun in a folder, whichever grid they were of.

    Those of packed runs are among them, and need not exist. With `deep`, folders within folders are looked into.
    """
    anywhere = "**/" if deep else ""
    begun = {path.parent for path in folder.glob(f"{anywhere or '*/'}{RECORDS}")}
    packed = (path.parent for path in folder.glob(f"{anywhere}{PACKED}"))
    return sorted(begun.union(around / key for around in packed for key in read_packed(around)))


def check_exists(folder: Path) -> None:
    """Refuse what is no folder, naming the one that may have been meant."""
    if not folder.exists():
        beside = folder.parent
        names = sorted(path.name for path in beside.iterdir() if path.is_dir()) if beside.is_dir() else []
        if names:
            raise unknown(f"folder in {beside.resolve()}", folder.name, names)
        raise SelfReminderError(f"{folder} does not exist: give the folder of a grid or a comparison")
    if not folder.is_dir():
        raise SelfReminderError(f"{folder} is a file: give the folder of a grid or a comparison")


def refuse_others(folder: Path, ours: str) -> None:
    """Refuse the folder of a command that would then not know it any more; `ours` is our own name in `grid.json`."""
    about = dict.fromkeys(["comparison"]) if (folder / EARLIER_COMPARISON).is_file() else read_about(folder) or {}
    found = next((what for name, what in _HOLDS.items() if name in about), None)
    if found is not None and ours not in about:
        raise SelfReminderError(f"{folder} holds {found}: choose another folder with --out")


@contextmanager
def claimed(folder: Path, ours: str, patience: float = 5.0) -> Iterator[None]:
    """Make sure that a folder is a command's own, or nobody's yet, and let no other process in meanwhile.

    Args:
        folder: to be made if there is none.
        ours: what the command calls its grid in `grid.json`: comparison, spec, figure or tuning.
        patience: seconds to wait for a process that is on its way out.
    """
    check_claimable(folder, ours)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, patience):
        remove_stale(folder)
        yield


def check_claimable(folder: Path, ours: str) -> None:
    """Refuse a folder that is not a command's own, and not nobody's either."""
    # Of these files, one at least is in every folder that the command has made.
    marks = (GRID, JOURNAL, f"*/{RECORDS}") if ours == "tuning" else (GRID, EARLIER_COMPARISON)
    if folder.exists():
        # A kill may have left a lock, or a file that was being written.
        others = not folder.is_dir() or any(not path.name.startswith(".") for path in folder.iterdir())
        if others and not any(any(folder.glob(mark)) for mark in marks):  # in this order: another may be writing it
            what = ours if ours in ("comparison", "tuning") else "grid"
            raise SelfReminderError(f"{folder} exists and holds no {what}: choose another one with --out")
    refuse_others(folder, ours)


def check_same_comparison(folder: Path, comparison: Comparison) -> None:
    """Refuse a folder whose runs differ from a comparison's in more than methods, seeds and what is their own."""
    if not run_folders(folder):
        return
    ours, theirs = shared_settings(comparison.experiments[0]), _read_identity(folder)
    # Of fields that there were not yet.
    usual = Experiment(benchmark=comparison.benchmark, method="adam", data=ours["data"]).as_dict()
    if differing := sorted(name for name in ours if theirs.get(name, usual[name]) != ours[name]):
        raise SelfReminderError(
            f"{folder} holds another experiment, of other {', '.join(differing)}: choose another folder with --out"
        )


def _read_identity(folder: Path) -> dict[str, Any]:
    """The settings that the runs of a comparison's folder share."""
    if runs := _read_listed_or_begun(folder):
        return shared_settings(runs[0])
    path = folder / EARLIER_COMPARISON
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise SelfReminderError(f"{path} is damaged: choose another folder with --out") from None


def _read_listed_or_begun(folder: Path) -> list[Experiment] | None:
    """Read the runs of a folder: of a list that is damaged, those that have begun, which know their settings."""
    try:
        return read_grid(folder)
    except SelfReminderError:
        begun = (read_records(path) for path in run_folders(folder))
        return [records.experiment for records in begun if records is not None]


def keep_copies(folder: Path, given: Mapping[str, Path]) -> None:
    """Keep the files that a command was given beside the runs, by the names that they have there."""
    for name, path in given.items():
        with replace_file(folder / name) as copy:
            copy.write_bytes(path.read_bytes())


# What a run is called -------------------------------------------------------------------------------------


def varying(experiments: Iterable[Experiment]) -> list[str]:
    """The fields, beside seed, in which runs of one method differ."""
    seen: dict[str, dict[str, Any]] = {}
    found = []
    names = [field.name for field in fields(Experiment) if field.name not in ("method", "seed")]
    for experiment in experiments:
        values = experiment.as_dict()
        first = seen.setdefault(experiment.method, values)
        found += [name for name in names if name not in found and values[name] != first[name]]
    return [name for name in names if name in found]


def label(experiment: Experiment, names: Iterable[str]) -> str:
    """What a person calls a run, given the fields that vary."""
    values = {name: getattr(experiment, name) for name in names if uses(experiment.method, name)}
    shown = (f"{name} {show(value)}" for name, value in values.items() if value is not None)
    return " ".join([experiment.method, *shown, f"seed {experiment.seed}"])


def show(value: Any) -> str:
    """A field's value for people.

    >>> show(0.003), show(1.0), show(None), show({"a": 1})
    ('0.003', '1', '-', '{"a": 1}')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)
