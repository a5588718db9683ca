import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selfreminder import codec
from selfreminder.errors import SelfReminderError


def read_back(name: str, x: torch.Tensor) -> torch.Tensor:
    name = codec.resolve(name, x)
    return codec.decode(name, codec.encode(name, x))


@given(st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64, torch.float16, torch.int64]))
def test_auto_loses_nothing(seed: int, dtype: torch.dtype) -> None:
    x = (torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) * 10).to(dtype)
    back = read_back("auto", x)
    assert back.dtype == x.dtype
    assert torch.equal(back, x)


def test_images_are_kept_as_bytes_exactly() -> None:
    raw = torch.arange(256, dtype=torch.uint8)
    for x in (raw, raw / 255):
        name = codec.resolve("auto", x)
        kept = codec.encode(name, x)
        assert kept.dtype == torch.uint8
        assert torch.equal(codec.decode(name, kept), x)


@pytest.mark.parametrize(("name", "bound"), [("uint8", 1 / 510 + 1e-7), ("float16", 2**-11), ("float32", 0.0)])
def test_error_is_what_is_said(name: str, bound: float) -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    assert codec.error(name, x) == pytest.approx((read_back(name, x) - x).abs().max().item())
    assert codec.error(name, x) <= bound


def test_bad_input() -> None:
    with pytest.raises(SelfReminderError, match="from 0 to 1, these run from -1 to 2"):
        codec.encode("uint8", torch.tensor([-1.0, 2.0]))
    with pytest.raises(SelfReminderError, match="did you mean 'float16'"):
        codec.resolve("flaot16", torch.zeros(1))
