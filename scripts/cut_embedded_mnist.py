"""Cut the embedded part of MNIST from the original files: `python scripts/cut_embedded_mnist.py`.

The first 600 training and the first 200 test images of every class, in their original order, as idx files.
Writes src/selfreminder/data/embedded/ and prints the sha256 of each file's content for data/__init__.py.
"""

import gzip
import hashlib
from pathlib import Path

import numpy as np

from selfreminder import data
from selfreminder._base.atomic import replace_file
from selfreminder.data.readers import write_idx

EMBEDDED = Path(__file__).parents[1] / "src/selfreminder/data/embedded"


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Indices of the first `count` of every class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))


def main() -> None:
    mnist = data.load("mnist")
    train, test = first_of_each_class(mnist.train_y, 600), first_of_each_class(mnist.test_y, 200)
    arrays = (mnist.train_x[train], mnist.train_y[train], mnist.test_x[test], mnist.test_y[test])
    for file, array in zip(data.DATASETS["embedded-mnist"].files, arrays, strict=True):
        content = write_idx(array)
        with replace_file(EMBEDDED / f"{file.name}.gz") as temporary:
            temporary.write_bytes(gzip.compress(content, 9, mtime=0))
        print(hashlib.sha256(content).hexdigest(), file.name, array.shape)


if __name__ == "__main__":
    main()
