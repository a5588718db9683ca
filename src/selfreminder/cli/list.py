"""`selfreminder list`: every name that a command takes, with one line each."""

import json as json_format

from selfreminder import selection
from selfreminder.benchmarks import SCALES
from selfreminder.cli.terminal import print_rows
from selfreminder.experiment.catalogue import read_catalogue, selection_summary


def show(*, json: bool = False) -> None:
    """List methods, benchmarks, selections and scales.

    Parameters
    ----------
    json
        Print JSON.
    """
    known = read_catalogue()
    names = {
        "methods": {name: facts.summary for name, facts in known.methods.items()},
        "benchmarks": {name: facts.summary for name, facts in known.benchmarks.items()},
        "selections": {name: selection_summary(name) for name in selection.names()},
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
        print_rows(kind.capitalize(), [(name, text) for name, text in group.items()])
