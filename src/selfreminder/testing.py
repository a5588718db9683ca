"""Check a method of one's own by the contract that all methods keep.

from selfreminder.testing import check_method
check_method(MyMethod)                 # or a name: check_method("my_method.py")
"""

import copy
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from selfreminder import data
from selfreminder._base.sizes import Size
from selfreminder.benchmarks.models import build_model
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import Stream, image_parts
from selfreminder.methods import method_class
from selfreminder.methods.adam import Adam
from selfreminder.methods.base import MemoryMethod, Method
from selfreminder.methods.sgd import Sgd
from selfreminder.training import StoppedError, Training, TrainState, Watcher, accuracy, predicted_right, train

__all__ = ["CHECKS", "check_method"]

_HOW = Training(epochs=2, batch_size=64, lr=1e-3, seed=5)
_SETTINGS = {"strength": 0.5, "size": Size(per_class=3), "memory_batch": 64, "seed": 5}


def check_method(method: type[Method] | str) -> None:
    """Check that a method keeps the contract, on a few embedded digits; raise AssertionError where it does not.

    The same seed gives the same weights, and nothing touches the global random state; stopped anywhere, it goes on bit
    for bit; its state round-trips; `nbytes` is what is saved; unless it `acts_within_tasks` its first task is
    fine-tuning; it learns. Each is checked with one head and with a head per task, as `heads` says.
    """
    kind = method_class(method) if isinstance(method, str) else method
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks are tiny: on a busy machine more threads take minutes instead of seconds
    try:
        for stream in make_streams(kind):
            for check in CHECKS:
                check(kind, stream)
    finally:
        torch.set_num_threads(threads)


def make_streams(kind: type[Method]) -> list[Stream]:
    """Make the streams that a method applies to: permuted digits with one head, and with a head for each task."""
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=600).flatten()
    plain = permute_pixels(parts, tasks=3, seed=0)
    headed = Stream((10, 12, 10), lambda index: replace(plain[index], head=index))
    return [stream for stream, without in ((plain, "per task"), (headed, "one")) if kind.heads != without]


def start(kind: type[Method], stream: Stream, strength: float = 0.5, width: float = 1 / 16) -> tuple[nn.Module, Method]:
    """Make a method, with those settings that it has, and a small model for it."""
    settings = _SETTINGS | {"strength": strength}
    method = kind(**{field.name: settings[field.name] for field in fields(kind) if field.name in settings})
    return method.prepare(build_model("mnist-mlp", width=width, seed=5, heads=stream.heads), stream), method


def how(method: Method) -> Training:
    """Say how a method is trained here."""
    return replace(_HOW, optimizer=method.optimizer, lr=0.2 if method.optimizer == "sgd" else 1e-3)


def learn(model: nn.Module, method: Method, stream: Stream, tasks: range) -> dict[str, Tensor]:
    """Learn tasks, and give a copy of the weights."""
    for index in tasks:
        train(model, stream[index], method, how(method))
        method.after_task(model, stream[index])
    return {name: value.clone() for name, value in model.state_dict().items()}


def is_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Tell whether tensors are the same, to the bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def check_seeds(kind: type[Method], stream: Stream) -> None:
    """The same seed gives the same weights, and the global random state has no part in it."""
    runs = []
    before = torch.get_rng_state()
    try:
        for noise in (0, 1):
            torch.manual_seed(noise)
            runs.append(learn(*start(kind, stream), stream, range(2)))
            after = torch.rand(1, generator=torch.Generator().manual_seed(noise)).item()
            assert torch.rand(1).item() == after, "the global random state was used"
    finally:
        torch.set_rng_state(before)
    assert is_same(*runs), "the same seed gave other weights: draw from step.generator, or seed your own"


def check_resume(kind: type[Method], stream: Stream) -> None:
    """Stopped in the second task, saved, loaded into new objects and gone on, it ends as if it had not been stopped."""
    whole = learn(*start(kind, stream), stream, range(2))
    begun = start(kind, stream)
    learn(*begun, stream, range(1))
    for steps in (1, 9, 10, 17):  # 9 an epoch
        model, method = copy.deepcopy(begun)
        saved: list[tuple[TrainState, dict[str, Tensor]]] = []
        count = iter(range(1, 100))

        def keep(state: TrainState, method: Method = method, saved: list = saved) -> None:
            weights, optimizer = ({k: v.clone() for k, v in d.items()} for d in (state.model, state.optimizer))
            assert state.losses is not None
            state = TrainState(state.epoch, state.step, weights, optimizer, state.losses.clone())
            saved.append((state, {k: v.clone() for k, v in method.state_dict().items()}))

        watcher = Watcher(save=keep, stop=lambda count=count, steps=steps: next(count) == steps)
        try:
            train(model, stream[1], method, how(method), watcher=watcher)
        except StoppedError:
            pass
        else:
            raise AssertionError("it was not stopped")
        model, method = start(kind, stream)
        (state, of_method), *_ = saved
        method.load_state_dict(of_method)
        train(model, stream[1], method, how(method), state)
        method.after_task(model, stream[1])
        assert is_same(model.state_dict(), whole), f"stopped after {steps} steps, it did not go on as it was"


def check_state(kind: type[Method], stream: Stream) -> None:
    """The state of a method round-trips, and `nbytes` counts what is saved."""
    model, method = start(kind, stream)
    learn(model, method, stream, range(2))
    _, other = start(kind, stream)
    state = method.state_dict()
    other.load_state_dict({key: value.clone() for key, value in state.items()})
    assert is_same(other.state_dict(), state), "load_state_dict does not give back what state_dict gave"
    assert other.nbytes() == method.nbytes()
    if not kind.is_reference:  # which reads the stream again
        saved = sum(tensor.nbytes for key, tensor in state.items() if not key.endswith(".facts"))
        assert method.nbytes() == saved, f"nbytes is {method.nbytes()}, the state has {saved} bytes"
    _, fresh = start(kind, stream)
    assert fresh.nbytes() == 0 or not issubclass(kind, MemoryMethod), "a memory is empty at first"


def check_first_task(kind: type[Method], stream: Stream) -> None:
    """A method that acts only between tasks has nothing to do in the first one."""
    if kind.acts_within_tasks:
        return
    model, method = start(kind, stream)
    plain, tuning = start(Sgd if method.optimizer == "sgd" else Adam, stream)
    ours, theirs = (learn(*each, stream, range(1)) for each in ((model, method), (plain, tuning)))
    assert is_same(ours, theirs), "its first task is not fine-tuning: declare acts_within_tasks = True"


def check_learning(kind: type[Method], stream: Stream) -> None:
    """It learns a task, and predicts it."""
    masked = kind.heads == "per task"  # as in HAT, half of the units may be off: it takes many, and more steps
    model, method = start(kind, stream, strength=0.1, width=1 / 4 if masked else 1 / 16)
    task = stream[0]
    before = accuracy(predicted_right(model, task.test, method, task.head, "cpu"))
    slow = masked and method.optimizer == "sgd"
    more = replace(how(method), epochs=60, lr=0.1) if slow else replace(how(method), epochs=10)
    train(model, task, method, replace(more, batch_size=20))
    after = accuracy(predicted_right(model, task.test, method, task.head, "cpu"))
    assert after > max(0.5, before + 0.3), f"after its first task it is right on {after:.0%} of it only"


CHECKS: tuple[Callable[[type[Method], Stream], None], ...] = (
    check_seeds,
    check_resume,
    check_state,
    check_first_task,
    check_learning,
)
"""the parts of the contract: each takes a method's class and a stream"""
