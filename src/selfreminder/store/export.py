"""Hand a model over to others: ONNX, PyTorch's own exported program, or a folder in the layout of Hugging Face.

What is written was run before: it gives the same logits as the model, for one item and for several.
"""

import io
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from selfreminder._base.atomic import move_folder, replace_file, write_text
from selfreminder._base.errors import MissingExtraError, StoreError
from selfreminder._base.eval_mode import eval_mode
from selfreminder._base.tensor_file import NotATensorFileError, read_plain
from selfreminder.reminder.model_call import ModelCall, check_logits, unwrap_model
from selfreminder.samples import name_inputs

_TOLERANCE = 1e-4
"""of the largest logit: sums of floats in another order differ by less, another computation by more"""
_TRACED = 2
"""items while a model is looked at: of one item, it would be taken for granted that there is one"""
_MODEL, _CARD, _CONFIG = "model.safetensors", "README.md", "config.json"

Compute = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how near its logits are."""

    path: Path
    nbytes: int
    difference: float
    """the largest between a logit of the model and the file's"""
    batches: tuple[int, ...]
    """numbers of items that were tried"""


class _Logits(nn.Module):
    """A model from its inputs, in order, to its logits: what is exported."""

    def __init__(self, model: nn.Module, names: Sequence[str], call: ModelCall) -> None:
        super().__init__()
        self.model, self.names, self.call = model, list(names), call

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(self.model, dict(zip(self.names, inputs)), 0)


