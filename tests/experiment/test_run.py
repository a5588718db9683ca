import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from selfreminder import benchmarks, methods
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.sizes import Size
from selfreminder.benchmarks import SCALES
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.stream import Split, Stream
from selfreminder.experiment.catalogue import benchmark, method_facts, read_catalogue
from selfreminder.experiment.comparison import Comparison
from selfreminder.experiment.pool.grid import Grid
from selfreminder.experiment.pool.process import Done, Failed, Progress
from selfreminder.experiment.preparation import prepare, stream_of
from selfreminder.experiment.records import RECORDS, STATE, TIMINGS, read_records
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
from selfreminder.experiment.tuning.tuned import describe_untuned, find_tuned
from selfreminder.memory.file import open_memory
from selfreminder.methods.adam import Adam
from selfreminder.training import StoppedError, Training
from tiny import TINY

SMALL = replace(TINY, method="fsr-logit", images=600, tasks=3, width=1 / 16, strength=0.1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of SMALL, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run(SMALL, folder)
    return (folder / RECORDS).read_bytes()


def test_records(tmp_path: Path) -> None:
    told: list[Progress] = []
    records = run(SMALL, tmp_path, watch=told.append)
    assert records == read_records(tmp_path)
    assert records.done
    assert records.experiment == SMALL
    assert [len(row) for row in records.test] == [len(row) for row in records.validation] == [1, 2, 3]
    assert [event["bytes"] for event in records.tasks] == [20 * 839, 40 * 839, 60 * 839]
    assert len(records.epochs) == 6
    assert len(open_memory(tmp_path / "memory.safetensors")) == 60
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "memory.safetensors", RECORDS, TIMINGS]
    fractions = [progress.fraction for progress in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    timings = [json.loads(line) for line in (tmp_path / TIMINGS).read_text().splitlines()]
    assert sum("seconds" in event for event in timings) == 6


def stop_again_and_again(experiment: Experiment, folder: Path) -> None:
    """At the second, third, … question since the start, until it ends: after a step, or in an evaluation."""
    places = set()
    for attempt in range(100):
        count = iter(range(1000))
        try:
            run(experiment, folder, stop=lambda count=count, last=1 + attempt % 8: next(count) == last)
        except StoppedError as error:
            places.add(traceback.extract_tb(error.__traceback__)[-1].name)
            continue
        break
    assert places == {"_epoch", "_predict"}
    assert not (folder / STATE).exists()


@pytest.mark.parametrize("worth_saving", [0.0, 1000.0])
def test_stopped_at_any_place(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch, worth_saving: float
) -> None:
    """The records are those of a run in one go, whether the end of a task's training was saved or is done again."""
    monkeypatch.setattr("selfreminder.experiment.run._WORTH_SAVING", worth_saving)
    stop_again_and_again(SMALL, tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == whole


@pytest.mark.parametrize("early", [False, True])
def test_hats_protocol_goes_through_the_state_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Best weights, a lowered step size, and an end before the last epoch."""
    monkeypatch.setattr("selfreminder.experiment.run._WORTH_SAVING", 0.0)
    if early:
        monkeypatch.setattr("selfreminder.training._PATIENCE", 2)
        monkeypatch.setattr("selfreminder.training._LEAST_LR", 0.005)
        # Lowered after 4 epochs, better once more, lowered too far after 7.
        losses = (3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0)
        monkeypatch.setattr("selfreminder.training._validation_loss", lambda *args: losses[args[-1] - 1])
    experiment = replace(SMALL, method="adam", tasks=2, epochs=9, plateau=True, lr=0.03, images=200)
    epochs = len(run(experiment, tmp_path / "whole").epochs)
    assert epochs == (14 if early else 18)
    stop_again_and_again(experiment, tmp_path / "cut")
    whole, cut = ((tmp_path / name / RECORDS).read_bytes() for name in ("whole", "cut"))
    assert cut == whole


KILLED = """
import sys, torch
torch.set_num_threads(1)
from selfreminder.experiment.run import run
from selfreminder.experiment.spec import Experiment
print("ready", flush=True)
run(Experiment(**eval(sys.argv[1])), sys.argv[2], save_every=0.0)
"""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path: Path, whole: bytes, seed: int) -> None:
    """kill -9 at random moments while it saves all the time: the records are those of a run in one go."""
    chance, kills = random.Random(seed), 0
    while kills < 6:
        command = [sys.executable, "-c", KILLED, repr(SMALL.as_dict()), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.8))
            if process.poll() is not None:
                break
            process.kill()
            kills += 1
    run(SMALL, tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == whole


def test_done_is_not_done_again(tmp_path: Path) -> None:
    run(SMALL, tmp_path)
    before = (tmp_path / RECORDS).stat().st_mtime_ns
    run(SMALL, tmp_path, watch=lambda progress: pytest.fail("it trained"))
    assert (tmp_path / RECORDS).stat().st_mtime_ns == before


def test_another_experiment_is_not_written_over(tmp_path: Path, whole: bytes) -> None:
    run(SMALL, tmp_path)
    with pytest.raises(SelfReminderError, match="holds another experiment"):
        run(replace(SMALL, seed=1), tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == whole


def test_what_is_given_beside_the_experiment_is_known_again(tmp_path: Path) -> None:
    """A folder of another stream, or of a model of other code, is not taken for done."""

    def one() -> nn.Module:
        return nn.Linear(6, 2)

    def other() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))

    def make(seed: int) -> Stream:
        x = torch.rand(60, 6, generator=torch.Generator().manual_seed(seed))
        return Stream.of([(x, (x[:, place] > 0.5).long()) for place in range(2)])

    experiment = Experiment(benchmark="own", method="adam", tasks=2, epochs=1, data="given")
    done = run(experiment, tmp_path, stream=make(0), model=one)
    assert done.versions.keys() >= {"stream", "model"}
    assert run(experiment, tmp_path, stream=make(0), model=one).tasks == done.tasks
    with pytest.raises(SelfReminderError, match="a run with another stream: choose another folder"):
        run(experiment, tmp_path, stream=make(1), model=one)
    with pytest.raises(SelfReminderError, match="a run with another model"):
        run(experiment, tmp_path, stream=make(0), model=other)
    widths = [3, 30]
    of_widths = [lambda width=width: nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2)) for width in widths]
    run(experiment, tmp_path / "closed over", stream=make(0), model=of_widths[0])
    run(
        experiment,
        tmp_path / "closed over",
        stream=make(0),
        model=lambda: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 2)),
    )
    with pytest.raises(SelfReminderError, match="a run with another model"):
        run(experiment, tmp_path / "closed over", stream=make(0), model=of_widths[1])


def test_a_damaged_state_is_said_and_left(tmp_path: Path) -> None:
    count = iter(range(1000))
    with pytest.raises(StoppedError):
        run(SMALL, tmp_path, stop=lambda: next(count) == 12)
    (tmp_path / STATE).write_bytes(b"nothing")
    records = (tmp_path / RECORDS).read_bytes()
    with pytest.raises(SelfReminderError, match=r"damaged.*remove it to start"):
        run(SMALL, tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == records


def test_what_a_power_cut_took_is_done_again(tmp_path: Path, whole: bytes) -> None:
    """Up to the state all is on disk; what was written after it may be a hole, with a later line behind it."""
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path, watch=_interrupt_in_task(2), save_every=0.0)
    with (tmp_path / RECORDS).open("ab") as file:
        file.write(bytes(40) + b'\n{"event": "epoch", "task": 1, "epoch": 1, "loss": 1.0}\n')
    before = read_records(tmp_path)
    assert before is not None
    assert not before.done
    assert len(before.tasks) == 1
    run(SMALL, tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == whole


@pytest.mark.parametrize("damage", ["hole", "short"])
def test_damage_before_the_state_is_said_and_left(tmp_path: Path, damage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path, watch=_interrupt_in_task(2), save_every=0.0)
    whole = (tmp_path / RECORDS).read_bytes()
    damaged = whole[:-20] + bytes(19) + b"\n" if damage == "hole" else whole[: whole.index(b"\n") + 1]
    (tmp_path / RECORDS).write_bytes(damaged)
    with pytest.raises(SelfReminderError, match="is damaged"):
        run(SMALL, tmp_path)
    assert (tmp_path / RECORDS).read_bytes() == damaged


def _interrupt_in_task(task: int) -> Callable[[Progress], None]:
    def watch(progress: Progress) -> None:
        if progress.task == task:
            raise KeyboardInterrupt

    return watch


def test_two_processes_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.experiment.run._PATIENCE", 0.2)

    def again(progress: Progress) -> None:
        with pytest.raises(SelfReminderError, match="another process is at work"):
            run(SMALL, tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path, watch=again)


def finish(grid: Grid) -> None:
    for _ in grid.run():
        pass


def test_grid_gives_the_same_records_with_one_or_two_workers(tmp_path: Path, whole: bytes) -> None:
    experiments = [SMALL, replace(SMALL, method="adam"), replace(SMALL, seed=1)]
    for jobs in (1, 2):
        grid = Grid(experiments, tmp_path / str(jobs), jobs)
        finish(grid)
        assert all(isinstance(job.answer, Done) for job in grid.all)
        assert (tmp_path / str(jobs) / SMALL.key / RECORDS).read_bytes() == whole
    for experiment in experiments:
        a, b = ((tmp_path / jobs / experiment.key / RECORDS).read_bytes() for jobs in "12")
        assert a == b
    assert Grid(experiments, tmp_path / "1").seconds_left() is None
    finish(Grid(experiments, tmp_path / "1"))  # nothing left to do


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    for seed in range(5):  # a run may be done before it is killed
        experiment = replace(SMALL, epochs=20, seed=seed)
        grid, killed = Grid([experiment], tmp_path, 1), False
        for job in grid.run():
            if job is not None and job.progress is not None and not killed:
                killed = True
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
        if grid.all[0].deaths:
            break
    assert grid.all[0].deaths == 1
    run(experiment, tmp_path / "whole")
    assert (tmp_path / experiment.key / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()


def test_a_worker_that_somebody_ends_is_replaced(tmp_path: Path, whole: bytes) -> None:
    grid, told = Grid([SMALL], tmp_path, 1), False
    for job in grid.run():
        if job is not None and job.progress is not None and not told:
            told = True
            for pid in children():
                os.kill(pid, signal.SIGTERM)
    assert told
    assert (tmp_path / SMALL.key / RECORDS).read_bytes() == whole


def test_what_does_not_apply_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    grid = Grid([SMALL, replace(SMALL, method="hat")], tmp_path, 1)
    for _ in grid.run():
        if grid.failures:
            break
    ((job, failure),) = grid.failures
    assert job.experiment == SMALL
    assert "hat does not apply here" in failure.reason
    assert not list(tmp_path.glob(f"*/{RECORDS}"))


def children() -> list[int]:
    """Worker processes of this one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    grid = Grid([replace(SMALL, per_class=500), replace(SMALL, lr=1e30), SMALL], tmp_path, 1)
    finish(grid)
    first, second, third = (job.answer for job in grid.all)
    assert isinstance(first, Failed)
    assert first.users_mistake
    assert "larger than the data" in first.reason
    assert isinstance(second, Failed)
    assert not second.users_mistake
    assert "at task 1, epoch" in second.reason
    assert third == Done()
    assert not (tmp_path / replace(SMALL, per_class=500).key / RECORDS).exists()


def test_experiments_have_names_of_their_own() -> None:
    assert SMALL.key == replace(SMALL).key
    keys = {replace(SMALL, **change).key for change in ({"seed": 1}, {"lr": 0.1}, {"options": {"a": 1}}, {})}
    assert len(keys) == 4


def test_a_field_that_came_later_changes_no_file() -> None:
    assert "split_into" not in SMALL.as_recorded()
    split = replace(SMALL, benchmark="split-mnist", tasks=2)
    assert replace(split, split_into=2) == split  # all that there are
    part = replace(split, split_into=5)
    assert part.as_recorded()["split_into"] == 5 and part.key != split.key
    coloured = replace(SMALL, benchmark="color-cifar10", data="generated-10", tasks=5)
    assert "hed" not in coloured.as_recorded() and replace(coloured, hed="today").key == coloured.key
    earlier = replace(coloured, hed="2018")
    assert earlier.as_recorded()["hed"] == "2018" and earlier.key != coloured.key


def test_another_hed_is_another_last_task_and_no_other() -> None:
    coloured = replace(SMALL, benchmark="color-cifar10", data="generated-10", images=None, tasks=5)
    ours, earlier = (stream_of(replace(coloured, hed=hed)) for hed in ("today", "2018"))
    assert [a.test.x.equal(b.test.x) for a, b in zip(ours, earlier)] == [True] * 4 + [False]
    assert [task.name for task in earlier][-1] == "hed-2018"


@pytest.mark.parametrize("method", ["sgd", "hat", "ewc", "fsr-logit", "joint"])
def test_the_first_tasks_of_a_split_stream_are_learned_as_in_the_whole(tmp_path: Path, method: str) -> None:
    split = replace(SMALL, benchmark="split-mnist", method=method, images=400, tasks=5, epochs=1)
    whole = run(split, tmp_path / "whole")
    first = run(replace(split, tasks=2, split_into=5), tmp_path / "first")
    assert first.test == whole.test[:2]
    assert first.epochs == whole.epochs[:2]
    assert "next" not in first.tasks[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "permutted-mnist"}, "did you mean 'permuted-mnist'"),
        ({"method": "fsr"}, "unknown method 'fsr'"),
        ({"data": "mnis"}, "did you mean 'mnist'"),
        ({"data": "mnist+fashion-mnist"}, "permuted-mnist has one data set"),
        ({"data": "cifar10"}, "data is cifar10: permuted-mnist needs images like those of mnist"),
        ({"benchmark": "split-cifar10"}, "split-cifar10 needs images like those of cifar10"),
        ({"tasks": 0}, "tasks is 0"),
        ({"split_into": 5}, "permuted-mnist does not split classes"),
        ({"hed": "2018"}, "hed is 2018: permuted-mnist has no task in HED"),
        ({"hed": "2019"}, "unknown hed '2019'"),
        ({"benchmark": "split-mnist", "split_into": 2, "tasks": 5}, "tasks is 5: the stream is split into 2"),
        ({"width": -1.0}, "width is -1"),
        ({"strength": -1.0}, "strength is -1"),
        ({"weight_decay": -1.0}, "weight_decay is -1"),
        ({"weight_decay": float("nan")}, "weight_decay is nan"),
        ({"validation": 1.5}, "validation is 1.5"),
        ({"per_class": 0}, "at least one item"),
        ({"codec": "uint9"}, "unknown codec 'uint9': did you mean 'uint8'"),
        ({"logit_codec": "float8"}, "unknown logit_codec 'float8'"),
        ({"over_tasks": "men"}, "unknown over_tasks 'men': did you mean 'mean'"),
        ({"select": "herding:kernl=linear"}, "unknown option of herding 'kernl': did you mean 'kernel'"),
        ({"per_class": 3, "per_task": 3}, "exactly one of"),
    ],
)
def test_bad_specs(change: dict, message: str) -> None:
    with pytest.raises(SelfReminderError, match=message):
        replace(SMALL, **change)


