"""`selfreminder budget`: what a memory costs beside EWC."""

import dataclasses
import json as json_format

from selfreminder._base.errors import unknown
from selfreminder._base.sizes import show_bytes
from selfreminder.cli.terminal import Whole, print_rows, print_table
from selfreminder.experiment.catalogue import benchmark
from selfreminder.paper.memory_arithmetic import (
    CLASSES,
    DEFAULT,
    FLOAT32,
    PAPERS,
    Count,
    MemoryCost,
    Way,
    images_at_hand,
    memory_cost,
)


def budget(
    model: str,
    *,
    tasks: Whole | None = None,
    per_task: Whole | None = None,
    width: float = 1.0,
    json: bool = False,
) -> None:
    """What EWC keeps, and what a memory keeps for it in items and bytes: the paper's arithmetic.

    Parameters
    ----------
    model
        mnist-mlp, cifar10-vgg or cifar100-alexnet.
    tasks
        How many are learned; by default as in the paper.
    per_task
        Items that each leaves in the memory; by default as in the paper.
    width
        Of the network, as a factor of the paper's.
    json
        Print JSON.
    """
    if model not in PAPERS:
        raise unknown("model", model, PAPERS)
    paper = benchmark(PAPERS[model]).scales["paper"]
    cost = memory_cost(
        model,
        tasks=paper.tasks if tasks is None else tasks,
        per_task=paper.per_class * CLASSES if per_task is None else per_task,
        width=width,
        images=images_at_hand(model),
    )
    if json:
        print(json_format.dumps({"results": [dataclasses.asdict(cost)]}, indent=1))
        return
    _print_arithmetic(cost, as_in_paper=cost.tasks == paper.tasks)
    _print_ways(cost)
    _print_classes(cost)


def _print_arithmetic(cost: MemoryCost, *, as_in_paper: bool) -> None:
    wide = "" if cost.width == 1 else f" at {cost.width:g} times its width"
    print(
        f"{cost.model}{wide}, {cost.tasks:,} tasks: EWC keeps the model and its diagonal Fisher, 2p numbers of float32"
    )
    last = len(cost.counts) - 1
    rows = [
        _count_row(count, {0: "as the paper computes", last: "as ewc here"}.get(i))
        for i, count in enumerate(cost.counts)
    ]
    if cost.stated:
        rows.append(_count_row(cost.stated, "as the text says"))
    print_table(["p", "parameters", "EWC's numbers", "bytes", "items per task"], rows)
    print(
        f"One item: {cost.input_numbers:,} numbers of input + {cost.logits} logits = {cost.item_numbers:,}, "
        f"{cost.item_numbers * FLOAT32:,} bytes of float32."
    )
    if cost.stated and as_in_paper:
        papers, stated = cost.counts[0], cost.stated
        print(
            f"A slip: the text says 6.8 M parameters, so 13.6 M / {cost.item_numbers} / {cost.tasks} ≈ 422 items. "
            f"6.8 M gives {stated.items_per_task:.0f};\n"
            f"{papers.items_per_task:.0f} follows from the {papers.what}'s {papers.parameters:,}."
        )


def _count_row(count: Count, note: str | None) -> list[str]:
    return [
        f"{count.what} ({note})" if note else count.what,
        f"{count.parameters:,}",
        f"{count.ewc_numbers:,}",
        show_bytes(count.ewc_bytes),
        f"{count.items_per_task:,.1f}",
    ]


def _print_ways(cost: MemoryCost) -> None:
    print(f"\nHow items are kept, against EWC's {cost.ewc_bytes:,} bytes ({cost.counts[0].what})")
    print_table(
        [
            "inputs + logits",
            "bytes per item",
            "items per task",
            f"{cost.per_task:,} × {cost.tasks:,} items",
            "of EWC's",
        ],
        [*map(_way_row, cost.ways), *([" + ".join(codecs), "depends on the images"] for codecs in cost.unmeasured)],
    )
    print(f"Bytes per item include {cost.provenance_bytes} of provenance, which the paper does not count.")
    print(
        "uint8 is exact for pixels as they come; other floats, as in nonlinear-mnist and color-cifar10, keep float32,\n"
        "or affine8 if that is asked for."
    )
    if cost.unmeasured:
        print(f"To measure what compressed items take: selfreminder data get {cost.data}")
    else:
        print(f"Compressed items: the mean of {cost.ways[-1].sample} images.")


def _way_row(way: Way) -> list[str]:
    measured, digits = (f": {way.images}", 1) if way.images else ("", 0)
    return [
        f"{way.inputs} + {way.logits}{measured}",
        f"{way.item_bytes:,.{digits}f}",
        f"{way.items_per_task:,.1f}",
        show_bytes(way.total_bytes),
        _percent(way.share),
    ]


def _print_classes(cost: MemoryCost) -> None:
    rows = [
        (
            f"{each.per_class} per class",
            f"{each.items:,} items",
            f"{show_bytes(each.total_bytes)} = {_percent(each.share)} of EWC's bytes",
            f"as the paper counts {show_bytes(each.paper_bytes)} = {_percent(each.paper_share)}",
        )
        for each in cost.per_class
    ]
    print()
    print_rows(f"Images of each class over {cost.tasks:,} tasks, kept as {' + '.join(DEFAULT)}", rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.01 else f"{100 * share:.1g} %"
