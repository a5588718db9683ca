"""Power cuts: what was not synced is gone. Every moment of a save at which something is synced, renamed or removed."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chaos.campaign import LOST, TINY, Outcome, Trial, call, fault, judge
from chaos.crashes import make_memory, make_template
from chaos.shop import make_shop, make_versions
from selfreminder import open_memory, save_memory
from selfreminder.data import dataset, source
from selfreminder.experiment.folder import read_grid, write_grid
from selfreminder.experiment.records import RECORDS, pack_records, read_packed
from selfreminder.experiment.run import run
from selfreminder.experiment.tuning.tuned import read_table, write_sections
from selfreminder.store import Store
from selfreminder.store.heldout import HELDOUT
from selfreminder.store.version import MEMORY, MODEL

_LEFT = [(new_names, share) for new_names in (False, True) for share in (0.0, 0.5, 1.0)]
"""what a power cut may leave: the last renames or not, and a share of what was not synced"""


class Disk:
    """Knows what of a folder is certain to be on the disk, and keeps what a power cut would leave at each moment.

    The names in a folder are certain when it was synced since, and content when its file was. A folder that was renamed
    or made is where its own parent, when that was synced last, says it is.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept, self.moments = folder, kept, 0
        self.names = self._names_now()
        self.content = {path.stat().st_ino: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self._real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink")}

    def _names_now(self) -> dict[int, dict[str, int]]:
        folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
        return {folder.stat().st_ino: _list(folder) for folder in folders}

    def __enter__(self) -> "Disk":
        for name in self._real:
            setattr(os, name, partial(self._noted, name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        self.cut()

    def _noted(self, name: str, *arguments: Any, **more: Any) -> Any:
        self.cut()
        done = self._real[name](*arguments, **more)
        if name == "fsync":
            target = Path(f"/proc/self/fd/{arguments[0]}").readlink()
            if target.is_dir():
                self.names[target.stat().st_ino] = _list(target)
            else:
                self.content[target.stat().st_ino] = target.read_bytes()
        return done

    def cut(self) -> None:
        """Keep all that a power cut at this moment may leave."""
        now = {path.stat().st_ino: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        for variant, (new_names, share) in enumerate(_LEFT):
            names = self._names_now() if new_names else self.names
            folder = self.kept / f"{self.moments:03}-{variant}"
            self._leave(names, self.folder.stat().st_ino, folder, now, share)
        self.moments += 1

    def _leave(
        self, names: dict[int, dict[str, int]], node: int, folder: Path, now: dict[int, bytes], share: float
    ) -> None:
        folder.mkdir(parents=True)
        for name, inside in names.get(node, {}).items():
            if inside in names or not (inside in now or inside in self.content):
                self._leave(names, inside, folder / name, now, share)
                continue
            synced = self.content.get(inside, b"")
            whole = now.get(inside, synced)
            rest = whole[len(synced) :] if whole.startswith(synced) else b""
            (folder / name).write_bytes(synced + rest[: int(len(rest) * share)])


def _list(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


class Save(NamedTuple):
    """Something that is saved: what was there before, the saving, and what one finds afterwards."""

    before: Callable[[Path], object]
    act: Callable[[Path], object]
    look: Callable[[Path], Any]
    goes_on: bool = False
    """whether looking at it ends what the power cut has interrupted"""


def _delete(folder: Path) -> None:
    call("memory", "delete", folder / "memory.safetensors", "--where", "task=0")


def _count_items(folder: Path) -> int:
    return len(open_memory(folder / "memory.safetensors"))


def _run(folder: Path) -> bytes:
    run(TINY, folder / TINY.key, save_every=0.0)
    return (folder / TINY.key / RECORDS).read_bytes()


def _write_strength(folder: Path, strength: float) -> None:
    write_sections(folder / "tuned.toml", {("permuted-mnist", "demo", "ewc"): {"strength": strength, "by": "chaos"}})


def _get(folder: Path) -> None:
    os.environ["SELFREMINDER_CACHE"] = str(folder / "cache")
    source.get(dataset("chaos"), folder / "given")


def _get_and_read(folder: Path) -> list[bytes]:
    _get(folder)
    data = dataset("chaos")
    return [source.read(file, source.find(data, folder / "given")[file.name]) for file in data.files]


def _read_store(folder: Path) -> Any:
    """Which versions were promoted, and the items that the current one has; all that is there is whole."""
    store = Store.open(folder / "store")
    if problems := store.verify():
        raise AssertionError(problems[0])
    version = store.current
    items = [*version.read_memory().sources.tolist(), *version.read_heldout().items.tolist()]
    files = [version.manifest.files[name] for name in (MODEL, MEMORY, HELDOUT)]  # pages name the folder
    return [move.to for move in store.moves], items, files


def _update(folder: Path) -> None:
    Store.open(folder / "store").update(folder / "new.npz", command="update")


def _delete_from_store(folder: Path) -> None:
    Store.open(folder / "store").delete(where="site=B", command="delete")


SAVES = {
    "a memory is saved": Save(
        lambda folder: save_memory(make_memory(), folder / "memory.safetensors"),
        lambda folder: save_memory(make_memory(20), folder / "memory.safetensors"),
        _count_items,
    ),
    "`memory delete`": Save(
        lambda folder: save_memory(make_memory(), folder / "memory.safetensors"), _delete, _count_items
    ),
    "a run": Save(lambda folder: None, _run, _run, goes_on=True),
    "a grid's list": Save(
        lambda folder: write_grid(folder, [TINY], {}),
        lambda folder: write_grid(folder, [replace(TINY, seed=1)], {}),
        read_grid,
    ),
    "a table of strengths": Save(
        lambda folder: _write_strength(folder, 1.0),
        lambda folder: _write_strength(folder, 2.0),
        lambda folder: read_table(folder / "tuned.toml"),
    ),
    "packing records": Save(_run, pack_records, lambda folder: [*read_packed(folder), _run(folder)]),
    "`update`": Save(make_shop, _update, _read_store),
    "`delete`": Save(make_shop, _delete_from_store, _read_store),
    "`rollback`": Save(make_versions, lambda folder: Store.open(folder / "store").rollback(), _read_store),
    "`data get`": Save(lambda folder: make_template(folder), _get, _get_and_read, goes_on=True),
}


def cut_power(save: Save, trial: Trial) -> Iterator[Outcome]:
    """Cut the power at every moment of a save: the old or the new is there, and after its end the new."""
    folder, kept = trial.fresh(), trial.folder / "kept"
    save.before(folder)
    before, after = trial.fresh(folder), trial.fresh(folder)
    save.act(after)
    expected = save.look(before), save.look(after)
    if expected[0] == expected[1] and not save.goes_on:
        raise AssertionError("the old cannot be told from the new: nothing could be found lost")
    with Disk(folder, kept) as disk:
        save.act(folder)
    states = sorted(kept.iterdir())
    last = f"{disk.moments - 1:03}-"
    chosen = [state for state in states if state.name.startswith(last)]
    chosen += trial.random.sample(states, min(trial.count, len(states)))
    for state in dict.fromkeys(chosen):
        found: list[Any] = []
        outcome = judge(lambda state=state, found=found: found.append(save.look(state)), what=state.name)
        if found and found[0] not in (expected[1:] if state.name.startswith(last) else expected):
            outcome = Outcome(LOST, f"{state.name} of {disk.moments} moments: neither the old nor the new")
        elif not found and not outcome.what:
            outcome = Outcome(LOST, f"{state.name} of {disk.moments} moments: cannot be read")
        yield outcome
        shutil.rmtree(state)


for _name, _save in SAVES.items():
    fault("Power cuts", f"{_name}: what was not synced is lost", short=12, long=1000)(partial(cut_power, _save))
