"""`selfreminder history`, `diff`, `rollback`, `delete`, `verify`: the versions that a store has."""

import json as json_format
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from selfreminder._base.atomic import write_text
from selfreminder._base.errors import SelfReminderError
from selfreminder.cli.store import STORE, SkipBad, StorePath, show, typed, watching
from selfreminder.cli.terminal import Flag, Json, Whole, print_table
from selfreminder.store import Store
from selfreminder.store.history_page import render_history

_SHOWN = 20


def history(*, store: StorePath = STORE, html: Path | None = None, json: Json = False) -> None:
    """List the versions of a store: how each came about, what the gate said, and how right it is on every slice.

    Parameters
    ----------
    html
        Write a page with a plot of it to this file.
    """
    rows = Store.open(store).history()
    if html is not None:
        write_text(html, render_history(rows))
    if json:
        print(json_format.dumps({"results": [row.to_dict() for row in rows]}))
        return
    slices = list(dict.fromkeys(name for row in rows for name in row.right))
    headings = ["version", "", "kind", "parent", "when", "gate", *slices]
    print_table(
        headings,
        [
            [
                str(row.version),
                row.state,
                row.kind,
                "-" if row.parent is None else str(row.parent),
                row.created.replace("+00:00", ""),
                row.verdict or "-",
                *(f"{row.right[name]:.3f}" if name in row.right else "-" for name in slices),
            ]
            for row in rows
        ],
    )


def diff(
    before: Annotated[int, Parameter(help="The number of a version.")],
    after: Annotated[int, Parameter(help="The number of another.")],
    *,
    store: StorePath = STORE,
    most: Whole = _SHOWN,
    json: Json = False,
) -> None:
    """Say which held-out inputs two versions answer differently.

    Parameters
    ----------
    most
        Rows of the table at most.
    """
    with watching() as watch:
        found = Store.open(store).diff(before, after, watch=watch)
    if json:
        show(found, json)
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in found.counts.items())
    print(f"version {before} and {after} differ on {len(found.changed)} of {found.items} held-out items: {counts}")
    rows = sorted(found.changed, key=lambda each: ("worse", "better", "other").index(each.change))[:most]
    if rows:
        headings = ["item", "slice", "label", f"version {before}", f"version {after}", "change"]
        print_table(headings, [[str(value) for value in vars(each).values()] for each in rows])
    if len(found.changed) > len(rows):
        print(f"and {len(found.changed) - len(rows)} more: --most {len(found.changed)} shows all")


def rollback(*, store: StorePath = STORE, to: Whole | None = None, json: Json = False) -> None:
    """Make an earlier version current again; nothing else is changed.

    Parameters
    ----------
    to
        The number of a version that was current once; by default the one before.
    """
    show(Store.open(store).rollback(to), json)


def delete(
    *,
    store: StorePath = STORE,
    id: str | None = None,
    where: str | None = None,
    older_than: str | None = None,
    keep_days: float | None = None,
    dry_run: Flag = False,
    json: Json = False,
) -> int:
    """Make a version whose memory and held-out slices lack some items. Exit code 3 if there are none of those.

    Weights that were trained with them stay as they are: it lists these versions, and those whose files have the items.

    Parameters
    ----------
    id
        Numbers and ranges of items: 3,5,10-20; reports and diff have them.
    where
        Conditions with commas between them, on item, label, time, version or a metadata column: "site=B,label!=cat",
        "time<2026-01-01".
    older_than
        An age: 90d, 12h, 6w.
    keep_days
        The same in days.
    dry_run
        Only say what would be deleted.
    """
    if keep_days is not None:
        if older_than is not None:
            raise SelfReminderError("--older-than and --keep-days say the same: give one of them")
        older_than = f"{keep_days:g}d"
    with watching() as watch:
        found = Store.open(store).delete(
            ids=id, where=where, older_than=older_than, dry_run=dry_run, watch=watch, command=typed()
        )
    show(found, json)
    return 0 if found.remembered or found.held_out else 3


def drift(
    *,
    data: str,
    store: StorePath = STORE,
    alpha: float = 0.01,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> int:
    """Say whether new data differs from all that is held out, and which classes moved. Exit code 3 if it does not.

    It takes no labels: what the current model makes of the inputs is compared, by a permutation test.

    Parameters
    ----------
    data
        Class folders of images, .npz, .csv, .parquet, a saved Hugging Face data set, or package.module:function.
    alpha
        The chance of calling drift what is none.
    """
    with watching() as watch:
        found = Store.open(store).drift(data, alpha=alpha, skip_bad=skip_bad, watch=watch)
    show(found, json)
    return 0 if found.drifted else 3


def export(
    *,
    store: StorePath = STORE,
    version: Whole | None = None,
    onnx: Path | None = None,
    pt2: Path | None = None,
    hf: Path | None = None,
    mlflow: str | None = None,
    name: str | None = None,
    json: Json = False,
) -> None:
    """Write a version as others read it: ONNX, PyTorch's exported program, Hugging Face's layout, an MLflow registry.

    Parameters
    ----------
    version
        Its number; by default the current one.
    onnx
        A file, with the preprocessing; checked to give the same outputs.
    pt2
        The same as PyTorch's exported program.
    hf
        A new folder.
    mlflow
        The address of a registry: http://…, sqlite:///…; the current version becomes champion, others candidate.
    name
        Of the registered model there; by default what [mlflow] in selfreminder.toml says, or model.
    """
    with watching() as watch:
        made = Store.open(store).export(version, onnx=onnx, pt2=pt2, hf=hf, mlflow=mlflow, name=name, watch=watch)
    show(made, json)


def verify(*, store: StorePath = STORE, json: Json = False) -> int:
    """Check every file of every version by its sha256. Exit code 1 if one is not as it was written."""
    opened = Store.open(store)
    problems = opened.verify()
    if json:
        about = {"store": str(store), "versions": opened.numbers, "problems": problems}
        print(json_format.dumps({"results": [about]}))
    else:
        print("\n".join(problems) or f"{store}: good, {len(opened.numbers)} versions, {opened.moves[-1].to} is current")
    return 1 if problems else 0
