import numpy as np
from skorch import NeuralNetClassifier  # noqa: F401 - the page's
from torch import nn


class MyModule(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 3))


old_x, old_y = np.random.default_rng(0).normal(size=(60, 8)).astype("float32"), np.arange(60) % 3
new_x, new_y = old_x + 2, old_y
