"""The model card of a version: `README.md` in the layout of Hugging Face, from its manifest alone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfreminder._base.atomic import write_text
from selfreminder._base.sizes import show_bytes
from selfreminder.store.judgement import Judgement
from selfreminder.store.manifest import Manifest
from selfreminder.store.version import CARD

_SHOWN = 20
"""names of classes"""


def write_card(folder: Path, manifest: Manifest) -> None:
    """Write the card of a version whose other files are in `folder` already."""
    write_text(folder / CARD, render_card(manifest, {path.name: path.stat().st_size for path in folder.iterdir()}))


def render_card(manifest: Manifest, files: Mapping[str, int]) -> str:
    """The card as Markdown, metadata first."""
    name = f"Version {manifest.version}"
    lines = ["---", *_front(manifest, name), "---", "", f"# {name}", "", _describe(manifest), ""]
    if manifest.metrics:
        rows = [
            [slice_name, f"{each['items']:,}", f"{each['right']:.3f}", each["measure"]]
            for slice_name, each in manifest.metrics.items()
        ]
        lines += ["## On what is held out", "", *_table(["slice", "items", "right", "measure"], rows), ""]
        if any(each["measure"] != "accuracy" for each in manifest.metrics.values()):
            lines += ["*agreement*: the slice has no labels; right is what the model said when the slice came in.", ""]
    if manifest.judgement:
        lines += [Judgement.from_dict(dict(manifest.judgement)).to_markdown("Gate"), ""]
    if manifest.training:
        strength, share = manifest.training["strength"], manifest.training["share"]
        lines += ["## Training", ""]
        lines += [
            f"λ = {strength:.3g}; weights: {share:g} of the trained, {1 - share:g} of version {manifest.parent}.",
            "",
        ]
    lines += [
        "## Files",
        "",
        *_table(["file", "bytes"], [[each, show_bytes(files[each])] for each in sorted(files)]),
        "",
    ]
    lines += [f"Made {manifest.created} by {manifest.who} with {_join(manifest.software)}.", ""]
    return "\n".join(lines)


def _front(manifest: Manifest, name: str) -> list[str]:
    """YAML, of which JSON is a part."""
    front = ["library_name: pytorch", "tags:", "- selfreminder", "- continual-learning"]
    results = [
        {
            "task": {"type": "classification"},
            "dataset": {"name": f"held-out slice {slice_name}", "type": "private"},
            "metrics": [{"type": each["measure"], "value": round(each["right"], 6)}],
        }
        for slice_name, each in manifest.metrics.items()
    ]
    if results:
        front += [f"model-index: {json.dumps([{'name': name, 'results': results}])}"]
    return front


def _describe(manifest: Manifest) -> str:
    names = manifest.classes or ()
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    said = [
        f"A classifier with {manifest.outputs} outputs" + (f": {', '.join(names[:_SHOWN])}{more}." if names else ".")
    ]
    data = manifest.data
    if manifest.kind == "init":
        said.append("The model as it was when the store was made.")
    elif manifest.kind == "delete":
        said.append(
            f"Version {manifest.parent} without {len(manifest.deleted)} items of its memory and held-out slices."
        )
    elif data is not None:
        source = data.source.replace("`", "'")
        said.append(
            f"Version {manifest.parent}, trained on {data.trained:,} items of `{source}` with a reminder of the old."
        )
    return " ".join(said)


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return [f"| {' | '.join(map(str, row))} |" for row in (headings, ["---"] * len(headings), *rows)]


def _join(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in named.items())
