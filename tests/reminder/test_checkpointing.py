"""A model that computes parts of its forward pass again in the backward pass: old items stay in eval mode there too."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint as another_name
from torch.utils.checkpoint import checkpoint_sequential
from transformers import BertConfig, BertForSequenceClassification

from selfreminder._base.errors import SelfReminderError
from selfreminder.reminder.checkpointing import uses_checkpoints
from selfreminder.reminder.reminder import Reminder

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's, without gradients
X, Y = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
KINDS = {
    "dropout": lambda: nn.Dropout(0.5),
    "batch norm": lambda: nn.BatchNorm1d(8),
    "both": lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5)),
}


class Net(nn.Module):
    def __init__(self, kind: str = "both", reentrant: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.reentrant = nn.Linear(6, 8), nn.Linear(8, 3), reentrant
        self.block = nn.Sequential(nn.Linear(8, 8), KINDS[kind](), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.reentrant is None:
            return self.last(self.block(x))
        return self.last(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=self.reentrant))


def changed(model: nn.Module, **settings: Any) -> Reminder:
    """A reminder of the model as it was, which then was changed."""
    reminder = Reminder(strength=1.0, **{"mode": "eval", **settings})
    reminder.remember(model, X, Y, per_class=5)
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
    return reminder


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", ["eval", "joint"])
def test_gradients_are_those_without_checkpoints(kind: str, reentrant: bool, mode: str) -> None:
    plain, model = Net(kind), Net(kind, reentrant)
    changed(plain).penalty(plain).backward()
    reminder = changed(model, mode=mode)
    before, random = copy.deepcopy(dict(model.named_buffers())), torch.get_rng_state()
    penalty = reminder.penalty(model)
    assert all(gradient is None for gradient in gradients(model))  # not before somebody asks
    (2 * penalty).backward()
    for ours, theirs in zip(gradients(model), gradients(plain)):
        torch.testing.assert_close(ours, 2 * theirs)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("reentrant", [True, False])
def test_beside_the_new_data(reentrant: bool) -> None:
    """The new items are in train mode in both passes, and gradients that are there already stay."""
    expected = []
    for kind in (None, reentrant):
        model = Net("both", kind)
        reminder = changed(model)
        model.first.weight.grad = torch.ones_like(model.first.weight)
        torch.manual_seed(1)
        loss = F.cross_entropy(model(X + 1), Y)
        (loss + reminder.penalty(model)).backward()
        expected.append(gradients(model))
    for ours, theirs in zip(*expected):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_attached(reentrant: bool, mode: str) -> None:
    weights = []
    for kind in (None, reentrant):
        model = Net("dropout", kind)
        reminder = changed(model, mode=mode)
        optimizer = torch.optim.SGD([*model.block.parameters(), *model.last.parameters()], lr=0.1)
        reminder.attach(model, optimizer)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(X + 1), Y).backward()
            optimizer.step()
        weights.append(list(model.parameters()))
    for ours, theirs in zip(*weights):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("reentrant", [True, False])
def test_without_a_gradient(reentrant: bool) -> None:
    model = Net("dropout", reentrant)
    reminder = changed(model)
    with torch.no_grad():
        assert not reminder.penalty(model).requires_grad
    model.block.requires_grad_(False)
    reminder.penalty(model).backward()
    assert [gradient is None for gradient in gradients(model)] == [False] * 4 + [True] * 4


def test_what_is_outside_of_the_model_has_its_gradient_too() -> None:
    model, scale = Net("both", False), torch.ones(6, requires_grad=True)
    changed(model, transform=lambda x: x * scale).penalty(model).backward()
    assert scale.grad is not None and bool(scale.grad.any())


def test_small_gradients_in_half_precision_do_not_vanish() -> None:
    found = []
    for half in (False, True):
        model = Net("dropout", False)
        reminder = changed(model)
        reminder.strength = 2e-6
        with torch.autocast("cpu", torch.float16, enabled=half):
            (1e6 * reminder.penalty(model)).backward()
        found.append(model.first.weight.grad)
    torch.testing.assert_close(*found, rtol=0.05, atol=0.05 * found[0].abs().max().item())


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_data_parallel() -> None:
    """Its hooks see the gradient of both once, in the backward pass that the wrapper waits for."""
    found = []
    for model in (Net("dropout"), DistributedDataParallel(Net("dropout", False))):
        reminder = changed(model)
        seen = []
        if isinstance(model, DistributedDataParallel):
            model.register_comm_hook(seen, note)
        torch.manual_seed(1)
        (F.cross_entropy(model(X + 1), Y) + reminder.penalty(model)).backward()
        found.append(gradients(model))
    torch.testing.assert_close(seen, [torch.cat([gradient.flatten() for gradient in found[0]]).norm()])
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs)


def note(seen: list[Tensor], bucket: torch.distributed.GradBucket) -> torch.futures.Future[Tensor]:
    seen.append(bucket.buffer().norm())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.usefixtures("alone")
def test_data_parallel_and_reentrant() -> None:
    """The wrapper takes no second backward pass through the same parameters: refused, unless attached."""
    model = DistributedDataParallel(Net("dropout", True))
    reminder = changed(model)
    with pytest.raises(SelfReminderError, match=r"reentrant checkpoint.*use_reentrant=False.*or attach"):
        reminder.penalty(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reminder.attach(model, optimizer)
    optimizer.step()
    assert all(gradient is not None for gradient in gradients(model))


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_hugging_face(mode: str, reentrant: bool) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=20, max_position_embeddings=8, num_labels=3, initializer_range=0.2, **sizes)
    ids, found = torch.arange(180).reshape(30, 6) % 19, []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config).train()
        if checkpointed:
            start = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
            start({"use_reentrant": reentrant})
        assert uses_checkpoints(model) == checkpointed
        reminder = Reminder(strength=1.0, mode=mode)  # pyright: ignore[reportArgumentType]
        reminder.remember(model, {"input_ids": ids}, Y, per_class=5)
        with torch.no_grad():
            model.classifier.weight += 0.3
        torch.manual_seed(1)
        reminder.add_gradient(model, torch.optim.SGD(model.parameters(), lr=0.1))
        found.append(gradients(model))
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs)


# Which models they are ------------------------------------------------------------------------------------


def helper(block: nn.Module, x: Tensor) -> Tensor:
    return another_name(block, x, use_reentrant=False)  # pyright: ignore[reportReturnType]


class Features(nn.Sequential):
    """As timm has it: in a method that forward calls."""

    def forward(self, input: Tensor) -> Tensor:
        return self.features(input)

    def features(self, x: Tensor) -> Tensor:
        return checkpoint_sequential(list(self), 2, x, use_reentrant=False)


class Helped(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return helper(self[0], input)


class Inside(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        def run(x: Tensor) -> Any:
            return another_name(self[0], x, use_reentrant=False)

        return run(input)


class Flagged(Features):
    use_checkpoint = False


class Loads(nn.Linear):
    """Files have checkpoints too."""

    def load_checkpoint(self, path: str) -> None:
        self.load_state_dict(torch.load(f"{path}/checkpoint"))


def replaced() -> nn.Module:
    model = nn.Linear(4, 4)
    model.forward = partial(another_name, model.forward, use_reentrant=False)
    return model


def test_where_a_checkpoint_may_be() -> None:
    layers = nn.Linear(4, 4), nn.Linear(4, 4)
    wrapped = checkpoint_wrapper(nn.Linear(4, 4))
    for model in (Features(*layers), Helped(*layers), Inside(*layers), wrapped, replaced(), Net()):
        assert uses_checkpoints(nn.Sequential(model))
    on = Flagged(*layers)
    on.use_checkpoint = True
    assert uses_checkpoints(on)
    for model in (Flagged(*layers), Loads(4, 4), nn.Sequential(*layers), nn.TransformerEncoderLayer(4, 2)):
        assert not uses_checkpoints(model)
