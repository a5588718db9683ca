"""A folder's reproduction of the paper: its records read, its figures, claims and page written."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from selfreminder._base.atomic import remove_stale, write_text
from selfreminder._base.errors import MemoryFileError, SelfReminderError
from selfreminder.experiment.folder import run_folders
from selfreminder.experiment.records import Records, index_by_key, read_current_records
from selfreminder.memory.file import open_memory, save_memory
from selfreminder.paper.claims import Verdict, as_json, judge
from selfreminder.paper.figures import KINDS, draw, make_drawing
from selfreminder.paper.page import render_paper
from selfreminder.paper.scales import CLAIMS, PAGE, find_other_scales
from selfreminder.paper.specs import FigureResults, gather
from selfreminder.report.gallery import take_evenly

FIGURES = "figures"
_MEMORY, _SHOWN = "memory.safetensors", "memory-shown.safetensors"
_MOST_SHOWN = 20
"""items of a memory that the page shows"""


@dataclass(frozen=True)
class Reproduction:
    """What a folder holds of the paper at a scale."""

    folder: Path
    scale: str
    shown: list[FigureResults]
    verdicts: list[Verdict]
    troubles: list[str]
    """what is wrong with records: which cannot be read, or are there twice and differ"""
    folders: dict[str, Path] = field(repr=False)
    """where each run is, by its key in `index_by_key`"""

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    @property
    def done(self) -> int:
        return len({run.experiment.key for shown in self.shown for run in shown.runs})

    def find_excerpt(self) -> tuple[Path, str] | None:
        """Find a file of a memory to look at, of images that a person knows if there are such, and say whose it is."""
        order = ("mixture", "color", "rho", "permuted", "memory-sizes", "nonlinear")
        shown = {shown.figure.name: shown for shown in self.shown}
        for name in sorted(order, key=lambda name: shown[name].made_up):
            for line in shown[name].of("fsr-logit"):
                one = line.runs[0].experiment
                folder = self.folders.get(one.key)
                if folder is not None and (path := _write_excerpt(folder)) is not None:
                    return path, f"{line.name} on {one.benchmark}, seed {one.seed}"
        return None

    def check_may_write(self) -> None:
        """Refuse a folder that somebody else has made a page or figures in: they would be lost."""
        others = [path for path in (self.page, self.folder / FIGURES) if path.exists()]
        if others and not (self.folder / CLAIMS).is_file():
            raise SelfReminderError(
                f"{others[0]} is none of `selfreminder reproduce` and would be lost: move it, or draw another folder"
            )

    def write_claims(self) -> None:
        """Write the verdicts, which the pages of other scales show too."""
        verdicts = json.dumps(as_json(self.verdicts), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(self.folder / CLAIMS, verdicts + "\n")

    def write(self, only: Collection[str] | None = None) -> dict[str, list[Path]]:
        """Write the page, the claims, and the figures, or only some; gives the files of each that could be drawn."""
        files: dict[str, list[Path]] = {}
        others = find_other_scales(self.folder, self.scale)
        page = render_paper(self.shown, self.verdicts, self.find_excerpt(), others)
        self.write_claims()  # first: by it what follows is known as ours
        (self.folder / FIGURES).mkdir(exist_ok=True)
        remove_stale(self.folder / FIGURES)
        for shown in self.shown:
            name = shown.figure.name
            stem = self.folder / FIGURES / name
            if only is not None and name not in only:
                continue
            if (drawn := make_drawing(shown)) is not None:
                files[name] = draw(shown, drawn, stem)
            else:
                for kind in KINDS:  # of records that are gone
                    stem.with_name(f"{name}.{kind}").unlink(missing_ok=True)
        write_text(self.page, page)
        return files


def _write_excerpt(folder: Path) -> Path | None:
    """Keep a few items of a run's memory in a file that can stay with its records where the memory is too large."""
    if (folder / _MEMORY).is_file():
        try:
            save_memory(take_evenly(open_memory(folder / _MEMORY), _MOST_SHOWN), folder / _SHOWN)
        except (MemoryFileError, OSError):  # of a damaged one the page says so; an archive may not be written to
            return folder / _MEMORY
    return folder / _SHOWN if (folder / _SHOWN).is_file() else None


def read_reproduction(folder: Path, scale: str) -> Reproduction:
    """Read all records in a folder and in those within it; some may be growing."""
    found: dict[Path, Records] = {}
    troubles: list[str] = []
    for path in run_folders(folder, deep=True):
        try:
            if (records := read_current_records(path)) is not None:
                found[path] = records
        except SelfReminderError as error:
            troubles.append(str(error))
    taken = index_by_key(found.values())
    is_taken = {path: records.tasks == taken[records.key].tasks for path, records in found.items()}
    folders = {records.key: path for path, records in found.items() if is_taken[path]}
    troubles += [
        f"{path} and {folders[records.key]} are of one run and differ: the latter is taken; remove one of them"
        for path, records in found.items()
        if records.done and not is_taken[path]
    ]
    return Reproduction(folder, scale, gather(found.values(), scale), judge(found.values(), scale), troubles, folders)
