"""Arrays, functions, Datasets and Hugging Face data sets; and how a source is recognised."""

import json
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from selfreminder._base.errors import DataError, SelfReminderError
from selfreminder._base.factories import load_factory
from selfreminder.data.own import OwnData, UnknownClassError, read_own_data
from selfreminder.data.own.pieces import read_pieces

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


def test_npz_has_inputs_labels_and_columns(tmp_path: Path):
    site, day = np.array(["A", "B", "A", "B"]), np.array(["2024-01-01"] * 4, "datetime64[D]")
    np.savez_compressed(tmp_path / "d.npz", x=X, y=[2, 0, 1, 1], site=site, day=day, scale=np.ones(7))
    own = read_own_data(f"npz:{tmp_path / 'd.npz'}")
    assert np.array_equal(own.inputs["x"], X)
    assert own.labels.tolist() == [2, 0, 1, 1]
    assert own.classes is None
    assert own.columns.keys() == {"site", "day"}
    assert read_own_data(tmp_path / "d.npz", classes=["a", "b", "c"]).classes == ("a", "b", "c")


def test_npz_may_name_its_classes_and_several_inputs(tmp_path: Path):
    ids, mask = np.ones((2, 5), np.int64), np.ones((2, 5), bool)
    np.savez(tmp_path / "d.npz", ids=ids, mask=mask, target=[1, 0], classes=["a", "b"])
    own = read_own_data(tmp_path / "d.npz", inputs=["ids", "mask"], label="target")
    assert own.inputs.keys() == {"ids", "mask"}
    assert own.classes == ("a", "b")
    own = read_own_data(tmp_path / "d.npz", inputs=["ids"], label="target", classes=["b", "a"])
    assert own.labels.tolist() == [0, 1]


def test_other_byte_orders_and_wide_numbers_are_taken():
    assert read_own_data({"x": np.array([[1, 2]], ">f4")}).inputs["x"].tolist() == [[1, 2]]
    assert read_own_data({"x": np.array([[1, 65535]], np.uint16)}).inputs["x"].tolist() == [[1, 65535]]


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"a": X, "b": X}, {}, "has no x or inputs among a, b: say which are the inputs"),
        ({"x": X, "y": [1, 2]}, {}, "4 inputs in 'x', but 2 labels in 'y'"),
        ({"x": X, "y": np.eye(4)}, {}, r"labels 'y' have the shape \(4, 4\).*argmax"),
        ({"x": X, "y": [0.5, 1, 2, 3]}, {}, "numbers with a point"),
        ({"x": X, "y": [0, 1, 2, -1]}, {}, r"-1 \(item 3\) is negative"),
        ({"x": X, "features": X}, {}, "'features' has the shape .* say inputs="),
        ({"x": X[:0]}, {}, "no items"),
        ({"x": np.array(["a"])}, {}, "holds <U1, not numbers"),
        ({"x": X}, {"label": "z"}, "unknown label column 'z'"),
        ({"x": X}, {"inputs": ["z"]}, "unknown input of .* 'z'"),
        ({"x": X}, {"encoding": lambda columns: None}, "is no table"),
        ({"x": np.array([[1.0], [np.nan]])}, {}, "1 of 2 items have inputs that are not finite: item 1"),
        ({"x": X, "y": [0, 1, 2, 9], "classes": ["a", "b", "c"]}, {}, "a label 9, but only 3 names"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arrays, options, message: str):
    np.savez(tmp_path / "d.npz", **arrays)
    for source in (tmp_path / "d.npz", arrays):
        with pytest.raises(DataError, match=message) as error:
            read_own_data(source, **options)
        assert "\n" not in str(error.value)


def test_items_that_are_not_finite_are_left_out_if_asked():
    own = read_own_data({"x": np.array([[1.0], [np.nan], [3.0]]), "y": [0, 1, 2]}, skip_bad=True)
    assert own.inputs["x"].tolist() == [[1], [3]]
    assert own.labels.tolist() == [0, 2]
    assert own.skipped == ("item 1 (not finite)",)


def test_npz_with_objects_is_refused_unpickled(tmp_path: Path):
    np.savez(tmp_path / "d.npz", x=np.array([object()], object), allow_pickle=True)
    with pytest.raises(DataError, match="would be unpickled"):
        read_own_data(tmp_path / "d.npz")


def test_npz_that_claims_to_be_huge_is_refused_before_it_is_read(tmp_path: Path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**10,)}
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive, archive.open("x.npy", "w") as member:
        npy.write_array_header_1_0(member, header)
    with pytest.raises(DataError, match="would take 80 GB, more than the limit of 8 GB"):
        read_own_data(tmp_path / "d.npz")