def export_onnx(
    model: nn.Module,
    example: Any,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    preprocess: Callable[[Any], Any] | None = None,
) -> Exported:
    """Write a model as an ONNX file, with a free number of items.

    Args:
        model: whose logits it gives, in eval mode.
        example: inputs as the model (or `preprocess`) takes them, a few items; compared, not written.
        path: of the file.
        classes: names of the logits, in order; they are in the file's metadata, as JSON under "classes".
        preprocess: from inputs as they are kept to what the model takes: becomes a part of the file.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - of the extra `onnx`
        import onnxscript  # noqa: F401, PLC0415 - torch's exporter needs it
    except ImportError as error:
        raise _missing(error) from None
    with _on_cpu(model, example, preprocess) as (network, inputs):
        named: Any = {"input_names": list(inputs), "output_names": ["logits"], "verbose": False}
        with _quiet(), _explained("ONNX"):
            program = torch.onnx.export(_trace(network, inputs), dynamo=True, **named)
        if program is None:
            raise StoreError("the model cannot be written as ONNX: torch gave no reason")
        if classes is not None:
            program.model.metadata_props["classes"] = json.dumps(list(classes), ensure_ascii=False)
        with replace_file(path) as temporary:
            program.save(str(temporary), external_data=False)
            session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
            taken = [each.name for each in session.get_inputs()]  # one that the model never uses is not among them

            def compute(batch: Mapping[str, Tensor]) -> Tensor:
                fed = {name: batch[name].numpy() for name in taken}
                return torch.as_tensor(session.run(["logits"], fed)[0])

            difference, batches = _compare(network, inputs, compute, "ONNX")
    return Exported(path, path.stat().st_size, difference, batches)


def export_pt2(
    model: nn.Module,
    example: Any,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    preprocess: Callable[[Any], Any] | None = None,
) -> Exported:
    """Write a model as PyTorch's exported program, which `torch.export.load` reads without the model's own code.

    The arguments are those of `export_onnx`; `classes` is a further file in the archive, "classes.json".
    """
    with _on_cpu(model, example, preprocess) as (network, inputs):
        content = io.BytesIO()
        with _quiet(), _explained("an exported program"):
            program = _trace(network, inputs)
            names = {"classes.json": json.dumps(list(classes), ensure_ascii=False)} if classes is not None else {}
            torch.export.save(program, content, extra_files=names)
            content.seek(0)
            loaded = torch.export.load(content).module()
        difference, batches = _compare(network, inputs, lambda batch: loaded(*batch.values()), "the exported program")
        with replace_file(path) as temporary:
            temporary.write_bytes(content.getvalue())
    return Exported(path, path.stat().st_size, difference, batches)


def export_hf(
    version: Path,
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    outputs: int | None = None,
    source: Path | None = None,
    timm: str | None = None,
) -> Path:
    """Write a version as a folder in the layout of Hugging Face: weights, `config.json` and the model card.

    What is remembered and what is held out are data, and stay behind.

    Args:
        version: a folder with model.safetensors and README.md.
        path: the new folder.
        classes: names of the outputs, in order.
        outputs: how many there are, where they have no names.
        source: the folder of transformers that the model came from: its config and tokenizer are taken over, and
            `from_pretrained(path)` loads the result.
        timm: the name of the model in timm: `timm.create_model("local-dir:PATH")` loads the result.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise StoreError(f"{path} is there already: name a new folder")
    try:
        weights = read_plain(version / _MODEL)
    except (NotATensorFileError, OSError) as error:
        raise StoreError(f"{version / _MODEL} cannot be read: {error}") from None
    config = _make_config(list(classes or ()), outputs, source, timm)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    shutil.rmtree(beside, ignore_errors=True)  # left by a kill
    beside.mkdir()
    try:
        if source is not None:
            for file in source.iterdir():
                if file.is_file() and file.suffix in _TAKEN_OVER:
                    shutil.copyfile(file, beside / file.name)
        # transformers wants to know who wrote them; mapped tensors are copied, for the file may be replaced.
        save_file({name: each.contiguous() for name, each in weights.items()}, beside / _MODEL, {"format": "pt"})
        write_text(beside / _CONFIG, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        if (version / _CARD).is_file():
            shutil.copyfile(version / _CARD, beside / _CARD)
        else:
            write_text(beside / _CARD, "---\nlibrary_name: pytorch\n---\n")
        if path.exists():
            path.rmdir()
        move_folder(beside, path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return path


_TAKEN_OVER = frozenset({".json", ".txt", ".model", ".jinja"})
"""how files of a tokenizer end; weights and code are not among them"""


def _make_config(names: list[str], outputs: int | None, source: Path | None, timm: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if source is not None:
        try:
            config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{source / _CONFIG} cannot be read: {error}") from None
    elif timm is not None:
        own = {"architecture": timm} | ({"num_classes": len(names) or outputs} if names or outputs else {})
        config = own | {"label_names": names, "pretrained_cfg": own}
    if source is not None and not names and outputs is not None and outputs != len(config.get("id2label", ())):
        names = [f"LABEL_{place}" for place in range(outputs)]  # as transformers calls them
    if names or source is None:
        config |= {"id2label": dict(enumerate(names)), "label2id": {name: place for place, name in enumerate(names)}}
        config.pop("num_labels", None)  # transformers counts the names
    return config


# What is exported is the same ----------------------------------------------------------------------------


@contextmanager
def _on_cpu(model: nn.Module, example: Any, preprocess: Callable[[Any], Any] | None) -> Iterator[tuple[_Logits, dict]]:
    """The model as it is exported: in eval mode, without gradients, on the CPU; put back after that."""
    model = unwrap_model(model)
    inputs = {name: x.detach().cpu() for name, x in name_inputs(example).items()}
    if not len(next(iter(inputs.values()))):
        raise StoreError("the example has no items: give at least one")
    places = {each.device for each in (*model.parameters(), *model.buffers())}
    with eval_mode(model):
        model.cpu()
        try:
            yield _Logits(model, list(inputs), ModelCall(transform=preprocess)), inputs
        finally:
            if len(places) == 1:
                model.to(places.pop())


def _trace(network: _Logits, inputs: Mapping[str, Tensor]) -> torch.export.ExportedProgram:
    """Look at what the model computes, for any number of items.

    It is called on zeros: an archive keeps what it was called on, and that should be nobody's data.
    """
    items = torch.export.Dim("items")
    zeros = tuple(x.new_zeros((_TRACED, *x.shape[1:])) for x in inputs.values())
    with torch.no_grad():
        return torch.export.export(network, zeros, dynamic_shapes={"inputs": tuple({0: items} for _ in inputs)})


def _compare(
    network: _Logits, inputs: Mapping[str, Tensor], compute: Compute, what: str
) -> tuple[float, tuple[int, ...]]:
    """The largest difference of logits over several numbers of items; raise if it is one."""
    n = len(next(iter(inputs.values())))
    batches = tuple(dict.fromkeys((n, 1, n + 3)))
    largest = 0.0
    for size in batches:
        rows = torch.arange(size) % n
        batch = {name: x[rows] for name, x in inputs.items()}
        with torch.no_grad():
            wanted = network(*(x.clone() for x in batch.values()))
            check_logits(wanted, size)
            with _quiet(), _explained(what):
                found = compute(batch)
        if found.shape != wanted.shape:
            raise StoreError(f"{what} gives {tuple(found.shape)} for {size} items, the model {tuple(wanted.shape)}")
        difference = float((found.double() - wanted.double()).abs().max())
        if not difference <= _TOLERANCE * max(1.0, float(wanted.abs().max())):
            raise StoreError(
                f"{what} gives other logits than the model, by up to {difference:.3g} for {size} items: nothing is "
                "written. A model that computes by its inputs' values, or at random, cannot be exported"
            )
        largest = max(largest, difference)
    return largest, batches


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """What torch or a runtime raises about a model, as one line."""
    try:
        yield
    except (MissingExtraError, StoreError):
        raise
    except ImportError as error:
        raise _missing(error) from None
    except Exception as error:  # a model can fail in any way
        cause: BaseException = error
        while cause.__cause__ is not None:  # the exporter's own words are about its stack
            cause = cause.__cause__
        first = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        reason = f"{type(cause).__name__}: {first.strip()[:300]}"
        if "Constraints violated" in str(cause):  # which goes on for pages about symbols
            reason = "it computes for a fixed number of items: look for a batch size that is written in its code"
        raise StoreError(f"the model cannot be written as {what}: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says to itself while it exports."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _missing(error: ImportError) -> MissingExtraError:
    return MissingExtraError(f"ONNX needs {error.name or 'onnx'}: pip install 'selfreminder[onnx]'")
