"""Our optimizers are torch's: the same steps, hooks and states, without the compiler."""

import subprocess
import sys

import pytest
import torch

from selfreminder._base import optimizers

STEPS_WITHOUT_COMPILER = """
import sys, torch
from selfreminder.training import Training

weight = torch.nn.Parameter(torch.ones(2))
for kind in ("sgd", "adam", "adamw"):
    optimizer = Training(optimizer=kind).make_optimizer([{"params": [weight]}])
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_steps_hooks_and_states_are_those_of_torch(name: str) -> None:
    found = []
    for module in (optimizers, torch.optim):
        weight, hooked = torch.nn.Parameter(torch.arange(5.0)), []
        settings = {"lr": 0.1, "weight_decay": 0.01, "fused": True} | ({"momentum": 0.9} if name == "SGD" else {})
        first = getattr(module, name)([weight], **settings)
        first.register_step_pre_hook(lambda *_, seen=hooked: seen.append(True))
        second = getattr(module, name)([weight], **settings)
        for step in range(6):
            optimizer = first if step < 3 else second
            if step == 3:
                second.load_state_dict(first.state_dict())
            weight.grad = weight.detach() * 0.3 - step
            optimizer.step()
            optimizer.zero_grad()
            assert weight.grad is None
        assert len(hooked) == 3
        found.append(weight.detach())
    assert torch.equal(*found)


def test_a_step_does_not_import_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS_WITHOUT_COMPILER], check=False)
    assert done.returncode == 0