def test_npz_is_no_bomb(tmp_path: Path):
    """Neither by what is beside its arrays, nor by a header that is longer than any."""
    path = tmp_path / "d.npz"
    np.savez(path, x=np.ones((2, 3)))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(10**8))
    tracemalloc.start()
    assert read_own_data(path, limit="1MB").inputs["x"].tolist() == [[1.0] * 3] * 2
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x05" + bytes(10**8))
    tracemalloc.reset_peak()
    with pytest.raises(DataError, match=r"header of x.npy is longer than any"):
        read_own_data(path, limit="1MB")
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"text"])
def test_what_is_no_npz_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read as .npz"):
        read_own_data(tmp_path / "d.npz")


# Functions and values -------------------------------------------------------------------------------------

FACTORIES = """
import numpy, torch
from torch.utils.data import TensorDataset
def array(): return numpy.zeros((2, 3))
def pair(): return numpy.zeros((2, 3)), ["b", "a"]
def named(): return {"inputs": torch.zeros(2, 3), "labels": torch.tensor([1, 0]), "site": ["A", "B"]}
def items(): return TensorDataset(torch.zeros(2, 3), torch.tensor([1, 0]))
def broken(): raise ValueError("no such table")
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shop_of_tests.py").write_text(FACTORIES)
    (tmp_path / "raises_of_tests.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield "shop_of_tests"
    sys.modules.pop("shop_of_tests", None)


@pytest.mark.parametrize(("name", "labels"), [("array", None), ("pair", [1, 0]), ("named", [1, 0]), ("items", [1, 0])])
def test_a_function_gives_data(module: str, name: str, labels: list[int] | None):
    own = read_own_data(f"{module}:{name}")
    assert own.inputs["x"].shape == (2, 3)
    assert (None if own.labels is None else own.labels.tolist()) == labels
    assert list(own.columns) == (["site"] if name == "named" else [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop_of_tests:broken", "shop_of_tests:broken raised ValueError: no such table"),
        ("shop_of_tests:pairs", "unknown function of shop_of_tests 'pairs': did you mean 'pair'"),
        ("shop_of_tests:number", "is a int, not a function"),
        ("no_such_module_here:f", "there is no module 'no_such_module_here', installed or in"),
        ("raises_of_tests:f", "importing it raised ZeroDivisionError"),
    ],
)
def test_a_function_that_fails_is_one_line(module: str, name: str, message: str):
    with pytest.raises(SelfReminderError, match=message) as error:
        read_own_data(name)
    assert "\n" not in str(error.value)


def test_a_text_that_names_no_function_is_refused():
    with pytest.raises(SelfReminderError, match=r"write package.module:function"):
        load_factory("a/b.py")


class Ragged(Dataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int):
        return torch.zeros(2 + i // 2), i


class Words(Ragged):
    def __getitem__(self, i: int):
        torch.rand(1)
        return {"x": torch.full((2,), i), "label": "ab"[i % 2], "site": i}


def test_a_dataset_of_dicts_and_torchs_own_generator(tmp_path: Path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    told = []
    own = read_own_data(Words(), progress=lambda *what: told.append(what))
    assert torch.get_rng_state().equal(before)
    assert own.classes == ("a", "b")
    assert own.columns["site"].tolist() == [0, 1, 2]
    assert told == [("items read", 3, 3)]


def test_items_of_different_shapes_are_refused():
    with pytest.raises(DataError, match=r"'x' has different shapes, such as \(2,\) \(item 0\) and \(3,\) \(item 2\)"):
        read_own_data(Ragged())


@pytest.mark.parametrize("value", [3, object(), {1, 2}])
def test_what_is_no_data_is_refused(value):
    with pytest.raises(DataError, match="give an array"):
        read_own_data(value)


def test_an_empty_dataset_is_refused():
    with pytest.raises(DataError, match="is empty"):
        read_own_data(TensorDataset(torch.zeros(0, 2)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere/x.csv", "there is no such file"),
        ("npz:nowhere.npz", "there is no such file"),
        ("cvs:x.csv", "unknown kind of data 'cvs': did you mean 'csv'"),
        ("folder:{file}", "it is a file"),
        ("csv:{folder}", "it is a folder"),
        ("{file}", "its ending says no kind of data"),
        ("hf:{folder}", "is no saved data set"),
    ],
)
def test_a_source_that_is_not_there_or_of_no_kind(tmp_path: Path, source: str, message: str):
    (tmp_path / "x.bin").write_text("")
    with pytest.raises(DataError, match=message):
        read_own_data(source.format(file=tmp_path / "x.bin", folder=tmp_path))


def test_parts_of_different_length_are_no_data():
    with pytest.raises(DataError, match="not of one length: 'x' 2, 'labels' 3"):
        OwnData({"x": torch.zeros(2, 1)}, torch.zeros(3, dtype=torch.int64), None, {})


# Hugging Face ---------------------------------------------------------------------------------------------


def test_a_saved_data_set_of_images(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 6, 3), dtype=np.uint8)
    label = datasets.ClassLabel(names=["dog", "cat"])
    features = datasets.Features({"image": datasets.Image(), "label": label, "site": datasets.Value("string")})
    rows = {"image": [Image.fromarray(x) for x in pixels], "label": [0, 1, 1], "site": ["A", None, "B"]}
    data = datasets.Dataset.from_dict(rows, features=features)
    data.save_to_disk(tmp_path / "d")
    for source in (f"hf:{tmp_path / 'd'}", tmp_path / "d", data):
        own = read_own_data(source)
        assert np.array_equal(own.inputs["x"].permute(0, 2, 3, 1), pixels)
        assert own.labels.tolist() == [0, 1, 1]
        assert own.classes == ("dog", "cat")
        assert own.columns["site"].tolist() == ["A", "", "B"]
    assert read_own_data(tmp_path / "d", classes=["cat", "dog"]).labels.tolist() == [1, 0, 0]
    with pytest.raises(UnknownClassError, match="'dog'"):
        read_own_data(tmp_path / "d", classes=["cat"])


def test_a_saved_data_set_of_tokens_or_of_a_table(tmp_path: Path):
    rows = {"input_ids": [[1, 2], [3, 4]], "attention_mask": [[1, 1], [1, 0]], "text": ["a", "b"], "label": [1, 0]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "tokens")
    own = read_own_data(tmp_path / "tokens")
    assert own.inputs.keys() == {"input_ids", "attention_mask"}
    assert own.inputs["input_ids"].tolist() == [[1, 2], [3, 4]]
    assert own.columns["text"].tolist() == ["a", "b"]
    datasets.Dataset.from_dict({"a": [1.5, 2.5], "y": ["u", "v"]}).save_to_disk(tmp_path / "table")
    own = read_own_data(tmp_path / "table")
    assert own.inputs["x"].tolist() == [[1.5], [2.5]]
    assert own.numbers == ("a",)


def test_a_saved_data_set_that_is_damaged_is_a_line_and_no_end_of_the_process(tmp_path: Path):
    datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 50, "text": ["word"] * 50}).save_to_disk(tmp_path / "d")
    (file,) = (tmp_path / "d").glob("*.arrow")
    whole, refused = file.read_bytes(), 0
    for place in range(0, len(whole), 101):
        for content in (whole[:place], whole[:place] + b"\xff" * 8 + whole[place + 8 :]):
            file.unlink()
            file.write_bytes(content)
            try:
                read_own_data(tmp_path / "d")
            except DataError:
                refused += 1
    assert refused > 10
    with pytest.raises(DataError, match="more than the limit of 100 B"):
        read_own_data(tmp_path / "d", limit=100)


def test_a_saved_data_set_whose_state_is_deep_is_a_line(tmp_path: Path):
    datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 4}).save_to_disk(tmp_path / "d")
    state = (tmp_path / "d" / "state.json").read_text()
    deep = state.replace('"_output_all_columns": false', f'"_output_all_columns": {"[" * 600}{"]" * 600}')
    assert deep != state
    (tmp_path / "d" / "state.json").write_text(deep)
    with pytest.raises(DataError, match="cannot be read as a data set: RecursionError"):
        read_own_data(tmp_path / "d")


@pytest.mark.parametrize("read", [read_own_data, lambda path: read_pieces(f"hf:{path}", "")])
def test_a_saved_data_set_names_no_file_of_another_folder(read: Callable[[Path], object], tmp_path: Path):
    for name in ("theirs", "d"):
        datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 4, "label": [0, 1] * 2}).save_to_disk(tmp_path / name)
    state = json.loads((tmp_path / "d" / "state.json").read_text())
    state["_data_files"][0]["filename"] = f"../theirs/{state['_data_files'][0]['filename']}"
    (tmp_path / "d" / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=r"names '\.\./theirs/data.*', which is no file of this folder"):
        read(tmp_path / "d")


def test_a_saved_data_set_with_parts_gaps_or_ragged_lists_is_a_line(tmp_path: Path):
    part = datasets.Dataset.from_dict({"x": [[1], [2, 3]]})
    datasets.DatasetDict(train=part, test=part).save_to_disk(tmp_path / "d")
    with pytest.raises(DataError, match=r"has the parts train, test: name one, hf:.*train"):
        read_own_data(tmp_path / "d")
    with pytest.raises(DataError, match=r"different shapes.*pad to one length"):
        read_own_data(tmp_path / "d" / "train")
    features = datasets.Features({"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=["a"])})
    data = datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": [0, -1]}, features=features)
    with pytest.raises(DataError, match=r"1 of 2 items have a gap"):
        read_own_data(data)
    assert read_own_data(data, skip_bad=True).labels.tolist() == [0]
