"""The paper's claims at other scales, as the folders beside one's own have them: their verdicts, and a way there."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args
from urllib.parse import quote

from selfreminder._base.checked import DAMAGE
from selfreminder.benchmarks import SCALES
from selfreminder.experiment.folder import read_about
from selfreminder.paper.claims.verdict import Judgement

PAGE, CLAIMS = "index.html", "claims.json"
JUDGED = frozenset(get_args(Judgement)) - {"not enough data"}


@dataclass(frozen=True)
class OtherScale:
    """What the folder of another scale says of the claims."""

    scale: str
    name: str
    """the scale; with its folder, if several have it"""
    link: str
    """to its page, from a page in a folder beside it"""
    verdicts: Mapping[str, str]
    """by the claim's id"""
    answer: str
    """how many claims hold, by their first rules"""


def find_other_scales(folder: Path, scale: str) -> list[OtherScale]:
    """Find the reproductions beside a folder that have another scale and a page, from the smallest scale."""
    found = [
        (other, path.parent, claims)
        for path in sorted(folder.resolve().parent.glob(f"*/{CLAIMS}"))
        if (other := (read_about(path.parent) or {}).get("scale")) in SCALES
        and other != scale
        and (path.parent / PAGE).is_file()
        and (claims := _read_verdicts(path)) is not None
    ]
    count = Counter(other for other, _, _ in found)
    return [
        OtherScale(
            scale=other,
            name=other if count[other] == 1 else f"{other} ({path.name})",
            link=f"../{quote(path.name)}/{PAGE}",
            verdicts={id: verdict for id, (verdict, _) in claims.items()},
            answer=count_held([verdict for verdict, is_first in claims.values() if is_first]),
        )
        for other, path, claims in sorted(found, key=lambda each: list(SCALES).index(each[0]))
    ]


def count_held(verdicts: Collection[str]) -> str:
    """Say how many claims hold, of those that were judged.

    >>> count_held(["held", "contradicted", "not enough data"])
    '1 of 2 judged claims holds'
    """
    held, judged = (sum(verdict in group for verdict in verdicts) for group in ({"held"}, JUDGED))
    return f"{held} of {judged} judged claims {'holds' if held == 1 else 'hold'}"


def _read_verdicts(path: Path) -> dict[str, tuple[str, bool]] | None:
    """Read of each claim its verdict, and whether that is by its first rule; None of what is damaged, or not ours."""
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))
        found = {id: (each["verdict"], "read_again" not in each) for id, each in claims.items()}
    except (OSError, *DAMAGE):
        return None
    return found if all(verdict in get_args(Judgement) for verdict, _ in found.values()) else None
