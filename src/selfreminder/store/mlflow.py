"""Versions of a store in an MLflow registry (3 or newer): all of a version's files, and two aliases that move.

`candidate` is the version before the gate, `champion` the one that is deployed; at a rollback, champion moves back. The
files are safetensors, JSON and text: MLflow gets nothing to unpickle, and no code to run.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selfreminder._base.errors import MissingExtraError, StoreError
from selfreminder._base.tensor_file import canonical_json

CANDIDATE, CHAMPION = "candidate", "champion"
_EXPERIMENT = "selfreminder"
_VERSION, _MANIFEST, _VERDICT = "selfreminder.version", "selfreminder.manifest", "selfreminder.verdict"
"""tags of a registered version"""
_FILES = "model"
"""their folder among those of a run"""
_TIMEOUT = 10


@dataclass(frozen=True)
class Registered:
    """A version of a store as MLflow knows it."""

    name: str
    """of the registered model"""
    version: int
    """MLflow's own number"""
    number: int
    """the store's"""
    uri: str
    """where its files are: `mlflow.artifacts.download_artifacts` takes it"""


def register(
    uri: str,
    name: str,
    folder: Path,
    *,
    alias: str | None = CANDIDATE,
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Registered:
    """Register a version of a store, with all its files; one that is there already is only found again.

    Args:
        uri: of MLflow: http://…, sqlite:///… or any other that it knows.
        name: of the registered model.
        folder: of the version, with its manifest.json.
        alias: moves to it; None for none.
        metrics: by name, such as accuracy by slice.
        tags: by name.
    """
    manifest = _read_manifest(folder)
    number, digest = int(manifest["version"]), str(manifest.get("sha256") or canonical_json(manifest.get("files")))
    with _connect(uri) as client:
        found = _find(client, name, number, digest)
        if found is None:
            experiment = _find_experiment(client, uri)
            run_id, source = _log_files(client, experiment, name, folder, manifest, metrics or {})
            if not client.search_registered_models(f"name = '{name}'", max_results=1):
                client.create_registered_model(name)
            own = {_VERSION: str(number), _MANIFEST: digest, _VERDICT: str(manifest.get("verdict") or "")}
            found = client.create_model_version(name, source, run_id=run_id, tags=own | dict(tags or {}))
        if alias is not None:
            client.set_registered_model_alias(name, alias, found.version)
        return Registered(name, int(found.version), number, found.source)


def promote(uri: str, name: str, number: int) -> Registered:
    """Let `champion` be a version of the store, after the gate or at a rollback; it is no candidate any more."""
    with _connect(uri) as client:
        found = _find(client, name, number)
        if found is None:
            raise StoreError(f"{name} in {uri} has no version {number} of the store: register it first")
        client.set_registered_model_alias(name, CHAMPION, found.version)
        aliases = client.get_registered_model(name).aliases
        if str(aliases.get(CANDIDATE)) == str(found.version):
            client.delete_registered_model_alias(name, CANDIDATE)
        return Registered(name, int(found.version), number, found.source)


def find_alias(uri: str, name: str, alias: str = CHAMPION) -> int | None:
    """The number of the store's version that an alias means; None if it means none."""
    with _connect(uri) as client:
        models = client.search_registered_models(f"name = '{_check_name(name)}'", max_results=1)
        version = models[0].aliases.get(alias) if models else None
        if version is None:
            return None
        number = client.get_model_version(name, version).tags.get(_VERSION)
        return None if number is None else int(number)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        int(manifest["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{folder} is no version of a store: {path.name} cannot be read ({error})") from None
    return manifest


def _check_name(name: str) -> str:
    if not name or set(name) & set("/:'\"\\"):
        raise StoreError(f"'{name}' is no name of a registered model: leave out slashes, colons and quotes")
    return name


def _find(client: Any, name: str, number: int, digest: str | None = None) -> Any:
    """The newest registered version of a store's version; `digest` tells apart those of several stores."""
    found = [
        each
        for each in client.search_model_versions(f"name = '{_check_name(name)}'")
        if each.tags.get(_VERSION) == str(number) and digest in (None, each.tags.get(_MANIFEST))
    ]
    return max(found, key=lambda each: int(each.version), default=None)


def _find_experiment(client: Any, uri: str) -> str:
    experiment = client.get_experiment_by_name(_EXPERIMENT)
    if experiment is not None:
        return experiment.experiment_id
    place = None
    if uri.startswith("sqlite:///"):  # beside the data base: MLflow itself would take the working folder
        place = (Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts").as_uri()
    return client.create_experiment(_EXPERIMENT, artifact_location=place)


def _log_files(
    client: Any, experiment: str, name: str, folder: Path, manifest: Mapping[str, Any], metrics: Mapping[str, float]
) -> tuple[str, str]:
    """Log a version's files, with an MLmodel file that says what they are; the run's id and where they went."""
    from mlflow.models import Model  # noqa: PLC0415 - of the extra `mlflow`

    # The files are a run's, not a logged model's: an SQLite registry would look that one up elsewhere.
    run = client.create_run(experiment, run_name=f"{name} {manifest['version']}", tags={"selfreminder.name": name})
    run_id = run.info.run_id
    try:
        files = sorted(path.name for path in folder.iterdir() if path.is_file())
        about = Model(artifact_path=_FILES, run_id=run_id)
        about.add_flavor("selfreminder", version=int(manifest["version"]), files=files)
        with TemporaryDirectory(prefix="selfreminder-") as temporary:
            about.save(str(Path(temporary) / "MLmodel"))
            client.log_artifacts(run_id, temporary, _FILES)
        client.log_artifacts(run_id, str(folder), _FILES)
        for key, value in metrics.items():
            client.log_metric(run_id, _as_key(key), value)
    except BaseException:
        client.update_run(run_id, status="FAILED")
        raise
    client.update_run(run_id, status="FINISHED")
    return run_id, f"{run.info.artifact_uri}/{_FILES}"


def _as_key(name: str) -> str:
    """A metric's name in the letters that MLflow allows."""
    return "".join(letter if letter.isalnum() or letter in "_-. :/" else "_" for letter in name)


@contextmanager
def _connect(uri: str) -> Iterator[Any]:
    """A client of MLflow; what it raises becomes a line."""
    try:
        from mlflow import MlflowClient  # noqa: PLC0415 - of the extra `mlflow`
        from mlflow.exceptions import MlflowException  # noqa: PLC0415
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(f"MLflow needs {error.name}: pip install 'selfreminder[mlflow]'") from None
    if uri.startswith(("http://", "https://")):
        _check_answers(uri)
    elif uri.startswith("sqlite:///") and not (parent := Path(uri.removeprefix("sqlite:///")).parent).is_dir():
        raise StoreError(f"{uri}: there is no folder {parent}")
    try:
        yield MlflowClient(tracking_uri=uri, registry_uri=uri)
    except (MlflowException, SQLAlchemyError) as error:
        raise StoreError(f"MLflow at {uri}: {str(error).splitlines()[0][:300]}") from error


def _check_answers(uri: str) -> None:
    """Ask a server whether it is there: MLflow itself would try for minutes."""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_TIMEOUT):
            pass
    except urllib.error.HTTPError:
        pass  # it answers; what it thinks of us, MLflow will say
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise StoreError(
            f"MLflow at {uri} does not answer ({reason}): start `mlflow server`, or mend the address"
        ) from None
