"""Images of any kind and size as bytes (C, H, W), by Pillow.

What one sees is what one gets: 16 bits are scaled to 8, palettes are looked up, transparent parts are white, and a
photo stands as its camera says. An image is measured by its header before memory is taken for it.
"""

import io
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from selfreminder._base.errors import DataError, MissingExtraError
from selfreminder.data.mapped import take_rows
from selfreminder.data.own.own_data import Progress, check_bad
from selfreminder.data.own.room import Room, to_rows

try:
    from PIL import Image, ImageOps
except ImportError:
    raise MissingExtraError("reading images needs pillow: pip install 'selfreminder[cli]'") from None

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # no others: some of Pillow's run other programs
_MOST_PIXELS = 89_000_000
"""of an image: a small file can claim to be a huge one"""
_ORIENTATION = 0x0112
_WAITING = 100
"""images that are given to threads at once"""
_TOLD = 100
"""images from one call of the progress to the next"""

Source = Path | bytes
Made = TypeVar("Made")


@dataclass(frozen=True)
class Measure:
    """What an image's header says."""

    width: int
    height: int
    grey: bool


def read_images(
    sources: Iterable[Source],
    places: Sequence[str],
    *,
    size: int | None,
    channels: int | None,
    room: Room,
    skip_bad: bool,
    progress: Progress | None,
) -> tuple[Tensor, np.ndarray, list[str]]:
    """Read images of one size.

    Args:
        sources: files or their contents; what is iterated twice need not be in memory.
        places: what to call each in a message.
        size: of a side; images of other sizes are scaled to it by their shorter side, then cut at the centre.
        channels: 1 or 3; without it 1 if all are grey.
        room: where they go.
        skip_bad: leave out those that cannot be read.
        progress: told how many are read.

    Returns: uint8 (n, C, H, W) of those that could be read, whether each could, and why the others could not.
    """
    if size is not None and not 1 <= size <= 10_000:
        raise DataError(f"size is {size}: an image's side has 1 to 10,000 pixels")
    if channels not in (None, 1, 3):
        raise DataError(f"channels is {channels}: an image has 1 (grey) or 3 (red, green, blue)")
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        warnings.simplefilter("ignore")  # of damaged metadata, and of sizes, which are judged here
        told = _Told(progress, "images measured", len(places))
        measures = list(_map(pool, lambda source: told(_try(_measure, source)), sources))
        bad = {i: str(found) for i, found in enumerate(measures) if isinstance(found, DataError)}
        good = {i: found for i, found in enumerate(measures) if isinstance(found, Measure)}
        if bad and not skip_bad:  # they are named all at once: an image may be cut short behind its header
            told = _Told(progress, "images looked at", len(places))
            decoded = _map(pool, lambda source: told(_try(lambda each: _read_pixels(each, 3, size), source)), sources)
            bad = {i: str(found) for i, found in enumerate(decoded) if isinstance(found, DataError)} | bad
        _check_bad_images(bad, places, skip_bad)
        height, width = (size, size) if size is not None else _find_size(good, places)
        channels = channels or (1 if all(found.grey for found in good.values()) else 3)
        pixels = room.make(f"{len(good)} images of {height} x {width}", (len(good), channels, height, width), np.uint8)
        told = _Told(progress, "images read", len(good))

        def read(row: int, i: int, source: Source) -> tuple[int, str | None]:
            found = told(_try(lambda source: _read_pixels(source, channels, size), source))
            if isinstance(found, DataError):
                return i, str(found)
            if found.shape != pixels.shape[1:]:
                return i, f"{found.shape[2]} x {found.shape[1]} pixels, its header says another size"
            pixels[row] = found
            return i, None

        whole = (source for i, source in enumerate(sources) if i in good)
        failed = {i: reason for i, reason in _map(pool, read, range(len(good)), good, whole) if reason is not None}
    bad |= failed
    _check_bad_images(bad, places, skip_bad)
    readable = np.array([i not in bad for i in range(len(places))], bool)
    made = to_rows(pixels)
    if failed:
        made = take_rows(made, torch.tensor([i not in failed for i in good]))
    return made, readable, [f"{places[i]} ({reason})" for i, reason in sorted(bad.items())]


