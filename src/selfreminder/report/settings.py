"""The part of a page that says what was run, and how to run it again."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from selfreminder.benchmarks import SCALES
from selfreminder.experiment.catalogue import benchmark, method_facts, selection_summary, uses
from selfreminder.experiment.folder import TABLE, show
from selfreminder.experiment.processors import count_processors, describe_mixed
from selfreminder.experiment.records import Records
from selfreminder.experiment.spec import Experiment
from selfreminder.methods import OPTIMIZERS
from selfreminder.report.folder_results import FolderResults
from selfreminder.report.html import Child, element, facts, note, section, table, warning

_HED = "today: as scikit-image computes it since 0.18; 2018: −log(rgb + 2), as when the paper was written"


def settings_block(found: FolderResults) -> Element:
    """Show the settings that the runs share, then those of each method."""
    runs = found.experiments
    scale = found.origin.scale
    width = _values(runs, "width")
    keeping = [run for run in runs if uses(run.method, "per_class")] or runs
    pairs = [
        ("Benchmark", _values(runs, "benchmark"), _one([benchmark(run.benchmark).summary for run in runs])),
        ("Scale", scale or "of its own", SCALES[scale] if scale else ""),
        ("Data", _values(runs, "data"), _one([_images(run) for run in runs])),
        ("Tasks", _values(runs, "tasks"), ""),
        *([("HED", _values(runs, "hed"), _HED)] if {run.benchmark for run in runs} == {"color-cifar10"} else []),
        ("Epochs", _values(runs, "epochs"), "on each task" + (", at most" if runs[0].plateau else "")),
        ("Batch", _values(runs, "batch_size"), "items"),
        ("Network", _one([benchmark(run.benchmark).model for run in runs]), f"{width} × the paper's width"),
        ("Memory", " or ".join(dict.fromkeys(map(_memory, keeping))), ""),
        ("Selection", _values(runs, "select"), _one([selection_summary(run.select.partition(":")[0]) for run in runs])),
        ("Codec", _values(runs, "codec"), f"logits as {_values(runs, 'logit_codec')}"),
        ("Weight decay", _values(runs, "weight_decay"), ""),
        ("Device", _values(runs, "device"), _values(runs, "precision")),
    ]
    rows = [
        [element("span", name, element("small", method_facts(run.method).summary)), *_training_of(run)]
        for name, run in _variants(found).items()
    ]
    headings = ["Method", "Optimiser", "Step size", "λ"]
    if any(run.options for run in runs):
        headings.append("Options")
    caption = "The settings of each method"
    made = table(headings, [row[: len(headings)] for row in rows], caption, words=("Options",))
    return section("Settings", facts(pairs), made)


def redo_block(found: FolderResults) -> Element:
    """Show the command that gave these records, as it was typed, and the versions that gave them."""
    origin = found.origin
    said: list[Child] = []
    if origin.commands:
        said.append(element("pre", element("code", *_whole_options("\n".join(origin.commands)))))
    else:
        said.append(element("p", "The command that made these runs is not stored here: their settings are above."))
    if not origin.gives(found.experiments):
        text = "The table has other strengths, step sizes or the like than these runs: the command takes those."
        said.append(warning(text))
    if origin.with_table:
        said.append(note(f"with {TABLE}, which is beside the runs."))
    if origin.file:
        name, text = origin.file
        said += [note(f"with its file, which is beside the runs as {name}:"), element("pre", element("code", text))]
    counts = count_versions(found.runs)
    for versions, count in counts:
        which = f"{count} of the runs with" if len(counts) > 1 else "Run with"
        said.append(note(f"{which} {versions}."))
    if mixed := describe_mixed(count_processors(run.versions for run in found.runs)):
        said.append(warning(mixed))
    return section("Do it again", *said)


def count_versions(runs: Iterable[Records]) -> list[tuple[str, int]]:
    """Say which versions runs were made with, and how many of them with each; the most come first."""
    # Code is a method's or a benchmark's own; what differs is said where results are shown.
    said = ({k: version for k, version in run.versions.items() if not k.endswith("code")} for run in runs)
    counts = Counter(tuple(sorted(versions.items())) for versions in said)
    return [(", ".join(f"{name} {version}" for name, version in used), n) for used, n in counts.most_common()]


def _whole_options(command: str) -> list[Child]:
    """Keep a command from being broken within the name of an option."""
    parts = re.split(r"((?<= )--\S+)", command)
    return [element("span", part) if part.startswith("--") else part for part in parts]


def _variants(found: FolderResults) -> dict[str, Experiment]:
    """List each method with its settings, by name; those of which no run is done come last."""
    kinds = {result.name: result.experiment for result in found.results}
    seen = {experiment.method for experiment in kinds.values()}
    return kinds | {run.method: run for run in found.experiments if run.method not in seen}


def _values(runs: Sequence[Experiment], name: str) -> str:
    return " or ".join(dict.fromkeys(show(getattr(run, name)) for run in runs))


def _one(texts: Sequence[str]) -> str:
    """Give what holds for all, or nothing."""
    return texts[0] if len(set(texts)) == 1 else ""


def _images(run: Experiment) -> str:
    count = "all training images" if run.images is None else f"{run.images:,} training images"
    count += f" of each of {len(run.data_sets)} data sets" if len(run.data_sets) > 1 else ""
    return f"{count}, {run.validation:.0%} of them held out for validation"


def _memory(run: Experiment) -> str:
    return f"{run.size} and task" if run.per_class is not None else str(run.size)


def _training_of(run: Experiment) -> list[str]:
    """Give a method's optimiser, step size, λ and options, with the defaults filled in."""
    facts = method_facts(run.method)
    optimizer = run.optimizer or facts.optimizer
    step_size = OPTIMIZERS[optimizer] if run.lr is None else run.lr
    used = facts.strength if run.strength is None or facts.strength is None else run.strength
    options = ", ".join(f"{name} {show(value)}" for name, value in run.options.items())
    return [optimizer, show(step_size), "–" if used is None else show(float(used)), options]
