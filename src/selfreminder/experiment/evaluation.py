"""What is measured when a task has been learned, and meanwhile: each is one line of the records."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from selfreminder._base.seeds import seed_for
from selfreminder._base.together import Together
from selfreminder.benchmarks.stream import Split, Task
from selfreminder.experiment.pool.estimate import MOST_KEPT
from selfreminder.experiment.preparation import Prepared
from selfreminder.experiment.spec import Experiment
from selfreminder.metrics import calibration_error, negative_flips, stratified_chance
from selfreminder.training import StoppedError, accuracy, predict_split, predicted_right

_SAMPLE = 10
"""tasks in a sample"""


def list_evaluated(experiment: Experiment, task: int) -> list[int]:
    """List the tasks, from 0, that are evaluated after one: the same for all methods.

    >>> list_evaluated(Experiment(benchmark="permuted-mnist", method="adam", evaluate="newest"), 3)
    [3]
    """
    if experiment.evaluate == "newest":
        return [task]
    if experiment.evaluate == "all" or task < _SAMPLE:
        return list(range(task + 1))
    chance = random.Random(seed_for(experiment.seed, "evaluated", task))
    return [0, *sorted(chance.sample(range(1, task), _SAMPLE - 2)), task]


class Evaluation:
    """Evaluates a run's model after each task.

    Args:
        experiment: of the run.
        prepared: what it is made of.
        stop: is asked before each prediction; when it says so, `training.StoppedError` is raised.
        together: shares out the predictions among several processes.
    """

    def __init__(
        self, experiment: Experiment, prepared: Prepared, stop: Callable[[], bool], together: Together
    ) -> None:
        self._experiment, self._stop, self._together = experiment, stop, together
        self._stream, self._method = prepared.stream, prepared.method
        self._model, self._untrained, self._device = prepared.model, prepared.untrained, prepared.how.device
        self.right: list[Tensor] = []
        """per task, whether each test item was predicted right when the task had just been learned"""
        self._seen: dict[int, Task] = {}
        """tasks whose evaluation data is kept, if that of all fits"""

    def look(self, task: Task, steps: int) -> dict[str, Any]:
        """Measure what the records say after so many steps of a task that is being learned."""
        on = list_evaluated(self._experiment, task.index)
        with self._together.sharded(self._model):
            found = [
                accuracy(predicted_right(self._model, each.test, self._method, each.head, self._device))
                for each in self._list_tasks(on, task)
            ]
        more = {} if len(on) == task.index + 1 else {"on": on}
        return {"event": "steps", "task": task.index, "steps": steps, **more, "test": found}

    def measure(self, task: Task, spent: dict[str, int]) -> dict[str, Any]:
        """Measure what the records say of a task that has been learned; `spent` is what that took."""
        on, test, validation, flips = list_evaluated(self._experiment, task.index), [], [], []
        calibration = []
        for each in self._list_tasks(on, task):
            right, sure = self._predict(self._model, each.test, each.head)
            if each is task and self._experiment.evaluate != "newest":
                self.right.append(right)
            before = right if each is task else self.right[each.index]
            test.append(accuracy(right))
            validation.append(accuracy(self._right(self._model, each.validation, each.head)))
            flips.append(negative_flips(before.tolist(), right.tolist()))
            calibration.append(calibration_error(right.tolist(), sure.tolist()))
        event = {
            "event": "task",
            "task": task.index,
            **({} if len(on) == task.index + 1 else {"on": on}),
            "test": test,
            "validation": validation,
            "flips": flips,
            "chance": stratified_chance(self._count_classes(task).tolist()),
            "bytes": self._method.nbytes(),
            "calibration_error": calibration,
            **spent,
        }
        if measures := self._method.measures():
            event["measures"] = measures
        if task.index < self._experiment.probe:
            event["probe"] = self._probe(self._seen.get(0) or (self._stream[0] if task.index else task))
        if task.index + 1 < len(self._stream):
            following = self._stream[task.index + 1]
            event["next"] = accuracy(self._right(self._model, following.test, following.head))
            event["next_untrained"] = accuracy(self._right(self._untrained, following.test, following.head))
        return event

    def _count_classes(self, task: Task) -> Tensor:
        """Count the test items of each class that a prediction chooses from: those of all tasks so far, if it grows."""
        tasks = [task] if task.outputs is None else [*self._stream[: task.index], task]
        return torch.cat([each.parts.test.y for each in tasks]).bincount()

    def _list_tasks(self, on: list[int], newest: Task) -> Iterator[Task]:
        """Give the tasks to evaluate, one after the other: made anew, unless there is room for those of all tasks."""
        of_task = sum(split.x.nbytes for split in (newest.parts.validation, newest.parts.test))
        keep = self._experiment.evaluate != "newest" and of_task * len(self._stream) <= MOST_KEPT
        for index in on:
            task = newest if index == newest.index else self._seen.get(index) or self._stream[index]
            yield task
            if keep:
                self._seen[index] = task.without_training_data()

    @torch.no_grad()
    def _probe(self, first: Task) -> dict[str, list[list[float]]]:
        """By true class of the first task's validation part: its logits' mean and deviation, its predictions."""
        self._model.eval()
        x, y = first.validation.x.to(self._device), first.validation.y
        logits = self._method.predict(self._model, x, first.head).cpu()
        of_class = [logits[y == label] for label in range(logits.shape[1])]
        predicted = [rows.argmax(1).bincount(minlength=logits.shape[1]) for rows in of_class]
        return {
            "logit_mean": [rows.mean(0).tolist() for rows in of_class],
            "logit_deviation": [rows.std(0, correction=0).tolist() for rows in of_class],
            "confusion": [counts.tolist() for counts in predicted],
        }

    def _right(self, model: nn.Module, split: Split, head: int | None) -> Tensor:
        return self._predict(model, split, head)[0]

    def _predict(self, model: nn.Module, split: Split, head: int | None) -> tuple[Tensor, Tensor]:
        if self._together.any(self._stop()):
            raise StoppedError
        with self._together.sharded(model):
            return predict_split(model, split, self._method, head, self._device)
