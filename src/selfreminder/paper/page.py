"""The paper's figures and claims as one HTML page: what holds, then every figure with its claims and its numbers."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder._base.errors import MemoryFileError
from selfreminder.benchmarks import Scale
from selfreminder.experiment.catalogue import benchmark
from selfreminder.experiment.folder import Origin
from selfreminder.experiment.tuning.tuned import join_untuned
from selfreminder.memory.file import open_memory
from selfreminder.paper.claim_blocks import (
    at_a_glance,
    claim_block,
    read_again_at_a_glance,
    scales_block,
    verdicts_block,
)
from selfreminder.paper.claims import Verdict, summarize
from selfreminder.paper.figures import make_drawing
from selfreminder.paper.scales import OtherScale
from selfreminder.paper.specs import FigureResults
from selfreminder.report.charts import bar_chart, heat_scale, heatmap, legend, line_chart
from selfreminder.report.folder_results import FolderResults
from selfreminder.report.gallery import gallery
from selfreminder.report.html import Child, document, element, note, panel, plot, section, table, warning
from selfreminder.report.lead import lead_block
from selfreminder.report.page import matrices_block, results_block
from selfreminder.report.panels import BarPanel, Drawing, HeatPanel, LinePanel, Panel
from selfreminder.report.results import sort_best_first
from selfreminder.report.settings import count_versions, redo_block, settings_block

_SMALL = (300.0, 190.0)
"""of a chart of bars, of which there are many"""
_PAPER = "J. Wen, Y. Cao, R. Huang: Few-Shot Self Reminder to Overcome Catastrophic Forgetting, 2018, arXiv:1812.00543"
_WITH_OWN_LOOKS = ("memory-sizes", "selection", "bytes")
"""figures in which a colour or a marker is not that of a method"""
_SIDE_BY_SIDE = ("permuted", "nonlinear", "color")
_WITH_MATRICES = ("permuted", "nonlinear", "color", "rho", "generative-replay", "mixture")


def render_paper(
    shown: Sequence[FigureResults],
    verdicts: Sequence[Verdict],
    excerpt: tuple[Path, str] | None = None,
    others: Sequence[OtherScale] = (),
) -> str:
    """Write the HTML page of all figures, as far as they have come. The same records give the same bytes.

    Args:
        shown: what there is of each figure.
        verdicts: on all claims; each is shown beside its figure.
        excerpt: a file with items of a memory to look at, if there are some, and whose it is, in words.
        others: what the pages of other scales say, to which this one has links.
    """
    scale = shown[0].scale
    title = f"Few-Shot Self Reminder: the paper's figures and claims at scale {scale}"
    wanted = {experiment.key for each in shown for experiment in each.wanted}
    done = {run.experiment.key for each in shown for run in each.runs}
    many = f"All {len(wanted)}" if done == wanted else f"{len(done)} of {len(wanted)}"
    made_up = ", ".join(each.figure.name for each in shown if each.made_up)
    header = element(
        "header",
        scales_block(verdicts, scale, others),
        element("h1", title),
        element("p", summarize(verdicts, scale), class_="answer"),
        warning(f"Made-up images in {made_up}: they show that the commands work, not how methods compare.")
        if made_up
        else None,
    )
    signs = element(
        "div",
        at_a_glance([verdict for verdict in verdicts if verdict.read_again is None]),
        *read_again_at_a_glance(verdicts),
        element("p", f"{many} runs of the figures are done.", class_="status"),
        note(f"The paper: {_PAPER}."),
        class_="signs",
    )
    # Those of which there is something to see come first.
    ordered = sorted(shown, key=lambda each: not each.runs)
    figures = [figure_block(each, [v for v in verdicts if v.figure == each.figure.name]) for each in ordered]
    kept = [] if excerpt is None else [_memory_block(*excerpt)]
    blocks = [
        header,
        *_picture(shown),
        signs,
        verdicts_block(verdicts, scale, others),
        _scale_block(shown),
        *figures,
        *kept,
        _redo_all(shown),
    ]
    made = f"Made by selfreminder {__version__} from the records of {len(done)} runs of the figures"
    if any(not tested.verdict.lacks_runs for verdict in verdicts for tested in verdict.tested):
        made += " and of those that test likely reasons"
    blocks.append(element("footer", note(f"{made}.")))
    return document(title, blocks)


def _picture(shown: Sequence[FigureResults]) -> list[Element]:
    """Show the answer as a picture: the first figure of methods side by side that has runs, or else any that has."""
    for each in shown:
        if each.figure.name in _SIDE_BY_SIDE and each.runs:
            said = (
                f"{each.figure.title}: beside each name its accuracy over all tasks in the end, and the bytes it keeps."
            )
            return [lead_block(sort_best_first(each.lines), said)]
    for each in shown:
        if each.runs and (drawn := make_drawing(each)) is not None:
            return [element("div", element("h2", each.figure.title), _figure(each, drawn), class_="signs")]
    return []


def _scale_block(shown: Sequence[FigureResults]) -> Element:
    """Say how much smaller than the paper's the experiments are."""
    scale = shown[0].scale
    names = dict.fromkeys(experiment.benchmark for each in shown for experiment in each.wanted)
    rows = []
    for name in names:
        ours, papers = (_extent(benchmark(name).scales[at]) for at in (scale, "paper"))
        # A figure may have fewer tasks than its scale.
        ours[1] = str(max(run.tasks for each in shown for run in each.wanted if run.benchmark == name))
        rows.append([name, *(a if a == b else f"{a} ({b})" for a, b in zip(ours, papers))])
    headings = ["Benchmark", "Images", "Tasks", "Epochs", "Width", "Kept per class and task"]
    caption = f"Scale {scale}"
    caption += ", the paper's own" if scale == "paper" else "; in brackets what scale paper has, where that differs"
    return section(f"What scale {scale} is", table(headings, rows, caption))


