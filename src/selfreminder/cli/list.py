"""`selfreminder list`: every name that a command takes, with one line each."""

import json as json_format

from selfreminder import methods, selection
from selfreminder.benchmarks.catalogue import BENCHMARKS, SCALES
from selfreminder.cli.tables import print_rows


def show(*, json: bool = False) -> None:
    """List methods, benchmarks, selections and scales.

    Parameters
    ----------
    json
        Print JSON.
    """
    names = {
        "methods": {name: methods.summary(name) for name in methods.names()},
        "benchmarks": {name: benchmark.summary for name, benchmark in BENCHMARKS.items()},
        "selections": {name: selection.summary(name) for name in selection.names()},
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
