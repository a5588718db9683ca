"""The report of a version as one HTML page that needs nothing beside it: the verdict first, then what it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from selfreminder import __version__
from selfreminder._base.atomic import write_text
from selfreminder._base.sizes import show_bytes
from selfreminder.memory import Memory
from selfreminder.report.charts import bar_chart, legend, line_chart
from selfreminder.report.html import decimal, document, element, facts, note, panel, plot, section, table, warning
from selfreminder.report.panels import BarPanel, Bars, LinePanel, Series
from selfreminder.report.results import Estimate
from selfreminder.store.flips import flips_block
from selfreminder.store.gate import Slice
from selfreminder.store.heldout import HeldOut
from selfreminder.store.judgement import FAILED, LIMITS, PASSED, TOO_FEW, Check, Judgement
from selfreminder.store.limits_chart import limits_chart
from selfreminder.store.manifest import Manifest
from selfreminder.store.version import REPORT

BEFORE, AFTER = "#999999", "#0072B2"
_OLD, _FLIPS = "#D55E00", "#CC79A7"
_SIGNS = {PASSED: "✓", FAILED: "✗", TOO_FEW: "?"}
_KINDS = {PASSED: "held", FAILED: "not-held", TOO_FEW: None}
_MOST_PARTS = 40
"""classes and parts in the chart and the table: those that fare worst"""
_RULES = {"drop": "Drop in accuracy", "flips": "Negative flips", "gain": "Gain in accuracy"}


@dataclass(frozen=True, eq=False)
class Shown:
    """What a page shows of a version; all but the manifest may be missing."""

    manifest: Manifest
    judgement: Judgement | None = None
    slices: Sequence[Slice] = ()
    """with both versions' answers, to show what flipped"""
    heldout: HeldOut = field(default_factory=HeldOut)
    """of which the slices are, for their inputs"""
    memory: Memory | None = None


def write_report(folder: Path, shown: Shown) -> None:
    """Write the report of a version beside its other files."""
    write_text(folder / REPORT, render_version(shown))


def render_version(shown: Shown) -> str:
    """Write the report of a version. The same version gives the same bytes."""
    manifest = shown.manifest
    title = f"Version {manifest.version}"
    header = element("header", element("h1", title), _answer(shown), _status(shown), *_reasons(shown.judgement))
    blocks: list[Element | None] = [header]
    if shown.judgement is not None:
        blocks += [slices_block(shown.judgement), parts_block(shown.judgement)]
    elif manifest.metrics:
        blocks.append(measured_block(manifest.metrics))
    blocks += [
        flips_block(shown.slices, shown.heldout, manifest.classes or ()),
        training_block(manifest.training),
        memory_block(shown.memory, manifest.classes or ()),
        settings_block(manifest),
        element("footer", note(f"Made by selfreminder {__version__}.")),
    ]
    return document(title, [block for block in blocks if block is not None])


def slices_block(judgement: Judgement) -> Element:
    """Show every whole slice: before and after, and what each rule measured beside its limit."""
    whole = [check for check in judgement.checks if check.scope == "all"]
    first = {check.slice: check for check in whole}
    groups = list(first)
    bars = [
        Bars("before", BEFORE, [Estimate(first[name].before, None) for name in groups]),
        Bars("after", AFTER, [Estimate(first[name].after, None) for name in groups]),
    ]
    chart = bar_chart(BarPanel("Accuracy", groups, bars, "", "Accuracy", (0.0, 1.0)), "Accuracy by slice")
    panels = [panel("Before and after", chart)]
    for rule, name in _RULES.items():
        if checks := [check for check in whole if check.rule == rule]:
            panels.append(panel(name, limits_chart([(check.slice, check) for check in checks], name)))
    headings = ["Slice", "Items", "Before", "After", "Rule", "Measured", "Limit", "Verdict"]
    rows = [[check.slice, *_cells(check)] for check in whole]
    said = (
        "A slice is what was held out of a version's data, and has that version's name. Negative flips are items that "
        "were right and are wrong. Green has passed, red has failed, grey has too few items to tell; the dashed line "
        f"is the limit. Each bound holds with {100 * judgement.confidence:g} % confidence."
    )
    made = table(headings, rows, "On held-out items, paired by item", words=("Rule", "Verdict"))
    return section("Slices", plot(panels, legend(bars), note(said)), made)


