"""Drift of new data against the held-out slices of a version, by what its model makes of both."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from selfreminder._base.seeds import seed_for
from selfreminder.memory.encoded import Kept
from selfreminder.store.answers import Asking
from selfreminder.store.drift import Drift, Seen, find_drift, listen
from selfreminder.store.incoming import Incoming, check_alike
from selfreminder.store.version import Version


def look_for_drift(asking: Asking, version: Version, incoming: Incoming, *, alpha: float = 0.01) -> Drift:
    """Compare new data, labelled or not, with every slice that a version holds out."""
    heldout, model = version.read_heldout(), asking.load(version)
    check_alike(incoming, heldout.inputs)
    old = _see(asking, model, heldout.inputs, "looking at what is held out")
    new = _see(asking, model, incoming.own.inputs, "looking at the new data")
    slices = {name: old.take(heldout.slices == place) for place, name in enumerate(heldout.names)}
    generator = torch.Generator().manual_seed(seed_for(asking.config.train.seed, "drift"))
    names = version.manifest.classes or ()
    permutations = max(500, round(5 / alpha))
    return find_drift(slices, new, generator=generator, names=names, alpha=alpha, permutations=permutations)


def _see(asking: Asking, model: nn.Module, inputs: Mapping[str, Tensor | Kept], doing: str) -> Seen:
    with listen(model) as heard:
        logits = asking.compute_logits(model, inputs, doing)
    return Seen.of(heard, logits)
