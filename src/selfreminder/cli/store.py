"""`selfreminder init`, `update`, `check`: a deployed model's store, and what may become its next version."""

import json as json_format
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from selfreminder._base.atomic import write_text
from selfreminder.cli import COMMAND_LINE
from selfreminder.cli.terminal import Flag, Json, Whole
from selfreminder.store import Store
from selfreminder.store.judgement import Judgement
from selfreminder.store.progress import Progress as Step
from selfreminder.store.progress import Watch
from selfreminder.training import StoppedError

StorePath = Annotated[Path, Parameter(help="The store's folder; selfreminder.toml is beside it.")]
Data = Annotated[
    str | None,
    Parameter(
        help="Class folders of images, .npz, .csv, .parquet, a saved Hugging Face data set, or package.module:function."
    ),
]
SkipBad = Annotated[bool, Parameter(negative="", help="Leave out files and rows that cannot be read.")]
STORE = Path("store")
_EXIT = {"promoted": 0, "refused": 1, "nothing": 3}
_SAY_EVERY = 5.0


def init(
    *,
    store: StorePath = STORE,
    model: str | None = None,
    weights: Path | None = None,
    data: Data = None,
    labels: str | None = None,
    label: str | None = None,
    preprocess: str | None = None,
    augment: str | None = None,
    inputs: str | None = None,
    categories: str | None = None,
    text: str | None = None,
    size: Whole | None = None,
    slices: str | None = None,
    new: str | None = None,
    budget: str | None = None,
    max_age: str | None = None,
    lr: float | None = None,
    epochs: Whole | None = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Make a store of a deployed model: version 1, a few of its data remembered, some held out to judge by.

    What is said here goes into selfreminder.toml beside the store, for later commands; it is yours to edit.

    Parameters
    ----------
    model
        package.module:factory (a function without arguments), timm:NAME or hf:FOLDER.
    weights
        Safetensors, or a .pt with the state dict.
    data
        What is left of the old data, labelled or not; best such that the model was not trained on.
    labels
        The names of the model's outputs, in order, with commas; where labels in data are names.
    label
        The column that has the labels.
    preprocess
        package.module:function, from data as it comes in to what the model takes.
    augment
        The same while training.
    inputs
        Of a table: the columns that the model takes, in order, with commas.
    categories
        Of a table: columns whose values become codes.
    text
        Of a table: columns whose words are counted.
    size
        Of a side, to which images are resized.
    slices
        Metadata columns of whose values each is judged by itself too, with commas.
    new
        Where update looks for data if it is not told.
    budget
        Bytes of the memory, such as 5MB.
    max_age
        After which items are neither remembered nor held out any more, such as 180d.
    lr
        Step size of training; without it, the better of two.
    epochs
        Of training; without it, two, or of few data as many as make 500 steps, up to 20.
    """
    settings: dict[str, dict[str, Any]] = {
        "model": {"labels": _split(labels)},
        "data": {
            "new": new,
            "label": label,
            "inputs": _split(inputs),
            "categories": _split(categories),
            "text": _split(text),
            "size": size,
            "preprocess": preprocess,
            "augment": augment,
            "slices": _split(slices),
        },
        "memory": {"budget": budget, "max_age": max_age},
        "train": {"lr": lr, "epochs": epochs},
    }
    with watching() as watch:
        made = Store.init(
            store, data, model=model, weights=weights, settings=settings, skip_bad=skip_bad, watch=watch,
            command=typed(),
        )  # fmt: skip
    show(made, json)
    if not json:
        print(f"{made.config}: yours to edit; then: selfreminder update --data …")


def update(
    *,
    store: StorePath = STORE,
    data: Data = None,
    grow: Flag = False,
    dry_run: Flag = False,
    if_drifted: Flag = False,
    skip_bad: SkipBad = False,
    junit: Path | None = None,
    markdown: Path | None = None,
    json: Json = False,
) -> int:
    """Train on new data with a reminder of the old, and promote what the gate passes; else all stays as it was.

    Interrupted or killed, the same command goes on where it was. Exit codes: 0 promoted, 1 refused by the gate (the
    candidate is kept aside), 2 a mistake, 3 nothing to do.

    Parameters
    ----------
    data
        The new data; by default what selfreminder.toml names.
    grow
        Labels may be beyond the model's outputs: its last linear layer is widened.
    dry_run
        Train and judge, but add nothing to the store; the same command without it need not train again.
    if_drifted
        Do nothing unless the data differs from all that is held out; exit code 3 then.
    junit
        Write the gate's checks as JUnit XML to this file.
    markdown
        Write a summary for a pull request to this file.
    """
    opened = Store.open(store)
    try:
        with watching() as watch, stopping() as stop:
            done = opened.update(
                data,
                grow=grow,
                dry_run=dry_run,
                skip_bad=skip_bad,
                if_drifted=if_drifted,
                watch=watch,
                stop=stop,
                command=typed(),
            )
    except StoppedError:
        print(f"Stopped; nothing was changed. To go on: {typed()}", file=sys.stderr)
        return 130
    write_reports(done.judgement, junit, markdown)
    show(done, json)
    return _EXIT[done.outcome]


def check(
    weights: Path,
    *,
    store: StorePath = STORE,
    data: Data = None,
    skip_bad: SkipBad = False,
    junit: Path | None = None,
    markdown: Path | None = None,
    json: Json = False,
) -> int:
    """Hold any weights of the same model to the gate, beside the current version. Exit code 1 if it refuses them.

    Parameters
    ----------
    weights
        Safetensors, or a .pt with the state dict.
    data
        The new, to see what is gained; all of it is judged by.
    junit
        Write the gate's checks as JUnit XML to this file.
    markdown
        Write a summary for a pull request to this file.
    """
    with watching() as watch:
        found = Store.open(store).check(weights, data, skip_bad=skip_bad, watch=watch)
    write_reports(found.judgement, junit, markdown)
    show(found, json)
    return 0 if found.judgement.passes else 1


# What the commands on a store have in common ---------------------------------------------------------------


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["selfreminder", *COMMAND_LINE.get()])


def show(result: Any, json: bool) -> None:
    """Print what a command found, for people or for programs."""
    print(json_format.dumps({"results": [result.to_dict()]}) if json else result)


def write_reports(judgement: Judgement | None, junit: Path | None, markdown: Path | None) -> None:
    """Write what the gate found where that was asked for; where it had nothing to judge, the files say so."""
    found = judgement or Judgement(())
    if junit is not None:
        write_text(junit, found.to_junit())
    if markdown is not None:
        write_text(markdown, found.to_markdown() if judgement else "### Gate: nothing to do\n")


@contextmanager
def watching() -> Iterator[Watch]:
    """Show how far something is, on standard error: a bar on a terminal, else a line now and then."""
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield _say_now_and_then()
        return
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda step: shown.update(task, description=step.doing, completed=step.fraction)


def _say_now_and_then() -> Watch:
    said = time.monotonic()

    def say(step: Step) -> None:
        nonlocal said
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            print(f"{step.doing}, {step.fraction:.0%}", file=sys.stderr, flush=True)

    return say


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM end training after the step that it is in, when its state is saved."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:  # twice: at once
            raise KeyboardInterrupt
        asked = True

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if asked and sys.exc_info()[0] is None:
            raise KeyboardInterrupt


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
