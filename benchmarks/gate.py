"""How often the gate refuses: `python benchmarks/gate.py`.

Candidates are drawn whose true drop is known, and judged on slices of n held-out items of ten classes, one slice or
four. Limits are the defaults, or what n items can show if that is more, as `init` writes them. For each share of items
on which the two models differ in being right:

- same: the current version itself;
- as good: as many get worse as get better;
- twice: accuracy drops by twice what is allowed, on one of the slices;
- exact: the same by the rule of the drop on that slice alone, summed over all that can be seen instead of drawn. The
  other rules and slices can only refuse more.

Of those that are refused, the share that was too few to tell comes in brackets.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from selfreminder.store.gate import Gate, Judgement, Slice, judge, provable_drop, provable_flips
from selfreminder.store.intervals import paired
from selfreminder.store.judgement import FAILED

CLASSES, ERROR = 10, 0.1


def draw_slice(name: str, n: int, worse: float, better: float, generator: torch.Generator) -> Slice:
    """Items of which a model of 90 % accuracy and a candidate are right; shares `worse` and `better` change."""
    truth = torch.randint(CLASSES, (n,), generator=generator)
    wrong = (truth + 1) % CLASSES
    place = torch.rand(n, generator=generator)
    before = torch.where(place < ERROR, wrong, truth)
    after = torch.where(place < better, truth, before)
    after = torch.where(place > 1 - worse, wrong, after)
    return Slice(name, False, truth, before, after, ids=torch.arange(n))


def gate_for(n: int) -> Gate:
    """The gate that `init` writes for a slice of n items."""
    plain = Gate()
    drop, flips = provable_drop(n), provable_flips(n)
    return Gate(old_drop_max=max(plain.old_drop_max, drop), flips_max=max(plain.flips_max, flips))


def judge_draws(
    gate: Gate, n: int, slices: int, differ: float, drop: float, draws: int, generator: torch.Generator
) -> list[Judgement]:
    """Judge as many candidates, with a drop on their first slice."""
    found = []
    for _ in range(draws):
        drops = [drop] + [0.0] * (slices - 1)
        drawn = [draw_slice(f"v{i}", n, differ / 2 + lost, differ / 2, generator) for i, lost in enumerate(drops)]
        found.append(judge(drawn, gate))
    return found


def refuse_exactly(n: int, limit: float, worse: float, better: float) -> float:
    """The chance that the drop alone refuses, of n items of which such shares get worse and better."""
    passed, fewest = 0.0, 0
    for gained in range(n + 1):
        while fewest + gained <= n and _passes(fewest, gained, n, limit):  # the more gained, the more may be lost
            fewest += 1
        chances = [_chance(n, lost, gained, worse, better) for lost in range(min(fewest, n - gained + 1))]
        passed += math.fsum(chances)
        if gained > n * better and (not chances or max(chances) < 1e-15):
            break
    return 1 - passed


def _passes(lost: int, gained: int, n: int, limit: float) -> bool:
    return (lost - gained) / n <= limit and paired(lost, gained, n, Gate().confidence)[1] <= 2 * limit


def _chance(n: int, lost: int, gained: int, worse: float, better: float) -> float:
    """Of so many among n: multinomial."""
    counts, shares = (lost, gained, n - lost - gained), (worse, better, 1 - worse - better)
    logs = (count * math.log(share) - math.lgamma(count + 1) for count, share in zip(counts, shares) if share > 0)
    return math.exp(math.lgamma(n + 1) + sum(logs)) if better or not gained else 0.0


def refused(found: list[Judgement]) -> tuple[float, float]:
    """The share that is refused, and the share that is so for want of items."""
    no = sum(not each.passes for each in found) / len(found)
    return no, sum(not each.passes and each.verdict != FAILED for each in found) / len(found)


def show(shares: tuple[float, float]) -> str:
    """Both in percent."""
    no, unsure = shares
    return f"{100 * no:.1f}" + (f" ({100 * unsure:.1f})" if unsure else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="a file to write what was measured to")
    options = parser.parse_args()
    draws, rows = options.draws, []
    generator = torch.Generator().manual_seed(0)
    head = ("slices", "items", "drop max", "differ", "same", "as good", "twice", "exact")
    widths = (7, 7, 9, 7, 6, 13, 13, 7)
    print("refused, percent of", f"{draws:,} draws")
    print("".join(f"{name:>{width}}" for name, width in zip(head, widths)))
    for slices in (1, 4):
        for n in (100, 300, 1000, 3000):
            for differ in (0.005, 0.01, 0.02):
                gate = gate_for(n)
                twice = 2 * gate.old_drop_max
                cells = [
                    refused(judge_draws(gate, n, slices, changed, drop, draws, generator))
                    for changed, drop in ((0.0, 0.0), (differ, 0.0), (differ, twice))
                ]
                exact = refuse_exactly(n, gate.old_drop_max, differ / 2 + twice, differ / 2)
                row = (str(slices), f"{n:,}", f"{gate.old_drop_max:.3f}", f"{differ:.3f}", *map(show, cells))
                row = (*row, f"{100 * exact:.1f}")
                print("".join(f"{cell:>{width}}" for cell, width in zip(row, widths)), flush=True)
                rows.append(dict(zip(head, (slices, n, gate.old_drop_max, differ, *cells, exact))))
    if options.json is not None:
        about = {"draws": draws, "refused": "of each candidate the share, and of it the share that was too few to tell"}
        options.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
