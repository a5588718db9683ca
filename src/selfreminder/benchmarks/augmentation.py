"""Augmentation: changes of training images, drawn anew at every step from the step's own generator."""

import torch
import torch.nn.functional as F
from torch import Tensor

from selfreminder._base.errors import SelfReminderError
from selfreminder._base.factories import load_factory
from selfreminder.benchmarks.stream import Augment

_CROP = 8
"""images are shifted by up to the side divided by this"""


def find_augmentation(name: str) -> Augment:
    """Find an augmentation by its name in `selfreminder.benchmarks.AUGMENTATIONS`, or a function of the user's own."""
    if name == "flip":
        return flip
    if name == "crop":
        return crop
    if name == "crop-flip":
        return lambda x, generator: flip(crop(x, generator), generator)
    return load_factory(name)


def try_augmentation(name: str, augment: Augment, x: Tensor) -> None:
    """Raise unless an augmentation takes inputs like these, and gives such."""
    wanted = "it takes (x, generator), and gives x in the same shape and type"
    with torch.random.fork_rng(devices=[]):
        try:
            made = augment(x.clone(), torch.Generator(x.device))
        except SelfReminderError:
            raise
        except Exception as error:  # a function of the user's can raise anything
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise SelfReminderError(f"{name} raised {said}; {wanted}") from error
    if not isinstance(made, Tensor):
        raise SelfReminderError(f"{name} gives a {type(made).__name__}: {wanted}")
    if (made.shape, made.dtype) != (x.shape, x.dtype):
        given, taken = (f"{tuple(each.shape)} in {each.dtype}" for each in (made, x))
        raise SelfReminderError(f"{name} makes {taken} into {given}: {wanted}")


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images (n, …, H, W), each by its own draw."""
    _check_images(x)
    turned = torch.rand(len(x), generator=generator, device=x.device) < 0.5
    return torch.where(turned.view(-1, *(1,) * (x.ndim - 1)), x.flip(-1), x)


def crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift every image (n, …, H, W) by up to an eighth of its sides, with zeros where nothing was."""
    _check_images(x)
    height, width = x.shape[-2:]
    by = max(1, min(height, width) // _CROP)
    padded = F.pad(x, (by, by, by, by))
    down, right = torch.randint(0, 2 * by + 1, (2, len(x)), generator=generator, device=x.device)
    rows = (down[:, None] + torch.arange(height, device=x.device))[:, :, None]
    columns = (right[:, None] + torch.arange(width, device=x.device))[:, None, :]
    items = torch.arange(len(x), device=x.device)[:, None, None]
    if x.ndim == 3:
        return padded[items, rows, columns]
    return padded.movedim(1, -1)[items, rows, columns].movedim(-1, 1).contiguous()


def _check_images(x: Tensor) -> None:
    if x.ndim not in (3, 4):
        raise SelfReminderError(f"augmentation is for images, these inputs have the shape {tuple(x.shape[1:])}")