def parts_block(judgement: Judgement) -> Element | None:
    """Show classes, and parts by metadata; None where there are none."""
    parts = [check for check in judgement.checks if check.scope != "all"]
    if not parts:
        return None
    several = len({check.slice for check in parts}) > 1
    worst = sorted(parts, key=lambda check: (check.verdict != FAILED, -check.estimate))[:_MOST_PARTS]
    named = [(f"{check.of}, {check.slice}" if several else check.of, check) for check in worst]
    headings = ["Class or part", "Items", "Before", "After", "Rule", "Measured", "Limit", "Verdict"]
    rows = [[name, *_cells(check)] for name, check in named]
    caption = (
        f"The {len(worst)} of {len(parts)} that lose most" if len(parts) > len(worst) else "Those that lose most first"
    )
    said = (
        "Bounds are corrected for how many there are. A class or a part refuses the candidate only if it surely loses "
        "more than its limit; where it has too few items to tell, in grey, it informs."
    )
    chart = panel("Drop in accuracy", limits_chart(named, "Drop in accuracy by class"))
    more = element(
        "details", element("summary", "As a table"), table(headings, rows, caption, words=("Rule", "Verdict"))
    )
    return section("Classes and parts", plot([chart], note(said)), more)


def measured_block(metrics: Mapping[str, Any]) -> Element:
    """Show what a version that was not judged gets right."""
    rows = [[name, f"{each['items']:,}", decimal(each["right"])] for name, each in metrics.items()]
    without = any(each["measure"] != "accuracy" for each in metrics.values())
    said = note("A slice without labels: right is what the model said when it came in.") if without else None
    return section("Slices", table(["Slice", "Items", "Right"], rows, "On held-out items"), said)


def training_block(training: Mapping[str, Any]) -> Element | None:
    """Show how the candidate came about: loss, strengths, interpolations; None where nothing was trained."""
    if not training:
        return None
    panels: list[Element] = []
    losses = training.get("losses", [])
    if losses:
        points = Series("loss", AFTER, "o", range(1, len(losses) + 1), [Estimate(loss, None) for loss in losses])
        shown = LinePanel("Loss", [points], "Epoch", "Mean loss, penalty and all", None)
        panels.append(panel("Training", line_chart(shown, "Mean loss of every epoch")))
    tried = training.get("interpolations", [])
    looks = {"accuracy_new": ("new", AFTER, "o"), "accuracy_old": ("old", _OLD, "s"), "flips": ("flips", _FLIPS, "^")}
    lines = [
        Series(name, colour, marker, [each["share"] for each in tried], [_estimate(each[key]) for each in tried])
        for key, (name, colour, marker) in looks.items()
        if any(each[key] is not None for each in tried)
    ]
    chosen = training.get("share", 1.0)
    if len(tried) > 1 and lines:
        marks = [(chosen, "chosen")]
        shares = [each["share"] for each in tried]
        shown = LinePanel("Weights", lines, "Share of the trained weights", "Share of items", ticks=shares, marks=marks)
        panels.append(panel("Interpolations", line_chart(shown, "Validation data by share of the trained weights")))
    trials = [
        [f"{each['strength']:.3g}", _number(each["accuracy_new"]), _number(each["accuracy_old"])]
        for each in training.get("trials", [])
    ]
    strength = training.get("strength")
    said = [f"λ = {strength:.3g}"] if strength is not None else []
    said += [f"step size {rate:g}"] if (rate := training.get("lr")) is not None else []
    said.append(
        f"{chosen:g} of the trained weights and {1 - chosen:g} of those before"
        if chosen != 1
        else "trained weights as they are"
    )
    return section(
        "Training",
        element("p", f"{'; '.join(said)}."),
        plot(panels, legend(lines) if lines and len(tried) > 1 else None) if panels else None,
        table(["λ", "On the new", "On the old"], trials, "Strengths that were tried, on validation data")
        if trials
        else None,
    )


def memory_block(memory: Memory | None, classes: Sequence[str]) -> Element | None:
    """Show what is remembered, by task and class."""
    if memory is None or not len(memory):
        return None
    rows = []
    for task, items in memory.counts.items():
        ours = memory.tasks == task
        labels, counts = memory.labels[ours].unique(return_counts=True)
        found = [f"{_class(label, classes)} {count}" for label, count in zip(labels.tolist(), counts.tolist())]
        words = ", ".join(found[:_MOST_PARTS]) + (
            f" and {len(found) - _MOST_PARTS} more" if len(found) > _MOST_PARTS else ""
        )
        rows.append([str(task), f"{items:,}", f"{int(memory.witnesses[ours].sum()):,}", words])
    said = f"{len(memory):,} items, {show_bytes(memory.nbytes)}: training data that later updates are reminded of."
    made = table(
        ["Task", "Items", "Witnesses", "Classes"], rows, "Witnesses are held by no penalty", words=("Classes",)
    )
    return section("Memory", element("p", said), made)