def _strength(name: str, scale: str, method: str) -> float:
    """What was chosen, or the class's own default."""
    found = find_tuned(name, scale, method).get("strength", method_facts(method).strength)
    assert found is not None
    return found


def test_every_method_has_a_strength_and_it_is_known_who_chose_it() -> None:
    with_strength = [name for name in methods.names() if "strength" in methods.method_class(name).__dataclass_fields__]
    for name, of_benchmark in read_catalogue().benchmarks.items():
        for scale in of_benchmark.scales:
            assert all(_strength(name, scale, method) > 0 for method in with_strength)
    for method in ("sgd", "fsr-logit", "fsr-distill", "fsr-logitlab"):
        assert describe_untuned("permuted-mnist", "small", method) is None
    assert describe_untuned("mixture", "demo", "fsr-logit") == "fsr-logit: defaults"
    assert describe_untuned("permuted-mnist", "small", "fsr-logit", Size(50)) is None
    assert describe_untuned("permuted-mnist", "small", "fsr-logit", Size(1)) is None
    assert describe_untuned("permuted-mnist", "small", "fsr-logit", Size(2)) == (
        "fsr-logit (2 per class): what was chosen for 50 per class"
    )
    assert describe_untuned("permuted-mnist", "small", "ewc", Size(2)) is None  # it has no memory
    own, other = (find_tuned("permuted-mnist", "small", "fsr-logit", Size(n))["strength"] for n in (50, 1))
    assert own < other  # few items need a stronger hold
    assert Comparison(benchmark="mixture", scale="demo", methods=("sgd", "hat")).untuned == ["hat: defaults"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [name for name in benchmarks.names() if not benchmark(name).own_data])
