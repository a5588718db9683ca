"""`selfreminder memory`: list, show, export, delete, verify."""

import json as json_format
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from torch import Tensor

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import show_bytes
from selfreminder.cli.terminal import Flag, Json, Out, Whole, print_rows, print_table, say
from selfreminder.memory.file import hash_items, open_memory, open_with_hash
from selfreminder.memory.memory import Memory
from selfreminder.memory.query import COLUMNS, delete_items, describe_items, find_absent, find_matching
from selfreminder.report.gallery import MOST, render_gallery
from selfreminder.report.pictures import ARRAYS, TABLE, export


@Parameter(name="*")
@dataclass(frozen=True)
class Which:
    """Which items: those that meet all that is asked."""

    where: str | None = None
    """Conditions with commas between them: "task=0,label!=3", "source>=100", "selection=herding",
    "time<2026-01-01", "label=none"."""
    id: str | None = None
    """Ids and ranges of ids: 3,5,10-20."""
    older_than: str | None = None
    """An age in days, hours or weeks: 90d, 12h, 6w."""

    def of(self, memory: Memory) -> Tensor:
        """(n,) bool."""
        return find_matching(memory, where=self.where, ids=self.id, older_than=self.older_than)


File = Annotated[Path, Parameter(help="A memory file, such as Reminder.save writes.")]
_ALL = Which()


def show_items(file: File, *, which: Which = _ALL, json: Json = False) -> None:
    """List the items of a memory file: id, task, label, witness or not, source, time, selection, hash."""
    memory = open_memory(file)
    rows = describe_items(memory.take(which.of(memory)))
    if json:
        print(json_format.dumps({"results": rows}))
        return
    _print_dicts(COLUMNS, rows)


def show(file: File, *, html: Path | None = None, most: Whole = MOST, json: Json = False) -> None:
    """Summarise a memory file: how many items of which task and class, in how many bytes, and who recorded them.

    Model and transform are fingerprints; seen is how many items went by where a stream was observed.

    Parameters
    ----------
    html
        Write a page with pictures and logits of the items to this file: one file that needs no network.
    most
        Items on that page at most, evenly of every task and of its classes.
    """
    memory, sha256 = open_with_hash(file)
    about = _summary(file, memory, sha256)
    if html is not None:
        _write_page(html, memory, file, most)
        about["html"] = str(html)
    if json:
        print(json_format.dumps({"results": [about]}, indent=1))
        return
    shapes = "; ".join(
        f"{name} {tuple(i['shape'])} kept as {i['kept_as']} (codec {i['codec']})" for name, i in about["inputs"].items()
    )
    each = "" if not len(memory) else f", {memory.item_nbytes} bytes each, {show_bytes(memory.nbytes)} in all"
    print_rows(
        str(file),
        [
            ("items", f"{len(memory)}{each}"),
            ("inputs", shapes or "none"),
            ("logits", f"{about['logits']} (codec {about['logit_codec']})"),
            ("sha256", about["sha256"]),
        ],
    )
    _print_dicts(["task", "items", "witnesses", "classes", "model", "transform", "seen"], about["tasks"])
    if html is not None:
        shown = f"{most} of {len(memory)} items, --most {len(memory)} shows all" if len(memory) > most else "all items"
        say(f"{html}: {shown}")


def export_items(
    file: File, *, out: Annotated[Path, Parameter(name=["--out", "-o"])], which: Which = _ALL, json: Json = False
) -> int:
    """Write items to a new folder: images as PNG, logits and the rest as items.csv, other inputs as inputs.npz.

    Parameters
    ----------
    out
        The folder to make; one that holds something is left alone.
    """
    memory = open_memory(file)
    chosen = memory.take(which.of(memory))
    if not len(chosen):
        return _nothing(file, memory, which, json)
    done = export(chosen, out)
    if json:
        about = {"folder": str(out), "items": done.items, "images": done.images, "arrays": list(done.arrays)}
        print(json_format.dumps({"results": [about]}))
        return 0
    parts = [TABLE, *([f"{done.images} PNG files"] if done.images else [])]
    parts += [f"{ARRAYS} ({', '.join(done.arrays)})"] if done.arrays else []
    say(f"{out}: {done.items} of {len(memory)} items in {', '.join(parts)}")
    return 0


