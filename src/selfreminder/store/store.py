"""The store of a deployed model's versions: what the commands do, as a library."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfreminder.store.answers import Asking
from selfreminder.store.compare import CheckResult, DiffResult, check, diff
from selfreminder.store.config import make_config
from selfreminder.store.delete import DeleteResult, delete
from selfreminder.store.drift import Drift
from selfreminder.store.drifting import look_for_drift
from selfreminder.store.handover import HandedOver, hand_over, tell_registry
from selfreminder.store.history import HistoryRow, list_history
from selfreminder.store.incoming import read_incoming
from selfreminder.store.init import InitResult, init
from selfreminder.store.progress import Watch, ignore
from selfreminder.store.rollback import RollbackResult, rollback
from selfreminder.store.update import UpdateResult, update
from selfreminder.store.versions import Versions


class Store(Versions):
    """A local folder of a model's versions, each whole and never edited, and one pointer to the current one.

    Beside it is the user's own `selfreminder.toml`: which code builds the model, what the gate asks. `Store.init` makes
    both; `Store.open(path)` opens a store.
    """

    @classmethod
    def init(
        cls,
        path: str | Path,
        data: Any = None,
        *,
        model: str | None = None,
        weights: str | Path | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        config: str | Path | None = None,
        skip_bad: bool = False,
        watch: Watch = ignore,
        command: str | None = None,
    ) -> InitResult:
        """Make a store with version 1: the model as it is, a few of its data remembered, some held out.

        Args:
            path: a folder that is not there, or is empty.
            data: what is left of the old data, best such that the model was not trained on; labelled or not.
            model: `package.module:factory`, `timm:NAME` or `hf:FOLDER`; without it, `config` is there already.
            weights: safetensors, or a `.pt` that holds a state dict.
            settings: tables of `selfreminder.toml`: {"data": {"preprocess": …}, "memory": {"budget": …}, …}.
            config: where `selfreminder.toml` is or will be, if not beside the store.
            skip_bad: leave out data that cannot be read.
            watch: is told the progress.
            command: as it was typed, for the manifest.
        """
        store = cls(path, config)
        store.check_new()
        wanted = make_config(store.config_path, model, weights, settings or {})
        made = init(store, wanted, data, skip_bad=skip_bad, watch=watch, command=command)
        return replace(made, notes=made.notes + tell_registry(store, made.version))

    def update(
        self,
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
        """Train on new data with a reminder of the old, judge, and promote what passes; or leave all as it was.

        Killed at any moment, the same call goes on where it was.

        Args:
            data: anything that `data.own.read_own_data` takes; by default what `new` in [data] names.
            grow: labels may be beyond the model's outputs: its last linear layer is widened.
            dry_run: train and judge, but add nothing to the store; the same call without it need not train again.
            skip_bad: leave out data that cannot be read.
            if_drifted: do nothing unless the data differs from all that is held out.
            watch: is told the progress.
            stop: is asked after every step; when it says so, `training.StoppedError` is raised.
            command: as it was typed, for the manifest.
        """
        done = update(
            self,
            data,
            grow=grow,
            dry_run=dry_run,
            skip_bad=skip_bad,
            if_drifted=if_drifted,
            watch=watch,
            stop=stop,
            command=command,
        )
        return done if done.version is None else replace(done, notes=done.notes + tell_registry(self, done.version))

    def check(
        self, weights: str | Path, data: Any = None, *, skip_bad: bool = False, watch: Watch = ignore
    ) -> CheckResult:
        """Hold any weights of the same model to the gate, beside the current version; nothing is changed.

        Args:
            weights: safetensors, or a `.pt` that holds a state dict.
            data: the new, to see what is gained; all of it is judged by.
            skip_bad: leave out data that cannot be read.
            watch: is told the progress.
        """
        return check(self, weights, data, skip_bad=skip_bad, watch=watch)

    def drift(self, data: Any, *, alpha: float = 0.01, skip_bad: bool = False, watch: Watch = ignore) -> Drift:
        """Say whether new data, labelled or not, differs from all that is held out, and which classes moved.

        Args:
            data: anything that `data.own.read_own_data` takes.
            alpha: the chance of calling drift what is none.
            skip_bad: leave out data that cannot be read.
            watch: is told the progress.
        """
        config, current = self.config, self.current
        incoming = read_incoming(
            data, config, classes=current.manifest.classes, grow=True, form=current.read_form(), skip_bad=skip_bad
        )
        return look_for_drift(Asking(config, watch), current, incoming, alpha=alpha)

    def export(
        self,
        number: int | None = None,
        *,
        onnx: Path | None = None,
        pt2: Path | None = None,
        hf: Path | None = None,
        mlflow: str | None = None,
        name: str | None = None,
        watch: Watch = ignore,
    ) -> HandedOver:
        """Write a version as others read it; ONNX and exported programs are checked to give the same outputs.

        Args:
            number: of the version; by default the current one.
            onnx: a file to write as ONNX, the preprocessing included.
            pt2: a file to write as PyTorch's exported program, the same.
            hf: a folder to write in the layout of Hugging Face.
            mlflow: the address of an MLflow registry; the current version becomes `champion`, others `candidate`.
            name: of the registered model there; by default what [mlflow] says, or "model".
            watch: is told the progress.
        """
        return hand_over(self, number, onnx=onnx, pt2=pt2, hf=hf, mlflow_uri=mlflow, name=name, watch=watch)

    def rollback(self, to: int | None = None) -> RollbackResult:
        """Make the version that was current before the current one, or another one that was, current again."""
        done = rollback(self, to)
        return replace(done, notes=tell_registry(self, done.version))

    def history(self) -> list[HistoryRow]:
        """All versions, oldest first: how each came about, and how right it is on every slice."""
        return list_history(self)

    def diff(self, before: int, after: int, *, watch: Watch = ignore) -> DiffResult:
        """Say which held-out inputs two versions answer differently."""
        return diff(self, before, after, watch=watch)

    def delete(
        self,
        *,
        ids: str | None = None,
        where: str | None = None,
        older_than: str | None = None,
        dry_run: bool = False,
        watch: Watch = ignore,
        command: str | None = None,
    ) -> DeleteResult:
        """Make a version whose memory and held-out slices lack the items that meet all that is asked.

        Args:
            ids: numbers and ranges of items: "3,5,10-20".
            where: conditions with commas between them, on item, label, time, version or a metadata column:
                "site=B,label!=cat", "time<2026-01-01".
            older_than: an age: "90d", "12h", "6w".
            dry_run: only say what would be deleted.
            watch: is told the progress.
            command: as it was typed, for the manifest.
        """
        done = delete(self, ids=ids, where=where, older_than=older_than, dry_run=dry_run, watch=watch, command=command)
        return done if done.version is None else replace(done, notes=tell_registry(self, done.version))
