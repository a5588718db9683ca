"""A comparison as one HTML page that needs nothing beside it: the answer, tables, charts, and how to redo it."""

import re
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder._base.sizes import show_bytes
from selfreminder.experiment.catalogue import method_facts, references
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.metrics import t_interval, task_average
from selfreminder.report.curves import Estimate
from selfreminder.report.findings import Entry, Findings
from selfreminder.report.html.blocks import document, note, number, panel, plot, section, table, warning
from selfreminder.report.html.markup import Child, decimal, element
from selfreminder.report.settings import redo_block, settings_block
from selfreminder.report.svg.charts import Series, heat_scale, heatmap, legend, line_chart, swatch

_SHORT = 20
"""letters of a name that is not broken at its hyphens"""
_MEASURES: dict[str, tuple[Callable[[Entry], Estimate | None], str]] = {
    "Backward transfer": (
        lambda entry: entry.result.backward_transfer,
        "what learning later tasks has added to the accuracy on earlier ones.",
    ),
    "Forward transfer": (
        lambda entry: entry.result.forward_transfer,
        "accuracy on a task just before it is learned, above that of untrained weights.",
    ),
    "Negative flips": (
        lambda entry: entry.result.negative_flips,
        "share of old test items that were right when learned and are wrong at the end.",
    ),
    "Intransigence": (
        lambda entry: entry.result.intransigence,
        "how much worse a new task is learned than by joint training.",
    ),
}


def comparison_page(found: Findings) -> str:
    """The page of a comparison, as far as it has come. The same records give the same bytes."""
    *others, last = dict.fromkeys(experiment.benchmark for experiment in found.experiments)
    benchmarks = f"{', '.join(others)} and {last}" if others else last
    scale = found.redo and found.redo.scale
    title = f"{benchmarks} at scale {scale}" if scale else benchmarks
    streams = found.streams
    first = answer(found) if len(streams) == 1 else element("p", _no_answer(streams), class_="answer")
    blocks: list[Element | None] = [element("header", element("h1", title), first, status(found), *_warnings(found))]
    if len(streams) == 1:
        blocks += [*_stream_blocks(found), progress_block(found), settings_block(found)]
    else:
        blocks.append(overview_block(streams))
        blocks += [stream_block(name, each) for name, each in streams.items() if each.entries]
        blocks.append(progress_block(found))
    blocks.append(redo_block(found))
    made = f"Made by selfreminder {__version__} from the records of {_count(len(found.runs), 'run')}."
    blocks.append(element("footer", note(made)))
    return document(title, [block for block in blocks if block is not None])


def overview_block(streams: Mapping[str, Findings]) -> Element:
    """Where runs learned different tasks: what is best on which, with links to their blocks."""
    rows: list[list[Child]] = []
    for name, found in streams.items():
        done = f"{found.done} of {len(found.experiments)}"
        if not found.entries:
            rows.append([name, "–", "–", done])
            continue
        best = next((entry for entry in found.entries if entry.method not in references()), found.entries[0])
        link = element("a", name, href=f"#{_id(name)}")
        rows.append([link, _named(best), number(best.result.task_average), done])
    made = table(["Stream", "Best", "Task average", "Runs done"], rows, "On test data", words=("Best",))
    return section("Streams of tasks", made)


def stream_block(name: str, found: Findings) -> Element:
    """All that is found of the runs that learned the same tasks."""
    made = section(name, answer(found), *_stream_blocks(found), settings_block(found))
    made.set("id", _id(name))
    made.set("class", "stream")
    return made


def answer(found: Findings) -> Element:
    """What came out, in one sentence: the best method, fine-tuning, joint training."""
    if not found.entries:
        return element("p", "No run is done yet.", class_="answer")
    bounds = [entry for entry in found.entries if entry.method in references()]
    best, *others = [entry for entry in found.entries if entry not in bounds] or bounds
    plain: dict[str, Entry] = {}
    for entry in others:
        if method_facts(entry.method).is_fine_tuning:
            plain.setdefault(entry.method, entry)
    named = list(plain.values())
    name = f"Fine-tuning by {best.name}" if method_facts(best.method).is_fine_tuning else best.name
    tasks = _count(len(best.result.average_curve), "task")
    said: list[Child] = [
        element("strong", name, class_="short" if len(name) < _SHORT else None),
        " keeps an accuracy of ",
        _mean(best),
        f" over {tasks}",
    ]
    nearest = next((entry for entry in others if not method_facts(entry.method).is_fine_tuning), None)
    if method_facts(best.method).is_fine_tuning and nearest is not None:
        said += [f"; the best that is not fine-tuning, {nearest.name}, ", _mean(nearest)]
        named.insert(0, nearest)
    for place, entry in enumerate(plain.values()):
        said += ["; fine-tuning by " if place == 0 else ", by ", f"{entry.name} ", _mean(entry)]
    if bounds and best not in bounds:
        said += ["; joint training on all data, ", _mean(bounds[0])]
    seeds = _seeds(found.entries)
    if named and _within_chance(best, named[0]):
        seeds += ", which do not tell the first two apart"
    first = "So far, " if found.done < len(found.experiments) else None
    return element("p", first, *said, f"; {seeds}.", class_="answer")


