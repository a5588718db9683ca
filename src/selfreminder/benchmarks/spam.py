"""SpamAssassin's mails in eight periods of 2001 and 2002, spam or not: real drift.

A period has an eighth of the mails that have a date, in the order of their dates. A mail is a hashed bag of the words
in its subject and its text; its other headers are left out, because they tell how it was gathered.
"""

import os
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from selfreminder.benchmarks import ONE_HEAD_METHODS, Benchmark, Scale
from selfreminder.benchmarks.periods import split_periods
from selfreminder.benchmarks.stream import Stream, StreamSpec
from selfreminder.data import dataset, load_dated
from selfreminder.data.own.encoding import hash_words

PERIODS = 8
_Mails = partial(
    Scale, data="spam-assassin", tasks=PERIODS, width=1.0, per_class=20, batch_size=32, optimizer="adam", lr=1e-3
)

BENCHMARK = Benchmark(
    model="mlp:256x2",
    methods=(*ONE_HEAD_METHODS[1:], "joint"),
    parts_of_data=True,
    has_times=True,
    scales={
        "demo": _Mails(data="generated-mails", epochs=5, width=0.25, seeds=1, per_class=5),
        "small": _Mails(epochs=5, seeds=3),
        "medium": _Mails(epochs=10, seeds=5),
        "paper": _Mails(epochs=20, seeds=10),
    },
)


def make_stream(spec: StreamSpec) -> Stream:
    """Make the stream of a spec: as many mails in each period."""
    x, y, times = _load(spec.data, spec.data_dir)
    cuts = [round(len(y) * period / PERIODS) for period in range(PERIODS + 1)]
    names = [f"mails from {times[cut].astype('M8[D]')} on" for cut in cuts[:-1]]
    return split_periods(x, y, cuts, names, spec)


@cache
def _load(data: str, data_dir: str | os.PathLike[str] | None) -> tuple[Tensor, Tensor, np.ndarray]:
    mails = load_dated(data, data_dir)
    x = hash_words({name: column.tolist() for name, column in mails.columns.items()}, dataset(data).shape[0])
    return x, torch.from_numpy(mails.labels), mails.times
