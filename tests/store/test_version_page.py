"""The pages of a version and of a store's history: whole, offline, escaped."""

from html.parser import HTMLParser

import pytest
import torch

from selfreminder.store.gate import Gate, Slice, judge
from selfreminder.store.heldout import HeldOut
from selfreminder.store.history import HistoryRow
from selfreminder.store.history_page import render_history
from selfreminder.store.manifest import DataFacts, Manifest
from selfreminder.store.page import Shown, render_version

EVIL = "<script>alert(1)</script>&\"'\x00"
TRAINING = {
    "strength": 0.1,
    "share": 0.5,
    "losses": [1.2, 0.7],
    "trials": [
        {"strength": 0.03, "accuracy_new": None, "accuracy_old": None},
        {"strength": 0.1, "accuracy_new": 0.9, "accuracy_old": None},
    ],
    "interpolations": [
        {"share": share, "accuracy_new": 0.9, "accuracy_old": old, "flips": 0.01}
        for share, old in ((0.5, 0.9), (1.0, None))
    ],
}


class Page(HTMLParser):
    """The text of a page, its tags, and where it would load something from."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.words += data


def shown(n: int = 1000, worse: int = 80, *, images: bool = True, classes: tuple[str, ...] = ("cat", EVIL)) -> Shown:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    after = labels.clone()
    after[:worse] = 1 - after[:worse]
    x = torch.randint(256, (n, 1, 12, 12) if images else (n, 5), generator=generator, dtype=torch.uint8)
    heldout = HeldOut.of({"x": x}, labels, name="v1", time=0, columns={"note": [EVIL] * n})
    slices = [
        Slice("v1", False, labels, labels, after, heldout.items, {f"site={EVIL}": torch.arange(n) < n // 2}),
        Slice("v2", True, labels[:30], 1 - labels[:30], labels[:30], torch.arange(30) + n),
    ]
    judgement = judge(slices, Gate(), classes)
    data = DataFacts(source=EVIL, fingerprint="ab", items=n, first_item=0, trained=n, heldout=50)
    manifest = Manifest(
        version=2, kind="update", parent=1, outputs=2, next_item=n, classes=classes, verdict=judgement.verdict,
        judgement=judgement.to_dict(), data=data, training=TRAINING, settings={"train": {"lr": EVIL}}, command=EVIL,
        metrics={"v1": {"items": n, "right": 0.92, "measure": "accuracy"}},
    )  # fmt: skip
    return Shown(manifest, judgement, slices, heldout)


@pytest.mark.parametrize("images", [True, False])
def test_a_report_says_what_became_of_it_and_shows_what_flipped(images: bool) -> None:
    page = Page(render_version(shown(images=images)))
    assert "Refused" in page.words and "It is kept aside: version 1, its parent, stays current" in page.words
    assert "80 items were right before and are wrong now; 50 are shown" in page.words
    assert page.tags.count("img") == (50 if images else 0)
    assert page.tags.count("script") == 1
    assert EVIL.replace("\x00", "\ufffd") in page.words
    assert all(each.startswith(("data:", "#")) for each in page.loads)


@pytest.mark.parametrize(("n", "worse", "said"), [(1000, 0, "Promoted"), (30, 0, "Too few to tell")])
def test_the_answer_is_the_gates(n: int, worse: int, said: str) -> None:
    page = Page(render_version(shown(n, worse)))
    assert said in page.words
    assert "What flipped" not in page.words


def test_a_version_that_was_not_judged_has_a_page() -> None:
    metrics = {"v1": {"items": 9, "right": 0.5, "measure": "agreement"}}
    manifest = Manifest(version=1, kind="init", parent=None, outputs=2, next_item=9, metrics=metrics)
    words = Page(render_version(Shown(manifest))).words
    assert "the model as it was deployed" in words
    assert "A slice without labels" in words


def test_a_history_is_a_plot_of_what_was_promoted_and_a_table_of_all() -> None:
    def row(number: int, state: str, **right: float) -> HistoryRow:
        created = "2026-01-01T00:00:00+00:00"
        return HistoryRow(number, state, "update", None, created, EVIL, "passed", right, dict.fromkeys(right, 9), EVIL)

    rows = [row(1, "", v1=0.97), row(2, "aside", v1=0.5, v2=0.9), row(3, "current", v1=0.96, v3=0.91)]
    page = Page(render_history(rows, EVIL))
    assert "Version 3 is current: .960 on v1, .910 on v3." in page.words
    plotted, listed = page.words.split("Share that is right of every held-out slice")
    assert "Version: 3: .960" in plotted
    assert ".500" not in plotted
    assert ".500" in listed
    assert page.tags.count("script") == 1
