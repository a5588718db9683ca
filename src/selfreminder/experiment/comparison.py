"""A comparison: methods × seeds on one benchmark at one scale, in one folder."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from selfreminder import methods as all_methods
from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import MODEL_NAMES, SCALES, Scale
from selfreminder.experiment.catalogue import applies, benchmark, method_facts, references
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import METHOD_FIELDS, describe_untuned, find_tuned

_NAMED_SHORTLY = ("scenario", "model")
"""settings that are part of a folder's name as they are"""
_NO_PART = ("processes", "reading", "evaluate_every")
"""settings that have no part in what is best"""
_OF_ONE_WIDTH = "efficientnet-lite0"
"""the network that has a name in MODEL_NAMES, and a width of its own; so have mlp:256x2, module:factory and the like"""
MOST_RUNS = 100_000
"""of a method in one grid"""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared. None means: as the scale says."""

    benchmark: str
    scale: str = "demo"
    methods: tuple[str, ...] = ()
    seeds: int | None = None
    size: Size | None = None
    select: str = "random"
    codec: str = "auto"
    logit_codec: str = "float32"
    tasks: int | None = None
    epochs: int | None = None
    width: float | None = None
    probe: int = 0
    evaluate: str = "all"
    device: str = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """other fields of every experiment, such as scenario, model or schedule: they go before what the scale says"""
    tuned: Path | None = None
    """a table of strengths and step sizes that goes before the one that comes with selfreminder"""

    def __post_init__(self) -> None:
        scales = benchmark(self.benchmark).scales
        if self.scale not in scales:
            raise unknown("scale", self.scale, [name for name in SCALES if name in scales])
        for method in self.methods:
            method_facts(method)  # raises if there is no such method
        if self.seeds is not None and not 1 <= self.seeds <= MOST_RUNS:
            seeds = all_methods.show_number(self.seeds)
            raise SelfReminderError(f"seeds is {seeds}: it must be at least 1, and at most {MOST_RUNS}")

    @property
    def defaults(self) -> Scale:
        return benchmark(self.benchmark).scales[self.scale]

    @property
    def name(self) -> str:
        """A folder name that differs where comparisons do."""
        parts = [re.sub(r"[^\w+.-]+", "-", self.benchmark).strip("-."), self.scale]
        if self.size is not None:
            parts.append(str(self.size).replace(" ", "-"))
        parts += [
            re.sub(r"[^\w+.-]+", "-", value)
            for value, usual in ((self.select, "random"), (self.codec, "auto"), (self.logit_codec, "float32"))
            if value != usual
        ]
        parts += [f"{k}-{v:g}" for k in ("tasks", "epochs", "width") if (v := getattr(self, k)) is not None]
        parts += ["probe"] if self.probe else []
        parts += [f"evaluate-{self.evaluate}"] if self.evaluate != "all" else []
        if said := {name: value for name, value in self.settings.items() if name not in _NAMED_SHORTLY}:
            parts.append(hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:6])
        shortly = [str(self.settings[name]) for name in _NAMED_SHORTLY if self.settings.get(name)]
        parts += [re.sub(r"[^\w+.-]+", "-", value).strip("-.") for value in shortly]
        return "-".join(parts)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """Every run, seed by seed, so that all methods advance together."""
        of_benchmark = benchmark(self.benchmark)
        chosen = self.methods or self.defaults.methods or of_benchmark.methods
        if not self.methods and (scenario := self.settings.get("scenario")):
            chosen = tuple(name for name in chosen if applies(name, scenario))
        if of_benchmark.compares_with_reference and self.settings.get("scenario") != "stream":
            chosen = (*chosen, *(name for name in references() if name not in chosen))
        return [self._experiment(m, seed) for seed in range(self.seeds or self.defaults.seeds) for m in chosen]

    def _experiment(self, method: str, seed: int) -> Experiment:
        scale = self.defaults
        size = self.size or Size(per_class=scale.per_class)
        tasks = scale.tasks if self.tasks is None else self.tasks
        part = benchmark(self.benchmark).splits_classes and tasks < scale.tasks
        own: dict[str, Any] = {"batch_size": scale.batch_size, "plateau": scale.plateau}
        facts = method_facts(method)
        if not facts.is_fine_tuning or scale.optimizer == facts.optimizer:  # a baseline is named by its optimizer
            own |= {"optimizer": scale.optimizer, "lr": scale.lr}
        own |= find_tuned(self.benchmark, self.scale, method, size, self.tuned)
        epochs = 1 if self.settings.get("scenario") == "stream" and self.epochs is None else self.epochs
        return Experiment(
            benchmark=self.benchmark,
            method=method,
            seed=seed,
            images=scale.images,
            tasks=tasks,
            split_into=scale.tasks if part else None,
            epochs=scale.epochs if epochs is None else epochs,
            width=self._choose_width() if self.width is None else self.width,
            per_class=size.per_class,
            per_task=size.per_task,
            budget=None if size.budget is None else str(size.budget_bytes),
            items=size.items,
            select=self.select,
            codec=self.codec,
            logit_codec=self.logit_codec,
            probe=self.probe,
            evaluate=self.evaluate,
            device=self.device,
            **{"data": scale.data, **own, **self.settings},
        )

    def _choose_width(self) -> float:
        """Choose the scale's width, unless a network is named that says itself how wide it is."""
        model, usual = self.settings.get("model"), benchmark(self.benchmark).model
        by_width = model in (None, usual) or (model in MODEL_NAMES and model != _OF_ONE_WIDTH)
        return self.defaults.width if by_width else 1.0

    @property
    def untuned(self) -> list[str]:
        """Methods whose strength or step size nobody chose for this benchmark, scale and memory, and what is taken."""
        names = dict.fromkeys(experiment.method for experiment in self.experiments)
        found = {
            name: describe_untuned(self.benchmark, self.scale, name, self.size, self.tuned, self.extent)
            for name in names
        }
        said = [each for each in found.values() if each is not None]
        # A table of the user's own says where it was made.
        other = [] if self.tuned is not None or benchmark(self.benchmark).own_data else self.extent
        if other and any(found[name] is None and "strength" in method_facts(name).settings for name in names):
            said.append(f"what was chosen for other {', '.join(other)}")
        return said

    @property
    def extent(self) -> dict[str, Any]:
        """What is otherwise than the scale says, and not chosen for each method."""
        sizes = {name: getattr(self.experiments[0], name) for name in ("tasks", "epochs", "width")}
        found = {name: value for name, value in sizes.items() if value != getattr(self.defaults, name)}
        found |= {k: v for k, v in self.settings.items() if k not in (*METHOD_FIELDS, *_NO_PART)}
        if sha256 := self.settings.get("reading", {}).get("sha256"):
            found["data"] = f"{found.get('data')} ({sha256[:8]})"
        return found

    def as_dict(self) -> dict[str, Any]:
        """What was asked for, as JSON can say it, but for the table of strengths."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "tuned"}
        # As earlier folders have it: what was added later only where it is said.
        said["size"] = None if self.size is None else {k: v for k, v in vars(self.size).items() if k != "items" or v}
        said["settings"] = dict(self.settings) or None
        return {name: value for name, value in said.items() if value is not None}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any], tuned: Path | None = None) -> "Comparison":
        """The comparison of which `as_dict` was written down."""
        size = said.get("size")
        methods = tuple(said.get("methods", ()))
        return cls(**{**said, "methods": methods, "size": size and Size(**size), "tuned": tuned})


def shared_settings(experiment: Experiment) -> dict[str, Any]:
    """The settings that all runs of a comparison share: all but methods, seeds, and what is chosen per method."""
    own = ("method", "seed", "options", *METHOD_FIELDS)
    return {name: value for name, value in experiment.as_dict().items() if name not in own}