def _map(pool: ThreadPoolExecutor, function: Callable[..., Made], *values: Iterable[Any]) -> Iterator[Made]:
    """Apply a function in threads, to some values at a time: what waits takes memory, too."""
    waiting: deque[Future[Made]] = deque()
    for given in zip(*values):
        waiting.append(pool.submit(function, *given))
        if len(waiting) == _WAITING:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _check_bad_images(bad: dict[int, str], places: Sequence[str], skip_bad: bool) -> None:
    shown = [f"{places[i]} ({reason})" for i, reason in sorted(bad.items())]
    check_bad(shown, len(places), "images cannot be read", skip_bad)


def _find_size(measures: dict[int, Measure], places: Sequence[str]) -> tuple[int, int]:
    sizes: dict[tuple[int, int], int] = {}
    for i, found in measures.items():
        sizes.setdefault((found.height, found.width), i)
    if len(sizes) > 1:
        shown = [f"{width} x {height} ({places[i]})" for (height, width), i in list(sizes.items())[:2]]
        raise DataError(
            f"the images have {len(sizes)} different sizes, such as {' and '.join(shown)}: give one, "
            "for example size=64 (--size 64)"
        )
    return next(iter(sizes))


class _Told:
    """Tells the progress now and then; gives back what it is called with."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self.progress, self.what, self.total, self.done = progress, what, total, 0

    def __call__(self, value: Made) -> Made:
        self.done += 1  # two threads at once may count one image: it is only shown
        if self.progress and (self.done % _TOLD == 0 or self.done == self.total):
            self.progress(self.what, self.done, self.total)
        return value


def _try(function: Callable[[Source], Made], source: Source) -> Made | DataError:
    try:
        return function(source)
    except DataError as error:
        return error
    except OSError as error:
        return DataError(error.strerror or ("no image of a known kind" if "identify" in str(error) else str(error)))
    except Exception as error:  # a damaged image can raise anything
        return DataError(f"{type(error).__name__}: {error}")


@contextmanager
def _open(source: Source) -> Iterator[Any]:
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise DataError(f"{image.width} x {image.height} pixels are more than {_MOST_PIXELS:,}")
        yield image


def _measure(source: Source) -> Measure:
    with _open(source) as image:
        width, height = image.size
        if _get_orientation(image) >= 5:  # on its side
            width, height = height, width
        return Measure(width, height, _is_grey(image))


def _read_pixels(source: Source, channels: int, size: int | None) -> np.ndarray:
    with _open(source) as image:
        if size is not None:
            image.draft(None, (2 * size, 2 * size))  # a JPEG is decoded at a fraction of its size, if that is enough
        return to_pixels(image, channels, size)


def to_pixels(image: Any, channels: int, size: int | None) -> np.ndarray:
    """Make bytes (C, H, W) of an image of Pillow."""
    if _get_orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    image = _to_8_bits(image).convert("L" if channels == 1 else "RGB")
    if size is not None and image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    array = np.asarray(image)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _to_8_bits(image: Any) -> Any:
    """The image in a mode that converts to grey or colours without loss of what is seen."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        values = np.asarray(image).astype(np.uint32)  # Pillow itself would cut off all above 255
        return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError("32-bit numbers, of which nobody knows the range: save it with 8 or 16 bits")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, colours)
    return image


def _is_grey(image: Any) -> bool:
    if image.mode in ("P", "PA"):
        palette = image.getpalette("RGB") or []
        return palette[0::3] == palette[1::3] == palette[2::3]
    return image.mode.startswith(("1", "L", "I", "F")) and image.mode != "LAB"


def _get_orientation(image: Any) -> int:
    # Pillow turns TIFFs by itself; a PNG that says nothing before its pixels would be read whole for this.
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    return image.getexif().get(_ORIENTATION, 1)