def delete(
    file: Path,
    *,
    which: Which = _ALL,
    out: Out = None,
    dry_run: Flag = False,
    json: Json = False,
) -> int:
    """Delete items from a memory file. Exit code 1 if there are none of those.

    Parameters
    ----------
    file
        A memory file, such as Reminder.save writes. It is replaced in one step.
    out
        Write what is left to this new file instead.
    dry_run
        Only say what would be deleted.
    """
    if which == _ALL:
        raise SelfReminderError("which items? Say it by --id 3,5,10-20, --where task=0,label=3 or --older-than 90d")
    if out is not None and out.exists() and file.exists():
        if not out.samefile(file):
            raise SelfReminderError(f"{out} exists: choose a new name, or delete it first")
        out = None
    done = delete_items(file, where=which.where, ids=which.id, older_than=which.older_than, out=out, dry_run=dry_run)
    memory, deleted, left = done.before, done.deleted, done.left
    if not len(deleted):
        return _nothing(file, memory, which, json)
    if json:
        about = {
            "file": str(out or file),
            "written": not dry_run,
            "deleted": deleted.ids.tolist(),
            "tasks": [{"task": task, "items": count} for task, count in deleted.counts.items()],
            "left": len(left),
            "bytes_before": memory.nbytes,
            "bytes": left.nbytes,
        }
        print(json_format.dumps({"results": [about]}))
        return 0
    _print_unknown_ids(memory, which)
    tasks = ", ".join(f"{count} of task {task}" for task, count in deleted.counts.items())
    say(
        f"{file}: {'would delete' if dry_run else 'deleted'} {len(deleted)} of {len(memory)} items: {tasks}; "
        f"{show_bytes(memory.nbytes)} before, {show_bytes(left.nbytes)} after"
    )
    if not len(left):
        say(f"The memory {'would be' if dry_run else 'is now'} empty.")
    if out is not None and not dry_run:
        say(f"Written to {out}; {file} is as it was.")
    return 0


def verify(file: File) -> None:
    """Check that a memory file is whole, unchanged, and of a schema that this version reads."""
    memory, sha256 = open_with_hash(file)
    hash_items(memory)  # reads every item, deflated ones too
    say(f"{file}: good, {len(memory)} items, sha256 {sha256}")


def _print_dicts(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    print_table(columns, [["-" if row[name] is None else str(row[name]) for name in columns] for row in rows])


def _summary(file: Path, memory: Memory, sha256: str) -> dict[str, Any]:
    return {
        "file": str(file),
        "items": len(memory),
        "bytes": memory.nbytes,
        "bytes_per_item": memory.item_nbytes,
        "logits": memory.kept_logits.shape[0],
        "logit_codec": memory.kept_logits.codec,
        "inputs": {
            name: {"shape": list(x.shape), "kept_as": str(x.dtype).removeprefix("torch."), "codec": x.codec}
            for name, x in memory.inputs.items()
        },
        "tasks": [_task(memory, task) for task in memory.counts],
        "sha256": sha256,
    }


def _task(memory: Memory, task: int) -> dict[str, Any]:
    ours = memory.tasks == task
    labels = memory.labels[ours]
    fingerprint, reservoir = memory.fingerprints.get(task), memory.reservoirs.get(task)
    return {
        "task": task,
        "items": len(labels),
        "witnesses": int(memory.witnesses[ours].sum()),
        "classes": len(labels[labels >= 0].unique()),
        "model": fingerprint.model if fingerprint else None,
        "transform": fingerprint.transform_hash if fingerprint else None,
        "seen": reservoir.seen if reservoir else None,
    }


def _write_page(html: Path, memory: Memory, file: Path, most: int) -> None:
    if most < 1:
        raise SelfReminderError(f"most is {most}: a page shows one item at least")
    if html.is_dir():
        raise SelfReminderError(f"{html} is a folder: name a file, such as {html / 'memory.html'}")
    if html.exists() and html.samefile(file):
        raise SelfReminderError(f"{html} is the memory itself: name another file for the page")
    write_text(html, render_gallery(memory, file.name, most=most))


def _nothing(file: Path, memory: Memory, which: Which, json: bool) -> int:
    """Say that no item matches, by a message and by the exit code."""
    if json:
        print(json_format.dumps({"results": []}))
    else:
        _print_unknown_ids(memory, which)
        say(f"{file}: none of its {len(memory)} items matches; nothing was written")
    return 1


def _print_unknown_ids(memory: Memory, which: Which) -> None:
    if which.id is not None and (unknown_ids := find_absent(memory, which.id)):
        say(f"No item has the id {', '.join(map(str, unknown_ids))}.")
