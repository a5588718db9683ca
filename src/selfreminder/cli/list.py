"""`selfreminder list`: every name that a command takes, with one line each."""

import json as json_format

from selfreminder import benchmarks, methods, selection
from selfreminder._base.factories import DATA, MODELS, installed
from selfreminder.benchmarks import MODEL_NAMES, SCALES, SCENARIOS
from selfreminder.cli.terminal import Json, print_rows
from selfreminder.experiment.catalogue import benchmark, method_facts, selection_summary


def _list_installed(group: str) -> dict[str, str]:
    return {name: f"a function of an installed package, {point.value}" for name, point in installed(group).items()}


def show(*, json: Json = False) -> None:
    """List methods, benchmarks, selections, scenarios, models and scales.

    Parameters
    ----------
    json
        Print JSON.
    """
    names = {
        "methods": {name: method_facts(name).summary for name in methods.names()},
        "benchmarks": {name: benchmark(name).summary for name in benchmarks.names()},
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
