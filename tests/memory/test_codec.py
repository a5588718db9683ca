"""Every codec reads back what it promises, in the bytes that it counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from codec_tolerance import tolerance
from selfreminder._base.errors import SelfReminderError
from selfreminder.memory import codec
from selfreminder.memory.encoded import Encoded, Kept

EVERY = (*codec.NAMES, "int8")
seeds = st.integers(0, 10_000)


def encoded(name: str, x: Tensor) -> Kept:
    return codec.encode(name, x)


def values(seed: int, n: int = 5, spread: float = 10.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, 2, generator=generator) * spread
    x[torch.rand(n, 3, 2, generator=generator) < 0.2] = 0.0
    return x


@given(seeds, st.sampled_from([torch.float32, torch.float64, torch.float16, torch.int64]))
@pytest.mark.parametrize("name", ["auto", "compressed", "raw", "raw+zlib"])
def test_nothing_is_lost(name: str, seed: int, dtype: torch.dtype) -> None:
    x = values(seed).to(dtype)
    back = encoded(name, x).decode()
    assert back.dtype == x.dtype == encoded(name, x).read_dtype
    assert torch.equal(back, x)


@given(seeds, st.sampled_from([1e-6, 1.0, 3e4]))
@pytest.mark.parametrize("name", EVERY)
def test_never_further_than_promised(name: str, seed: int, spread: float) -> None:
    x = values(seed, spread=spread)
    x = x.abs().clamp(max=1) if name.startswith("uint8") else x.clamp(-60_000, 60_000)
    difference = (encoded(name, x).decode().double() - x.double()).abs()
    assert (difference <= tolerance(name, x)).all()
    assert codec.measure_error(name, x) == difference.max().item()


@given(seeds, st.integers(0, 6), st.data())
@pytest.mark.parametrize("name", EVERY)
def test_rows_and_sums(name: str, seed: int, n: int, data: st.DataObject) -> None:
    """Items taken, drawn or joined are the items; bytes add up; parts and facts are all there is."""
    x = values(seed, n).abs().div(100).clamp(max=1)
    kept = encoded(name, x)
    assert len(kept) == n
    assert kept.shape == (3, 2)
    assert kept.nbytes == int(kept.item_nbytes().sum())
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), max_size=8)) if n else [], dtype=torch.long)
    whole = kept.decode()
    assert whole.dtype == kept.read_dtype
    assert torch.equal(kept.take(rows).decode(), whole[rows])
    assert torch.equal(kept.decode(rows), whole[rows])
    assert torch.equal((kept + kept.take(rows)).decode(), torch.cat([whole, whole[rows]]))
    again = codec.from_parts(kept.parts, kept.facts)
    again.check((*codec.NAMES, *codec.LOGIT_NAMES))
    assert torch.equal(again.decode(), whole)


def test_images_are_kept_as_bytes_exactly() -> None:
    raw = torch.arange(256, dtype=torch.uint8)[:, None]
    for x in (raw, raw / 255):
        kept = encoded("auto", x)
        assert kept.dtype == torch.uint8
        assert kept.nbytes == 256
        assert torch.equal(kept.decode(), x)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float32", 24), ("float16", 12), ("affine8", 6 + 8), ("int8", 6 + 4), ("raw", 24)],
)
def test_bytes_of_an_item(name: str, expected: int) -> None:
    assert encoded(name, values(0)).item_nbytes().tolist() == [expected] * 5


def test_different_codecs_join_without_a_second_rounding() -> None:
    x = values(0)
    for first, second in (("float16", "float32"), ("affine8", "float16"), ("float16+zlib", "raw+zlib")):
        one, other = encoded(first, x), encoded(second, x)
        joined = one + other
        assert torch.equal(joined.decode(), torch.cat([one.decode(), other.decode()]))
        assert joined.nbytes == one.nbytes + other.nbytes + 10


def test_constant_items() -> None:
    x = torch.tensor([[2.5, 2.5], [0.0, 0.0], [-7.0, -7.0]])
    assert torch.equal(encoded("affine8", x).decode(), x)
    assert torch.equal(encoded("int8", x).decode(), x)


def test_damaged_items_are_refused() -> None:
    kept = encoded("compressed", values(0))
    broken = torch.full_like(kept.values, 255)
    with pytest.raises(SelfReminderError, match="damaged"):
        Encoded.from_parts(kept.parts | {"": broken}, kept.facts).decode()
    with pytest.raises(SelfReminderError, match="damaged: it does not have 36 bytes"):
        Encoded.from_parts(kept.parts, kept.facts | {"shape": [3, 3]}).decode()
    with pytest.raises(SelfReminderError, match="damaged: it does not have 12 bytes"):
        Encoded.from_parts(kept.parts, kept.facts | {"shape": [3]}).decode()
    for parts, facts in (
        (kept.parts | {".sizes": kept.parts[".sizes"] + 1}, kept.facts),
        (kept.parts | {".sizes": kept.parts[".sizes"].long()}, kept.facts),
        (kept.parts | {".sizes": kept.parts[".sizes"][:, None]}, kept.facts),
        (kept.parts, kept.facts | {"shape": [3.0, 2]}),
        (kept.parts, kept.facts | {"shape": [-3, -2]}),
        (kept.parts, kept.facts | {"shape": [2**70]}),
        (kept.parts, kept.facts | {"codec": "raw"}),
        ({"": torch.zeros(5, 3, dtype=torch.uint8), ".scale": torch.zeros(5, 2).double()}, {"codec": "affine8"}),
        ({"": torch.zeros(5, 3)}, {"codec": "affine8"}),
        ({"": torch.zeros(5, 3)}, {"codec": "uint8"}),
        ({"": torch.zeros(5, 3)}, {"codec": "auto"}),
    ):
        with pytest.raises(SelfReminderError, match="not whole"):
            Encoded.from_parts(parts, facts).check(EVERY)


def test_bad_input() -> None:
    with pytest.raises(SelfReminderError, match="from 0 to 1, these run from -1 to 2"):
        codec.encode("uint8", torch.tensor([-1.0, 2.0]))
    with pytest.raises(SelfReminderError, match="up to 65504, here is one of 70000"):
        codec.encode("float16", torch.tensor([70000.0]))
    with pytest.raises(SelfReminderError, match="did you mean 'float16'"):
        codec.resolve("flaot16", torch.zeros(1))
