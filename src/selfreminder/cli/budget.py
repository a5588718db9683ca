"""`selfreminder budget`: what a memory costs beside EWC."""

import dataclasses
import json as json_format

from selfreminder._base.sizes import show_bytes
from selfreminder.cli.terminal import Json, Whole, print_rows, print_table
from selfreminder.paper import memory_arithmetic
from selfreminder.paper.memory_arithmetic import CLASSES, MemoryCost


def budget(
    model: str, *, tasks: Whole | None = None, per_task: Whole | None = None, width: float = 1.0, json: Json = False
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
    paper = memory_arithmetic.papers_benchmark(model).scales["paper"]
    cost = memory_arithmetic.memory_cost(
        model,
        tasks=paper.tasks if tasks is None else tasks,
        per_task=paper.per_class * CLASSES if per_task is None else per_task,
        width=width,
        images=memory_arithmetic.images_at_hand(model),
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
    first, *others, last = cost.counts
    counts = [(first, " (as the paper computes)"), *((count, "") for count in others), (last, " (as ewc here)")]
    if cost.stated:
        counts.append((cost.stated, " (as the text says)"))
    print_table(
        ["p", "parameters", "EWC's numbers", "bytes", "items per task"],
        [
            [
                f"{count.what}{note}",
                f"{count.parameters:,}",
                f"{count.ewc_numbers:,}",
                show_bytes(count.ewc_bytes),
                f"{count.items_per_task:,.1f}",
            ]
            for count, note in counts
        ],
    )
    print(
        f"One item: {cost.input_numbers:,} numbers of input + {cost.logits} logits = {cost.item_numbers:,}, "
        f"{cost.item_numbers * memory_arithmetic.FLOAT32:,} bytes of float32."
    )
    if cost.stated and as_in_paper:
        print(
            f"A slip: the text says 6.8 M parameters, so 13.6 M / {cost.item_numbers} / {cost.tasks} ≈ 422 items. "
            f"6.8 M gives {cost.stated.items_per_task:.0f};\n"
            f"{first.items_per_task:.0f} follows from the {first.what}'s {first.parameters:,}."
        )


def _print_ways(cost: MemoryCost) -> None:
    rows = [
        [
            f"{way.inputs} + {way.logits}" + (f": {way.images}" if way.images else ""),
            f"{way.item_bytes:,.{1 if way.images else 0}f}",
            f"{way.items_per_task:,.1f}",
            show_bytes(way.total_bytes),
            _percent(way.share),
        ]
        for way in cost.ways
    ]
    rows += [[" + ".join(codecs), "depends on the images"] for codecs in cost.unmeasured]
    total = f"{cost.per_task:,} × {cost.tasks:,} items"
    print(f"\nHow items are kept, against EWC's {cost.ewc_bytes:,} bytes ({cost.counts[0].what})")
    print_table(["inputs + logits", "bytes per item", "items per task", total, "of EWC's"], rows)
    print(
        f"Bytes per item include {cost.provenance_bytes} of provenance, which the paper does not count.\n"
        "uint8 is exact for pixels as they come; other floats, as in nonlinear-mnist and color-cifar10, keep float32,\n"
        "or affine8 if that is asked for."
    )
    if cost.unmeasured:
        print(f"To measure what compressed items take: selfreminder data get {cost.data}")
    else:
        print(f"Compressed items: the mean of {cost.ways[-1].sample} images.")


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
    kept = " + ".join(memory_arithmetic.DEFAULT)
    print_rows(f"Images of each class over {cost.tasks:,} tasks, kept as {kept}", rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.01 else f"{100 * share:.1g} %"
