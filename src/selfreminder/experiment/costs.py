"""What a run costs beside time: items that go through its network, and the most memory that it takes."""

import re
from pathlib import Path

import torch
from torch import Tensor, nn

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_SET_PEAK_BACK = "5"
"""see proc(5): the peak becomes what is taken now"""


class Passes:
    """Counts the items that go forward through a network, and through all copies that are made of it from now on.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> passes = Passes(network)
    >>> _ = network(torch.zeros(5, 2)), network[0](torch.zeros(4, 2))
    >>> passes.items
    9
    """

    def __init__(self, network: nn.Module) -> None:
        self.items = 0

        def count(_: nn.Module, inputs: tuple[object, ...]) -> None:
            if inputs and isinstance(inputs[0], Tensor):
                self.add(len(inputs[0]))

        # The first layer: methods may call the others in their own way, and more than once.
        first = next((each for each in network.modules() if any(True for _ in each.parameters(recurse=False))), None)
        if first is not None:
            first.register_forward_pre_hook(count)

    def add(self, items: int) -> None:
        """Count items that went forward."""
        self.items += items


class PeakMemory:
    """The most memory that this process has taken since a moment, where the system can tell.

    A process may do several runs, and the peak of an earlier one is not to be taken for this.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device, self._is_cuda = device, torch.device(device).type == "cuda"
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _RESET.write_text(_SET_PEAK_BACK)
            self._is_known = True
        except OSError:
            self._is_known = False

    def measure(self) -> dict[str, int]:
        """Give {"peak_bytes": …} since the beginning, of a GPU what tensors took there; nothing if nobody can tell."""
        if self._is_cuda:
            return {"peak_bytes": torch.cuda.max_memory_allocated(self._device)}
        try:
            found = re.search(r"^VmHWM:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE) if self._is_known else None
        except OSError:
            found = None
        return {} if found is None else {"peak_bytes": 1024 * int(found[1])}
