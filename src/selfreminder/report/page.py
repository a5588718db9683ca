"""A comparison as one HTML page that needs nothing beside it: the answer, tables, charts, and how to redo it."""

import re
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder._base.sizes import show_bytes
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.metrics import t_interval
from selfreminder.report.charts import heat_scale, heatmap, legend, line_chart, swatch
from selfreminder.report.folder_results import FolderResults
from selfreminder.report.html import decimal, document, element, note, number, panel, plot, section, table, warning
from selfreminder.report.lead import lead_block
from selfreminder.report.panels import RHO, HeatPanel, LinePanel, accuracy_panels, cost_panels, steps_panel, trace
from selfreminder.report.results import (
    Result,
    count_seeds,
    describe_evaluation,
    describe_other_code,
    describe_over_budget,
    describe_unlearned,
    describe_unseen_moments,
)
from selfreminder.report.settings import redo_block, settings_block

_MOST_TASKS = 100
"""of an accuracy matrix that is shown"""
_SHORT = 20
"""letters of a name that is not broken at its hyphens"""
_MEASURES = {
    "Backward transfer": "what learning later tasks has added to the accuracy on earlier ones.",
    "Forward transfer": "accuracy on a task just before it is learned, above that of untrained weights.",
    "Negative flips": "share of old test items that were right when learned and are wrong at the end.",
    "Intransigence": "how much worse a new task is learned than by joint training.",
}
"""measures that the first table leaves out; in small letters with _ they are properties of a result"""


def render_comparison(found: FolderResults) -> str:
    """Write the HTML page of a comparison, as far as it has come. The same records give the same bytes."""
    *others, last = dict.fromkeys(experiment.benchmark for experiment in found.experiments)
    benchmarks = f"{', '.join(others)} and {last}" if others else last
    scale = found.origin.scale
    title = f"{benchmarks} at scale {scale}" if scale else benchmarks
    streams = found.streams
    if len(streams) == 1:
        answer = answer_block(found)
        blocks = [*_stream_blocks(found), progress_block(found), settings_block(found)]
    else:
        said = f"These runs learned {len(streams)} different streams of tasks: each has an answer of its own."
        answer = element("p", said, class_="answer")
        of_streams = [stream_block(name, each) for name, each in streams.items() if each.results]
        blocks = [overview_block(streams), *of_streams, progress_block(found)]
    header = element("header", element("h1", title), answer, status_block(found), *_warnings(found))
    made = f"Made by selfreminder {__version__} from the records of {_count(len(found.runs), 'run')}."
    blocks = [header, *blocks, redo_block(found), element("footer", note(made))]
    return document(title, [block for block in blocks if block is not None])


def overview_block(streams: Mapping[str, FolderResults]) -> Element:
    """Say, where runs learned different tasks, what is best on which, with links to their blocks."""
    rows: list[list[Element | str]] = []
    for name, found in streams.items():
        done = f"{found.done} of {len(found.experiments)}"
        if not found.results:
            rows.append([name, "–", "–", done])
            continue
        best = next((result for result in found.results if not result.is_reference), found.results[0])
        link = element("a", name, href=f"#{_id(name)}")
        rows.append([link, _named(best), number(best.task_average), done])
    made = table(["Stream", "Best", "Task average", "Runs done"], rows, "On test data", words=("Best",))
    return section("Streams of tasks", made)


def stream_block(name: str, found: FolderResults) -> Element:
    """Show all results of runs that learned the same tasks."""
    made = section(name, answer_block(found), *_stream_blocks(found), settings_block(found))
    made.set("id", _id(name))
    made.set("class", "stream")
    return made


def answer_block(found: FolderResults) -> Element:
    """Say what came out in one sentence: the best method, fine-tuning, joint training."""
    if not found.results:
        return element("p", "No run is done yet.", class_="answer")
    bounds = [result for result in found.results if result.is_reference]
    best, *others = [result for result in found.results if result not in bounds] or bounds
    plain: dict[str, Result] = {}
    for result in others:
        if result.is_fine_tuning:
            plain.setdefault(result.method, result)
    named = list(plain.values())
    name = f"Fine-tuning by {best.name}" if best.is_fine_tuning else best.name
    tasks = _count(len(best.average_curve), "task")
    said: list[Element | str] = [
        element("strong", name, class_="short" if len(name) < _SHORT else None),
        " keeps an accuracy of ",
        _mean(best),
        f" over {tasks}",
    ]
    nearest = next((result for result in others if not result.is_fine_tuning), None)
    if best.is_fine_tuning and nearest is not None:
        said += [f"; the best that is not fine-tuning, {nearest.name}, ", _mean(nearest)]
        named.insert(0, nearest)
    for place, result in enumerate(plain.values()):
        said += ["; fine-tuning by " if place == 0 else ", by ", f"{result.name} ", _mean(result)]
    if bounds and best not in bounds:
        said += ["; joint training on all data, ", _mean(bounds[0])]
    seeds = _seeds(found.results)
    if named and _within_chance(best, named[0]):
        seeds += ", which do not tell the first two apart"
    first = "So far, " if found.done < len(found.experiments) else None
    return element("p", first, *said, f"; {seeds}.", class_="answer")


