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
from selfreminder.paper.claims import Tested, Verdict, list_claims, summarize
from selfreminder.paper.claims.checks import Check
from selfreminder.paper.figures import make_drawing
from selfreminder.paper.specs import FigureResults
from selfreminder.report.charts import bar_chart, heat_scale, heatmap, legend, line_chart
from selfreminder.report.folder_results import FolderResults
from selfreminder.report.gallery import gallery
from selfreminder.report.html import Child, decimal, document, element, note, panel, plot, section, table, warning
from selfreminder.report.page import matrices_block, results_block
from selfreminder.report.panels import BarPanel, Drawing, HeatPanel, LinePanel, Panel
from selfreminder.report.results import sort_best_first
from selfreminder.report.settings import count_versions, redo_block, settings_block

_SMALL = (300.0, 190.0)
"""of a chart of bars, of which there are many"""
_PAPER = "J. Wen, Y. Cao, R. Huang: Few-Shot Self Reminder to Overcome Catastrophic Forgetting, 2018, arXiv:1812.00543"
_WITH_OWN_LOOKS = ("memory-sizes", "selection", "bytes")
"""figures in which a colour or a marker is not that of a method"""
_GROUPS = {"held": ("✓", "Held"), "not held": ("✗", "Not held"), "not enough data": ("○", "Not enough data")}
"""a sign, and the name of a group: never told by colour alone"""
_LARGE = 100
"""numbers from here on count something"""
_WITH_MATRICES = ("permuted", "nonlinear", "color", "rho", "generative-replay", "mixture")


def render_paper(
    shown: Sequence[FigureResults], verdicts: Sequence[Verdict], excerpt: tuple[Path, str] | None = None
) -> str:
    """Write the HTML page of all figures, as far as they have come. The same records give the same bytes.

    Args:
        shown: what there is of each figure.
        verdicts: on all claims; each is shown beside its figure.
        excerpt: a file with items of a memory to look at, if there are some, and whose it is, in words.
    """
    scale = shown[0].scale
    title = f"Few-Shot Self Reminder: the paper's figures and claims at scale {scale}"
    wanted = {experiment.key for each in shown for experiment in each.wanted}
    done = {run.experiment.key for each in shown for run in each.runs}
    many = f"All {len(wanted)}" if done == wanted else f"{len(done)} of {len(wanted)}"
    made_up = ", ".join(each.figure.name for each in shown if each.made_up)
    header = element(
        "header",
        element("h1", title),
        element("p", summarize(verdicts, scale), class_="answer"),
        at_a_glance(verdicts),
        element("p", f"{many} runs of the figures are done.", class_="status"),
        note(f"The paper: {_PAPER}."),
        warning(f"Made-up images in {made_up}: they show that the commands work, not how methods compare.")
        if made_up
        else None,
    )
    figures = [figure_block(each, [v for v in verdicts if v.figure == each.figure.name]) for each in shown]
    kept = [] if excerpt is None else [_memory_block(*excerpt)]
    blocks = [header, verdicts_block(verdicts), _scale_block(shown), *figures, *kept, _redo_all(shown)]
    made = f"Made by selfreminder {__version__} from the records of {len(done)} runs of the figures"
    if any(not tested.verdict.lacks_runs for verdict in verdicts for tested in verdict.tested):
        made += " and of those that test likely reasons"
    blocks.append(element("footer", note(f"{made}.")))
    return document(title, blocks)


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
    caption = f"Scale {scale}; in brackets what scale paper has, where that differs"
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
        said.append(element("div", *map(claim_block, verdicts), class_="claims"))
    if untuned := shown.figure.untuned(shown.scale):
        said.append(note(join_untuned(untuned)))
    found = _as_folder(shown)
    if shown.runs:
        said.append(_folded("Numbers", results_block(found.results, swatches=name not in _WITH_OWN_LOOKS)))
        if name in _WITH_MATRICES:
            said.append(_folded("Each task after each task", matrices_block(found.results)))
    said += [_folded("Settings", settings_block(found)), *_content(redo_block(found))]
    made = section(shown.figure.title, *said)
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


def _folded(title: str, block: Element) -> Element:
    return element("details", element("summary", title), *_content(block), class_="more")


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


