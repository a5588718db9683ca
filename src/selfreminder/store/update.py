"""`update`: a candidate is trained on new data, judged, and only then promoted; or everything stays as it was.

    hold the store → read the data → hold out a slice → train → judge → add the version → move the pointer

Whatever happens at whatever moment, the current version stays current and whole until the pointer moves, in one step.
What is done is in the folder `work/KEY`, where KEY is a hash of parent, data and settings: the same command goes on
with it.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from torch import Tensor, nn

from selfreminder._base.errors import StoreError
from selfreminder._base.sizes import Size
from selfreminder._base.tensor_file import read_plain, write_plain
from selfreminder.memory import Memory, open_memory, save_memory
from selfreminder.memory.fingerprint import fingerprint_model
from selfreminder.reminder.reminder import Reminder
from selfreminder.store.answers import Asking, make_slices, measure
from selfreminder.store.candidate import train_candidate
from selfreminder.store.contents import Contents
from selfreminder.store.drifting import look_for_drift
from selfreminder.store.gate import Slice, judge
from selfreminder.store.heldout import HeldOut
from selfreminder.store.items import name_items
from selfreminder.store.judgement import FAILED, Judgement
from selfreminder.store.manifest import DataFacts, Manifest, hash_file
from selfreminder.store.model import widen_head
from selfreminder.store.plan import Plan, make_plan, read_facts, write_facts
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.version import MEMORY, MODEL, REPORT, Version
from selfreminder.store.versions import Versions

_CANDIDATE, _TRAINING = "candidate.json", "training"


@dataclass(frozen=True, eq=False)
class UpdateResult:
    """What became of an update. Print it."""

    outcome: Literal["promoted", "refused", "nothing"]
    reason: str
    """in one line"""
    parent: int
    version: Version | None = None
    """that was made; None where nothing was to do, or in a trial"""
    judgement: Judgement | None = None
    dry_run: bool = False
    """a trial: nothing was added to the store"""
    slices: list[Slice] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    """what somebody should know"""

    def __str__(self) -> str:
        if self.outcome == "nothing":
            return f"nothing to do: {self.reason}"
        what = "the candidate" if self.version is None else f"version {self.version.number}"
        would = "would be " if self.dry_run else "is "
        done = {"promoted": "current", "refused": "kept aside"}[self.outcome]
        stays = "" if self.outcome == "promoted" else f"; version {self.parent} stays current"
        where = "" if self.version is None else f": {self.version.folder / REPORT}"
        table = [] if self.judgement is None else [str(self.judgement)]
        return "\n".join([*table, f"{what} {would}{done}{stays}{where}", *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "notes": list(self.notes),
            "dry_run": self.dry_run,
            "parent": self.parent,
            "version": None if self.version is None else self.version.number,
            "folder": None if self.version is None else str(self.version.folder),
            "judgement": None if self.judgement is None else self.judgement.to_dict(),
        }


def update(
    store: Versions,
    data: Any = None,
    *,
    grow: bool = False,
    dry_run: bool = False,
    skip_bad: bool = False,
    if_drifted: bool = False,
    watch: Watch = ignore,
    stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
) -> UpdateResult:
    """Train on new data, judge, and promote what passes; see `Store.update`."""
    with store.hold(command):
        config, current = store.config, store.current
        if problems := current.verify():
            raise StoreError(f"version {current.number} is not whole: {problems[0]}; nothing was done")
        store.clean(but_of=current.number)
        plan = make_plan(store, config, current, data, grow=grow, skip_bad=skip_bad, watch=watch)
        if isinstance(plan, str):
            return UpdateResult("nothing", plan, current.number)
        if not dry_run and (done := _find_done(store, plan)) is not None:
            store.clean()
            return done
        if if_drifted:
            seen = look_for_drift(Asking(config, watch), current, plan.incoming)
            if not seen.drifted:
                return UpdateResult("nothing", str(seen).splitlines()[0], current.number)
        return _Job(store, plan, Asking(config, watch), stop, command).run(dry_run=dry_run)


def _find_done(store: Versions, plan: Plan) -> UpdateResult | None:
    """What the same command has done before it was killed, or has refused; None if it is to be done."""
    for version in reversed(store.versions):
        manifest = version.manifest
        if manifest.job == plan.key and manifest.settings == _plain(plan.config.recorded):
            judgement = Judgement.from_dict(dict(manifest.judgement))
            if judgement.passes and version.number not in store.promoted:
                if problems := version.verify():
                    raise StoreError(f"version {version.number} is not whole: {problems[0]}; remove {version.folder}")
                store.promote(version.number)
                return UpdateResult("promoted", judgement.reason, plan.current.number, version, judgement)
            if not judgement.passes:
                return UpdateResult("refused", judgement.reason, plan.current.number, version, judgement)
            # It was promoted once, and somebody went back.
            reason = f"version {version.number} is the same update, and was rolled back: `selfreminder rollback --to "
            return UpdateResult("nothing", f"{reason}{version.number}` makes it current", plan.current.number)
    return None


class _Job:
    """An update while it lasts."""

    def __init__(
        self, store: Versions, plan: Plan, asking: Asking, stop: Callable[[], bool], command: str | None
    ) -> None:
        self.store, self.plan, self.asking, self.stop, self.command = store, plan, asking, stop, command
        self.folder = plan.start(store)
        self.number = store.next_number()

    def run(self, *, dry_run: bool) -> UpdateResult:
        plan = self.plan
        weights, memory, training = self._make_candidate()
        heldout = plan.heldout + self._hold_out()
        current, candidate = self.asking.load(plan.current), self.asking.build(weights, plan.outputs)
        before = self.asking.predict(current, heldout.inputs, "asking the current version")
        after = self.asking.predict(candidate, heldout.inputs, "asking the candidate")
        slices = make_slices(heldout, before, after, new=f"v{self.number}", columns=plan.config.data.slices)
        judgement = judge(slices, plan.config.gate, self._classes or ())
        outcome = "promoted" if judgement.passes else "refused"
        notes = [*training["notes"], *_advise(judgement, training["strength"])]
        result = UpdateResult(
            outcome, judgement.reason, plan.current.number, None, judgement, dry_run, slices, tuple(notes)
        )
        if dry_run:
            return result
        version = self._add(weights, memory, heldout, training, judgement, after, slices)
        if judgement.passes:
            self.store.promote(version.number)
        self.store.clean()
        return replace(result, version=version)

    # A candidate -----------------------------------------------------------------------------------------

    def _make_candidate(self) -> tuple[Mapping[str, Tensor], Memory, dict[str, Any]]:
        """Weights, memory, and how they came about; what was made before is read."""
        path = self.folder / _CANDIDATE
        if not path.exists():
            if (twin := self._find_twin()) is not None:
                return twin.read_weights(), twin.read_memory(), dict(twin.manifest.training)
            self._train()
        training = self._read_candidate()
        return read_plain(self.folder / MODEL), open_memory(self.folder / MEMORY), training

    def _read_candidate(self) -> dict[str, Any]:
        """How a candidate came about that was made before, if its files are as they were written."""
        facts = read_facts(self.folder / _CANDIDATE)
        for name in (MODEL, MEMORY):
            path = self.folder / name
            if not path.is_file() or asdict(hash_file(path)) != facts.get("files", {}).get(name):
                raise StoreError(f"{path} is not as it was written: remove {self.folder}, and the update begins again")
        return facts["training"]

    def _find_twin(self) -> Version | None:
        """A version by the same update that another gate judged."""
        same = [version for version in self.store.versions if version.manifest.job == self.plan.key]
        return same[-1] if same and not same[-1].verify() else None

    def _train(self) -> None:
        plan, config = self.plan, self.plan.config
        model = self.asking.load(plan.current)
        if plan.outputs > plan.current.manifest.outputs:
            self._grow(model)
        layers = fingerprint_model(model)
        reminder = Reminder(
            plan.memory,
            codec="compressed",
            transform=self.asking.transform,
            # What was remembered before the model grew was recorded by narrower layers, then and later.
            grow=any(each.model != layers for each in plan.memory.fingerprints.values()),
            tasks="merge",
            seed=config.train.seed,
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            candidate = train_candidate(
                model,
                reminder,
                plan.incoming.samples(plan.first_item, plan.train),
                plan.incoming.samples(plan.first_item, plan.validation),
                settings=config.train,
                size=Size(**config.memory.size),
                folder=self.folder / _TRAINING,
                augment=self.asking.augment,
                now=plan.now,
                watch=self.asking.watch,
                stop=self.stop,
            )
        training = candidate.to_dict() | {"notes": sorted({str(each.message) for each in said})}
        write_plain(self.folder / MODEL, candidate.weights, {"format": "pt"})
        save_memory(candidate.memory, self.folder / MEMORY)
        files = {name: asdict(hash_file(self.folder / name)) for name in (MODEL, MEMORY)}
        write_facts(self.folder / _CANDIDATE, {"training": training, "files": files})  # last: all is there

    def _grow(self, model: nn.Module) -> None:
        outputs, wanted = self.plan.current.manifest.outputs, self.plan.outputs
        layer = widen_head(model, outputs, wanted)
        few = {name: x[:2] for name, x in self.plan.incoming.own.inputs.items()}
        if (given := self.asking.compute_logits(model, few, "growing").shape[1]) != wanted:
            raise StoreError(
                f"with a wider layer '{layer}' the model gives {given} outputs, not {wanted}: it cannot grow; "
                "widen it in your own code, and `selfreminder init` a new store with it"
            )

    @property
    def _classes(self) -> tuple[str, ...] | None:
        return self.plan.incoming.own.classes or self.plan.current.manifest.classes

    # A version -------------------------------------------------------------------------------------------

    def _hold_out(self) -> HeldOut:
        plan = self.plan
        ours = plan.incoming.take(plan.held)
        assert ours.own.labels is not None
        return HeldOut.of(
            ours.own.inputs,
            ours.own.labels,
            name=f"v{self.number}",
            items=plan.first_item + plan.held,
            time=plan.now,
            hashes=ours.hashes,
            columns=ours.texts(),
        )

    def _add(
        self,
        weights: Mapping[str, Tensor],
        memory: Memory,
        heldout: HeldOut,
        training: dict[str, Any],
        judgement: Judgement,
        answers: Tensor,
        slices: list[Slice],
    ) -> Version:
        plan = self.plan
        new = name_items(plan.incoming.take(plan.train).texts(), (plan.first_item + plan.train).tolist())
        known = plan.current.read_items() | new
        contents = Contents(weights, memory, heldout, known, plan.current.read_form())
        own = plan.incoming.own
        manifest = Manifest(
            version=self.number,
            kind="update",
            parent=plan.current.number,
            outputs=plan.outputs,
            next_item=max(plan.first_item + len(plan.incoming), plan.current.manifest.next_item),
            classes=self._classes,
            job=plan.key,
            verdict=judgement.verdict,
            judgement=judgement.to_dict(),
            data=DataFacts(
                source=plan.incoming.source,
                fingerprint=plan.incoming.fingerprint,
                items=len(plan.incoming),
                first_item=plan.first_item,
                trained=len(plan.train),
                heldout=len(plan.held),
                left_out=len(plan.incoming) - len(plan.train) - len(plan.held) - len(plan.validation),
                columns=tuple(own.columns),
            ),
            settings=_plain(plan.config.recorded),
            training=training,
            metrics=measure(heldout, answers),
            command=self.command,
        )
        return contents.add_to(self.store, self.folder, manifest, judgement, slices)


def _advise(judgement: Judgement, strength: float) -> Iterator[str]:
    """What may do better."""
    if any(check.rule == "gain" and check.estimate <= 0 for check in judgement.checks):
        yield "nothing was gained on the new: other epochs or another lr in [train] may do better"
    if any(check.rule != "gain" and check.verdict == FAILED for check in judgement.checks):
        more = f"strength above {strength:.3g} in [train]" if strength else "a reminder: leave out strength in [train]"
        yield f"the old was lost: {more} or a larger budget in [memory] holds it more; a lower lr moves less"


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))
