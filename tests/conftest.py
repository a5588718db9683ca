"""Shared by all tests: one thread, a cache of its own, and a small stream of real digits."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from selfreminder import data
from selfreminder.benchmarks.permuted_mnist import permute_pixels
from selfreminder.benchmarks.stream import Stream, image_parts

torch.set_num_threads(1)
# No deadlines: a busy machine is no defect. The same examples in every run: a failure can be repeated.
settings.register_profile("selfreminder", deadline=None, derandomize=True, database=None)
settings.load_profile("selfreminder")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFREMINDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SELFREMINDER_DATA", raising=False)


@pytest.fixture(autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test whose warnings are ignored left open is collected with it: in a later one, it would be an error."""
    yield
    if request.node.get_closest_marker("filterwarnings") is not None:
        gc.collect()


@pytest.fixture(scope="session")
def digits() -> Stream:
    """Three tasks of permuted embedded digits, 600 training images."""
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=600).flatten()
    return permute_pixels(parts, tasks=3, seed=0)


@pytest.fixture(scope="session")
def headed_digits() -> Stream:
    """Three tasks of permuted embedded digits, a head each, one of them wider than the others."""
    parts = image_parts(data.load("embedded-mnist"), seed=0, count=600).flatten()
    plain = permute_pixels(parts, tasks=3, seed=0)
    return Stream((10, 12, 10), lambda index: replace(plain[index], head=index))
