"""Hard attention to the task: each task learns which units it uses; what earlier tasks use is held still.

a_t = σ(s·e_t)  multiplies every hidden unit (a channel, in a convolution); s grows from 1/s_max to s_max in each
epoch, and is s_max in prediction. u = max over earlier tasks of a_t at s_max says what is in use.

min  mean L(f(x), y)  +  c Σ a_t (1 − u) / Σ (1 − u)
∂/∂w_ij  is multiplied by  1 − min(u_i, u_j)
∂/∂e     is multiplied by  s_max/s · (cosh(s·e) + 1) / (cosh(e) + 1),  so that it is ∂/∂a · s_max σ'(e);  |e| ≤ 6

Serrà et al., Overcoming catastrophic forgetting with hard attention to the task, 2018.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import Network
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Method, Step

_COSH_LIMIT = 50.0
"""of s·e in the compensation: cosh of more overflows"""


class MaskedNetwork(nn.Module):
    """A network whose hidden units are multiplied by the mask of a task, which is known by its head."""

    def __init__(self, network: Network, tasks: int, s_max: float, seed: int) -> None:
        super().__init__()
        self.network, self.s_max = network, s_max
        self.embeddings = nn.ParameterList()
        for number, layer in enumerate(self.hidden):
            generator = torch.Generator().manual_seed(seed_for(seed, "hat embedding", number))
            initial = torch.randn(tasks, len(layer.weight), generator=generator)
            self.embeddings.append(initial.to(layer.weight.device))

    @property
    def hidden(self) -> list[nn.Linear | nn.Conv2d]:
        return [layer for layer in self.network.body if isinstance(layer, nn.Linear | nn.Conv2d)]

    def masks(self, head: int, s: float) -> list[Tensor]:
        """(units,) of each hidden layer."""
        return [torch.sigmoid(s * embedding[head]) for embedding in self.embeddings]

    def forward(self, x: Tensor, head: int, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Logits at a head, under its masks at s_max or under others."""
        remaining = iter(self.masks(head, self.s_max) if masks is None else masks)
        mask = None
        for layer in self.network.body:
            hidden = isinstance(layer, nn.Linear | nn.Conv2d)
            # As late as channels can be told apart. Before ReLU, dropout or max-pooling would be the same: they
            # commute with a factor ≥ 0 of a channel.
            if mask is not None and (hidden or isinstance(layer, nn.Flatten)):
                x, mask = _masked(x, mask), None
            x = layer(x)
            if hidden:
                mask = next(remaining)
        return self.network.heads(x if mask is None else _masked(x, mask), head)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask.view(-1, *(1,) * (x.dim() - 2))


