"""Strangers' files: parsers are given what we never wrote. No crash, hang or traceback, and little memory."""

import gzip
import io
import json
import os
import pickle
import re
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

from chaos.campaign import HARMLESS, WRONG, Outcome, Said, Trial, call, fault, judge, judge_apart, limit_memory
from chaos.command import MADE_UP, PARTS, make_archive
from chaos.corruption import FILES, RUN, read_report, read_run, read_status
from chaos.crashes import SPEC
from selfreminder import Memory, open_memory, save_memory
from selfreminder._base import tensor_file
from selfreminder._base.errors import SelfReminderError
from selfreminder.data import source
from selfreminder.data.readers import convert_png_sheet, convert_python_batch, read_cifar_batch, read_idx, write_idx
from selfreminder.experiment.checkpoint import RunState
from selfreminder.experiment.folder import GRID
from selfreminder.experiment.records import PACKED, RECORDS, STATE, read_packed
from selfreminder.experiment.sweep import read_sweep
from selfreminder.experiment.tuning.tuned import read_table

_TEXTS = ("", "none", "x" * 10_000, "\x1b[2J\x1b]0;x\x07", "../../../x", "/dev/zero", "<script>", "=HYPERLINK(1)", "\0")
_NUMBERS = (-1, 0, 1, 2**31, 2**32, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"))
_DEEP: Any = json.loads("[" * 500 + "]" * 500)
ODD = (*_NUMBERS, *_TEXTS, None, True, [], {}, [[]], {"": None}, [-1], [2**32], [2**32] * 2, _DEEP)
"""what nobody expects"""


def put(value: Any, place: int, odd: Any) -> Any:
    """Put something odd in the place of one of the values that a value holds."""
    inside = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    if not inside or place % 5 == 4:
        return odd
    key, each = inside[place // 5 % len(inside)]
    copy = value.copy()
    copy[key] = put(each, place // 5 // len(inside), odd)
    return copy


def put_into_lines(content: bytes, place: int, odd: Any) -> bytes:
    """Put something odd into lines of JSON, or a file of it, as versions without checks wrote them."""
    lines = [json.loads(line) for line in content.splitlines()] if content.count(b"\n{") else [json.loads(content)]
    lines = [{k: v for k, v in line.items() if k != "check"} for line in lines if line.get("event") != "packed"]
    lines[place % len(lines)] = put(lines[place % len(lines)], place // len(lines), odd)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def put_into_tensors(key: str, content: bytes, place: int, odd: Any) -> bytes:
    """Put something odd into what a file of tensors says of itself, with a hash that is right."""
    path = Path("forged.safetensors")
    path.write_bytes(content)
    tensors, about = tensor_file.read(path, key)
    about = put(about, place, odd)
    if isinstance(about, dict):
        tensor_file.write(path, {name: tensor.clone() for name, tensor in tensors.items()}, key, about)
    return path.read_bytes()


def put_into_png(content: bytes, place: int, odd: Any) -> bytes:
    """Put an odd number into the head of a PNG, with a check that is right."""
    head = bytearray(content[12:29])
    number = int(odd) if isinstance(odd, int) else place
    head[4 + place % 2 * 4 : 8 + place % 2 * 4] = struct.pack(">I", abs(number) % 2**32)
    return content[:12] + bytes(head) + struct.pack(">I", zlib.crc32(head)) + content[33:]


class Parser(NamedTuple):
    """What reads files of a kind: a good one of them, the reading, and how a value in it becomes an odd one."""

    good: Callable[[], bytes]
    read: Callable[[bytes], object]
    put: Callable[[bytes, int, Any], bytes] | None = None


def read_forged_memory(content: bytes) -> object:
    """What is opened can be read, or is refused in a line where it is read."""
    Path("memory.safetensors").write_bytes(content)
    memory = open_memory("memory.safetensors")
    try:
        memory.logits.sum()
        return [x.decode().sum() for x in memory.inputs.values()], memory.draw(min(2, len(memory))) if len(
            memory
        ) else 0
    except SelfReminderError:
        raise
    except Exception as error:
        raise AssertionError(f"opened, but not readable: {type(error).__name__}: {error}") from error


def _good_memory() -> bytes:
    x = (torch.arange(6 * 64).reshape(6, 8, 8) % 7).to(torch.uint8)
    save_memory(Memory.of({"x": x}, torch.ones(6, 4), task=0, labels=torch.arange(6) % 4, codecs="compressed"), "good")
    return Path("good").read_bytes()


def _good_png() -> bytes:
    made = io.BytesIO()
    Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(made, "PNG")
    return made.getvalue()


def made(kind: str) -> Callable[[], bytes]:
    """A good file, made as for corruption, in the working folder."""

    def good() -> bytes:
        FILES[kind].make(Path())
        return Path(FILES[kind].name).read_bytes()

    return good


def reading(name: str, *looks: Callable[[Path], object]) -> Callable[[bytes], object]:
    def read(content: bytes) -> object:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).unlink(missing_ok=True)  # another file: who has mapped the one before may still do so
        Path(name).write_bytes(content)
        for look in looks:
            found = look(Path())
            if isinstance(found, Said) and found.code:
                raise SelfReminderError(found.err or found.out)
        return None

    return read


def _get(folder: Path) -> object:
    os.environ["SELFREMINDER_CACHE"] = str(folder / f"cache-{time.monotonic_ns()}")
    return source.get(MADE_UP, folder)


_LABELS = json.dumps([1, 2]).encode()
PARSERS = {
    "memory files": Parser(_good_memory, read_forged_memory, partial(put_into_tensors, "selfreminder")),
    "states of runs": Parser(
        made("the state of a run"),
        reading(f"{RUN}/{STATE}", lambda folder: RunState.load(folder / RUN)),
        partial(put_into_tensors, "selfreminder-state"),
    ),
    "idx files": Parser(lambda: write_idx(np.zeros((2, 3), np.uint8)), read_idx),
    "CIFAR's binary files": Parser(lambda: bytes(2 * 3073), partial(read_cifar_batch, labels=1)),
    "CIFAR's pickles": Parser(
        lambda: pickle.dumps({"labels": [1, 2], "data": np.zeros((2, 3072), np.uint8)}, protocol=2),
        partial(convert_python_batch, labels=("labels",)),
    ),
    "archives": Parser(
        lambda: gzip.decompress(make_archive(dict.fromkeys(PARTS, b"x"))), reading("chaos.tar.gz", _get)
    ),
    "PNG sheets": Parser(_good_png, lambda content: convert_png_sheet(content, _LABELS, 0), put_into_png),
    "specs (TOML)": Parser(
        SPEC.encode, reading("spec.toml", lambda folder: read_sweep(folder / "spec.toml").experiments)
    ),
    "tables of strengths (TOML)": Parser(
        lambda: b"[permuted-mnist.demo.ewc]\nstrength = 10.0\n",
        reading("tuned.toml", lambda folder: read_table(folder / "tuned.toml")),
    ),
    "records (JSON)": Parser(
        made("records"), reading(f"{RUN}/{RECORDS}", read_run, read_status, read_report), put_into_lines
    ),
    "packed records (JSON)": Parser(made("packed records"), reading(PACKED, read_packed, read_status), put_into_lines),
    "lists of runs (JSON)": Parser(made("a grid's list"), reading(GRID, read_status, read_report), put_into_lines),
}
_EDITS = st.lists(st.tuples(st.integers(0), st.binary(max_size=8), st.booleans()), min_size=1, max_size=4)


def edit(content: bytes, edits: list[tuple[int, bytes, bool]]) -> bytes:
    """Overwrite or insert bytes here and there."""
    for place, new, inserted in edits:
        place %= len(content) + 1
        content = content[:place] + new + content[place + (0 if inserted else len(new)) :]
    return content


def fuzz(parser: Parser, trial: Trial) -> Iterator[Outcome]:
    """Give a parser edited and odd files for some time."""
    os.chdir(trial.folder)
    good, outcomes = parser.good(), list[Outcome]()
    limit_memory()
    ends = time.monotonic() + 60 * trial.minutes

    @settings(
        max_examples=100,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.one_of(_EDITS, st.binary(max_size=300), st.tuples(st.integers(0, 10**6), st.sampled_from(ODD))))
    def strike(change: Any) -> None:
        if isinstance(change, tuple):
            content = good if parser.put is None else parser.put(good, *change)
        else:
            content = change if isinstance(change, bytes) else edit(good, change)
        outcomes.append(judge(lambda: parser.read(content), what=f"{str(change)[:80]}"))

    while time.monotonic() < ends:
        seed(trial.random.getrandbits(64))(strike)()
        yield from outcomes
        outcomes.clear()


def join_campaign(parsers: dict[str, Parser]) -> None:
    """Let parsers be fuzzed."""
    for name, parser in parsers.items():
        fault("Strangers' files", f"fuzzed: {name}", short=1, long=1)(partial(fuzz, parser))


join_campaign(PARSERS)


# Files that were made to do harm --------------------------------------------------------------------------


def _forge(place: str, value: Any) -> bytes:
    """A memory file with a right hash that says something odd of its input."""
    content = _good_memory()
    tensors, about = tensor_file.read(Path("good"), "selfreminder")
    about["inputs"]["x"][place] = value
    tensor_file.write(Path("good"), {name: tensor.clone() for name, tensor in tensors.items()}, "selfreminder", about)
    forged, _ = Path("good").read_bytes(), Path("good").write_bytes(content)
    return forged


def _png_of(width: int, height: int) -> bytes:
    return put_into_png(put_into_png(_good_png(), 0, width), 1, height)


HOSTILE: dict[str, Callable[[], object]] = {
    "a pickle that asks for 4 GB": lambda: PARSERS["CIFAR's pickles"].read(b"\x80\x04\x8e" + struct.pack("<Q", 2**32)),
    "a pickle with a far memo": lambda: PARSERS["CIFAR's pickles"].read(
        b"\x80\x02Nr" + struct.pack("<I", 2**31) + b"."
    ),
    "a pickle that calls": lambda: PARSERS["CIFAR's pickles"].read(b"cos\nsystem\n(S'touch harmed'\ntR."),
    "an archive with 3 GB of zeros": lambda: PARSERS["archives"].read(_archive_of_zeros(3 * 2**30)),
    "a PNG of 60,000 x 60,000": lambda: PARSERS["PNG sheets"].read(_png_of(60_000, 60_000)),
    "items of shape [-1]": lambda: read_forged_memory(_forge("shape", [-1])),
    "items of shape [2**32]": lambda: read_forged_memory(_forge("shape", [2**32])),
    "an idx file of 255 dimensions": lambda: read_idx(b"\0\0\x08\xff" + b"\xff" * 1020),
    "JSON 100,000 deep": lambda: PARSERS["lists of runs (JSON)"].read(b"[" * 100_000),
    "TOML 100,000 deep": lambda: PARSERS["specs (TOML)"].read(b"a = " + b"[" * 100_000),
    "a number of a million digits": lambda: PARSERS["specs (TOML)"].read(b"epochs = 1" + b"0" * 1_000_000),
}
"""a later one joins the campaign by one line"""


def _archive_of_zeros(size: int) -> bytes:
    """An archive of a few MB whose first member has so many bytes."""
    entry = b"".join(_tar_head(name, size) for name in list(PARTS)[:1])
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", compresslevel=1) as packed:
        packed.write(entry)
        for _ in range(size >> 24):
            packed.write(bytes(1 << 24))
    return made.getvalue()


def _tar_head(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(f"chaos/{name}")
    entry.size = size
    return entry.tobuf()


@fault("Strangers' files", "made to do harm: bombs, calls, depths", short=1, long=1)
def read_hostile(trial: Trial) -> Iterator[Outcome]:
    """Read files that ask for gigabytes, for calls or for a deep stack: one line, and nothing was done."""
    os.chdir(trial.folder)
    for name, read in HOSTILE.items():
        yield judge_apart(read, name)
        if Path("harmed").exists():
            yield Outcome(WRONG, f"{name}: it was run")


@fault("Strangers' files", "texts of strangers in terminals, pages, tables and paths", short=1, long=1)
def show_texts(trial: Trial) -> Iterator[Outcome]:
    """Show a memory whose names are escapes, markup, formulas and paths: none of them gets through."""
    x = torch.zeros(2, 8, 8, dtype=torch.uint8)
    for text in ("\x1b[2J", "../../out", "<script>alert(1)</script>", "=HYPERLINK(1)", "/tmp/x"):
        folder = trial.fresh()
        memory = Memory.of({text: x, "ids": x[:, 0]}, torch.ones(2, 2), task=0, selection=text)
        saved = judge(lambda memory=memory, folder=folder: save_memory(memory, folder / "m.safetensors"), what=text)
        if saved.kind != HARMLESS:
            yield saved
            continue
        words = [("list",), ("show", "--html", folder / "page.html"), ("export", "--out", folder / "out")]
        said = [call("memory", word, folder / "m.safetensors", *more) for word, *more in words]
        page = (folder / "page.html").read_text(encoding="utf-8") if (folder / "page.html").exists() else ""
        table = (folder / "out" / "items.csv").read_text(encoding="utf-8") if (folder / "out").exists() else ""
        arrays = [n for path in folder.glob("out/*.npz") for n in zipfile.ZipFile(path).namelist()]
        bad = [
            *("an escape in the terminal" for each in said if "\x1b" in each.out + each.err),
            *(["markup in the page"] if "<script>alert" in page or "Content-Security-Policy" not in page else []),
            *("a formula in the table" for cell in re.split(r"[,\n]", table) if cell.strip('"')[:1] == "="),
            *("a path in the arrays" for name in arrays if name.startswith("/") or ".." in name),
            *("a file outside" for outside in (trial.folder, trial.folder.parent) if (outside / "out").exists()),
        ]
        yield Outcome(WRONG, f"{text!r}: {bad[0]}") if bad else Outcome(HARMLESS)
