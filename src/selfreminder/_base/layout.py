"""Where numbers of a tensor lie in memory."""

import torch
from torch import Tensor


def lay_out_as(parameter: Tensor, value: Tensor) -> Tensor:
    """Give a tensor of a parameter's shape in that parameter's layout, by which torch's fused optimizers pair them.

    >>> weight = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    >>> lay_out_as(weight, torch.ones(2, 3, 4, 4)).stride() == weight.stride()
    True
    """
    if value.layout is not torch.strided or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
