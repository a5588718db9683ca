"""`selfreminder memory`: list, show, verify."""

import json as json_format
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import selfreminder
from selfreminder.cli.tables import print_rows, print_table
from selfreminder.sizes import show_bytes


def show_items(file: Path, *, json: bool = False) -> None:
    """List the items of a memory file: id, task, label, source, selection, time.

    Parameters
    ----------
    file
        A memory file, such as Reminder.save writes.
    json
        Print JSON.
    """
    items = _items(file)
    if json:
        print(json_format.dumps({"results": items}))
        return
    headings = list(items[0]) if items else ["id"]
    print_table(headings, [["-" if v is None else str(v) for v in item.values()] for item in items])


def show(file: Path, *, json: bool = False) -> None:
    """Summarise a memory file: how many items of which task and class, in how many bytes.

    Parameters
    ----------
    file
        A memory file, such as Reminder.save writes.
    json
        Print JSON.
    """
    memory = selfreminder.open_memory(file)
    inputs = {
        name: {
            "shape": list(x.shape[1:]),
            "kept_as": str(x.dtype).removeprefix("torch."),
            "codec": memory.codecs[name],
        }
        for name, x in memory.inputs.items()
    }
    about = {
        "file": str(file),
        "items": len(memory),
        "bytes": memory.nbytes,
        "bytes_per_item": memory.item_nbytes,
        "logits": memory.logits.shape[1],
        "inputs": inputs,
        "tasks": [
            {"task": task, "items": count, "classes": len(memory.labels[memory.tasks == task].unique())}
            for task, count in memory.counts.items()
        ],
        "sha256": selfreminder.memory_hash(file),
    }
    if json:
        print(json_format.dumps({"results": [about]}, indent=1))
        return
    shapes = "; ".join(
        f"{name} {tuple(i['shape'])} kept as {i['kept_as']} (codec {i['codec']})" for name, i in inputs.items()
    )
    print_rows(
        str(file),
        [
            ("items", f"{len(memory)}, {memory.item_nbytes} bytes each, {show_bytes(memory.nbytes)} in all"),
            ("inputs", shapes or "none"),
            ("logits", str(memory.logits.shape[1])),
            ("sha256", about["sha256"]),
        ],
    )
    print_table(
        ["task", "items", "classes"],
        [[str(row[key]) for key in ("task", "items", "classes")] for row in about["tasks"]],
    )


def verify(file: Path) -> None:
    """Check that a memory file is whole, unchanged, and of a schema that this version reads.

    Parameters
    ----------
    file
        A memory file, such as Reminder.save writes.
    """
    memory = selfreminder.open_memory(file)
    print(f"{file}: good, {len(memory)} items, sha256 {selfreminder.memory_hash(file)}")


def _items(file: Path) -> list[dict[str, Any]]:
    memory = selfreminder.open_memory(file)
    times = [None] * len(memory) if memory.times is None else memory.times.tolist()
    columns = (memory.ids, memory.tasks, memory.labels, memory.sources, memory.selections)
    rows = zip(*(column.tolist() for column in columns), times)
    return [
        {
            "id": item,
            "task": task,
            "label": None if label < 0 else label,
            "source": None if origin < 0 else origin,
            "selection": memory.selection_names[selection],
            "time": None if when is None or when < 0 else datetime.fromtimestamp(when, UTC).isoformat(),
        }
        for item, task, label, origin, selection, when in rows
    ]
