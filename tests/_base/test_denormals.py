import pytest
import torch

from selfreminder._base.denormals import flushes_denormals, without_denormals
from selfreminder.benchmarks.stream import Stream
from selfreminder.methods.adam import Adam
from selfreminder.methods.base import Batch, Step
from selfreminder.testing import start
from selfreminder.training import Training, train

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot")


@pytest.mark.parametrize("before", [False, True])
def test_they_are_0_within_and_as_before_after(before: bool) -> None:
    torch.set_flush_denormal(before)
    try:
        with pytest.raises(ZeroDivisionError), without_denormals():
            assert not (torch.full((5,), 1e-30) * 1e-10).any()
            with without_denormals():
                pass
            assert flushes_denormals()
            1 / 0  # noqa: B018
        assert flushes_denormals() == before
    finally:
        torch.set_flush_denormal(False)


def test_training_is_without_them(digits: Stream) -> None:
    """In the forward pass, the backward pass and the step; weights that have been that small become 0."""
    seen = []

    class Watching(Adam):
        def loss(self, model: torch.nn.Module, batch: Batch, step: Step) -> torch.Tensor:
            loss = super().loss(model, batch, step)
            loss.register_hook(lambda gradient: seen.append(flushes_denormals()))
            return loss

        def after_step(self, model: torch.nn.Module, batch: Batch, step: Step) -> None:
            seen.append(flushes_denormals())

    model, method = start(Watching, digits)
    weight = next(model.parameters())
    weight.data.fill_(1e-39)
    train(model, digits[0], method, Training(epochs=1, batch_size=300, lr=1e-30))
    assert len(seen) >= 4 and all(seen)
    assert not flushes_denormals()
    assert not ((weight != 0) & (weight.abs() < 1.2e-38)).any()