def status(found: Findings) -> Element:
    """How many runs are done."""
    done, total = found.done, len(found.experiments)
    text = f"All {total} runs are done." if total > 1 else "Its one run is done."
    if done < total:
        are = "is" if done == 1 else "are"
        text = f"{done} of {_count(total, 'run')} {are} done: this page shows {'it' if done == 1 else 'those'}."
    if not done:
        text = f"{len(found.runs)} of {_count(total, 'run')} {'has' if len(found.runs) == 1 else 'have'} begun."
    if found.failures:
        text += f" {len(found.failures)} failed: see below."
    return element("p", text, class_="status")


def results_block(entries: Sequence[Entry], swatches: bool = True) -> Element:
    """The table of results, each with its look in the charts."""
    columns: dict[str, Callable[[Entry], Element | str]] = {
        "Method": _named if swatches else (lambda entry: entry.name),
        "Task average": lambda entry: number(entry.result.task_average),
        "First task": lambda entry: number(entry.result.first_task),
        "Forgetting": lambda entry: number(entry.result.forgetting),
        "ρ": lambda entry: number(entry.result.rho),
        "Bytes kept": lambda entry: show_bytes(entry.result.bytes),
        "Seeds": lambda entry: str(entry.result.seeds),
    }
    meaning = (
        "Task average: accuracy over all tasks after the last one. First task: accuracy on it after the last one. "
        "Forgetting: how far old tasks have fallen from their best. Bytes kept: what the method carries to the next "
        "task beside the model."
    )
    if any(entry.result.rho for entry in entries):
        meaning += " ρ: 0 is as good as joint training, −1 as guessing."
    else:
        del columns["ρ"]
    if len({entry.result.seeds for entry in entries}) == 1:
        del columns["Seeds"]
    rows = [[cell(entry) for cell in columns.values()] for entry in entries]
    made = table(list(columns), rows, f"On test data, {_mean_of(entries)}")
    return section("Results", made, note(meaning))


def accuracy_block(entries: Sequence[Entry]) -> Element:
    """The paper's two panels."""
    first = _series(entries, [entry.result.first_curve for entry in entries])
    average = _series(entries, [entry.result.average_curve for entry in entries])
    panels = [
        panel(heading, _chart(series, f"Test accuracy {heading.lower()}", "Test accuracy", (0.0, 1.0)))
        for heading, series in (("On the first task", first), ("On all tasks so far", average))
    ]
    return section("Accuracy while tasks are learned", plot(panels, legend(first), _errors_note(entries)))


def ratio_block(entries: Sequence[Entry]) -> Element | None:
    """The forgetting ratio ρ after each task; None where no method has one."""
    drawn = [entry for entry in entries if entry.method not in references() and any(entry.result.rho_curve)]
    if not drawn:
        return None
    series = _series(drawn, [entry.result.rho_curve for entry in drawn])
    made = panel("After each task", _chart(series, "Forgetting ratio ρ", "ρ (0: as joint training)"))
    return section("Forgetting ratio", plot([made], legend(series), _errors_note(drawn)))


def matrices_block(entries: Sequence[Entry]) -> Element:
    """The accuracy matrix of each method."""
    panels = []
    for entry in entries:
        matrix = entry.matrix
        tasks = [str(task + 1) for task in range(len(matrix))]
        chart = heatmap(
            matrix,
            label=f"Test accuracy of {entry.name} on each task after each task",
            rows=tasks,
            columns=tasks,
            row_title="After task",
            column_title="On task",
        )
        average = element("span", decimal(entry.result.task_average.mean), class_="value")
        panels.append(panel(element("span", _swatch(entry), entry.name, average), chart))
    text = (
        f"Test accuracy, {_mean_of(entries, error=False)}. Down a column: how one task fares while others are learned. "
        "The last row is where it ends; its mean stands beside the name."
    )
    return section("Each task after each task", note(text), heat_scale(), plot(panels, kind="maps"))


