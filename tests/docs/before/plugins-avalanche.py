import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import make_classification_dataset
from avalanche.training import Naive  # noqa: F401 - the page's
from torch.utils.data import TensorDataset

parts = []
for shift in (0, 2):
    set_ = TensorDataset(torch.randn(60, 8) + shift, torch.arange(60) % 3)
    set_.targets = (torch.arange(60) % 3).tolist()
    parts.append(make_classification_dataset(set_, task_labels=0))
benchmark = benchmark_from_datasets(train=parts, test=parts)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.Adam(model.parameters())