@dataclass(kw_only=True)
class Hat(Method):
    # Adam divides the gradient by its own size: it would undo every factor 1 − min(u_i, u_j) but 0.
    optimizer = "sgd"
    heads = "per task"
    needs_boundaries = True
    acts_within_tasks = True

    strength: float = 0.75
    """c, the weight of sparsity"""
    s_max: float = 400.0
    """how steep masks are in the end"""
    clamp: float = 6.0
    """the largest |e|"""
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_above_0("s_max", "clamp")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        heads = [task.head for task in stream]
        if None in heads:
            raise SelfReminderError(
                "hat does not apply here: it must be told the task of what it predicts, which a single head does not "
                "tell: choose a benchmark with a head per task, or leave hat out"
            )
        if set(heads) != set(range(len(stream))):
            raise SelfReminderError(f"hat knows a task by its head: {len(stream)} tasks have the heads {heads}")
        if not isinstance(model, Network):
            raise SelfReminderError(f"hat masks the hidden layers of a Network, not those of a {_kind(model)}")
        for layer in model.body:
            if not isinstance(layer, nn.Linear | nn.Conv2d) and layer.state_dict():
                raise SelfReminderError(
                    f"hat masks linear layers and convolutions, not {_kind(layer)}: its weights and running "
                    "statistics would change under earlier tasks; choose a model without it"
                )
        masked = MaskedNetwork(model, len(model.heads.layers), self.s_max, self.seed)
        self._sizes = [embedding.shape[1] for embedding in masked.embeddings]
        self._set_masks(masked.embeddings[0].new_zeros(0, sum(self._sizes)).detach())
        return masked

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        # Decay would move what is held still. A gradient of 0 alone does not: not in plain SGD, and not in an Adam
        # that is made anew for each task, whose moments then are 0 too. That goes for others' embeddings as well.
        return [{"params": list(model.parameters()), "weight_decay": 0.0}]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        assert isinstance(model, MaskedNetwork) and isinstance(batch.head, int)
        masks = model.masks(batch.head, self.steepness(step))
        free = 1 - self._used
        # With no unit free the numerator is 0: so is the term.
        sparsity = (torch.cat(masks) * free).sum() / free.sum().clamp_min(torch.finfo(free.dtype).tiny)
        return F.cross_entropy(model(batch.x, batch.head, masks), batch.y) + self.strength * sparsity

    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        assert isinstance(model, MaskedNetwork)
        if self._factors is None:
            self._factors = list(self._factors_of(model.hidden))
        weights = (parameter for layer in model.hidden for parameter in layer.parameters())
        for parameter, factor in zip(weights, self._factors, strict=True):
            assert parameter.grad is not None
            parameter.grad.mul_(factor)
        s = self.steepness(step)
        for embedding in model.embeddings:
            assert embedding.grad is not None
            e = embedding.detach()
            flat = (torch.cosh((s * e).clamp(-_COSH_LIMIT, _COSH_LIMIT)) + 1) / (torch.cosh(e) + 1)
            embedding.grad.mul_(self.s_max / s * flat)

    def _factors_of(self, layers: Sequence[nn.Linear | nn.Conv2d]) -> Iterator[Tensor]:
        """What gradients of weights and biases are multiplied by: the same for a whole task."""
        before = None
        for layer, used in zip(layers, self._used.split(self._sizes)):
            if before is None:  # inputs count as used by all
                both = used[:, None]
            else:  # flattened, a channel is several inputs in a row
                both = torch.minimum(used[:, None], before.repeat_interleave(layer.weight.shape[1] // len(before)))
            yield 1 - both.view(*both.shape, *(1,) * (layer.weight.dim() - 2))
            if layer.bias is not None:
                yield 1 - used
            before = used

    @torch.no_grad()
    def after_step(self, model: nn.Module, batch: Batch, step: Step) -> None:
        assert isinstance(model, MaskedNetwork)
        for embedding in model.embeddings:
            embedding.clamp_(-self.clamp, self.clamp)

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        assert isinstance(model, MaskedNetwork) and task.head is not None
        self._set_masks(torch.cat([self._masks, torch.cat(model.masks(task.head, self.s_max))[None]]))

    def steepness(self, step: Step) -> float:
        """s, which grows in each epoch."""
        return 1 / self.s_max + (self.s_max - 1 / self.s_max) * step.fraction_of_epoch

    def measures(self) -> dict[str, float]:
        layers = {f"capacity of layer {n}": used for n, used in enumerate(self.capacity_by_layer(), 1)}
        return {"capacity used": self.capacity_used(), **layers}

    def capacity_used(self) -> float:
        """The part of all hidden units that is in use, between 0 and 1."""
        return self._used.mean().item()

    def capacity_by_layer(self) -> list[float]:
        """The same of each hidden layer."""
        return [used.mean().item() for used in self._used.split(self._sizes)]

    def state_dict(self) -> dict[str, Tensor]:
        """The masks of the tasks so far, (tasks, units): as large as their embeddings, which the model has."""
        return {"masks": self._masks}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._set_masks(state["masks"])

    def _set_masks(self, masks: Tensor) -> None:
        self._masks = masks
        self._used = F.pad(masks, (0, 0, 0, 1)).amax(0)  # a row of 0 more: before the first task there is none
        self._factors: list[Tensor] | None = None


def _kind(module: nn.Module) -> str:
    return type(module).__name__
