"""A dynamically expandable network: a task retrains the units that it needs, adds units, and splits what moved far.

Before a task, a head with an L1 penalty is fitted to the features as they are. Then
1. selective retraining: units with a weight of that head are selected, and downwards the inputs of selected units whose
   weight is at least `threshold` of the unit's largest; all others stay still;
2. expansion: each hidden layer gets `grow` units if that head's loss is above `enough`;
3. the task is learned:  min  mean L(f(x), y)  +  λ ‖θ − θ_{T−1}‖²  over what is selected or new;
4. split: a unit whose weights moved by more than `drift` of their norm becomes two: the old one as it was, for the
   tasks before, and its copy as it is, for this task and those to come. No task uses units that came after it.

The authors prune the first task's weights and new units by L1 and group penalties, and train once more after 2 and 4;
here a threshold takes the place of zeros, and one training serves all. Yoon et al., Lifelong learning with dynamically
expandable networks, 2018.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.seeds import seed_for
from selfreminder.benchmarks.models import Network
from selfreminder.benchmarks.stream import Task
from selfreminder.methods.base import Batch, Method, Step
from selfreminder.methods.shared.anchored import by_prefix, with_prefix

_FITTED_ITEMS, _FITTING_STEPS = 2000, 200
_NEVER = 2**31 - 1


@dataclass(kw_only=True)
class Den(Method):
    heads = "per task"
    needs_boundaries = True

    strength: float = 1e-3
    """λ"""
    sparsity: float = 0.05
    """of the L1 penalty that selects units, as a part of the one that would select none"""
    threshold: float = 0.5
    """the part of a unit's largest weight that makes an input selected"""
    grow: int = 10
    """units that a hidden layer gets"""
    enough: float = 0.1
    """the loss of the fitted head that needs no new units"""
    drift: float = 0.1
    """how far a unit's weights may move, as a part of their norm, before it is split"""
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_above_0("sparsity", "threshold", "grow", "enough", "drift")
        if self.grow > 10_000:
            raise SelfReminderError(f"grow is {self.grow}: it must be at most 10000")

    def prepare(self, model: nn.Module, stream: Sequence[Task]) -> nn.Module:
        heads = [task.head for task in stream]
        if None in heads:
            raise SelfReminderError(
                "den does not apply here: it must be told the task of what it predicts, which a single head does not "
                "tell: choose a benchmark with a head per task, or leave den out"
            )
        if heads != [*range(len(stream))]:
            raise SelfReminderError(f"den knows a task by its head: {len(stream)} tasks have the heads {heads}")
        if not isinstance(model, Network):
            raise SelfReminderError(f"den grows the layers of a Network, not those of a {type(model).__name__}")
        for layer in model.body:
            if layer.state_dict() and not isinstance(layer, nn.Linear):
                raise SelfReminderError(f"den grows linear layers, not {type(layer).__name__}: choose a model of those")
        self._model = model
        self._born = [torch.zeros(len(layer.weight), dtype=torch.int64) for layer in _hidden(model)]
        """the first task that uses a unit"""
        self._gone = [torch.full_like(born, _NEVER) for born in self._born]
        """the first task that no longer does"""
        self._selected: list[Tensor] = []
        """units that a task after the first retrains or adds, while it is learned"""
        self._anchor: dict[str, Tensor] = {}
        """weights of hidden layers before it"""
        return model

    def predict(self, model: nn.Module, x: Tensor, head: Tensor | int | None) -> Tensor:
        assert isinstance(model, Network) and isinstance(head, int)
        layer = _head(model, head)
        return F.linear(self._features(model, x, head)[:, : layer.weight.shape[1]], layer.weight, layer.bias)

    def _features(self, model: Network, x: Tensor, task: int) -> Tensor:
        ages = iter(zip(self._born, self._gone))
        for layer in model.body:
            x = layer(x)
            if isinstance(layer, nn.Linear):
                born, gone = next(ages)
                # A model that has not grown has the first units. Before ReLU or dropout is the same as after.
                x = x * ((born <= task) & (task < gone))[: x.shape[1]].to(x)
        return x

    @torch.no_grad()
    def start_task(self, model: nn.Module, task: Task) -> None:
        if task.index == 0:
            return
        assert isinstance(model, Network)
        items = task.train.take(torch.arange(min(len(task.train), _FITTED_ITEMS))).to(next(model.parameters()).device)
        with eval_mode(model):
            features = self._features(model, items.x, task.index)
        head = _head(model, task.index)
        weight, bias, loss = fit_sparse_head(features, items.y, head.out_features, self.sparsity)
        self._selected = select_units(_hidden(model), weight.abs().sum(0) > 0, self.threshold)
        self._anchor = {name: p.detach().clone() for name, p in model.body.named_parameters()}
        head.weight, head.bias = nn.Parameter(weight), nn.Parameter(bias)
        if loss > self.enough:
            self._expand(model, task.index)

    def _expand(self, model: Network, task: int) -> None:
        before, new = 0, self.grow
        for number, layer in enumerate(_hidden(model)):
            generator = torch.Generator().manual_seed(seed_for(self.seed, "den", task, number))
            old, inputs = layer.weight, layer.weight.shape[1] + before
            limit = inputs**-0.5
            rows = (2 * torch.rand(new, inputs + 1, generator=generator) - 1).mul_(limit).to(old)
            layer.weight = nn.Parameter(torch.cat([F.pad(old, (0, before)), rows[:, :-1]]))
            layer.bias = nn.Parameter(torch.cat([layer.bias, rows[:, -1]]))
            self._add_units(number, torch.full((new,), task), torch.ones(new, dtype=torch.bool))
            before = new
        head = _head(model, task)
        generator = torch.Generator().manual_seed(seed_for(self.seed, "den head", task))
        columns = (2 * torch.rand(len(head.weight), new, generator=generator) - 1) * head.weight.shape[1] ** -0.5
        head.weight = nn.Parameter(torch.cat([head.weight, columns.to(head.weight)], 1))

    def _add_units(self, number: int, born: Tensor, selected: Tensor | None) -> None:
        self._born[number] = torch.cat([self._born[number], born])
        self._gone[number] = torch.cat([self._gone[number], torch.full_like(born, _NEVER)])
        if selected is not None:
            self._selected[number] = torch.cat([self._selected[number], selected])

    def parameter_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        # Decay would move what is to stay still.
        return [{"params": list(model.parameters()), **({"weight_decay": 0.0} if self._selected else {})}]

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        loss = super().loss(model, batch, step)
        with torch.no_grad():  # its gradient is added after the other's
            moved = [(now - then).square().sum() for now, then, _ in self._moved(model)]
        return loss + self.strength * torch.stack(moved).sum() if moved else loss

    def _moved(self, model: nn.Module) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """The old part of each hidden layer's weights now, and what it was; and of its gradient."""
        found = []
        for name, p in model.get_submodule("body").named_parameters() if self._anchor else ():
            part = tuple(slice(size) for size in self._anchor[name].shape)
            found.append((p.detach()[part], self._anchor[name], None if p.grad is None else p.grad[part]))
        return found

    @torch.no_grad()
    def after_backward(self, model: nn.Module, batch: Batch, step: Step) -> None:
        if not self._selected:
            return
        for now, then, gradient in self._moved(model):
            assert gradient is not None
            gradient.add_(now - then, alpha=2 * self.strength)
        before = None
        for layer, selected in zip(_hidden(model), self._selected):
            assert layer.weight.grad is not None and layer.bias.grad is not None
            rows = selected.to(layer.weight)
            layer.weight.grad.mul_(rows[:, None] if before is None else rows[:, None] * before)
            layer.bias.grad.mul_(rows)
            before = rows

    @torch.no_grad()
    def after_task(self, model: nn.Module, task: Task) -> None:
        assert isinstance(model, Network)
        if self._selected:
            self._split(model, task.index)
        self._selected, self._anchor = [], {}

    def _split(self, model: Network, task: int) -> None:
        names = [name for name, layer in model.body.named_children() if isinstance(layer, nn.Linear)]
        above = None
        for number, (name, layer) in enumerate(zip(names, _hidden(model))):
            weight, bias = self._anchor[f"{name}.weight"], self._anchor[f"{name}.bias"]
            rows, columns = weight.shape
            if above is not None and len(above):  # the layer below has copies: they come with their old columns
                own = layer.weight[:, above].clone()
                layer.weight = nn.Parameter(torch.cat([layer.weight, own], 1))
                layer.weight[:rows, above] = weight[:, above]
            then = torch.cat([weight, bias[:, None]], 1)
            now = torch.cat([layer.weight[:rows, :columns], layer.bias[:rows, None]], 1)
            if above is not None and len(above):  # what went to a copy has moved with it
                now[:, above] = layer.weight[:rows, -len(above) :]
            far = (now - then).norm(dim=1) > self.drift * then.norm(dim=1)
            split = far.nonzero().flatten()
            layer.weight = nn.Parameter(torch.cat([layer.weight, layer.weight[split]]))
            layer.bias = nn.Parameter(torch.cat([layer.bias, layer.bias[split]]))
            layer.weight[split, :columns], layer.bias[split] = weight[split], bias[split]
            self._gone[number][split] = task
            self._add_units(number, torch.full_like(split, task), None)
            above = split
        head = _head(model, task)
        assert above is not None
        head.weight = nn.Parameter(torch.cat([head.weight, head.weight[:, above]], 1))

    def measures(self) -> dict[str, float]:
        return {f"units of layer {number}": float(len(born)) for number, born in enumerate(self._born, 1)}

    def state_dict(self) -> dict[str, Tensor]:
        kept = {"born": self._born, "gone": self._gone, "selected": self._selected}
        lists = {part: {str(number): value for number, value in enumerate(values)} for part, values in kept.items()}
        widths = torch.tensor([p.shape[1] for p in self._model.heads.parameters() if p.dim() == 2])
        return with_prefix(lists | {"anchor": self._anchor}) | {"widths.facts": widths}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        kept = by_prefix(state)
        self._born, self._gone, self._selected = (
            [value.cpu() for _, value in sorted(kept.get(part, {}).items(), key=lambda item: int(item[0]))]
            for part in ("born", "gone", "selected")
        )
        self._anchor = kept.get("anchor", {})
        # The model gets its weights after this: it only has to have their shapes.
        inputs = None
        for layer, born in zip(_hidden(self._model), self._born):
            width = layer.weight.shape[1] if inputs is None else inputs
            layer.weight = nn.Parameter(layer.weight.new_zeros(len(born), width))
            layer.bias = nn.Parameter(layer.bias.new_zeros(len(born)))
            inputs = len(born)
        for number, width in enumerate(kept["widths"]["facts"].tolist()):
            layer = _head(self._model, number)
            layer.weight = nn.Parameter(layer.weight.new_zeros(len(layer.weight), width))


