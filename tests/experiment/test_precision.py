"""Training in bfloat16 is another experiment, recorded as such; what was there before keeps its name."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from selfreminder._base.errors import SelfReminderError
from selfreminder.cli import main
from selfreminder.experiment import devices
from selfreminder.experiment.records import RECORDS, read_records
from selfreminder.experiment.run import run
from selfreminder.training import StoppedError
from tiny import TINY

HALF = replace(TINY, method="fsr-logit", precision="bf16")


def test_the_default_keeps_old_names() -> None:
    assert "precision" not in TINY.as_recorded()
    assert HALF.as_recorded()["precision"] == "bf16"
    assert HALF.key != replace(HALF, precision="fp32").key
    with pytest.raises(SelfReminderError, match="unknown precision 'fp16'"):
        replace(TINY, precision="fp16")


def test_steps_are_in_bfloat16_and_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(HALF, tmp_path / "whole")
    full = run(replace(HALF, precision="fp32"), tmp_path / "full")
    assert [event["loss"] for event in whole.epochs] != [event["loss"] for event in full.epochs]
    for ours, theirs in zip(whole.epochs, full.epochs):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.02)  # eight bits of mantissa
    asked, done = iter(range(1000)), False
    while not done:
        with suppress(StoppedError):
            done = run(HALF, tmp_path / "parts", stop=lambda: next(asked) % 5 == 4).done
    assert (tmp_path / "parts" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()


def test_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.choose_device("cuda:1") == "cuda:1"
    assert devices.choose_precision("fp32", "cuda") == "fp32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose_device("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.choose_device("auto") == "cpu"
    tiny = [
        "compare",
        "permuted-mnist",
        "-m",
        "adam",
        "--seeds",
        "1",
        "--tasks",
        "1",
        "--epochs",
        "1",
        "--width",
        ".02",
    ]
    words = [*tiny, "--device", "auto", "--precision", "bf16", "--json", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["results"]
    (path,) = (tmp_path / "out").glob(f"*/{RECORDS}")
    records = read_records(path.parent)
    assert records is not None
    assert (records.experiment.device, records.experiment.precision) == ("cpu", "bf16")
    if not torch.cuda.is_available():
        assert main([*tiny, "--device", "cuda", "--out", str(tmp_path / "no")]) == 2
        assert "device cuda: torch finds no CUDA here; use the device cpu" in capsys.readouterr().err
