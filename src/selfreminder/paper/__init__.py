"""The reproduction of the paper: its figures as runs, its claims judged, one page.

`specs` says which runs a figure is drawn from, `figures` what it shows; `claims` judges, `reasons` says why a claim may
fail at our scale; `reproduction` reads a folder and writes figures, claims and the page. Torch is needed by that alone.
"""

from selfreminder.paper.claims import Claim, Verdict, judge, list_claims
from selfreminder.paper.likely_reasons import Reason, find_reasons
from selfreminder.paper.specs import FIGURES, Figure, experiments, figure

__all__ = [
    "Claim",
    "FIGURES",
    "Figure",
    "Reason",
    "Verdict",
    "experiments",
    "figure",
    "find_reasons",
    "judge",
    "list_claims",
]