def measures_block(entries: Sequence[Entry]) -> Element | None:
    """The measures that the first table leaves out; None with a single task."""
    shown = {name: value for name, (value, _) in _MEASURES.items() if any(map(value, entries))}
    if not shown:
        return None
    rows = [[_named(entry), *(number(value(entry)) for value in shown.values())] for entry in entries]
    made = table(["Method", *shown], rows, f"On test data, {_mean_of(entries)}")
    return section("More measures", made, note(" ".join(f"{name}: {_MEASURES[name][1]}" for name in shown)))


def progress_block(found: Findings) -> Element | None:
    """Where the runs stand that are not done; None if all are."""
    waiting = [(run.experiment, len(run.tasks)) for run in found.runs if not run.done]
    waiting += [(experiment, 0) for experiment in found.left if experiment.key in found.failures]
    rows = [
        [each.method, str(each.seed), f"{tasks} of {each.tasks}", found.failures.get(each.key, "")]
        for each, tasks in waiting
    ]
    headings = ["Method", "Seed", "Tasks learned", *(["Failed"] if found.failures else [])]
    rows = [row[: len(headings)] for row in rows]
    made = table(headings, rows, "Runs that have begun and are not done", words=("Failed",)) if rows else None
    left = [f"{each.method} seed {each.seed}" for each in found.left if each.key not in found.failures]
    more = note(f"Not begun: {', '.join(left)}.") if left else None
    return section("Still to do", made, more) if rows or left else None


def _stream_blocks(found: Findings) -> list[Element | None]:
    made = (results_block, accuracy_block, ratio_block, matrices_block, measures_block)
    return [block(found.entries) for block in made] if found.entries else []


def _no_answer(streams: Mapping[str, Findings]) -> str:
    return f"These runs learned {len(streams)} different streams of tasks: each has an answer of its own."


def _id(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _warnings(found: Findings) -> list[Element]:
    said = []
    if any(experiment.has_generated_data for experiment in found.experiments):
        said.append(warning("Made-up images: this shows that the command works, not how methods compare."))
    if found.redo and found.redo.comparison and found.redo.comparison.untuned:
        said.append(warning(join_untuned(found.redo.comparison.untuned)))
    if found.redo and found.redo.papers_scale:
        command = f"{found.redo.command} --draw-only --out"
        said.append(warning(f"The paper's figures of these runs, and its claims: {command}, with the folder's name."))
    return said


def _chart(series: Sequence[Series], what: str, y_title: str, limits: tuple[float, float] | None = None) -> Element:
    label = f"{what} against tasks learned, of {', '.join(each.name for each in series)}"
    return line_chart(series, label=label, x_title="Tasks learned", y_title=y_title, limits=limits, whole=True)


def _series(entries: Sequence[Entry], curves: Sequence[Sequence[Estimate | None]]) -> list[Series]:
    return [
        Series(entry.name, entry.colour, entry.marker, range(1, len(curve) + 1), curve)
        for entry, curve in zip(entries, curves)
    ]


def _swatch(entry: Entry) -> Element:
    return swatch(Series(entry.name, entry.colour, entry.marker, (), ()))


def _named(entry: Entry) -> Element:
    return element("span", _swatch(entry), entry.name)


def _mean(entry: Entry) -> Element:
    return element("strong", decimal(entry.result.task_average.mean))


def _within_chance(one: Entry, other: Entry) -> bool:
    """Whether the seeds that both have leave it open which is better, at 95 % confidence; False with one seed."""
    averages = [{run.experiment.seed: task_average(run.test)[-1] for run in entry.runs} for entry in (one, other)]
    paired = sorted(averages[0].keys() & averages[1].keys())
    if len(paired) < 2:
        return False
    mean, half_width = t_interval([averages[0][seed] - averages[1][seed] for seed in paired])
    return half_width is not None and half_width >= abs(mean)


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number}\N{NO-BREAK SPACE}{what}s"


def _seeds(entries: Sequence[Entry]) -> str:
    counts = [entry.result.seeds for entry in entries]
    return (
        _count(max(counts), "seed")
        if min(counts) == max(counts)
        else f"{min(counts)} to {max(counts)}\N{NO-BREAK SPACE}seeds"
    )


def _mean_of(entries: Sequence[Entry], error: bool = True) -> str:
    seeds = _seeds(entries)
    return seeds if seeds == "one seed" else f"mean {'± standard error ' if error else ''}over {seeds}"


def _errors_note(entries: Sequence[Entry]) -> Element | None:
    seeds = _seeds(entries)
    return None if seeds == "one seed" else note(f"Mean over {seeds}, with one standard error to either side.")
