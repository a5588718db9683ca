"""What is handed over gives the same logits, for any number of items, and holds nobody's data."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from selfreminder._base.errors import MissingExtraError, SelfReminderError, StoreError
from selfreminder.store.export import export_hf, export_onnx, export_pt2


def make_model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(4 * 36, 3)
        return nn.Sequential(*parts)


def scale(x: torch.Tensor) -> torch.Tensor:
    return x.float() / 255


IMAGES = torch.arange(5 * 64, dtype=torch.uint8).reshape(5, 1, 8, 8)


def test_onnx_gives_the_same_for_any_number_of_raw_images(tmp_path: Path):
    model, path = make_model(), tmp_path / "m.onnx"
    done = export_onnx(model, IMAGES[:2], path, classes=["a", "b", "é"], preprocess=scale)
    assert done.batches == (2, 1, 5)
    assert done.difference < 1e-5
    assert done.nbytes == path.stat().st_size
    assert model.training
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"x": IMAGES.numpy()})
    assert np.allclose(logits, model.eval()(scale(IMAGES)).detach(), atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "é"]
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


def test_an_exported_program_needs_no_code_and_keeps_no_example(tmp_path: Path):
    model, path = make_model(), tmp_path / "m.pt2"
    export_pt2(model, IMAGES[1:3], path, classes=["a", "b", "c"], preprocess=scale)
    extra = {"classes.json": ""}
    program = torch.export.load(path, extra_files=extra)
    with torch.no_grad():
        assert program.module()(IMAGES).allclose(model.eval()(scale(IMAGES)), atol=1e-6)
    assert json.loads(extra["classes.json"]) == ["a", "b", "c"]
    with zipfile.ZipFile(path) as archive:
        assert not any(IMAGES[1].numpy().tobytes() in archive.read(name) for name in archive.namelist())


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        return {"logits": self.last((self.embed(input_ids) * attention_mask[..., None]).mean(1))}


def test_several_inputs_by_name_and_logits_in_a_dict(tmp_path: Path):
    example = {"input_ids": torch.tensor([[1, 2, 8]]), "attention_mask": torch.tensor([[1, 1, 0]])}
    export_onnx(Tokens(), example, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask"]
    assert export_pt2(Tokens(), example, tmp_path / "m.pt2").batches == (1, 4)


class OfTwo(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1)[:, :3]


class AtRandom(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


@pytest.mark.parametrize("export", [export_onnx, export_pt2])
@pytest.mark.parametrize(
    ("model", "message"),
    [(OfTwo(), "cannot be written as .* a fixed number of items"), (AtRandom(), "gives other logits than the model")],
)
def test_a_model_that_cannot_be_exported_leaves_what_was_there(tmp_path: Path, export, model: nn.Module, message: str):
    (tmp_path / "m").write_text("as it was")
    before = torch.get_rng_state()
    with pytest.raises(StoreError, match=message) as error, torch.random.fork_rng(devices=[]):
        export(model, torch.rand(2, 6, generator=torch.Generator().manual_seed(0)), tmp_path / "m")
    assert torch.get_rng_state().equal(before)
    assert "\n" not in str(error.value)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["as it was"]


def test_an_example_without_items_is_refused(tmp_path: Path):
    with pytest.raises(SelfReminderError, match="no items"):
        export_pt2(make_model(), IMAGES[:0], tmp_path / "m")


def test_a_missing_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'selfreminder\[onnx\]'"):
        export_onnx(make_model(), IMAGES, tmp_path / "m.onnx", preprocess=scale)


# Hugging Face ---------------------------------------------------------------------------------------------


@pytest.fixture
def version(tmp_path: Path) -> Path:
    folder = tmp_path / "version"
    folder.mkdir()
    save_file(make_model().state_dict(), folder / "model.safetensors")
    (folder / "README.md").write_text("# Version 1\n")
    (folder / "memory.safetensors").write_text("data")
    return folder


def test_a_folder_for_hugging_face_has_weights_card_and_names_but_no_data(version: Path, tmp_path: Path):
    export_hf(version, tmp_path / "out", classes=["a", "b", "c"])
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert weights.keys() == make_model().state_dict().keys()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "a", "1": "b", "2": "c"}
    with pytest.raises(StoreError, match="there already"):
        export_hf(version, tmp_path / "out")


def test_transformers_loads_what_came_from_transformers(tmp_path: Path):
    small = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    with torch.random.fork_rng(devices=[]):
        model = BertForSequenceClassification(small).eval()
    model.save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "vocab.txt").write_text("[PAD]\n")
    (tmp_path / "version").mkdir()
    save_file(model.state_dict(), tmp_path / "version" / "model.safetensors")
    export_hf(tmp_path / "version", tmp_path / "out", classes=["x", "y", "z"], source=tmp_path / "source")
    loaded = BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    ids = torch.tensor([[1, 2, 3]])
    weights = model.state_dict()
    assert all(each.equal(weights[name]) for name, each in loaded.state_dict().items())
    with torch.no_grad():
        assert loaded(ids).logits.allclose(model(ids).logits, atol=1e-6)
    assert loaded.config.id2label == {0: "x", 1: "y", 2: "z"}
    assert (tmp_path / "out" / "vocab.txt").is_file()


def test_weights_that_are_damaged_write_nothing(version: Path, tmp_path: Path):
    (version / "model.safetensors").write_text("no tensors")
    with pytest.raises(StoreError, match="cannot be read"):
        export_hf(version, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["version"]