def status_block(found: FolderResults) -> Element:
    """Say how many runs are done."""
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


def results_block(results: Sequence[Result], swatches: bool = True) -> Element:
    """Show the table of results, each with its look in the charts."""
    columns: dict[str, Callable[[Result], Element | str]] = {
        "Method": _named if swatches else (lambda result: result.name),
        "Task average": lambda result: number(result.task_average),
        "First task": lambda result: number(result.first_task),
        "Forgetting": lambda result: number(result.forgetting),
        "ρ": lambda result: number(result.rho),
        "Bytes kept": lambda result: show_bytes(result.bytes),
        "Seeds": lambda result: str(result.seeds),
    }
    meaning = (
        "Task average: accuracy over all tasks after the last one. First task: accuracy on it after the last one. "
        "Forgetting: how far old tasks have fallen from their best. Bytes kept: what the method carries to the next "
        "task beside the model."
    )
    if any(result.rho for result in results):
        meaning += " ρ: 0 is as good as joint training, −1 as guessing."
    else:
        del columns["ρ"]
    if len({result.seeds for result in results}) == 1:
        del columns["Seeds"]
    rows = [[cell(result) for cell in columns.values()] for result in results]
    made = table(list(columns), rows, f"On test data, {_mean_of(results)}")
    return section("Results", made, note(meaning))


def picture_block(results: Sequence[Result]) -> Element:
    """Show the answer as a picture."""
    errors = "" if _seeds(results) == "one seed" else " Bars are one standard error to either side."
    said = "Beside each name: its accuracy over all tasks in the end, and the bytes that it carries to the next task."
    return lead_block(results, f"{said} {_mean_of(results, error=False).capitalize()}.{errors}")


def first_task_block(results: Sequence[Result]) -> Element:
    """Show how the first task fares."""
    first, _ = accuracy_panels(results)
    made = _over_tasks("After each task", "Test accuracy on the first task", first)
    return section("The first task", plot([made], legend(first.series), _errors_note(results)))


def steps_block(results: Sequence[Result]) -> Element | None:
    """Show how accuracy goes while tasks are learned; None where nobody looked meanwhile."""
    if (shown := steps_panel(results)) is None:
        return None
    made = _over(shown.title, "Average accuracy of the tasks so far against steps", shown)
    said = ", ".join(f"{result.name} {decimal(result.anytime.mean)}" for result in results if result.anytime)
    return section("While it learns", plot([made], legend(shown.series), note(f"Mean over all moments: {said}.")))


def ratio_block(results: Sequence[Result]) -> Element | None:
    """Show the forgetting ratio ρ after each task; None where no method has one."""
    drawn = [result for result in results if not result.is_reference and any(result.rho_curve)]
    if not drawn:
        return None
    shown = LinePanel("After each task", [trace(each, each.rho_curve) for each in drawn], y_title=RHO, limits=None)
    made = _over_tasks(shown.title, "Forgetting ratio ρ", shown)
    return section("Forgetting ratio", plot([made], legend(shown.series), _errors_note(drawn)))


def matrices_block(results: Sequence[Result]) -> Element:
    """Show the accuracy matrix of each method, unless it has more cells than anybody could tell apart."""
    heading, panels = "Each task after each task", []
    if (count := len(results[0].average_curve)) > _MOST_TASKS:
        return section(
            heading, note(f"Of {count} tasks, nobody could tell them apart: `selfreminder.records` has all.")
        )
    for result in results:
        tasks = [str(task + 1) for task in range(len(result.average_curve))]
        shown = HeatPanel(result.name, result.matrix, tasks, tasks, "After task", "On task")
        chart = heatmap(shown, f"Test accuracy of {result.name} on each task after each task")
        average = element("span", decimal(result.task_average.mean), class_="value")
        panels.append(panel(element("span", _swatch(result), result.name, average), chart))
    text = (
        f"Test accuracy, {_mean_of(results, error=False)}. Down a column: how one task fares while others are learned. "
        "The last row is where it ends; its mean stands beside the name."
    )
    return section(heading, note(text), heat_scale(), plot(panels, kind="maps"))


