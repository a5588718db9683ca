import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage import color, img_as_float64
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder.benchmarks import color_cifar10 as colors
from selfreminder.benchmarks.color_cifar10 import SPACES, to_color_space


def rgb2hed_of_2018(image: np.ndarray) -> np.ndarray:
    """As the documentation of scikit-image 0.14 gives it: −log(rgb + 2) times the inverse of its matrix."""
    return -np.log(img_as_float64(image) + 2) @ np.linalg.inv(color.rgb_from_hed)


REFERENCE = {
    "yiq": color.rgb2yiq,
    "yuv": color.rgb2yuv,
    "hsv": color.rgb2hsv,
    "hed": color.rgb2hed,
    "hed-2018": rgb2hed_of_2018,
}


def expected(images: np.ndarray, space: str) -> Tensor:
    """scikit-image, one image at a time as a user would call it."""
    converted = [REFERENCE[space](image.transpose(1, 2, 0)).transpose(2, 0, 1) for image in images]
    return torch.from_numpy(np.stack(converted)).float()


def assert_like_scikit_image(images: Tensor, space: str) -> None:
    torch.testing.assert_close(to_color_space(images, space), expected(images.numpy(), space), rtol=0, atol=1e-5)


def test_the_order_of_the_spaces_is_the_papers() -> None:
    assert SPACES == ("rgb", "yiq", "yuv", "hsv", "hed")
    assert {*SPACES, "hed-2018"} == {"rgb", *REFERENCE}


def test_hed_of_2018_is_almost_linear_in_rgb() -> None:
    images = torch.rand(1, 3, 40, 50, generator=torch.Generator().manual_seed(0))
    rgb = torch.cat([images, torch.ones(1, 1, 40, 50)], 1).flatten(2)[0].T.double()
    explained = {}
    for space in ("hed", "hed-2018"):
        hed = to_color_space(images, space).flatten(2)[0].T.double()
        left = hed - rgb @ torch.linalg.lstsq(rgb, hed).solution
        explained[space] = (1 - left.square().sum() / (hed - hed.mean(0)).square().sum()).item()
    assert explained["hed-2018"] > 0.99 > 0.9 > explained["hed"]


def test_rgb_is_left_alone() -> None:
    images = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    assert to_color_space(images, "rgb") is images


@pytest.mark.parametrize("space", REFERENCE)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 4),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    levels=st.sampled_from([1, 2, 3, 255, 2**20]),
)
def test_random_images(space: str, seed: int, n: int, height: int, width: int, levels: int) -> None:
    # Few levels make ties among channels, greys, black and white frequent.
    pixels = np.random.default_rng(seed).integers(0, levels, (n, 3, height, width), endpoint=True)
    assert_like_scikit_image(torch.from_numpy((pixels / levels).astype(np.float32)), space)


@pytest.mark.parametrize("space", REFERENCE)
def test_every_mixture_of_a_few_levels(space: str) -> None:
    levels = [0.0, 1e-30, 1e-7, 1e-6, 1 / 255, 0.25, 0.5, 254 / 255, 1 - 2**-24, 1.0]
    pixels = torch.tensor(list(itertools.product(levels, repeat=3)))
    assert_like_scikit_image(pixels.reshape(10, 100, 3, 1).permute(0, 2, 1, 3), space)


@pytest.mark.parametrize("space", REFERENCE)
def test_bytes_divided_by_255_are_what_scikit_image_makes_of_bytes(space: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 3, 32, 32), dtype=np.uint8)
    images = torch.from_numpy(pixels).float() / 255
    torch.testing.assert_close(to_color_space(images, space), expected(pixels, space), rtol=0, atol=1e-5)


RGB = {
    "black": (0, 0, 0),
    "grey": (0.5, 0.5, 0.5),
    "white": (1, 1, 1),
    "red": (1, 0, 0),
    "yellow": (1, 1, 0),
    "green": (0, 1, 0),
    "cyan": (0, 1, 1),
    "blue": (0, 0, 1),
    "magenta": (1, 0, 1),
    "dark rose": (0.5, 0.25, 0.375),
}


@pytest.mark.parametrize(
    ("space", "name", "by_hand"),
    [
        ("hsv", "black", (0, 0, 0)),
        ("hsv", "grey", (0, 0, 0.5)),
        ("hsv", "white", (0, 0, 1)),
        ("hsv", "red", (0, 1, 1)),
        ("hsv", "yellow", (1 / 6, 1, 1)),
        ("hsv", "green", (2 / 6, 1, 1)),
        ("hsv", "cyan", (3 / 6, 1, 1)),
        ("hsv", "blue", (4 / 6, 1, 1)),
        ("hsv", "magenta", (5 / 6, 1, 1)),
        ("hsv", "dark rose", (5.5 / 6, 0.5, 0.5)),
        ("yiq", "grey", (0.5, 0, 0)),
        ("yiq", "blue", (0.114, -0.32134392, 0.31119955)),
        ("yuv", "white", (1, 0, 0)),
        ("yuv", "red", (0.299, -0.14714119, 0.61497538)),
        ("hed", "white", (0, 0, 0)),
    ],
)
def test_by_hand(space: str, name: str, by_hand: tuple[float, float, float]) -> None:
    pixel = torch.tensor(RGB[name], dtype=torch.float32).reshape(1, 3, 1, 1)
    assert to_color_space(pixel, space).flatten().tolist() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_chunks_and_neighbours_do_not_matter(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(7, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    whole = to_color_space(images, space)
    assert torch.equal(images, before)
    assert torch.equal(whole, torch.cat([to_color_space(image[None], space) for image in images]))
    monkeypatch.setattr(colors, "CHUNK", 3 * 20)
    assert torch.equal(whole, to_color_space(images, space))
    monkeypatch.setattr(colors, "CHUNK", 1)
    assert torch.equal(whole, to_color_space(images, space))


@pytest.mark.parametrize("space", SPACES)
def test_strided_images(space: str) -> None:
    last = torch.rand(3, 6, 4, 3, generator=torch.Generator().manual_seed(0))
    images = last.permute(0, 3, 1, 2)
    assert torch.equal(to_color_space(images, space), to_color_space(images.contiguous(), space))
    repeated = last[:1, :, :, :1].permute(0, 3, 1, 2).expand(2, 3, 6, 4)
    assert torch.equal(to_color_space(repeated, space), to_color_space(repeated.contiguous(), space))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4)])
def test_no_pixels(space: str, shape: tuple[int, ...]) -> None:
    assert to_color_space(torch.empty(shape), space).shape == shape


def test_an_unknown_space() -> None:
    with pytest.raises(SelfReminderError, match="unknown color space 'hvs': did you mean 'hsv'"):
        to_color_space(torch.zeros(1, 3, 2, 2), "hvs")


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(1, 3, 2, 2, dtype=torch.uint8),
        torch.zeros(1, 3, 2, 2, dtype=torch.float64),
        torch.zeros(3, 2, 2),
        torch.zeros(1, 2, 2, 3),
    ],
)
def test_images_of_another_kind(images: Tensor) -> None:
    with pytest.raises(SelfReminderError, match=r"give float32 of shape \(n, 3, h, w\)"):
        to_color_space(images, "hsv")


@pytest.mark.parametrize("value", [255.0, -0.1, float("nan")])
def test_values_out_of_range(value: float) -> None:
    images = torch.zeros(1, 3, 2, 2)
    images[0, 1, 1, 1] = value
    with pytest.raises(SelfReminderError, match=r"scale them to \[0, 1\]"):
        to_color_space(images, "hed")
