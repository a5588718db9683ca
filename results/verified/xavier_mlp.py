"""The MLP of 2 × 100 as Mammoth begins it (aimagelab/mammoth, `backbone/MNISTMLP.py`): Xavier's weights, biases of 0.

PyTorch's own initial weights have about half of that spread here, and random biases.
"""

from torch import nn


def build(outputs: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, outputs))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model
