"""Tensor files: hashed, and whatever is wrong with one is said by the one error."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from selfreminder._base import tensor_file
from selfreminder._base.errors import SelfReminderError
from selfreminder._base.tensor_file import NotATensorFileError

KEY = "state"
TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "flags": torch.tensor([True, False, True]),
    "nothing": torch.zeros(0, 4),
    "one": torch.tensor(7, dtype=torch.int64),
}
ABOUT = {"epoch": 3, "name": "ä", "losses": [0.5, float("inf")]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tensors") / "file"
    tensor_file.write(path, TENSORS, KEY, ABOUT)
    return path


def same(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return tensors.keys() == others.keys() and all(
        x.dtype == others[name].dtype and torch.equal(x, others[name]) for name, x in tensors.items()
    )


def put(path: Path, header: bytes | str, content: bytes = b"") -> Path:
    """A file with this header, whatever it says."""
    header = header if isinstance(header, bytes) else header.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return path


def test_what_is_written_is_read(path: Path) -> None:
    tensors, about = tensor_file.read(path, KEY)
    assert same(tensors, TENSORS)
    assert about == ABOUT | {"sha256": tensor_file.hash_content(TENSORS, ABOUT)}
    assert same(load_file(path), TENSORS)  # any program can read it
    tensors["a"].add_(1)  # what is mapped is ours alone
    assert same(tensor_file.read(path, KEY)[0], TENSORS)


def test_keys_that_become_texts_do_not_change_the_hash(tmp_path: Path) -> None:
    tensor_file.write(tmp_path / "m", {}, KEY, {"tasks": {2: "b", 10: "a"}})
    assert tensor_file.read(tmp_path / "m", KEY)[1]["tasks"] == {"2": "b", "10": "a"}


def test_every_kind_of_number(tmp_path: Path) -> None:
    every = {name: torch.zeros(3, dtype=dtype) for name, dtype in tensor_file._DTYPES.items()}
    tensor_file.write(tmp_path / "m", every, KEY, {})
    found = tensor_file.read(tmp_path / "m", KEY)[0]
    assert {name: x.dtype for name, x in found.items()} == tensor_file._DTYPES
    with pytest.raises(SelfReminderError, match=r"'z' is torch\.complex128, which .* cannot hold"):
        tensor_file.write(tmp_path / "m", {"z": torch.zeros(1, dtype=torch.complex128)}, KEY, {})


def test_a_file_of_an_earlier_version_has_no_hash_and_is_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "old", metadata={KEY: tensor_file.canonical_json(ABOUT)})
    tensors, about = tensor_file.read(tmp_path / "old", KEY)
    assert same(tensors, TENSORS)
    assert about == ABOUT


def test_tensors_that_another_program_did_not_align_are_read(tmp_path: Path) -> None:
    header = {
        "__metadata__": {KEY: "{}"},
        "byte": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    content = b"\x05" + torch.tensor([1.5, -2.0]).numpy().tobytes()
    tensors, _ = tensor_file.read(put(tmp_path / "f", json.dumps(header), content), KEY)
    assert same(tensors, {"byte": torch.tensor([5], dtype=torch.uint8), "x": torch.tensor([1.5, -2.0])})


def test_every_flipped_bit_is_noticed_or_harmless(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    damaged = tmp_path / "damaged"
    harmless = 0
    for place in range(8 * len(whole)):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        damaged.write_bytes(content)
        try:
            tensors, about = tensor_file.read(damaged, KEY)
        except NotATensorFileError:
            continue
        harmless += 1  # the name of the hash is another one, and so there is none
        assert same(tensors, TENSORS)
        assert ABOUT.items() <= about.items()
    assert harmless <= 8 * len("sha256")


def test_every_truncation_is_noticed(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(NotATensorFileError):
            tensor_file.read(tmp_path / "cut", KEY)
    (tmp_path / "cut").write_bytes(whole + b"\0")
    with pytest.raises(NotATensorFileError, match="end at byte"):
        tensor_file.read(tmp_path / "cut", KEY)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SIZES = st.sampled_from([-1, 0, 1, 2, 4, 8, 2**31, 2**32, 2**62, 2**63, 2**64, 10**400]) | JSON
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from([*tensor_file._DTYPES, "F4", "f32"]) | JSON,
        "shape": st.lists(SIZES, max_size=4) | JSON,
        "data_offsets": st.lists(SIZES, min_size=1, max_size=3) | JSON,
    },
)
HEADER = st.dictionaries(
    st.sampled_from(["x", "y", "", "__metadata__"]), ENTRY | JSON | st.just({KEY: "{}"}) | st.just({KEY: "[["})
)


@given(header=(HEADER | JSON).map(json.dumps) | st.binary(max_size=40), content=st.binary(max_size=9))
def test_any_header_is_read_or_refused(
    header: str | bytes, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = put(tmp_path_factory.mktemp("header") / "f", header, content)
    try:
        tensors, about = tensor_file.read(path, KEY)
    except NotATensorFileError:
        return
    assert sum(x.nbytes for x in tensors.values()) == len(content)
    assert isinstance(about, dict)


@given(text=JSON.map(json.dumps) | st.text(max_size=9))
def test_any_metadata_is_read_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("metadata") / "f"
    save_file({"x": torch.zeros(2)}, path, metadata={KEY: text})
    try:
        about: Any = tensor_file.read(path, KEY)[1]
    except NotATensorFileError:
        return
    assert isinstance(about, dict)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"x":' * 100_000,
        "9" * 5000,
        '{"\\ud800": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}',
    ],
)
def test_json_that_python_fails_on(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotATensorFileError):
        tensor_file.read(put(tmp_path / "f", text), KEY)
    save_file({"x": torch.zeros(2)}, tmp_path / "g", metadata={KEY: text})
    with pytest.raises(NotATensorFileError, match="it was edited"):
        tensor_file.read(tmp_path / "g", KEY)


@pytest.mark.parametrize(
    ("shape", "nbytes", "said"),
    [
        ("[" + "1," * 99 + "1]", 1, "shape is none"),
        ("[-1, -1]", 1, "shape is none"),
        ("[true]", 1, "shape is none"),
        ("[4294967296]", 1, "does not have 1 bytes"),
        ("[0, 4611686018427387904, 8]", 0, "of another kind"),
    ],
)
def test_odd_shapes(shape: str, nbytes: int, said: str, tmp_path: Path) -> None:
    header = f'{{"__metadata__":{{"{KEY}":"{{}}"}},"x":{{"dtype":"U8","shape":{shape},"data_offsets":[0,{nbytes}]}}}}'
    with pytest.raises(NotATensorFileError, match=said):
        tensor_file.read(put(tmp_path / "f", header, bytes(nbytes)), KEY)


def test_a_header_is_limited_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "_MOST_HEADER", 1000)
    with pytest.raises(NotATensorFileError, match="header is not whole"):
        tensor_file.read(put(tmp_path / "f", "[" * 1001), KEY)
    tensor_file.write(tmp_path / "m", {}, KEY, {"text": "short"})
    with pytest.raises(SelfReminderError, match="would have a header of more than 1 kB"):
        tensor_file.write(tmp_path / "m", {}, KEY, {"text": "long" * 500})
    assert tensor_file.read(tmp_path / "m", KEY)[1]["text"] == "short"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("", "empty"):
        with pytest.raises(NotATensorFileError):
            tensor_file.read(tmp_path / name, KEY)
    with pytest.raises(FileNotFoundError):
        tensor_file.read(tmp_path / "missing", KEY)