def _head(model: Network, number: int) -> nn.Linear:
    head = model.heads.layers[number]
    assert isinstance(head, nn.Linear)
    return head


def _hidden(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.get_submodule("body").children() if isinstance(layer, nn.Linear)]


def select_units(layers: Sequence[nn.Linear], top: Tensor, threshold: float) -> list[Tensor]:
    """Tell which units of each layer are selected, given those of the last: from there on downwards.

    >>> layers = [nn.Linear(1, 3), nn.Linear(3, 2)]
    >>> _ = layers[1].weight.data.copy_(torch.tensor([[4.0, 0.1, 0.2], [0.0, 0.0, 3.0]]))
    >>> select_units(layers, torch.tensor([True, False]), 0.5)
    [tensor([ True, False, False]), tensor([ True, False])]
    """
    selected = [top.cpu()]
    for layer in reversed(layers[1:]):
        size = layer.weight.detach().abs()
        strong = size >= threshold * size.amax(1, keepdim=True)
        selected.insert(0, strong[selected[0].to(size.device)].any(0).cpu())
    return selected


def fit_sparse_head(h: Tensor, y: Tensor, classes: int, sparsity: float) -> tuple[Tensor, Tensor, float]:
    """Fit a linear classifier to features (n, d) with an L1 penalty, by accelerated proximal steps.

    Gives its weight (classes, d), its bias (classes,), and the mean cross entropy. The penalty is `sparsity` times the
    one for which all weights are 0.
    """
    mean = h.double().mean(0)
    h = F.pad(h.double() - mean, (0, 1), value=1.0)  # the last column is the bias
    wanted = F.one_hot(y, classes).double()
    step = 2 * len(h) / torch.linalg.matrix_norm(h, 2).square()
    # With the weights at 0, probabilities are the classes' frequencies.
    shrink = step * sparsity * ((wanted.mean(0) - wanted).T @ h[:, :-1] / len(h)).abs().max()
    weight = ahead = h.new_zeros(classes, h.shape[1])
    momentum = 1.0
    for _ in range(_FITTING_STEPS):
        moved = ahead - step * ((h @ ahead.T).softmax(1) - wanted).T @ h / len(h)
        moved[:, :-1] = moved[:, :-1].sign() * (moved[:, :-1].abs() - shrink).clamp(min=0)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead, weight, momentum = moved + (momentum - 1) / following * (moved - weight), moved, following
    loss = F.cross_entropy(h @ weight.T, y).item()
    return weight[:, :-1].float(), (weight[:, -1] - weight[:, :-1] @ mean).float(), loss
