"""The paper's figures and claims as one HTML page: what holds, then every figure with its claims and its numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder._base.errors import MemoryFileError
from selfreminder.benchmarks import Scale
from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.memory.file import open_memory
from selfreminder.paper.claims import Verdict
from selfreminder.paper.claims_page import answer, at_a_glance, claim_block, verdicts_block
from selfreminder.paper.figure_results import Drawing, FigureResults
from selfreminder.paper.figures import make_drawing
from selfreminder.report.charts import bar_chart, heat_scale, heatmap, legend, line_chart
from selfreminder.report.findings import Findings
from selfreminder.report.gallery import gallery
from selfreminder.report.html import Child, document, element, note, panel, plot, section, table, warning
from selfreminder.report.page import matrices_block, results_block
from selfreminder.report.panels import BarPanel, HeatPanel, LinePanel
from selfreminder.report.redo import Redo
from selfreminder.report.results import sort_best_first
from selfreminder.report.settings import redo_block, settings_block

_SMALL = (300.0, 190.0)
"""of a chart of bars, of which there are many"""
_PAPER = "J. Wen, Y. Cao, R. Huang: Few-Shot Self Reminder to Overcome Catastrophic Forgetting, 2018, arXiv:1812.00543"
_WITH_OWN_LOOKS = ("memory-sizes", "selection", "bytes")
"""figures in which a colour or a marker is not that of a method"""
_WITH_MATRICES = ("permuted", "nonlinear", "color", "rho", "generative-replay", "mixture")


@dataclass(frozen=True)
class Kept:
    """Items of a memory that can be looked at."""

    path: Path
    run: str
    """whose it is, in words"""


def paper_page(shown: Sequence[FigureResults], verdicts: Sequence[Verdict], kept: Kept | None = None) -> str:
    """The page of all figures, as far as they have come. The same records give the same bytes."""
    scale = shown[0].scale
    title = f"Few-Shot Self Reminder: the paper's figures and claims at scale {scale}"
    wanted = {experiment.key for each in shown for experiment in each.wanted}
    done = {run.experiment.key for each in shown for run in each.runs}
    many = f"All {len(wanted)}" if done == wanted else f"{len(done)} of {len(wanted)}"
    header = element(
        "header",
        element("h1", title),
        element("p", answer(verdicts, scale), class_="answer"),
        at_a_glance(verdicts),
        element("p", f"{many} runs of the figures are done.", class_="status"),
        note(f"The paper: {_PAPER}."),
        _made_up(shown),
    )
    figures = [figure_block(each, [v for v in verdicts if v.figure == each.figure.name]) for each in shown]
    blocks = [header, verdicts_block(verdicts), _scale_block(shown), *figures, _kept_block(kept), _redo_all(shown)]
    made = f"Made by selfreminder {__version__} from the records of {len(done)} runs of the figures"
    if any(not tested.verdict.lacks_runs for verdict in verdicts for tested in verdict.tested):
        made += " and of those that test likely reasons"
    blocks.append(element("footer", note(f"{made}.")))
    return document(title, [block for block in blocks if block is not None])


def _scale_block(shown: Sequence[FigureResults]) -> Element:
    """How much smaller than the paper's the experiments are."""
    scale = shown[0].scale
    names = dict.fromkeys(experiment.benchmark for each in shown for experiment in each.wanted)
    rows = []
    for name in names:
        ours, papers = (_extent(benchmark(name).scales[at]) for at in (scale, "paper"))
        # A figure may have fewer tasks than its scale.
        ours[1] = str(max(run.tasks for each in shown for run in each.wanted if run.benchmark == name))
        rows.append([name, *(a if a == b else f"{a} ({b})" for a, b in zip(ours, papers))])
    headings = ["Benchmark", "Images", "Tasks", "Epochs", "Width", "Kept per class and task"]
    caption = f"Scale {scale}; in brackets what scale paper has, where that differs"
    return section(f"What scale {scale} is", table(headings, rows, caption))


def _extent(scale: Scale) -> list[str]:
    images = "all" if scale.images is None else f"{scale.images:,}"
    return [images, str(scale.tasks), str(scale.epochs), f"{scale.width:g}", str(scale.per_class)]