# Claims ---------------------------------------------------------------------------------------------------------


def at_a_glance(verdicts: Sequence[Verdict]) -> Element:
    """Show a sign for each claim, in the order of their numbers: to be seen before anything is read."""
    signs = []
    for verdict in verdicts:
        title = f"{_capital(verdict.claim)}: {verdict.verdict}"
        link = element("a", _GROUPS[verdict.verdict][0], f" {verdict.id}", href=f"#claim-{verdict.id}", title=title)
        signs.append(element("li", link, class_=_kind(verdict)))
    return element("ul", *signs, class_="glance")


def verdicts_block(verdicts: Sequence[Verdict]) -> Element:
    """List all claims by what became of them, each with its figure."""
    groups: list[Element] = []
    for group, (_, name) in _GROUPS.items():
        own = [verdict for verdict in verdicts if verdict.verdict == group]
        if own:
            groups += [element("h3", f"{name}: {len(own)}"), element("ul", *map(_item, own), class_="verdicts")]
    return section("Claims", *groups)


def claim_block(verdict: Verdict) -> Element:
    """Show a claim beside its figure: what became of it, the rule, and the numbers."""
    rule = next(claim.rule for claim in list_claims() if claim.id == verdict.id)
    tested: list[Element] = []
    for each in verdict.tested:
        tested.append(element("p", _whole(f"{_tested(each, verdict)} {each.verdict.sentence}"), class_="note"))
        if each.verdict.checks:
            tested.append(element("details", element("summary", "Its numbers"), *_numbers(each.verdict)))
    return element(
        "div",
        element("h3", _sign(verdict), f"{verdict.id} {verdict.verdict}"),
        element("p", f"{_capital(verdict.claim)}."),
        element("p", _whole(verdict.sentence), class_="note"),
        element("details", element("summary", "Rule and numbers"), element("p", rule), *_numbers(verdict)),
        *tested,
        class_=f"claim {_kind(verdict)}",
        id=f"claim-{verdict.id}",
    )


def _numbers(verdict: Verdict) -> list[Element]:
    if not verdict.checks:
        return []
    numbers = verdict.numbers.items()
    pairs = [[name, f"{value:,.0f}" if abs(value) >= _LARGE else decimal(value)] for name, value in numbers]
    checks = element("ul", *map(_check, verdict.checks), class_="checks")
    return [checks, table(["What", "Mean over seeds"], pairs, "Numbers")]


def _item(verdict: Verdict) -> Element:
    link = element("a", verdict.id, href=f"#figure-{verdict.figure}")
    said = (verdict.sentence, *(_tested(each, verdict) for each in verdict.tested))
    text = element("span", _capital(verdict.claim), *(element("small", _whole(each)) for each in said))
    return element("li", _sign(verdict), link, text, class_=_kind(verdict))


def _tested(reason: Tested, of: Verdict) -> str:
    """Say in short what came of a reason; beside the figure there are the numbers too."""
    found = reason.verdict
    if found.lacks_runs:
        return f"A likely reason to be tested, with {reason.text}."
    if found.verdict == "not enough data":
        return f"A likely reason tested, with {reason.text}: no verdict."
    either = " either" if found.verdict == of.verdict else ""
    return f"A likely reason tested, with {reason.text}: {found.verdict}{either}."


def _sign(verdict: Verdict) -> Element:
    return element("span", _GROUPS[verdict.verdict][0], class_="sign", title=verdict.verdict)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _whole(text: str) -> str:
    """Keep numbers from being parted from their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _kind(verdict: Verdict) -> str:
    return verdict.verdict.replace(" ", "-")


def _check(check: Check) -> Element:
    """Show a difference, paired by seed, and whether it is as the rule asks."""
    low, high = map(check.end, check.interval)
    said = f"{check.above.label} − {check.below.label}: {check.difference(check.margin)}, "
    said += _whole(f"95 % interval {low} to {high}")
    sign, word = ("✓", "holds") if check.holds else ("✗", "does not hold")
    asked = element("small", f"asked for: {check.rule}; {word}")
    kind = "held" if check.holds else "not-held"
    return element("li", element("span", sign, class_="sign"), element("span", said, asked), class_=kind)
