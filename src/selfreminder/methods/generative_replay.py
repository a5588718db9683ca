"""Generative replay: a generator of old inputs, labelled by the previous model, beside the current data.

min  1/T mean L(f(x), y)  +  λ (1 − 1/T) mean CE(softmax(f_{T−1}(x̃)), softmax(f(x̃))),  x̃ from the generator

The generator is a variational autoencoder that learns beside the model, from the current data and from what its
predecessor generates, in the same proportion (autoencoder and soft labels are ours). Inputs are
values between 0 and 1, for one head: images.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import set_outputs
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Method, Step

_LOOKED_AT = 100
"""items of each task whose values are looked at before training"""
_MOST_UNITS = 10_000
"""of a layer of the generator: more weights than a gigabyte are no few"""


class Autoencoder(nn.Module):
    """A variational autoencoder of rows between 0 and 1, with a Bernoulli likelihood."""

    def __init__(self, inputs: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = _layers(inputs, hidden, 2 * latent)
        self.decoder = _layers(latent, hidden, inputs)
        self.latent = latent

    def loss(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(n,) negative evidence lower bounds."""
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        noise = torch.randn(mean.shape, generator=generator, device=x.device)
        decoded = self.decoder(mean + noise * (0.5 * log_variance).exp())
        likelihood = F.binary_cross_entropy_with_logits(decoded, x.clamp(0, 1), reduction="none").sum(1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        return likelihood + divergence

    @torch.no_grad()
    def generate(self, n: int, generator: torch.Generator) -> Tensor:
        """n new rows."""
        device = next(self.parameters()).device
        return self.decoder(torch.randn(n, self.latent, generator=generator, device=device)).sigmoid()


def _layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(hidden, outputs))


@dataclass(kw_only=True)
class GenerativeReplay(Method):
    heads = "one"
    needs_boundaries = True

    strength: float = 1.0
    """λ"""
    hidden: int = 400
    """units of the generator's layers"""
    latent: int = 64
    """units of its code"""
    generator_lr: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_above_0("generator_lr", "hidden", "latent")
        for option in ("hidden", "latent"):
            if (units := getattr(self, option)) > _MOST_UNITS:
                raise SelfReminderError(f"{option} is {units}: it must be at most {_MOST_UNITS}")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        x = stream[0].train.x
        if stream[0].head is not None:
            raise SelfReminderError(
                "generative-replay does not apply here: tasks have heads of their own, "
                "and a generated input does not say to which it belongs"
            )
        for task in stream:
            some = task.transform(task.parts.train.x[:_LOOKED_AT])
            if some.min() < 0 or some.max() > 1:
                raise SelfReminderError(
                    "generative-replay does not apply here: its generator makes values between 0 and 1, "
                    f"the inputs of task {task.index + 1} have values from {some.min():g} to {some.max():g}"
                )
        device = next(model.parameters()).device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_for(self.seed, "autoencoder"))
            self._autoencoder = Autoencoder(x[0].numel(), self.hidden, self.latent).to(device)
        self._seen, self._outputs = 0, 0
        self._solver = copy.deepcopy(model).requires_grad_(False).eval()
        self._old_autoencoder: Autoencoder | None = None
        return model

    def start_task(self, model: nn.Module, task: Task) -> None:
        self._seen = task.index
        if self._seen:
            self._old_autoencoder = copy.deepcopy(self._autoencoder).requires_grad_(False)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        learning = {"params": list(self._autoencoder.parameters()), "lr": self.generator_lr, "weight_decay": 0.0}
        return [*super().parameter_groups(model), learning]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        logits = model(batch.x)
        loss, learned = (
            F.cross_entropy(logits, batch.y),
            self._autoencoder.loss(batch.x.flatten(1), step.generator).mean(),
        )
        if self._old_autoencoder is not None:
            new = 1 / (self._seen + 1)
            old_x = self._old_autoencoder.generate(len(batch.x), step.generator)
            now = model(shaped := old_x.view(-1, *batch.x.shape[1:]))
            then = self._solver(shaped).softmax(1)
            replay = F.cross_entropy(now, F.pad(then, (0, now.shape[1] - then.shape[1])))  # of new classes it says 0
            loss = new * loss + self.strength * (1 - new) * replay
            learned = new * learned + (1 - new) * self._autoencoder.loss(old_x, step.generator).mean()
        # The generator shares no weight with the model: each learns from its own term; the value is the model's.
        return loss + learned - learned.detach()

    def after_task(self, model: nn.Module, task: Task) -> None:
        self._solver.load_state_dict(model.state_dict())
        self._seen, self._outputs, self._old_autoencoder = task.index + 1, task.outputs or 0, None
        set_outputs(self._solver, task.outputs)

    def _networks(self) -> nn.ModuleDict:
        solver = self._solver if self._seen else None
        kept = {"autoencoder": self._autoencoder, "solver": solver, "old": self._old_autoencoder}
        return nn.ModuleDict({name: network for name, network in kept.items() if network is not None})

    def state_dict(self) -> dict[str, Tensor]:
        return {**self._networks().state_dict(), "seen.facts": torch.tensor([self._seen, self._outputs])}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        # Earlier states have the first number alone.
        (self._seen, self._outputs), self._old_autoencoder = [*state["seen.facts"].flatten().tolist(), 0][:2], None
        set_outputs(self._solver, self._outputs or None)
        if any(name.startswith("old.") for name in state):
            self._old_autoencoder = copy.deepcopy(self._autoencoder).requires_grad_(False)
        self._networks().load_state_dict({name: value for name, value in state.items() if name != "seen.facts"})
