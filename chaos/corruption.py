"""Corruption: every kind of file that we write, cut short or with a bit flipped, is noticed, or reads as it was."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from chaos.campaign import NOTICED, TINY, Outcome, Trial, call, fault, judge, limit_memory, worst
from chaos.crashes import COMMANDS, make_memory, make_template
from chaos.shop import make_shop, make_versions
from selfreminder import open_memory, save_memory
from selfreminder.cli.grid_command import write_summary
from selfreminder.data import dataset, source
from selfreminder.experiment.checkpoint import RunState
from selfreminder.experiment.comparison import Comparison, shared_settings
from selfreminder.experiment.folder import EARLIER_COMPARISON, check_same_comparison, read_grid, write_grid
from selfreminder.experiment.pool.process import FAILURE, Failed, keep_failure, read_failure
from selfreminder.experiment.records import PACKED, RECORDS, STATE, TIMINGS, pack_records, read_packed, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.tuning.candidates import Tuning
from selfreminder.experiment.tuning.tuned import describe_untuned, find_tuned
from selfreminder.report.results import group_runs
from selfreminder.store import Store
from selfreminder.store.delete import list_items
from selfreminder.training import StoppedError

Look = Callable[[Path], Any]


class File(NamedTuple):
    """A kind of file: how one is made in a folder, where it then is, and how it is looked at."""

    make: Callable[[Path], object]
    name: str
    """from there, with stars"""
    looks: tuple[Look, ...]


RUN = TINY.key
RESULTS = "results.json"


def make_grid(folder: Path) -> None:
    """Make a grid of one run, which is done."""
    write_grid(folder, [TINY], {"commands": [["run", "spec.toml"]]})
    run(TINY, folder / RUN)


def make_state(folder: Path) -> None:
    """Make a run that was stopped in its second task."""
    steps = iter(range(1000))
    try:
        run(TINY, folder / RUN, stop=lambda: next(steps) > 12)
    except StoppedError:
        return
    raise AssertionError("the run has ended too soon")


def make_packed(folder: Path) -> None:
    """Make a packed file of two runs, and of a list of them."""
    both = [TINY, replace(TINY, seed=1)]
    for experiment in both:
        run(experiment, folder / experiment.key)
    pack_records(folder)
    write_grid(folder, both, {})
    for experiment in both:
        (folder / experiment.key / RECORDS).unlink()


def make_comparison(folder: Path) -> None:
    """Make the folder of a comparison by an earlier version."""
    make_grid(folder)
    (folder / "grid.json").unlink()
    (folder / EARLIER_COMPARISON).write_text(json.dumps(shared_settings(_COMPARISON.experiments[0])))


def make_tuning(folder: Path) -> None:
    """Make the folder of a tuning."""
    words = COMMANDS["tune"].replace("--out out", f"--out {folder}").split()
    if (said := call(*words)).code:
        raise AssertionError(said.err)


def make_results(folder: Path) -> None:
    """Make a grid with the summary that a command writes of it."""
    make_grid(folder)
    write_summary({"results": [result.as_dict() for result in group_runs([run(TINY, folder / RUN)])]}, folder)


def make_cache(folder: Path) -> None:
    """Unpack data into a cache."""
    os.environ["SELFREMINDER_CACHE"] = str(folder / "cache")
    source.get(dataset("chaos"), make_template(folder / "template") / "given")


_COMPARISON = Comparison(benchmark="permuted-mnist", methods=("ewc",), seeds=1, tasks=2, epochs=1, width=0.05)


def make_candidate(folder: Path) -> None:
    """Make an update whose candidate is there, and not judged yet."""
    make_shop(folder)
    Store.open(folder / "store").update(folder / "new.npz", dry_run=True)


def make_half_trained(folder: Path) -> None:
    """Make an update that was stopped in training."""
    make_shop(folder)
    steps = iter(range(1000))
    try:
        Store.open(folder / "store").update(folder / "new.npz", stop=lambda: next(steps) > 8)
    except StoppedError:
        return
    raise AssertionError("the update has ended too soon")


def read_memory(folder: Path) -> Any:
    memory = open_memory(folder / "memory.safetensors")
    decoded = {name: memory.inputs[name].decode().numpy().tobytes() for name in memory.inputs}
    return decoded, memory.logits.numpy().tobytes(), {k: v.numpy().tobytes() for k, v in memory.columns.items()}


def read_state(folder: Path) -> Any:
    state = RunState.load(folder / RUN)
    if state is None:
        return None
    tensors = {"method": state.method, "right": dict(enumerate(state.right))}
    tensors |= {name: getattr(state.train, name) for name in ("model", "optimizer", "best")}
    numbers = {k: v for k, v in vars(state.train).items() if isinstance(v, int | float)}
    named = {
        (a, b): (str(t.dtype), t.shape, t.numpy().tobytes()) for a, group in tensors.items() for b, t in group.items()
    }
    return named, numbers, state.task, state.records_length, str(state.train.losses)


def read_run(folder: Path) -> Any:
    """The records of a run; one that is not done says so, and would be run again."""
    records = read_records(folder / RUN)
    return NOTICED if records is None or not records.done else records


def read_status(folder: Path) -> Any:
    """What `status` says, but for times: they are no results."""
    said = call("status", folder, "--json")
    if said.code:
        return said
    about = json.loads(said.out)
    if about["failed"] or about["left"]:
        return NOTICED
    apart = ("seconds", "seconds_left", "work_left", "nodes")
    runs = [{k: v for k, v in each.items() if k not in apart} for each in about.pop("results")]
    return {k: v for k, v in about.items() if k not in apart}, runs


def read_report(folder: Path) -> Any:
    """The page of a folder: it says what is damaged or not done, or is the same page."""
    said = call("report", folder, "--out", folder / "page.html")
    if said.code or "1 of 1 runs done" not in said.out:
        return said if said.code else NOTICED
    return (folder / "page.html").read_text(encoding="utf-8")


def read_choices(folder: Path) -> Any:
    from selfreminder.experiment.tuning.search import Search  # noqa: PLC0415 - needs an extra

    tuning = Tuning(comparison=_COMPARISON, values={"strength": (10.0, 100.0)}, seeds=1)
    return [(choice.chosen, choice.results) for choice in Search(tuning, folder).choose()]


def read_strengths(folder: Path) -> Any:
    """The strength that a comparison takes; where none was chosen, the comparison says so."""
    asked = ("permuted-mnist", "demo", "ewc", None, folder / "tuned.toml")
    return NOTICED if "defaults" in (describe_untuned(*asked) or "") else find_tuned(*asked)


def read_data(folder: Path) -> Any:
    os.environ["SELFREMINDER_CACHE"] = str(folder / "cache")
    data = dataset("chaos")
    return [source.read(file, path) for file in data.files if (path := source.find(data).get(file.name))]


def read_history(folder: Path) -> Any:
    return call("history", "--store", folder / "store", "--json")


def verify_store(folder: Path) -> Any:
    return call("verify", "--store", folder / "store")


def read_current(folder: Path) -> Any:
    """What an update and a deletion begin with."""
    store = Store.open(folder / "store")
    version = store.current
    weights = {name: tensor.numpy().tobytes() for name, tensor in version.read_weights().items()}
    return [asdict(each) for each in list_items(store, version)], weights, store.moves


def finish_update(folder: Path) -> Any:
    """What becomes of an update that is on its way."""
    with TemporaryDirectory() as copied:
        shutil.copytree(folder, copied, dirs_exist_ok=True)
        version = Store.open(f"{copied}/store").update(folder / "new.npz").version
        assert version is not None
        return {name: facts for name, facts in version.manifest.files.items() if name.endswith("safetensors")}


def _memory_command(word: str) -> Look:
    return lambda folder: call("memory", word, folder / "memory.safetensors", *([] if word == "verify" else ["--json"]))


FILES = {
    "a memory file": File(
        lambda folder: save_memory(make_memory(6, 40), folder / "memory.safetensors"),
        "memory.safetensors",
        (read_memory, _memory_command("list"), _memory_command("show"), _memory_command("verify")),
    ),
    "the state of a run": File(make_state, f"{RUN}/{STATE}", (read_state,)),
    "records": File(make_grid, f"{RUN}/{RECORDS}", (read_run, read_status, read_report)),
    "packed records": File(make_packed, PACKED, (read_packed, read_status)),
    "times": File(make_grid, f"{RUN}/{TIMINGS}", (read_run, read_status)),
    "a grid's list": File(make_grid, "grid.json", (read_grid, read_status, read_report)),
    "a failure": File(
        lambda folder: (make_grid(folder), keep_failure(folder / RUN, Failed("loss is nan", "diverged"))),
        f"{RUN}/{FAILURE}",
        (lambda folder: read_failure(folder / RUN) and None, read_run, read_status),
    ),
    "a table of strengths": File(make_tuning, "tuned.toml", (read_strengths,)),
    "a tuning's journal": File(make_tuning, "journal.jsonl", (read_choices,)),
    "a comparison's settings": File(
        make_comparison, EARLIER_COMPARISON, (lambda folder: check_same_comparison(folder, _COMPARISON),)
    ),
    "a store's pointer": File(make_versions, "store/current.json", (read_history, verify_store, read_current)),
    "a version's manifest": File(
        make_versions, "store/versions/2/manifest.json", (read_history, verify_store, read_current)
    ),
    "a version's memory": File(make_versions, "store/versions/2/memory.safetensors", (verify_store, read_current)),
    "a version's held-out slices": File(
        make_versions, "store/versions/2/heldout.safetensors", (verify_store, read_current)
    ),
    "a version's weights": File(make_versions, "store/versions/2/model.safetensors", (verify_store, read_current)),
    "a version's metadata of items": File(make_versions, "store/versions/2/items.json", (verify_store, read_current)),
    "an update's beginning": File(make_candidate, "store/work/*/job.json", (finish_update,)),
    "a candidate's facts": File(make_candidate, "store/work/*/candidate.json", (finish_update,)),
    "a candidate's weights": File(make_candidate, "store/work/*/model.safetensors", (finish_update,)),
    "a candidate's memory": File(make_candidate, "store/work/*/memory.safetensors", (finish_update,)),
    "a candidate's training": File(
        make_half_trained, "store/work/*/training/trunk/state.safetensors", (finish_update,)
    ),
    "results": File(make_results, RESULTS, (read_run, read_status, read_report)),
    "data in the cache": File(make_cache, "cache/chaos/part-1", (read_data,)),
}


def damage(content: bytes, number: int, trial: Trial) -> tuple[bytes, str]:
    """Cut a file short, or flip one of its bits, in turn."""
    place = trial.random.randrange(len(content))
    if number % 2:
        return content[:place], f"cut to {place} of {len(content)} bytes"
    bit = trial.random.randrange(8)
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :], f"bit {bit} of byte {place}"


def corrupt(file: File, trial: Trial) -> Iterator[Outcome]:
    """Damage a file again and again, and let every reader look at it."""
    folder = trial.fresh()
    file.make(folder)
    (path,) = folder.glob(file.name)
    content = path.read_bytes()
    expected = [look(folder) for look in file.looks]
    limit_memory()
    for number in range(trial.count):
        damaged, what = damage(content, number, trial)
        outcomes = []
        for look, whole in zip(file.looks, expected):
            path.write_bytes(damaged)
            outcomes.append(judge(partial(look, folder), whole, what))
        yield worst(outcomes)


for _name, _file in FILES.items():
    fault("Corruption", f"{_name}: cut short, or a bit flipped", short=60, long=2000)(partial(corrupt, _file))
