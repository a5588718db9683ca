"""docs/update.md: a newcomer comes from arrays, a factory and weights to a promoted update by its commands alone."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from shop import CODE, make_shop

from selfreminder.store.config import Config

PAGE = Path(__file__).parents[2] / "docs" / "update.md"


@pytest.mark.slow
def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    make_shop(tmp_path)
    (tmp_path / "shop.py").write_text(CODE)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 5
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "selfreminder"
        done = subprocess.run(
            [sys.executable, "-m", "selfreminder", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_every_key_of_the_page_is_known(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "selfreminder.toml").write_text(block)
    config = Config.read(tmp_path / "selfreminder.toml")
    assert config.model.factory == "shop:build" and config.train.max_drop == 0.01 and config.mlflow.name == "shop"