def costs_block(results: Sequence[Result]) -> Element | None:
    """Show the accuracy against what it costs, in bytes and in seconds; None where nothing of it is known."""
    panels = cost_panels(results)
    if not panels:
        return None
    drawn = [
        _over(shown.title, f"Test accuracy over all tasks against {shown.x_title.lower()}", shown) for shown in panels
    ]
    columns: dict[str, Callable[[Result], Element | str]] = {
        "Method": _named,
        "Bytes kept": lambda result: show_bytes(result.bytes),
        "Passes": lambda result: "–" if result.passes is None else f"{result.passes.mean:.2f}",
        "Steps": lambda result: "–" if result.steps is None else f"{result.steps.mean:,.0f}",
        "Seconds": lambda result: "–" if result.seconds is None else f"{result.seconds.mean:,.3g}",
        "Peak memory": lambda result: "–" if result.peak_bytes is None else show_bytes(result.peak_bytes),
        "Calibration error": lambda result: number(result.calibration_error),
    }
    rows = [[cell(result) for cell in columns.values()] for result in results]
    made = table(list(columns), rows, f"What each method costs, {_mean_of(results, error=False)}")
    meaning = (
        "Passes: items that went forward through the network, for each new one in training: fine-tuning has 1. "
        "Seconds: to learn all tasks, without evaluation, on a machine that may have had other work. Peak memory: of "
        "the whole process while it learned a task, data included. Calibration error: how far confidence and accuracy "
        "lie apart."
    )
    return section("What it costs", plot(drawn, legend(panels[0].series), _errors_note(results)), made, note(meaning))


def measures_block(results: Sequence[Result]) -> Element | None:
    """Show the measures that the first table leaves out; None with a single task."""
    values = {name: [getattr(result, name.lower().replace(" ", "_")) for result in results] for name in _MEASURES}
    values = {name: column for name, column in values.items() if any(column)}
    if not values:
        return None
    rows = [[_named(result), *map(number, row)] for result, row in zip(results, zip(*values.values()))]
    made = table(["Method", *values], rows, f"More measures on test data, {_mean_of(results)}")
    return section("More measures", made, note(" ".join(f"{name}: {_MEASURES[name]}" for name in values)))


def progress_block(found: FolderResults) -> Element | None:
    """Say where the runs stand that are not done; None if all are."""
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


def _stream_blocks(found: FolderResults) -> list[Element | None]:
    made = (
        picture_block,
        results_block,
        first_task_block,
        steps_block,
        ratio_block,
        matrices_block,
        measures_block,
        costs_block,
    )
    said = [
        describe_evaluation(found.experiments[0].evaluate),
        describe_over_budget(found.results),
        describe_unseen_moments(found.results),
        describe_unlearned(found.results),
        describe_other_code(found.results),
    ]
    first = [warning(each) for each in said if each is not None]
    return [*first, *(block(found.results) for block in made)] if found.results else []


def _id(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _warnings(found: FolderResults) -> list[Element]:
    said = []
    if any(experiment.has_generated_data for experiment in found.experiments):
        said.append(warning("Made-up data: this shows that the command works, not how methods compare."))
    if found.origin.comparison and found.origin.comparison.untuned:
        said.append(warning(join_untuned(found.origin.comparison.untuned)))
    if redraw := found.origin.redraw:
        text = f"The paper's figures of these runs, and its claims: {redraw} --out, with the folder's name."
        said.append(warning(text))
    return said


def _over_tasks(heading: str, what: str, shown: LinePanel) -> Element:
    return _over(heading, f"{what} against tasks learned", shown)


def _over(heading: str, what: str, shown: LinePanel) -> Element:
    return panel(heading, line_chart(shown, f"{what}, of {', '.join(each.name for each in shown.series)}"))


def _swatch(result: Result) -> Element:
    return swatch(trace(result, ()))


def _named(result: Result) -> Element:
    return element("span", _swatch(result), result.name)


def _mean(result: Result) -> Element:
    return element("strong", decimal(result.task_average.mean))


def _within_chance(one: Result, other: Result) -> bool:
    """Tell whether the seeds of both leave it open which is better, at 95 % confidence; False with one seed."""
    mean, half_width = t_interval(one.leads(other) or [0.0])
    return half_width is not None and half_width >= abs(mean)


def _count(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number}\N{NO-BREAK SPACE}{what}s"


def _seeds(results: Sequence[Result]) -> str:
    return count_seeds(results).replace(" seeds", "\N{NO-BREAK SPACE}seeds")


def _mean_of(results: Sequence[Result], error: bool = True) -> str:
    seeds = _seeds(results)
    return seeds if seeds == "one seed" else f"mean {'± standard error ' if error else ''}over {seeds}"


def _errors_note(results: Sequence[Result]) -> Element | None:
    seeds = _seeds(results)
    return None if seeds == "one seed" else note(f"Mean over {seeds}, with one standard error to either side.")