def test_every_scale_is_an_experiment(name: str, scale: str) -> None:
    comparison = Comparison(benchmark=name, scale=scale)
    assert len(comparison.experiments) >= len(benchmark(name).scales[scale].methods)
    assert all(experiment.key.startswith(experiment.method) for experiment in comparison.experiments)


@pytest.mark.parametrize("name", ["permuted-mnist", "split-mnist"])
def test_each_number_of_a_record_is_of_what_its_name_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, from the models as they were after each task."""
    ends: list[nn.Module] = []
    monkeypatch.setattr(Adam, "after_task", lambda self, model, task: ends.append(copy.deepcopy(model).eval()))
    one = replace(SMALL, benchmark=name, method="adam", strength=None, seed=3, images=400, tasks=5, epochs=2, lr=3e-3)
    records = run(one, tmp_path)
    stream = stream_of(one)
    tasks = list(stream)
    untrained = build_model(benchmark(name).model, width=one.width, seed=3, heads=stream.heads)

    @torch.no_grad()
    def right(model: nn.Module, split: Split, head: int | None) -> Tensor:
        return ((model(split.x) if head is None else model(split.x, head)).argmax(1) == split.y).double()

    learned = [right(model, task.test, task.head) for model, task in zip(ends, tasks)]
    for t, (event, model) in enumerate(zip(records.tasks, ends)):
        test = [right(model, task.test, task.head) for task in tasks[: t + 1]]
        validation = [right(model, task.validation, task.head) for task in tasks[: t + 1]]
        flips = [(was * (1 - now)).mean().item() for was, now in zip(learned, test)]
        wanted = {
            "test": [each.mean().item() for each in test],
            "validation": [each.mean().item() for each in validation],
            "flips": flips,
        }
        if t < 4:
            following = tasks[t + 1]
            wanted["next"] = right(model, following.test, following.head).mean().item()
            wanted["next_untrained"] = right(untrained, following.test, following.head).mean().item()
        for key, value in wanted.items():
            assert event[key] == pytest.approx(value, abs=1e-3), (key, t)
    assert max(flips) > 0.02


def test_every_field_of_an_experiment_reaches_its_run() -> None:
    one = replace(
        SMALL,
        seed=4,
        lr=0.003,
        weight_decay=0.5,
        batch_size=7,
        optimizer="sgd",
        plateau=True,
        strength=0.3,
        per_class=None,
        per_task=5,
        select="herding",
        codec="float16",
        logit_codec="int8",
        memory_batch=9,
        over_tasks="mean",
        options={"mode": "train"},
    )
    made = prepare(one)
    assert made.how == Training(
        epochs=2, batch_size=7, optimizer="sgd", lr=0.003, weight_decay=0.5, plateau=True, seed=4
    )
    assert made.method == methods.method_class("fsr-logit")(
        strength=0.3,
        size=Size(per_task=5),
        select="herding",
        codec="float16",
        logit_codec="int8",
        memory_batch=9,
        over_tasks="mean",
        mode="train",
        seed=4,
    )
    wanted = build_model("mnist-mlp", width=one.width, seed=4)
    assert all(map(torch.equal, made.model.parameters(), wanted.parameters()))
    usual = prepare(replace(SMALL, batch_size=7))
    assert usual.method.memory_batch == 7  # as many as new ones
