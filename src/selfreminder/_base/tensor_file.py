"""Named tensors and one JSON value in a safetensors file: written whole or not at all, never pickled."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from selfreminder._base.atomic import replace_file


class NotATensorFileError(ValueError):
    """The file is damaged, or of another kind; the message says which."""


def canonical_json(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def write(path: Path, tensors: dict[str, Tensor], key: str, about: Any) -> None:
    """Write tensors, and `about` under the metadata's only key: the format keeps several in no fixed order."""
    # Cloned, because the format refuses tensors that share storage, as tied weights do.
    on_cpu = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with replace_file(path) as temporary:
        try:
            save_file(on_cpu, temporary, metadata={key: canonical_json(about)})
        except SafetensorError as error:
            # The system's own error, of which only the number is left: what to do about it depends on that.
            number = re.search(r"\(os error (\d+)\)", str(error))
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code) if number else str(error), str(path)) from None


def read(path: Path, key: str) -> tuple[dict[str, Tensor], Any]:
    """Mapped tensors and what was written beside them."""
    with path.open("rb"):
        pass  # for the plain error: safetensors says that a file it may not read is not there
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(key)
            if text is None:
                raise NotATensorFileError("it is a safetensors file of another kind")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(text)  # noqa: SIM118
    except SafetensorError as error:
        raise NotATensorFileError(f"it was cut short or edited, or is of another kind: {error}") from None
    except json.JSONDecodeError as error:
        raise NotATensorFileError(f"it was edited: {error}") from None
