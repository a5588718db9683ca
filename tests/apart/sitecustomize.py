"""Makes Avalanche and timm importable beside a torch for the CPU alone: for tests and examples, by PYTHONPATH.

    .venv/bin/pip install --no-deps --target .venv/apart avalanche-lib==0.6.0 timm==1.0.30 torchvision==0.28.0
    PYTHONPATH=tests/apart:.venv/apart .venv/bin/python examples/avalanche_split_mnist.py

They stay apart from .venv, because both need torchvision, and a torchvision that was built for CUDA cannot be imported
there as it is, while Lightning and transformers import whatever torchvision they find. Python runs this file when it
starts; without the folder of the first line it does nothing.
"""

import importlib.util
import sys
from unittest.mock import MagicMock

UNUSED = (
    "GPUtil",
    "gdown",
    "pytorchcv",
    "pytorchcv.model_provider",
    "pytorchcv.models",
    "pytorchcv.models.mobilenet",
    "qpsolvers",
    "torch.utils.tensorboard",
    "wandb",
)
"""imported by Avalanche for loggers, metrics, models and solvers that nobody here asks for"""


def declare_operators() -> None:
    """torchvision describes these two when it is imported, though it could not load them."""
    try:
        import torchvision  # noqa: F401, PLC0415
    except RuntimeError:
        import torch  # noqa: PLC0415

        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


if importlib.util.find_spec("torchvision"):
    declare_operators()
    sys.modules.update({name: MagicMock(name=name) for name in UNUSED})