def _extent(scale: Scale) -> list[str]:
    images = "all" if scale.images is None else f"{scale.images:,}"
    return [images, str(scale.tasks), str(scale.epochs), f"{scale.width:g}", str(scale.per_class)]


def figure_block(shown: FigureResults, verdicts: Sequence[Verdict]) -> Element:
    """Show a figure with its claims, its numbers, its settings, and the command that gives it."""
    name = shown.figure.name
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
        claims = element("div", *map(claim_block, verdicts), class_="claims")
        ids = ", ".join(verdict.id for verdict in verdicts)
        said.append(claims if shown.runs else _folded(f"Its claims: {ids}", claims))
    if untuned := shown.figure.untuned(shown.scale):
        said.append(note(join_untuned(untuned)))
    found = _as_folder(shown)
    if shown.runs:
        said.append(_folded("Numbers", *_content(results_block(found.results, swatches=name not in _WITH_OWN_LOOKS))))
        if name in _WITH_MATRICES:
            said.append(_folded("Each task after each task", *_content(matrices_block(found.results))))
    said += [_folded("Settings", *_content(settings_block(found))), *_content(redo_block(found))]
    made = section(shown.figure.title, *said)
    made.set("id", f"figure-{name}")
    made.set("data-name", name)
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


def _draw(shown: Panel, what: str) -> Element:
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


def _as_folder(shown: FigureResults) -> FolderResults:
    """Take a figure for the folder of a comparison, whose blocks the page has."""
    command = f"selfreminder reproduce {shown.figure.name} --scale {shown.scale}"
    keys = {run.experiment.key for run in shown.runs}
    left = tuple(experiment for experiment in shown.wanted if experiment.key not in keys)
    origin = Origin((command,), shown.figure.comparisons(shown.scale)[0].scale)
    return FolderResults(shown.runs, left, tuple(sort_best_first(shown.lines)), origin, {})


def _folded(title: str, *content: Element) -> Element:
    return element("details", element("summary", title), *content, class_="more")


def _content(block: Element) -> list[Element]:
    """Give what is in a section, without its heading."""
    return list(block)[1:]


def _memory_block(path: Path, run: str) -> Element:
    try:
        memory = open_memory(path)
    except MemoryFileError as error:
        return section("What is kept", warning(str(error)))
    return section("What is kept", note(f"Some items of a memory of {run}."), gallery(memory))


def _redo_all(shown: Sequence[FigureResults]) -> Element:
    runs = {run.experiment.key: run for each in shown for run in each.runs}
    versions = [note(f"{count} runs with {used}.") for used, count in count_versions(runs.values())]
    command = element("pre", element("code", f"selfreminder reproduce all --scale {shown[0].scale}"))
    return section("Do it all again", command, *versions)
