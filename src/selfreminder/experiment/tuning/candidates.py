"""What to tune, and of which candidates. Nothing here needs torch or Optuna."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from selfreminder._base.errors import SelfReminderError, unknown
from selfreminder._base.sizes import Size
from selfreminder.experiment.catalogue import uses
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.choice import Choice, Outcome, Settings, is_numeric, name_of, optimizer, text_of
from selfreminder.experiment.tuning.tuned import METHOD_FIELDS, find_tuned, locate_section

STRENGTHS = {
    "fsr-logit": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-logitlab": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "fsr-distill": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "icarl": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "lwf": (0.03, 0.1, 0.3, 1.0, 3.0),
    "ewc": (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    "generative-replay": (0.3, 1.0, 3.0),
    "hat": (0.1, 0.3, 0.75, 1.5, 2.5),
}
STEP_SIZES = {
    "adam": (0.0001, 0.0004, 0.0008, 0.0016),
    "sgd": (0.001, 0.003, 0.01, 0.03, 0.1),
    "plateau": (0.01, 0.03, 0.05, 0.1, 0.2, 0.5),
}
"""by optimiser, and for HAT's protocol"""
SAMPLERS = ("grid", "tpe")
_STREAM = ("benchmark", "method", "seed", "data", "images", "tasks", "split_into")
_FIXED = (*_STREAM, "validation", "probe", "device", "options")
TUNABLE = tuple(f.name for f in fields(Experiment) if f.name not in (*_FIXED, "per_class", "per_task", "budget"))
_FIRST_SEED = 100
"""seeds that no comparison uses begin here"""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is to be tuned, and how."""

    comparison: Comparison
    """at what: benchmark, scale, methods, size of the memory …"""
    fields: tuple[str, ...] = ()
    """of the experiment; none: strength, or sgd's step size"""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """candidates by field, where they are not the usual ones"""
    sampler: str = "grid"
    """grid: every combination of candidates; tpe: values in their range and somewhat beyond"""
    trials: int | None = None
    """of each method with tpe; None: 20"""
    seeds: int = 2
    prune: bool | None = None
    """end trials that fall behind; None: with tpe, where nobody needs the whole curve"""

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise unknown("sampler", self.sampler, SAMPLERS)
        for name in (*self.fields, *self.values):
            if name not in TUNABLE:
                raise unknown("field", name, TUNABLE)
        for name in self.values:
            if self.fields and name not in self.fields:
                raise SelfReminderError(f"there are values of {name}, but the fields are {', '.join(self.fields)}")
        for name, value in (("seeds", self.seeds), ("trials", self.trials)):
            if value is not None and value < 1:
                raise SelfReminderError(f"{name} is {value}: it must be at least 1")
        if self.trials is not None and self.sampler == "grid":
            raise SelfReminderError("trials are for --sampler tpe: a grid has as many as there are candidates")

    @property
    def count(self) -> int:
        """Trials of each method with tpe."""
        return self.trials or 20

    @property
    def pruned(self) -> bool:
        return self.sampler == "tpe" if self.prune is None else self.prune

    @cached_property
    def choices(self) -> list[Choice]:
        """One for each method that has something to choose."""
        found = [self._choice(method) for method in self._methods if self._fields(method)]
        for choice in found:
            for settings in choice.grid():
                choice.runs(settings)  # says what is wrong with a candidate
        return found

    @property
    def skipped(self) -> list[str]:
        """Methods that have nothing to choose."""
        return [method for method in self._methods if not self._fields(method)]

    @property
    def writable(self) -> bool:
        """Whether a table can say what is chosen: a table has what is a method's own."""
        return all(name in METHOD_FIELDS for choice in self.choices for name in choice.candidates)

    def entry(self, outcome: Outcome) -> dict[str, Any]:
        """The section of a table: what is chosen, and how."""
        assert outcome.chosen is not None
        choice, names = outcome.choice, list(outcome.choice.candidates)
        done = [trial for trial in outcome.tried if trial.value is not None]
        left = {name_of(trial.settings): trial.state for trial in outcome.tried if trial.value is None}
        if len(names) == 1:
            validation: Any = {name_of(trial.settings): trial.value for trial in done}
        else:
            validation = [trial.settings | {"validation": trial.value} for trial in done]
        scale = self.comparison.defaults
        where = {k: v for k in ("tasks", "epochs", "width") if (v := getattr(choice.base, k)) != getattr(scale, k)}
        return {
            **self._kept(choice.method),
            **outcome.chosen.settings,
            "fields": names,
            **({} if outcome.adams_newest is None else {"adams_newest": outcome.adams_newest}),
            "validation": validation,
            **({"unfinished": left} if left else {}),
            "seeds": list(choice.seeds),
            "trials": len(outcome.tried),
            "sampler": self.sampler,
            "study": outcome.study,
            **({"where": where} if where else {}),
            "command": self._command(choice.method),
        }

    def _command(self, method: str) -> str:
        """What chooses the same again for one method."""
        at = self.comparison
        said: dict[str, object] = {
            "--scale": at.scale,
            "--methods": method,
            "--fields": ",".join(self.fields) or None,
            "--sampler": self.sampler if self.sampler != "grid" else None,
            "--trials": self.trials,
            "--seeds": self.seeds if self.seeds != 2 else None,
            "--per-class": at.size and at.size.per_class,
            "--per-task": at.size and at.size.per_task,
            "--budget": at.size and at.size.budget,
            **{f"--{name}": getattr(at, name) for name in ("tasks", "epochs", "width", "tuned")},
            "--device": at.device if at.device != "cpu" else None,
        }
        words = ["selfreminder", "tune", at.benchmark]
        for option, value in said.items():
            words += [] if value is None else [option, str(value)]
        for name, values in self.values.items():
            words += ["--values", f"{name}={','.join(map(text_of, values))}"]
        words += [] if self.prune is None else ["--prune" if self.prune else "--no-prune"]
        return shlex.join(words)

    def _kept(self, method: str) -> Settings:
        """What a table has for a method already."""
        at = self.comparison
        return find_tuned(at.benchmark, at.scale, method, self._at(method).size, at.tuned)

    @cached_property
    def _methods(self) -> list[str]:
        return list(self.comparison.methods or dict.fromkeys(e.method for e in self.comparison.experiments))

    def _at(self, method: str) -> Comparison:
        """The comparison with this method alone; a method that keeps no items has no size of a memory."""
        at = replace(self.comparison, methods=(method,), seeds=1)
        is_scales_own = at.size == Size(per_class=at.defaults.per_class)
        return replace(at, size=None) if is_scales_own or not uses(method, "per_class") else at

    def _base(self, method: str) -> Experiment:
        return self._at(method).experiments[0]

    def _fields(self, method: str) -> list[str]:
        if asked := self.fields or tuple(self.values):
            return [name for name in dict.fromkeys(asked) if uses(method, name)]
        if uses(method, "strength"):
            return ["strength"]
        return ["lr"] if method == "sgd" and self.comparison.defaults.lr is None else []

    def _choice(self, method: str) -> Choice:
        base, at, names = self._base(method), self._at(method), self._fields(method)
        candidates = {name: self._candidates(base, name) for name in names}
        return Choice(
            # Not what the table has by now of what is to be chosen: the choice is the same one whatever that is.
            base=replace(base, seed=_FIRST_SEED, **{name: values[0] for name, values in candidates.items()}),
            candidates=candidates,
            seeds=tuple(range(_FIRST_SEED, _FIRST_SEED + self.seeds)),
            section=locate_section(at.benchmark, at.scale, method, at.size),
            reference=self._base("adam") if method == "sgd" and names == ["lr"] else None,
        )

    def _candidates(self, base: Experiment, name: str) -> tuple[Any, ...]:
        usual = {
            "strength": STRENGTHS.get(base.method, ()),
            "lr": STEP_SIZES["plateau" if base.plateau else optimizer(base)],
        }
        values = self.values.get(name) or usual.get(name, ())
        if not values:
            raise SelfReminderError(f"{base.method}: {name} has no usual candidates: give some, --values {name}=…")
        values = tuple(dict.fromkeys(values))
        return tuple(sorted(values)) if is_numeric(values) else values
