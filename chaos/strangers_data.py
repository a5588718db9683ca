"""Strangers' files, those of a store and of one's own data: images, arrays, tables, data sets, weights, manifests."""

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from chaos.corruption import read_current, read_history, verify_store
from chaos.shop import make_versions
from chaos.strangers import HOSTILE, Parser, join_campaign, put, put_into_png, put_into_tensors, reading
from selfreminder._base.errors import SelfReminderError
from selfreminder.data.own import read_own_data
from selfreminder.data.own.pieces import read_pieces
from selfreminder.store.config import Config
from selfreminder.store.heldout import HeldOut
from selfreminder.store.manifest import MANIFEST, _hash_facts
from selfreminder.store.model import read_weights

_CSV = b"x,site,when,y\n1.5,A,2026-01-01,cat\n2.5,B,2026-01-02,dog\n-1,A,,cat\n"
_TOML = b"""[model]
factory = "chaos_shop:build"
labels = ["a", "b"]
[data]
holdout = 0.2
size = 8
[memory]
budget = "5MB"
max_age = "180d"
[train]
lr = 1e-4
epochs = 2
trials = [0.3, 1.0]
seed = 3
[gate]
old_drop_max = 0.01
unsure = "pass"
"""


def _read_own(name: str) -> Callable[[bytes], object]:
    return reading(name, lambda folder: read_own_data(folder / name, limit="200MB"))


def _good_npz() -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, x=np.zeros((4, 3), np.float32), y=np.array(["a", "b", "a", "b"]), site=np.arange(4))
    return content.getvalue()


def _good_parquet() -> bytes:
    from pyarrow import parquet, table  # noqa: PLC0415 - of an extra

    content = io.BytesIO()
    parquet.write_table(table({"x": [1.0, 2.0, 3.0], "site": ["A", None, "B"], "y": [0, 1, 0]}), content)
    return content.getvalue()


def _good_dataset(file: str) -> Callable[[], bytes]:
    """A file of a saved data set, which is made in the working folder."""

    def good() -> bytes:
        import datasets  # noqa: PLC0415 - of an extra

        datasets.disable_progress_bars()
        datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 4, "label": [0, 1, 0, 1]}).save_to_disk("saved")
        return Path("saved", file).read_bytes()

    return good


def _good_weights() -> bytes:
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}, content)
    return content.getvalue()


def _good_image() -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.zeros((5, 4, 3), np.uint8)).save(content, "PNG")
    return content.getvalue()


def put_into_json(content: bytes, place: int, odd: Any) -> bytes:
    """Put something odd into a JSON file without a check, as others may write it."""
    value = {name: each for name, each in json.loads(content).items() if name != "check"}
    return json.dumps(put(value, place, odd)).encode()


def put_into_manifest(content: bytes, place: int, odd: Any) -> bytes:
    """Put something odd into a manifest, with a hash that is right."""
    facts = put(json.loads(content), place, odd)
    if isinstance(facts, dict):
        facts["sha256"] = _hash_facts(facts)
    return json.dumps(facts, indent=1, sort_keys=True).encode() + b"\n"


def _read_store(name: str) -> Callable[[bytes], object]:
    return reading(name, verify_store, read_history, read_current)


def _made_store(name: str) -> Callable[[], bytes]:
    def good() -> bytes:
        make_versions(Path())
        return Path(name).read_bytes()

    return good


def _read_dataset(folder: Path) -> object:
    with suppress(SelfReminderError):
        read_pieces(f"hf:{folder / 'saved'}", '{"by": "parts:2"}')  # in blocks
    return read_own_data(folder / "saved", limit="200MB")


_DATASET = ("dataset_info.json", "state.json", "data-00000-of-00001.arrow")
PARSERS = {
    "arrays (npz)": Parser(_good_npz, _read_own("own.npz")),
    "tables (CSV)": Parser(lambda: _CSV, _read_own("own.csv")),
    "tables (Parquet)": Parser(_good_parquet, _read_own("own.parquet")),
    **{
        f"saved data sets ({name.partition('-')[0]})": Parser(
            _good_dataset(name),
            reading(f"saved/{name}", _read_dataset),
            put_into_json if name.endswith("json") else None,
        )
        for name in _DATASET
    },
    "images": Parser(
        _good_image,
        reading("photos/cat/1.png", lambda folder: read_own_data(folder / "photos", limit="200MB")),
        put_into_png,
    ),
    "weights (.pt)": Parser(_good_weights, reading("weights.pt", lambda folder: read_weights(folder / "weights.pt"))),
    "a store's settings (TOML)": Parser(
        lambda: _TOML, reading("selfreminder.toml", lambda folder: Config.read(folder / "selfreminder.toml"))
    ),
    "manifests (JSON)": Parser(
        _made_store(f"store/versions/2/{MANIFEST}"), _read_store(f"store/versions/2/{MANIFEST}"), put_into_manifest
    ),
    "a store's pointer (JSON)": Parser(
        _made_store("store/current.json"), _read_store("store/current.json"), put_into_json
    ),
    "held-out slices": Parser(
        _made_store("store/versions/2/heldout.safetensors"),
        reading("heldout.safetensors", lambda folder: HeldOut.load(folder / "heldout.safetensors").read()),
        partial(put_into_tensors, "selfreminder-heldout"),
    ),
}
join_campaign(PARSERS)


def _npz(content: Callable[[zipfile.ZipFile], None]) -> object:
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        content(archive)
    return read_own_data("bomb.npz", limit="200MB")


def _write_zeros(archive: zipfile.ZipFile, name: str, head: bytes, size: int) -> None:
    with archive.open(name, "w", force_zip64=True) as member:
        member.write(head)
        for _ in range(size >> 24):
            member.write(bytes(1 << 24))


def _read_wide_parquet() -> object:
    import pyarrow as pa  # noqa: PLC0415 - of an extra
    from pyarrow import parquet  # noqa: PLC0415 - of an extra

    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, np.int32)), pa.array(["a" * 1000]))
    parquet.write_table(pa.table({"x": np.zeros(3_000_000), "text": values}), "bomb.parquet")
    return read_own_data("bomb.parquet", limit="200MB")


HOSTILE |= {
    "an array that says it has 3 GB": lambda: _npz(
        lambda archive: _write_zeros(archive, "x.npy", _head((3 << 28,)), 3 << 30)
    ),
    "an .npz with 3 GB beside its arrays": lambda: _npz(lambda archive: _write_zeros(archive, "x", b"", 3 << 30)),
    "an array whose header has 3 GB": lambda: _npz(
        lambda archive: _write_zeros(archive, "x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff", 3 << 30)
    ),
    "a Parquet file of 3 GB in 3 MB": _read_wide_parquet,
    "TOML 100,000 deep in a store's settings": lambda: PARSERS["a store's settings (TOML)"].read(
        b"a = " + b"[" * 100_000
    ),
    "weights that call": lambda: PARSERS["weights (.pt)"].read(b"cos\nsystem\n(S'touch harmed'\ntR."),
    "an .npz that calls": lambda: _npz(lambda archive: archive.writestr("x.npy", _objects())),
}


def _head(shape: tuple[int, ...]) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return content.getvalue()


def _objects() -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.array([{"a": 1}], object))
    return content.getvalue()