def settings_block(manifest: Manifest) -> Element:
    """Show settings, data and software."""
    pairs = [("kind", manifest.kind, ""), ("made", f"{manifest.created} by {manifest.who}", "")]
    if manifest.data is not None:
        data = manifest.data
        counts = f"{data.items:,} items: {data.trained:,} trained on, {data.heldout:,} held out"
        pairs += [("data", data.source, counts), ("fingerprint", data.fingerprint, "sha256 of the data")]
    if manifest.command:
        pairs.append(("command", manifest.command, ""))
    pairs.append(("software", ", ".join(f"{name} {value}" for name, value in manifest.software.items()), ""))
    rows = [[f"{name}.{key}", str(value)] for name, each in manifest.settings.items() for key, value in each.items()]
    made = table(["Setting", "Value"], rows, "As selfreminder.toml had them", words=("Value",)) if rows else None
    more = element("details", element("summary", "All settings"), made, class_="more") if made is not None else None
    return section("How it was made", facts(pairs), more)


def _answer(shown: Shown) -> Element:
    """Say what became of the version, as a sign and a sentence."""
    manifest, judgement = shown.manifest, shown.judgement
    if judgement is None:
        kinds = {"init": "the model as it was deployed", "delete": "without the items that were deleted"}
        what = kinds.get(manifest.kind, manifest.kind)
        return element("p", element("strong", f"Version {manifest.version}"), f": {what}.", class_="answer")
    whole = {check.slice: check for check in judgement.checks if check.scope == "all"}
    new = [check for check in whole.values() if check.rule == "gain"]
    drops = [check for check in judgement.checks if check.scope == "all" and check.rule == "drop"]
    worst = max(drops, key=lambda check: check.estimate, default=None)
    what = "Promoted" if judgement.passes else "Refused" if judgement.verdict == FAILED else "Too few to tell"
    said: list[Element | str] = []
    if new:
        said += [": on the new, accuracy goes from ", _accuracy(new[0].before), " to ", _accuracy(new[0].after)]
    if worst is not None:
        of = f" on {worst.slice}, which loses most," if len(drops) > 1 else f" on {worst.slice}"
        said += ["; " if new else ": ", f"{of.strip()} from ", _accuracy(worst.before), " to ", _accuracy(worst.after)]
    sign = element("span", _SIGNS[judgement.verdict if not judgement.passes else PASSED], class_="sign")
    kind = "held" if judgement.passes else _KINDS[judgement.verdict]
    return element("p", sign, " ", element("strong", what), *said, ".", class_=f"answer {kind or ''}".strip())


def _status(shown: Shown) -> Element:
    manifest, refused = shown.manifest, shown.judgement is not None and not shown.judgement.passes
    parent = "" if manifest.parent is None else f" Its parent is version {manifest.parent}."
    if refused:
        parent = f" It is kept aside: version {manifest.parent}, its parent, stays current."
    data = "" if manifest.data is None else f" Made with {manifest.data.items:,} items of {manifest.data.source}."
    return element(
        "p", f"{manifest.created.replace('T', ' ').replace('+00:00', ' UTC')}.{data}{parent}", class_="status"
    )


def _reasons(judgement: Judgement | None) -> list[Element]:
    return [] if judgement is None else [warning(f"{reason}.") for reason in judgement.reasons]


def _cells(check: Check) -> list[Element | str]:
    measured = f"{decimal(check.estimate)} ({decimal(check.low)} to {decimal(check.high)})"
    limit = f"{LIMITS[check.rule]} {decimal(check.limit)}"
    verdict = element("span", f"{_SIGNS[check.verdict]} {check.verdict}", class_=_KINDS[check.verdict] or "unsure")
    return [f"{check.n:,}", decimal(check.before), decimal(check.after), check.rule, measured, limit, verdict]


def _accuracy(value: float) -> Element:
    return element("strong", decimal(value))


def _estimate(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value, None)


def _number(value: float | None) -> str:
    return "–" if value is None else decimal(value)


def _class(label: int, classes: Sequence[str]) -> str:
    return "no label" if label < 0 else classes[label] if label < len(classes) else str(label)