def figure_block(shown: FigureResults, verdicts: Sequence[Verdict]) -> Element:
    """A figure with its claims, its numbers, its settings, and the command that gives it."""
    name, summary = shown.figure.name, shown.figure.summary
    drawn = make_drawing(shown)
    said: list[Child] = []
    if not shown.runs:
        said.append(note(f"None of its {len(shown.wanted)} runs is here."))
    elif shown.missing:
        are = "is" if shown.missing == 1 else "are"
        said.append(warning(f"{shown.missing} of its {len(shown.wanted)} runs {are} missing."))
    if drawn is not None:
        said.append(_figure(shown, drawn))
    elif shown.runs:
        why = "joint training is less than 5 points above guessing, so that ρ means nothing."
        if not any(line.rho_curve for line in shown.lines if not line.is_reference):
            why = "ρ needs a run of joint training with the same seed."
        said.append(note(f"Nothing to draw: {why}"))
    if verdicts:
        said.append(element("div", *map(claim_block, verdicts), class_="claims"))
    if untuned := shown.figure.untuned(shown.scale):
        said.append(note(join_untuned(untuned)))
    found = _findings(shown)
    if shown.runs:
        said.append(_folded("Numbers", results_block(found.results, swatches=name not in _WITH_OWN_LOOKS)))
        if name in _WITH_MATRICES:
            said.append(_folded("Each task after each task", matrices_block(found.results)))
    said += [_folded("Settings", settings_block(found)), *_content(redo_block(found))]
    made = section(summary[0].upper() + summary[1:], *said)
    made.set("id", f"figure-{name}")
    return made


def _figure(shown: FigureResults, drawn: Drawing) -> Element:
    about = [drawn.note]
    first, seeds = drawn.panels[0], drawn.seeds or shown.seeds
    if isinstance(first, BarPanel):
        about.append(f"Bars are means over images and {seeds}, lines deviations over images to either side.")
    elif seeds != "one seed" and isinstance(first, LinePanel):
        about.append(f"Mean over {seeds}, with one standard error to either side.")
    else:
        about.append("One seed." if seeds == "one seed" else f"Mean over {seeds}.")
    panels = [panel(each.title, _draw(each, f"{shown.figure.summary}, {each.title}")) for each in drawn.panels]
    below = (legend(drawn.legend) if drawn.legend else heat_scale(), note(" ".join(filter(None, about))))
    return plot(panels, *below, kind="panels" if isinstance(first, LinePanel) else "maps")


def _draw(shown: LinePanel | BarPanel | HeatPanel, what: str) -> Element:
    """Draw a panel; `what` begins its name for those who cannot see it."""
    match shown:
        case LinePanel():
            names = ", ".join(dict.fromkeys(series.name for series in shown.series))
            return line_chart(shown, f"{what}: {shown.y_title} against {shown.x_title}, of {names}")
        case BarPanel():
            names = ", ".join(bars.name for bars in shown.bars)
            return bar_chart(shown, f"{what}: {shown.y_title} by {shown.x_title}, {names}", _SMALL)
        case HeatPanel():
            return heatmap(shown, f"{what}: {shown.column_title} by {shown.row_title}")


def _findings(shown: FigureResults) -> Findings:
    """The figure as if it were a comparison, for the blocks of its page."""
    command = f"selfreminder reproduce {shown.figure.name} --scale {shown.scale}"
    keys = {run.experiment.key for run in shown.runs}
    left = tuple(experiment for experiment in shown.wanted if experiment.key not in keys)
    again = Redo(command, shown.figure.comparisons(shown.scale)[0])
    return Findings(shown.runs, left, tuple(sort_best_first(shown.lines)), again, {})


def _folded(title: str, block: Element) -> Element:
    return element("details", element("summary", title), *_content(block), class_="more")


def _content(block: Element) -> list[Element]:
    """What is in a section, without its heading."""
    return list(block)[1:]


def _made_up(shown: Sequence[FigureResults]) -> Element | None:
    names = [each.figure.name for each in shown if each.made_up]
    if not names:
        return None
    return warning(f"Made-up images in {', '.join(names)}: they show that the commands work, not how methods compare.")


def _kept_block(kept: Kept | None) -> Element | None:
    if kept is None:
        return None
    try:
        memory = open_memory(kept.path)
    except MemoryFileError as error:
        return section("What is kept", warning(str(error)))
    return section("What is kept", note(f"Some items of a memory of {kept.run}."), gallery(memory))


def _redo_all(shown: Sequence[FigureResults]) -> Element:
    runs = {run.experiment.key: run for each in shown for run in each.runs}
    counts = Counter(tuple(sorted(run.versions.items())) for run in runs.values())
    versions = [
        note(f"{count} runs with {', '.join(f'{name} {version}' for name, version in used)}.")
        for used, count in counts.most_common()
    ]
    command = element("pre", element("code", f"selfreminder reproduce all --scale {shown[0].scale}"))
    return section("Do it all again", command, *versions)
