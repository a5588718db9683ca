"""`selfreminder list`: every name that a command takes, with one line each."""

import json as json_format
from collections.abc import Callable
from typing import Any

from selfreminder import benchmarks, methods, selection
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.factories import DATA, MODELS, installed
from selfreminder.benchmarks import MODEL_NAMES, SCALES, SCENARIOS
from selfreminder.cli.terminal import Json, print_rows
from selfreminder.experiment.catalogue import benchmark, method_facts, selection_summary


def _list_installed(group: str) -> dict[str, str]:
    return {name: f"a function of an installed package, {point.value}" for name, point in installed(group).items()}


def _summarize(find: Callable[[str], Any], name: str) -> str:
    """Give one line about a method or a benchmark; of an installed package's that cannot be loaded, why."""
    try:
        return find(name).summary
    except SelfReminderError as error:
        return str(error)


def show(*, json: Json = False) -> None:
    """List methods, benchmarks, selections, scenarios, models and scales.

    Parameters
    ----------
    json
        Print JSON.
    """
    names = {
        "methods": {name: _summarize(method_facts, name) for name in methods.names()},
        "benchmarks": {name: _summarize(benchmark, name) for name in benchmarks.names()},
        "selections": {name: selection_summary(name) for name in selection.names()},
        "scenarios": SCENARIOS,
        "models": MODEL_NAMES | _list_installed(MODELS),
        "data": _list_installed(DATA),
        "scales": SCALES,
    }
    if json:
        results = [
            {"kind": kind, "name": name, "summary": text}
            for kind, group in names.items()
            for name, text in group.items()
        ]
        print(json_format.dumps({"results": results}, indent=1))
        return
    for kind, group in names.items():
        if group:
            print_rows(kind.capitalize(), [(name, text) for name, text in group.items()])
